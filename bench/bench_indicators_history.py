"""How often is a planted change of level found in recorded noise, and how many changes are false?

    python -m bench.bench_indicators_history [--series 300] [--ratios FILE …] [--json FILE]

Series are resampled in blocks of ten neighbours from 200 recorded short sessions (data/samples/indicators/history, or
others of its script: --ratios). Seeds are fixed, so that the shares are exact. The bar: steps of two standard
deviations of the recorded values, at least ten sessions from both ends, are found in 90 % of series of 20 and more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench import shape
from tests.indicators.history.recorded_noise import RATIOS, load_noise, measure_rates
from workbench.console.terminal import show_progress_count

LENGTHS = (20, 40, 100)
STEPS_SD = (0.5, 1.0, 1.5, 2.0)
BAR = 0.9


def measure(ratios: Path, n_series: int) -> list[dict[str, Any]]:
    """A row for each kind of noise and length: false changes per 100 sessions, and the power curve."""
    rows: list[dict[str, Any]] = []
    with show_progress_count("cells") as progress:
        cells = [(name, n) for name in ("followed", "control") for n in LENGTHS]
        for done, (name, n) in enumerate(cells):
            noise, row = load_noise(name, ratios), {"ratios": ratios.name, "noise": name, "sessions": n}
            for step in STEPS_SD:
                draw = np.random.default_rng(20261125)
                false, found = measure_rates(noise, n, n_series, draw, step_sd=step)
                row |= {"false_per_100": round(false, 3), f"found_{step:g}_sd": round(found, 3)}
            rows.append(row)
            if progress is not None:
                progress(done + 1, len(cells))
    return rows


def main() -> None:
    """Print the table, and say whether the bar is met."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--series", type=int, default=300, help="series a cell")
    parser.add_argument("--ratios", type=Path, nargs="+", default=[RATIOS], help="recordings: ratios.csv")
    given = parser.parse_args()
    rows = [row for path in given.ratios for row in measure(path, given.series)]
    shape.print_rows(rows)
    lowest = min(row["found_2_sd"] for row in rows)
    print(f"found at two deviations: at least {lowest} (bar {BAR}): {'met' if lowest >= BAR else 'NOT met'}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
