"""Reads the result of `vllm bench serve --save-result --save-detailed` (vLLM 0.11 and newer), one step a document.

Only detailed results have a time for each request. Latencies count from when a request was due: from its start less
its wait in the tool's own queue, which vLLM since 0.12 writes. Without it, a rate is a level only where the tool's cap
of requests in flight did not hold it down.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from workbench.core.errors import InputError
from workbench.sizing.other_tools import imported_sweep
from workbench.sizing.other_tools.imported_sweep import (
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    LoadFormat,
    check_totals,
    classify_failure,
    correct_arrival_rate,
    count_later_tokens,
    is_held_down,
)


class Result(msgspec.Struct):
    """Fields of a result file; lists have an entry for each request."""

    num_prompts: int
    request_rate: float | str = "inf"
    max_concurrency: int | None = None
    burstiness: float = 1.0
    completed: int | None = None
    ramp_up_strategy: str | None = None
    ramp_up_start_rps: float | None = None
    ramp_up_end_rps: float | None = None
    input_lens: list[int] = []
    output_lens: list[int] = []
    ttfts: list[float] = []
    itls: list[list[float]] = []
    errors: list[str | None] = []
    start_times: list[float] = []
    queue_times: list[float] = []
    endpoint_type: str = ""


def read_vllm(path: Path) -> ImportedSweep:
    """Read a result as one step; of results that were appended to one file, each is a step."""
    sweep = ImportedSweep("vllm", "", False, [])
    results = imported_sweep.read_json_documents(path, Result)
    for number, result in enumerate(results):
        label = path.name if len(results) == 1 else f"{path.name}, result {number + 1}"
        _add_step(sweep, result, path, label)
    return sweep


def _add_step(sweep: ImportedSweep, result: Result, path: Path, label: str) -> None:
    n = len(result.ttfts)
    lists = (result.input_lens, result.output_lens, result.itls, result.start_times)
    if not n or any(len(values) != n for values in lists):
        raise InputError(
            "no times of single requests",
            where=path,
            found=f"{n} ttfts, {len(result.start_times)} start_times, endpoint {result.endpoint_type or 'unknown'}",
            do="run vllm bench serve on completions or chat with --save-result --save-detailed, vLLM 0.11 or newer",
        )
    if result.ramp_up_strategy:
        raise InputError(
            "a ramp of rates, no level",
            where=label,
            found=f"{result.ramp_up_strategy} from {result.ramp_up_start_rps:g} to {result.ramp_up_end_rps:g} a second",
            do="run vllm bench serve once for each rate, without --ramp-up-strategy, and import each result",
        )
    errors = result.errors if len(result.errors) == n else [None] * n
    has_due_times = len(result.queue_times) == n
    queued = result.queue_times if has_due_times else [0.0] * n
    # In the order of sending; a request that failed before it began has 0, and gets the start of the one before.
    starts, last_s = [], min((start_s for start_s in result.start_times if start_s > 0), default=0.0)
    for start_s in result.start_times:
        last_s = start_s if start_s > 0 else last_s
        starts.append(last_s)
    rows = zip(result.input_lens, result.output_lens, result.itls, starts, result.ttfts, errors, queued, strict=True)
    requests = [_build_request(*row) for row in rows]
    check_totals(result.completed, requests, label)
    rate = float(result.request_rate)
    if not math.isfinite(rate):
        # All at once where no concurrency is given.
        step = ImportedStep("users", result.max_concurrency or n, None, None, requests)
        for request in requests:
            request.intended_s = request.sent_s
    else:
        if not has_due_times and is_held_down(requests, result.max_concurrency, label, sweep.notes):
            return
        arrivals = "constant" if math.isinf(result.burstiness) else "poisson" if result.burstiness == 1 else "trace"
        rate_per_s = correct_arrival_rate(rate, requests, label, sweep.notes)
        if not has_due_times:
            sweep.notes.append(f"{label}: latencies count from sending: the file does not say when a request was due")
        step = ImportedStep(arrivals, None, rate_per_s, None, requests)  # type: ignore[arg-type]
    sweep.steps.append(step)


def _build_request(
    input_tokens: int,
    output_tokens: int,
    gaps_s: list[float],
    start_s: float,
    ttft_s: float,
    error: str | None,
    queued_s: float,
) -> ImportedRequest:
    """Build a request from its start, its time to the first token and the gaps between later events, in seconds."""
    span_s = sum(gaps_s)
    # Answers other than 200 without a reason have no text of an error, and no time.
    is_empty = not output_tokens and not ttft_s
    kind, status = classify_failure(error) if error else ("failed" if is_empty else "ok", None)
    ok = kind == "ok"
    events = len(gaps_s) + 1
    later, note = count_later_tokens(output_tokens, events)
    return ImportedRequest(
        intended_s=max(0.0, start_s - max(0.0, queued_s)),
        sent_s=start_s,
        ended_s=start_s + ttft_s + span_s,
        outcome=kind,
        status=status,
        first_token_s=start_s + ttft_s if ok else None,
        longest_gap_s=max(gaps_s, default=0.0) or None,
        itl_s=span_s / later if ok and gaps_s and later else None,
        llm_s=[ttft_s + span_s] if ok else None,
        input_tokens=input_tokens,
        output_tokens=None if note else output_tokens,
        later_tokens=later if ok and gaps_s else None,
        event_tokens=output_tokens / events,
        stream=note if ok else None,
    )


FORMAT = LoadFormat(name="vllm", marks=(('"request_throughput"', '"num_prompts"'),), read=read_vllm)
