"""Files of Run:ai's tool: submitted.json, sampled.json and times.csv, read by row and written in its formats."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from workbench.core import files
from workbench.core.errors import InputError
from workbench.scaletest.cluster_api import clock
from workbench.scaletest.compat_runai.delta_chain import (
    FALLBACKS,
    FIELDS,
    HEADINGS,
    STEPS,
    US_PER_S,
    Milestone,
    build_deltas,
    milestone_column,
)

if TYPE_CHECKING:
    import polars as pl

SUBMITTED, SAMPLED = "submitted.json", "sampled.json"
MAX_BYTES = 512 << 20
MAX_ROWS = 1_000_000
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_OLDEST_NS, _NEWEST_NS = 946_684_800 * clock.NS_PER_S, 7_258_118_400 * clock.NS_PER_S  # the years 2000 to 2199
Key = tuple[str, str]


TIMES_FILE = "times.csv"
_NAMES = {"name": "Job Name", "namespace": "Namespace", "project": "Project"}
# The old tool's headings: 23 over 26 columns, right up to the ninth only.
_OLD_HEADINGS = (
    "Job Name,Namespace,projectName,Workload Created,Job Created,First Pod Created,Last Pod Created,Pod Group Created,"
    "Pod Scheduling Decision,Workload Submitted,Backend Job Created,Workload Creation,Job Creation,First Pod Creation,"
    "Last Pod Creation,Pod Group Creation,Pod Scheduling Decision,First Eviction,First PVC Bind Request,First PVC Bind,"
    "Backend Job Creation,Total Pod Scheduling Decision,Total Backend Job Creation"
)
# It writes these as the API gave them, the others from Python's datetimes.
_AS_SERVED: frozenset[Milestone] = frozenset({"workload", "job", "podgroup"})


class _SubmittedRow(msgspec.Struct, rename="camel"):
    job_name: str
    project_name: str
    job_namespace: str
    submit_timestamp: str


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A workload as the submitter wrote it. `at_ns`: its clock, microseconds."""

    row: int
    name: str
    project: str
    namespace: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class SampledJob:
    """A workload as the sampler wrote it: each milestone in seconds since 1970, null where it wrote its fallback."""

    row: int
    name: str
    project: str
    namespace: str
    at_s: dict[Milestone, int | None]


@dataclass(frozen=True, slots=True)
class OddRow:
    """An entry that is left out, or kept with a word about it."""

    file: str
    row: int
    name: str | None
    why: str
    left_out: bool = True


@dataclass(frozen=True)
class RunaiFiles:
    """What both files hold: rows that can be used, and what is odd."""

    submitted: list[SubmittedJob]
    sampled: list[SampledJob]
    odd: list[OddRow] = field(default_factory=list)

    @property
    def by_key(self) -> dict[Key, SubmittedJob]:
        """Submissions by name and project."""
        return {(job.name, job.project): job for job in self.submitted}


def read_files(folder: str | Path) -> RunaiFiles:
    """The two files of a folder of the old tool."""
    place = Path(folder)
    odd: list[OddRow] = []
    submitted = _read_submitted_file(place / SUBMITTED, odd)
    sampled = _read_sampled_file(place / SAMPLED, odd)
    return _compare_files(_drop_duplicates(RunaiFiles(submitted, sampled, odd)))


def read_submissions(folder: str | Path) -> list[SubmittedJob]:
    """submitted.json alone, as far as its rows can be used: it may still be growing."""
    return _read_submitted_file(Path(folder) / SUBMITTED, [])


def _read_rows(path: Path) -> list[msgspec.Raw]:
    try:
        text = files.read_up_to(path, MAX_BYTES)
        rows = msgspec.json.decode(text, type=list[msgspec.Raw])
    except FileNotFoundError:
        raise InputError(
            f"no {path.name}", where=path.parent, do="give the output folder (-o) of the old tool's runs"
        ) from None
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("not a JSON list", where=path, found=str(error)[:200]) from None
    if len(rows) > MAX_ROWS:
        raise InputError("too many workloads", where=path, found=len(rows), allowed=f"up to {MAX_ROWS}")
    return rows


def _read_submitted_file(path: Path, odd: list[OddRow]) -> list[SubmittedJob]:
    jobs, decoder = [], msgspec.json.Decoder(_SubmittedRow)
    for row, raw in enumerate(_read_rows(path)):
        try:
            submission = decoder.decode(raw)
            _check_names(submission.job_name, submission.project_name, submission.job_namespace)
            at = _parse_time(submission.submit_timestamp, "submitTimestamp")
        except (msgspec.MsgspecError, ValueError) as error:
            odd.append(OddRow(SUBMITTED, row, _find_name(raw), _format_error(error)))
            continue
        jobs.append(SubmittedJob(row, submission.job_name, submission.project_name, submission.job_namespace, at.ns))
    if not jobs and odd:
        raise InputError("no row that can be used", where=path, found=odd[0].why)
    return jobs


def _read_sampled_file(path: Path, odd: list[OddRow]) -> list[SampledJob]:
    samples, decoder, before = [], msgspec.json.Decoder(dict[str, Any]), len(odd)
    for row, raw in enumerate(_read_rows(path)):
        try:
            samples.append(_parse_sample(row, decoder.decode(raw)))
        except (msgspec.MsgspecError, ValueError) as error:
            odd.append(OddRow(SAMPLED, row, _find_name(raw), _format_error(error)))
    if not samples and len(odd) > before:
        raise InputError("no row that can be used", where=path, found=odd[before].why)
    return samples


def _parse_sample(row: int, fields: dict[str, Any]) -> SampledJob:
    names = ("jobName", "projectName", "jobNamespace")
    if missing := [name for name in (*names, *FIELDS.values()) if name not in fields]:
        raise ValueError("missing: " + ", ".join(missing))
    _check_names(*(fields[name] for name in names))
    at = {milestone: _parse_time(fields[name], name).ns // clock.NS_PER_S for milestone, name in FIELDS.items()}
    # The fallback looks like a measured time; a true time of the same second cannot be distinguished from it.
    seconds: dict[Milestone, int | None] = {
        name: None if name in FALLBACKS and second == at[FALLBACKS[name]] else second for name, second in at.items()
    }
    return SampledJob(row, fields["jobName"], fields["projectName"], fields["jobNamespace"], seconds)


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"not a name of Kubernetes: {str(name)[:60]!r}")


def _parse_time(text: object, name: str) -> clock.ServerTime:
    """Its time; the old tool drops an offset, we count it."""
    shown = str(text)[:60]
    iso_text = text.replace(" ", "T", 1) if isinstance(text, str) else ""
    timestamp = clock.parse_timestamp(iso_text) or clock.parse_timestamp(iso_text + "Z")
    if timestamp is None or not _OLDEST_NS <= timestamp.ns < _NEWEST_NS:
        raise ValueError(f"{name} is no time: {shown!r}")
    return timestamp


def _find_name(raw: msgspec.Raw) -> str | None:
    try:
        name = msgspec.json.decode(raw).get("jobName")
    except (msgspec.MsgspecError, AttributeError, RecursionError, UnicodeDecodeError):
        return None
    return name[:253] if isinstance(name, str) else None


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _drop_duplicates(records: RunaiFiles) -> RunaiFiles:
    """One row a workload: of several submissions the last counts, as for the old tool; of several samples the first."""
    last = records.by_key
    submitted = []
    for job in records.submitted:
        if last[job.name, job.project] is job:
            submitted.append(job)
        else:
            records.odd.append(OddRow(SUBMITTED, job.row, job.name, "submitted again later: the last one counts"))
    first: dict[Key, SampledJob] = {}
    for sample in records.sampled:
        if first.setdefault((sample.name, sample.project), sample) is not sample:
            records.odd.append(OddRow(SAMPLED, sample.row, sample.name, "sampled twice: the first one counts"))
    return RunaiFiles(submitted, list(first.values()), records.odd)


def _compare_files(records: RunaiFiles) -> RunaiFiles:
    """What one file has and the other has not."""
    submissions = records.by_key
    for sample in records.sampled:
        if (sample.name, sample.project) not in submissions:
            records.odd.append(OddRow(SAMPLED, sample.row, sample.name, "not in submitted.json: no time of submission"))
    sampled = {(entry.name, entry.project) for entry in records.sampled}
    for job in records.submitted:
        if (job.name, job.project) not in sampled:
            reason = "not in sampled.json: it was not complete, or gone, when it was sampled"
            records.odd.append(OddRow(SUBMITTED, job.row, job.name, reason, left_out=False))
    return records


def format_times_csv(jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False) -> str:
    """The file's content.

    `bug_compatible`: The old layout: 23 headings over 26 columns, its fallbacks and its deltas; else one heading a
    column, deltas as they are, and nothing where nothing was measured.
    """
    shown = jobs.filter("kept") if skip_errors else jobs
    rows = _build_old_rows(shown) if bug_compatible else _build_rows(shown)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _build_rows(jobs: pl.DataFrame) -> list[list[str]]:
    heads = [*_NAMES.values(), *(f"{name} (UTC)" for name in HEADINGS.values())]
    rows = [[*heads, *(f"{step.name} (s)" for step in STEPS)]]
    by_job = _values_by_job(jobs, "delta_s")
    for row in jobs.iter_rows(named=True):
        cells = [str(row[name]) for name in _NAMES] + [_format_time(row, name) for name in HEADINGS]
        rows.append(cells + ["" if delta is None else str(delta) for delta in by_job[row["row"]]])
    return rows


def _build_old_rows(jobs: pl.DataFrame) -> list[list[str]]:
    rows = [_OLD_HEADINGS.split(",")]
    by_job, clamped = _values_by_job(jobs, "upstream_s"), _values_by_job(jobs, "clamped")
    for row in jobs.iter_rows(named=True):
        cells = [str(row[name]) for name in _NAMES] + [_format_time(row, name, fallback=True) for name in HEADINGS]
        printed = zip(by_job[row["row"]], clamped[row["row"]], strict=True)
        # A difference of times is a float there, a clamped one the whole number 0.
        rows.append(cells + ["0" if was else str(float(delta or 0)) for delta, was in printed])
    return rows


def _values_by_job(jobs: pl.DataFrame, name: str) -> dict[int, list[int | None]]:
    grouped = build_deltas(jobs).group_by("row", maintain_order=True).agg(name)
    return dict(zip(grouped["row"].to_list(), grouped[name].to_list(), strict=True))


def _format_time(row: dict[str, int | None], name: Milestone, *, fallback: bool = False) -> str:
    raw_time = row[milestone_column(name)]
    if raw_time is None and fallback:
        raw_time = row[milestone_column(FALLBACKS[name])]
    if raw_time is None:
        return ""
    second = raw_time // US_PER_S if name == "submitted" else raw_time
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class SentWorkload:
    """A submission that the server took. `at_us`: microseconds since 1970, the client's clock."""

    name: str
    project: str
    namespace: str
    at_us: int

    def to_row(self) -> dict[str, str]:
        """As it stands in submitted.json."""
        return {
            "jobName": self.name,
            "projectName": self.project,
            "jobNamespace": self.namespace,
            "submitTimestamp": datetime.fromtimestamp(self.at_us // US_PER_S, UTC)
            .replace(microsecond=self.at_us % US_PER_S)
            .isoformat(),
        }


def find_project(namespace: str) -> str:
    """The Run:ai project of a namespace: without the prefix, and nothing but the prefix.

    >>> find_project("runai-my-runai-tests"), find_project("team-a")
    ('my-runai-tests', 'team-a')
    """
    return namespace.removeprefix("runai-")


def write_submitted_json(folder: Path, sent: Iterable[SentWorkload]) -> Path:
    """Write submitted.json, whole or not at all."""
    return files.write_text(folder / SUBMITTED, _format_lines(workload.to_row() for workload in sent))


def write_sampled_json(folder: Path, jobs: pl.DataFrame) -> Path:
    """Write sampled.json of the table `upstream_jobs`."""
    return files.write_text(folder / SAMPLED, _format_lines(_format_sample(row) for row in jobs.iter_rows(named=True)))


def write_times_csv(
    folder: Path, jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False
) -> Path:
    """Write times.csv."""
    text = format_times_csv(jobs, skip_errors=skip_errors, bug_compatible=bug_compatible)
    return files.write_text(folder / TIMES_FILE, text)


def _format_sample(row: Mapping[str, Any]) -> dict[str, str]:
    fields = {"jobName": row["name"], "jobNamespace": row["namespace"], "projectName": row["project"]}
    for milestone, name in FIELDS.items():
        second, shape = row[milestone_column(milestone)], milestone
        if second is None:
            shape = FALLBACKS[milestone]
            second = row[milestone_column(shape)]
        text = datetime.fromtimestamp(second, UTC).isoformat()
        fields[name] = text.removesuffix("+00:00") + "Z" if shape in _AS_SERVED else text
    return fields


def _format_lines(rows: Iterable[dict[str, str]]) -> str:
    """One row a line: a list that can be read, and that a diff can show."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
