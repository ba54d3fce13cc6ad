"""Qualification: applications ranked by predicted gain, cost and certainty."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
import polars.selectors as cs

from workbench import stats
from workbench.core.books import AT_MOST, Book, build_books, describe_broken_books
from workbench.core.errors import ConfigError
from workbench.core.formats import fit_answer, format_items, format_number
from workbench.core.tables import Table
from workbench.eventlog.engine_detection import SPARK, UNKNOWN
from workbench.speedup.attribution.time_pieces import NOT_COUNTED, Measured
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.prediction import (
    PlanCounts,
    SampledErrors,
    compare_paces,
    predict_by_term,
    predict_queries,
    sum_query_errors,
)
from workbench.speedup.tables import APPLICATIONS, LEAST_RATIO, OPERATORS_AT_STAKE

# Ratio of measured to predicted shared times from which, either way, a prediction gets a caution.
FAR_PACE = 2.0
# Beyond this ratio, either way, it is no pace: the rows that were counted are not those that took the time.
MAX_PACE = 1000.0
LOGS_AT_A_TIME = 256
# An application that another engine runs for this share of its queries' time is one that has moved.
MOSTLY_MOVED = 0.9
# Shares of the time from which on a limit of the gain is told.
LARGE_SHARE, SMALL_SHARE = 0.25, 0.1
OWN_ERROR, ROUNDING_S = "an error in the workbench", 1e-3
# No prediction is below it: start-up alone takes longer.
MIN_PREDICTED_SHARE = 1e-6
DAMAGED_STATUSES = ("unreadable", "partial", "contradictory", "damaged")
RECOMMENDED, TRIAL, LITTLE, PREDICTED_SLOWER = "recommended", "worth a trial", "little gain", "slower"
# Applications without a prediction.
ACCELERATED, NOT_JUDGED = "already accelerated", "not judged"
# Statuses of logs whose application is counted by another log, and what one or several of them are called.
REPEATED = {"duplicate": ("copy", "copies"), "superseded": ("earlier attempt", "earlier attempts")}
# End of the reason of such a log: the log that counts.
_COUNTED_LOG = r"(?:the same application as |counts: )(.*)$"
# Characters of a log's name in a table; of a longer one, its end tells more.
MAX_LOG_CHARS = 40


PriceOf = Literal["cluster", "executor"]


@dataclass(frozen=True)
class QualificationTerms:
    """Minimum ratio of a recommendation, and prices per hour (null: no costs) in a currency that has a name or not.

    `price_of`: cluster: prices are those of the time from start to end; executor: of each executor's own time.
    """

    least_ratio: float = LEAST_RATIO
    baseline_price_per_h: float | None = None
    candidate_price_per_h: float | None = None
    level: float = stats.LEVEL
    currency: str = ""
    price_of: PriceOf = "cluster"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.least_ratio) and self.least_ratio >= 1):
            raise ConfigError("not a minimum ratio", where="--least-ratio", found=self.least_ratio, allowed="1 or more")
        prices = (self.baseline_price_per_h, self.candidate_price_per_h)
        if (prices[0] is None) != (prices[1] is None):
            raise ConfigError("one of two prices is missing", do="give both --price-cpu and --price-accel")
        if any(price is not None and not (np.isfinite(price) and price >= 0) for price in prices):
            raise ConfigError(
                "not a price per hour", where="--price-cpu, --price-accel", found=prices, allowed="0 or more"
            )


@dataclass(frozen=True)
class Qualification:
    """Tables `applications`, `predictions` (by query), `operators_at_stake` and `books`.

    `repeated`: Copies and earlier attempts, which are not counted: `log, status, reason`. `damaged`: Logs of which
    something is missing or could not be read, judged or not.
    """

    applications: pl.DataFrame
    predictions: pl.DataFrame
    operators_at_stake: pl.DataFrame
    repeated: pl.DataFrame
    books: pl.DataFrame
    currency: str = ""
    damaged: frozenset[str] = frozenset()

    @property
    def folder(self) -> str:
        """Common start of the paths of all logs, with a slash at its end; empty without a common folder."""
        return "".join(os.path.commonprefix(self.applications["log"].to_list()).rpartition("/")[:2])  # noqa: RUF071 - URLs, too

    @property
    def folder_name(self) -> str:
        """The end of `folder`, which says which it is and not whose machine it lies on; empty without a folder."""
        if not self.folder.strip("/"):
            return ""
        path = self.folder if "://" in self.folder else os.path.normpath(self.folder)
        return "/".join(path.rstrip("/").rsplit("/", 2)[-2:]).lstrip("/")

    def shorten_logs(self, frame: pl.DataFrame) -> pl.DataFrame:
        """A table with the logs named within `folder`, which its caption says once; long ones are cut from the left."""
        name = cs.by_name("log", "session", require_all=False).str.strip_prefix(self.folder)
        ending = pl.lit("…") + name.str.tail(MAX_LOG_CHARS - 1)
        short = pl.when(name.str.len_chars() <= MAX_LOG_CHARS).then(name).otherwise(ending)
        told = cs.by_name("reason", require_all=False).str.replace_all(self.folder, "", literal=True)
        return frame.with_columns(short, told if self.folder else cs.by_name("reason", require_all=False))

    @property
    def repeated_note(self) -> str:
        """Copies and earlier attempts in one line, with the logs that count; empty without any."""
        counts = Counter(self.repeated.select("status", pl.col("reason").str.extract(_COUNTED_LOG)).iter_rows())
        texts = [
            f"{count} {REPEATED[status][count > 1]}" + (f" of {log.removeprefix(self.folder)}" if log else "")
            for (status, log), count in counts.most_common()
        ]
        return f"Not counted: {format_items(texts)}." if texts else ""

    def build_ranking(self) -> tuple[pl.DataFrame, Table]:
        """The applications for display, and their table: one line each, without reasons, costs to the cent."""
        columns = ["log", "app_name", "recommendation", "baseline_s", "saved_s", "saved_low_s", "saved_high_s", "ratio"]
        columns += ["saved_cost"] if self.applications["saved_cost"].drop_nulls().len() else []
        copies = self.repeated.group_by(log=pl.col("reason").str.extract(_COUNTED_LOG)).agg(copies=pl.len())
        ranked = self.applications.select(columns)
        if copies.height:
            ranked = ranked.join(copies, on="log", how="left", maintain_order="left").with_columns(
                pl.col("copies").fill_null(0)
            )
        shown = self.shorten_logs(ranked).with_columns(cs.by_name("saved_cost", require_all=False).round(2))
        units = {"currency": self.currency or "currency"}
        named = tuple(replace(column, unit=units.get(column.unit, column.unit)) for column in APPLICATIONS.columns)
        return shown, replace(APPLICATIONS, columns=named)

    @property
    def judged(self) -> pl.DataFrame:
        """The applications that have a prediction."""
        return self.applications.filter(pl.col("predicted_s").is_not_null())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of an invalid result."""
        if not self.judged.height:
            return ("no application could be judged; the table has the reasons",)
        if self.n_damaged == self.judged.height:
            return ("no application is judged by a whole log; the table has the reasons",)
        return describe_broken_books(self.books)

    @property
    def n_damaged(self) -> int:
        """Applications that are judged by a log of which something is missing."""
        return int(self.judged["log"].is_in(list(self.damaged)).sum())

    @property
    def candidates(self) -> pl.DataFrame:
        """The applications to move or, without any, those to try, most time saved first."""
        for name in (RECOMMENDED, TRIAL):
            chosen = self.judged.filter(pl.col("recommendation") == name)
            if chosen.height:
                return chosen.sort("saved_s", descending=True, nulls_last=True)
        return self.judged.clear()

    def name_application(self, row: Mapping[str, Any]) -> str:
        """Name of an application for a sentence: its own, its id, or that of its log."""
        return str(row["app_name"] or row["app_id"] or str(row["log"]).removeprefix(self.folder))

    @property
    def answer(self) -> str:
        """The decision in one sentence."""
        judged, chosen = self.judged, self.candidates
        if not judged.height:
            return f"None of {_count(self.applications.height)} could be judged."
        if not chosen.height:
            base = _format_seconds(judged["baseline_s"].sum())
            return f"Move none: no application gains enough; {base} s would save {_format_savings(judged)}."
        is_sure = chosen["recommendation"][0] == RECOMMENDED
        if is_sure and chosen.height > 1:
            ratio = float(chosen["baseline_s"].sum()) / float(chosen["predicted_s"].sum())
            low, high = (_format_seconds(chosen[f"predicted_{end}_s"].sum()) for end in ("low", "high"))
            before, after = (_format_seconds(chosen[f"{name}_s"].sum()) for name in ("baseline", "predicted"))
            moved = f"Move {_count(chosen.height)}: {before} s become {after} s, {low} to {high}"
            return fit_answer(f"{moved}; {ratio:.1f}x faster.", f"{moved}.")
        verb = "Move" if is_sure else "Try"
        row = chosen.row(0, named=True)
        saved = f"saves {_format_savings(chosen.head(1), row['baseline_s'])}"
        return fit_answer(f"{verb} {self.name_application(row)} first: {saved}.", f"{verb} one application: {saved}.")

    @property
    def details(self) -> list[str]:
        """What the decision rests on: totals, classes, and what is not counted."""
        judged = self.judged
        n_accelerated = int((self.applications["recommendation"] == ACCELERATED).sum())
        n_not_judged = self.applications.height - judged.height - n_accelerated
        sentences = []
        if judged.height:
            base, predicted = float(judged["baseline_s"].sum()), float(judged["predicted_s"].sum())
            sentences.append(
                f"{_count(judged.height)} of {base:,.1f} s would take {predicted:,.1f} s, {base / predicted:.2f}x as"
                f" fast, and save {_format_savings(judged)}."
            )
            counts = Counter(judged["recommendation"])
            names = (RECOMMENDED, TRIAL, LITTLE, PREDICTED_SLOWER)
            sentences.append(f"Classes: {', '.join(f'{counts[name]} {name}' for name in names if counts[name])}.")
            opaque_share = float(self.predictions["opaque_s"].sum()) / base if base else 0.0
            if opaque_share >= SMALL_SHARE:
                share = f"{100 * min(opaque_share, 1.0):.0f} %"
                sentences.append(
                    f"Up to {share} of their time may be user code, reads of caches or writes, which no engine changes."
                )
        if n_accelerated:
            sentences.append(f"{_count(n_accelerated)} already accelerated.")
        if n := self.repeated.height:
            sentences.append(
                f"{n} {'copy or earlier attempt' if n == 1 else 'copies or earlier attempts'} not counted."
            )
        if n_not_judged and judged.height:
            sentences.append(f"{_count(n_not_judged)} could not be judged.")
        if self.n_damaged:
            sentences.append(f"{_count(self.n_damaged)} judged by a log with holes.")
        return sentences


def _format_seconds(value: Any) -> str:
    return f"{value:,.1f}" if abs(value) < 10 else f"{value:,.0f}"


def _format_savings(judged: pl.DataFrame, of_s: float | None = None) -> str:
    """Time saved by applications together, with the sums of their ends: errors may be common to all of them."""
    saved, low, high = (_format_seconds(judged[f"saved{end}_s"].sum()) for end in ("", "_low", "_high"))
    return (
        f"{saved} of {_format_seconds(of_s)} s, {low} to {high}" if of_s is not None else f"{saved} s, {low} to {high}"
    )


def _count(n: int) -> str:
    return f"{n} application{'' if n == 1 else 's'}"


def qualify_applications(
    model: FactorModel,
    applications: pl.DataFrame,
    measured: Measured,
    terms: QualificationTerms | None = None,
    *,
    overrides: Mapping[str, float] | None = None,
    plans: PlanCounts | None = None,
    samples: SampledErrors | None = None,
) -> Qualification:
    """Predict the time of each application on the candidate, and recommend which ones to move.

    `plans`, `samples`: Counts of the candidate's plans and errors in samples by query, as for `predict_queries`.

    `applications`: Table `APPLICATIONS_MEASURED`. Copies and earlier attempts are not counted. Unreadable logs, logs
    whose times contradict each other, and applications on another engine than the baseline's are not judged; a cut or
    damaged log is judged by its readable part, and is worth a trial at most.

    Returns: `recommended`: the lower end of the ratio reaches the minimum ratio; `worth a trial`: only the ratio
    does; `slower`: the ratio is below 1 / 1.02; `little gain`: the rest.

    Predicted time = time outside SQL + streaming + predicted queries, scaled by the overlap of queries. The interval
    treats errors of different queries as independent and errors of the runs of one query as equal, and adds the error
    that all queries share: of the engine-wide factor, of sessions and, for queries of another suite than the
    recording's, `prediction.TRANSFER_COMMON_LOG_SD`.
    """
    terms = terms or QualificationTerms()
    baseline_engine = model.baseline_engine or SPARK
    is_of_baseline = pl.col("engine").is_null() | (pl.col("engine") == baseline_engine)
    # Share of the time of queries by log that another engine than the baseline's ran; only logs with such queries.
    other_s = pl.col("wall_s").filter(~is_of_baseline).sum()
    shares = measured.executions.group_by("session").agg(share=other_s / pl.col("wall_s").sum())
    moved = dict(shares.filter(pl.col("share") > 0).iter_rows())
    measured = measured.select(is_of_baseline)
    predictions, by_term, pace = _predict_logs(model, measured, overrides, plans, samples, terms.level)
    by_log = {key[0]: frame for key, frame in predictions.group_by("session")}
    is_repeated = pl.col("status").is_in(list(REPEATED))
    rows = [
        _build_application_row(
            row, by_log.get(row["log"]), model, terms, pace.get(row["log"], 1.0), moved.get(row["log"], 0.0)
        )
        for row in applications.filter(~is_repeated).iter_rows(named=True)
    ]
    table = APPLICATIONS.frame(rows).sort("saved_s", "log", descending=[True, False], nulls_last=True)
    at_stake = _build_operators_at_stake(predictions, by_term)
    repeated = applications.filter(is_repeated).select("log", "status", "reason")
    damaged = frozenset(applications.filter(pl.col("status").is_in(DAMAGED_STATUSES))["log"])
    books = build_books(_list_books(table, applications))
    return Qualification(table, predictions, at_stake, repeated, books, terms.currency, damaged)


def _list_books(judged: pl.DataFrame, measured: pl.DataFrame) -> list[Book]:
    """Books of the predictions of a fleet. `judged`, `measured`: Tables APPLICATIONS and APPLICATIONS_MEASURED."""
    both = judged.join(measured.select("log", "running_s"), on="log").filter(pl.col("predicted_s").is_not_null())
    beyond = both.select((pl.col("saved_high_s") - pl.col("running_s")).max()).item()
    off = both.select((pl.col("baseline_s") - pl.col("predicted_s") - pl.col("saved_s")).abs().max()).item()
    return [
        Book(
            "bound of the savings",
            ("most by which an application saves more than the time in which its tasks ran", beyond),
            ("nothing", None if beyond is None else 0.0),
            "predictions and recommendations",
            OWN_ERROR,
            AT_MOST,
            "s",
            tolerance=ROUNDING_S,
        ),
        Book(
            "savings",
            ("largest difference of baseline minus predicted from saved", off),
            ("nothing", None if off is None else 0.0),
            "predictions and recommendations",
            OWN_ERROR,
            unit="s",
            tolerance=ROUNDING_S,
        ),
    ]


def _predict_logs(
    model: FactorModel,
    measured: Measured,
    overrides: Mapping[str, float] | None,
    plans: PlanCounts | None,
    samples: SampledErrors | None,
    level: float,
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, float]]:
    """Predictions by query and by term, and paces by log; some logs at a time, since their arrays are dense."""
    sessions = measured.executions["session"].unique().sort()
    predictions, by_term = [], []
    pace: dict[str, float] = {}
    for start in range(0, max(1, len(sessions)), LOGS_AT_A_TIME):
        logs = measured.select(pl.col("session").is_in(sessions.slice(start, LOGS_AT_A_TIME).implode()))
        predictions.append(predict_queries(model, logs, overrides=overrides, level=level, plans=plans, samples=samples))
        by_term.append(predict_by_term(model, logs, plans=plans))
        pace |= compare_paces(model, logs)
    return pl.concat(predictions), pl.concat(by_term), pace


def _build_application_row(
    row: Mapping[str, Any],
    predictions: pl.DataFrame | None,
    model: FactorModel,
    terms: QualificationTerms,
    pace: float,
    moved_share: float,
) -> dict[str, Any]:
    """Row of table APPLICATIONS. `moved_share`: Of the time of its queries, on another engine than the baseline's.

    `row`: Of table APPLICATIONS_MEASURED. `predictions`: Table PREDICTIONS of this log, null for none. `pace`: As
    `compare_paces` gives it.
    """
    empty: dict[str, Any] = dict.fromkeys(APPLICATIONS.schema())
    base = empty | {
        "log": row["log"],
        "app_id": row["app_id"],
        "attempt_id": row["attempt_id"],
        "app_name": row["app_name"],
        "recommendation": NOT_JUDGED,
        "reason": row["reason"],
        "baseline_s": row["wall_s"],
        "sql_s": row["sql_wall_s"],
        "outside_sql_s": row["outside_sql_s"],
        "streaming_s": row["streaming_s"],
        "unsupported_operators": [],
        "n_queries": 0,
        "executor_h": row["executor_h"],
    }
    if row["status"] in NOT_COUNTED:
        return base
    if row["engine"] == UNKNOWN:
        return base
    is_mixed = 0 < moved_share < MOSTLY_MOVED and predictions is not None
    if row["engine"] != SPARK and model.baseline_engine in ("", SPARK) and not is_mixed:
        return base | {"recommendation": ACCELERATED, "reason": f"already accelerated by {row['engine']}"}
    if row["engine"] != model.baseline_engine and model.baseline_engine and not is_mixed:
        return base | {"reason": f"it ran on {row['engine']}, but the factors are for {model.baseline_engine}"}
    if row["wall_s"] is None or row["wall_s"] <= 0:
        return base | {"reason": row["reason"] or "the log lacks its duration"}
    if predictions is None or not predictions.height:
        if batches := row["n_streaming_batches"]:
            return base | {"reason": f"structured streaming: {batches:,} batches, not judged"}
        return base | {"reason": "no SQL query ran tasks, so there is nothing to accelerate"}
    prediction = base | _predict_application(row, predictions, model, terms)
    recommendation = classify_recommendation(prediction["ratio"], prediction["ratio_low"], terms.least_ratio)
    # A damaged log shows a part of the application only.
    if recommendation == RECOMMENDED and row["status"] in DAMAGED_STATUSES:
        recommendation = TRIAL
    # A caution if the log's machine or work is far from that of the recording; null otherwise.
    if 1 / FAR_PACE <= pace <= FAR_PACE:
        pace_caution = None
    elif not 1 / MAX_PACE <= pace <= MAX_PACE:
        pace_caution = (
            "its row counts cannot be compared with those behind the factors, so the prediction is less certain"
        )
    else:
        times, side = format_number(max(pace, 1 / pace)), "slower" if pace > 1 else "faster"
        pace_caution = (
            f"rows are {times}x {side} here than where the factors were measured, so the prediction is less certain"
        )
    notes = [prediction["reason"], pace_caution]
    if terms.price_of == "executor" and row["executor_h"] is None:
        notes.append("no cost: its executors are not known")
    if is_mixed:
        notes.append(
            f"{100 * moved_share:.0f} % of the queries' time ran on {row['engine']} already and stays unchanged"
        )
    return prediction | {"recommendation": recommendation, "reason": "; ".join(filter(None, notes)) or None}


def _predict_application(
    row: Mapping[str, Any], predictions: pl.DataFrame, model: FactorModel, terms: QualificationTerms
) -> dict[str, Any]:
    """Columns of table APPLICATIONS that follow from the log's rows of table PREDICTIONS."""
    wall_s = float(row["wall_s"])
    queries_s = float(predictions["baseline_s"].sum())
    sql_s = min(float(row["sql_wall_s"]), wall_s)
    overlap = min(1.0, sql_s / queries_s) if queries_s else 1.0
    predicted_sql = float(predictions["predicted_s"].sum()) * overlap
    # SQL time outside counted queries (failed ones) stays as it is.
    fixed = wall_s - queries_s * overlap
    error_s = sum_query_errors(predictions, model, terms.level) * overlap
    # No engine saves more than the time in which tasks ran, nor any of a user's code.
    floor_s = fixed + float(predictions["fixed_s"].sum() or 0.0) * overlap
    if row["running_s"] is not None:
        # Of queries side by side, the code of one may run while another's does.
        user_code_s = predictions["user_code_s"].fill_null(0.0).to_numpy()
        alone_s = (user_code_s / predictions["n_executions"].to_numpy()).max()
        least_s = max(user_code_s.sum() - queries_s * (1 - overlap), alone_s)
        floor_s = max(floor_s, wall_s - row["running_s"] + float(least_s))
    predicted = max(fixed + predicted_sql, floor_s)
    low = max(fixed + max(predicted_sql - error_s[0], 0.0), floor_s, MIN_PREDICTED_SHARE * wall_s)
    high = max(fixed + predicted_sql + error_s[1], predicted)
    ratio, ratio_low, ratio_high = wall_s / predicted, wall_s / high, wall_s / low
    share = {
        column: float((predictions[column] * predictions["baseline_s"]).sum()) / queries_s
        for column in ("unsupported_share", "unknown_share")
    }
    operators = predictions.explode("unsupported_operators").drop_nulls("unsupported_operators")
    operator_times = operators.group_by("unsupported_operators").agg(pl.col("baseline_s").sum())
    named = operator_times.sort("baseline_s", "unsupported_operators", descending=[True, False])[
        "unsupported_operators"
    ].to_list()
    return {
        "reason": "; ".join(filter(None, [row["reason"], _format_limit(wall_s, fixed, predictions, share, named)]))
        or None,
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
        **_estimate_costs(wall_s, row["executor_h"], predicted, low, high, terms),
    }


def classify_recommendation(ratio: float, ratio_low: float, min_ratio: float) -> str:
    """Recommendation of an application from its ratio.

    >>> [classify_recommendation(*case, 1.3) for case in [(2.0, 1.5), (1.5, 1.1), (1.1, 0.9), (0.8, 0.6)]]
    ['recommended', 'worth a trial', 'little gain', 'slower']
    """
    if ratio < 1 / (1 + stats.MARGIN):
        return PREDICTED_SLOWER
    if ratio_low >= min_ratio:
        return RECOMMENDED
    return TRIAL if ratio >= min_ratio else LITTLE


def _format_limit(
    wall_s: float, fixed_s: float, predictions: pl.DataFrame, share: Mapping[str, float], unsupported: list[str]
) -> str | None:
    """The largest limits of the gain as text; null if there are none.

    `fixed_s`: Time outside predicted queries. `predictions`: Table PREDICTIONS of the log.
    """
    unchanged_s, opaque_s = (float(predictions[name].sum() or 0.0) for name in ("fixed_s", "opaque_s"))
    parts = (
        (fixed_s, "{:.0f} % of the time is outside predicted queries"),
        (unchanged_s, "{:.0f} % of the time is waits, driver time or user code, which no engine changes"),
        (opaque_s, "up to {:.0f} % of the time may be user code, reads of caches or writes, which no engine changes"),
    )
    limits = (LARGE_SHARE, SMALL_SHARE, SMALL_SHARE)
    notes = [
        text.format(100 * min(1.0, part_s / wall_s))
        for (part_s, text), limit in zip(parts, limits, strict=True)
        if part_s >= limit * wall_s
    ]
    if share["unsupported_share"] >= 0.1:
        notes.append(
            f"{100 * share['unsupported_share']:.0f} % in operators left on the CPU ({', '.join(unsupported[:3])})"
        )
    if share["unknown_share"] >= 0.1:
        notes.append(f"{100 * share['unknown_share']:.0f} % in operators without a factor")
    return "; ".join(notes) or None


def _estimate_costs(
    wall_s: float, executor_h: float | None, predicted: float, low: float, high: float, terms: QualificationTerms
) -> dict[str, float]:
    """Costs of an application that takes `wall_s` on the baseline, and `predicted` on the candidate, all in seconds.

    With prices per executor, the candidate has as many of them on average as the baseline had.
    """
    paid_h = executor_h if terms.price_of == "executor" else wall_s / 3600
    if terms.baseline_price_per_h is None or terms.candidate_price_per_h is None or paid_h is None:
        return {}
    baseline_cost = paid_h * terms.baseline_price_per_h
    candidate_price_per_s = paid_h / wall_s * terms.candidate_price_per_h
    return {
        "baseline_cost": baseline_cost,
        "predicted_cost": predicted * candidate_price_per_s,
        "saved_cost": baseline_cost - predicted * candidate_price_per_s,
        "saved_cost_low": baseline_cost - high * candidate_price_per_s,
        "saved_cost_high": baseline_cost - low * candidate_price_per_s,
    }


def _build_operators_at_stake(predictions: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Time of the operators that predictions call unsupported or unknown.

    `predictions`: `session, query, n_executions, unsupported_operators, unknown_operators` of `predict_queries`.
    `parts`: `session, query, operator, baseline_s` of `predict_by_term`; its `baseline_s` is wall seconds of one run
    of the query (median over the log's runs), so the table's `baseline_s` is that times `n_executions`, summed.
    """
    key = ["session", "query"]
    times = parts.join(predictions.select(*key, "n_executions"), on=key)
    frames = []
    for kind in ("unsupported", "unknown"):
        named = predictions.explode(f"{kind}_operators").drop_nulls(f"{kind}_operators")
        named = named.select(*key, operator=pl.col(f"{kind}_operators"))
        frames.append(times.join(named, on=[*key, "operator"]).with_columns(kind=pl.lit(kind)))
    # Unsupported operators mostly have no factor either; they count as unsupported.
    both = pl.concat(frames).unique([*key, "operator"], keep="first", maintain_order=True)
    summed = both.group_by("operator").agg(
        pl.col("kind").first(),
        n_applications=pl.col("session").n_unique().cast(pl.Int64),
        n_queries=pl.len().cast(pl.Int64),
        baseline_s=(pl.col("baseline_s") * pl.col("n_executions")).sum(),
    )
    return OPERATORS_AT_STAKE.check(summed).sort("baseline_s", "operator", descending=[True, False])
