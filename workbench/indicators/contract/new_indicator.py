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
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.documents import Document, DocumentError, parse_document, validate_document
from workbench.indicators.contract.indicator import Indicator, Value, field_metadata, field_role
from workbench.indicators.measurement.launcher_client import build_clean_environment
from workbench.indicators.tables import TRIED as TRIED

if TYPE_CHECKING:
    import polars as pl

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*")
_LONGEST = 40

DECLARATION = '''"""The indicator @CLASS@: its parameters, results and checks."""

from pathlib import Path
from typing import ClassVar

from workbench.indicators.contract import Indicator, check, parameter, result


class @CLASS@(Indicator):
    """How long does it take to sort random numbers? (Say what yours measures, and what it does not show.)"""

    script: ClassVar[Path | str] = Path(__file__).with_name("@STEM@_script.py")
    # Packages that a stack must have, such as ("numpy",); other stacks skip this indicator.
    requires: ClassVar[tuple[str, ...]] = ()

    # The script reads each parameter from an environment variable: n from PI_N. Use few; each combination of
    # values is a case of its own.
    n: int = parameter(10_000, ge=1, about="How many numbers.")
    seed: int = parameter(0, ge=0, about="Seed of the random input.")
    reps: int = parameter(20, ge=1, le=1_000, about="Timed calls.")

    # A result has a unit, a direction and a tolerance: differences within it (0.02 is 2 %) do not matter.
    elapsed_ms: float = result(unit="ms", better="lower", ge=0, tolerance=0.02, about="Median of the calls.")
    # Derived from the result above: kept, not compared.
    rate: float = result(unit="numbers/s", better="higher", derived=True, ge=0)

    # A stack with a wrong answer is never recommended.
    wrong: int = check(equals=0, about="Numbers out of order.")
'''

SCRIPT = '''"""Measure @CLASS@. Runs with a stack's Python, where the workbench is not installed."""

import json
import os
import random
import statistics
import time

n = int(os.environ.get("PI_N", "10000"))
seed = int(os.environ.get("PI_SEED", "0"))
reps = int(os.environ.get("PI_REPS", "20"))

# The same input in every stack: seeded, from the standard library.
source = random.Random(seed)
numbers = [source.random() for _ in range(n)]


def work():
    return sorted(numbers)


answer = work()  # Warm-up, not measured.
samples = []
cpu_start = time.process_time_ns()
for _ in range(reps):
    start = time.perf_counter_ns()
    work()
    samples.append((time.perf_counter_ns() - start) / 1e6)
cpu_ms = (time.process_time_ns() - cpu_start) / 1e6 / reps
elapsed_ms = statistics.median(samples)

# One JSON document, and nothing else on stdout; other output goes to stderr.
print(
    json.dumps(
        {
            "name": "@CLASS@",
            "framework": "python",
            "@parameters": {"n": n, "seed": seed, "reps": reps},
            "@result": {"elapsed_ms": elapsed_ms, "rate": n / elapsed_ms * 1e3},
            "@checks": {"wrong": sum(a > b for a, b in zip(answer, answer[1:]))},
            "@samples": {"elapsed_ms": samples},
            # CPU time of the same work: decides on a busy machine (--clock cpu). May be left out.
            "@cpu": {"elapsed_ms": cpu_ms},
        }
    )
)
'''

TEST = '''"""The script of @CLASS@ prints a document that fits its declaration, with the right answer."""

import subprocess
import sys
from pathlib import Path

from workbench.indicators.contract.documents import parse_document, validate_document
from workbench.indicators.contract.new_indicator import try_indicator
from workbench.indicators.shipped.registry import load_indicator

INDICATOR = load_indicator(f"{Path(__file__).with_name('@STEM@.py')}:@CLASS@")


def test_a_run_gives_a_valid_document_with_a_right_answer() -> None:
    document = try_indicator(INDICATOR, {"n": 100, "reps": 3})
    assert document.parameters["n"] == 100
    assert document.results["elapsed_ms"] > 0
    assert document.failed_checks == ()


def test_the_script_alone_has_the_defaults_of_the_declaration() -> None:
    script = Path(__file__).with_name("@STEM@_script.py")
    done = subprocess.run([sys.executable, script], capture_output=True, check=True)
    assert validate_document(parse_document(done.stdout), INDICATOR).parameters == INDICATOR.parameters()
'''


SQL_DECLARATION = '''"""The indicator @CLASS@: a query in SQL on DuckDB."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from workbench.indicators.contract import Indicator, check, parameter, result


class @CLASS@(Indicator):
    """How long does the last statement of @STEM@.sql take? The statements before it are set-up, not measured."""

    script: ClassVar[Path | str] = Path(__file__).with_name("@STEM@_script.py")
    files: ClassVar[Mapping[str, Any]] = {"query.sql": Path(__file__).with_name("@STEM@.sql")}
    requires: ClassVar[tuple[str, ...]] = ("duckdb",)

    reps: int = parameter(5, ge=1, le=1_000, about="Timed runs of the query.")

    # A result has a unit, a direction and a tolerance: differences within it (0.02 is 2 %) do not matter.
    elapsed_ms: float = result(unit="ms", better="lower", ge=0, tolerance=0.02, about="Median of the runs.")

    # Checks without a bound must be the baseline's: a stack with another answer is never recommended.
    rows: int = check(about="Rows of the answer.")
    digest: str = check(about="The answer in any order of rows; numbers to nine digits.")
'''

SQL_SCRIPT = '''"""Measure @CLASS@. Runs with a stack's Python, where the workbench is not installed."""

import hashlib
import json
import os
import statistics
import time

import duckdb

reps = int(os.environ.get("PI_REPS", "5"))
here = os.path.dirname(os.path.abspath(__file__))
path = os.path.join(here, "query.sql")  # as the stack's run has it
with open(path if os.path.exists(path) else os.path.join(here, "@STEM@.sql"), encoding="utf-8") as file:
    text = file.read()

connection = duckdb.connect()
connection.execute("SET threads = " + str(int(os.environ.get("OMP_NUM_THREADS", "1"))))
*setup, query = connection.extract_statements(text)
for statement in setup:
    connection.execute(statement)


def work():
    return connection.execute(query).fetchall()


def format_cell(value):
    return f"{value:.9g}" if isinstance(value, float) else str(value)


answer = work()  # Warm-up, not measured.
samples = []
cpu_start = time.process_time_ns()
for _ in range(reps):
    start = time.perf_counter_ns()
    work()
    samples.append((time.perf_counter_ns() - start) / 1e6)
cpu_ms = (time.process_time_ns() - cpu_start) / 1e6 / reps
lines = sorted("\\t".join(map(format_cell, row)) for row in answer)

print(
    json.dumps(
        {
            "name": "@CLASS@",
            "framework": "duckdb",
            "@parameters": {"reps": reps},
            "@result": {"elapsed_ms": statistics.median(samples)},
            "@checks": {"rows": len(answer), "digest": hashlib.sha256("\\n".join(lines).encode()).hexdigest()[:16]},
            "@samples": {"elapsed_ms": samples},
            "@cpu": {"elapsed_ms": cpu_ms},
        }
    )
)
'''

SQL_TEST = '''"""The query of @CLASS@ runs with this Python's DuckDB, and gives the same answer twice."""

from pathlib import Path

from workbench.indicators.contract.new_indicator import try_indicator
from workbench.indicators.shipped.registry import load_indicator

INDICATOR = load_indicator(f"{Path(__file__).with_name('@STEM@.py')}:@CLASS@")


def test_the_query_has_an_answer_and_it_is_the_same_each_time() -> None:
    first, second = (try_indicator(INDICATOR, {"reps": reps}) for reps in (1, 2))
    assert first.results["elapsed_ms"] > 0
    assert first.checks == second.checks
    assert first.checks["rows"] > 0
'''
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
    words = _split_words(name)
    stem, title = "pi_" + "_".join(words), "".join(word[0].upper() + word[1:] for word in words)
    if keyword.iskeyword(title) or keyword.iskeyword(name.lower()):
        raise ConfigError("a Python keyword", where="NAME", found=name, do=f"choose another name, such as My{title}")
    _refuse_taken_name(title)
    templates = (DECLARATION, SCRIPT, TEST) if sql is None else (SQL_DECLARATION, SQL_SCRIPT, SQL_TEST)
    texts = dict(zip((f"{stem}.py", f"{stem}_script.py", f"test_{stem}.py"), templates, strict=True))
    query = {} if sql is None else {f"{stem}.sql": read_query(sql)}
    if there := [out / file for file in (*texts, *query) if (out / file).exists()]:
        raise InputError(
            "files exist, and none is overwritten", where="new", found=there, do="choose another NAME or --out"
        )
    try:
        for file, text in texts.items():
            files.write_text(out / file, text.replace("@CLASS@", title).replace("@STEM@", stem))
        for file, text in query.items():
            files.write_text(out / file, text)
    except OSError as error:
        raise InputError("cannot write the skeleton", where=out, found=error.strerror) from None
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


def _split_words(name: str) -> list[str]:
    if not _WORD.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            "not a name for an indicator",
            where="NAME",
            found=name[:60],
            allowed=f"letters and digits, words joined by - or _; at most {_LONGEST} characters",
        )
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_")
    return spaced.lower().split("_")


def _refuse_taken_name(title: str) -> None:
    from workbench.indicators.shipped.registry import list_shipped_indicators

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
