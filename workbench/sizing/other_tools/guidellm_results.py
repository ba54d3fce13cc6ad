"""Reads guidellm's JSON report (0.5 to 0.8, and 0.2 and 0.3): each benchmark becomes a step.

Times are Unix seconds. guidellm's `request_latency` counts from the send time. In benchmarks with a request rate,
latencies here count from `targeted_start`, the time at which the request was due.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from workbench.core.errors import InputError
from workbench.sizing.other_tools import imported_sweep
from workbench.sizing.other_tools.imported_sweep import (
    Arrivals,
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    LoadFormat,
    classify_failure,
    correct_arrival_rate,
    count_later_tokens,
)

ARRIVALS: dict[str, Arrivals] = {
    "synchronous": "users",
    "concurrent": "users",
    "throughput": "users",
    "constant": "constant",
    "poisson": "poisson",
    "trace": "trace",
}


class Timings(msgspec.Struct):
    """Timestamps of a request."""

    targeted_start: float | None = None
    resolve_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    first_output_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int | None = None
    request_end: float | None = None
    resolve_end: float | None = None


class Info(msgspec.Struct):
    """Status and timings of a request."""

    timings: Timings
    error: str | None = None


class Usage(msgspec.Struct):
    """Token counts, from the server if it reports them."""

    total_tokens: int | None = None


class RequestStats(msgspec.Struct):
    """Measurements of a request."""

    info: Info
    input_metrics: Usage
    output_metrics: Usage
    request_args: str | None = None


class Requests(msgspec.Struct):
    """Requests by status; incomplete ones were cancelled at the end of the benchmark."""

    successful: list[RequestStats]
    errored: list[RequestStats] = []
    incomplete: list[RequestStats] = []


class Strategy(msgspec.Struct):
    """Scheduling strategy of the requests."""

    type_: str
    streams: int | None = None
    max_concurrency: int | None = None
    rate: float | None = None


class Backend(msgspec.Struct):
    """Backend under load."""

    model: str | None = None
    timeout: float | None = None


class Config(msgspec.Struct):
    """Configuration of a benchmark."""

    strategy: Strategy
    backend: Backend = msgspec.field(default_factory=Backend)


class State(msgspec.Struct):
    """Counts of all requests, including those that are not in the file."""

    successful_requests: int = 0
    errored_requests: int = 0


class Benchmark(msgspec.Struct):
    """Benchmark at one load."""

    config: Config
    requests: Requests
    scheduler_state: State = msgspec.field(default_factory=State)


class Metadata(msgspec.Struct):
    """Metadata of the report."""

    guidellm_version: str = ""


class Report(msgspec.Struct):
    """Report file."""

    benchmarks: list[Benchmark]
    metadata: Metadata


def read_guidellm(path: Path) -> ImportedSweep:
    """Read the benchmarks of a report as steps."""
    if '"guidellm_version"' not in imported_sweep.read_file_head(path):
        # Reports of 0.2 and 0.3, which do not say when a request was due.
        sweep = ImportedSweep("guidellm", "0.2 or 0.3", False, [])
        for number, old in enumerate(imported_sweep.read_json_document(path, OldReport).benchmarks):
            kinds = (old.requests.successful, old.requests.errored, old.requests.incomplete)
            requests = Requests(*([_convert_old_request(request) for request in kind] for kind in kinds))
            n_steps, label = len(sweep.steps), f"benchmarks[{number}]"
            _add_step(sweep, Benchmark(Config(old.args.strategy), requests), path, label)
            if len(sweep.steps) > n_steps and sweep.steps[-1].arrivals != "users":
                sweep.notes.append(f"{label}: latencies count from sending, since the planned times are unknown")
        return sweep
    report = imported_sweep.read_json_document(path, Report)
    models = {benchmark.config.backend.model for benchmark in report.benchmarks}
    sweep = ImportedSweep("guidellm", report.metadata.guidellm_version, models == {"workbench-simulator"}, [])
    for number, benchmark in enumerate(report.benchmarks):
        _add_step(sweep, benchmark, path, f"benchmarks[{number}]")
    return sweep


def _add_step(sweep: ImportedSweep, benchmark: Benchmark, path: Path, label: str) -> None:
    """Add the step of a benchmark; incomplete requests, and those that the file lacks, are noted."""
    strategy, requests = benchmark.config.strategy, benchmark.requests
    where = f"{path}, {label}.config.strategy"
    arrivals = ARRIVALS.get(strategy.type_)
    if arrivals is None:
        raise InputError("unknown strategy", where=where, found=strategy.type_, allowed=ARRIVALS)
    users = 1 if strategy.type_ == "synchronous" else strategy.streams or strategy.max_concurrency
    if arrivals == "users" and not users:
        raise InputError("no number of streams", where=where, found=strategy.type_)
    listed = [_build_request(stats, arrivals != "users", ok=True) for stats in requests.successful]
    listed += [_build_request(stats, arrivals != "users", ok=False) for stats in requests.errored]
    entries = [request for request in listed if request is not None]
    rate_per_s = None
    if arrivals != "users" and entries:
        rate_per_s = correct_arrival_rate(strategy.rate, entries, label, sweep.notes)
    state, n = benchmark.scheduler_state, len(entries)
    sent = state.successful_requests + state.errored_requests
    if requests.incomplete:
        sweep.notes.append(f"{label}: {len(requests.incomplete)} requests excluded (cancelled at the end of the run)")
    if sent > n:
        sweep.notes.append(
            f"{label}: the file has {n} of {sent} requests (a sample, or without times): rates are too low"
        )
    if not n:
        sweep.notes.append(f"{label}: excluded, it has no requests")
        return
    sweep.steps.append(ImportedStep(arrivals, users, rate_per_s, benchmark.config.backend.timeout, entries))


def _build_request(stats: RequestStats, scheduled: bool, *, ok: bool) -> ImportedRequest | None:
    times = stats.info.timings
    sent_s = times.request_start if times.request_start is not None else times.resolve_start
    ended_s = times.request_end if times.request_end is not None else times.resolve_end
    if sent_s is None or ended_s is None:
        return None
    first_s, last_s = times.first_token_iteration, times.last_token_iteration
    tokens, events = stats.output_metrics.total_tokens, times.token_iterations or 0
    later, note = count_later_tokens(tokens, events)
    kind, status = ("ok", None) if ok else classify_failure(stats.info.error or "")
    return ImportedRequest(
        intended_s=times.targeted_start if scheduled and times.targeted_start is not None else sent_s,
        sent_s=sent_s,
        ended_s=ended_s,
        outcome=kind,
        status=status,
        first_token_s=first_s,
        first_output_s=times.first_output_token_iteration,
        itl_s=(last_s - first_s) / later if first_s and last_s and later else None,
        llm_s=[ended_s - sent_s] if ok else None,
        input_tokens=stats.input_metrics.total_tokens,
        output_tokens=None if note else tokens,
        prompt=hashlib.sha256((stats.request_args or "").encode()).hexdigest() if stats.request_args else "",
        later_tokens=later,
        event_tokens=tokens / events if tokens and events else None,
        stream=note if ok else None,
    )


class OldRequest(msgspec.Struct):
    """A request in reports of guidellm 0.2 and 0.3."""

    start_time: float | None = None
    end_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt: str | None = None
    error: str | None = None


class OldRequests(msgspec.Struct):
    """Requests by status."""

    successful: list[OldRequest]
    errored: list[OldRequest] = []
    incomplete: list[OldRequest] = []


class OldArguments(msgspec.Struct):
    """Arguments of a benchmark."""

    strategy: Strategy


class OldBenchmark(msgspec.Struct):
    """Benchmark at one load."""

    args: OldArguments
    requests: OldRequests


class OldReport(msgspec.Struct):
    """Report file without metadata."""

    benchmarks: list[OldBenchmark]


def _convert_old_request(old: OldRequest) -> RequestStats:
    timings = Timings(
        request_start=old.start_time,
        request_end=old.end_time,
        first_token_iteration=old.first_token_time,
        last_token_iteration=old.last_token_time,
    )
    info = Info(timings, old.error)
    return RequestStats(info, Usage(old.prompt_tokens), Usage(old.output_tokens), old.prompt)


FORMAT = LoadFormat(
    name="guidellm",
    marks=(('"guidellm_version"|"generative_benchmark"',),),
    read=read_guidellm,
    report_name="benchmarks.json",
)
