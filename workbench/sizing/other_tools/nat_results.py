"""Reads the toolkit calculator's `calc_runner_output.json`: each level becomes a step.

That file has durations, but neither when a request was sent nor which failed. Requests are laid one after the other
on so many users in the order of the file, and one that took 0 s is a failure: that is how the toolkit records it.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from workbench.sizing.compat_nat import calc_file
from workbench.sizing.compat_nat.calc_file import SizingMetrics
from workbench.sizing.other_tools.imported_sweep import ImportedRequest, ImportedStep, ImportedSweep

NO_TIMES_NOTE = (
    "the toolkit's file does not tell when a request was sent: requests are laid one after the other on the users, so "
    "that rates and requests in flight are not measured ones"
)


def read_nat_results(path: Path) -> ImportedSweep:
    """The levels of a calculator's file as steps.

    Raises
    ------
    InputError
        The file is not one, or a field has another type.
    """
    output, notices = calc_file.read_calc_file(path)
    found = ImportedSweep("nat", "", False, [], [*notices, NO_TIMES_NOTE])
    for users, level in sorted(output.calc_data.items()):
        metrics = level.sizing_metrics
        label = f"{users} users"
        if reason := _find_exclusion_reason(users, metrics):
            found.notes.append(f"{label}: {reason}, left out")
            continue
        if metrics.alerts.workflow_interrupted:
            found.notes.append(f"{label}: the toolkit was interrupted at this level; it has what it got until then")
        step = ImportedStep("users", users, None, None, _place_requests(users, metrics))
        failed = sum(request.outcome != "ok" for request in step.requests)
        if failed:
            found.notes.append(f"{label}: {failed} requests of 0 s are failures")
        found.steps.append(step)
    return found


def _find_exclusion_reason(users: int, metrics: SizingMetrics) -> str | None:
    if users < 1:
        return "not a number of users"
    if not metrics.per_item_metrics:
        return "no single requests in it, only a p95"
    return None


def _place_requests(users: int, metrics: SizingMetrics) -> list[ImportedRequest]:
    """Each request goes to the user who is free first."""
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
                # Repetitions of a row carry its number and a suffix.
                prompt=name.partition("_rep")[0],
            )
        )
    return requests
