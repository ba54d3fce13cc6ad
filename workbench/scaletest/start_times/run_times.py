"""How long workloads run: learnt from those that ended and those that still run, drawn for one of a known age.

A family is what runs equally long; where too few of it have ended, those of its namespace with as many GPUs decide,
then all. What still runs counts as having run longer than its age, and what ran before it was first seen as having got
that far: without both, short jobs would be over-represented.

Source: Kaplan and Meier, Nonparametric Estimation from Incomplete Observations (1958), with delayed entry; for few
observations the posterior of lognormal and Weibull distributions on a grid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.core.errors import ConfigError
from workbench.scaletest.scenario.template_pods import GPU
from workbench.scaletest.start_times.cluster_state import ClusterState, WorkloadState

Floats = npt.NDArray[np.float64]
# Ended runs from which a family decides by itself, and from which its own distribution is used as it is.
MIN_ENDED, MIN_EMPIRICAL = 5, 12
# The newest of more are fitted.
MAX_FITTED = 500
# Ended runs beyond an age that still say how long the rest takes.
MIN_BEYOND = 5
_N_PLACES, _SPREADS = 160, np.geomspace(0.02, 3.0, 40)
# Scale of the prior of the spread of logs, a half-normal distribution.
_PRIOR_SPREAD = 1.0
ALL = "all"


@dataclass(frozen=True)
class Runs:
    """Observed runs: seconds, whether they ended, and the age at which each was first seen."""

    lasted_s: Floats
    has_ended: npt.NDArray[np.bool_]
    entered_s: Floats

    @property
    def n_ended(self) -> int:
        """Runs whose end was seen."""
        return int(self.has_ended.sum())

    def limit(self, most: int) -> Runs:
        """The last ones."""
        return Runs(self.lasted_s[-most:], self.has_ended[-most:], self.entered_s[-most:])


@dataclass(frozen=True)
class GivenRunTime:
    """A run time that the user gave: half of the runs are shorter than `median_s`, 90 % than `p90_s`."""

    median_s: float
    p90_s: float

    def draw(self, age_s: float, random: np.random.Generator) -> float:
        """Draw how much longer a run of this age lasts."""
        spread = max(1e-6, math.log(self.p90_s / self.median_s) / 1.2815515655446004)
        return FittedRunTime(math.log(self.median_s), spread, is_weibull=False).draw(age_s, random)


def parse_run_times(texts: Iterable[str]) -> dict[str, GivenRunTime]:
    """Run times by family: `FAMILY=MEDIAN`, `FAMILY=MEDIAN..P90`, with a unit of s, m, h or d; `all` for the rest.

    >>> parse_run_times(["all=2h..8h"])
    {'all': GivenRunTime(median_s=7200.0, p90_s=28800.0)}
    """
    given = {}
    for text in texts:
        family, _, value = text.rpartition("=")
        parts = value.split("..")
        try:
            seconds = [parse_seconds(part) for part in parts]
        except ValueError:
            seconds = []
        if not family or len(seconds) not in (1, 2) or seconds != sorted(seconds) or min(seconds) <= 0:
            raise ConfigError(
                "not a run time", where="--run-time", found=text[:120], allowed="FAMILY=MEDIAN..P90, such as all=2h..8h"
            )
        given[family] = GivenRunTime(seconds[0], seconds[-1])
    return given


def parse_seconds(text: str) -> float:
    """Seconds of a text such as 90s, 30m, 2h or 1d; ValueError where it is none."""
    factors = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    seconds = float(text[:-1]) * factors[text[-1:]] if text[-1:] in factors else float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


class RunTimes:
    """Run times of a cluster's workloads. One draw of the unknown distributions belongs to one simulated future."""

    def __init__(self, state: ClusterState, given: Mapping[str, GivenRunTime]) -> None:
        self._given = given
        observed: dict[str, list[tuple[float, bool, float]]] = defaultdict(list)
        for workload in state.workloads:
            if (run := _observe_run(workload, state.span_s)) is not None:
                for level in _list_levels(workload):
                    observed[level].append(run)
        self._runs = {
            level: Runs(
                np.array([run[0] for run in runs]),
                np.array([run[1] for run in runs]),
                np.array([run[2] for run in runs]),
            )
            for level, runs in observed.items()
        }
        self._fits: dict[str, RunTimeFit] = {}

    def find_source(self, workload: WorkloadState) -> str | None:
        """The level whose runs decide about a workload, or the user's; null where nothing is known."""
        if workload.family in self._given:
            return workload.family
        for level in _list_levels(workload):
            if level in self._runs and self._runs[level].n_ended >= MIN_ENDED:
                return level
        return ALL if ALL in self._given else None

    def draw_future(self, random: np.random.Generator) -> FutureRunTimes:
        """The run times of one simulated future."""
        return FutureRunTimes(self, random)

    def draw_distribution(self, source: str, random: np.random.Generator) -> Distribution:
        """One distribution that the observed runs of a level may come from."""
        if source in self._given:
            return self._given[source]
        runs = self._runs[source]
        if source not in self._fits:
            self._fits[source] = fit_run_times(runs.limit(MAX_FITTED))
        fitted = self._fits[source].draw(random)
        if runs.n_ended < MIN_EMPIRICAL:
            return fitted
        # Other runs might have been observed: each has a random weight (Bayesian bootstrap).
        return _Empirical(*estimate_survival(runs, random.standard_exponential(len(runs.lasted_s))), fitted)


@dataclass(frozen=True)
class FittedRunTime:
    """A lognormal or Weibull distribution, by the place and spread of logs (of Weibull: scale, one over the shape)."""

    place: float
    spread: float
    is_weibull: bool

    def draw(self, age_s: float, random: np.random.Generator) -> float:
        """Draw how much longer a run of this age lasts: of the distribution's part beyond that."""
        from scipy.special import log_ndtr, ndtri_exp

        # The share that outlives the age, times a uniform share; by logs, since far out the shares themselves are 0.
        log_share = math.log(1 - random.random())
        if age_s > 0:
            z = (math.log(age_s) - self.place) / self.spread
            log_share += -math.exp(min(z, 700.0)) if self.is_weibull else float(log_ndtr(-z))
        log_share = min(log_share, -1e-300)
        z = math.log(-log_share) if self.is_weibull else -float(ndtri_exp(log_share))
        return float(max(0.0, math.exp(min(self.place + self.spread * z, 700.0)) - age_s))


@dataclass(frozen=True)
class RunTimeFit:
    """Distributions on a grid, lognormal ones first, and their cumulated posterior weights."""

    cumulated: Floats
    places: Floats
    spreads: Floats

    def draw(self, random: np.random.Generator) -> FittedRunTime:
        """One of them."""
        at = min(int(np.searchsorted(self.cumulated, random.random())), len(self.cumulated) - 1)
        number = at % len(self.places)
        return FittedRunTime(float(self.places[number]), float(self.spreads[number]), is_weibull=at >= len(self.places))


def fit_run_times(runs: Runs) -> RunTimeFit:
    """Which distributions observed runs may come from; those that have not ended, or were seen late, count as such."""
    logs = np.log(runs.lasted_s)
    # What still runs may last far longer than anything that ended.
    highest = float(logs.max()) + 0.1 + 3 * (1 - runs.n_ended / len(logs))
    grid = np.meshgrid(np.linspace(float(logs.min()) - 0.1, highest, _N_PLACES), _SPREADS)
    places, spreads = (part.ravel() for part in grid)
    prior = -0.5 * (spreads / _PRIOR_SPREAD) ** 2
    total = np.concatenate([prior + _weigh(runs, logs, places, spreads, kind) for kind in (_LOGNORMAL, _WEIBULL)])
    weights = np.exp(total - total.max())
    return RunTimeFit(np.cumsum(weights / weights.sum()), places, spreads)


def _weigh(runs: Runs, logs: Floats, places: Floats, spreads: Floats, kind: _Kind) -> Floats:
    """Log likelihood of observed runs under each distribution."""
    total = np.zeros_like(places)
    for log, has_ended, entered_s in zip(logs, runs.has_ended, runs.entered_s, strict=True):
        z = (log - places) / spreads
        total += kind.log_density(z) - np.log(spreads) if has_ended else kind.log_survival(z)
        if entered_s > 0:
            total -= kind.log_survival((math.log(entered_s) - places) / spreads)
    return total


@dataclass(frozen=True)
class _Kind:
    """Log density and log survival of standardized logs."""

    log_density: Callable[[Floats], Floats]
    log_survival: Callable[[Floats], Floats]


def _log_normal_survival(z: Floats) -> Floats:
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(-z))


_LOGNORMAL = _Kind(lambda z: -0.5 * z**2 - 0.5 * math.log(2 * math.pi), _log_normal_survival)
_WEIBULL = _Kind(lambda z: z - np.exp(np.minimum(z, 700.0)), lambda z: -np.exp(np.minimum(z, 700.0)))


def estimate_survival(runs: Runs, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Durations at which runs ended, and the share that runs longer than each (Kaplan and Meier, with delayed entry).

    Where fewer than five runs could have ended, an end says nothing: one that was seen late and ended at once would
    leave nobody. `weights`: Of each run; 1 without.

    >>> runs = Runs(np.arange(1.0, 9.0), np.arange(8) != 2, np.zeros(8))
    >>> [part.round(3).tolist() for part in estimate_survival(runs)]
    [[1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0], [0.875, 0.75, 0.6, 0.6, 0.6, 0.6, 0.6]]
    """
    ones = np.ones(len(runs.lasted_s))
    weighed = ones if weights is None else weights
    ends, tied = np.unique(runs.lasted_s[runs.has_ended], return_inverse=True)
    ended = np.bincount(tied, weighed[runs.has_ended], len(ends))
    n_at_risk, at_risk = _weigh_at_risk(runs, ends, ones), _weigh_at_risk(runs, ends, weighed)
    hazards = np.where(n_at_risk >= MIN_BEYOND, ended / np.maximum(at_risk, ended), 0.0)
    return ends, np.cumprod(1 - hazards)


def _weigh_at_risk(runs: Runs, ends: Floats, weights: Floats) -> Floats:
    """Weight of the runs that had entered before each end and had not ended yet."""
    by_entry, by_end = np.argsort(runs.entered_s), np.argsort(runs.lasted_s)
    entered = np.concatenate([[0.0], np.cumsum(weights[by_entry])])
    gone = np.concatenate([[0.0], np.cumsum(weights[by_end])])
    came = entered[np.searchsorted(runs.entered_s[by_entry], ends, "left")]
    return np.asarray(came - gone[np.searchsorted(runs.lasted_s[by_end], ends, "left")])


@dataclass(frozen=True)
class _Empirical:
    """Ended durations and the share that runs longer; `fitted` beyond what was seen."""

    ends_s: Floats
    survival: Floats
    fitted: FittedRunTime

    def draw(self, age_s: float, random: np.random.Generator) -> float:
        first = int(np.searchsorted(self.ends_s, age_s, "right"))
        if len(self.ends_s) - first < MIN_BEYOND:
            return self.fitted.draw(age_s, random)
        beyond = self.survival[first - 1] if first else 1.0
        at = int(np.searchsorted(-self.survival, -beyond * random.random(), "left"))
        if at < len(self.ends_s):
            return float(self.ends_s[at] - age_s)
        # Beyond the last end that says something.
        seen_s = float(max(age_s, self.ends_s[int(np.argmin(self.survival))]))
        return seen_s - age_s + self.fitted.draw(seen_s, random)


Distribution = GivenRunTime | FittedRunTime | _Empirical


class FutureRunTimes:
    """Run times of one future: what is not known of a distribution is drawn once for all of its workloads."""

    def __init__(self, run_times: RunTimes, random: np.random.Generator) -> None:
        self._run_times, self._random = run_times, random
        self._distributions: dict[str, Distribution] = {}

    def draw_rest(self, workload: WorkloadState, age_s: float = 0.0) -> float:
        """How much longer a workload of this age runs; infinite for a service, and where nothing is known."""
        limit_s = math.inf if workload.limit_s is None else max(0.0, workload.limit_s - age_s)
        source = self._run_times.find_source(workload)
        if workload.is_endless or source is None:
            return limit_s
        if source not in self._distributions:
            self._distributions[source] = self._run_times.draw_distribution(source, self._random)
        return min(limit_s, self._distributions[source].draw(age_s, self._random))


def _list_levels(workload: WorkloadState) -> tuple[str, str, str]:
    namespace = workload.family.partition("/")[0]
    gpus = sum(pod.requests.get(GPU, 0.0) for pod in workload.pods)
    return workload.family, f"{namespace}, {gpus:g} GPUs", ALL


def _observe_run(workload: WorkloadState, span_s: float) -> tuple[float, bool, float] | None:
    """Seconds that a workload ran, whether it has ended, and its age when first seen; null for one that waits."""
    if workload.started_s is None or workload.is_endless:
        return None
    ended_s = workload.ended_s
    lasted_s = (0.0 if ended_s is None else ended_s) - workload.started_s
    # A look at one moment sees what ran then, and of what has ended that which is kept.
    seen_s = -span_s if span_s or ended_s is None else workload.started_s
    return max(lasted_s, 0.5), ended_s is not None, max(0.0, min(seen_s - workload.started_s, lasted_s))
