"""Which files of tests take seconds: `make test-quick` leaves them out.

python -m tests.heavy JUNIT.xml     writes tests/heavy.txt anew, from `python -m pytest --junitxml=JUNIT.xml`
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
LEAST_S = 4.0
# Quick or not: these say first what is wrong.
ALWAYS = {
    "tests/lore/test_matrix_quick.py",
    "tests/test_architecture.py",
    "tests/test_charts.py",
    "tests/test_documents.py",
    "tests/test_stats.py",
}


def heavy(junit: Path) -> list[str]:
    """Files, by path, whose tests took so long together; those of classes count with their file."""
    spent: Counter[str] = Counter()
    for case in ET.parse(junit).getroot().iter("testcase"):
        parts = [part for part in case.attrib["classname"].split(".") if not part.startswith("Test")]
        spent["/".join(parts) + ".py"] += float(case.attrib["time"])
    return sorted(name for name, time_s in spent.items() if time_s >= LEAST_S and name not in ALWAYS)


if __name__ == "__main__":
    LIST.write_text("\n".join(heavy(Path(sys.argv[1]))) + "\n")
