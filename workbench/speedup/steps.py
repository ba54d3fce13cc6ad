"""A query's way from the baseline's time to the predicted one, operator by operator."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from workbench import stats
from workbench.speedup.measured import Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.prediction import by_term, predict
from workbench.tables import Column, Table

# More bars than this are no picture; the smallest are added up.
MOST_STEPS = 12
# A step that changes less than this share of the baseline's time is among the smallest.
LEAST_SHARE = 0.005
STEPS = Table(
    "steps",
    "Each query from the time on the baseline to the predicted one, largest saving first.",
    ("query", "step"),
    (
        Column("query", "str", "Query."),
        Column("step", "int", "Place from the top, from 0."),
        Column("what", "str", "Side (its total), operator, or the small ones together."),
        Column("kind", "str", "baseline, faster, slower, predicted, measured."),
        Column("total", "bool", "Is it a whole time, not a step?"),
        Column("time_s", "float", "What the step adds (below 0: saves), or the whole time.", "s"),
        Column("end_s", "float", "Time reached after it.", "s"),
        Column(
            "low_s", "float", "Low end of the prediction interval; null but for the prediction.", "s", nullable=True
        ),
        Column("high_s", "float", "High end.", "s", nullable=True),
        Column("before_s", "float", "Time in it on the baseline; null for totals.", "s", nullable=True),
        Column("factor", "float", "Its factor; null for totals and for several together.", "times", nullable=True),
    ),
)


def counted(measured: Measured, label: str) -> Measured:
    """One side's executions that count, with their pieces."""
    kept = measured.executions.filter(pl.col("label") == label, pl.col("why_not").is_null())
    return Measured(kept, measured.pieces.join(kept, on=["label", "session", "sql_id"], how="semi"))


def steps(
    model: FactorModel,
    side: Measured,
    pairs: pl.DataFrame,
    *,
    overrides: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
) -> pl.DataFrame:
    """Where would each query's time go, operator by operator?

    Parameters
    ----------
    model
        Factors, from `workbench.speedup.calibrated`.
    side
        The baseline's executions, from `counted`.
    pairs
        Table `pairs`: what the queries took on both sides; queries that it lacks are left out.
    overrides
        Factors set by hand, by operator.
    level
        Of the prediction interval.

    Returns
    -------
    DataFrame
        Table `steps`: per query the baseline's time, at most 12 steps, the prediction, the measured candidate. The
        baseline's time and the steps add up to the prediction.

    Raises
    ------
    InputError
        An override names an operator without a factor, or is no finite number above 0.

    Notes
    -----
    Does not show how far the prediction holds for queries that the factors have not seen; `validate` does.
    """
    parts = _parts(by_term(model, side, overrides=overrides))
    predicted = predict(model, side, overrides=overrides, level=level)
    reach = predicted.group_by("query").agg(
        low=(pl.col("predicted_low_s") / pl.col("predicted_s")).mean(),
        high=(pl.col("predicted_high_s") / pl.col("predicted_s")).mean(),
    )
    ends = {query: (float(low), float(high)) for query, low, high in reach.iter_rows()}
    by_query = {str(query): frame for (query,), frame in parts.group_by("query", maintain_order=True)}
    rows: list[dict[str, object]] = []
    for pair in pairs.iter_rows(named=True):
        if pair["query"] in by_query:
            rows += _way(pair, by_query[pair["query"]], ends[pair["query"]], model)
    return STEPS.frame(rows)


def _parts(terms: pl.DataFrame) -> pl.DataFrame:
    """Mean over sessions of each operator's time, per run of the query; one without it counts as 0."""
    n = terms.group_by("query").agg(n=pl.col("session").n_unique())
    return (
        terms.group_by("query", "operator")
        .agg(pl.col("baseline_s").sum(), pl.col("predicted_s").sum(), pl.col("factor").first())
        .join(n, on="query")
        .select(
            "query",
            "operator",
            "factor",
            baseline_s=pl.col("baseline_s") / pl.col("n"),
            predicted_s=pl.col("predicted_s") / pl.col("n"),
        )
        .sort("query", "operator")
    )


def _way(
    pair: Mapping[str, object], parts: pl.DataFrame, ends: tuple[float, float], model: FactorModel
) -> list[dict[str, object]]:
    """The rows of one query."""
    before_s = float(pair["baseline_s"])  # type: ignore[arg-type]
    # Means over sessions, brought to the time that `pairs` gives for the query.
    scale = before_s / float(parts["baseline_s"].sum())
    rows = [_total(model.baseline, "baseline", before_s)]
    reached = before_s
    for what, part_s, after_s, factor in _largest(parts):
        change = (after_s - part_s) * scale
        reached += change
        kind = "faster" if change <= 0 else "slower"
        rows.append(_row(what, kind, change, reached, before_s=part_s * scale, factor=factor))
    rows.append(_total(f"{model.candidate}, predicted", "predicted", reached, ends))
    rows.append(_total(f"{model.candidate}, measured", "measured", float(pair["candidate_s"])))  # type: ignore[arg-type]
    return [{"query": pair["query"], "step": number} | row for number, row in enumerate(rows)]


def _largest(parts: pl.DataFrame) -> list[tuple[str, float, float, float | None]]:
    """Operator, time before, time after, factor: the steps that matter, largest saving first, then the rest as one."""
    change = pl.col("predicted_s") - pl.col("baseline_s")
    ranked = parts.sort(change.abs(), "operator", descending=[True, False])
    seen = ranked.filter(change.abs() >= LEAST_SHARE * pl.col("baseline_s").sum()).height
    most = min(seen, MOST_STEPS - 1)
    # One alone needs no name for several.
    most = ranked.height if ranked.height <= most + 1 else most
    kept, rest = ranked.head(most).sort(change, "operator"), ranked.tail(ranked.height - most)
    columns = ["operator", "baseline_s", "predicted_s", "factor"]
    found: list[tuple[str, float, float, float | None]] = list(kept.select(columns).iter_rows())
    if rest.height:
        name = f"{rest.height} smaller ones"
        found.append((name, float(rest["baseline_s"].sum()), float(rest["predicted_s"].sum()), None))
    return found


def _total(what: str, kind: str, time_s: float, ends: tuple[float, float] | None = None) -> dict[str, object]:
    low, high = (time_s * ends[0], time_s * ends[1]) if ends else (None, None)
    return _row(what, kind, time_s, time_s, total=True) | {"low_s": low, "high_s": high}


def _row(
    what: str,
    kind: str,
    time_s: float,
    end_s: float,
    *,
    total: bool = False,
    before_s: float | None = None,
    factor: float | None = None,
) -> dict[str, object]:
    return {
        "what": what,
        "kind": kind,
        "total": total,
        "time_s": time_s,
        "end_s": end_s,
        "low_s": None,
        "high_s": None,
        "before_s": before_s,
        "factor": factor,
    }
