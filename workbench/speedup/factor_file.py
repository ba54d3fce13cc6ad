"""Factor files: `CPUOperator,Score`, the format that the original scripts and the qualification tool share."""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import InputError
from workbench.files import write_text
from workbench.speedup.builtin import known_operators

HEADER = ("CPUOperator", "Score")
# The qualification tool takes a scan as unsupported unless its factor exceeds 1.
SCANS = ("BatchScanExec", "FileSourceScanExec", "HiveTableScanExec")
SCAN_MINIMUM = 1.01
MAX_BYTES = 16 << 20


def read(path: str | Path) -> dict[str, float]:
    """Which factor has each operator?

    Parameters
    ----------
    path
        CSV file with the header `CPUOperator,Score`.

    Returns
    -------
    dict
        Operator to factor (accelerated is that many times faster), in the file's order; rows of expressions and of
        machine learning functions are kept.

    Raises
    ------
    InputError
        No such file, another header, a row of another shape, an operator unknown or twice, or a factor that is no
        finite number above 0. All bad rows are listed (the first 10).

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "factors.csv"
    >>> _ = file.write_text("CPUOperator,Score\\nFilterExec,2.5\\nAbs,4\\n")
    >>> read(file)
    {'FilterExec': 2.5, 'Abs': 4.0}
    """
    factors: dict[str, float] = {}
    wrong: list[str] = []
    for number, row in enumerate(_rows(Path(path)), start=2):
        problem = _problem(row, factors)
        if problem:
            wrong.append(f"line {number}: {problem}")
        else:
            factors[row[0].strip()] = float(row[1])
    if wrong:
        rest = [f"and {len(wrong) - 10} more"] if len(wrong) > 10 else []
        raise InputError(
            "factor file cannot be used",
            where=path,
            found="; ".join(wrong[:10] + rest),
            allowed="known operators, each once, with finite factors above 0",
            do="correct these rows",
        )
    if not factors:
        raise InputError("factor file has no rows", where=path, do="give one row per operator: FilterExec,2.5")
    return factors


def _rows(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise InputError("no such factor file", where=path)
    if path.stat().st_size > MAX_BYTES:
        raise InputError("factor file is too large", where=path, found=f"{path.stat().st_size:,} bytes")
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError("factor file cannot be read", where=path, found=str(error)[:200]) from error
    header = tuple(cell.strip() for cell in rows[0]) if rows else ()
    if header != HEADER:
        raise InputError(
            "factor file has another header",
            where=path,
            found=",".join(header)[:200] or "an empty file",
            allowed=",".join(HEADER),
        )
    return [row for row in rows[1:] if row]


def _problem(row: list[str], before: Mapping[str, float]) -> str | None:
    if len(row) != 2:
        return f"{len(row)} cells, not 2"
    operator, text = row[0].strip(), row[1].strip()
    if operator not in known_operators():
        nearest = difflib.get_close_matches(operator, known_operators(), n=1)
        hint = f", nearest is {nearest[0]}" if nearest else ""
        return f"unknown operator {operator[:80]!r}{hint}"
    if operator in before:
        return f"{operator} comes twice"
    try:
        factor = float(text)
    except ValueError:
        return f"{operator} has {text[:40]!r}, which is no number"
    if not math.isfinite(factor) or factor <= 0:
        return f"{operator} has {text}, which is no finite number above 0"
    return None


def write_upstream(path: str | Path, factors: Mapping[str, float]) -> list[str]:
    """Write factors so that the qualification tool accepts them; give back a warning for each that had to change.

    A scan's factor of exactly 1.0 is written as 1.01: at 1.0 the tool takes scans as unsupported.

    Raises
    ------
    InputError
        A factor is no finite number above 0.

    Examples
    --------
    >>> import tempfile
    >>> write_upstream(Path(tempfile.mkdtemp()) / "f.csv", {"BatchScanExec": 1.0})
    ['BatchScanExec is written as 1.01: at exactly 1.0 the qualification tool takes scans as unsupported']
    """
    lines, warnings = [",".join(HEADER)], []
    for operator, factor in factors.items():
        if not math.isfinite(factor) or factor <= 0:
            raise InputError("factor is no finite number above 0", where=operator, found=factor)
        written = factor
        if operator in SCANS and factor == 1.0:
            written = SCAN_MINIMUM
            warnings.append(
                f"{operator} is written as {SCAN_MINIMUM}: at exactly 1.0 the qualification tool takes scans as "
                "unsupported"
            )
        lines.append(f"{operator},{float(written)!r}")
    write_text(path, "\n".join(lines) + "\n")
    return warnings
