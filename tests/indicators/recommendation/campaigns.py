"""A world of stacks with known speeds, and campaigns that look for the best by measuring few of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.indicators.recommendation import ratio_estimates
from workbench.indicators.recommendation.conclusion import sample_thompson

MARGIN = 0.02
FIRST = 3
REFIT = 5


@dataclass(frozen=True)
class World:
    """Stacks with packages, and the true log score of each: 6 x 5 x 4 versions unless said otherwise."""

    packages: list[dict[str, str]]
    truth: npt.NDArray[np.float64]
    noise: float


@dataclass(frozen=True)
class Campaign:
    """How it ended: the stack that was chosen is so far behind the best, and what the spreads were taken for."""

    behind: float
    components: ratio_estimates.Components

    @property
    def near(self) -> bool:
        return self.behind <= np.log1p(MARGIN)


def world(
    seed: int,
    *,
    versions: tuple[int, ...] = (6, 5, 4),
    spread: float = 0.08,
    special: float = 0.02,
    noise: float = 0.03,
) -> World:
    """Effects of versions add up; `special` is what each combination has of its own."""
    random = np.random.default_rng([seed, 1])
    truth = random.normal(0, special, versions)
    for axis, count in enumerate(versions):
        shape = [1] * len(versions)
        shape[axis] = count
        truth = truth + random.normal(0, spread, count).reshape(shape)
    packages = [{f"p{axis}": str(place) for axis, place in enumerate(one)} for one in np.ndindex(*versions)]
    return World(packages, truth.ravel(), noise)


def single_runs(made: World, seed: int, *, runs: int = 60) -> Campaign:
    """One run after the other: a few at random, then what Thompson sampling says."""
    random = np.random.default_rng([seed, 2])
    rows: list[tuple[int, int, float]] = []
    components = None
    for number in range(runs):
        if number < FIRST:
            stack = int(random.integers(len(made.truth)))
        else:
            # Components hardly change by one run more: they are estimated anew now and then.
            steps = ratio_estimates.MAX_STEPS if number % REFIT == 0 or number < 10 else 0
            model = ratio_estimates.fit_additive_model(
                made.packages, ratio_estimates.Scores.from_rows(rows), start=components, steps=steps
            )
            components = model.components
            stack = sample_thompson(model.draw_scores(1, random), 1)[0]
        rows.append((stack, 0, made.truth[stack] + random.normal(0, made.noise)))
    return _ended(made, rows, components)


def in_rounds(made: World, seed: int, *, rounds: int = 12, candidates: int = 4, drift: float = 0.1) -> Campaign:
    """Rounds of some candidates beside the baseline, on a machine that changes from round to round."""
    random = np.random.default_rng([seed, 3])
    rows: list[tuple[int, int, float]] = []
    components = None
    for number in range(rounds):
        if number == 0:
            chosen = random.choice(np.arange(1, len(made.truth)), candidates, replace=False).tolist()
        else:
            model = ratio_estimates.fit_additive_model(
                made.packages, ratio_estimates.Scores.from_rows(rows), start=components
            )
            components = model.components
            chosen = sample_thompson(model.draw_scores(200, random), candidates)
        host = random.normal(0, drift)
        for stack in dict.fromkeys([0, *chosen]):
            rows.append((stack, number, made.truth[stack] + host + random.normal(0, made.noise)))
    return _ended(made, rows, components)


def exact_lookup(made: World, seed: int, *, runs: int = 60) -> Campaign:
    """What a table of measurements alone gives: stacks at random, two runs each, the best mean."""
    random = np.random.default_rng([seed, 4])
    stacks = random.choice(len(made.truth), runs // 2, replace=False)
    means = [np.mean(made.truth[one] + random.normal(0, made.noise, 2)) for one in stacks]
    chosen = int(stacks[int(np.argmax(means))])
    return Campaign(float(made.truth.max() - made.truth[chosen]), ratio_estimates.Components(0.0, 0.0, {}))


def _ended(made: World, rows: list[tuple[int, int, float]], start: ratio_estimates.Components | None) -> Campaign:
    model = ratio_estimates.fit_additive_model(made.packages, ratio_estimates.Scores.from_rows(rows), start=start)
    return Campaign(float(made.truth.max() - made.truth[int(model.mean.argmax())]), model.components)
