"""The toolkit calculator's `calc_runner_output.json`: each level a step of so many users.

That file has durations, but neither when a request was sent nor which failed. Requests are laid one after the other
on so many users in the order of the file, and one that took 0 s is a failure: that is how the toolkit records it.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from workbench.sizing.calculator import calcfile
from workbench.sizing.calculator.calcfile import SizingMetrics
from workbench.sizing.importing.sweep import Imported, Request, Step

NO_TIMES = (
    "the toolkit's file does not tell when a request was sent: requests are laid one after the other on the users, so "
    "that rates and requests in flight are not measured ones"
)


def read(path: Path) -> Imported:
    """The levels of a calculator's file as steps.

    Raises
    ------
    InputError
        The file is not one, or a field has another type.
    """
    output, notices = calcfile.read(path)
    found = Imported("nat", "", False, [], [*notices, NO_TIMES])
    for users, level in sorted(output.calc_data.items()):
        metrics = level.sizing_metrics
        label = f"{users} users"
        if reason := _left_out(users, metrics):
            found.notes.append(f"{label}: {reason}, left out")
            continue
        if metrics.alerts.workflow_interrupted:
            found.notes.append(f"{label}: the toolkit was interrupted at this level; it has what it got until then")
        step = Step("users", users, None, None, _laid(users, metrics))
        failed = sum(request.outcome != "ok" for request in step.requests)
        if failed:
            found.notes.append(f"{label}: {failed} requests of 0 s are failures")
        found.steps.append(step)
    return found


def _left_out(users: int, metrics: SizingMetrics) -> str | None:
    if users < 1:
        return "not a number of users"
    if not metrics.per_item_metrics:
        return "no single requests in it, only a p95"
    return None


def _laid(users: int, metrics: SizingMetrics) -> list[Request]:
    """Each request goes to the user who is free first."""
    free = [0.0] * users
    requests = []
    for name, item in metrics.per_item_metrics.items():
        sent_s = heapq.heappop(free)
        ok = item.workflow_runtime > 0
        ended_s = sent_s + max(0.0, item.workflow_runtime)
        heapq.heappush(free, ended_s)
        requests.append(
            Request(
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
