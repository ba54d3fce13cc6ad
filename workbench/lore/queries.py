"""The query that a command is about: SQL text, a file of it, or a Python function that gives a DataFrame."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError, InputError
from workbench.lore.failure import failure_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW = re.compile(r"([A-Za-z_]\w{0,100})=(.+)")
_FORMATS = {".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".csv": "csv"}
MAX_SQL_BYTES = 4 << 20


@dataclass(frozen=True)
class Query:
    """A query with the tables that it names.

    Attributes
    ----------
    text
        SQL; null for a function.
    script, function
        A Python file and the name of a function in it that takes the session and gives a DataFrame.
    views
        Paths or URLs by name of the view: Parquet, ORC, JSON or CSV (with a header), by their ending.
    """

    text: str | None = None
    script: Path | None = None
    function: str = "query"
    views: Mapping[str, str] = field(default_factory=dict)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The query as a DataFrame of this session; nothing is run.

        Raises
        ------
        InputError
            Spark cannot read a table or understand the query, or the script has no such function.
        """
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        for name, path in self.views.items():
            try:
                _read(spark, path).createOrReplaceTempView(name)
            # A file that is there and broken is no PySparkException.
            except (PySparkException, Py4JJavaError) as error:
                raise InputError("a table cannot be read", where=f"--view {name}", found=_first(error)) from error
        if self.script is not None:
            return _called(self.script, self.function, spark)
        try:
            return spark.sql(self.text or "")
        except (PySparkException, Py4JJavaError) as error:
            raise InputError("Spark does not take this query", where="the query", found=_first(error)) from error


def query(source: str | None, sql: str | None, views: Sequence[str] = (), data: str | None = None) -> Query:
    """The query that the options name.

    Parameters
    ----------
    source
        FILE.sql, or FILE.py or FILE.py:FUNCTION, a function of the session that gives a DataFrame.
    sql
        The text itself, instead of a file.
    views
        NAME=PATH each.
    data
        A folder whose Parquet files and folders become views of their names.

    Raises
    ------
    ConfigError, InputError
        None or both given, a file that is not there, a view without a path.
    """
    if (source is None) == (sql is None):
        raise ConfigError("give one query", where="QUERY, --sql", allowed="FILE.sql, FILE.py:FUNCTION or --sql TEXT")
    named = dict(_views(views))
    if data is not None:
        named = _tables(data) | named
    if sql is not None:
        return Query(text=sql, views=named)
    # A colon of a drive stands before the name of the file.
    path, _, function = (source or "").rpartition(":") if re.search(r"\.py:\w+$", source or "") else (source, "", "")
    file = Path(path or "")
    if not file.is_file():
        raise InputError("no such file", where="QUERY", found=path, do="FILE.sql, FILE.py:FUNCTION, or --sql TEXT")
    if file.suffix == ".py":
        return Query(script=file, function=function or "query", views=named)
    if file.stat().st_size > MAX_SQL_BYTES:
        raise InputError("too large for a query", where=file, found=f"{file.stat().st_size} bytes")
    return Query(text=_sql(file), views=named)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
    """What Spark or the file system says of a query that does not come through, as an error for the user.

    Raises
    ------
    InputError
        With the innermost cause.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            "Spark could not run this",
            where="the query",
            found=str(failure_of(error))[:1000],
            do="if the query itself fails: workbench lore dump --failed finds the operator and dumps its inputs",
        ) from error
    except OSError as error:
        raise InputError("a file or folder cannot be used", where=error.filename, found=error.strerror) from error


def _sql(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read", where=file, found=str(error)[:200], allowed="SQL in UTF-8") from error
    text = text.strip().rstrip(";").strip()
    if not text:
        raise InputError("there is no query in it", where=file)
    return text


def _views(views: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for text in views:
        match = _VIEW.fullmatch(text)
        if not match:
            raise ConfigError("not a view", where="--view", found=text[:200], allowed="NAME=PATH")
        found.append((match[1], match[2]))
    return found


def _tables(data: str) -> dict[str, str]:
    folder = Path(data)
    if not folder.is_dir():
        raise InputError("no such folder", where="--data", found=data, do="for data at a URL give --view NAME=URL each")
    found = {path.stem: str(path) for path in sorted(folder.iterdir()) if path.suffix == ".parquet"}
    if not found:
        raise InputError("there is no Parquet file or folder", where="--data", found=data)
    return found


def _read(spark: SparkSession, path: str) -> DataFrame:
    ending = Path(path.rstrip("/")).suffix.lower()
    reader = spark.read.format(_FORMATS.get(ending, "parquet"))
    if ending == ".csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    return reader.load(path if "://" in path else str(Path(path).absolute()))


def _called(script: Path, function: str, spark: SparkSession) -> DataFrame:
    from pyspark import cloudpickle
    from pyspark.sql import DataFrame

    name = f"workbench_lore_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    if spec is None or spec.loader is None:
        raise InputError("not a Python file", where="QUERY", found=script)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # By value: executors and replays have no such module.
    cloudpickle.register_pickle_by_value(module)
    try:
        spec.loader.exec_module(module)
    # A script that ends the process would end it with its own exit code, 0 perhaps.
    except (Exception, SystemExit) as error:
        raise InputError("the script fails", where=script, found=f"{type(error).__name__}: {error}"[:300]) from error
    made = getattr(module, function, None)
    if not callable(made):
        has = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise InputError("the script has no such function", where=script, found=function, allowed=has[:20])
    try:
        frame = made(spark)
    except (Exception, SystemExit) as error:
        found = f"{type(error).__name__}: {_first(error)}"
        raise InputError("the function fails", where=f"{script}:{function}", found=found) from error
    if not isinstance(frame, DataFrame):
        raise InputError("the function gives no DataFrame", where=f"{script}:{function}", found=type(frame).__name__)
    return frame


def _first(error: BaseException) -> str:
    # py4j's own text begins with the call; and what is wrong with a setting is the cause of what Spark says of it.
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    is_wrapped = hasattr(error, "java_exception") or (java is not None and java.getCause() is not None)
    text = str(failure_of(error) if is_wrapped else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]
