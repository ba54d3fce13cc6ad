"""Reads a report folder of inference-perf (0.6.1 and 0.7) with one entry per request.

The entries do not say which stage they are of: stages run one after the other, so the entries in the order of sending
are cut by the counts of the stages' own reports, and the cuts are checked against the time that each stage sent for.
The tool times the text of an answer alone: where reasoning came before it, the time to the first token is unknown.
Latencies count from sending, since no entry says when it was due; a stage whose own report has long delays of sending
is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from workbench.core.data_files import read_yaml_file
from workbench.core.errors import InputError
from workbench.sizing.load.client_messages import find_longest_gap_s
from workbench.sizing.other_tools import imported_sweep
from workbench.sizing.other_tools.imported_sweep import (
    Arrivals,
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    LoadFormat,
    check_totals,
    classify_failure,
    correct_arrival_rate,
    count_later_tokens,
)

REQUESTS_FILE_NAME = "per_request_lifecycle_metrics.json"
_STAGE_FILE_NAME = re.compile(r"stage_(\d{1,6})_lifecycle_metrics\.json")
_MAX_SPAN_ERROR_S = 1e-3
# Latencies from sending are those from when requests were due, where the delay of sending is at most this share.
_MAX_DELAY_FRACTION = 0.05
_MAX_CONFIG_BYTES = 1 << 20
_REASONING = re.compile(r'"reasoning(?:_content)?"\s*:\s*"[^"]')


class Details(msgspec.Struct):
    """Parts of the server's count of the answer."""

    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's own counts."""

    completion_tokens: int | None = None
    completion_tokens_details: Details | None = None


class Response(msgspec.Struct):
    """An answer: tokens by the tool's tokenizer, and the times of the events that held some of it."""

    output_tokens: int | None = None
    server_usage: Usage | None = None
    chunk_times: list[float] = []


class Info(msgspec.Struct):
    """Known facts about a request and its answer."""

    input_tokens: int | None = None
    response_metrics: Response | None = None


class Failure(msgspec.Struct):
    """Why a request failed."""

    error_type: str = ""
    error_msg: str = ""


class Entry(msgspec.Struct):
    """A request; times in s on the tool's clock. `response`: The stream as it came, unless the run left it out."""

    start_time: float
    end_time: float
    response: Any = None
    info: Info | None = None
    error: Failure | None = None


class Delay(msgspec.Struct):
    """Time from when requests were due until they were sent, in s."""

    mean: float = 0.0
    max: float = 0.0
    p99: float | None = None


class Load(msgspec.Struct):
    """Load of a stage."""

    count: int
    send_duration: float | None = None
    requested_rate: float | None = None
    concurrency: int | None = None
    schedule_delay: Delay | None = None


class Count(msgspec.Struct):
    """Number of requests."""

    count: int | None = None


class Stage(msgspec.Struct):
    """A stage's own report."""

    load_summary: Load
    successes: Count | None = None


def read_inference_perf(path: Path) -> ImportedSweep:
    """Read a report folder, one step a stage."""
    folder = path if path.is_dir() else path.parent
    stages = _read_stages(folder)
    entries = sorted(
        imported_sweep.read_json_document(folder / REQUESTS_FILE_NAME, list[Entry]), key=lambda entry: entry.start_time
    )
    counts = sum(stage.load_summary.count for stage in stages.values())
    if counts != len(entries):
        raise InputError(
            "requests and stages do not fit together",
            where=folder,
            found=f"{len(entries)} entries, {counts} requests in the reports of {len(stages)} stages",
            do="import the whole report folder, with all of its stages",
        )
    sweep = ImportedSweep("inference-perf", "", False, [])
    arrivals = _read_arrivals(folder)
    began_s, place = entries[0].start_time, 0
    for number, stage in stages.items():
        load, label = stage.load_summary, f"stage {number}"
        stage_entries = entries[place : place + load.count]
        place += load.count
        span_s = stage_entries[-1].start_time - stage_entries[0].start_time
        if load.send_duration is not None and abs(span_s - load.send_duration) > _MAX_SPAN_ERROR_S:
            sent = f"its {load.count} entries were sent in {span_s:.6g} s"
            raise InputError(
                "the entries of a stage cannot be distinguished from those of others",
                where=label,
                found=f"{sent}, its report says {load.send_duration:.6g} s",
            )
        requests = [_build_request(entry, began_s) for entry in stage_entries]
        # Make the time to the first token unknown where reasoning came before the text, with a note.
        reasoned = [request for entry, request in zip(stage_entries, requests, strict=True) if _has_reasoning(entry)]
        for request in reasoned:
            request.first_token_s = request.longest_gap_s = None
        if reasoned:
            sweep.notes.append(
                f"{label}: ttft is unknown for {len(reasoned)} of {len(requests)} requests had reasoning before "
                f"their text, and "
                "the tool times the text alone"
            )
        check_totals(stage.successes.count if stage.successes else None, requests, label)
        if load.concurrency is None and _was_sent_late(load.schedule_delay, requests, label, sweep.notes):
            continue
        if load.concurrency is not None:
            sweep.steps.append(ImportedStep("users", load.concurrency, None, None, requests))
        elif load.requested_rate is not None:
            rate_per_s = correct_arrival_rate(load.requested_rate, requests, label, sweep.notes)
            sweep.steps.append(ImportedStep(arrivals, None, rate_per_s, None, requests))
        else:
            raise InputError("a stage without a rate and without a concurrency", where=label)
    if any(step.users is None for step in sweep.steps):
        sweep.notes.append("latencies count from sending: the file does not say when a request was due")
    return sweep


def _read_stages(folder: Path) -> dict[int, Stage]:
    """Read the reports of the stages that sent requests, by number of the stage."""
    files = {int(name[1]): file for file in folder.iterdir() if (name := _STAGE_FILE_NAME.fullmatch(file.name))}
    if not files or not (folder / REQUESTS_FILE_NAME).is_file():
        raise InputError(
            "no times of single requests, or no reports of stages",
            where=folder,
            found=sorted(file.name for file in folder.iterdir())[:20],
            allowed=f"{REQUESTS_FILE_NAME} beside stage_0_lifecycle_metrics.json",
            do="run inference-perf with report.request_lifecycle.per_request: true",
        )
    stages = {number: imported_sweep.read_json_document(files[number], Stage) for number in sorted(files)}
    return {number: stage for number, stage in stages.items() if stage.load_summary.count > 0}


def _has_reasoning(entry: Entry) -> bool:
    """Whether the stream holds reasoning; without the stream, whether the server counts any."""
    if isinstance(entry.response, str):
        return _REASONING.search(entry.response) is not None
    response = entry.info.response_metrics if entry.info else None
    details = response.server_usage.completion_tokens_details if response and response.server_usage else None
    return bool(details and details.reasoning_tokens)


def _was_sent_late(delay: Delay | None, requests: list[ImportedRequest], label: str, notes: list[str]) -> bool:
    """Whether requests were sent long after they were due, with a note: a latency from sending lacks that wait."""
    if delay is None:
        return False
    late_s = delay.max if delay.p99 is None else delay.p99
    latencies = sorted(request.ended_s - request.sent_s for request in requests)
    if late_s <= _MAX_DELAY_FRACTION * latencies[int(0.95 * (len(latencies) - 1))]:
        return False
    notes.append(
        f"{label}: excluded: requests were sent {delay.mean:.3g} s late on average and up to {late_s:.3g} s "
        "(schedule_delay), and no entry has its own delay: the tool limited the load"
    )
    return True


def _read_arrivals(folder: Path) -> Arrivals:
    """The process of the load, by the configuration that lies beside the reports; unknown without."""
    file = folder / "config.yaml"
    document: Any = None
    if file.is_file():
        document = read_yaml_file(file, noun="configuration of inference-perf", max_bytes=_MAX_CONFIG_BYTES)
    load = document.get("load") if isinstance(document, dict) else None
    kind = load.get("type") if isinstance(load, dict) else None
    return "constant" if kind == "constant" else "poisson" if kind == "poisson" else "trace"


def _build_request(entry: Entry, began_s: float) -> ImportedRequest:
    sent_s, ended_s = entry.start_time - began_s, entry.end_time - began_s
    info = entry.info or Info()
    if entry.error is not None:
        kind, status = classify_failure(f"{entry.error.error_type} {entry.error.error_msg}")
        return ImportedRequest(sent_s, sent_s, ended_s, kind, status, input_tokens=info.input_tokens)
    response = info.response_metrics or Response()
    counted = response.server_usage.completion_tokens if response.server_usage else None
    tokens, times = response.output_tokens if counted is None else counted, response.chunk_times
    first_s = times[0] - began_s if times else None
    later, note = count_later_tokens(tokens, len(times))
    return ImportedRequest(
        intended_s=sent_s,
        sent_s=sent_s,
        ended_s=ended_s,
        first_token_s=first_s,
        first_output_s=first_s,
        longest_gap_s=find_longest_gap_s(times),
        itl_s=(times[-1] - times[0]) / later if len(times) > 1 and later else None,
        llm_s=[ended_s - sent_s],
        input_tokens=info.input_tokens,
        output_tokens=None if note else tokens,
        later_tokens=later if len(times) > 1 else None,
        event_tokens=tokens / len(times) if tokens and times else None,
        stream=note,
    )


def _is_report(path: Path) -> bool:
    return path.name == REQUESTS_FILE_NAME or (path / REQUESTS_FILE_NAME).is_file()


FORMAT = LoadFormat(name="inference-perf", owns=_is_report, read=read_inference_perf)
