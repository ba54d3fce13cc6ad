"""A test's result in words: a short table, what it means, where it lies."""

from __future__ import annotations

from workbench.formats import seconds
from workbench.scaletest.running.result import RunResult

_WIDTH = 24


def say_all(found: RunResult) -> None:
    """On the terminal: what was sent, where the time went, whether it counts, where it lies."""
    from workbench.scaletest.analysing import analyse
    from workbench.scaletest.telling import say_run
    from workbench.terminal import say

    say("\n".join([*_submission(found), ""]))
    say_run(analyse(found.folder))
    say("\n".join([f"The run is {found.verdict}.", *_after(found)]))


def _row(name: str, value: str) -> str:
    return f"{name:<{_WIDTH}}{value}"


def _submission(found: RunResult) -> list[str]:
    sent = found.outcome
    lines = [
        _row("run", f"{found.run}, scheduler {found.scheduler}"),
        _row(
            "workloads", f"{sent.acked:,} of {sent.planned:,} accepted, {sent.failed:,} failed, {sent.unsent:,} unsent"
        ),
    ]
    if sent.rate_per_s is not None:
        late = "" if sent.lateness_p99_s is None else f", sent {seconds(sent.lateness_p99_s)} late at p99"
        lines.append(_row("submission", f"{sent.rate_per_s:.4g}/s{late}"))
    if sent.throttled:
        lines.append(_row("throttled", f"{sent.throttled:,} times 429, {seconds(sent.throttled_s)} waited in all"))
    if sent.resumed:
        lines.append(_row("resumed", f"{sent.known:,} were there already, {sent.overdue:,} were overdue"))
    if sent.first_failure:
        lines.append(_row("first failure", sent.first_failure))
    lines.append(_row("ended", f"submission: {sent.reason}; pods: {found.drained}"))
    return lines


def _after(found: RunResult) -> list[str]:
    lines = []
    if found.cleaned is not None and found.cleaned.complete:
        lines.append(f"cleaned up: {sum(found.cleaned.found.values()):,} objects were deleted, 0 are left")
    elif found.cleaned is not None:
        left = ", ".join(f"{count:,} in {place}" for place, count in found.cleaned.left.items())
        lines.append(f"cleaned up, but not all has gone: {left}; again: workbench scaletest cleanup {found.run}")
    else:
        lines.append(f"its objects are still there: workbench scaletest cleanup {found.run}")
    if not found.outcome.complete and found.outcome.unsent:
        lines.append(f"go on: workbench scaletest run --resume {found.folder}")
    return [*lines, f"folder: {found.folder}"]
