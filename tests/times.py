"""How long each file of tests takes: the order of the suite, and what `make test-quick` leaves out.

python -m tests.times JUNIT.xml...     writes tests/times.txt anew, from `pytest --junitxml=JUNIT.xml`
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMES = Path(__file__).with_suffix(".txt")
MIN_HEAVY_S = 4.0
# Quick or not: these say first what is wrong.
ALWAYS_QUICK = {
    "tests/lore/test_matrix_quick.py",
    "tests/test_architecture.py",
    "tests/test_charts.py",
    "tests/test_documents.py",
    "tests/test_stats.py",
}


def sum_times(*junits: Path) -> dict[str, float]:
    """Seconds by file over all tests of it, also those in classes; of several runs the last that has the file."""
    times: dict[str, float] = {}
    for junit in junits:
        spent: Counter[str] = Counter()
        for case in ET.parse(junit).getroot().iter("testcase"):
            parts = [part for part in case.attrib["classname"].split(".") if not part.startswith("Test")]
            spent["/".join(parts) + ".py"] += float(case.attrib["time"])
        times |= spent
    return {name: time_s for name, time_s in times.items() if (ROOT / name).is_file()}


def read_times() -> dict[str, float]:
    """Seconds by file as they were measured last; files that are new are not in it.

    Examples
    --------
    >>> all(seconds >= 0 for seconds in read_times().values())
    True
    """
    rows = (line.split() for line in TIMES.read_text(encoding="utf-8").splitlines() if line and line[0] != "#")
    return {name: float(seconds) for seconds, name in rows}


def list_heavy_files() -> list[str]:
    """Files that take seconds: the quick tier does without."""
    return sorted(name for name, time_s in read_times().items() if time_s >= MIN_HEAVY_S and name not in ALWAYS_QUICK)


def write_times(times: dict[str, float]) -> None:
    """Write the file of times, the longest first."""
    rows = sorted(times.items(), key=lambda row: (-round(row[1], 1), row[0]))
    head = "# seconds of a file's tests, made by python -m tests.times from junit files; order of the suite\n"
    TIMES.write_text(head + "".join(f"{time_s:.1f} {name}\n" for name, time_s in rows if time_s >= 0.5))


if __name__ == "__main__":
    if sys.argv[1:] == ["--heavy"]:
        print("\n".join(list_heavy_files()))
    else:
        write_times(read_times() | sum_times(*map(Path, sys.argv[1:])))
