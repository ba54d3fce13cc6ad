"""How far a prediction may be off: as measured services were, or as a measured sweep of the same model says."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.errors import InputError
from workbench.sizing.estimation.step_points import PointLimits, assess_steps, select_kept_requests
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_step
from workbench.sizing.tables import ANCHOR_LEVELS

if TYPE_CHECKING:
    import polars as pl

    from workbench.sizing.config import SweepConfig
    from workbench.sizing.prediction.aisimulate import Deployment, Predictor

PUBLISHED = Path(__file__).with_name("published_errors.json")
Z_90 = 1.6448536269514722
MAX_QUEUED_FACTOR = 3.0
"""Growth of the time to the first token, over the lowest level, from which on it is queueing, not prefill."""
MIN_LEVELS = 2
MIN_LEVELS_FOR_SCATTER = 3
MIN_HALF_WIDTH = 0.02
"""No factor is known better than within 2 %: steps have noise of their own. Chosen, not derived."""
MAX_UNUSUAL_FACTOR = 2.0
"""How far beyond the interval of measured services a factor may lie; chosen, not derived."""
N_ROUNDS = 5
"""Rounds of the fit: each predicts all levels with the factors so far, and multiplies them by what is left."""


@dataclass(frozen=True)
class FactorRange:
    """Measured over predicted time: the value to expect, and the ends of its 90 % interval."""

    value: float = 1.0
    low: float = 1.0
    high: float = 1.0

    def widen(self, log_spread: float) -> FactorRange:
        """With another, independent error of this standard deviation, in logarithms."""
        low = math.hypot(math.log(self.value / self.low), Z_90 * log_spread)
        high = math.hypot(math.log(self.high / self.value), Z_90 * log_spread)
        return FactorRange(self.value, self.value * math.exp(-low), self.value * math.exp(high))

    def at(self, end: float) -> float:
        """The value at a part of the way to an end: 1 is the upper one, -1 the lower one."""
        edge = self.high if end > 0 else self.low
        return self.value * math.pow(edge / self.value, abs(end))


@dataclass(frozen=True)
class TimeErrors:
    """Factors of prefill and decode, and in words what they rest on."""

    prefill: FactorRange
    decode: FactorRange
    basis: str

    @property
    def expected(self) -> TimeFactors:
        """The factors to expect."""
        return TimeFactors(self.prefill.value, self.decode.value)

    def around_one(self) -> TimeErrors:
        """The same errors around the predicted times as they are: the interval holds the usual bias, too."""
        prefill, decode = (
            replace(factor, value=1.0, low=min(factor.low, 1.0), high=max(factor.high, 1.0))
            for factor in (self.prefill, self.decode)
        )
        return TimeErrors(prefill, decode, self.basis)

    def at_end(self, end: float, prefill_share: float) -> TimeFactors:
        """The likeliest factors at an end of the joint 90 % interval: 1 is the slow one, -1 the fast one.

        `prefill_share`: Share of the prefill in the time that the goal is on. Where both errors are independent and
        lognormal, these are the factors of the design point (first-order reliability method; Hasofer and Lind, 1974).
        """
        spreads = [math.log(factor.high / factor.low) for factor in (self.prefill, self.decode)]
        pulls = [prefill_share * spreads[0], (1 - prefill_share) * spreads[1]]
        length = math.hypot(*pulls) or 1.0
        return TimeFactors(self.prefill.at(end * pulls[0] / length), self.decode.at(end * pulls[1] / length))


@functools.cache
def _read_published() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return document


def load_published_errors(backend: str) -> TimeErrors:
    """Factors of the services that AISimulate's makers measured on GPUs, with this server."""
    found = _read_published()["measured_over_predicted"][backend]
    prefill, decode = (FactorRange(*(found[name][place] for place in (1, 0, 2))) for name in ("prefill", "decode"))
    basis = (
        f"{found['n']} measured services on {backend}: prefill {prefill.value:.2g} times the predicted time "
        f"({prefill.low:.2g} to {prefill.high:.2g} in 90 %), decode {decode.value:.2g} times "
        f"({decode.low:.2g} to {decode.high:.2g})"
    )
    return TimeErrors(prefill, decode, basis)


@dataclass(frozen=True)
class Anchor:
    """What a measured sweep says of the predictions for its model.

    `levels`: Table ANCHOR_LEVELS: measured and predicted times by level, as predicted, and with the factors.
    """

    deployment: Deployment
    architecture: int
    errors: TimeErrors
    levels: pl.DataFrame

    @property
    def objections(self) -> list[str]:
        """Why the sweep says nothing of the GPU: its times are far from those of any measured service."""
        published, told = load_published_errors(self.deployment.backend), []
        for name in ("prefill", "decode"):
            found, usual = getattr(self.errors, name).value, getattr(published, name)
            if not usual.low / MAX_UNUSUAL_FACTOR <= found <= usual.high * MAX_UNUSUAL_FACTOR:
                told.append(
                    f"the anchor's {name} takes {found:.3g} times the predicted time, and measured services on "
                    f"{self.deployment.backend} took {usual.low:.2g} to {usual.high:.2g} times: something else than "
                    f"this GPU and server holds it back, or it is another model"
                )
        return told

    def carry_to(self, gpu: str, architecture: int) -> TimeErrors:
        """The errors on a GPU type, wider where it is another one than that of the sweep."""
        spreads = _read_published()["log_spread"]
        if gpu == self.deployment.gpu:
            return self.errors
        kind = "same_architecture" if architecture == self.architecture else "other_architecture"
        relation = "of the same" if architecture == self.architecture else "of another"
        return replace(
            self.errors,
            prefill=self.errors.prefill.widen(spreads["prefill"][kind]),
            decode=self.errors.decode.widen(spreads["decode"][kind]),
            basis=f"{self.errors.basis}, carried to a GPU type {relation} architecture",
        )


def fit_anchor(
    predictor: Predictor,
    deployment: Deployment,
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    config: SweepConfig,
) -> Anchor:
    """Fit the factors with which AISimulate predicts the times that a sweep measured.

    `deployment`: What served it; its GPUs are those of a replica, of which the sweep had `steps.gpus` / `tensor`.
    `requests`, `steps`, `config`: Tables and settings of the sweep; of users in a closed loop.

    Each round predicts all levels with the factors so far, with the lengths that were measured, and multiplies them by
    the geometric mean of what is left: queues and mixed steps are then those of the corrected service. Levels at which
    the first token waits in a queue tell of decode alone. The intervals are those of a further level by the scatter of
    these, or by that of measured services where there are fewer than three.

    Raises
    ------
    InputError
        Open loops, too few levels that count, or requests without token counts or without first tokens.
    """
    import polars as pl

    points, _ = assess_steps(requests, steps, limits=PointLimits.from_config(config), qs=[0.95])
    usable = points.filter(points["verdict"].is_in(["valid", "few samples"]) & (points["load_unit"] == "users"))
    levels = [_measure_level(requests, row) for row in usable.sort("load").iter_rows(named=True)]
    if len(levels) < MIN_LEVELS:
        reasons = ", ".join(f"{row['load']:g}: {row['verdict']}" for row in points.iter_rows(named=True))
        raise InputError(
            "too few levels of users that count", where="--anchor", found=reasons or "none", allowed=f"{MIN_LEVELS}"
        )
    fastest_s = min(level["ttft_s"] for level in levels)
    rows: list[dict[str, Any]] = []
    factors = TimeFactors()
    for place in range(N_ROUNDS + 1):
        predicted = [_predict_level(predictor, deployment, config, level, factors) for level in levels]
        left = {
            name: [math.log(level[name] / found[name]) for level, found in zip(levels, predicted, strict=True)]
            for name in ("ttft_s", "itl_s")
        }
        is_prefill = [level["ttft_s"] <= MAX_QUEUED_FACTOR * fastest_s for level in levels]
        prefill_left = [value for value, counts in zip(left["ttft_s"], is_prefill, strict=True) if counts]
        if place == 0:
            rows = [
                {"load": level["load"], "n": level["n"]}
                | {f"measured_{name}": level[name] for name in left}
                | {f"predicted_{name}": found[name] for name in left}
                | {"is_prefill": counts}
                for level, found, counts in zip(levels, predicted, is_prefill, strict=True)
            ]
        if place < N_ROUNDS:
            factors = TimeFactors(
                factors.prefill * math.exp(statistics.fmean(prefill_left)),
                factors.decode * math.exp(statistics.fmean(left["itl_s"])),
            )
    for row, found in zip(rows, predicted, strict=True):
        row |= {f"corrected_{name}": found[name] for name in left}
    spreads = _read_published()["log_spread"]
    ranges = []
    for name, value, values in (
        ("prefill", factors.prefill, prefill_left),
        ("decode", factors.decode, left["itl_s"]),
    ):
        half = _half_width(values, spreads[name]["same_gpu"])
        ranges.append(FactorRange(value, value * math.exp(-half), value * math.exp(half)))
    basis = (
        f"{len(levels)} measured levels on {deployment.name}: prefill {factors.prefill:.2g} times the predicted time, "
        f"decode {factors.decode:.2g} times"
    )
    return Anchor(
        deployment,
        predictor.find_architecture(deployment.gpu),
        TimeErrors(ranges[0], ranges[1], basis),
        ANCHOR_LEVELS.frame(pl.DataFrame(rows).to_dicts()),
    )


def _half_width(left: Sequence[float], log_spread: float) -> float:
    """Half of the 90 % interval of a further level, in logarithms: by the levels' scatter, a t interval.

    `log_spread`: Standard deviation of measured services, which stands for the scatter of fewer than three levels.
    """
    from scipy.special import stdtrit

    n = len(left)
    if n < MIN_LEVELS_FOR_SCATTER:
        return Z_90 * log_spread
    return max(MIN_HALF_WIDTH, float(stdtrit(n - 1, 0.95)) * statistics.stdev(left) * math.sqrt(1 + 1 / n))


def _measure_level(requests: pl.DataFrame, point: dict[str, Any]) -> dict[str, Any]:
    """Times and lengths of a level's kept successes. `point`: Row of table POINTS."""
    kept = select_kept_requests(requests.filter(requests["step"] == point["step"]), int(point["load"]))
    kept = kept.filter(kept["outcome"] == "ok")
    known = kept.select("ttft_s", "itl_s", "input_tokens", "output_tokens").drop_nulls()
    if known.height < kept.height / 2 or not known.height:
        missing = [name for name in known.columns if kept[name].null_count() > kept.height / 2]
        raise InputError(
            "the sweep does not tell what a prediction is compared with",
            where=f"--anchor, {point['load']:g} users",
            found=f"no {', '.join(missing)} in most requests",
            do="measure with streams and token counts (--protocol openai)",
        )
    return {
        "load": point["load"],
        "gpus": point["gpus"],
        "n": known.height,
        "ttft_s": float(str(known["ttft_s"].mean())),
        "itl_s": float(str(known["itl_s"].mean())),
        "lengths": known.select("input_tokens", "output_tokens").rows(),
    }


def _predict_level(
    predictor: Predictor,
    deployment: Deployment,
    config: SweepConfig,
    level: dict[str, Any],
    factors: TimeFactors,
) -> dict[str, float]:
    """Mean times of a measured level by prediction, at the share of one replica and with the lengths of the level."""
    replicas = max(1, level["gpus"] // deployment.tensor)
    users = max(1, round(level["load"] / replicas))
    table, _ = predict_step(predictor, deployment, config, users, factors, lengths=level["lengths"])
    kept = select_kept_requests(table, users)
    return {name: float(np.nanmean(kept[name].drop_nulls().to_numpy())) for name in ("ttft_s", "itl_s")}
