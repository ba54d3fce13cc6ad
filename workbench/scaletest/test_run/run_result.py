"""Result of a test, and its text for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.formats import format_seconds
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.submission import SubmissionOutcome

_WIDTH = 24


@dataclass(frozen=True)
class RunResult:
    """Result of a test.

    `verdict`, `reasons`, `warnings`: Whether the figures mean what they say; why not; what to know although they do.
    `figures`: Quantiles of the main steps by name, in seconds; null where not reached or not known.
    `cleaned`: What became of the run's objects; null when they were left.
    """

    folder: Path
    run: str
    scheduler: str
    outcome: SubmissionOutcome
    drained: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    answer: str
    figures: dict[str, dict[str, float | None]]
    pods_seen: int
    cleaned: CleanupResult | None = None
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 130 interrupted."""
        return 130 if self.interrupted else 0 if self.verdict == "valid" else 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        outcome = {name: getattr(self.outcome, name) for name in self.outcome.__slots__}
        return {
            "folder": str(self.folder),
            "run": self.run,
            "scheduler": self.scheduler,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "answer": self.answer,
            "submission": outcome,
            "drained": self.drained,
            "pods_seen": self.pods_seen,
            "figures": self.figures,
            "cleanup": None if self.cleaned is None else self.cleaned.to_dict(),
        }


def print_result(result: RunResult) -> None:
    """On the terminal: what was sent, where the time went, whether it counts, where it lies."""
    from workbench.console.terminal import print_text
    from workbench.scaletest.analysis.run_analysis import analyse_run
    from workbench.scaletest.analysis.terminal_report import print_run

    print_text("\n".join([*_format_submission(result), ""]))
    print_run(analyse_run(result.folder))
    print_text("\n".join(_format_aftermath(result)))


def _format_row(name: str, value: str) -> str:
    return f"{name:<{_WIDTH}}{value}"


def _format_submission(result: RunResult) -> list[str]:
    sent = result.outcome
    lines = [
        _format_row("run", f"{result.run}, scheduler {result.scheduler}"),
        _format_row(
            "workloads", f"{sent.acked:,} of {sent.planned:,} accepted, {sent.failed:,} failed, {sent.unsent:,} unsent"
        ),
    ]
    if sent.rate_per_s is not None:
        late = "" if sent.lateness_p99_s is None else f", sent {format_seconds(sent.lateness_p99_s)} late at p99"
        lines.append(_format_row("submission", f"{sent.rate_per_s:.4g}/s{late}"))
    if sent.throttled:
        lines.append(
            _format_row("throttled", f"{sent.throttled:,} times 429, {format_seconds(sent.throttled_s)} waited in all")
        )
    if sent.resumed:
        lines.append(_format_row("resumed", f"{sent.known:,} were there already, {sent.overdue:,} were overdue"))
    if sent.first_failure:
        lines.append(_format_row("first failure", sent.first_failure))
    lines.append(_format_row("ended", f"submission: {sent.reason}; pods: {result.drained}"))
    return lines


def _format_aftermath(result: RunResult) -> list[str]:
    lines = []
    if result.cleaned is not None and result.cleaned.complete:
        lines.append(f"cleaned up: {sum(result.cleaned.found.values()):,} objects were deleted, 0 are left")
    elif result.cleaned is not None:
        leftovers = ", ".join(f"{count:,} in {place}" for place, count in result.cleaned.left.items())
        lines.append(f"cleanup left objects: {leftovers}; repeat it: workbench scaletest cleanup {result.run}")
    else:
        lines.append(f"its objects are still in the cluster; clean up: workbench scaletest cleanup {result.run}")
    if not result.outcome.complete and result.outcome.unsent:
        lines.append(f"resume: workbench scaletest run --resume {result.folder}")
    return [*lines, f"folder: {result.folder}"]
