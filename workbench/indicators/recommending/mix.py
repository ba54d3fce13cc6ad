"""A mix: which metrics matter, and how much. The score of a stack is the weighted mean of its log ratios."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from workbench.errors import ConfigError, InputError, InvalidResultError

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mix:
    """Weights of metrics, all above 0, with a sum of 1.

    Examples
    --------
    >>> mix = Mix.read("sort=3,mat=1", ["Matmul", "Sort"])
    >>> mix.weights
    {'Sort': 0.75, 'Matmul': 0.25}
    >>> str(mix)
    '0.75 Sort + 0.25 Matmul'
    """

    weights: Mapping[str, float]

    @classmethod
    def equal(cls, metrics: Sequence[str]) -> Mix:
        """Every metric weighs the same.

        Raises
        ------
        InvalidResultError
            There is none.
        """
        if not metrics:
            raise InvalidResultError("nothing to compare stacks by", found="no metric has a value")
        return cls({metric: 1 / len(metrics) for metric in metrics})

    @classmethod
    def read(cls, text: str, metrics: Sequence[str]) -> Mix:
        """From `metric=weight,metric=weight`, in any case.

        While it stays unique, a name may be shortened to its beginning, or to a parameter: `sin` or `function=sin` for
        `Ufunc[function=sin]`.

        Raises
        ------
        ConfigError
            A name that is no metric or could be several, one given twice, or a weight that is not above 0.
        """
        weights: dict[str, float] = {}
        for part in _parts(text):
            # Names of cases hold = signs of their own: the weight stands behind the last one.
            name, equals, weight = part.rpartition("=")
            if not equals:
                raise ConfigError("a metric without a weight", where="--mix", found=part[:80], allowed="like sort=0.5")
            metric = _meant(name.strip(), metrics)
            if metric in weights:
                raise ConfigError("a metric stands twice in the mix", where="--mix", found=metric)
            weights[metric] = _weight(weight, metric)
        total = math.fsum(weights.values())
        return cls({metric: weight / total for metric, weight in weights.items()})

    def margin(self, tolerances: Mapping[str, float]) -> float:
        """The practical margin of the mix, as a share: the metrics' own, averaged as their log ratios are."""
        return math.expm1(math.fsum(weight * math.log1p(tolerances[name]) for name, weight in self.weights.items()))

    def __str__(self) -> str:
        weights = list(self.weights.values())
        if len(weights) > 1 and max(weights) - min(weights) < 1e-9:
            return f"equal weights of {', '.join(self.weights)}"
        return " + ".join(f"{weight:.3g} {name}" for name, weight in self.weights.items())


@dataclass(frozen=True)
class Scored:
    """The mix of every round: `values[i, j]` is the log score of arm j in round i, above is better, NaN where the arm
    lacks a value of the mix in that round. Levels mean nothing, differences within a row are log ratios.
    """

    rounds: tuple[int, ...]
    arms: tuple[str, ...]
    values: Floats

    def of(self, arm: str) -> Floats:
        """All rounds of one arm; all NaN for one that is not there."""
        if arm not in self.arms:
            return np.full(len(self.rounds), np.nan)
        return np.asarray(self.values[:, self.arms.index(arm)])


def scored(observations: pl.DataFrame, mix: Mix) -> Scored:
    """What is the mix of each arm in each round?

    Parameters
    ----------
    observations
        Table OBSERVATIONS of one session.
    mix
        Its metrics and weights.

    Raises
    ------
    InputError
        Several sessions: figures of two are never compared.

    Notes
    -----
    A value of zero or below has no logarithm and counts as missing, as in EFFECTS.
    """
    import polars as pl

    if (sessions := observations["session_id"].unique().sort().to_list())[1:]:
        raise InputError("figures of several sessions are never compared", found=sessions)
    table = observations.filter(pl.col("metric").is_in(list(mix.weights)) & (pl.col("value") > 0))
    rounds, arms = sorted(set(table["round"])), sorted(set(table["arm"]))
    row, column = {n: i for i, n in enumerate(rounds)}, {arm: j for j, arm in enumerate(arms)}
    totals, counts = np.zeros((len(rounds), len(arms))), np.zeros((len(rounds), len(arms)), dtype=int)
    columns = ("round", "arm", "metric", "value", "better")
    for number, arm, metric, value, better in table.select(columns).iter_rows():
        sign = -1.0 if better == "lower" else 1.0
        totals[row[number], column[arm]] += sign * mix.weights[metric] * math.log(value)
        counts[row[number], column[arm]] += 1
    values = np.where(counts == len(mix.weights), totals, np.nan)
    return Scored(tuple(rounds), tuple(arms), values)


def _parts(text: str) -> list[str]:
    """Split at commas, but not at those within the brackets of a case's parameters."""
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if sign == "," and depth <= 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [part.strip() for part in [*parts, text[begin:]]]


def _meant(name: str, metrics: Sequence[str]) -> str:
    low = name.lower()
    ways: tuple[Callable[[str], bool], ...] = (
        lambda metric: metric == name,
        lambda metric: metric.lower() == low,
        lambda metric: bool(low) and metric.lower().startswith(low),
        lambda metric: low in _parameters(metric.lower()),
    )
    found: list[str] = []
    for way in ways:
        found = found or [metric for metric in metrics if way(metric)]
    if len(found) == 1:
        return found[0]
    what = "several metrics are meant" if found else "no such metric in this session"
    raise ConfigError(what, where="--mix", found=name[:80] or "an empty name", allowed=found or list(metrics))


def _parameters(metric: str) -> set[str]:
    """The parameters in a metric's name: each value, and each as name=value."""
    inside = metric.partition("[")[2].rpartition("]")[0]
    pairs = [part.strip() for part in inside.split(",") if part.strip()]
    return {*pairs, *(pair.partition("=")[2] for pair in pairs)} - {""}


def _weight(text: str, metric: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise ConfigError(
            "not a weight", where=f"--mix, {metric}", found=text.strip()[:40], allowed="a number above 0",
            do="leave a metric out that does not matter",
        )  # fmt: skip
    return weight
