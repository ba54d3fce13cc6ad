"""Factor model: JSON file with the factors of a pair; exports to CSV and Parquet.

Predicted seconds of a query on the candidate, from seconds and work of each term on the baseline and counts of the
candidate's plan:

    sum over members of weight * exp(calibration) * (sum over terms of multiplier * D + sum over costs of cost * count)

where D is (seconds / factor) ** time_weight * (work * price) ** (1 - time_weight), or, without a time weight, seconds
over the engine-wide factor. Work is millions of rows; price is the candidate's seconds per unit of it. A term without
work or price is predicted from its time alone. A term is an operator, a kind of time, or a group of operators that no
query separates, joined by " + ". Counts are 1, the operators that the engine runs, and those that it leaves to Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import StrictModel, read_model_file
from workbench.speedup.calibration.factors import Factors
from workbench.speedup.calibration.plan_costs import COSTS, Member, Predictor
from workbench.speedup.calibration.time_split import Floats
from workbench.speedup.compat_rapids_tools import seed_factors
from workbench.speedup.rapids_facts import list_known_operators

MAX_BYTES = 16 << 20
# What numbers with rounding errors may be off by.
ROUNDING = 1e-6
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Log of a factor or price that is a finite number above 0 itself.
Log = Annotated[float, Field(ge=-700, le=700, allow_inf_nan=False)]
Name = Annotated[str, StringConstraints(min_length=1)]


def _check_share(value: float) -> float:
    if not 0 <= value <= 1 + ROUNDING:
        raise ValueError("must be a share from 0 to 1")
    return value


Share = Annotated[float, AfterValidator(_check_share)]
# Names that the original tools use, where they are not the operator's with "Exec".
EXECS = {
    "Scan parquet": ("FileSourceScanExec", "BatchScanExec"),
    "Scan orc": ("FileSourceScanExec", "BatchScanExec"),
    "Exchange": ("ShuffleExchangeExec",),
}


class Term(StrictModel):
    """Factor of one operator, group or kind of time, with its uncertainty."""

    operator: Name
    log_factor: Log = Field(description="Log of baseline over candidate, shrunk towards the engine-wide factor.")
    log_se: NotNegative | None = Field(description="Its standard error; null with one session.")
    log_price: Log | None = Field(description="Log of candidate seconds per unit of work; null where unknown.")
    baseline_share: Share
    n_queries: int = Field(ge=0)
    quality: str
    left_on_cpu_share: Share | None = None


class ModelMember(StrictModel):
    """One way to predict; members are averaged by weight."""

    time_weight: Share | None = Field(
        description="Weight of time in operators' predictions; work has the rest. Null: the engine-wide factor for all."
    )
    multipliers: dict[str, NotNegative] = Field(description="Multiplier of each term's prediction; 1 for others.")
    costs_s: list[NotNegative] = Field(
        min_length=len(COSTS), max_length=len(COSTS), description=f"Seconds for {', '.join(COSTS)}."
    )
    calibration: Log = Field(description="Log of the correction that makes the mean log error zero.")
    weight: Share


class ModelPredictor(StrictModel):
    """Ways to predict, averaged by their weights."""

    members: list[ModelMember] = Field(min_length=1)
    log_sd: NotNegative | None = Field(
        description="Root mean square log error of left-out queries; null for one query."
    )

    @classmethod
    def build_from(cls, predictor: Predictor, terms: Sequence[str]) -> ModelPredictor:
        """A predictor as it is written."""
        members = [
            ModelMember(
                time_weight=member.time_weight,
                multipliers={t: x for t, x in zip(terms, member.multipliers.tolist(), strict=True) if x != 1.0},
                costs_s=member.costs.tolist(),
                calibration=member.calibration,
                weight=member.weight,
            )
            for member in predictor.members
        ]
        return cls(members=members, log_sd=predictor.log_sd)

    def build_predictor(self, terms: Sequence[str]) -> Predictor:
        """The predictor as arrays; its left-out errors are not in the file."""
        return Predictor(
            tuple(
                Member(
                    member.time_weight,
                    np.array([member.multipliers.get(term, 1.0) for term in terms]),
                    np.array(member.costs_s),
                    member.calibration,
                    member.weight,
                )
                for member in self.members
            )
        )

    @property
    def is_constant(self) -> bool:
        """Whether nothing beat the engine-wide factor, which then predicts alone."""
        return all(member.time_weight is None and not member.multipliers for member in self.members)


class FactorModel(StrictModel):
    """Factors of one pair of engines, with everything that a prediction needs, and their origin."""

    format_version: Literal[1, 2] = 2
    method: Literal["calibrated"] = "calibrated"
    baseline: str
    candidate: str
    baseline_engine: str
    candidate_engine: str
    terms: list[Term] = Field(min_length=1)
    groups: list[list[str]] = Field(description="Operators that no query separates.")
    prices: dict[str, Positive] = Field(description="Baseline seconds per unit of work, to split shared times.")
    log_overall: Log = Field(description="Log of the engine-wide factor.")
    overall_log_se: NotNegative | None
    spread: NotNegative = Field(description="Spread of log factors between operators.")
    by_plan: ModelPredictor = Field(description="Predicts queries whose plan on the candidate is known.")
    by_log: ModelPredictor = Field(description="Predicts queries of which only a log of the baseline is known.")
    log_fixed_rate: Log | None = Field(
        default=None, description="Log of the baseline's seconds outside operators per planned operator; null: unknown."
    )
    left_operators: list[str] = Field(default=[], description="Operators that the candidate mostly left to Spark.")
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

    @model_validator(mode="before")
    @classmethod
    def _read_first_format(cls, document: Any) -> Any:
        """Files of format 1 have a single member without costs, and corrections that no recording ever had."""
        if not isinstance(document, dict) or document.get("format_version") != 1:
            return document
        rest = {name: value for name, value in document.items() if name != "correction" or value}
        member = {name: rest.pop(name) for name in ("time_weight", "calibration") if name in rest}
        member |= {"multipliers": {}, "costs_s": [0.0] * len(COSTS), "weight": 1.0}
        predictor = {"members": [member], "log_sd": rest.pop("log_sd", None)}
        return rest | {"by_plan": predictor, "by_log": predictor, "format_version": 2}

    def build_factors(self, overrides: dict[str, float] | None = None) -> Factors:
        """The factors as arrays, some of them overridden."""
        chosen = dict(overrides or {})
        operators = [term.operator for term in self.terms]
        for name, value in chosen.items():
            _check_override(name, value, operators)
        log_factor = [float(np.log(chosen[t.operator])) if t.operator in chosen else t.log_factor for t in self.terms]
        # A factor that is overridden changes the candidate's price of work by as much.
        prices = [
            np.nan if t.log_price is None else t.log_price - (log_factor[i] - t.log_factor)
            for i, t in enumerate(self.terms)
        ]
        return Factors(
            terms=tuple(operators),
            # The file has only the shrunk factors: raw ones, degrees of freedom and shrinkage are unknown, and a
            # prediction needs none of them.
            log_raw=np.array(log_factor),
            degrees=np.full(len(operators), np.nan),
            shrinkage=np.zeros(len(operators)),
            log_factor=np.array(log_factor),
            log_se=np.array([np.nan if t.log_se is None else t.log_se for t in self.terms]),
            log_price=np.array(prices),
            log_overall=self.log_overall,
            log_even=self.log_overall + np.array([log_factor[i] - t.log_factor for i, t in enumerate(self.terms)]),
            spread=self.spread,
            by_plan=self.by_plan.build_predictor(operators),
            by_log=self.by_log.build_predictor(operators),
        )

    def get_column_prices(self, columns: tuple[str, ...]) -> Floats:
        """Prices of these columns; unknown columns get the median price."""
        middle = float(np.median(list(self.prices.values()))) if self.prices else 1.0
        return np.array([self.prices.get(column, middle) for column in columns])

    def write(self, path: str | Path) -> Path:
        """Write the JSON file."""
        return files.write_text(path, self.model_dump_json(indent=1) + "\n")


def load_factor_model(path: str | Path) -> FactorModel:
    """Read a factor model from its JSON file, and check that its parts fit together."""
    do = "make one with: workbench speedup generate RECORDING --output factors.json"
    model = read_model_file(FactorModel, path, noun="factor model", max_bytes=MAX_BYTES, do=do)
    for field, found, allowed in _list_contradictions(model):
        raise InputError("not a factor model", where=f"{path}, {field}", found=found, allowed=allowed, do=do)
    return model


def _list_contradictions(model: FactorModel) -> Iterator[tuple[str, object, str]]:
    """Fields that do not fit the others: the field, what was found, and what is allowed."""
    operators = [term.operator for term in model.terms]
    grouped = [operator for group in model.groups for operator in group]
    for field, names in (("terms", operators), ("groups", grouped), ("queries", model.queries)):
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            yield field, [f"{name} twice" for name in repeated[:10]], "each name once"
    if small := [group for group in model.groups if len(group) < 2]:
        yield "groups", small[0] or "an empty group", "two operators or more"
    if (total := sum(term.baseline_share for term in model.terms)) > 1 + ROUNDING:
        yield "terms", f"baseline shares that add up to {total:g}", "at most 1"
    for field, predictor in (("by_plan", model.by_plan), ("by_log", model.by_log)):
        total = sum(member.weight for member in predictor.members)
        if abs(total - 1) > ROUNDING:
            yield f"{field}.members", f"weights that add up to {total:g}", "1"
        named = {name for member in predictor.members for name in member.multipliers}
        if unknown := sorted(named - set(operators)):
            yield f"{field}.members", f"multipliers of {', '.join(unknown[:10])}", "operators of the terms"


def _check_override(name: str, value: float, operators: list[str]) -> None:
    """Refuse a changed factor whose operator the model does not have, or that is no finite number above 0."""
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
        notes.append(f"skipped, unknown to the original tools: {', '.join(left_out)}")
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
