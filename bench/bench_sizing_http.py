"""Over real HTTP: sweep, estimate and verification of a simulated service, against its need found by brute force.

    python -m bench.bench_sizing_http [--users 120] [--limit 0.25] [--out DIR]

One simulated GPU is swept, the answer verified on it; then the service is started again with N GPUs for N around the
answer and driven by all users, until the least N whose p95 is within the limit is known. Quiet machine: client and
simulator share its cores. Prints wall times, the answer, the need, and the fewest samples kept at a level.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from bench import shape
from bench.shape import Bar, Row
from workbench.sizing.config import Goal
from workbench.sizing.estimation import sweep_store, verification
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.load import sweep_runner
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator

SERVICE = Service(slots=8, output_tokens=30, input_tokens=400, calls=2)
TIME_SCALE = 0.3
RUNS = 3
SEARCH = 8
LONGEST = Bar("value", at_most=150)


def p95_s(gpus: int, users: int, seed: int, samples: int, scale: float) -> tuple[float, str]:
    """The p95 of all users on so many GPUs, and whether the point is valid."""
    with run_simulator(SERVICE.model_copy(update={"gpus": gpus, "seed": seed}), time_scale=scale) as url:
        kept = {"least_samples": samples, "most_samples": samples}
        found = sweep_runner.run_sweep(url=url, simulated=True, gpus=gpus, users=[users], **kept)
    table, quantiles = assess_steps(found.requests, found.steps)
    p95 = quantiles.filter((pl.col("metric") == "runtime") & (pl.col("q") == 0.95))["value_s"][0]
    return float(p95), str(table["verdict"][0])


def need(users: int, limit_s: float, near: int, samples: int, scale: float) -> int:
    """The least count whose p95, as the mean of several runs, is within the limit."""
    known: dict[int, float] = {}

    def meets(gpus: int) -> bool:
        if gpus not in known:
            runs = [p95_s(gpus, users, seed, samples, scale) for seed in range(RUNS)]
            known[gpus] = statistics.fmean(value for value, _ in runs)
            verdicts = sorted({verdict for _, verdict in runs})
            shape.say(f"  {gpus} GPUs: p95 {known[gpus]:.3f} s, points {verdicts}")
        return known[gpus] <= limit_s

    count = near
    while not meets(count):
        count += 1
    while count > 1 and count > near - SEARCH and meets(count - 1):
        count -= 1
    return count


def main() -> int:
    """Measure once, tell, keep."""
    parser = shape.parser(__doc__, trials=1)
    parser.add_argument("--users", type=int, default=120)
    parser.add_argument("--limit", type=float, default=0.25, help="limit of the p95 in s")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    # Small means slow, too: a busy machine is late by what a fast service takes.
    users, limit_s, samples, scale = (
        (20, 1.0, 100, 1.2) if chosen.quick else (chosen.users, chosen.limit, 1500, TIME_SCALE)
    )
    out = chosen.out or Path(tempfile.mkdtemp())
    begin = time.perf_counter()
    with run_simulator(SERVICE, time_scale=scale) as url:
        goals = [Goal(limit_s=limit_s)]
        found = sweep_runner.run_sweep(
            url=url, simulated=True, goals=goals, out=out, max_step_s=4 if chosen.quick else 8, tight=0.1
        )
        swept = time.perf_counter()
        assert found.folder is not None
        answer = sweep_store.estimate_sweeps(
            [found.folder], sweep_store.choose_target_load(users, None), None, None, 500, 0
        )
        row = answer.estimates.row(0, named=True)
        shape.say(answer.sentence)
        if row["recommended"] is None:
            raise SystemExit(f"no answer, so nothing to hold against the need: {answer.sentence}")
        shape.say(verification.format_verification(verification.run_verification(found.folder).table, found.folder))
    ended = time.perf_counter()
    few = answer.points.filter(pl.col("n_kept") < 200).select("load", "n_kept", "verdict").rows()
    shape.say(f"{found.steps.height} steps, fewest kept {answer.points['n_kept'].min()}; levels below 200: {few}")
    truth = need(users, limit_s, max(1, round(row["gpus"])), samples, scale)
    what = f"one simulated GPU over HTTP, {users} users at p95 <= {limit_s:g} s"
    note = f"{row['gpus_low']:.1f} to {row['gpus_high']:.1f}, recommended {row['recommended']}"
    rows = [
        Row("sizing", f"{what}: sweep", "workbench", "s", [swept - begin]),
        Row("sizing", f"{what}: sweep, estimate, verification", "workbench", "s", [ended - begin], bar=LONGEST),
        Row("sizing", f"{what}: GPUs", "workbench, estimate", "GPUs", [row["gpus"]], note=note),
        Row(
            "sizing", f"{what}: GPUs", "need by brute force", "GPUs", [truth], note="not one measured beside: the truth"
        ),
    ]
    return shape.finish(rows, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
