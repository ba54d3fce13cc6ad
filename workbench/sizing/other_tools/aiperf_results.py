"""Reads aiperf's `profile_export.jsonl` and its summary as steps (aiperf 0.9 to 0.13).

Times are Unix nanoseconds. aiperf issues a credit when a request is due. In runs with a request rate, latencies count
from that time; with a fixed concurrency they count from the send time, as in aiperf.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from workbench.core.errors import InputError
from workbench.sizing.load.client_messages import OTHER_COUNT
from workbench.sizing.other_tools import imported_sweep
from workbench.sizing.other_tools.imported_sweep import (
    MAX_COUNT_ERROR,
    Arrivals,
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    LoadFormat,
    classify_failure,
    correct_arrival_rate,
    count_later_tokens,
    is_held_down,
)

RECORDS_FILE_NAME = "profile_export.jsonl"
SUMMARY_FILE_NAMES = ("profile_export_aiperf.json", "profile_export_aiperf.json.gz")
ARRIVALS: dict[str, Arrivals] = {
    "concurrency": "users",
    "poisson": "poisson",
    "constant": "constant",
    "gamma": "trace",
    "user_centric": "constant",
    "fixed_schedule": "trace",
}
_SECONDS_PER_UNIT = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}


class Metadata(msgspec.Struct):
    """Times at which a request was due, sent and finished."""

    request_start_ns: int
    request_end_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False
    conversation_id: str | None = None
    turn_index: int = 0


class Metric(msgspec.Struct):
    """Metric value with its unit."""

    value: Any = None
    unit: str = ""


class Failure(msgspec.Struct):
    """Error of a failed request."""

    type: str | None = None
    code: int | None = None
    message: str | None = None


class Record(msgspec.Struct):
    """Line of `profile_export.jsonl`."""

    metadata: Metadata
    metrics: dict[str, Metric] = {}
    error: Failure | None = None


class Phase(msgspec.Struct):
    """Load phase of a run."""

    type: str
    kind: str = "profiling"
    concurrency: int | None = None
    rate: float | None = None


class Endpoint(msgspec.Struct):
    """Endpoint under load."""

    timeout: float | None = None


class ModelName(msgspec.Struct):
    """Name of a model."""

    name: str = ""


class Models(msgspec.Struct):
    """Models under load."""

    items: list[ModelName] = []


class LoadGenerator(msgspec.Struct):
    """The load as versions before phases have it."""

    concurrency: int | None = None
    request_rate: float | None = None
    request_rate_mode: str | None = None


class InputConfig(msgspec.Struct):
    """Input configuration of a run."""

    phases: list[Phase] = []
    loadgen: LoadGenerator | None = None
    endpoint: Endpoint = msgspec.field(default_factory=Endpoint)
    models: Models = msgspec.field(default_factory=Models)


class Summary(msgspec.Struct):
    """Fields read from `profile_export_aiperf.json`."""

    input_config: InputConfig
    aiperf_version: str = ""


def find_record_files(path: Path) -> list[Path]:
    """Find record files: the file itself, or all files of an artifact folder, including sweeps and trials."""
    if path.is_file():
        return [path]
    return sorted(
        file
        for file in path.rglob(RECORDS_FILE_NAME + "*")
        if file.name in (RECORDS_FILE_NAME, RECORDS_FILE_NAME + ".gz")
    )


def read_aiperf(path: Path) -> ImportedSweep:
    """Read the runs of an artifact folder as steps."""
    files = find_record_files(path)
    if not files:
        raise InputError(
            "no records of single requests",
            where=path,
            allowed=RECORDS_FILE_NAME,
            do="run aiperf with --export-level records",
        )
    sweep = ImportedSweep("aiperf", "", True, [])
    for file in files:
        summary_file = next((one for name in SUMMARY_FILE_NAMES if (one := file.with_name(name)).is_file()), None)
        if summary_file is None:
            allowed = SUMMARY_FILE_NAMES[0]
            raise InputError("the summary with the load is missing", where=file.parent, allowed=allowed)
        summary = imported_sweep.read_json_document(summary_file, Summary)
        sweep.version = summary.aiperf_version
        models = {model.name for model in summary.input_config.models.items}
        sweep.simulated = sweep.simulated and models == {"workbench-simulator"}
        label = file.relative_to(path).as_posix() if path.is_dir() else file.name
        where = f"{summary_file}, input_config.phases"
        # Build a step from AIPerf's records of one run; warm-up and cancelled requests are left out, with a note.
        notes = sweep.notes
        phases = [phase for phase in summary.input_config.phases if phase.kind == "profiling"]
        if (load := summary.input_config.loadgen) is not None and not summary.input_config.phases:
            kind = load.request_rate_mode or "poisson" if load.request_rate else "concurrency"
            concurrency = load.concurrency if load.request_rate else load.concurrency or 1
            phases = [Phase(kind, rate=load.request_rate, concurrency=concurrency)]
        if len(phases) != 1:
            raise InputError("exactly one profiling phase is supported", where=where, found=len(phases))
        phase = phases[0]
        arrivals = ARRIVALS.get(phase.type)
        if arrivals is None:
            raise InputError("unknown type of phase", where=where, found=phase.type, allowed=ARRIVALS)
        if arrivals == "users" and not phase.concurrency:
            raise InputError("not a concurrency", where=where, found=phase.concurrency)
        requests = []
        left_out = {"warm-up": 0, "cancelled at the end of the run": 0}
        for record in imported_sweep.read_json_lines(file, Record):
            if record.metadata.benchmark_phase != "profiling":
                left_out["warm-up"] += 1
            elif (
                record.metadata.was_cancelled and "timeout" not in ((record.error and record.error.type) or "").lower()
            ):
                left_out["cancelled at the end of the run"] += 1
            else:
                requests.append(_build_request(record, arrivals != "users", label))
        notes += [f"{label}: {count} requests excluded ({reason})" for reason, count in left_out.items() if count]
        # A credit is given when the cap has room, not when a request is due.
        if arrivals != "users" and requests and is_held_down(requests, phase.concurrency, label, notes):
            requests = []
        rate_per_s = None
        if arrivals != "users" and requests:
            rate_per_s = correct_arrival_rate(phase.rate, requests, label, notes)
        timeout_s = summary.input_config.endpoint.timeout or None
        step = ImportedStep(arrivals, phase.concurrency, rate_per_s, timeout_s, requests)
        if step.requests:
            sweep.steps.append(step)
        else:
            sweep.notes.append(f"{label}: excluded, no request remains")
    return sweep


def _build_request(record: Record, scheduled: bool, label: str) -> ImportedRequest:
    about, metrics = record.metadata, record.metrics
    sent_s, ended_s = about.request_start_ns / 1e9, about.request_end_ns / 1e9
    kind, status = "ok", None
    if (error := record.error) is not None:
        code = error.code if error.code is not None and 100 <= error.code <= 599 else None
        kind, status = classify_failure(f"{error.type or ''} {error.message or ''}", code)
    ttft_s, ttfo_s = (_metric_seconds(metrics.get(f"time_to_first_{which}token")) for which in ("", "output_"))
    told, counted = (_first_count(metrics, name) for name in ("usage_completion_tokens", "output_sequence_length"))
    # The tool divides by its own tokenizer's count, which may be another than the server's; events may hold several.
    gaps_s = _list_seconds(metrics.get("inter_chunk_latency"))
    events = len(gaps_s) + 1 if gaps_s else 0
    agrees = not told or not counted or abs(told - counted) <= 1 + MAX_COUNT_ERROR * counted
    agrees = agrees and count_later_tokens(counted, events)[1] is None
    return ImportedRequest(
        intended_s=about.credit_issued_ns / 1e9 if scheduled and about.credit_issued_ns is not None else sent_s,
        sent_s=sent_s,
        ended_s=ended_s,
        outcome=kind,
        status=status,
        first_token_s=None if ttft_s is None else sent_s + ttft_s,
        first_output_s=None if ttfo_s is None else sent_s + ttfo_s,
        longest_gap_s=max(gaps_s, default=0.0) or None,
        itl_s=_metric_seconds(metrics.get("inter_token_latency")) if agrees else None,
        llm_s=[ended_s - sent_s] if error is None else None,
        input_tokens=_first_count(metrics, "usage_prompt_tokens", "input_sequence_length", "error_isl"),
        output_tokens=None if not agrees else counted if told is None else told,
        event_tokens=counted / events if counted and events else told / counted if told and counted else None,
        stream=None if agrees else OTHER_COUNT,
        # Conversation ids are unique only within a run.
        prompt=f"{label}/{about.conversation_id}/{about.turn_index}" if about.conversation_id else "",
    )


def _metric_seconds(metric: Metric | None) -> float | None:
    values = [] if metric is None else _list_seconds(Metric([metric.value], metric.unit))
    return values[0] if values else None


def _list_seconds(metric: Metric | None) -> list[float]:
    """Values of a metric that has several; none where one of them is no number, or the unit is unknown."""
    values = metric.value if metric is not None and isinstance(metric.value, list) else []
    if (
        metric is None
        or metric.unit not in _SECONDS_PER_UNIT
        or not all(isinstance(one, int | float) for one in values)
    ):
        return []
    return [float(one) * _SECONDS_PER_UNIT[metric.unit] for one in values]


def _first_count(metrics: dict[str, Metric], *names: str) -> int | None:
    """First available metric; counts of the server come before those of the client."""
    for name in names:
        metric = metrics.get(name)
        if metric is not None and isinstance(metric.value, int | float):
            return round(metric.value)
    return None


FORMAT = LoadFormat(name="aiperf", owns=lambda path: path.name.startswith(RECORDS_FILE_NAME), read=read_aiperf)
