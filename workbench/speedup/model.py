"""A factor model: what calibration found, as a JSON file that predictions are made from; checked when read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench import files
from workbench.errors import InputError
from workbench.speedup.calibration import Factors
from workbench.speedup.parts import Floats

MAX_BYTES = 16 << 20
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Term(_Part):
    """What is known of one operator, group or kind of time."""

    operator: str
    log_factor: Finite = Field(description="Log of baseline over candidate, drawn to the engine-wide factor.")
    log_se: NotNegative | None = Field(description="Its standard error; null with one session.")
    log_price: Finite | None = Field(description="Log of candidate seconds per unit of work; null where unknown.")
    baseline_share: NotNegative
    n_queries: int = Field(ge=0)
    quality: str
    left_on_cpu_share: NotNegative | None = None


class FactorModel(_Part):
    """Factors of one pair of engines, with all that a prediction needs and where they come from."""

    format_version: Literal[1] = 1
    method: Literal["calibrated"] = "calibrated"
    baseline: str
    candidate: str
    baseline_engine: str
    candidate_engine: str
    terms: list[Term] = Field(min_length=1)
    groups: list[list[str]] = Field(description="Operators that no query told apart.")
    prices: dict[str, NotNegative] = Field(description="Baseline seconds per unit of work, to split shared times.")
    log_overall: Finite = Field(description="Log of the engine-wide factor.")
    overall_log_se: NotNegative | None
    spread: NotNegative = Field(description="How much log factors differ between operators.")
    time_weight: NotNegative = Field(description="How far predictions go by time; the rest by work.")
    calibration: Finite = Field(description="Log of the correction that makes the mean log error nil.")
    log_sd: NotNegative | None = Field(
        description="Root mean square log error of left-out queries; null for one query."
    )
    n_queries: int = Field(ge=1)
    queries: list[str]
    n_baseline_sessions: int = Field(ge=1)
    n_candidate_sessions: int = Field(ge=1)
    n_passes: int = Field(ge=1)
    created_at: str
    package_version: str
    sources: list[dict[str, Any]] = Field(default=[], description="Logs: label, file, sha256.")
    comparability: list[dict[str, Any]] = Field(default=[], description="How the two sides' settings differ.")
    host: dict[str, Any] = {}

    def factors(self, overrides: dict[str, float] | None = None) -> Factors:
        """The arrays that predict, with some factors set by hand.

        Raises
        ------
        InputError
            An override names an operator that has no factor (the nearest names are suggested).
        """
        given = dict(overrides or {})
        known = [term.operator for term in self.terms]
        for name, value in given.items():
            _check_override(name, value, known)
        log_factor = [float(np.log(given[t.operator])) if t.operator in given else t.log_factor for t in self.terms]
        prices = [
            np.nan if t.log_price is None else t.log_price - (log_factor[i] - t.log_factor)
            for i, t in enumerate(self.terms)
        ]
        return Factors(
            tuple(known),
            np.array(log_factor),
            np.array(log_factor),
            np.array([np.nan if t.log_se is None else t.log_se for t in self.terms]),
            np.full(len(known), np.nan),
            np.zeros(len(known)),
            np.array(prices),
            self.log_overall,
            self.spread,
            self.time_weight,
            self.calibration,
        )

    def column_prices(self, columns: tuple[str, ...]) -> Floats:
        """Prices of these columns; unknown ones get the middle price."""
        middle = float(np.median(list(self.prices.values()))) if self.prices else 1.0
        return np.array([self.prices.get(column, middle) for column in columns])

    def write(self, path: str | Path) -> Path:
        """Write the JSON file."""
        return files.write_text(path, self.model_dump_json(indent=1) + "\n")


def read(path: str | Path) -> FactorModel:
    """The model of a JSON file.

    Raises
    ------
    InputError
        No such file, not JSON, or not a factor model: each wrong field is named.
    """
    place = Path(path)
    try:
        content = place.read_bytes()
    except OSError as error:
        raise InputError("cannot read the factor model", where=place, found=error.strerror or str(error)) from error
    if len(content) > MAX_BYTES:
        raise InputError(
            "too large for a factor model", where=place, found=f"{len(content):,} bytes", allowed=MAX_BYTES
        )
    try:
        return FactorModel.model_validate(json.loads(content))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:8]]
        raise InputError("not a factor model", where=place, found="; ".join(wrong), do=_make_one()) from error
    except (ValueError, RecursionError) as error:
        raise InputError("not JSON", where=place, found=str(error)[:200], do=_make_one()) from error


def _make_one() -> str:
    return "make one with: workbench speedup generate RECORDING --output factors.json"


def _check_override(name: str, value: float, known: list[str]) -> None:
    if name not in known:
        import difflib

        near = difflib.get_close_matches(name, known, 3, 0.4) or known[:10]
        raise InputError("no such operator in the factor model", where="--set", found=name, allowed=near)
    if not (np.isfinite(value) and value > 0):
        raise InputError("not a factor", where=f"--set {name}", found=value, allowed="a finite number above 0")
