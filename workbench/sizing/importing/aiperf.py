"""aiperf's exports: `profile_export.jsonl` has the requests, `profile_export_aiperf.json` beside it the load (0.13).

Times are Unix nanoseconds. A credit is issued when a request is due: where a rate was asked for, latencies count from
that; among users from the sending, as that tool counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from workbench.errors import InputError
from workbench.sizing.importing import reading
from workbench.sizing.importing.sweep import Arrivals, Imported, Request, Step, held_rate, outcome

RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"
ARRIVALS: dict[str, Arrivals] = {
    "concurrency": "users",
    "poisson": "poisson",
    "constant": "constant",
    "gamma": "trace",
    "user_centric": "constant",
    "fixed_schedule": "trace",
}
_MS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}


class Metadata(msgspec.Struct):
    """When a request was due, sent and over."""

    request_start_ns: int
    request_end_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False
    conversation_id: str | None = None
    turn_index: int = 0


class Metric(msgspec.Struct):
    """A figure with its unit."""

    value: Any = None
    unit: str = ""


class Failure(msgspec.Struct):
    """Why a request failed."""

    type: str | None = None
    code: int | None = None
    message: str | None = None


class Record(msgspec.Struct):
    """A line of `profile_export.jsonl`."""

    metadata: Metadata
    metrics: dict[str, Metric] = {}
    error: Failure | None = None


class Phase(msgspec.Struct):
    """A load."""

    type: str
    kind: str = "profiling"
    concurrency: int | None = None
    rate: float | None = None


class Endpoint(msgspec.Struct):
    """What was driven."""

    timeout: float | None = None


class Named(msgspec.Struct):
    """A model."""

    name: str = ""


class Models(msgspec.Struct):
    """The models."""

    items: list[Named] = []


class InputConfig(msgspec.Struct):
    """What was asked for."""

    phases: list[Phase]
    endpoint: Endpoint = msgspec.field(default_factory=Endpoint)
    models: Models = msgspec.field(default_factory=Models)


class Summary(msgspec.Struct):
    """Of `profile_export_aiperf.json` what is needed."""

    input_config: InputConfig
    aiperf_version: str = ""


def find(path: Path) -> list[Path]:
    """The files of records at a path: the file itself, or all of an artifact folder, sweeps and trials included."""
    if path.is_file():
        return [path]
    return sorted(found for found in path.rglob(RECORDS + "*") if found.name in (RECORDS, RECORDS + ".gz"))


def read(path: Path) -> Imported:
    """The runs of an artifact folder as steps.

    Raises
    ------
    InputError
        There are no records of single requests, no summary beside them, or either is not as expected.
    """
    files = find(path)
    if not files:
        raise InputError(
            "no records of single requests", where=path, allowed=RECORDS, do="run aiperf with --export-level records"
        )
    found = Imported("aiperf", "", True, [])
    for file in files:
        summary = reading.document(_summary(file), Summary)
        found.version = summary.aiperf_version
        models = {model.name for model in summary.input_config.models.items}
        found.simulated = found.simulated and models == {"workbench-simulator"}
        label = file.relative_to(path).as_posix() if path.is_dir() else file.name
        step = _step(file, summary.input_config, label, found.notes)
        if step.requests:
            step.began_s = min(request.intended_s for request in step.requests)
            found.steps.append(step)
        else:
            found.notes.append(f"{label}: no request in it, left out")
    return found


def _summary(file: Path) -> Path:
    for name in (SUMMARY, SUMMARY + ".gz"):
        if (found := file.with_name(name)).is_file():
            return found
    raise InputError("the summary that names the load is missing", where=file.parent, allowed=SUMMARY)


def _step(file: Path, config: InputConfig, label: str, notes: list[str]) -> Step:
    phases = [phase for phase in config.phases if phase.kind == "profiling"]
    where = f"{_summary(file)}, input_config.phases"
    if len(phases) != 1:
        raise InputError("one profiling phase is expected", where=where, found=len(phases))
    phase = phases[0]
    arrivals = ARRIVALS.get(phase.type)
    if arrivals is None:
        raise InputError("a phase that is not known", where=where, found=phase.type, allowed=ARRIVALS)
    if arrivals == "users" and not phase.concurrency:
        raise InputError("no concurrency", where=where, found=phase.concurrency)
    requests = []
    left_out = {"sent to warm up": 0, "cut when it ended": 0}
    for record in reading.lines(file, Record):
        if record.metadata.benchmark_phase != "profiling":
            left_out["sent to warm up"] += 1
        elif record.metadata.was_cancelled and not _timed_out(record):
            left_out["cut when it ended"] += 1
        else:
            requests.append(_request(record, arrivals != "users", label))
    notes += [f"{label}: {count} requests were {why}, and are left out" for why, count in left_out.items() if count]
    rate_per_s = None if arrivals == "users" or not requests else held_rate(phase.rate, requests, label, notes)
    timeout_s = config.endpoint.timeout or None
    return Step(arrivals, phase.concurrency, rate_per_s, timeout_s, requests)


def _timed_out(record: Record) -> bool:
    return record.error is not None and "timeout" in (record.error.type or "").lower()


def _request(record: Record, scheduled: bool, label: str) -> Request:
    about, metrics = record.metadata, record.metrics
    sent_s, ended_s = about.request_start_ns / 1e9, about.request_end_ns / 1e9
    ok = record.error is None
    kind, status = ("ok", None) if record.error is None else _failure(record.error)
    ttft_s = _seconds(metrics.get("time_to_first_token"))
    return Request(
        intended_s=about.credit_issued_ns / 1e9 if scheduled and about.credit_issued_ns is not None else sent_s,
        sent_s=sent_s,
        ended_s=ended_s,
        outcome=kind,
        status=status,
        first_token_s=None if ttft_s is None else sent_s + ttft_s,
        itl_s=_seconds(metrics.get("inter_token_latency")),
        llm_s=[ended_s - sent_s] if ok else None,
        input_tokens=_count(metrics, "usage_prompt_tokens", "input_sequence_length", "error_isl"),
        output_tokens=_count(metrics, "usage_completion_tokens", "output_sequence_length"),
        # Names of conversations are given out anew in each run.
        prompt=f"{label}/{about.conversation_id}/{about.turn_index}" if about.conversation_id else "",
    )


def _failure(error: Failure) -> tuple[str, int | None]:
    words = f"{error.type or ''} {error.message or ''}"
    return outcome(words, error.code if error.code is not None and 100 <= error.code <= 599 else None)


def _seconds(metric: Metric | None) -> float | None:
    if metric is None or not isinstance(metric.value, int | float) or metric.unit not in _MS:
        return None
    return float(metric.value) * _MS[metric.unit]


def _count(metrics: dict[str, Metric], *names: str) -> int | None:
    """The first that is there: what the server told is better than what the client counted."""
    for name in names:
        metric = metrics.get(name)
        if metric is not None and isinstance(metric.value, int | float):
            return round(metric.value)
    return None
