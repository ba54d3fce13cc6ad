"""What came of a whole test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.scaletest.cleanup import Cleaned
from workbench.scaletest.driving import Outcome


@dataclass(frozen=True)
class RunResult:
    """A test's end.

    Attributes
    ----------
    folder
        The run folder.
    run
        The run's id, by which its objects are found.
    drained
        Why draining ended.
    verdict, reasons, warnings
        Whether the figures mean what they say; why not; what to know although they do.
    answer
        The result in one sentence.
    figures
        Quantiles of the main steps by name, in seconds; null where not reached or not known.
    cleaned
        What became of the run's objects; null when they were left.
    """

    folder: Path
    run: str
    scheduler: str
    outcome: Outcome
    drained: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    answer: str
    figures: dict[str, dict[str, float | None]]
    pods_seen: int
    cleaned: Cleaned | None = None
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 130 when a person ended it."""
        return 130 if self.interrupted else 0 if self.verdict == "valid" else 1

    def document(self) -> dict[str, Any]:
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
            "cleanup": None if self.cleaned is None else self.cleaned.document(),
        }
