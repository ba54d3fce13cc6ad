"""Ratios of stacks, from their own rounds or from an additive model of package versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from workbench.core.errors import InputError, InvalidResultError
from workbench.indicators.recommendation import metric_mix
from workbench.indicators.recommendation.metric_mix import Floats, MixScores
from workbench.stats import Interval

Ints = npt.NDArray[np.intp]
MAX_STACKS = 2000
MAX_STEPS = 60
SETTLED = 1e-3

# Weak priors: variance as a multiple of the noise variance, and its weight in observations. Versions differ by more
# than the noise of a run, combinations by less. The priors only stabilise the first few runs; they were chosen on 100
# simulated worlds and evaluated on others by `bench/bench_indicators_world.py`.
_PACKAGE_PRIOR = (2.0, 1.0)
_RESIDUAL_PRIOR = (0.25, 2.0)


@dataclass(frozen=True)
class Scores:
    """Measured log scores, one per stack and round.

    `stack`, `round`: Index of the stack in the list of stacks, and number of the round.
    `value`: Log scores, higher is better; only differences within a round are used.
    """

    stack: Ints
    round: Ints
    value: Floats

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, int, float]]) -> Scores:
        """Build from rows of stack, round and log score."""
        table = list(rows)
        value = np.array([row[2] for row in table], dtype=np.float64)
        if not np.isfinite(value).all():
            raise InputError("a score that is not finite", where=f"row {int(np.argmin(np.isfinite(value)))}")
        return cls(
            np.array([row[0] for row in table], dtype=np.intp),
            np.array([row[1] for row in table], dtype=np.intp),
            value,
        )


@dataclass(frozen=True)
class Components:
    """Estimated standard deviations of log scores.

    Attributes
    ----------
    noise
        Of a run within its round.
    residual
        Of a combination of versions, beyond the sum of their effects.
    packages
        Of the versions of each package that varies.
    """

    noise: float
    residual: float
    packages: Mapping[str, float]


@dataclass(frozen=True)
class AdditiveModel:
    """Posterior of the log scores of all stacks, measured or not.

    `mean`: Log score of each stack, (stacks,); only differences between stacks have a meaning.
    `covariance`: Of these, (stacks, stacks). `degrees`: Degrees of freedom of the noise.
    """

    mean: Floats
    covariance: Floats
    degrees: int
    components: Components

    def draw_scores(self, count: int, random: np.random.Generator) -> Floats:
        """Joint draws of all log scores, (count, stacks), from a t distribution since the noise is estimated."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.clip(values, 0, None))
        normal = random.standard_normal((count, len(self.mean))) @ root.T
        scale = np.sqrt(random.chisquare(self.degrees, count) / self.degrees)
        return np.asarray(self.mean + normal / scale[:, None])

    def difference_error(self, stack: int, baseline: int) -> float:
        """Standard error of the difference between two stacks."""
        c = self.covariance
        return float(np.sqrt(max(0.0, c[stack, stack] + c[baseline, baseline] - 2 * c[stack, baseline])))


def fit_additive_model(
    packages: Sequence[Mapping[str, str]], scores: Scores, *, start: Components | None = None, steps: int = MAX_STEPS
) -> AdditiveModel:
    """Estimate the log score of every stack from measured stacks that share versions with it.

    `start`: Components of an earlier fit to start from, if observations are added one by one.

    The components maximise the restricted likelihood with a weak prior, by the minorise-maximise algorithm of Zhou,
    Hu, Zhou and Lange, MM algorithms for variance components models (2019). Predictions are those of Henderson, Best
    linear unbiased estimation and prediction (1975). Interactions of packages are known only for measured stacks, and
    nothing is known for other hardware. The components are treated as known, so 90 % intervals of unmeasured stacks
    cover 86 % (simulated, 60 runs of 120 stacks), and 80 % with a version that was never measured, which is why such a
    stack is at most proposed.

    `packages`: Package to version, of every stack; `scores` has indices into it.
    """
    if len(packages) > MAX_STACKS:
        raise InputError("too many stacks to predict", found=len(packages), allowed=f"up to {MAX_STACKS}")
    design = _build_design(packages)
    # Remove the rounds' effects; what remains is one independent observation per measured contrast.
    stacks = len(packages)
    _, rounds = np.unique(scores.round, return_inverse=True)
    degrees = len(scores.value) - (int(rounds.max()) + 1 if len(rounds) else 0)
    if degrees < 1:
        raise InvalidResultError("no round has values of two stacks", found=f"{len(scores.value)} value(s)")
    sizes = np.bincount(rounds)
    centred = scores.value - (np.bincount(rounds, scores.value) / sizes)[rounds]
    there = np.zeros((len(sizes), stacks))
    np.add.at(there, (rounds, scores.stack), 1.0)
    information = np.diag(there.sum(axis=0)) - there.T @ (there / sizes[:, None])
    right = np.bincount(scores.stack, centred, minlength=stacks)
    values, vectors = np.linalg.eigh(information)
    # The others are contrasts that no round measured: zero up to rounding.
    mask = values > 1e-9 * max(1.0, float(values[-1]))
    values, vectors = values[mask], vectors[:, mask]
    target = (vectors.T @ right) / np.sqrt(values)
    left_over = max(0.0, float(centred @ centred - target @ target))
    data = _ReducedScores(np.sqrt(values)[:, None] * vectors.T, target, left_over, degrees)
    kernels = [data.rows @ (matrix @ (matrix.T @ data.rows.T)) for matrix in design.values()]
    residual = data.rows @ data.rows.T
    ratios = _estimate_components([*kernels, residual], data, _build_start_ratios(start, list(design)), steps)
    return _build_posterior(design, data, ratios)


@dataclass(frozen=True)
class _ReducedScores:
    """Observations reduced to independent contrasts of stacks: `target` = `rows` @ (log scores of the stacks) + noise.

    `rows`: (contrasts, stacks). `target`: (contrasts,). `left_over`: Sum of squares that no contrast explains.
    `degrees`: Degrees of freedom of the noise.
    """

    rows: Floats
    target: Floats
    left_over: float
    degrees: int


def _build_design(packages: Sequence[Mapping[str, str]]) -> dict[str, Floats]:
    """Indicator matrix (stacks, versions) by package, for packages that vary; a missing package counts as a version."""
    design = {}
    for name in sorted({name for stack in packages for name in stack}):
        versions = [stack.get(name, "") for stack in packages]
        if len(kinds := sorted(set(versions))) > 1:
            design[name] = np.array([[float(version == kind) for kind in kinds] for version in versions])
    return design


def _build_start_ratios(start: Components | None, names: list[str]) -> Floats:
    """Initial variances of each package and of the residual, as multiples of the noise variance."""
    if start is None or not start.noise:
        return np.array([_PACKAGE_PRIOR[0]] * len(names) + [_RESIDUAL_PRIOR[0]])
    spreads = [*(start.packages.get(name, 2 * start.noise) for name in names), start.residual]
    return np.asarray((np.array(spreads) / start.noise) ** 2).clip(1e-6)


def _estimate_components(kernels: list[Floats], data: _ReducedScores, ratios: Floats, steps: int) -> Floats:
    """Iterate the MM steps; each maximises a lower bound of the likelihood, so variances stay positive.

    `kernels`: Covariance of the contrasts by each package, then by the residual, (contrasts, contrasts) each. `ratios`:
    Where to start.

    Returns: Variance of each package and of the residual as a multiple of the noise's, (packages + 1,).
    """
    priors = [_PACKAGE_PRIOR] * (len(kernels) - 1) + [_RESIDUAL_PRIOR]
    for _ in range(steps):
        # Covariance of the contrasts, in units of the noise variance, solved for the observations.
        total = np.eye(len(data.target))
        for ratio, kernel in zip(ratios, kernels, strict=True):
            total += ratio * kernel
        inverse: Floats = np.asarray(np.linalg.inv(total), dtype=np.float64)
        solved = inverse @ data.target
        # Identical scores have no variance; a tiny one keeps the ratios defined.
        variance = max((float(data.target @ solved) + data.left_over) / data.degrees, 1e-24)
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


def _build_posterior(design: Mapping[str, Floats], data: _ReducedScores, ratios: Floats) -> AdditiveModel:
    """Posterior of all stacks, given the variances of packages and residual as multiples of the noise's.

    `design`: (stacks, versions) by package. `ratios`: (packages + 1,), the residual's last.
    """
    stacks = data.rows.shape[1]
    prior = ratios[-1] * np.eye(stacks)
    for ratio, matrix in zip(ratios, design.values(), strict=False):
        prior += ratio * matrix @ matrix.T
    shared = prior @ data.rows.T
    inverse = np.linalg.inv(np.eye(len(data.target)) + data.rows @ shared)
    solved = inverse @ data.target
    variance = max((float(data.target @ solved) + data.left_over) / data.degrees, 1e-24)
    noise = float(np.sqrt(variance))
    spreads = noise * np.sqrt(ratios)
    return AdditiveModel(
        mean=shared @ solved,
        covariance=variance * (prior - shared @ inverse @ shared.T),
        degrees=data.degrees,
        components=Components(noise, float(spreads[-1]), dict(zip(design, map(float, spreads), strict=False))),
    )


class RatioEstimates(Protocol):
    """Ratios and draws of stacks, by place: the arm, or the key of a stack that was not measured."""

    def estimate_ratio(self, stack: str, baseline: str) -> Interval:
        """Ratio of a stack to another one."""

    def draw_ratios(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """Joint draws of the log ratios to the baseline, (draws, stacks)."""


@dataclass(frozen=True)
class PairedEstimates:
    """Estimates of measured stacks from their own rounds."""

    scores: MixScores
    arms: frozenset[str]
    level: float
    sequence: bool = False

    def estimate_ratio(self, stack: str, baseline: str) -> Interval:
        """Estimate the ratio by the t interval of the log ratios within rounds."""
        if not {stack, baseline} <= self.arms:
            return Interval(None, None, None, self.level, 0, "paired log ratio, t", reason="not measured")
        return metric_mix.estimate_mix_ratio(self.scores, stack, baseline, level=self.level, sequence=self.sequence)

    def draw_ratios(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """Draw log ratios, (draws, stacks), from the multivariate t posterior of the rounds."""
        return metric_mix.draw_posterior(self.scores, stacks, baseline, seed=seed)


@dataclass(frozen=True)
class ModelEstimates:
    """Estimates of all stacks from the additive model; `places` are the stacks' indices in it."""

    model: AdditiveModel
    places: Mapping[str, int]
    level: float

    def estimate_ratio(self, stack: str, baseline: str) -> Interval:
        """Estimate the ratio by the posterior of the difference."""
        place, other = self.places[stack], self.places[baseline]
        difference = float(self.model.mean[place] - self.model.mean[other])
        error = self.model.difference_error(place, other)
        return metric_mix.predict_ratio_interval(difference, error, self.model.degrees, level=self.level)

    def draw_ratios(self, stacks: Sequence[str], baseline: str, *, seed: int) -> Floats:
        """Draw log ratios, (draws, stacks), from the joint posterior."""
        draws = self.model.draw_scores(metric_mix.DRAWS, np.random.default_rng(seed))
        base = draws[:, self.places[baseline]]
        return np.asarray(draws[:, [self.places[stack] for stack in stacks]] - base[:, None])


def fit_model_estimates(
    scores: MixScores, arms: Mapping[str, str], packages: Mapping[str, Mapping[str, str]], *, level: float
) -> ModelEstimates:
    """Fit the additive model to the rounds of some arms.

    `arms`: Arm to the place of its stack, for arms with right answers; the control belongs to the baseline's stack.
    `packages`: Place of every stack, measured or not, to its packages and their versions.
    """
    places = {name: position for position, name in enumerate(packages)}
    rows = [
        (places[arms[arm]], number, float(value))
        for arm in scores.arms
        if arm in arms
        for number, value in zip(scores.rounds, scores.arm_scores(arm), strict=True)
        if np.isfinite(value)
    ]
    return ModelEstimates(fit_additive_model(list(packages.values()), Scores.from_rows(rows)), places, level)
