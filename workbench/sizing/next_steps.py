"""What to do with an answer of the notebook: what to plan with, and the command that comes next."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.sizing.sized import carried_in_flight

if TYPE_CHECKING:
    from workbench.sizing.answering import Answer

_OWN = (
    "This service is simulated. Measure yours, with your goal and load:"
    ' `workbench sizing run --url URL --goal "p95<=2" --target-users 100 --verify`.'
)
_PLAN = "Cost and nodes, beside Spark jobs: `workbench run capacity_plan -p sizing=RUN` (RUN: this report's folder)."


def of_answer(found: Answer) -> list[str]:
    """How many GPUs to plan with, or what stands in the way; then the service itself, or the plan."""
    row, gpus = found.binding, found.recommended
    after = _OWN if found.simulated else _PLAN
    if gpus is None or row is None:
        return ["Plan with no number yet: mend what the reasons above name, then measure again.", after]
    verdicts = set() if found.verification is None else set(found.verification["verdict"].to_list())
    if found.reasons and not verdicts & {"failed", "undecided"}:
        return [f"Do not plan with {_of(gpus)} yet: mend what the reasons above name, then measure again.", after]
    return [_decided(found, row, gpus, verdicts), after]


def _decided(found: Answer, row: dict[str, Any], gpus: int, verdicts: set[str]) -> str:
    if "failed" in verdicts:
        targets = found.verification.filter(pl.col("verdict") == "failed") if found.verification is not None else None
        missed = "" if targets is None else ", ".join(targets["target"].to_list())
        return f"Do not plan with {_of(gpus)}: driven with its load, {missed} failed. Measure more GPU counts."
    if verdicts == {"held"}:
        what = "a service like the simulated one" if found.simulated else "it"
        return f"Plan with {_of(gpus)} for {what}; what deploys them: `{_manifests(row, found.points, gpus)}`."
    if verdicts:
        more = "`workbench run sizing -p 'settings=[\"most_samples=20000\"]'`"
        return f"Whether {_of(gpus)} hold is not decided: measure more requests before you plan, {more}."
    return f"Drive {_of(gpus)} before you plan with them: `workbench sizing verify SWEEP --gpus {gpus}`."


def _manifests(row: dict[str, Any], points: pl.DataFrame, gpus: int) -> str:
    """The command with the requests in flight that one GPU carries: not the load, whose users may think."""
    each = math.floor(carried_in_flight(row, points, 1) or 0)
    return f"workbench sizing manifests --gpus {gpus} --in-flight {each or 'N'}"


def _of(gpus: int) -> str:
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"
