"""The ledger: an append-only file of forecasts and outcomes, one JSON document a line; several may write at once.

A line is never changed. A last line that a killed writer left half is left out, and removed by the next writer; any
other line that cannot be read is an error with its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, model_validator

from workbench.core import redaction
from workbench.core.data_files import parse_json
from workbench.core.errors import ConfigError, InputError, RunFailedError, WorkbenchError, refuse_os_errors
from workbench.core.files import default_out, read_up_to
from workbench.core.formats import CONTROL_CHARACTERS
from workbench.core.journal import Journal
from workbench.core.schema import FiniteModel, check_format_version, validate_model

FORMAT_VERSION = 2
# What a forecast that is there twice may differ in: it was kept again, or by an older version.
_OF_KEEPING = {"kept_at", "format_version", "application"}
LEDGER_FILE = "forecasts.jsonl"
MAX_LEDGER_BYTES = 64 << 20
NOUN = "ledger of forecasts"
_WAIT_S = 20.0
# Ends that were computed in logarithms may miss their own value in the last digits.
_ROUNDING = 1e-9


def _refuse_controls(text: str) -> str:
    if CONTROL_CHARACTERS.search(text) or "\n" in text:
        raise ValueError("must be one line without control characters")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_refuse_controls)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
# Times, ratios, counts and rates: none of them is ever below 0.
Amount = Annotated[float, Field(ge=0)]
Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class Figure(FiniteModel):
    """A value with its interval; an end that is not known is null."""

    value: Amount | None = None
    low: Amount | None = None
    high: Amount | None = None
    unit: Annotated[str, StringConstraints(max_length=40), AfterValidator(_refuse_controls)] = ""
    run_id: Name | None = None
    folder: Text | None = Field(None, description="Name of the run's folder, without its place.")
    application: Text | None = Field(None, description="Id of the application that was predicted or measured.")
    inputs_sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    kept_at: AwareDatetime = Field(description="When the line was written.")
    note: Annotated[str, StringConstraints(max_length=1000), AfterValidator(_refuse_controls)] = ""

    @model_validator(mode="after")
    def _check_ends(self) -> Figure:
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the lower end {self.low:g} is above the upper end {self.high:g}")
        if self.value is None:
            return self
        if self.low is not None and self.low > self.value * (1 + _ROUNDING):
            raise ValueError(f"the value {self.value:g} is below its lower end {self.low:g}")
        if self.high is not None and self.high < self.value * (1 - _ROUNDING):
            raise ValueError(f"the value {self.value:g} is above its upper end {self.high:g}")
        return self


class Forecast(Figure):
    """A forecast of a quantity of a subject: what a workbench or a person said before the outcome was known."""

    kind: Literal["forecast"] = "forecast"
    format_version: int = FORMAT_VERSION
    id: Id
    made_at: AwareDatetime = Field(description="End of the run that made it, or when it was kept by hand.")
    area: Name
    subject: Text
    quantity: Text
    value: Amount
    level: float = Field(gt=0, lt=1, description="Nominal level of the interval.")
    retrospective: bool = Field(False, description="The outcome was known to someone when the forecast was made.")

    @property
    def matter(self) -> tuple[str, str, str]:
        """What it is about: area, subject and quantity."""
        return self.area, self.subject, self.quantity


class Outcome(Figure):
    """What became of a forecast: a value, or why there is none."""

    kind: Literal["outcome"] = "outcome"
    format_version: int = FORMAT_VERSION
    forecast: Id
    failure: Text | None = None
    observed_at: AwareDatetime = Field(description="End of the run that measured it, or when it was given by hand.")
    measured_at: AwareDatetime | None = Field(None, description="When its measurement began; null if nothing says so.")
    verdict: Text | None = Field(None, description="Verdict of the run, or its status without one; null by hand.")

    @model_validator(mode="after")
    def _check_value(self) -> Outcome:
        if (self.value is None) == (self.failure is None):
            raise ValueError("either a value or a failure is needed")
        return self


Entry = Forecast | Outcome
_MODELS: dict[object, type[Forecast] | type[Outcome]] = {"forecast": Forecast, "outcome": Outcome}


@dataclass(frozen=True)
class Ledger:
    """Forecasts by id and all outcomes; `n_torn_bytes` of a half last line were left out."""

    forecasts: dict[str, Forecast]
    outcomes: tuple[Outcome, ...]
    n_torn_bytes: int = 0

    @cached_property
    def newest_outcomes(self) -> dict[str, Outcome]:
        """The outcome that counts, by forecast: the one that was kept last."""
        return {outcome.forecast: outcome for outcome in sorted(self.outcomes, key=_order)}

    def find_forecast(self, name: str) -> Forecast:
        """The forecast of an id, or of the start of one."""
        matches = [forecast for forecast in self.forecasts.values() if name and forecast.id.startswith(name)]
        if len(matches) != 1:
            finding = [forecast.id for forecast in matches[:5]] or f"none that begins with {name[:60]!r}"
            raise ConfigError(
                "not one forecast", where="--forecast", found=finding, do="workbench forecast score --open lists them"
            )
        return matches[0]


def _order(entry: Entry) -> tuple[datetime, str]:
    # The text decides between entries of one moment, so that the order of lines does not.
    return entry.kept_at, entry.model_dump_json()


def default_ledger() -> Path:
    """The ledger beside the runs; of runs at a URL, which nothing can be appended to, in the folder of this machine."""
    return default_out() / LEDGER_FILE


def read_ledger(path: str | Path) -> Ledger:
    """Read a ledger."""
    with refuse_os_errors(f"cannot read the {NOUN}", path, do="workbench forecast add RUN begins one"):
        content = read_up_to(path, MAX_LEDGER_BYTES)
    return parse_ledger(content, path)


def parse_ledger(content: bytes, where: object) -> Ledger:
    """The ledger of a file's bytes.

    A forecast that is there twice, as in two ledgers that were joined, counts once, as it was kept first.
    """
    *lines, rest = content.split(b"\n")
    n_torn_bytes = 0
    if _is_document(rest):
        lines.append(rest)
    elif rest.strip():
        n_torn_bytes = len(rest)
    forecasts: dict[str, Forecast] = {}
    outcomes: dict[int, Outcome] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _parse_entry(line, f"{where}, line {number}")
        if isinstance(entry, Outcome):
            outcomes[number] = entry
        elif (known := forecasts.get(entry.id)) is None:
            forecasts[entry.id] = entry
        elif known.model_dump(exclude=_OF_KEEPING) != entry.model_dump(exclude=_OF_KEEPING):
            raise InputError("two forecasts of one id", where=f"{where}, line {number}", found=entry.id)
        else:
            forecasts[entry.id] = min(known, entry, key=_order)
    for number, outcome in outcomes.items():
        if outcome.forecast not in forecasts:
            place = f"{where}, line {number}"
            raise InputError("an outcome of a forecast that does not exist", where=place, found=outcome.forecast)
    return Ledger(forecasts, tuple(outcomes.values()), n_torn_bytes)


def _is_document(rest: bytes) -> bool:
    """Whether a line only lacks its end: no beginning of an object reads as one."""
    try:
        parse_json(rest, noun=NOUN)
    except InputError:
        return False
    return True


def _parse_entry(line: bytes, where: str) -> Entry:
    document = parse_json(line, noun=NOUN, where=where)
    kind = document.get("kind") if isinstance(document, dict) else None
    model = _MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InputError(f"not a line of a {NOUN}", where=where, found=f"kind {kind!r}"[:80], allowed=list(_MODELS))
    check_format_version(document, FORMAT_VERSION, noun=f"line of a {NOUN}", where=where, is_required=True)
    return validate_model(
        model, document, noun=f"{kind} of a ledger", where=where, do="correct or remove this line; no line is skipped"
    )


def build_entry(
    model: type[Forecast] | type[Outcome],
    values: dict[str, Any],
    *,
    where: object,
    flags: dict[str, str] | None = None,
    error_type: type[WorkbenchError] = InputError,
    do: str | None = None,
) -> Any:
    """The entry of these values, without secrets."""
    clean = redaction.redact_value(values)
    return validate_model(
        model, clean, noun=model.__name__.lower(), where=where, flags=flags or {}, error_type=error_type, do=do
    )


def append_entries(path: str | Path, choose: Callable[[Ledger], Sequence[Entry]]) -> Ledger:
    """Append the entries that `choose` makes of the ledger as it is; returns that ledger, without them.

    Other writers wait meanwhile, so that what `choose` decided still holds when its entries are written. They are on
    disk when this returns, all of them or none.
    """
    path, busy = Path(path), f"another process writes the {NOUN}"
    try:
        # All entries or none: half of them would be an outcome of which nobody was told.
        file = Journal(
            path,
            _encode_entry,
            noun=f"the {NOUN}",
            as_one=True,
            busy=busy,
            wait_s=_WAIT_S,
            is_whole=_is_document,
        )
    except RunFailedError as error:
        do = "choose another file with --ledger FILE"
        raise ConfigError(error.what, where=path, found=error.facts["found"], do=do) from None
    with file:
        ledger = read_ledger(path)
        entries = choose(ledger)
        n_new_bytes = sum(len(_encode_entry(entry)) for entry in entries)
        if entries and path.stat().st_size - ledger.n_torn_bytes + n_new_bytes > MAX_LEDGER_BYTES:
            do = "begin another one with --ledger FILE"
            allowed = f"at most {MAX_LEDGER_BYTES >> 20} MiB"
            raise ConfigError(f"the {NOUN} is full", where=path, allowed=allowed, do=do)
        for entry in entries:
            file.put(entry)
        file.flush(sync=True)
        return ledger


def _encode_entry(entry: Entry) -> bytes:
    return json.dumps(entry.model_dump(mode="json"), ensure_ascii=False).encode() + b"\n"
