"""Is what a stack matrix says of its dimensions found again in a second session?

    python -m bench.bench_indicators_matrix [--rounds 10] [--out FOLDER] [--json FILE]

Three Pythons (3.11, 3.12, 3.13) x two versions of numpy x two thread counts, measured in two sessions of their own, in
other orders. A level is found again where its two intervals overlap and FASTER has not become SLOWER. The bar: all are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from bench import shape
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import start_session
from workbench.stats.verdicts import FASTER, SLOWER

MATRIX = "python: [3.11, 3.12, 3.13]\npackages:\n  numpy: [2.2.6, 2.4.6]\nthreads: [1, 2]\n"
INDICATORS = ("sort", "matmul", "scalar_loop:framework=python,n=200000")
KEYS = ["metric", "dimension", "level"]


def measure(folder: Path, rounds: int, seed: int) -> pl.DataFrame:
    """Effects of dimensions in a session of its own."""
    stacks = folder / "stacks.yaml"
    stacks.write_text(MATRIX)
    config = session_config(stacks=(str(stacks),), indicators=INDICATORS, rounds=(rounds,), seed=seed)
    found = start_session(config, out=folder / "runs").compared
    assert found.dimensions is not None
    return found.dimensions


def compare(first: pl.DataFrame, second: pl.DataFrame) -> list[dict[str, Any]]:
    """A row for each metric, dimension and level: both ratios, and whether the second session found it again."""
    rows = []
    for one in first.join(second, on=KEYS, suffix="_again").sort(KEYS).to_dicts():
        known = None not in (one["low"], one["low_again"])
        overlap = known and one["low"] <= one["high_again"] and one["low_again"] <= one["high"]
        turned = {one["verdict"], one["verdict_again"]} == {FASTER, SLOWER}
        ratios = {
            name: f"{one['ratio' + end]:.3f} [{one['low' + end]:.3f}, {one['high' + end]:.3f}] {one['verdict' + end]}"
            if known
            else "not told"
            for name, end in (("first", ""), ("second", "_again"))
        }
        rows.append({key: one[key] for key in KEYS} | ratios | {"again": bool(overlap and not turned)})
    return rows


def main() -> int:
    """Measure both sessions, print the table; 1 when a level is not found again."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, help="keep the sessions here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = [(given.out or Path(scratch)) / name for name in ("first", "second")]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        first, second = (measure(folder, given.rounds, seed) for seed, folder in enumerate(folders, 1))
    rows = compare(first, second)
    if "python" not in {row["dimension"] for row in rows}:
        print("no second Python was found: put python3.12 and python3.13 on PATH", file=sys.stderr)
        return 1
    shape.print_rows(rows)
    again = sum(row["again"] for row in rows)
    print(f"found again: {again} of {len(rows)} (bar: all)")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return int(again < len(rows))


if __name__ == "__main__":
    sys.exit(main())
