"""Queries from SQL, a file or a Python function, and a session that keeps one open."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.core.errors import ConfigError, InputError
from workbench.core.user_code import import_user_module
from workbench.lore.config import NotebookConfig, parse_settings
from workbench.lore.spark_bridge import replay_session
from workbench.lore.spark_bridge.physical_plan import PlanTree
from workbench.lore.spark_bridge.query_runs import describe_failure, tag_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW_PATTERN = re.compile(r"([A-Za-z_]\w{0,100})=(.+)")
_FORMATS = {".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".csv": "csv"}
MAX_SQL_BYTES = 4 << 20

# Below this size, the second JIT compiler costs more time than it saves for a single query.
MAX_SMALL_BYTES = 32 << 20
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_PYTHON_SOURCE = re.compile(r"(.+\.py):\w+")


@dataclass(frozen=True)
class NamedQuery:
    """A query with the tables that it names.

    `text`: SQL; null for a function.
    `script`, `function`: A Python file and the name of its function that takes the session and returns a DataFrame.
    `views`: Path or URL by name of the view: Parquet, ORC, JSON or CSV (with a header), by extension.
    """

    text: str | None = None
    script: Path | None = None
    function: str = "query"
    views: Mapping[str, str] = field(default_factory=dict)

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """The query as a DataFrame of this session; nothing is run."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        for name, path in self.views.items():
            try:
                # Read a table by the format of its ending, Parquet without one; CSV with header and inferred types.
                ending = Path(path.rstrip("/")).suffix.lower()
                reader = spark.read.format(_FORMATS.get(ending, "parquet"))
                if ending == ".csv":
                    reader = reader.option("header", "true").option("inferSchema", "true")
                table = reader.load(path if "://" in path else str(Path(path).absolute()))
                table.createOrReplaceTempView(name)
            # A damaged file raises Py4JJavaError.
            except (PySparkException, Py4JJavaError) as error:
                raise InputError(
                    "a table cannot be read",
                    where=f"--view {name}",
                    found=_first_error_line(error),
                    do="look at the file; the extension says its format: parquet, orc, json, csv",
                ) from error
        if self.script is not None:
            return _call_function(self.script, self.function, spark)
        try:
            return spark.sql(self.text or "")
        except (PySparkException, Py4JJavaError) as error:
            raise InputError(
                "Spark cannot analyze this query",
                where="the query",
                found=_first_error_line(error),
                do="correct the query; tables are given with --data or --view NAME=PATH",
            ) from error


def load_query(source: str | None, sql: str | None, views: Sequence[str] = (), data: str | None = None) -> NamedQuery:
    """The query that the options name.

    `source`: FILE.sql, or FILE.py or FILE.py:FUNCTION, a function of the session that returns a DataFrame.
    `data`: A folder whose Parquet files and folders become views of their names.
    """
    if (source is None) == (sql is None):
        raise ConfigError("give one query", where="QUERY, --sql", allowed="FILE.sql, FILE.py:FUNCTION or --sql TEXT")
    # Parse options NAME=PATH to pairs of view name and path.
    pairs = []
    for text in views:
        match = _VIEW_PATTERN.fullmatch(text)
        if not match:
            raise ConfigError("not a view", where="--view", found=text[:200], allowed="NAME=PATH")
        pairs.append((match[1], match[2]))
    named = dict(pairs)
    if data is not None:
        # Map table names to the Parquet files or folders in a folder.
        folder = Path(data)
        if not folder.is_dir():
            raise InputError("no such folder", where="--data", found=data, do="for data at URLs use --view NAME=URL")
        tables = {path.stem: str(path) for path in sorted(folder.iterdir()) if path.suffix == ".parquet"}
        if not tables:
            raise InputError(
                "there is no Parquet file or folder",
                where="--data",
                found=data,
                do="name the folder that has NAME.parquet for each table",
            )
        named = tables | named
    if sql is not None:
        return NamedQuery(text=sql, views=named)
    # A drive letter has a colon, too.
    path, _, function = (source or "").rpartition(":") if re.search(r"\.py:\w+$", source or "") else (source, "", "")
    file = Path(path or "")
    if not file.is_file():
        raise InputError("no such file", where="QUERY", found=path, do="FILE.sql, FILE.py:FUNCTION, or --sql TEXT")
    if file.suffix == ".py":
        return NamedQuery(script=file, function=function or "query", views=named)
    if file.stat().st_size > MAX_SQL_BYTES:
        raise InputError(
            "too large for a query",
            where=file,
            found=f"{file.stat().st_size} bytes",
            do="name a file with the query alone",
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read", where=file, found=str(error)[:200], allowed="SQL in UTF-8") from error
    text = text.strip().rstrip(";").strip()
    if not text:
        raise InputError("the file has no query", where=file, do="write one SELECT into it")
    return NamedQuery(text=text, views=named)


@contextlib.contextmanager
def report_spark_errors() -> Iterator[None]:
    """Raise errors of Spark and the file system as an InputError."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(
            "Spark could not run this",
            where="the query",
            found=str(describe_failure(error))[:1000],
            do="for a query that fails: workbench lore dump --failed finds the operator and dumps its inputs",
        ) from error
    except OSError as error:
        raise InputError(
            "a file or folder cannot be used",
            where=error.filename,
            found=error.strerror,
            do="look at the path and its permissions",
        ) from error


def _call_function(script: Path, function: str, spark: SparkSession) -> DataFrame:
    """Import the script and call its function, which must return a Spark DataFrame."""
    from pyspark import cloudpickle
    from pyspark.sql import DataFrame

    try:
        # By value: executors and replays do not have this module.
        module = import_user_module(str(script), prepare=cloudpickle.register_pickle_by_value)
    # SystemExit, too: the script must not end this process.
    except (Exception, SystemExit) as error:
        raise InputError(
            "the script fails",
            where=script,
            found=f"{type(error).__name__}: {error}"[:300],
            do="run it with python to see where",
        ) from error
    build_query = getattr(module, function, None)
    if not callable(build_query):
        has = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise InputError("the script has no such function", where=script, found=function, allowed=has[:20])
    try:
        frame = build_query(spark)
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {_first_error_line(error)}"
        raise InputError(
            "the function fails",
            where=f"{script}:{function}",
            found=message,
            do="correct the function at the line that the error names",
        ) from error
    if not isinstance(frame, DataFrame):
        raise InputError(
            "the function does not return a DataFrame",
            where=f"{script}:{function}",
            found=type(frame).__name__,
            do="return a DataFrame of the session that it gets",
        )
    return frame


def _first_error_line(error: BaseException) -> str:
    # The text of py4j starts with the call, and for settings the cause has the reason.
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    is_wrapped = hasattr(error, "java_exception") or (java is not None and java.getCause() is not None)
    text = str(describe_failure(error) if is_wrapped else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]


class OpenQuery:
    """The query of a configuration in an open session, until `close`; a process has at most one.

    `tree`: Its tagged plan; null when the query failed.
    `failure`: Its error in one line; null when it succeeded.
    """

    _open: OpenQuery | None = None

    def __init__(self, config: NotebookConfig) -> None:
        if OpenQuery._open is not None:
            OpenQuery._open.close()
        query = load_query(config.query_file, None, config.views, config.data_folder or None)
        confs = _quick_jit_settings(config) | parse_settings(config.confs, where="confs")
        self._stack = contextlib.ExitStack()
        self._dumps = 0
        self.tree: PlanTree | None = None
        self.failure: str | None = None
        spark = self._stack.enter_context(replay_session.fresh_session(settings=confs, filtered=False))
        OpenQuery._open = self
        try:
            self.frame: DataFrame = query.to_frame(spark)
            self._tag_plan()
        except BaseException:
            self.close()
            raise

    def _tag_plan(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            self.tree = tag_plan(self.frame)
        except (Py4JError, PySparkException) as error:
            self.failure = str(describe_failure(error))

    def dump_operator(self, ids: str, path: Path) -> tuple[Path, list[str]]:
        """Dump the first operator of `ids`, or the failing one; returns the folder loreId-N and the warnings.

        Later dumps go to `path-2`, `path-3` …
        """
        from workbench import lore

        self._dumps += 1
        place = path if self._dumps == 1 else path.with_name(f"{path.name}-{self._dumps}")
        if self.tree is None:
            result = lore.dump(self.frame, path=place.absolute(), failed=True)
        else:
            result = lore.dump(self.frame, ids, place.absolute(), tree=self.tree)
        if not result.folders:
            raise ConfigError("nothing was dumped", where="ids", found=ids, do="choose another operator")
        folder = next(iter(result.folders.values()))
        return Path(re.sub(r"^file:(?://)?(?=/)", "", folder)), result.warnings

    def close(self) -> None:
        """Stop Spark."""
        OpenQuery._open = None
        self._stack.close()


def list_query_files(config: NotebookConfig) -> list[str]:
    """Files and folders of the query, for the record of the run."""
    script = _PYTHON_SOURCE.fullmatch(config.query_file)
    views = [text.partition("=")[2] for text in config.views]
    return [script[1] if script else config.query_file, *filter(None, [config.data_folder]), *views]


def _quick_jit_settings(config: NotebookConfig) -> dict[str, str]:
    """Setting that halves the CPU time of a query over small local tables."""
    try:
        n_bytes = sum(_measure_bytes(Path(name)) for name in list_query_files(config))
    except OSError:
        return {}
    return {_JAVA_OPTIONS: "-XX:TieredStopAtLevel=1"} if n_bytes < MAX_SMALL_BYTES else {}


def _measure_bytes(path: Path) -> int:
    """Size of a file or folder; OSError when it is not on this machine."""
    inside = (file.stat().st_size for file in path.rglob("*") if file.is_file())
    return sum(inside) if path.is_dir() else path.stat().st_size
