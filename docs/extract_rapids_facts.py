"""Script that makes the tables of workbench/speedup/rapids_facts from a wheel of spark-rapids-user-tools.

The wheel holds a jar, the jar the tables. OLDER is a folder with the same tables as tag v24.08.0 of the tools has them
(no package carries these any more); only what differs there is kept. Licence of all tables: Apache-2.0, see NOTICE.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import sys
import zipfile
from pathlib import Path

from workbench.core.files import write_text

HERE = Path(__file__).parents[1] / "workbench" / "speedup" / "rapids_facts"
SCORES = re.compile(r"operatorsScore-(.+)\.csv")
Rows = list[list[str]]


def read_wheel_tables(wheel: Path) -> dict[str, bytes]:
    """The tables of the jar in a wheel, by file name."""
    with zipfile.ZipFile(wheel) as outer:
        inside = next(name for name in outer.namelist() if re.search(r"rapids-4-spark-tools.*\.jar$", name))
        with zipfile.ZipFile(io.BytesIO(outer.read(inside))) as jar:
            return {name: jar.read(name) for name in jar.namelist() if re.fullmatch(r"[A-Za-z0-9-]+\.csv", name)}


def parse_rows(data: bytes) -> Rows:
    """Header and rows: upstream splits at every comma, and so do we."""
    return [[cell.strip() for cell in line.split(",")] for line in data.decode().splitlines() if line.strip()]


def build_score_rows(tables: dict[str, bytes]) -> Rows:
    """One row per operator, one column per platform; empty where a platform has no score."""
    found = {match[1]: dict(parse_rows(data)[1:]) for name, data in tables.items() if (match := SCORES.fullmatch(name))}
    operators = dict.fromkeys(operator for table in found.values() for operator in table)
    return [
        ["operator", *sorted(found)],
        *[[operator, *(found[platform].get(operator, "") for platform in sorted(found))] for operator in operators],
    ]


def build_exec_rows(tables: dict[str, bytes]) -> Rows:
    """name, level of support, functions (none), why not."""
    return _unique_rows([[row[0], row[1], "", row[2]] for row in parse_rows(tables["supportedExecs.csv"])[1:]])


def build_expression_rows(tables: dict[str, bytes]) -> Rows:
    """name, level of support, names of its SQL functions, why not."""
    return _unique_rows([row[:4] for row in parse_rows(tables["supportedExprs.csv"])[1:]])


def _unique_rows(rows: Rows) -> Rows:
    return [list(row) for row in dict.fromkeys(map(tuple, rows))]


def list_changed_rows(new: Rows, old: Rows, kind: str) -> Rows:
    """What the older table says where it differs; level `absent` where it has no such name."""
    then = {row[0]: row for row in old}
    rows = [[kind, *then[row[0]]] for row in new if row[0] in then and row not in old]
    return rows + [[kind, row[0], "absent", row[2], "None"] for row in new if row[0] not in then]


def _format_csv(rows: Rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def main(wheel: Path, older: Path) -> None:
    tables = read_wheel_tables(wheel)
    old = {path.name: path.read_bytes() for path in older.glob("*.csv")}
    head = ["name", "level", "functions", "note"]
    made = {
        "operator_scores.csv": build_score_rows(tables),
        "supported_execs.csv": [head, *build_exec_rows(tables)],
        "supported_expressions.csv": [head, *build_expression_rows(tables)],
        "supported_formats.csv": parse_rows(tables["supportedDataSource.csv"]),
        "supported_formats_24_08.csv": parse_rows(old["supportedDataSource.csv"]),
        "changed_since_24_08.csv": [
            ["kind", *head],
            *list_changed_rows(build_exec_rows(tables), build_exec_rows(old), "exec"),
            *list_changed_rows(build_expression_rows(tables), build_expression_rows(old), "expression"),
        ],
    }
    texts = {name: _format_csv(rows) for name, rows in made.items()}
    for name, text in texts.items():
        write_text(HERE / name, text)
    source = {
        "package": wheel.name,
        "licence": "Apache-2.0",
        "older": "tag v24.08.0",
        "sha256_of_sources": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(tables.items())},
        "sha256_of_older_sources": {name: hashlib.sha256(old[name]).hexdigest() for name in sorted(old)},
        "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(texts.items())},
    }
    write_text(HERE / "SOURCE.json", json.dumps(source, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
