"""Stacks that were not measured, from those that were: an effect per package version, and what is left of each stack.

    y = round + sum over packages of effect(package, version) + residual(stack) + noise

`y` is a log score, above is better. Effects and residuals are drawn to zero by as much as the data ask for (a mixed
model; the estimates are its best linear unbiased predictions). Rounds are free, so that only differences within a
round count. A combination that cannot be installed or failed is not part of the data: it is missing, never slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.errors import InputError, InvalidResultError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
MOST_STACKS = 2000
MOST_STEPS = 60
SETTLED = 1e-3

# Weak prior knowledge: variances as multiples of the noise's, and worth how many observations. Versions differ by more
# than the noise of a run, what is special to one combination by less. It steadies the first few runs, no more; chosen
# on 100 worlds, some of them far from it, and measured on others by `tests/bench/bench_indicators_world.py`.
_PACKAGE_PRIOR = (2.0, 1.0)
_RESIDUAL_PRIOR = (0.25, 2.0)


@dataclass(frozen=True)
class Scores:
    """What was measured: one entry per stack and round.

    Attributes
    ----------
    stack, round
        Positions of the stack in the list of stacks, and numbers of the round; whole numbers.
    value
        Log scores, above is better; only differences within a round are used.
    """

    stack: Ints
    round: Ints
    value: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float]]) -> Scores:
        """From rows of stack, round and log score.

        Raises
        ------
        InputError
            A score is missing or not finite.
        """
        table = list(rows)
        value = np.array([row[2] for row in table], dtype=np.float64)
        if not np.isfinite(value).all():
            raise InputError("a score that is no number", where=f"row {int(np.argmin(np.isfinite(value)))}")
        return cls(
            np.array([row[0] for row in table], dtype=np.intp),
            np.array([row[1] for row in table], dtype=np.intp),
            value,
        )


@dataclass(frozen=True)
class Components:
    """The spread of each part, as estimated from the data, as standard deviations of log scores.

    Attributes
    ----------
    noise
        Of one run, within its round.
    residual
        Of what is special to one combination of versions.
    packages
        Of the versions of each package that varies.
    """

    noise: float
    residual: float
    packages: Mapping[str, float]


@dataclass(frozen=True)
class Additive:
    """What is believed of every stack, measured or not.

    Attributes
    ----------
    mean
        Log score of each stack; only differences between stacks mean something.
    covariance
        Of these, jointly.
    degrees
        Degrees of freedom of the spread: observations less rounds.
    components
        The estimated spreads.
    """

    mean: Floats
    covariance: Floats
    degrees: int
    components: Components

    def draws(self, count: int, random: np.random.Generator) -> Floats:
        """So many joint draws of all log scores, (count, stacks); t, for the noise is only estimated."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.clip(values, 0, None))
        normal = random.standard_normal((count, len(self.mean))) @ root.T
        scale = np.sqrt(random.chisquare(self.degrees, count) / self.degrees)
        return np.asarray(self.mean + normal / scale[:, None])

    def error(self, stack: int, against: int) -> float:
        """Standard error of the difference between two stacks."""
        c = self.covariance
        return float(np.sqrt(max(0.0, c[stack, stack] + c[against, against] - 2 * c[stack, against])))


def fit(
    packages: Sequence[Mapping[str, str]], scores: Scores, *, start: Components | None = None, steps: int = MOST_STEPS
) -> Additive:
    """How fast is each stack, judged from those that were measured and share versions with it?

    Parameters
    ----------
    packages
        Package name to version, of every stack, measured or not.
    scores
        What was measured.
    start
        Components of an earlier fit to begin from, when observations are added one by one.
    steps
        Most steps of the estimation of the components.

    Returns
    -------
    Additive
        One entry per stack, in the given order.

    Raises
    ------
    InputError
        Too many stacks.
    InvalidResultError
        No round holds two observations.

    Notes
    -----
    Components are those of the largest restricted likelihood, with a weak prior, by the minorise-maximise steps of
    Zhou, Hu, Zhou and Lange, MM algorithms for variance components models (2019). Stacks never measured follow from
    Henderson, Best linear unbiased estimation and prediction (1975). Does not show effects that two packages have
    only together, beyond the stacks where they were measured; nor another class of hardware. The estimated spreads are
    taken as known: of stacks never run, 90 % intervals hold 86 % (simulated, 60 runs of 120 stacks), and 80 % where a
    version was never seen, which is why such a stack is proposed at most.
    """
    if len(packages) > MOST_STACKS:
        raise InputError("too many stacks to predict", found=len(packages), allowed=f"up to {MOST_STACKS}")
    design = _design(packages)
    data = _reduced(scores, len(packages))
    kernels = [data.rows @ (one @ (one.T @ data.rows.T)) for one in design.values()]
    residual = data.rows @ data.rows.T
    ratios = _components([*kernels, residual], data, _started(start, list(design)), steps)
    return _posterior(design, data, ratios)


@dataclass(frozen=True)
class _Data:
    """Observations, reduced to as many independent ones as stacks can be told apart: `target` = `rows` @ stacks."""

    rows: Floats
    target: Floats
    left_over: float
    degrees: int


def _design(packages: Sequence[Mapping[str, str]]) -> dict[str, Floats]:
    """For each package that varies, which stack has which of its versions; not there counts as a version."""
    design = {}
    for name in sorted({name for one in packages for name in one}):
        versions = [one.get(name, "") for one in packages]
        if len(kinds := sorted(set(versions))) > 1:
            design[name] = np.array([[float(version == kind) for kind in kinds] for version in versions])
    return design


def _reduced(scores: Scores, stacks: int) -> _Data:
    """Take the rounds out; what remains is one independent observation for each difference that was measured."""
    _, rounds = np.unique(scores.round, return_inverse=True)
    degrees = len(scores.value) - (int(rounds.max()) + 1 if len(rounds) else 0)
    if degrees < 1:
        raise InvalidResultError(
            "nothing was measured beside another in one round", found=f"{len(scores.value)} value(s)"
        )
    sizes = np.bincount(rounds)
    centred = scores.value - (np.bincount(rounds, scores.value) / sizes)[rounds]
    there = np.zeros((len(sizes), stacks))
    np.add.at(there, (rounds, scores.stack), 1.0)
    information = np.diag(there.sum(axis=0)) - there.T @ (there / sizes[:, None])
    right = np.bincount(scores.stack, centred, minlength=stacks)
    values, vectors = np.linalg.eigh(information)
    # The rest are differences that no round ever showed: zero but for rounding.
    kept = values > 1e-9 * max(1.0, float(values[-1]))
    values, vectors = values[kept], vectors[:, kept]
    target = (vectors.T @ right) / np.sqrt(values)
    left_over = max(0.0, float(centred @ centred - target @ target))
    return _Data(np.sqrt(values)[:, None] * vectors.T, target, left_over, degrees)


def _started(start: Components | None, names: list[str]) -> Floats:
    """Variances as multiples of the noise's, to begin with: of each package, then of the residual."""
    if start is None or not start.noise:
        return np.array([_PACKAGE_PRIOR[0]] * len(names) + [_RESIDUAL_PRIOR[0]])
    spreads = [*(start.packages.get(name, 2 * start.noise) for name in names), start.residual]
    return np.asarray((np.array(spreads) / start.noise) ** 2).clip(1e-6)


def _components(kernels: list[Floats], data: _Data, ratios: Floats, steps: int) -> Floats:
    """Each step sets every variance to the maximum of a bound on the likelihood, so that none is ever below zero."""
    priors = [_PACKAGE_PRIOR] * (len(kernels) - 1) + [_RESIDUAL_PRIOR]
    for _ in range(steps):
        inverse, solved, variance = _solved(kernels, data, ratios)
        before = ratios
        ratios = np.array(
            [
                np.sqrt(
                    (ratio**2 * float(solved @ kernel @ solved) / variance + weight * mode)
                    / (float(np.sum(inverse * kernel)) + weight / ratio)
                )
                for ratio, kernel, (mode, weight) in zip(ratios, kernels, priors, strict=True)
            ]
        )
        if np.abs(np.log(ratios / before)).max() < SETTLED:
            break
    return ratios


def _solved(kernels: list[Floats], data: _Data, ratios: Floats) -> tuple[Floats, Floats, float]:
    total = np.eye(len(data.target))
    for ratio, kernel in zip(ratios, kernels, strict=True):
        total += ratio * kernel
    inverse: Floats = np.asarray(np.linalg.inv(total), dtype=np.float64)
    solved = inverse @ data.target
    # Identical scores have no spread at all; the smallest number keeps the ratios defined.
    variance = max((float(data.target @ solved) + data.left_over) / data.degrees, 1e-24)
    return inverse, solved, variance


def _posterior(design: Mapping[str, Floats], data: _Data, ratios: Floats) -> Additive:
    stacks = data.rows.shape[1]
    prior = ratios[-1] * np.eye(stacks)
    for ratio, one in zip(ratios, design.values(), strict=False):
        prior += ratio * one @ one.T
    shared = prior @ data.rows.T
    inverse = np.linalg.inv(np.eye(len(data.target)) + data.rows @ shared)
    solved = inverse @ data.target
    variance = max((float(data.target @ solved) + data.left_over) / data.degrees, 1e-24)
    noise = float(np.sqrt(variance))
    spreads = noise * np.sqrt(ratios)
    return Additive(
        mean=shared @ solved,
        covariance=variance * (prior - shared @ inverse @ shared.T),
        degrees=data.degrees,
        components=Components(noise, float(spreads[-1]), dict(zip(design, map(float, spreads), strict=False))),
    )
