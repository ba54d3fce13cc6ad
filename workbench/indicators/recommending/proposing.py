"""Which stacks to measure next: each is the best of one draw of what may be true (Thompson sampling)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.indicators.recommending.constraints import Predictable
from workbench.indicators.recommending.figures import Figures
from workbench.indicators.recommending.pipeline import Accepted, Excluded
from workbench.indicators.recommending.request import Request
from workbench.indicators.recommending.units import Candidate, Context


def thompson(draws: npt.NDArray[np.float64], count: int) -> list[int]:
    """The first so many different stacks that are the best of a draw, in the order of the draws.

    Parameters
    ----------
    draws
        Joint draws of log scores, (draws, stacks).
    count
        How many; fewer come back when no draw has another one as its best.
    """
    return list(dict.fromkeys(draws.argmax(axis=1).tolist()))[:count]


def proposals(
    context: Context,
    figures: Figures,
    accepted: Sequence[Accepted],
    excluded: Sequence[Excluded],
    request: Request,
) -> list[dict[str, Any]]:
    """Rows of PROPOSALS: what to measure in the next rounds, beside the baseline, which is in them always.

    Stacks that no constraint left out, and those that only cannot be predicted because a version of theirs was never
    measured: these are worth a look, unless a stack with that version gave wrong answers.
    """
    base = next(one for one in context.everything if one.baseline)
    stacks = [one.stack for one in accepted if not one.stack.baseline] + _never_seen(context, excluded)
    if not stacks:
        return []
    draws = figures.draws([one.place for one in stacks], base.place, seed=request.seed + 1)
    chosen = [stacks[place] for place in thompson(draws, request.propose)]
    return [
        {
            "session_id": context.session.session_id,
            "place": place + 1,
            "stack": one.name,
            "stack_key": one.key,
            "ratio": one.interval.estimate,
            "low": one.interval.low,
            "high": one.interval.high,
            "n": one.rounds,
        }
        for place, one in enumerate(chosen)
    ]


def _never_seen(context: Context, excluded: Sequence[Excluded]) -> list[Candidate]:
    trusted = context.facts.trusted
    right = {pair for one in context.everything if one.arm in trusted for pair in one.packages.items()}
    wrong = {
        pair
        for one in context.everything
        if one.arm is not None and one.arm not in trusted
        for pair in one.packages.items()
    } - right
    unseen = [one.stack for one in excluded if one.unit == Predictable.__name__]
    return [stack for stack in unseen if not wrong & set(stack.packages.items())]
