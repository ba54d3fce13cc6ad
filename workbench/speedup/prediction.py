"""What would logs of the baseline take on the candidate? A factor model in, predictions with intervals out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import polars as pl

from workbench import stats
from workbench.speedup import calibrated_tables as tables
from workbench.speedup import engines
from workbench.speedup.calibration import Factors, term_names
from workbench.speedup.measured import FAILED, Measured
from workbench.speedup.model import FactorModel
from workbench.speedup.parts import Cuts, Floats, amounts, cuts, split

# A share of the operator's nodes on the candidate: above it, the operator counts as left on the CPU.
MOSTLY = 0.5
BY_TERM = dict.fromkeys(("session", "query", "operator"), pl.String()) | dict.fromkeys(
    ("baseline_s", "predicted_s", "factor"), pl.Float64()
)
LEAST_SHARED = 0.1
NO_OPERATORS = frozenset({"idle", "task overhead", "unattributed"})


def predict(
    model: FactorModel,
    measured: Measured,
    *,
    overrides: Mapping[str, float] | None = None,
    level: float = stats.LEVEL,
) -> pl.DataFrame:
    """What would each query take on the candidate?

    Parameters
    ----------
    model
        From `workbench.speedup.calibrated` or a file of it.
    measured
        Logs of the baseline, under any one label. First runs count: in production most runs are.
    overrides
        Factors set by hand, by operator: what if?
    level
        Of the prediction interval.

    Returns
    -------
    DataFrame
        Table `predictions`: one row by log and query; runs of one query are added up.

    Raises
    ------
    InputError
        An override names an operator that the model does not have, or is no finite number above 0.

    Notes
    -----
    The interval is that of a query not seen before: t on the root mean square log error of left-out queries, wider
    by how much factors differ for the share of time in operators without a factor. An operator that the model has
    not seen gets the engine-wide factor; one that the candidate left on the CPU when it was seen, or that its engine
    does not support, 1. Does not know of other data, other hardware or a busier cluster.
    """
    ready, pieces = _ready(measured)
    if not pieces.keys.height:
        return tables.PREDICTIONS.frame([])
    fitted, unknown, parts, work = _applied(model, pieces, overrides)
    runs = _runs(ready, pieces)
    predicted = fitted.predict(parts, work)
    unsupported = _unsupported(model, fitted)
    half = _half_width(model, parts, unknown, level)
    rows = [
        _row(pieces, i, runs[i], parts[i], float(predicted[i]), float(half[i]), fitted, unsupported, unknown)
        for i in range(pieces.keys.height)
    ]
    return tables.PREDICTIONS.frame(rows)


def by_term(model: FactorModel, measured: Measured, *, overrides: Mapping[str, float] | None = None) -> pl.DataFrame:
    """The same by operator: `session, query, operator, baseline_s, predicted_s, factor`, per run, for waterfalls."""
    _, pieces = _ready(measured)
    fitted, _, parts, work = _applied(model, pieces, overrides)
    predicted = fitted.by_term(parts, work)
    rows = [
        (session, query, term, float(parts[i, j]), float(predicted[i, j]), float(np.exp(fitted.log_factor[j])))
        for i, (session, query) in enumerate(pieces.keys.select("session", "query").iter_rows())
        for j, term in enumerate(fitted.terms)
        if parts[i, j] > 0
    ]
    return pl.DataFrame(rows, schema=BY_TERM, orient="row")


def paces(model: FactorModel, measured: Measured) -> dict[str, float]:
    """How long shared times took over what the model's prices say, by session: 1 where a row takes as long as there.

    Another machine, other expressions or very little data move it. Prices are seconds of the recording's machine, so
    far from 1 a prediction rests on times that are not this log's. Sessions whose shared times are less than a tenth
    of their time, or that did no work in them, are left out: hardly anything rests on prices there.
    """
    _, pieces = _ready(measured)
    by_price = (pieces.work * model.column_prices(pieces.columns)).sum(axis=1)
    table = pl.DataFrame({"owner": pieces.owner, "shared": pieces.shared, "s": pieces.wall_s, "by_price": by_price})
    sums = (
        table.join(pieces.keys.with_row_index("owner").cast({"owner": pl.Int64}), on="owner")
        .group_by("session")
        .agg(pl.col("s").sum(), pl.col("s", "by_price").filter("shared").sum().name.suffix("_shared"))
        .filter(pl.col("s_shared") >= LEAST_SHARED * pl.col("s"), pl.col("by_price_shared") > 0)
    )
    return dict(sums.select("session", pl.col("s_shared") / pl.col("by_price_shared")).iter_rows())


def _applied(
    model: FactorModel, pieces: Cuts, overrides: Mapping[str, float] | None
) -> tuple[Factors, frozenset[str], Floats, Floats]:
    """Factors with rows for unseen terms, these terms, and time and work by owner and term."""
    name_of = term_names(pieces.columns, model.groups)
    fitted, unknown = _with_unseen(model.factors(dict(overrides or {})), sorted(set(name_of.values())), model)
    gather = np.zeros((len(pieces.columns), len(fitted.terms)))
    for column, name in enumerate(pieces.columns):
        gather[column, fitted.terms.index(name_of[name])] = 1
    parts = split(pieces, model.column_prices(pieces.columns)) @ gather
    return fitted, unknown, np.asarray(parts), np.asarray(amounts(pieces) @ gather)


@lru_cache(maxsize=1)
def _ready(measured: Measured) -> tuple[Measured, Cuts]:
    """What counts, as arrays: kept for the last one, because what-if asks again and again with other factors."""
    ready = _countable(measured)
    return ready, cuts(ready)


def _countable(measured: Measured) -> Measured:
    """First runs count here; failed ones do not. A failed task is part of what a run took."""
    good = pl.col("why_not").is_null() | (pl.col("why_not") != FAILED)
    kept = measured.executions.filter(good).with_columns(why_not=pl.lit(None, pl.String))
    return Measured(kept, measured.pieces.join(kept, on=["label", "session", "sql_id"], how="semi"))


def _runs(measured: Measured, pieces: Cuts) -> list[tuple[int, float]]:
    """How often each query ran, and what that took in all."""
    found = measured.executions.group_by("label", "session", "query").agg(n=pl.len(), total_s=pl.col("wall_s").sum())
    joined = pieces.keys.join(found, on=["label", "session", "query"], how="left", maintain_order="left")
    return [(int(n), float(total)) for n, total in joined.select("n", "total_s").iter_rows()]


def _with_unseen(fitted: Factors, terms: list[str], model: FactorModel) -> tuple[Factors, frozenset[str]]:
    """The factors with rows for terms that the model has not seen."""
    new = [term for term in terms if term not in fitted.terms]
    supported = engines.supported(model.candidate_engine)
    told = supported is not None
    log_factor = [0.0 if told and term not in (supported or ()) else model.log_overall for term in new]
    extra = np.full(len(new), np.nan)
    return (
        replace(
            fitted,
            terms=(*fitted.terms, *new),
            log_raw=np.concatenate([fitted.log_raw, log_factor]),
            log_factor=np.concatenate([fitted.log_factor, log_factor]),
            log_se=np.concatenate([fitted.log_se, extra]),
            degrees=np.concatenate([fitted.degrees, extra]),
            shrinkage=np.concatenate([fitted.shrinkage, np.ones(len(new))]),
            log_price=np.concatenate([fitted.log_price, extra]),
        ),
        frozenset(new) - NO_OPERATORS,
    )


def _unsupported(model: FactorModel, fitted: Factors) -> frozenset[str]:
    """Operators that the candidate was seen to leave on the CPU, or that its engine does not support."""
    seen = {term.operator: term.left_on_cpu_share for term in model.terms}
    supported = engines.supported(model.candidate_engine)
    found = {name for name, share in seen.items() if share is not None and share > MOSTLY and name not in NO_OPERATORS}
    if supported is not None:
        found |= {name for name in fitted.terms if name not in seen and name not in supported}
    return frozenset(found - NO_OPERATORS)


def _half_width(model: FactorModel, parts: Floats, unknown: frozenset[str], level: float) -> Floats:
    from scipy.special import stdtrit

    known = [term.operator for term in model.terms]
    strange = [i for i in range(parts.shape[1]) if i >= len(known)]
    share = parts[:, strange].sum(axis=1) / parts.sum(axis=1) if unknown else np.zeros(len(parts))
    # Without left-out queries nothing is known of the error but how much factors differ.
    log_sd = model.log_sd if model.log_sd is not None else max(model.spread, 0.5)
    t = float(stdtrit(max(model.n_queries - 1, 1), (1 + level) / 2))
    return np.asarray(t * np.sqrt(log_sd**2 + (share * model.spread) ** 2))


def _row(
    pieces: Cuts,
    i: int,
    runs: tuple[int, float],
    parts: Floats,
    predicted_s: float,
    half: float,
    fitted: Factors,
    unsupported: frozenset[str],
    unknown: frozenset[str],
) -> dict[str, object]:
    n, total_s = runs
    key = pieces.keys.row(i, named=True)
    one_s = float(parts.sum())
    ratio = one_s / predicted_s

    def most_time(names: frozenset[str]) -> list[str]:
        took = sorted(((float(parts[j]), name) for j, name in enumerate(fitted.terms) if name in names), reverse=True)
        return [name for seconds, name in took if seconds > 0]

    def share(names: frozenset[str]) -> float:
        return sum(float(parts[j]) for j, name in enumerate(fitted.terms) if name in names) / one_s

    return {
        "session": key["session"],
        "query": key["query"],
        "n_executions": n,
        "baseline_s": total_s,
        "predicted_s": total_s / ratio,
        "predicted_low_s": total_s / ratio * float(np.exp(-half)),
        "predicted_high_s": total_s / ratio * float(np.exp(half)),
        "ratio": ratio,
        "ratio_low": ratio * float(np.exp(-half)),
        "ratio_high": ratio * float(np.exp(half)),
        "unsupported_share": share(unsupported),
        "unknown_share": share(unknown),
        "unsupported_operators": most_time(unsupported),
        "unknown_operators": most_time(unknown),
    }
