"""Is the answer right? Every scenario of known need, seeds 0-99, beside the slope-based calculator.

    python -m bench.bench_sizing_truth [--seeds 100] [--processes 2] [--out FOUND.jsonl]

The slope stands twice: on the very points of our sweep (steady state, all samples), and on points measured as the
calculator measures them (2 x concurrency requests sent at once, everything counted, the same levels). Results are
kept line by line in FOUND.jsonl; what is there already is not run again. No timing is measured.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench import shape
from bench.shape import Bar, Row
from tests.sizing.scenarios import CACHED, JUDGED, SCENARIOS, Scenario, estimated, verified
from workbench.sizing.compat_nat import calculation
from workbench.sizing.simulation.cluster_model import Cluster, Workflow

EVERY = SCENARIOS | CACHED
GROUPS = {
    "simulated services of known need": {name: SCENARIOS[name] for name in JUDGED},
    "simulated services with a prefix cache": CACHED,
}


def two_passes_s(scenario: Scenario, users: int, seed: int) -> float:
    """The p95 as the calculator has it: twice as many requests as users, from an idle service to an empty one."""
    cluster = Cluster(scenario.at(scenario.test_gpus), seed=seed)
    ended: list[Workflow] = []
    left = users

    def again(flow: Workflow) -> None:
        nonlocal left
        ended.append(flow)
        if left:
            left -= 1
            cluster.start_workflow(again)

    for _ in range(users):
        cluster.start_workflow(again)
    cluster.run_while(lambda: True)
    return float(np.quantile([(flow.ended_s or 0) - flow.sent_s for flow in ended], 0.95))


def peers_gpus(scenario: Scenario, loads: list[int], seed: int) -> float | None:
    """The slope-based answer from points measured in two passes."""
    p95_s = [two_passes_s(scenario, users, 1000 * seed + users) for users in loads]
    line = calculation.fit_line(loads, p95_s).line
    if line is None:
        return None
    return calculation.gpus_by_slope(
        line, target_s=scenario.limit_s, users=scenario.users, test_gpus=scenario.test_gpus
    ).gpus


def run(job: tuple[str, int]) -> dict[str, Any]:
    """One scenario with one seed."""
    name, seed = job
    scenario = EVERY[name]
    requests, steps, table, row = estimated(scenario, seed)
    wanted = ("gpus", "gpus_low", "gpus_high", "recommended", "slope_gpus", "method", "verdict")
    found = {"scenario": name, "seed": seed, **{key: row[key] for key in wanted}}
    # The calculator has no open loops.
    loads = sorted(set(steps["users"].drop_nulls().to_list()))
    found["peer_gpus"] = None if scenario.is_open or name in CACHED else peers_gpus(scenario, loads, seed)
    found |= {"n_steps": steps.height, "n_requests": requests.height, "fewest": int(str(table["n_kept"].min()))}
    if name in "FL" and row["recommended"] is not None:
        checked = verified(scenario, row["recommended"], seed)
        found["verification"] = checked["verdict"][0]
    return found


def report(rows: list[dict[str, Any]]) -> str:
    """The table, in Markdown."""
    lines = [
        "| scenario | need | ours: median (range) | covers | near | slope, our points | slope, two passes (answers) |",
        "|---|---|---|---|---|---|---|",
    ]
    covers: dict[str, list[bool]] = {group: [] for group in GROUPS}
    near: dict[str, list[bool]] = {group: [] for group in GROUPS}
    for name, scenario in EVERY.items():
        own = [row for row in rows if row["scenario"] == name]
        truth = scenario.truth
        high = [row["recommended"] for row in own]
        cells = [_spread([row[key] for row in own]) for key in ("gpus", "slope_gpus", "peer_gpus")]
        shares = ["–", "–"]
        group = next((group for group, judged in GROUPS.items() if name in judged), None)
        if truth is not None and group is not None:
            held = [one is None or one >= truth for one in high]
            tight = [one is not None and one <= max(1.2 * truth, truth + 1) for one in high]
            covers[group] += held
            near[group] += tight
            shares = [f"{100 * np.mean(held):.0f} %", f"{100 * np.mean(tight):.0f} %"]
        columns = [f"{name}: {scenario.about}", str(truth or "none"), cells[0], *shares, *cells[1:]]
        lines.append(f"| {' | '.join(columns)} |")
    lines.append("")
    lines += [
        f"{group} ({', '.join(judged)}): covers {100 * np.mean(covers[group]):.1f} %, "
        f"near {100 * np.mean(near[group]):.1f} %, n = {len(covers[group])}"
        for group, judged in GROUPS.items()
        if covers[group]
    ]
    for name in "FL":
        verdicts = [row.get("verification") for row in rows if row["scenario"] == name]
        lines.append(f"{name}: verification { {verdict: verdicts.count(verdict) for verdict in set(verdicts)} }")
    lines.append(
        f"requests a sweep: {statistics.median(row['n_requests'] for row in rows):.0f} (median); "
        f"fewest kept at a level: {min(row['fewest'] for row in rows)}"
    )
    return "\n".join(lines)


def _spread(values: list[float | None]) -> str:
    known = [math.ceil(value) for value in values if value is not None]
    if not known:
        return f"refused ({len(values)})"
    without = f", {len(values) - len(known)} none" if len(known) < len(values) else ""
    return f"{statistics.median(known):g} ({min(known)}-{max(known)}{without})"


def shares(rows: list[dict[str, Any]]) -> list[Row]:
    """How often the answer covers the need and is near it, and the slope's beside it, pooled over the judged."""
    return [row for about, scenarios in GROUPS.items() for row in _group_shares(rows, about, scenarios)]


def _group_shares(rows: list[dict[str, Any]], about: str, scenarios: dict[str, Scenario]) -> list[Row]:
    judged = [row for row in rows if row["scenario"] in scenarios]
    if not judged:
        return []
    what = f"{len(scenarios)} {about}, {len({row['seed'] for row in judged})} seeds"
    found = []
    sides = [("workbench", "recommended", ""), ("slope, two bursts", "peer_gpus", "nvidia-nat's method")]
    # The calculator has no sessions.
    for side, key, peer in sides[:1] if scenarios is CACHED else sides:
        given = [(scenarios[row["scenario"]].truth, row[key]) for row in judged]
        known = [(need, math.ceil(value)) for need, value in given if need is not None and value is not None]
        held = 100 * sum(value >= need for need, value in known) / len(given)
        near = 100 * sum(need <= value <= max(1.2 * need, need + 1) for need, value in known) / len(given)
        bar = None if peer else Bar("value", at_least=90)
        for name, share in (("enough GPUs", held), ("enough, and at most 1.2 times the need (or one more)", near)):
            note = f"{len(given)} sweeps, {len(given) - len(known)} without an answer"
            told = {"bar": bar, "note": note, "higher_is_better": True}
            found.append(Row("sizing", f"{what}: {name}", side, "%", [share], peer, **told))
    return found


def main() -> int:
    """Run what is missing, tell, keep."""
    parser = shape.parser(__doc__, trials=1)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", default="", help="scenarios, such as abc")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="go on with what is in this file of lines")
    chosen = parser.parse_args()
    out = chosen.out or Path(tempfile.mkdtemp()) / "found.jsonl"
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(row["scenario"], row["seed"]) for row in rows}
    seeds, names = (1, JUDGED[:2]) if chosen.quick else (chosen.seeds, chosen.only or EVERY)
    jobs = [(name, seed) for seed in range(seeds) for name in names if (name, seed) not in done]
    with ProcessPoolExecutor(chosen.processes) as pool, out.open("a") as file:
        for row in pool.map(run, jobs, chunksize=2):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    if not chosen.quick:
        shape.say(report(rows))
    return shape.finish(shares(rows), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
