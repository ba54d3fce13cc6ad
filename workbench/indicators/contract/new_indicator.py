"""Write the skeleton of a new indicator, and run an indicator once with this interpreter."""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core import files
from workbench.core.errors import ConfigError, InputError, RunFailedError, refuse_os_errors
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.documents import Document, DocumentError, parse_document, validate_document
from workbench.indicators.contract.indicator import Indicator, Value, field_metadata, field_role
from workbench.indicators.measurement.launcher_client import build_clean_environment
from workbench.indicators.tables import TRIED as TRIED

if TYPE_CHECKING:
    import polars as pl

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*")
_LONGEST = 40

_TEMPLATES = Path(__file__).parent / "skeleton"
MAX_SQL_BYTES = 1 << 20
MAX_STDERR = 2_000


@dataclass(frozen=True)
class Skeleton:
    """The written skeleton: the class's name, its reference, and the paths of declaration, script, test (and query)."""

    name: str
    reference: str
    paths: tuple[Path, ...]


def write_skeleton(name: str, out: Path, *, sql: Path | None = None) -> Skeleton:
    """Write the skeleton of an indicator into a folder.

    `name`: Its name: `FftSize`, `fft-size` and `fft_size` give the class FftSize and the files pi_fft_size*.py.
    `sql`: A file with a query for DuckDB, copied beside the declaration: its last statement is measured, the others
    set it up. By default the skeleton sorts numbers.
    """
    # The words of a name in lower case: `GroupBy`, `group-by` and `group_by` are the same.
    if not _WORD.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            "not a name for an indicator",
            where="NAME",
            found=name[:60],
            allowed=f"letters and digits, words joined by - or _; at most {_LONGEST} characters",
        )
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_")
    words = spaced.lower().split("_")
    stem, title = "pi_" + "_".join(words), "".join(word[0].upper() + word[1:] for word in words)
    if keyword.iskeyword(title) or keyword.iskeyword(name.lower()):
        raise ConfigError("a Python keyword", where="NAME", found=name, do=f"choose another name, such as My{title}")
    from workbench.indicators.shipped.indicator_classes import list_shipped_indicators

    taken = {
        indicator.__name__.lower(): indicator.__name__
        for indicator in (*list_shipped_indicators(), *thoth_indicators.MODELS)
    }
    if title.lower() in taken:
        raise ConfigError(
            "an indicator of this name exists",
            where="NAME",
            found=taken[title.lower()],
            do=f"choose another name, such as My{title}",
        )
    names = {f"{stem}.py": "declaration", f"{stem}_script.py": "script", f"test_{stem}.py": "test"}
    kind = "" if sql is None else "sql_"
    texts = {
        file: (_TEMPLATES / f"{kind}{template}.py.txt").read_text(encoding="utf-8") for file, template in names.items()
    }
    query = {} if sql is None else {f"{stem}.sql": read_query(sql)}
    if there := [out / file for file in (*texts, *query) if (out / file).exists()]:
        raise InputError(
            "files exist, and none is overwritten", where="new", found=there, do="choose another NAME or --out"
        )
    with refuse_os_errors("cannot write the skeleton", out):
        for file, text in texts.items():
            files.write_text(out / file, text.replace("@CLASS@", title).replace("@STEM@", stem))
        for file, text in query.items():
            files.write_text(out / file, text)
    return Skeleton(title, f"{out / stem}.py:{title}", tuple(out / file for file in (*texts, *query)))


def read_query(path: Path) -> str:
    """Text of a file with SQL."""
    try:
        text = files.read_up_to(path, MAX_SQL_BYTES).decode("utf-8")
    except OSError as error:
        raise InputError("the query cannot be read", where=f"--sql {path}"[:300], found=error.strerror) from None
    except UnicodeDecodeError:
        raise InputError("the query is no text", where=f"--sql {path}"[:300], allowed="SQL in UTF-8") from None
    import duckdb

    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        first = str(error).strip().splitlines()[0][:300]
        raise InputError("DuckDB cannot parse the query", where=f"--sql {path}"[:300], found=first) from None
    if not statements:
        raise InputError(
            "no statement in this file", where=f"--sql {path}"[:300], do="end it with the query to measure"
        )
    return text


def try_indicator(
    indicator: type[Indicator],
    parameters: Mapping[str, Any] | None = None,
    *,
    python: str | Path | None = None,
    timeout_s: float = 120,
) -> Document:
    """Run the script of an indicator once, and validate what it prints.

    It runs in a folder of its own, with one thread for libraries and no limit but time. It is not a measurement, and
    only for scripts that you trust.

    >>> from typing import ClassVar
    >>> from workbench.indicators.contract.indicator import parameter, result
    >>> class Half(Indicator):
    ...     '''Half of n.'''
    ...     script: ClassVar[str] = '''
    ... import json, os
    ... n = int(os.environ["PI_N"])
    ... print(json.dumps({"name": "Half", "@parameters": {"n": n}, "@result": {"half": n / 2}}))
    ... '''
    ...     n: int = parameter(10)
    ...     half: float = result(unit="")
    >>> try_indicator(Half, {"n": 7}).results
    {'half': 3.5}
    """
    values = indicator.parameters(parameters)
    stdout = _run_script(indicator, indicator.environment(values), str(python or sys.executable), timeout_s)
    try:
        return validate_document(thoth_indicators.rename_document(parse_document(stdout), indicator), indicator, values)
    except DocumentError as error:
        raise InputError(
            "the script ran, but its output is no document of this indicator",
            where=f"indicator {indicator.__name__}",
            found=f"{error.status}: {error.reason}",
            do="print one JSON object on stdout: name, @parameters, @result, and @checks if declared",
        ) from None


def _run_script(indicator: type[Indicator], variables: Mapping[str, str], python: str, timeout_s: float) -> bytes:
    """Output of the indicator's script, run once in a temporary folder."""
    where = f"indicator {indicator.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in indicator.sources().items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        try:
            process = subprocess.run(  # noqa: S603  (the user's own script, by the user's interpreter)
                [python, "-s", "-B", "script.py"],
                cwd=folder,
                env={"HOME": folder, "TMPDIR": folder, **build_clean_environment(1, variables)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunFailedError("the script took too long", where=where, allowed=f"{timeout_s:g} s") from None
        except OSError as error:
            raise RunFailedError("the script cannot be started", where=where, found=error.strerror) from None
    if process.returncode:
        stderr = process.stderr.decode("utf-8", "replace").strip()[-MAX_STDERR:]
        raise RunFailedError(f"the script ended with exit code {process.returncode}", where=where, found=stderr or None)
    return process.stdout


def build_trial_table(indicator: type[Indicator], parameters: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Table TRIED: the document of one run with this Python, field by field; not a measurement.

    Raises
    ------
    WorkbenchError
        As of `try_indicator`.
    """
    document = try_indicator(indicator, parameters)
    values = {**document.parameters, **document.results, **document.checks}
    return TRIED.frame(
        [
            {
                "field": name,
                "role": field_role(field),
                "value": _format_value(values[name]),
                "unit": field_metadata(field).get("unit") or "",
                "about": field.description or "",
            }
            for name, field in indicator.model_fields.items()
        ]
    )


def _format_value(value: Value) -> str | None:
    if value is None:
        return None
    return f"{value:.4g}" if isinstance(value, float) else str(value)
