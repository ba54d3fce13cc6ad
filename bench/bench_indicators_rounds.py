"""How often is a session wrong, and how many rounds does it need, in recorded noise of equal stacks?

    python -m bench.bench_indicators_rounds [--sessions 2000] [--rounds FILE …] [--json FILE]

Sessions of up to 60 rounds are resampled in blocks of ten neighbours from rounds of six equal environments, recorded
beside other work (data/samples/indicators/noise, or others of its script: --rounds). Seeds are fixed, so that the
shares are exact. After each round all four comparisons are looked at, by both clocks. The bar, for every kind of other
work: a false FASTER or SLOWER, also where the truth lies exactly at the margin (2 %), and a false SAME there, in at
most 5 % of sessions. Beside it: rounds that half of the arms need at planted differences, and the false claims of two
equal stacks that are measured one after the other (blocks of 30 rounds).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import shape
from tests.indicators.analysis.recorded_rounds import (
    CLOCKS,
    MARGIN,
    RECORDED,
    Logs,
    find_fixed_rounds,
    find_rounds_needed,
    judge_sessions,
    load_rounds,
    measure_block_errors,
    resample_sessions,
)

ROUNDS = 60
PLANTED_PERCENT = (3, 5, 10)
BAR = 0.05
SEED = 20261125


def measure_errors(load: str, logs: Logs, sessions: int) -> dict[str, Any]:
    """Shares of false verdicts of one recording."""
    draw = np.random.default_rng(SEED)
    made = resample_sessions(logs, sessions, ROUNDS, draw)
    equal, at_margin = judge_sessions(made), judge_sessions(made, MARGIN)
    wall, cpu = measure_block_errors(logs, 30, draw, sessions)
    spread = np.std(np.diff(logs[:, :2], axis=1)[:, 0], axis=0)
    return {
        "load": load,
        "noise wall/cpu %": f"{100 * spread[0]:.1f}/{100 * spread[1]:.1f}",
        "equal: false claim": equal.share("faster|slower"),
        "at the margin: false claim": at_margin.share("faster|slower"),
        "at the margin: false SAME": at_margin.share("same"),
        "blocks: false claim wall": wall,
        "blocks: false claim cpu": cpu,
    }


def measure_rounds(load: str, logs: Logs, sessions: int) -> list[dict[str, Any]]:
    """Rounds needed at planted differences, by clock: of a sequence, and of a planned number of rounds."""
    made = resample_sessions(logs, sessions, ROUNDS, np.random.default_rng(SEED))
    rows = []
    for percent in PLANTED_PERCENT:
        effect = math.log1p(percent / 100)
        claims = judge_sessions(made, effect)
        row: dict[str, Any] = {"load": load, "planted %": percent}
        for place, clock in enumerate(CLOCKS):
            needed, found = find_rounds_needed(claims.slower[..., place])
            fixed = find_fixed_rounds(made, effect, place)
            row |= {f"{clock}: rounds": _format_rounds(needed), f"{clock}: planned": _format_rounds(fixed)}
            row |= {f"{clock}: told in 30": round(float(claims.slower[:, :, :30, place].any(axis=2).mean()), 3)}
            row |= {f"{clock}: told in {ROUNDS}": round(found, 3)}
        rows.append(row)
    return rows


def _format_rounds(rounds: float) -> str:
    return f"{rounds:.0f}" if math.isfinite(rounds) else f"> {ROUNDS}"


def main() -> int:
    """Print both tables; 1 when a share is above the bar."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--sessions", type=int, default=2000, help="sessions a cell")
    parser.add_argument("--rounds", type=Path, nargs="+", default=[RECORDED], help="recordings: rounds.csv")
    given = parser.parse_args()
    recordings = [(load, logs) for path in given.rounds for load, logs in load_rounds(path).items()]
    errors = [measure_errors(load, logs, given.sessions) for load, logs in recordings]
    needed = [row for load, logs in recordings for row in measure_rounds(load, logs, given.sessions)]
    for rows in (errors, needed):
        shape.print_rows(rows)
        print()
    judged = [name for name in errors[0] if name.startswith(("equal", "at the margin"))]
    worst = max(row[name] for row in errors for name in judged)
    met = "met" if worst <= BAR else "NOT met"
    print(f"wrong in at most {100 * worst:.1f} % of sessions (bar {100 * BAR:.0f} %): {met}")
    if given.json:
        given.json.write_text(json.dumps({"errors": errors, "rounds": needed}, indent=1) + "\n")
    return int(worst > BAR)


if __name__ == "__main__":
    sys.exit(main())
