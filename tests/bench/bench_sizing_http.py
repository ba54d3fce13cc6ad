"""Over real HTTP: sweep, estimate and verification of a simulated service, against its need found by brute force.

    python -m tests.bench.bench_sizing_http [--users 120] [--limit 0.25] [--out DIR]

One simulated GPU is swept, the answer verified on it; then the service is started again with N GPUs for N around the
answer and driven by all users, until the least N whose p95 is within the limit is known. Quiet machine: client and
simulator share its cores. Prints wall times, the answer, the need, and the fewest samples kept at a level.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import polars as pl

from workbench.sizing import checking, keeping
from workbench.sizing.config import Goal
from workbench.sizing.driving import sweep
from workbench.sizing.points import points
from workbench.sizing.simulation.process import running
from workbench.sizing.simulation.service import Service

SERVICE = Service(slots=8, output_tokens=30, input_tokens=400, calls=2)
TIME_SCALE = 0.3
RUNS = 3
SEARCH = 8


def p95_s(gpus: int, users: int, seed: int) -> tuple[float, str]:
    """The p95 of all users on so many GPUs, and whether the point is valid."""
    with running(SERVICE.model_copy(update={"gpus": gpus, "seed": seed}), time_scale=TIME_SCALE) as url:
        found = sweep.run(url=url, simulated=True, gpus=gpus, users=[users], least_samples=1500, most_samples=1500)
    table, quantiles = points(found.requests, found.steps)
    p95 = quantiles.filter((pl.col("metric") == "runtime") & (pl.col("q") == 0.95))["value_s"][0]
    return float(p95), str(table["verdict"][0])


def need(users: int, limit_s: float, near: int) -> int:
    """The least count whose p95, as the mean of several runs, is within the limit."""
    known: dict[int, float] = {}

    def meets(gpus: int) -> bool:
        if gpus not in known:
            runs = [p95_s(gpus, users, seed) for seed in range(RUNS)]
            known[gpus] = statistics.fmean(value for value, _ in runs)
            print(
                f"  {gpus} GPUs: p95 {known[gpus]:.3f} s, points {sorted({verdict for _, verdict in runs})}", flush=True
            )
        return known[gpus] <= limit_s

    count = near
    while not meets(count):
        count += 1
    while count > 1 and count > near - SEARCH and meets(count - 1):
        count -= 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=120)
    parser.add_argument("--limit", type=float, default=0.25, help="limit of the p95 in s")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    out = chosen.out or Path(tempfile.mkdtemp())
    begin = time.perf_counter()
    with running(SERVICE, time_scale=TIME_SCALE) as url:
        goals = [Goal(limit_s=chosen.limit)]
        found = sweep.run(url=url, simulated=True, goals=goals, out=out, max_step_s=8, tight=0.1)
        swept = time.perf_counter()
        assert found.folder is not None
        answer = keeping.estimate([found.folder], keeping.load_of(chosen.users, None), None, None, 500, 0)
        checked = checking.verify(found.folder)
    ended = time.perf_counter()
    row = answer.estimates.row(0, named=True)
    print(answer.sentence)
    print(checking.text(checked, found.folder))
    print(f"sweep {swept - begin:.1f} s, all {ended - begin:.1f} s; {found.steps.height} steps")
    few = answer.points.filter(pl.col("n_kept") < 200).select("load", "n_kept", "verdict").rows()
    print(f"fewest kept {answer.points['n_kept'].min()}; levels below 200: {few}")
    truth = need(chosen.users, chosen.limit, round(row["gpus"]))
    print(f"need {truth}, estimate {row['gpus']:.2f}, recommended {row['recommended']}, slope {row['slope_gpus']:.2f}")


if __name__ == "__main__":
    main()
