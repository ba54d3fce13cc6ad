"""Tables of the area. `requests` and `steps` are raw data from HTTP, a callable, virtual time or an imported file; the
other tables are computed from them by pure functions.

The latency of a failed request is null, never 0. In quantiles over attempts it counts as infinitely slow.
"""

from __future__ import annotations

from workbench.core.tables import Column, Dtype, Table
from workbench.sizing.estimation.metrics import METRIC_NAMES_TEXT
from workbench.sizing.load.client_messages import FINISH_REASONS, OTHER_REASON

OUTCOMES = ("ok", "timeout", "refused", "http_error", "malformed", "cut", "failed")
"""Outcomes of a request: a `timeout` is censored at the time limit; `refused` got no connection; `http_error` is any
status outside 200-299; `malformed` is an answer that does not parse; `cut` is an incomplete stream; `failed` is an
error reported by the workflow (an exception of a callable, an error event)."""

MIN_SAMPLES = 200
"""Fewest kept requests of a step that is not called few samples: ten of them lie beyond the p95."""

USABLE_VERDICTS = ("valid", "few samples", "saturated")
"""Verdicts of the points that estimates use."""

FAILING_VERDICTS = ("interrupted", "admission limit", "not sustained", "other answers")
"""Verdicts of loads that are not served: no point of a latency curve, but an upper bound of the capacity."""

REQUESTS = Table(
    "requests",
    "One row per request; retries are part of their request.",
    ("step", "request"),
    (
        Column("step", "int", "Number of the step in the sweep, from 0."),
        Column("request", "int", "Number of the request in its step, from 0, in the order of intended times."),
        Column("item", "int", "Row of the prompt; a unique number per request with unique prefixes."),
        Column("intended_s", "float", "Intended send time, since the start of the step.", unit="s"),
        Column("sent_s", "float", "Send time, since the start of the step.", unit="s"),
        Column("ended_s", "float", "Time of the last byte or of the failure, since the start of the step.", unit="s"),
        Column("outcome", "str", "ok, or the kind of failure (OUTCOMES)."),
        Column("status", "int", "HTTP status; null without an answer or without HTTP.", nullable=True),
        Column("retries", "int", "Number of retries before this outcome."),
        Column("runtime_s", "float", "From the intended time to the end; null unless ok.", unit="s", nullable=True),
        Column("ttft_s", "float", "From the intended time to the first token.", unit="s", nullable=True),
        Column(
            "ttfo_s",
            "float",
            "From the intended time to the first token that is not reasoning; null without one, or if ttft_s is null.",
            unit="s",
            nullable=True,
            added=True,
        ),
        Column(
            "longest_gap_s",
            "float",
            "Longest time between two events of its stream; null if all arrived at once.",
            unit="s",
            nullable=True,
            added=True,
        ),
        Column(
            "itl_s",
            "float",
            "Mean time between output tokens: from the first event to the last, over the tokens after the first event. "
            "Null if the stream does not show it.",
            unit="s",
            nullable=True,
        ),
        Column("llm_s", "list[float]", "Duration of each LLM call; null if unknown.", unit="s", nullable=True),
        Column("server_runtime_s", "float", "Runtime by the server's clock.", unit="s", nullable=True),
        Column("input_tokens", "int", "Tokens of the prompt.", nullable=True),
        Column(
            "cached_tokens",
            "int",
            "Prompt tokens from the server's prefix cache; null if the server does not report it.",
            nullable=True,
            added=True,
        ),
        Column("output_tokens", "int", "Tokens of the answer, as the server counts them.", nullable=True),
        Column(
            "streamed_tokens", "int", "Those of them that were streamed; null if unknown.", nullable=True, added=True
        ),
        Column(
            "later_tokens",
            "float",
            "Streamed tokens after the first event: those that time passed between.",
            nullable=True,
            added=True,
        ),
        Column("event_tokens", "float", "Tokens an event of its stream, about.", nullable=True, added=True),
        Column(
            "stream",
            "str",
            "How a stream differs from one token an event, as a name of `load.client_messages.STREAM_NOTES`: buffered, "
            "several tokens an event, hidden tokens, tokens not counted, fewer counted, and so on. Null otherwise.",
            nullable=True,
            added=True,
        ),
        Column(
            "finish_reason",
            "str",
            f"Why the answer ended: {', '.join(FINISH_REASONS)} or {OTHER_REASON}; null if the server does not "
            f"report it.",
            nullable=True,
            added=True,
        ),
        Column("answer_bytes", "int", "Length of the answer's text.", unit="bytes", nullable=True, added=True),
        Column(
            "answer_hash", "int", "Checksum of the answer's text: equal for equal answers.", nullable=True, added=True
        ),
        Column("right", "bool", "The answer of a probe is right; null for other requests.", nullable=True, added=True),
        Column(
            "retry_after_s",
            "float",
            "When a refusal asks to be sent again (Retry-After).",
            unit="s",
            nullable=True,
            added=True,
        ),
        Column("turn", "int", "Turn of its session, from 1; null without sessions.", nullable=True, added=True),
        Column("worker", "int", "Dask worker that sent it; null without --workers.", nullable=True, added=True),
        Column("tail", "bool", "Sent only to keep up the load while the last kept requests ran; never kept."),
    ),
)

STEPS = Table(
    "steps",
    "One row per step: load, and state of the client.",
    ("step",),
    (
        Column("step", "int", "Number of the step, from 0."),
        Column("loop", "str", "closed (a fixed number of users) or open (arrivals at a rate)."),
        Column("users", "int", "Users that send requests one after the other; null for open loops.", nullable=True),
        Column("rate_per_s", "float", "Requested arrival rate; null for closed loops.", unit="1/s", nullable=True),
        Column("think_s", "float", "Mean think time of a user between requests.", unit="s"),
        Column("arrivals", "str", "users, poisson, gamma, constant or trace."),
        Column("gpus", "int", "Number of GPUs of the service."),
        Column("clock", "str", "real or virtual."),
        Column("simulated", "bool", "The service was a simulator."),
        Column(
            "time_scale",
            "float",
            "Factor on all times of the simulator; null for none, or where it does not say.",
            nullable=True,
            added=True,
        ),
        Column("started_at", "str", "Start of the step, UTC; null in virtual time.", nullable=True),
        Column("duration_s", "float", "Duration of the step.", unit="s"),
        Column("timeout_s", "float", "Time limit of a request; null for none.", unit="s", nullable=True),
        Column("processes", "int", "Client processes that shared the load."),
        Column(
            "clock_error_s",
            "float",
            "Dask workers: how far their clocks may differ at most; null on one machine.",
            unit="s",
            nullable=True,
            added=True,
        ),
        Column("loop_lag_p99_s", "float", "p99 lag of the client's event loop.", unit="s", nullable=True),
        Column("client_cpu_share", "float", "CPU use of the busiest client process, in cores.", nullable=True),
        Column(
            "stopped",
            "str",
            "Reason why the step ended: tight, widened (no longer tight), samples, overload, time, limit, interrupted, "
            "lost worker, refused.",
        ),
    ),
)
SERVER_METRICS = Table(
    "server_metrics",
    "One row per sample of the server's metrics (--metrics-url) and GPUs (--gpu-metrics); null where they do not say.",
    ("step", "at_s"),
    (
        Column("step", "int", "Number of the step."),
        Column("at_s", "float", "Time since the start of the step.", unit="s"),
        Column("running", "float", "Requests running, over all replicas.", nullable=True),
        Column("waiting", "float", "Requests waiting, over all replicas.", nullable=True),
        Column("kv_cache", "float", "Used fraction of the KV cache, of the fullest replica.", nullable=True),
        Column("preemptions", "float", "Counter of preempted requests.", nullable=True),
        Column("prompt_tokens", "float", "Counter of prompt tokens.", nullable=True),
        Column("generated_tokens", "float", "Counter of generated tokens.", nullable=True),
        Column("gpu_busy", "float", "Mean utilization of the GPUs.", nullable=True),
        Column("gpu_memory", "float", "Used fraction of the GPUs' memory, over all.", nullable=True),
        Column("gpu_power_w", "float", "Power of the GPUs, all together.", unit="W", nullable=True, added=True),
        Column("gpu_clock_mhz", "float", "Mean clock of the GPUs.", unit="MHz", nullable=True, added=True),
    ),
)
BACKLOG = Table(
    "backlog",
    "Requests over the time of each step, at forty moments: offered, begun, ended, waiting.",
    ("step", "at_s"),
    (
        Column("step", "int", "Number of the step."),
        Column("at_s", "float", "Time since the start of the step.", unit="s"),
        Column("n_offered", "int", "Requests that were due until then."),
        Column("n_begun", "int", "Requests that were sent until then."),
        Column("n_ended", "int", "Requests that had ended by then, failed ones too."),
        Column("in_flight", "int", "Requests sent and not ended."),
        Column("waiting", "int", "Requests due and not ended: those in flight, and those that the client holds back."),
    ),
)
QUANTILES = Table(
    "quantiles",
    "Quantiles per step and metric over kept requests; failures count as infinitely slow.",
    ("step", "metric", "q"),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "Load of the step."),
        Column("metric", "str", f"{METRIC_NAMES_TEXT}."),
        Column("q", "float", "Quantile, 0.95 for p95."),
        Column("n", "int", "Number of values: kept requests, or LLM calls for llm."),
        Column("value_s", "float", "Quantile; null if it falls among failures.", unit="s", nullable=True),
        Column("low_s", "float", "Lower end of the 90 % interval.", unit="s", nullable=True),
        Column(
            "high_s", "float", "Upper end; null if it falls among failures or n is too small.", unit="s", nullable=True
        ),
        Column("ok_only_s", "float", "Quantile of successful requests only.", unit="s", nullable=True),
        Column("note", "str", "Reason for a null value, such as '> timeout'.", nullable=True),
    ),
)
ESTIMATES = Table(
    "estimates",
    "One row per target: required GPUs with a 90 % interval.",
    ("target",),
    (
        Column("target", "str", "Name of the target: metric, quantile, limit."),
        Column("metric", "str", f"{METRIC_NAMES_TEXT}."),
        Column("q", "float", "The quantile."),
        Column("limit_s", "float", "Largest allowed value.", unit="s"),
        Column("load", "float", "Load to serve: users or arrivals per second."),
        Column("load_unit", "str", "users or 1/s."),
        Column("test_gpus", "int", "Number of GPUs in the sweep."),
        Column("method", "str", "Selected estimator.", nullable=True),
        Column("capacity", "float", "Largest load of the test GPUs within the target.", nullable=True),
        Column("capacity_low", "float", "Lower end of its 90 % interval.", nullable=True),
        Column("capacity_high", "float", "Upper end.", nullable=True),
        Column("gpus", "float", "GPUs for the load, not rounded.", nullable=True),
        Column("gpus_low", "float", "Lower end of the 90 % interval.", nullable=True),
        Column("gpus_high", "float", "Upper end.", nullable=True),
        Column(
            "recommended",
            "int",
            "Upper end, rounded up to whole GPUs; or the count that a verification confirmed, if it rejected fewer.",
            nullable=True,
        ),
        Column("binding", "bool", "Whether this target needs the most GPUs."),
        Column("slope_gpus", "float", "Answer of the slope-based calculator for the same points.", nullable=True),
        Column("n_levels", "int", "Number of levels in the fit."),
        Column("n_samples", "int", "Number of samples in the fit."),
        Column("verdict", "str", "no estimate, at least (capacity_low is a lower bound), or the assumption made."),
        Column("reason", "str", "Assumptions, missing data, and what to do.", nullable=True),
        Column("bound", "str", "What limits the capacity, if it is not the latency.", nullable=True, added=True),
        Column("served", "str", "Model and GPU type, where they are known.", nullable=True, added=True),
        Column(
            "session_s",
            "float",
            "Mean length of a session at the largest measured load within the capacity; null without sessions.",
            unit="s",
            nullable=True,
            added=True,
        ),
    ),
)
SCALING = Table(
    "scaling",
    "One row per target and scaling law fitted over several GPU counts.",
    ("target", "model"),
    (
        Column("target", "str", "Name of the target."),
        Column("model", "str", "Scaling law: linear, Amdahl, USL or falling hits."),
        Column("counts", "list[int]", "Measured GPU counts."),
        Column("load", "float", "Load to serve: users or arrivals per second."),
        *(
            Column(f"{name}{end}", "float", f"{words}{of}.")
            for name, words in (
                ("per_gpu", "Capacity of one GPU"),
                ("contention", "Fraction of the work that is serial"),
                ("coherency", "Cost of coordination per pair of GPUs"),
            )
            for end, of in (("", ""), ("_low", ", lower end of its 90 % interval"), ("_high", ", upper end"))
        ),
        *(
            Column(f"miss_cost{end}", "float", f"{words}.", nullable=True, added=True)
            for end, words in (
                ("", "More work of a request whose hits in a prefix cache are all missed, as a fraction"),
                ("_low", "Lower end of its 90 % interval"),
                ("_high", "Upper end"),
            )
        ),
        Column(
            "miss_rate",
            "float",
            "Hits fall as 1 / (1 + this times the other GPUs).",
            nullable=True,
            added=True,
        ),
        Column("gpus", "int", "Smallest sufficient GPU count, up to twice the largest measured one.", nullable=True),
        Column("gpus_low", "int", "Lower end of its 90 % interval.", nullable=True),
        Column("gpus_high", "int", "Upper end.", nullable=True),
        Column("verdict", "str", "estimated or no estimate."),
        Column("reason", "str", "Reason for a missing estimate.", nullable=True),
    ),
)
VERIFICATION = Table(
    "verification",
    "One row per target: verification at the predicted load.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("limit_s", "float", "Largest allowed value.", unit="s"),
        Column("predicted_gpus", "int", "GPU count that was verified."),
        Column(
            "estimated_gpus",
            "int",
            "Count of the estimate: fewer, where its own verification did not hold.",
            nullable=True,
            added=True,
        ),
        Column("load", "float", "Load of the prediction."),
        Column("gpus", "int", "Number of GPUs under load."),
        Column("driven_load", "float", "Load that was sent."),
        Column("load_unit", "str", "users or 1/s."),
        Column("scope", "str", "whole load, or per-GPU load: the share of the test GPUs."),
        Column("simulated", "bool", "The service was a simulator."),
        Column("n", "int", "Number of values in the quantile."),
        Column("value_s", "float", "Quantile; null if it falls among failures.", unit="s", nullable=True),
        Column("low_s", "float", "Lower end of its 90 % interval.", unit="s", nullable=True),
        Column("high_s", "float", "Upper end.", unit="s", nullable=True),
        Column("verdict", "str", "held, failed, undecided or invalid."),
        Column(
            "reason",
            "str",
            "The verdict in words; if held, why fewer GPUs are not enough; null otherwise.",
            nullable=True,
        ),
    ),
)


def _interval_columns(name: str) -> tuple[Column, Column]:
    return (
        Column(f"{name}_low", "float", "Lower end of its 90 % interval.", nullable=True, added=True),
        Column(f"{name}_high", "float", "Upper end; null without one.", nullable=True, added=True),
    )


PREDICTIONS = Table(
    "predictions",
    "One row per GPU type and GPUs of a replica that were predicted.",
    ("gpu", "backend", "tensor"),
    (
        Column("gpu", "str", "GPU type."),
        Column("backend", "str", "Server: vllm, sglang or trtllm."),
        Column("tensor", "int", "GPUs of a replica."),
        Column("model", "str", "The model."),
        Column("target", "str", "The target that needs the most GPUs; null without a prediction.", nullable=True),
        Column("load", "float", "Load to serve: users or arrivals per second."),
        Column("load_unit", "str", "users or 1/s."),
        Column("capacity", "float", "Largest load of a replica within all targets.", nullable=True),
        Column("capacity_low", "float", "The same where the times are at the slow end.", nullable=True),
        Column("capacity_high", "float", "The same at the fast end.", nullable=True),
        Column("gpus", "int", "GPUs for the load, whole replicas.", nullable=True),
        Column("gpus_low", "int", "Lower end of the 90 % interval of the prediction's error.", nullable=True),
        Column("gpus_high", "int", "Upper end: the GPUs to plan with.", nullable=True),
        Column("cost_per_hour", "float", "Price of the upper end for an hour; null without a price.", nullable=True),
        Column("prefill_factor", "float", "Time of a prefill over the predicted one.", nullable=True),
        Column("decode_factor", "float", "Time of a decode step over the predicted one.", nullable=True),
        Column("cache_tokens", "int", "Tokens that fit into a replica's memory at once.", nullable=True),
        Column("chosen", "bool", "The one to take: cheapest, or fewest GPUs where a price is missing."),
        Column(
            "verdict", "str", "predicted, no upper end, more GPUs than others, not within the goal, or not possible."
        ),
        Column("reason", "str", "The verdict in words; null where predicted.", nullable=True),
    ),
)
AUTOSCALERS = Table(
    "autoscalers",
    "One row per autoscaler: GPU hours and missed goals of the same days.",
    ("policy",),
    (
        Column("policy", "str", "Its name; foresight knows the traffic before it comes."),
        Column("days", "int", "Days that were replayed."),
        Column("requests", "int", "Requests of all days."),
        Column("gpu_hours", "float", "GPU hours a day, start-up and the last answers too.", unit="h"),
        Column("gpu_hours_low", "float", "Lower end of the 90 % interval over days.", unit="h", nullable=True),
        Column("gpu_hours_high", "float", "Upper end; null with one day.", unit="h", nullable=True),
        Column("over_foresight", "float", "GPU hours over those of foresight.", unit="times"),
        Column("late_share", "float", "Requests that missed a goal.", unit="share"),
        Column(
            "late_low", "float", "Lower end of its 90 % interval, stretches of ten minutes drawn again.", unit="share"
        ),
        Column("late_high", "float", "Upper end.", unit="share"),
        Column("allowed", "float", "Share that the goals allow: 0.05 for a p95.", unit="share"),
        Column("most_replicas", "int", "Replicas at most."),
        Column("changes", "float", "Changes of the number a day."),
        Column("verdict", "str", "holds, misses or undecided."),
    ),
)
REPLICA_TIMES = Table(
    "replica_times",
    "Replicas of each autoscaler over the first day, one row per change.",
    ("policy", "place"),
    (
        Column("policy", "str", "Name of the autoscaler."),
        Column("place", "int", "Number of the change, from 0."),
        Column("at_s", "float", "Time since the begin of the day.", unit="s"),
        Column("ready", "int", "Replicas that serve from then on."),
        Column("starting", "int", "Replicas that start."),
    ),
)
ANCHOR_LEVELS = Table(
    "anchor_levels",
    "One row per measured level that corrects the predictions: mean times, measured and predicted.",
    ("load",),
    (
        Column("load", "float", "Users."),
        Column("n", "int", "Requests."),
        *(
            Column(f"{kind}_{name}", "float", f"{words}, {told}.", unit="s")
            for kind, told in (
                ("measured", "measured"),
                ("predicted", "as predicted"),
                ("corrected", "predicted with the factors"),
            )
            for name, words in (("ttft_s", "Time to the first token"), ("itl_s", "Time between tokens"))
        ),
        Column("is_prefill", "bool", "Its time to the first token is prefill, hardly a queue."),
    ),
)
GOODPUT = Table(
    "goodput",
    "One row per step: requests served within all targets, and throughput per GPU.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "Load of the step."),
        Column(
            "within_share",
            "float",
            "Kept requests within the limits of all targets; null if more than one in ten lacks a target's metric.",
            nullable=True,
        ),
        Column(
            "right_share",
            "float",
            "Answers of probes that are right; what is served counts right answers only. Null without probes.",
            nullable=True,
            added=True,
        ),
        Column(
            "unknown_share",
            "float",
            "Kept requests that lack a metric of a target and do not count in that share.",
            nullable=True,
            added=True,
        ),
        Column("goodput_per_s", "float", "Requests per second within all limits.", unit="1/s", nullable=True),
        Column("goodput_per_gpu", "float", "Goodput per GPU.", unit="1/s", nullable=True),
        Column("tokens_per_s_per_gpu", "float", "Output tokens per second and GPU.", unit="1/s", nullable=True),
        Column("cost_per_1000", "float", "Price of 1,000 requests within the limits.", nullable=True),
        *_interval_columns("cost_per_1000"),
        Column(
            "cost_per_million_tokens",
            "float",
            "Price of a million output tokens of requests within the limits.",
            nullable=True,
            added=True,
        ),
        *_interval_columns("cost_per_million_tokens"),
        Column(
            "joules_per_token",
            "float",
            "Energy of the GPUs by output token of all requests; null where their power was not read.",
            unit="J",
            nullable=True,
            added=True,
        ),
    ),
)
CAPACITIES = Table(
    "capacities",
    "One row per GPU count and latency limit: the largest load within the limit.",
    ("gpus", "limit_ms"),
    (
        Column("gpus", "int", "Measured GPU count."),
        Column("limit_ms", "int", "Largest allowed value.", unit="ms"),
        Column("capacity", "float", "Largest load within the limit; null if not determined.", nullable=True),
        Column("capacity_low", "float", "Lower end of its 90 % interval.", nullable=True),
        Column("capacity_high", "float", "Upper end.", nullable=True),
    ),
)
CURVE = Table(
    "curve",
    "Fitted curve of the binding target on the largest measured GPU count.",
    ("load",),
    (
        Column("load", "float", "Load."),
        Column("value_s", "float", "Quantile according to the curve.", unit="s"),
    ),
)
COMPARISON = Table(
    "comparison",
    "One row per method: its answer.",
    ("answer",),
    (
        Column("answer", "str", "Method."),
        Column("gpus", "float", "GPUs, not rounded; null without an estimate.", nullable=True),
        Column("gpus_low", "float", "Lower end of the 90 % interval.", nullable=True),
        Column("gpus_high", "float", "Upper end.", nullable=True),
        Column(
            "deployed",
            "int",
            "GPUs to deploy: upper end, or the estimate, rounded up.",
            nullable=True,
        ),
        Column("off", "int", "Deployed minus required GPUs; negative if the target is missed.", nullable=True),
        Column("basis", "str", "Data behind the answer."),
    ),
)


def _server_column(name: str, dtype: Dtype, meaning: str) -> Column:
    return Column(name, dtype, f"By the server's metrics: {meaning}.", nullable=True, added=True)


_SERVER_POINT_COLUMNS = (
    _server_column("server_samples", "int", "samples within the kept window; null without server or GPU metrics"),
    _server_column("server_running", "float", "median of the requests running"),
    _server_column("server_waiting", "float", "median of the requests waiting"),
    _server_column("waiting_share", "float", "fraction of the samples in which a request waited"),
    _server_column("kv_cache", "float", "highest used fraction of the KV cache"),
    _server_column("kv_cache_full_share", "float", "fraction of the samples in which that was 0.95 or more"),
    _server_column("preemptions", "int", "requests preempted; null without that counter"),
    _server_column("gpu_busy", "float", "mean of the GPUs' utilization"),
    _server_column("gpu_power_w", "float", "mean of the GPUs' power, in watts, all together"),
    _server_column("gpu_clock_mhz", "float", "mean of the GPUs' clock, in MHz"),
    _server_column("server_binds", "str", "what binds: queue, kv cache, or host (no GPU); null if nothing does"),
)
POINTS = Table(
    "points",
    "One row per step: kept requests, failures, and the validity of the point.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "Load: users, or arrivals per second for open loops."),
        Column("load_unit", "str", "users or 1/s."),
        Column("gpus", "int", "Number of GPUs of the service."),
        Column("n_requests", "int", "Requests sent, tail included."),
        Column("n_warmup", "int", "Requests dropped as warm-up."),
        Column("n_kept", "int", "Requests that count, including failures."),
        Column("n_ok", "int", "Kept requests that succeeded."),
        *(Column(f"n_{kind}", "int", f"Kept requests with outcome {kind}.") for kind in OUTCOMES[1:]),
        Column("n_shed", "int", "Kept requests refused with 429, or 503 and Retry-After.", nullable=True, added=True),
        Column("n_retries", "int", "Retries of kept requests."),
        Column("error_ratio", "float", "Fraction of kept requests that failed."),
        Column("in_flight", "float", "Mean requests in flight over the kept window, by the client."),
        Column("rate_per_s", "float", "Throughput in finished requests over the kept window.", unit="1/s"),
        Column("offered_per_s", "float", "Open loops: requests that were due.", unit="1/s", nullable=True, added=True),
        Column("begun_per_s", "float", "Open loops: requests that were sent.", unit="1/s", nullable=True, added=True),
        Column("ended_per_s", "float", "Open loops: successes that ended.", unit="1/s", nullable=True, added=True),
        Column("ended_low_per_s", "float", "Lower end of its 90 % interval.", unit="1/s", nullable=True, added=True),
        Column("ended_high_per_s", "float", "Upper end.", unit="1/s", nullable=True, added=True),
        Column(
            "backlog_first",
            "int",
            "Open loops: requests due and not ended, at the first kept.",
            nullable=True,
            added=True,
        ),
        Column("backlog_last", "int", "The same, at the last kept.", nullable=True, added=True),
        Column("backlog_peak", "int", "The same, at most.", nullable=True, added=True),
        Column("send_lag_p99_s", "float", "p99 of send time minus intended time.", unit="s"),
        Column("loop_lag_p99_s", "float", "p99 lag of the client's event loop.", unit="s", nullable=True),
        Column("client_cpu_share", "float", "CPU use of the busiest client process.", nullable=True),
        Column("server_in_service", "float", "Requests in service: throughput times server runtime.", nullable=True),
        Column("server_in_service_low", "float", "Lower end of its 90 % interval.", nullable=True),
        Column("server_in_service_high", "float", "Upper end of its 90 % interval.", nullable=True),
        Column("clock_gap_s", "float", "Median of client runtime minus server runtime.", unit="s", nullable=True),
        Column("tokens_per_s", "float", "Output tokens per second.", unit="1/s", nullable=True),
        Column("repeated_prompts", "float", "Fraction of kept requests whose prompt was sent before, in any step."),
        Column(
            "cached_share",
            "float",
            "Fraction of the prompt tokens from the server's prefix cache; null if the server does not report it.",
            nullable=True,
            added=True,
        ),
        Column("session_turns", "float", "Mean turns of a session; null without sessions.", nullable=True, added=True),
        Column(
            "session_s",
            "float",
            "Mean length of a session of users: its turns with their think time.",
            unit="s",
            nullable=True,
            added=True,
        ),
        Column("answer_p50", "float", "Median length of the answers.", nullable=True, added=True),
        Column("answer_unit", "str", "Unit of that length: tokens or bytes.", nullable=True, added=True),
        Column(
            "finish_reasons",
            "str",
            "Why the answers ended, with counts: 'stop 180, length 20'; null where none says.",
            nullable=True,
            added=True,
        ),
        Column(
            "length_share",
            "float",
            "Fraction of the answers with a finish reason that ended at their limit of tokens (length).",
            nullable=True,
            added=True,
        ),
        Column("n_probed", "int", "Answers of probes; null without probes.", nullable=True, added=True),
        Column("right_share", "float", "Fraction of them that is right.", nullable=True, added=True),
        Column("right_low", "float", "Lower end of its 90 % interval.", nullable=True, added=True),
        Column("right_high", "float", "Upper end.", nullable=True, added=True),
        Column("ttft_known", "float", "Fraction of successes with a time to first token.", nullable=True, added=True),
        Column(
            "stream_note", "str", "What its streams do not show, in words; null if nothing.", nullable=True, added=True
        ),
        *_SERVER_POINT_COLUMNS,
        Column("block", "int", "Block length of the bootstrap over kept requests (1: independent)."),
        Column(
            "verdict",
            "str",
            "valid, few samples, interrupted, admission limit, not sustained, client-limited, server-limited, "
            "saturated, other answers, cached, unsteady, drift.",
        ),
        Column("reason", "str", "The verdict in words; null when valid.", nullable=True),
    ),
)
