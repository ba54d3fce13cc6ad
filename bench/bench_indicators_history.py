"""How often is a planted change of level found in recorded noise, and how many changes are false?

    python -m bench.bench_indicators_history [--series 300] [--ratios FILE …] [--recorded N] [--otava PYTHON]
        [--json FILE]

Series are resampled in blocks of ten neighbours from 200 recorded short sessions (data/samples/indicators/history, or
others of its script: --ratios), or the first N of them. Seeds are fixed, so that the shares are exact. The bar: steps
of two standard deviations of the recorded values, at least ten sessions from both ends, are found in 90 % of series of
20 and more, with at most one false change per 100 sessions. With --otava, the Python of an environment that has
apache-otava, the same series go through Otava with its own settings (it gets the ratios; it takes no errors).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import shape
from tests.indicators.history.recorded_noise import RATIOS, STEADY, PlantedSeries, build_series, count_rates, load_noise
from workbench.console.terminal import show_progress_count

LENGTHS = (20, 40, 100)
STEPS_SD = (0.5, 1.0, 1.5, 2.0)
BAR = 0.9
MAX_FALSE_PER_100 = 1.0
_OTAVA = """
import json, sys
from otava.analysis import compute_change_points
from otava.series import AnalysisOptions
given = AnalysisOptions()
found = [
    [int(point.index) for point in compute_change_points(series, given.window_len, given.max_pvalue)[0]]
    for series in json.load(sys.stdin)
]
json.dump(found, sys.stdout)
"""


def find_ours(series: Sequence[PlantedSeries]) -> list[list[int]]:
    """Places of the changes that `history` finds in each series."""
    from workbench.stats.change_points import find_change_points

    return [[int(place) for place in find_change_points(one.values, one.errors)] for one in series]


def find_by_otava(python: Path, series: Sequence[PlantedSeries]) -> list[list[int]]:
    """Places of the changes that Otava finds in the same series."""
    given = json.dumps([np.exp(one.values).tolist() for one in series])
    done = subprocess.run([python, "-c", _OTAVA], input=given, capture_output=True, text=True, check=True)
    found: list[list[int]] = json.loads(done.stdout)
    return found


def measure(ratios: Path, n_series: int, recorded: int, otava: Path | None) -> list[dict[str, Any]]:
    """A row for each kind of noise, length and finder: false changes per 100 sessions, and the power curve."""
    rows: list[dict[str, Any]] = []
    with show_progress_count("cells") as progress:
        cells = [(name, n) for name in ("followed", "control") for n in LENGTHS]
        for done, (name, n) in enumerate(cells):
            values, errors = load_noise(name, ratios)
            noise = values[:recorded], errors[:recorded]
            by_finder: list[dict[str, Any]] = [
                {"ratios": ratios.name, "noise": name, "sessions": n, "finder": finder}
                for finder in (("workbench", "otava") if otava else ("workbench",))
            ]
            for step in STEPS_SD:
                series = build_series(noise, n, n_series, np.random.default_rng(20261125), step_sd=step)
                for row in by_finder:
                    ours = row["finder"] == "workbench" or otava is None
                    found = find_ours(series) if ours else find_by_otava(otava, series)
                    false_per_100, share = count_rates(series, found)
                    row |= {"false_per_100": round(false_per_100, 3), f"found_{step:g}_sd": round(share, 3)}
            rows += by_finder
            if progress is not None:
                progress(done + 1, len(cells))
    return rows


def main() -> None:
    """Print the table, and say whether the bar is met."""
    parser = shape.plain_parser(__doc__)
    parser.add_argument("--series", type=int, default=300, help="series a cell")
    parser.add_argument("--ratios", type=Path, nargs="+", default=[RATIOS], help="recordings: ratios.csv")
    parser.add_argument("--recorded", type=int, default=STEADY, help="recorded sessions to resample: the first ones")
    parser.add_argument("--otava", type=Path, help="Python of an environment with apache-otava")
    given = parser.parse_args()
    rows = [row for path in given.ratios for row in measure(path, given.series, given.recorded, given.otava)]
    shape.print_rows(rows)
    ours = [row for row in rows if row["finder"] == "workbench"]
    lowest, most = min(row["found_2_sd"] for row in ours), max(row["false_per_100"] for row in ours)
    met = lowest >= BAR and most <= MAX_FALSE_PER_100
    print(
        f"found at two deviations: at least {lowest} (bar {BAR}); false changes per 100 sessions: at most {most} "
        f"(bar {MAX_FALSE_PER_100:g}): {'met' if met else 'NOT met'}"
    )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
