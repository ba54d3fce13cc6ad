"""Record short sessions for a history: python data/samples/indicators/history/record.py OUT [SESSIONS [CHANGED]]

Each session measures `sort` in five rounds on a pinned reference (numpy 2.2.6), its control, and the stack that is
followed: numpy 2.4.6 in the first SESSIONS (200), and numpy 1.26.4 in CHANGED (16) more. A session takes some seconds;
those that are in OUT are kept.

`OUT/ratios.csv` has a row for each session: over its rounds, the mean and the standard error of the log ratio of the
reference to the followed stack, and to the control, by wall time and by CPU time. Above 0 the reference took longer.
`OUT/points.parquet` has the same by wall time as table `history_points`; with the one argument OUT/ratios.csv it is
made of that file alone.

ratios.csv here: 2026-11-25, 2 cores, Debian 12, Python 3.11, other work on the machine at the same time.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[3]))

from workbench.indicators.analysis.observations import load_observations  # noqa: E402
from workbench.indicators.measurement.rounds import measure_session  # noqa: E402
from workbench.indicators.measurement.session_config import session_config  # noqa: E402
from workbench.indicators.measurement.session_plan import build_session_plan  # noqa: E402
from workbench.indicators.measurement.stack_variants import install_variants  # noqa: E402
from workbench.indicators.shipped.indicator_classes import parse_case  # noqa: E402
from workbench.indicators.stacks.stack_request import build_stack_request  # noqa: E402
from workbench.indicators.stacks.stack_sets import Stack  # noqa: E402
from workbench.indicators.stacks.stack_solver import solve_request  # noqa: E402
from workbench.indicators.store.archive import CONTROL  # noqa: E402
from workbench.indicators.tables import POINTS  # noqa: E402

CASE = "sort:n=20000,reps=5"
REFERENCE_ARM = "reference"
REFERENCE, FOLLOWED, CHANGED = "2.2.6", "2.4.6", "1.26.4"


def solve_version(version: str, name: str) -> Stack:
    """The lock of one version of numpy."""
    stack = solve_request(build_stack_request(requirements=(f"numpy=={version}",))).stacks[0]
    return stack.model_copy(update={"name": name})


def record_sessions(out: Path, number: int, version: str, first: int) -> None:
    """Measure so many sessions that are not there yet."""
    stacks = [solve_version(REFERENCE, REFERENCE_ARM), solve_version(version, f"numpy {version}")]
    variants = install_variants(stacks, REFERENCE_ARM, max_download_bytes=2_000_000_000)
    case = parse_case(CASE)
    for index in range(first, first + number):
        folder = out / "sessions" / f"{index:03d}"
        if (folder / "done").exists():
            continue
        plan = build_session_plan(f"history-{index:03d}", session_config(rounds=(5,), seed=index), variants, [case])
        measure_session(folder, plan, variants, [case])
        (folder / "done").touch()


def summarize_session(folder: Path) -> dict[str, str | int | float]:
    """Row of a session in ratios.csv."""
    found = load_observations(folder)
    values = {
        (arm, number): clocks
        for arm, number, *clocks in found.values.select("arm", "round", "value", "other_value").iter_rows()
    }
    (followed,) = {arm.stack for arm in found.session.arms} - {REFERENCE_ARM}
    row: dict[str, str | int | float] = {"session": folder.name, "started_at": found.session.created_at}
    row |= {"followed": followed, "rounds": found.session.rounds_done}
    for name, arm in (("followed", followed), ("control", CONTROL)):
        for place, clock in enumerate(("wall", "cpu")):
            logs = [
                math.log(values[REFERENCE_ARM, number][place] / values[arm, number][place])
                for number in range(found.session.rounds_done)
                if {(REFERENCE_ARM, number), (arm, number)} <= values.keys()
            ]
            row[f"{name}_{clock}"] = round(statistics.fmean(logs), 6)
            row[f"{name}_{clock}_error"] = round(statistics.stdev(logs) / math.sqrt(len(logs)), 6)
    return row


def write_points(path: Path) -> None:
    """Write the table of points of a file of ratios beside it."""
    rows = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for series, (name, kind, stack) in enumerate(
                [("control", "control", "the reference again"), ("followed", "followed", "numpy")], 1
            ):
                version = row["followed"].removeprefix("numpy ") if name == "followed" else REFERENCE
                rows.append(
                    {
                        "series": series,
                        "metric": "Sort[reps=5,n=20000]",
                        "stack": stack,
                        "kind": kind,
                        "reference": f"numpy {REFERENCE}",
                        "hardware_key": "one machine, 2 cores",
                        "cpu_model": "2 cores",
                        "threads": 1,
                        "clock": "wall",
                        "indicator_version": "",
                        "tolerance": 0.02,
                        "session_id": row["session"],
                        "created_at": row["started_at"],
                        "revision": None,
                        "packages": f"numpy=={version}",
                        "rounds": int(row["rounds"]),
                        "log_ratio": float(row[f"{name}_wall"]),
                        "error": float(row[f"{name}_wall_error"]),
                    }
                )
    rows.sort(key=lambda row: (row["series"], row["session_id"]))
    POINTS.frame(rows).write_parquet(path.with_name("points.parquet"), compression="zstd")


def main(arguments: Sequence[str]) -> None:
    """Record what is missing, and write the ratios; or only the points of a file of ratios."""
    if arguments[0].endswith(".csv"):
        write_points(Path(arguments[0]))
        return
    out, numbers = Path(arguments[0]), [int(one) for one in arguments[1:]]
    steady, changed = [*numbers, *(200, 16)[len(numbers) :]]
    record_sessions(out, steady, FOLLOWED, 0)
    record_sessions(out, changed, CHANGED, steady)
    rows = [summarize_session(folder) for folder in sorted((out / "sessions").iterdir())]
    with (out / "ratios.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_points(out / "ratios.csv")


if __name__ == "__main__":
    main(sys.argv[1:])
