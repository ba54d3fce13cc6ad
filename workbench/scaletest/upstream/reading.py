"""submitted.json and sampled.json: bounded, each row checked; what is odd is told by row, never dropped silently."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from workbench import files
from workbench.errors import InputError
from workbench.scaletest import times
from workbench.scaletest.upstream.chain import FALLBACKS, FIELDS, Milestone

SUBMITTED, SAMPLED = "submitted.json", "sampled.json"
MOST_BYTES = 512 << 20
MOST_ROWS = 1_000_000
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_OLDEST_NS, _NEWEST_NS = 946_684_800 * times.NS, 7_258_118_400 * times.NS  # the years 2000 to 2199
Key = tuple[str, str]


class _SubmittedRow(msgspec.Struct, rename="camel"):
    job_name: str
    project_name: str
    job_namespace: str
    submit_timestamp: str


@dataclass(frozen=True, slots=True)
class Submitted:
    """A workload as the submitter wrote it. `at_ns`: its clock, microseconds."""

    row: int
    name: str
    project: str
    namespace: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """A workload as the sampler wrote it: each milestone in seconds since 1970, null where it wrote its fallback."""

    row: int
    name: str
    project: str
    namespace: str
    at_s: dict[Milestone, int | None]


@dataclass(frozen=True, slots=True)
class Odd:
    """An entry that is left out, or kept with a word about it."""

    file: str
    row: int
    name: str | None
    why: str
    left_out: bool = True


@dataclass(frozen=True)
class Files:
    """What both files hold: rows that can be used, and what is odd."""

    submitted: list[Submitted]
    sampled: list[Sampled]
    odd: list[Odd] = field(default_factory=list)

    @property
    def by_key(self) -> dict[Key, Submitted]:
        """Submissions by name and project."""
        return {(one.name, one.project): one for one in self.submitted}


def read(folder: str | Path) -> Files:
    """The two files of a folder of the old tool.

    Raises
    ------
    InputError
        A file is missing, too large, no JSON list, or none of its rows can be used.
    """
    place = Path(folder)
    odd: list[Odd] = []
    submitted = _submitted(place / SUBMITTED, odd)
    sampled = _sampled(place / SAMPLED, odd)
    return _compared(_unique(Files(submitted, sampled, odd)))


def read_submitted(folder: str | Path) -> list[Submitted]:
    """submitted.json alone, as far as its rows can be used: it may still be growing.

    Raises
    ------
    InputError
        As for `read`.
    """
    return _submitted(Path(folder) / SUBMITTED, [])


def _rows(path: Path) -> list[msgspec.Raw]:
    try:
        text = files.read_bounded(path, MOST_BYTES)
        rows = msgspec.json.decode(text, type=list[msgspec.Raw])
    except FileNotFoundError:
        raise InputError(
            f"no {path.name}", where=path.parent, do="give the output folder (-o) of the old tool's runs"
        ) from None
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("not a JSON list", where=path, found=str(error)[:200]) from None
    if len(rows) > MOST_ROWS:
        raise InputError("too many workloads", where=path, found=len(rows), allowed=f"up to {MOST_ROWS}")
    return rows


def _submitted(path: Path, odd: list[Odd]) -> list[Submitted]:
    found, decoder = [], msgspec.json.Decoder(_SubmittedRow)
    for row, raw in enumerate(_rows(path)):
        try:
            one = decoder.decode(raw)
            _check(one.job_name, one.project_name, one.job_namespace)
            at = _stamp(one.submit_timestamp, "submitTimestamp")
        except (msgspec.MsgspecError, ValueError) as error:
            odd.append(Odd(SUBMITTED, row, _name_in(raw), _why(error)))
            continue
        found.append(Submitted(row, one.job_name, one.project_name, one.job_namespace, at.ns))
    if not found and odd:
        raise InputError("no row that can be used", where=path, found=odd[0].why)
    return found


def _sampled(path: Path, odd: list[Odd]) -> list[Sampled]:
    found, decoder, before = [], msgspec.json.Decoder(dict[str, Any]), len(odd)
    for row, raw in enumerate(_rows(path)):
        try:
            found.append(_sample(row, decoder.decode(raw)))
        except (msgspec.MsgspecError, ValueError) as error:
            odd.append(Odd(SAMPLED, row, _name_in(raw), _why(error)))
    if not found and len(odd) > before:
        raise InputError("no row that can be used", where=path, found=odd[before].why)
    return found


def _sample(row: int, one: dict[str, Any]) -> Sampled:
    names = ("jobName", "projectName", "jobNamespace")
    if missing := [name for name in (*names, *FIELDS.values()) if name not in one]:
        raise ValueError("missing: " + ", ".join(missing))
    _check(*(one[name] for name in names))
    at = {milestone: _stamp(one[name], name).ns // times.NS for milestone, name in FIELDS.items()}
    # The fallback is written as if it had been measured; a true time of the same second cannot be told from it.
    told: dict[Milestone, int | None] = {
        name: None if name in FALLBACKS and second == at[FALLBACKS[name]] else second for name, second in at.items()
    }
    return Sampled(row, one["jobName"], one["projectName"], one["jobNamespace"], told)


def _check(*names: object) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"not a name of Kubernetes: {str(name)[:60]!r}")


def _stamp(text: object, name: str) -> times.Stamp:
    """Its time; the old tool drops an offset, we count it."""
    shown = str(text)[:60]
    whole = text.replace(" ", "T", 1) if isinstance(text, str) else ""
    found = times.stamp(whole) or times.stamp(whole + "Z")
    if found is None or not _OLDEST_NS <= found.ns < _NEWEST_NS:
        raise ValueError(f"{name} is no time: {shown!r}")
    return found


def _name_in(raw: msgspec.Raw) -> str | None:
    try:
        name = msgspec.json.decode(raw).get("jobName")
    except (msgspec.MsgspecError, AttributeError, RecursionError, UnicodeDecodeError):
        return None
    return name[:253] if isinstance(name, str) else None


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _unique(found: Files) -> Files:
    """One row a workload: of several submissions the last counts, as for the old tool; of several samples the first."""
    last = found.by_key
    kept = []
    for one in found.submitted:
        if last[one.name, one.project] is one:
            kept.append(one)
        else:
            found.odd.append(Odd(SUBMITTED, one.row, one.name, "submitted again later: the last one counts"))
    first: dict[Key, Sampled] = {}
    for sample in found.sampled:
        if first.setdefault((sample.name, sample.project), sample) is not sample:
            found.odd.append(Odd(SAMPLED, sample.row, sample.name, "sampled twice: the first one counts"))
    return Files(kept, list(first.values()), found.odd)


def _compared(found: Files) -> Files:
    """What one file has and the other has not."""
    known = found.by_key
    for sample in found.sampled:
        if (sample.name, sample.project) not in known:
            found.odd.append(Odd(SAMPLED, sample.row, sample.name, "not in submitted.json: no time of submission"))
    sampled = {(one.name, one.project) for one in found.sampled}
    for one in found.submitted:
        if (one.name, one.project) not in sampled:
            why = "not in sampled.json: it was not complete, or gone, when it was sampled"
            found.odd.append(Odd(SUBMITTED, one.row, one.name, why, left_out=False))
    return found
