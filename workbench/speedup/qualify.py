"""Which applications gain, by how much and how surely? Measured logs and a factor model in, a ranking out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench import stats
from workbench.errors import ConfigError
from workbench.formats import number
from workbench.speedup.measured import Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.prediction import by_term, paces, predict
from workbench.tables import Column, Table

# A log whose shared times are this far from what the prices say, either way, gets a word of caution.
FAR_PACE = 2.0
RECOMMENDED, TRIAL, LITTLE, SLOWER, NOT_JUDGED = "recommended", "worth a trial", "little gain", "slower", "not judged"


def _seconds(name: str, meaning: str) -> Column:
    return Column(name, "float", meaning, "s", nullable=True)


def _ratio(name: str, meaning: str) -> Column:
    return Column(name, "float", meaning, "times", nullable=True)


def _money(name: str, meaning: str) -> Column:
    return Column(name, "float", meaning, "currency", nullable=True)


APPLICATIONS = Table(
    "applications",
    "What each application would take on the candidate; most time saved first.",
    ("log",),
    (
        Column("log", "str", "Event log."),
        Column("app_id", "str", "Application.", nullable=True),
        Column("app_name", "str", "Its name.", nullable=True),
        Column("recommendation", "str", "recommended, worth a trial, little gain, slower, or not judged."),
        Column("reason", "str", "Why it is not judged, what limits the gain, or what makes it unsure.", nullable=True),
        _seconds("baseline_s", "What it took, from start to end."),
        _seconds("predicted_s", "What it would take."),
        _seconds("predicted_low_s", "Low end of the prediction interval."),
        _seconds("predicted_high_s", "High end."),
        _ratio("ratio", "Baseline over predicted."),
        _ratio("ratio_low", "Low end."),
        _ratio("ratio_high", "High end."),
        _seconds("saved_s", "Baseline minus predicted."),
        _seconds("saved_low_s", "Low end."),
        _seconds("saved_high_s", "High end."),
        _seconds("sql_s", "Of the baseline, with a query running."),
        _seconds("outside_sql_s", "Of the baseline, with jobs outside SQL alone at work (RDDs); factor 1."),
        _seconds("streaming_s", "Of the baseline, in streaming batches; factor 1."),
        Column(
            "unsupported_share", "float", "Of the queries' time, in operators left on the CPU.", "share", nullable=True
        ),
        Column(
            "unknown_share", "float", "Of the queries' time, in operators without a factor.", "share", nullable=True
        ),
        Column("unsupported_operators", "list[str]", "Which, most time first."),
        Column("n_queries", "int", "SQL executions that count."),
        _money("baseline_cost", "At the price of the baseline; null without prices."),
        _money("predicted_cost", "At the price of the candidate."),
        _money("saved_cost", "Baseline minus predicted."),
        _money("saved_cost_low", "Low end."),
        _money("saved_cost_high", "High end."),
    ),
)
OPERATORS_AT_STAKE = Table(
    "operators_at_stake",
    "Operators that the candidate leaves on the CPU or that have no factor, over all applications.",
    ("operator",),
    (
        Column("operator", "str", "Operator."),
        Column("kind", "str", "unsupported or unknown."),
        Column("n_applications", "int", "Applications with it."),
        Column("n_queries", "int", "Queries with it."),
        Column("baseline_s", "float", "Time that it took.", "s"),
    ),
)


@dataclass(frozen=True)
class Terms:
    """What a recommendation asks for, and what time costs (per hour; null leaves cost out)."""

    least_ratio: float = 1.3
    baseline_price_per_h: float | None = None
    candidate_price_per_h: float | None = None
    level: float = stats.LEVEL

    def __post_init__(self) -> None:
        if not (np.isfinite(self.least_ratio) and self.least_ratio >= 1):
            raise ConfigError("not a least ratio", where="--least-ratio", found=self.least_ratio, allowed="1 or more")
        prices = (self.baseline_price_per_h, self.candidate_price_per_h)
        if (prices[0] is None) != (prices[1] is None):
            raise ConfigError("one price is not enough", do="give both --price-cpu and --price-accel")
        if any(price is not None and not (np.isfinite(price) and price >= 0) for price in prices):
            raise ConfigError(
                "not a price per hour", where="--price-cpu, --price-accel", found=prices, allowed="0 or more"
            )


@dataclass(frozen=True)
class Qualified:
    """Tables `applications`, `predictions` (by query) and `operators_at_stake`."""

    applications: pl.DataFrame
    predictions: pl.DataFrame
    operators_at_stake: pl.DataFrame

    @property
    def answer(self) -> str:
        """The result in one sentence."""
        judged = self.applications.filter(pl.col("recommendation") != NOT_JUDGED)
        if not judged.height:
            return f"None of {self.applications.height} application(s) could be judged."
        counts = {name: int((judged["recommendation"] == name).sum()) for name in (RECOMMENDED, TRIAL, LITTLE, SLOWER)}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        base, predicted = float(judged["baseline_s"].sum()), float(judged["predicted_s"].sum())
        left = self.applications.height - judged.height
        rest = f"; {left} could not be judged" if left else ""
        return (
            f"Of {judged.height} application(s): {told}; {base:,.1f} s in all would take {predicted:,.1f} s,"
            f" {base / predicted:.2f} times as fast{rest}."
        )


def qualify(
    model: FactorModel,
    applications: pl.DataFrame,
    measured: Measured,
    terms: Terms | None = None,
    *,
    overrides: Mapping[str, float] | None = None,
) -> Qualified:
    """What would each application take on the candidate, and is it worth moving?

    Parameters
    ----------
    model
        Factors.
    applications
        One row a log: `workbench.speedup.applications.APPLICATIONS_MEASURED`. Unreadable logs, copies, and those of
        another engine than the baseline's are not judged; a cut or damaged log is, as far as it goes.
    measured
        Their executions; `session` is the row's `log`.
    terms, overrides
        What a recommendation asks for; factors set by hand.

    Returns
    -------
    Qualified
        `recommended`: even the low end of the ratio reaches the least ratio; `worth a trial`: the ratio does;
        `slower`: the ratio is below 1 / 1.02; `little gain`: the rest.

    Notes
    -----
    Predicted = time outside SQL + streaming + predicted queries, these scaled by how far queries ran side by side. The
    interval takes errors of different queries as independent, those of one query's runs as one, and adds the
    engine-wide factor's own error, common to all.
    """
    terms = terms or Terms()
    predictions = predict(model, measured, overrides=overrides, level=terms.level)
    by_log = {key[0]: frame for key, frame in predictions.group_by("session")}
    pace = paces(model, measured)
    rows = [
        _application(row, by_log.get(row["log"]), model, terms, pace.get(row["log"], 1.0))
        for row in applications.iter_rows(named=True)
    ]
    table = APPLICATIONS.frame(rows).sort("saved_s", "log", descending=[True, False], nulls_last=True)
    return Qualified(table, predictions, _at_stake(predictions, by_term(model, measured)))


def _application(
    row: Mapping[str, Any], predictions: pl.DataFrame | None, model: FactorModel, terms: Terms, pace: float
) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(APPLICATIONS.schema())
    base = empty | {
        "log": row["log"],
        "app_id": row["app_id"],
        "app_name": row["app_name"],
        "recommendation": NOT_JUDGED,
        "reason": row["reason"],
        "baseline_s": row["wall_s"],
        "sql_s": row["sql_wall_s"],
        "outside_sql_s": row["outside_sql_s"],
        "streaming_s": row["streaming_s"],
        "unsupported_operators": [],
        "n_queries": 0,
    }
    if row["status"] in ("unreadable", "duplicate"):
        return base
    if row["engine"] != model.baseline_engine and model.baseline_engine:
        return base | {"reason": f"it ran on {row['engine']}, the factors are for {model.baseline_engine}"}
    if row["wall_s"] is None or row["wall_s"] <= 0:
        return base | {"reason": row["reason"] or "the log does not say how long it took"}
    if predictions is None or not predictions.height:
        return base | {"reason": "no SQL query in it ran tasks: nothing that an accelerator for SQL could run"}
    found = base | _predicted(row, predictions, model, terms)
    return found | {"reason": "; ".join(filter(None, [found["reason"], _other_pace(pace)])) or None}


def _other_pace(pace: float) -> str | None:
    """A word of caution where the log's machine, or its work, is far from the one that the factors come from."""
    if 1 / FAR_PACE <= pace <= FAR_PACE:
        return None
    return f"a row took {number(pace)} times as long as where the factors were measured: the ratio is less sure"


def _predicted(row: Mapping[str, Any], predictions: pl.DataFrame, model: FactorModel, terms: Terms) -> dict[str, Any]:
    wall_s = float(row["wall_s"])
    told = float(predictions["baseline_s"].sum())
    sql_s = min(float(row["sql_wall_s"]), wall_s)
    beside = min(1.0, sql_s / told) if told else 1.0
    predicted_sql = float(predictions["predicted_s"].sum()) * beside
    # What is in SQL by the clock but in no query that counts (failed ones) stays as it is.
    fixed = wall_s - told * beside
    error_s = _error_s(predictions, model, terms) * beside
    predicted = fixed + predicted_sql
    low, high = fixed + max(predicted_sql - error_s[0], 0.0), fixed + predicted_sql + error_s[1]
    ratio, ratio_low, ratio_high = wall_s / predicted, wall_s / high, wall_s / low
    name = recommendation(ratio, ratio_low, terms.least_ratio)
    share = {
        column: float((predictions[column] * predictions["baseline_s"]).sum()) / told
        for column in ("unsupported_share", "unknown_share")
    }
    operators = predictions.explode("unsupported_operators").drop_nulls("unsupported_operators")
    most = operators.group_by("unsupported_operators").agg(pl.col("baseline_s").sum())
    named = most.sort("baseline_s", "unsupported_operators", descending=[True, False])[
        "unsupported_operators"
    ].to_list()
    return {
        "recommendation": name,
        "reason": "; ".join(filter(None, [row["reason"], _limit(fixed / wall_s, share, named)])) or None,
        "predicted_s": predicted,
        "predicted_low_s": low,
        "predicted_high_s": high,
        "ratio": ratio,
        "ratio_low": ratio_low,
        "ratio_high": ratio_high,
        "saved_s": wall_s - predicted,
        "saved_low_s": wall_s - high,
        "saved_high_s": wall_s - low,
        "unsupported_operators": named,
        "n_queries": int(predictions["n_executions"].sum()),
        **share,
        **_costs(wall_s, predicted, low, high, terms),
    }


def recommendation(ratio: float, ratio_low: float, least_ratio: float) -> str:
    """The class of an application.

    Examples
    --------
    >>> [recommendation(*case, 1.3) for case in [(2.0, 1.5), (1.5, 1.1), (1.1, 0.9), (0.8, 0.6)]]
    ['recommended', 'worth a trial', 'little gain', 'slower']
    """
    if ratio < 1 / (1 + stats.MARGIN):
        return SLOWER
    if ratio_low >= least_ratio:
        return RECOMMENDED
    return TRIAL if ratio >= least_ratio else LITTLE


def _error_s(predictions: pl.DataFrame, model: FactorModel, terms: Terms) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How far the queries' sum may lie below and above: own errors independent, the common one on top."""
    from scipy.special import stdtrit

    by_query = predictions.group_by("query").agg(pl.col("predicted_s", "predicted_low_s", "predicted_high_s").sum())
    total = float(by_query["predicted_s"].sum())
    below = float(((by_query["predicted_s"] - by_query["predicted_low_s"]) ** 2).sum()) ** 0.5
    above = float(((by_query["predicted_high_s"] - by_query["predicted_s"]) ** 2).sum()) ** 0.5
    half = float(stdtrit(max(model.n_queries - 1, 1), (1 + terms.level) / 2)) * _common_log_se(model)
    return np.array([np.hypot(below, total * (1 - np.exp(-half))), np.hypot(above, total * (np.exp(half) - 1))])


def _common_log_se(model: FactorModel) -> float:
    """Standard error of what all predictions share: the correction, from as many queries, and the sessions."""
    own = (model.log_sd or model.spread) / np.sqrt(model.n_queries)
    return float(np.hypot(own, model.overall_log_se or 0.0))


def _limit(fixed_share: float, share: Mapping[str, float], unsupported: list[str]) -> str | None:
    """What limits the gain most, in words; null when nothing stands out."""
    notes = []
    if fixed_share >= 0.25:
        notes.append(f"{fixed_share:.0%} of the time is in no query that is predicted")
    if share["unsupported_share"] >= 0.1:
        notes.append(f"{share['unsupported_share']:.0%} in operators left on the CPU ({', '.join(unsupported[:3])})")
    if share["unknown_share"] >= 0.1:
        notes.append(f"{share['unknown_share']:.0%} in operators without a factor")
    return "; ".join(notes) or None


def _costs(wall_s: float, predicted: float, low: float, high: float, terms: Terms) -> dict[str, float]:
    if terms.baseline_price_per_h is None or terms.candidate_price_per_h is None:
        return {}
    now, then = wall_s / 3600 * terms.baseline_price_per_h, terms.candidate_price_per_h / 3600
    return {
        "baseline_cost": now,
        "predicted_cost": predicted * then,
        "saved_cost": now - predicted * then,
        "saved_cost_low": now - high * then,
        "saved_cost_high": now - low * then,
    }


def _at_stake(predictions: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Time of the operators that predictions call unsupported or unknown."""
    key = ["session", "query"]
    times = parts.join(predictions.select(*key, "n_executions"), on=key)
    found = []
    for kind in ("unsupported", "unknown"):
        named = predictions.explode(f"{kind}_operators").drop_nulls(f"{kind}_operators")
        named = named.select(*key, operator=pl.col(f"{kind}_operators"))
        found.append(times.join(named, on=[*key, "operator"]).with_columns(kind=pl.lit(kind)))
    # What is not supported has mostly no factor either: that it is unsupported says more.
    both = pl.concat(found).unique([*key, "operator"], keep="first", maintain_order=True)
    summed = both.group_by("operator").agg(
        pl.col("kind").first(),
        n_applications=pl.col("session").n_unique().cast(pl.Int64),
        n_queries=pl.len().cast(pl.Int64),
        baseline_s=(pl.col("baseline_s") * pl.col("n_executions")).sum(),
    )
    return OPERATORS_AT_STAKE.check(summed).sort("baseline_s", "operator", descending=[True, False])
