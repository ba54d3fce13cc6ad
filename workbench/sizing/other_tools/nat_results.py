"""Reads the toolkit calculator's `calc_runner_output.json`: each level becomes a step.

The file has durations, but neither send times nor failures. Requests are assigned to the users one after the other in
the order of the file. A duration of 0 s is a failure, as the toolkit records it.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from workbench.sizing.compat_nat import calc_file
from workbench.sizing.other_tools.imported_sweep import ImportedRequest, ImportedStep, ImportedSweep, LoadFormat

NO_TIMES_NOTE = (
    "the toolkit's file has no send times: requests are assigned to the users one after the other, so throughput and "
    "requests in flight are reconstructed, not measured"
)


def read_nat_results(path: Path) -> ImportedSweep:
    """Read the levels of a calculator's file as steps."""
    output, notices = calc_file.read_calc_file(path)
    sweep = ImportedSweep("nat", "", False, [], [*notices, NO_TIMES_NOTE])
    for users, level in sorted(output.calc_data.items()):
        metrics = level.sizing_metrics
        label = f"{users} users"
        if users < 1 or not metrics.per_item_metrics:
            reason = "not a number of users" if users < 1 else "it has only a p95, no single requests"
            sweep.notes.append(f"{label}: left out, {reason}")
            continue
        if metrics.alerts.workflow_interrupted:
            sweep.notes.append(f"{label}: the toolkit was interrupted; the level has the requests finished until then")
        # Place the requests in time: each begins when the first of `users` becomes idle.
        free = [0.0] * users
        requests = []
        for name, item in metrics.per_item_metrics.items():
            sent_s = heapq.heappop(free)
            ok = item.workflow_runtime > 0
            ended_s = sent_s + max(0.0, item.workflow_runtime)
            heapq.heappush(free, ended_s)
            requests.append(
                ImportedRequest(
                    intended_s=sent_s,
                    sent_s=sent_s,
                    ended_s=ended_s,
                    outcome="ok" if ok else "failed",
                    llm_s=[item.llm_latency] if ok and item.llm_latency > 0 else None,
                    # Repeated rows have the row number and a suffix.
                    prompt=name.partition("_rep")[0],
                )
            )
        step = ImportedStep("users", users, None, None, requests, is_placed=True)
        failed = sum(request.outcome != "ok" for request in step.requests)
        if failed:
            sweep.notes.append(f"{label}: {failed} requests of 0 s count as failures")
        sweep.steps.append(step)
    return sweep


FORMAT = LoadFormat(
    name="nat",
    marks=(('"calc_data"|"per_concurrency_data"',),),
    read=read_nat_results,
    report_name="calc_runner_output.json",
)
