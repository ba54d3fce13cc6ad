"""SIMULATED runs of load tools against a service of known law, written as each tool writes its result.

A run is drawn first: when each request was due, sent, answered, how many tokens came in which events, what failed and
what the tool's own cap held back. The files are what the tools would have written of it, with what they leave out.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = ("vllm", "guidellm", "aiperf", "inference-perf", "genai-perf")
FOREIGN = ("sglang", "llmperf", "k6", "locust", "evalscope")
# What a run can have; `can_be_told` says for which tools a trait leaves nothing to know.
TRAITS = (
    "open",
    "constant",
    "cap",
    "ramp",
    "failures",
    "empty_failures",
    "failures_at_once",
    "several_tokens",
    "hidden_tokens",
    "other_tokenizer",
    "not_a_number",
    "appended",
    "overload",
    "cancelled",
    "warm_up_phase",
    "more_in_flight",
    "no_streams",
)
T0_S = 1_790_000_000.0
ERRORS = (
    ("TimeoutError()", "timeout", None),
    ("Cannot connect to host 127.0.0.1:8500 ssl:default [Connect call failed ('127.0.0.1', 8500)]", "refused", None),
    ("Server error '503 Service Unavailable' for url 'http://127.0.0.1:8404/v1'", "http_error", 503),
    ("Too Many Requests", "http_error", 429),
    ("ServerDisconnectedError after 500 ms, File client.py, line 404", "cut", None),
)


@dataclass(frozen=True)
class Call:
    """A request as it was; times in s. `tokens` were streamed in `events` events, `hidden` were not."""

    due: float
    sent: float
    first: float
    ended: float
    tokens: int
    events: int
    hidden: int = 0
    error: str = ""
    kind: str = "ok"
    status: int | None = None
    left_out: str = ""

    @property
    def itl(self) -> float:
        """Time between tokens, over those after the first event."""
        return (self.ended - self.first) / max(1e-9, self.tokens * (1 - 1 / self.events))


@dataclass(frozen=True)
class Run:
    """A level of load: `users`, or a `rate` with a cap of requests in flight; `capacity` in requests a second."""

    calls: tuple[Call, ...]
    users: int | None
    rate: float | None
    cap: int | None
    is_constant: bool
    is_ramp: bool
    capacity: float
    told_factor: float
    streams: bool


@dataclass(frozen=True)
class World:
    """Runs of one tool, in the order in which they ran."""

    tool: str
    traits: frozenset[str]
    runs: tuple[Run, ...]


def draw_world(seed: int, tool: str, traits: Sequence[str]) -> World:
    """Draw the runs of a tool with these traits."""
    rng = np.random.default_rng([seed, 11])
    has = frozenset(traits)
    has_levels = tool in ("guidellm", "inference-perf", "genai-perf") or (tool == "vllm" and "appended" in has)
    n_levels = int(rng.integers(1, 4)) if has_levels else 1
    slots, prefill, itl = int(rng.integers(4, 16)), float(rng.uniform(0.05, 0.3)), float(rng.uniform(0.005, 0.03))
    tokens = int(rng.integers(10, 40)) * 4
    per_event = int(rng.integers(2, 5)) if "several_tokens" in has else 1
    began, runs = 0.0, []
    for level in range(n_levels):
        run = _draw_run(rng, tool, has, slots, prefill, itl, tokens, per_event, (level + 1) / n_levels)
        runs.append(replace(run, calls=tuple(_move(call, began) for call in run.calls)))
        began = max(call.ended for call in runs[-1].calls) + 5
    return World(tool, has, tuple(runs))


def _draw_run(
    rng: np.random.Generator,
    tool: str,
    has: frozenset[str],
    slots: int,
    prefill: float,
    itl: float,
    tokens: int,
    per_event: int,
    share: float,
) -> Run:
    n, events = int(rng.integers(260, 420)), tokens // per_event
    # Hidden tokens are one to three times those that are streamed.
    service = prefill + itl * (tokens - per_event + (2 * tokens if "hidden_tokens" in has else 0))
    capacity = slots / service
    users = rate = cap = None
    if "open" in has or "ramp" in has:
        rate = round(capacity * (1.3 if "overload" in has else float(rng.uniform(0.3, 0.75)) * share), 3)
        gaps = np.full(n, 1 / rate) if "constant" in has else rng.exponential(1 / rate, n)
        if "ramp" in has:
            gaps = gaps / np.linspace(0.2, 1.8, n)
        due = np.cumsum(gaps)
        if "cap" in has and tool != "genai-perf":
            cap = max(1, int(rate * service * rng.uniform(0.5, 2.5)))
    else:
        users = max(1, int(slots * (1.6 if "overload" in has else share)))
        due = None
    calls = _serve(rng, due, users, slots, cap, prefill, itl, tokens, events, has)
    if "more_in_flight" in has and users is not None and users > 2:
        users = users // 2
    factor = float(rng.choice([0.7, 1.4])) if "other_tokenizer" in has else 1.0
    return Run(
        tuple(calls), users, rate, cap, "constant" in has, "ramp" in has, capacity, factor, "no_streams" not in has
    )


def _serve(
    rng: np.random.Generator,
    due: np.ndarray[Any, Any] | None,
    users: int | None,
    slots: int,
    cap: int | None,
    prefill: float,
    itl: float,
    tokens: int,
    events: int,
    has: frozenset[str],
) -> list[Call]:
    """First come, first served by `slots` at once; a tool with a cap, or with users, sends when one of its own ends."""
    free = [0.0] * slots
    heapq.heapify(free)
    senders = [0.01 * place for place in range(users or cap or 0)]
    heapq.heapify(senders)
    n = len(due) if due is not None else int(rng.integers(260, 420))
    calls = []
    failing = {"failures", "empty_failures", "failures_at_once"} & has
    for number in range(n):
        if due is None:
            sent = was_due = heapq.heappop(senders)
        else:
            was_due = float(due[number])
            sent = max(was_due, heapq.heappop(senders)) if cap else was_due
        hidden = int(rng.integers(1, 4)) * tokens if "hidden_tokens" in has else 0
        begun = max(sent, heapq.heappop(free))
        pace = itl * float(rng.uniform(0.97, 1.03))
        first = begun + prefill + hidden * pace
        ended = first + pace * (tokens - tokens // events)
        heapq.heappush(free, ended)
        call = Call(was_due, sent, first, ended, tokens, events, hidden)
        if failing and rng.random() < 0.25:
            error, kind, status = ERRORS[int(rng.integers(len(ERRORS)))]
            if "empty_failures" in has:
                error, kind, status = "", "failed", None
            call = replace(call, error=error, kind=kind, status=status)
            if "failures_at_once" in has:
                call = replace(call, ended=sent + 0.001)
        elif "cancelled" in has and number >= n - 5:
            call = replace(call, left_out="cancelled", error="cancelled")
        elif "warm_up_phase" in has and number < 20:
            call = replace(call, left_out="warm-up")
        calls.append(call)
        if senders or cap or users:
            heapq.heappush(senders, call.ended)
    return calls


def _move(call: Call, by: float) -> Call:
    return replace(call, due=call.due + by, sent=call.sent + by, first=call.first + by, ended=call.ended + by)


def write_world(world: World, folder: Path) -> Path:
    """Write the runs as the tool's result; returns what is imported."""
    return WRITERS[world.tool](world, folder)


def _event_times(call: Call) -> list[float]:
    return list(np.linspace(call.first, call.ended, call.events)) if call.events > 1 else [call.first]


def _told(call: Call, run: Run) -> int:
    """Tokens that the tool counts: all that the server made, or those of another tokenizer."""
    return max(1, round((call.tokens + call.hidden) * run.told_factor))


def write_vllm(world: World, folder: Path) -> Path:
    """`vllm bench serve --save-result --save-detailed`, appended where there are several runs."""
    documents = []
    for run in world.runs:
        calls = [call for call in run.calls if not call.left_out]
        good = [call.kind == "ok" for call in calls]
        began = min(call.sent for call in calls) - 100
        document = {
            "backend": "openai-chat", "endpoint_type": "openai-chat", "num_prompts": len(calls),
            "request_rate": "inf" if run.rate is None else run.rate,
            "burstiness": "inf" if run.is_constant and run.rate else 1.0,
            "max_concurrency": run.users if run.rate is None else run.cap,
            "request_throughput": 1.0, "completed": sum(good), "failed": len(good) - sum(good),
            "input_lens": [100] * len(calls),
            "output_lens": [_told(call, run) if ok else 0 for call, ok in zip(calls, good, strict=True)],
            "ttfts": [call.first - call.sent if ok else 0.0 for call, ok in zip(calls, good, strict=True)],
            "itls": [
                np.diff(_event_times(call)).tolist() if ok else [] for call, ok in zip(calls, good, strict=True)
            ],
            "errors": [call.error if call.kind != "ok" else "" for call in calls],
            "start_times": [
                0.0 if call.kind == "refused" else call.sent - began for call in calls
            ],
        }  # fmt: skip
        if "queue_times" in world.traits:
            document["queue_times"] = [call.sent - call.due for call in calls]
        if run.is_ramp:
            document |= {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 9}
        if document["burstiness"] == "inf":
            document["burstiness"] = float("inf")
        if "not_a_number" in world.traits:
            document["mean_itl_ms"] = float("nan")
        documents.append(document)
    path = folder / "result.json"
    path.write_text("\n".join(map(json.dumps, documents)) + "\n")
    return path


def write_guidellm(world: World, folder: Path) -> Path:
    """guidellm's benchmarks.json."""
    benchmarks = []
    for run in world.runs:
        kinds: dict[str, list[dict[str, Any]]] = {"successful": [], "errored": [], "incomplete": []}
        for call in run.calls:
            ok = call.kind == "ok" and not call.left_out
            timings = {
                "targeted_start": call.due + T0_S,
                "request_start": call.sent + T0_S,
                "request_end": call.ended + T0_S,
            }
            if ok and run.streams:
                timings |= {
                    "first_token_iteration": call.first + T0_S, "last_token_iteration": call.ended + T0_S,
                    "token_iterations": call.events,
                }  # fmt: skip
            entry = {
                "info": {"timings": timings, "error": call.error or None},
                "input_metrics": {"total_tokens": 100},
                "output_metrics": {"total_tokens": _told(call, run) if ok else None},
            }
            kinds["successful" if ok else "incomplete" if call.left_out else "errored"].append(entry)
        strategy = (
            {"type_": "concurrent", "streams": run.users}
            if run.rate is None
            else {"type_": "constant" if run.is_constant else "poisson", "rate": run.rate, "max_concurrency": run.cap}
        )
        counts = {"successful_requests": len(kinds["successful"]), "errored_requests": len(kinds["errored"])}
        benchmarks.append({"config": {"strategy": strategy}, "requests": kinds, "scheduler_state": counts})
    path = folder / "benchmarks.json"
    path.write_text(json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": benchmarks}))
    return path


def write_aiperf(world: World, folder: Path) -> Path:
    """aiperf's artifact folder; where a cap holds the rate down, credits are given when it has room."""
    (run,) = world.runs
    lines = []
    for number, call in enumerate(run.calls):
        about = {
            "request_start_ns": round((call.sent + T0_S) * 1e9), "request_end_ns": round((call.ended + T0_S) * 1e9),
            "credit_issued_ns": round(((call.sent if run.cap else call.due) + T0_S) * 1e9),
            "benchmark_phase": "warmup" if call.left_out == "warm-up" else "profiling",
            "was_cancelled": call.left_out == "cancelled", "conversation_id": f"c{number}",
        }  # fmt: skip
        error, metrics = None, {}
        if call.kind == "ok":
            own = max(2, round(call.tokens * run.told_factor))
            metrics = {
                "request_latency": {"value": (call.ended - call.sent) * 1e3, "unit": "ms"},
                "output_sequence_length": {"value": own, "unit": "tokens"},
                "usage_completion_tokens": {"value": call.tokens + call.hidden, "unit": "tokens"},
            }
            if run.streams:
                metrics |= {
                    "time_to_first_token": {"value": (call.first - call.sent) * 1e3, "unit": "ms"},
                    "inter_chunk_latency": {"value": (np.diff(_event_times(call)) * 1e3).tolist(), "unit": "ms"},
                    "inter_token_latency": {"value": (call.ended - call.first) / (own - 1) * 1e3, "unit": "ms"},
                }
        else:
            error = {"type": None, "code": call.status, "message": call.error}
        lines.append(json.dumps({"metadata": about, "metrics": metrics, "error": error}))
    phase = (
        {"type": "concurrency", "concurrency": run.users}
        if run.rate is None
        else {"type": "constant" if run.is_constant else "poisson", "rate": run.rate, "concurrency": run.cap}
    )
    (folder / "profile_export.jsonl").write_text("\n".join(lines) + "\n")
    summary = {"aiperf_version": "0.13.0", "input_config": {"phases": [phase]}}
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
    return folder


def write_inference_perf(world: World, folder: Path) -> Path:
    """inference-perf's report folder."""
    entries = []
    for number, run in enumerate(world.runs):
        calls = [call for call in run.calls if not call.left_out]
        sent = [call.sent for call in calls]
        delays = np.array([call.sent - call.due for call in calls])
        summary: dict[str, Any] = {
            "count": len(calls), "send_duration": max(sent) - min(sent), "requested_rate": run.rate or 1.0,
            "schedule_delay": {"mean": delays.mean(), "max": delays.max(), "p99": float(np.quantile(delays, 0.99))},
        }  # fmt: skip
        if run.rate is None:
            summary["concurrency"] = run.users
        stage = {"load_summary": summary, "successes": {"count": sum(call.kind == "ok" for call in calls)}}
        (folder / f"stage_{number}_lifecycle_metrics.json").write_text(json.dumps(stage))
        for call in calls:
            ok = call.kind == "ok"
            response = {
                "output_tokens": round(call.tokens * run.told_factor),
                "server_usage": None if run.told_factor != 1 else {"completion_tokens": call.tokens + call.hidden},
                "chunk_times": _event_times(call) if run.streams else [],
            }
            entries.append(
                {
                    "start_time": call.sent,
                    "end_time": call.ended,
                    "info": {"input_tokens": 100, "response_metrics": response if ok else None},
                    "error": None if ok else {"error_type": "", "error_msg": call.error},
                }
            )
    (folder / "per_request_lifecycle_metrics.json").write_text(json.dumps(entries))
    kind = "constant" if world.runs[0].is_constant else "poisson"
    (folder / "config.yaml").write_text(json.dumps({"load": {"type": kind}}))
    return folder


def write_genai_perf(world: World, folder: Path) -> Path:
    """genai-perf's profile_export.json."""
    experiments = []
    for run in world.runs:
        load = (
            {"mode": "concurrency", "value": run.users}
            if run.rate is None
            else {"mode": "request_rate", "value": run.rate}
        )
        requests = []
        for call in run.calls:
            times = (_event_times(call) if run.streams else [call.ended]) if call.kind == "ok" else []
            role = [call.sent + 0.001] if times and run.streams else []
            events = ['data: {"choices":[{"delta":{"role":"assistant","content":""}}]}'] * len(role)
            events += ['data: {"choices":[{"delta":{"content":"ab"}}]}'] * len(times)
            requests.append(
                {
                    "timestamp": round((call.sent + T0_S) * 1e9),
                    "response_timestamps": [round((time + T0_S) * 1e9) for time in (*role, *times)],
                    "response_outputs": [{"response": event} for event in events],
                    "success": call.kind == "ok",
                }
            )
        experiments.append({"experiment": load, "requests": requests})
    path = folder / "profile_export.json"
    path.write_text(json.dumps({"experiments": experiments, "version": "1.0"}))
    return path


def write_foreign(name: str, folder: Path) -> Path:
    """A result without times of single requests, as these tools write it."""
    contents: dict[str, Any] = {
        "sglang": {"backend": "sglang", "request_rate": 8.0, "total_output_tokens_retokenized": 9, "ttfts": [0.1] * 9},
        "llmperf": [{"inter_token_latency_s": 0.01, "ttft_s": 0.1, "number_total_tokens": 140}] * 9,
        "k6": {"metrics": {"http_req_duration": {"values": {"p(95)": 450}}, "vus": {"values": {"value": 6}}}},
        "evalscope": {"Time taken for tests (s)": 60.0, "Number of concurrency": 8, "Total requests": 400},
    }
    path = folder / f"{name}.txt"
    head = "Type,Name,Request Count,Failure Count,95%\nPOST,/v1,600,3,450\n"
    path.write_text(head if name == "locust" else json.dumps(contents[name]))
    return path


WRITERS = {
    "vllm": write_vllm,
    "guidellm": write_guidellm,
    "aiperf": write_aiperf,
    "inference-perf": write_inference_perf,
    "genai-perf": write_genai_perf,
}
