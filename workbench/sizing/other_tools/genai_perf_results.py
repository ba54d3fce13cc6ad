"""Reads genai-perf's `profile_export.json`, which perf_analyzer writes, one step an experiment.

Times are Unix nanoseconds: when a request was sent, and when each of its events came. Latencies count from sending:
the file does not say when a request was due. It holds no counts of tokens, so figures per token are unknown.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from workbench.core.errors import InputError
from workbench.sizing.load.client_messages import find_longest_gap_s
from workbench.sizing.other_tools import imported_sweep
from workbench.sizing.other_tools.imported_sweep import (
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    LoadFormat,
    correct_arrival_rate,
)

# An event that holds some of the answer: the first one often holds its role alone.
_CONTENT = re.compile(r'"(?:content|text|reasoning_content|arguments)"\s*:\s*"[^"]')


class Output(msgspec.Struct):
    """An event as it came."""

    response: str | None = None


class Request(msgspec.Struct):
    """A request; times in ns."""

    timestamp: int
    response_timestamps: list[int] = []
    response_outputs: list[Output] = []
    success: bool = True


class Load(msgspec.Struct):
    """What was held: users, or a rate."""

    mode: str
    value: float


class Experiment(msgspec.Struct):
    """A level of load with its requests."""

    experiment: Load
    requests: list[Request] = []


class Result(msgspec.Struct):
    """A result file."""

    experiments: list[Experiment]


def read_genai_perf(path: Path) -> ImportedSweep:
    """Read the experiments of a file as steps."""
    sweep = ImportedSweep("genai-perf", "", False, [])
    for number, one in enumerate(imported_sweep.read_json_document(path, Result).experiments):
        label = f"experiments[{number}]"
        if not one.requests:
            sweep.notes.append(f"{label}: excluded, it has no requests")
            continue
        requests = [_build_request(request) for request in one.requests]
        mode, value = one.experiment.mode, one.experiment.value
        if mode == "concurrency":
            step = ImportedStep("users", round(value), None, None, requests)
        elif mode == "request_rate":
            step = ImportedStep(
                "trace", None, correct_arrival_rate(value, requests, label, sweep.notes), None, requests
            )
            sweep.notes.append(f"{label}: latencies count from sending: the file does not say when a request was due")
        else:
            allowed = ("concurrency", "request_rate")
            raise InputError("unknown mode of load", where=f"{path}, {label}", found=mode, allowed=allowed)
        sweep.steps.append(step)
    return sweep


def _build_request(request: Request) -> ImportedRequest:
    sent_s, times = request.timestamp / 1e9, request.response_timestamps
    ended_s = times[-1] / 1e9 if times else sent_s
    ok = request.success and bool(times)
    texts = [output.response or "" for output in request.response_outputs]
    told = [time for time, text in zip(times, texts, strict=False) if _CONTENT.search(text)] if any(texts) else times
    # An answer in one piece was not streamed.
    first = told[0] if len(times) > 1 and told else None
    return ImportedRequest(
        intended_s=sent_s,
        sent_s=sent_s,
        ended_s=ended_s,
        outcome="ok" if ok else "failed",
        first_token_s=first / 1e9 if ok and first is not None else None,
        longest_gap_s=find_longest_gap_s([time / 1e9 for time in told]),
        llm_s=[ended_s - sent_s] if ok else None,
    )


FORMAT = LoadFormat(
    name="genai-perf",
    marks=(('"experiments"', '"response_timestamps"'),),
    read=read_genai_perf,
    report_name="profile_export.json",
)
