"""The two sources of figures: the rounds of the stacks themselves, or the model that also knows stacks never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from workbench.indicators.recommending import additive, chances
from workbench.indicators.recommending.mix import Scored
from workbench.stats import Interval

Floats = npt.NDArray[np.float64]


class Figures(Protocol):
    """Ratios and draws of stacks, by their places: the arm, or the key of a stack that was not measured."""

    def ratio(self, stack: str, against: str) -> Interval:
        """How many times better is one stack than another?"""

    def draws(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """Joint draws of the log ratios to the baseline, (draws, stacks)."""


@dataclass(frozen=True)
class Paired:
    """Figures of measured stacks from their own rounds alone.

    Attributes
    ----------
    scores
        The mix by round and arm.
    arms
        The arms that may be asked for.
    level
        Confidence of the intervals.
    """

    scores: Scored
    arms: frozenset[str]
    level: float

    def ratio(self, stack: str, against: str) -> Interval:
        """By the t interval of the log ratios within rounds."""
        if not {stack, against} <= self.arms:
            return Interval(None, None, None, self.level, 0, "paired log ratio, t", reason="not measured")
        return chances.ratio(self.scores, stack, against, level=self.level)

    def draws(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """By the multivariate t posterior over rounds."""
        return chances.posterior(self.scores, stacks, baseline, seed=seed)


@dataclass(frozen=True)
class Modelled:
    """Figures of all stacks from the additive model.

    Attributes
    ----------
    model
        What is believed of every stack.
    places
        Place of a stack to its position in the model.
    level
        Confidence of the intervals.
    """

    model: additive.Additive
    places: Mapping[str, int]
    level: float

    def ratio(self, stack: str, against: str) -> Interval:
        """By the posterior of the difference."""
        one, other = self.places[stack], self.places[against]
        difference = float(self.model.mean[one] - self.model.mean[other])
        error = self.model.error(one, other)
        return chances.predicted_ratio(difference, error, self.model.degrees, level=self.level)

    def draws(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """By the joint posterior."""
        made = self.model.draws(chances.DRAWS, np.random.default_rng(seed))
        base = made[:, self.places[baseline]]
        return np.asarray(made[:, [self.places[stack] for stack in stacks]] - base[:, None])


def modelled(
    scores: Scored, arms: Mapping[str, str], packages: Mapping[str, Mapping[str, str]], *, level: float
) -> Modelled:
    """Fit the additive model to the rounds of some arms.

    Parameters
    ----------
    scores
        The mix by round and arm.
    arms
        Arm to place of its stack, of those whose answers can be trusted; the control is the baseline's stack once more.
    packages
        Place of every stack, measured or not, to its packages and their versions.
    level
        Confidence of the intervals.

    Raises
    ------
    InputError
        No round holds two of the arms.
    """
    places = {name: position for position, name in enumerate(packages)}
    rows = [
        (places[arms[arm]], number, float(value))
        for arm in scores.arms
        if arm in arms
        for number, value in zip(scores.rounds, scores.of(arm), strict=True)
        if np.isfinite(value)
    ]
    return Modelled(additive.fit(list(packages.values()), additive.Scores.of(rows)), places, level)
