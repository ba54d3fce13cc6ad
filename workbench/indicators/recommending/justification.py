"""One sentence of a justification, with the runs that it rests on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workbench.stats import Interval

Kind = Literal["INFO", "WARNING", "ERROR"]
MIX = "mix"
"""The name that stands for all metrics of the mix together."""


class Evidence(BaseModel):
    """What a sentence rests on: figures against the baseline, and paths of runs below the session's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    metric: str | None = None
    effect_pct: float | None = None
    interval: tuple[float, float] | None = None
    n_rounds: int | None = None
    runs: tuple[str, ...] = ()
    hardware: str | None = None
    session: str | None = None


class Justification(BaseModel):
    """One sentence: `type`, `message`, `link`, `package_name` and `version_range` as upstream has them; `evidence`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    type: Kind
    message: str
    link: str | None = None
    package_name: str | None = None
    version_range: str | None = None
    evidence: Evidence = Evidence()

    def row(self) -> dict[str, Any]:
        """Its columns of JUSTIFICATIONS, but for the session, number and stack."""
        low, high = self.evidence.interval or (None, None)
        return {
            "type": self.type,
            "message": self.message,
            "link": self.link,
            "package_name": self.package_name,
            "version_range": self.version_range,
            "metric": self.evidence.metric,
            "effect_pct": self.evidence.effect_pct,
            "low_pct": low,
            "high_pct": high,
            "n_rounds": self.evidence.n_rounds,
            "runs": list(self.evidence.runs),
            "hardware": self.evidence.hardware,
        }


def run_path(inspection: str, run: int) -> str:
    """Where a run's document lies below the session's folder."""
    return f"inspections/{inspection}/results/{run}/result"


def percent(ratio: float) -> float:
    """A ratio as an effect: 1.25 is 25 % better."""
    return 100 * (ratio - 1)


def in_percent(interval: Interval) -> str:
    """An effect with its interval, for a sentence."""
    if interval.estimate is None:
        return "not known"
    if interval.low is None or interval.high is None:
        return f"{percent(interval.estimate):+.1f} %, without an interval"
    return f"{percent(interval.estimate):+.1f} % [{percent(interval.low):+.1f}, {percent(interval.high):+.1f}]"
