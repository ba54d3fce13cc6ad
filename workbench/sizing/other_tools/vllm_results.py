"""Reads the result of `vllm bench serve --save-result --save-detailed` (vLLM 0.11 and newer) as one step.

Only detailed results have a time for each request. Times count from the start of the benchmark; a request's latency
counts from when it was sent, because the file does not say when it was due.
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
    classify_failure,
    correct_arrival_rate,
    count_later_tokens,
)


class Result(msgspec.Struct):
    """Fields of a result file; lists have an entry for each request."""

    num_prompts: int
    request_rate: float | str = "inf"
    max_concurrency: int | None = None
    burstiness: float = 1.0
    input_lens: list[int] = []
    output_lens: list[int] = []
    ttfts: list[float] = []
    itls: list[list[float]] = []
    errors: list[str] = []
    start_times: list[float] = []


def read_vllm(path: Path) -> ImportedSweep:
    """Read a result as one step."""
    result = imported_sweep.read_json_document(path, Result)
    n = len(result.ttfts)
    lists = (result.input_lens, result.output_lens, result.itls, result.start_times)
    if not n or any(len(values) != n for values in lists):
        raise InputError(
            "no times of single requests",
            where=path,
            found=f"{n} ttfts, {len(result.start_times)} start_times",
            do="run vllm bench serve with --save-result --save-detailed, vLLM 0.11 or newer",
        )
    errors = result.errors if len(result.errors) == n else [""] * n
    sweep = ImportedSweep("vllm", "", False, [])
    requests = [_build_request(*row) for row in zip(*lists, result.ttfts, errors, strict=True)]
    rate = float(result.request_rate)
    if math.isfinite(rate):
        arrivals = "constant" if math.isinf(result.burstiness) else "poisson" if result.burstiness == 1 else "trace"
        rate_per_s = correct_arrival_rate(rate, requests, path.name, sweep.notes)
        sweep.notes.append("latencies count from sending: the file does not say when a request was due")
        step = ImportedStep(arrivals, None, rate_per_s, None, requests)  # type: ignore[arg-type]
    else:
        # All at once where no concurrency is given.
        step = ImportedStep("users", result.max_concurrency or n, None, None, requests)
    step.began_s = min(request.sent_s for request in requests)
    sweep.steps.append(step)
    return sweep


def _build_request(
    input_tokens: int, output_tokens: int, gaps_s: list[float], start_s: float, ttft_s: float, error: str
) -> ImportedRequest:
    """Build a request from its start, its time to the first token and the gaps between later events, in seconds."""
    start_s, span_s = max(0.0, start_s), sum(gaps_s)
    kind, status = ("ok", None) if not error else classify_failure(error)
    events = len(gaps_s) + 1
    later, note = count_later_tokens(output_tokens, events)
    return ImportedRequest(
        intended_s=start_s,
        sent_s=start_s,
        ended_s=start_s + ttft_s + span_s,
        outcome=kind,
        status=status,
        first_token_s=start_s + ttft_s if kind == "ok" else None,
        itl_s=span_s / later if kind == "ok" and gaps_s and later else None,
        llm_s=[ttft_s + span_s] if kind == "ok" else None,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        later_tokens=later if kind == "ok" and gaps_s else None,
        event_tokens=output_tokens / events,
        stream=note,
    )
