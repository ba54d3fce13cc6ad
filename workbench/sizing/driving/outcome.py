"""What a sweep gives back, and who is told how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workbench.sizing.config import SweepConfig
from workbench.sizing.driving import wire
from workbench.sizing.driving.step import Held

if TYPE_CHECKING:
    import polars as pl

GOOD_VERDICTS = ("valid", "saturated")


class Watcher(Protocol):
    """Is told how far a sweep is."""

    def begun(self, load: wire.Load) -> None:
        """A step begins."""

    def going(self, held: Held) -> None:
        """A few times a second: what there is so far."""

    def ended(self, held: Held) -> None:
        """A step is over and written."""

    def stopping(self, times: int) -> None:
        """The user asked it to end, for the first or second time."""


class Silence:
    """Says nothing."""

    def begun(self, load: wire.Load) -> None:
        """Nothing."""

    def going(self, held: Held) -> None:
        """Nothing."""

    def ended(self, held: Held) -> None:
        """Nothing."""

    def stopping(self, times: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Sweep:
    """What a sweep gave.

    Attributes
    ----------
    config
        Its settings.
    requests, steps, points, quantiles
        The tables of those names.
    folder
        Where they were written; null for nowhere.
    ended
        Why it ended: finished, interrupted, limit.
    failures
        Of each step: outcome, status and words of the service, to how many.
    limit
        The limit that ended it, in words.
    """

    config: SweepConfig
    requests: pl.DataFrame
    steps: pl.DataFrame
    points: pl.DataFrame
    quantiles: pl.DataFrame
    folder: Path | None
    ended: str
    failures: dict[int, dict[str, int]]
    limit: str | None = None

    @property
    def simulated(self) -> bool:
        """Was it a simulator that answered?"""
        return self.config.simulated or bool(self.steps["simulated"].any())

    @property
    def reasons(self) -> list[str]:
        """Why it is not all good; empty when it is."""
        found = [] if self.steps.height else ["no level was measured"]
        if self.ended == "interrupted":
            found.append("it was interrupted")
        if self.limit is not None:
            found.append(f"it ended at its limit, {self.limit}")
        for row in self.points.iter_rows(named=True):
            if row["verdict"] not in GOOD_VERDICTS:
                unit = "/s" if row["load_unit"] == "1/s" else " users"
                found.append(f"{row['load']:g}{unit}: {row['verdict']}, {row['reason']}")
        return found

    @property
    def answer(self) -> str:
        """What was measured, in one sentence."""
        loads = [float(load) for load in self.points["load"].to_list()]
        if not loads:
            return "nothing was measured"
        simulated = "simulated: " if self.simulated else ""
        count = f"{self.points.height} level{'s' if self.points.height > 1 else ''}"
        return f"{simulated}{count} from {min(loads):g} to {max(loads):g} {self.config.load_means}"
