"""Factor model: JSON file with the factors of a pair; exports to CSV and Parquet."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import Field

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, read_model_file
from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.calibration.factors import Factors
from workbench.speedup.calibration.time_split import (
    ACCELERATED,
    Floats,
    PieceArrays,
    PlanCorrection,
    build_piece_arrays,
    fit_session_prices,
    split_times,
)
from workbench.speedup.compat_rapids_tools import seed_factors
from workbench.speedup.rapids_facts import list_known_operators

MAX_BYTES = 16 << 20
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# Names that the original tools use, where they are not the operator's with "Exec".
EXECS = {
    "Scan parquet": ("FileSourceScanExec", "BatchScanExec"),
    "Scan orc": ("FileSourceScanExec", "BatchScanExec"),
    "Exchange": ("ShuffleExchangeExec",),
}
SHARED = "shared, split by prices"
NodeTimes = dict[int | str, tuple[float, str]]


class Term(StrictModel):
    """Factor of one operator, group or kind of time, with its uncertainty."""

    operator: str
    log_factor: Finite = Field(description="Log of baseline over candidate, shrunk towards the engine-wide factor.")
    log_se: NotNegative | None = Field(description="Its standard error; null with one session.")
    log_price: Finite | None = Field(description="Log of candidate seconds per unit of work; null where unknown.")
    baseline_share: NotNegative
    n_queries: int = Field(ge=0)
    quality: str
    left_on_cpu_share: NotNegative | None = None


class PlanFeature(StrictModel):
    """A feature of plans that predictions are corrected by."""

    name: str = Field(description="An operator, for the log of one plus its nodes; or a time or count of the log.")
    mean: Finite
    deviation: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    coefficient: Finite = Field(description="Log error per standard deviation.")

    @classmethod
    def list_from(cls, correction: PlanCorrection | None) -> list[PlanFeature]:
        """The features of a correction; none without one."""
        if correction is None:
            return []
        arrays = (correction.mean, correction.deviation, correction.coefficients)
        rows = zip(correction.names, *(array.tolist() for array in arrays), strict=True)
        return [cls(name=name, mean=mean, deviation=sd, coefficient=value) for name, mean, sd, value in rows]


class FactorModel(StrictModel):
    """Factors of one pair of engines, with everything that a prediction needs, and their origin."""

    format_version: Literal[1] = 1
    method: Literal["calibrated"] = "calibrated"
    baseline: str
    candidate: str
    baseline_engine: str
    candidate_engine: str
    terms: list[Term] = Field(min_length=1)
    groups: list[list[str]] = Field(description="Operators that no query separates.")
    prices: dict[str, NotNegative] = Field(description="Baseline seconds per unit of work, to split shared times.")
    log_overall: Finite = Field(description="Log of the engine-wide factor.")
    overall_log_se: NotNegative | None
    spread: NotNegative = Field(description="Spread of log factors between operators.")
    time_weight: NotNegative = Field(description="Weight of time in a prediction; work has the rest.")
    calibration: Finite = Field(description="Log of the correction that makes the mean log error zero.")
    log_sd: NotNegative | None = Field(
        description="Root mean square log error of left-out queries; null for one query."
    )
    correction: list[PlanFeature] = Field(
        default=[], description="What left-out errors have in common with plans; empty where nothing was learned."
    )
    n_queries: int = Field(ge=1)
    queries: list[str]
    n_baseline_sessions: int = Field(ge=1)
    n_candidate_sessions: int = Field(ge=1)
    n_passes: int = Field(ge=1)
    created_at: str
    package_version: str
    sources: list[dict[str, Any]] = Field(default=[], description="Logs: label, file, sha256.")
    comparability: list[dict[str, Any]] = Field(default=[], description="Differences between the sides' settings.")
    host: dict[str, Any] = Field(default={})

    def build_factors(self, overrides: dict[str, float] | None = None) -> Factors:
        """The factors as arrays, some of them overridden."""
        chosen = dict(overrides or {})
        operators = [term.operator for term in self.terms]
        for name, value in chosen.items():
            _check_override(name, value, operators)
        log_factor = [float(np.log(chosen[t.operator])) if t.operator in chosen else t.log_factor for t in self.terms]
        prices = [
            np.nan if t.log_price is None else t.log_price - (log_factor[i] - t.log_factor)
            for i, t in enumerate(self.terms)
        ]
        return Factors(
            tuple(operators),
            np.array(log_factor),
            np.array(log_factor),
            np.array([np.nan if t.log_se is None else t.log_se for t in self.terms]),
            np.full(len(operators), np.nan),
            np.zeros(len(operators)),
            np.array(prices),
            self.log_overall,
            self.spread,
            self.time_weight,
            self.calibration,
        )

    def build_correction(self) -> PlanCorrection | None:
        """The correction as arrays; null where nothing was learned."""
        if not self.correction:
            return None
        mean, deviation, coefficients = np.array(
            [[feature.mean, feature.deviation, feature.coefficient] for feature in self.correction]
        ).T
        return PlanCorrection(tuple(feature.name for feature in self.correction), mean, deviation, coefficients)

    def get_column_prices(self, columns: tuple[str, ...]) -> Floats:
        """Prices of these columns; unknown columns get the median price."""
        middle = float(np.median(list(self.prices.values()))) if self.prices else 1.0
        return np.array([self.prices.get(column, middle) for column in columns])

    def write(self, path: str | Path) -> Path:
        """Write the JSON file."""
        return files.write_text(path, self.model_dump_json(indent=1) + "\n")


def load_factor_model(path: str | Path) -> FactorModel:
    """Read a factor model from its JSON file."""
    do = "make one with: workbench speedup generate RECORDING --output factors.json"
    return read_model_file(FactorModel, path, noun="factor model", max_bytes=MAX_BYTES, do=do)


def _check_override(name: str, value: float, operators: list[str]) -> None:
    if name not in operators:
        import difflib

        near = difflib.get_close_matches(name, operators, 3, 0.4) or operators[:10]
        raise InputError("no such operator in the factor model", where="--set", found=name, allowed=near)
    if not (np.isfinite(value) and value > 0):
        raise InputError("not a factor", where=f"--set {name}", found=value, allowed="a finite number above 0")


def export_factor_csv(model: FactorModel, path: str | Path) -> list[str]:
    """Write the operators' factors as CSV for the original tools.

    `model`: The factors; each operator of a group gets the group's factor. Kinds of time other than operators (idle,
    task overhead) and operators unknown to those tools are left out and named in the notes.

    Returns: Notes: terms left out, groups with one factor, scan factors raised above 1.

    The file has no intervals, and those tools apply factors to task time in an arithmetic mean, so their estimates
    differ from this model's predictions. Where several operators share a name (scans of several formats), the operator
    with the most time gives the factor.
    """
    upstream_names = list_known_operators()
    scores: dict[str, tuple[float, float]] = {}
    left_out, notes = [], []
    for term in model.terms:
        names = [
            name for part in term.operator.split(" + ") for name in upstream_exec_names(part) if name in upstream_names
        ]
        if not names:
            left_out.append(term.operator)
            continue
        if " + " in term.operator:
            notes.append(f"{term.operator} cannot be separated and share one factor")
        for name in names:
            best = (term.baseline_share, round(float(np.exp(term.log_factor)), 2))
            scores[name] = max(scores.get(name, best), best)
    if left_out:
        notes.append(f"left out, unknown to the original tools: {', '.join(left_out)}")
    notes += seed_factors.write_factor_file(path, {name: max(score, 0.01) for name, (_, score) in scores.items()})
    return notes


def upstream_exec_names(operator: str) -> tuple[str, ...]:
    """Names of an operator in the original tools.

    >>> upstream_exec_names("HashAggregate"), upstream_exec_names("Scan parquet")
    (('HashAggregateExec',), ('FileSourceScanExec', 'BatchScanExec'))
    """
    return EXECS.get(operator, (f"{operator}Exec",))


def export_parquet(model: FactorModel, path: str | Path) -> list[str]:
    """Write every term with its standard error and its pair as Parquet; there are no notes."""
    import polars as pl

    origin = {
        "baseline": model.baseline,
        "candidate": model.candidate,
        "n_queries_of_pair": model.n_queries,
        "n_baseline_sessions": model.n_baseline_sessions,
        "n_candidate_sessions": model.n_candidate_sessions,
        "created_at": model.created_at,
        "sources_sha256": [source.get("sha256") for source in model.sources],
    }
    rows = [{"factor": float(np.exp(term.log_factor)), **term.model_dump(), **origin} for term in model.terms]
    with files.replace_atomically(Path(path)) as temporary:
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(temporary)
    return []


@dataclass(frozen=True)
class BookedPieces:
    """Pieces of one query: `rows` with the weight of their run, `values` [piece, column] in weighted wall seconds."""

    rows: pl.DataFrame
    pieces: PieceArrays
    prices: Floats
    values: Floats


class Booking:
    """Books the executions that count; prices are those of a model, or else fitted to each session by itself."""

    def __init__(self, measured: Measured, model: FactorModel | None = None) -> None:
        self.measured, self.model = measured, model
        self.all_pieces = build_piece_arrays(measured)
        self.queries = sorted(set(measured.executions.filter(COUNTS)["query"]))
        self._session_prices = None if model else fit_session_prices(self.all_pieces, self.queries)

    def book_query(self, query: str) -> BookedPieces:
        """The pieces of all runs of a query, weighted so that a session's runs add up to their median."""
        of_query = self.measured.select(pl.col("query") == query, COUNTS)
        rows, pieces = _list_piece_rows(of_query), build_piece_arrays(of_query)
        prices = self._price_rows(rows)[:, [self.all_pieces.columns.index(name) for name in pieces.columns]]
        alone = replace(pieces, keys=rows.select("label", "session", "query"), owner=np.arange(rows.height))
        return BookedPieces(rows, pieces, prices, split_times(alone, prices))

    def book_nodes(self, query: str, sql_id: int) -> NodeTimes:
        """Wall seconds and basis by node of one execution, and by term for time outside operators."""
        booked = self.book_query(query)
        times: dict[int | str, float] = defaultdict(float)
        bases: dict[int | str, dict[str, None]] = defaultdict(dict)
        place = {name: i for i, name in enumerate(booked.pieces.columns)}
        for i, row in enumerate(booked.rows.iter_rows(named=True)):
            if row["sql_id"] != sql_id:
                continue
            if row["term"] is not None or not row["node_ids"]:
                times[row["term"] or "unattributed"] += row["wall_s"]
                bases[row["term"] or "unattributed"][row["basis"]] = None
                continue
            names = [name + ACCELERATED * fast for name, fast in zip(row["operators"], row["accelerated"], strict=True)]
            for name in dict.fromkeys(names):
                works = zip(row["node_ids"], row["work"], names, strict=True)
                node_works = [(node, work) for node, work, other in works if other == name]
                total = sum(work for _, work in node_works)
                time_s = float(booked.values[i, place[name]]) / row["run_weight"]
                for node, work in node_works:
                    times[node] += time_s * (work / total if total else 1 / len(node_works))
                    bases[node][row["basis"] if len(names) == 1 else SHARED] = None
        return {key: (time_s, ", ".join(bases[key])) for key, time_s in times.items()}

    def _price_rows(self, rows: pl.DataFrame) -> Floats:
        """Prices by piece (row) and column: of the model, or else of the piece's own session."""
        if self.model is not None:
            return np.tile(self.model.get_column_prices(self.all_pieces.columns), (rows.height, 1))
        key = ("label", "session", "query")
        place = {owner: i for i, owner in enumerate(self.all_pieces.keys.select(key).iter_rows())}
        assert self._session_prices is not None
        return self._session_prices[[place[owner] for owner in rows.select(key).iter_rows()]]


def _list_piece_rows(measured: Measured) -> pl.DataFrame:
    """The pieces in the order of `build_piece_arrays`, with the weight of their run."""
    group = ["label", "session"]
    weights = measured.executions.select(
        *group,
        "sql_id",
        "query",
        run="number",
        run_weight=pl.col("wall_s").median().over(group) / pl.col("wall_s").sum().over(group),
        query_s=pl.col("wall_s").median().over(group),
    )
    joined = measured.pieces.filter(pl.col("wall_s") > 0).join(weights, on=[*group, "sql_id"])
    return joined.sort(*group, "sql_id", "piece")
