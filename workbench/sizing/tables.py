"""Tables of the area. `requests` and `steps` are raw data from HTTP, a callable, virtual time or an imported file; the
other tables follow from them by pure functions.

The latency of a failed request is null, never 0. In quantiles over attempts it counts as infinitely slow.
"""

from __future__ import annotations

from workbench.core.tables import Column, Table
from workbench.sizing.estimation.metrics import METRIC_NAMES_TEXT

OUTCOMES = ("ok", "timeout", "refused", "http_error", "malformed", "cut", "failed")
"""How a request ended: a timeout is censored at its time limit; `refused` never got a connection; `http_error` is any
status outside 200-299; `malformed` an answer that does not parse; `cut` a stream that ended before its end; `failed` an
error that the workflow reported (an exception of a callable, an error event)."""

USABLE_VERDICTS = ("valid", "few samples", "saturated")
"""Verdicts of points that estimates use."""

REQUESTS = Table(
    "requests",
    "One row per request; retries belong to their request.",
    ("step", "request"),
    (
        Column("step", "int", "The step of the sweep, from 0."),
        Column("request", "int", "Number of the request in its step, from 0, in the order of intended times."),
        Column("item", "int", "The prompt that was sent: its row; each its own number where all begin differently."),
        Column("intended_s", "float", "Intended send time, since the start of the step.", unit="s"),
        Column("sent_s", "float", "Send time, since the start of the step.", unit="s"),
        Column("ended_s", "float", "Time of the last byte or of the failure, since the start of the step.", unit="s"),
        Column("outcome", "str", "ok, or the kind of failure (OUTCOMES)."),
        Column("status", "int", "HTTP status; null without an answer or without HTTP.", nullable=True),
        Column("retries", "int", "How often it was sent again before this outcome."),
        Column("runtime_s", "float", "From the intended time to the end; null unless ok.", unit="s", nullable=True),
        Column("ttft_s", "float", "From the intended time to the first token.", unit="s", nullable=True),
        Column("itl_s", "float", "Mean time between output tokens.", unit="s", nullable=True),
        Column("llm_s", "list[float]", "Duration of each LLM call in it; null if unknown.", unit="s", nullable=True),
        Column("server_runtime_s", "float", "Runtime by the server's own clock.", unit="s", nullable=True),
        Column("input_tokens", "int", "Tokens of the prompt.", nullable=True),
        Column("output_tokens", "int", "Tokens that were produced.", nullable=True),
        Column("tail", "bool", "Sent only to keep the load up while the last kept requests ran; never kept."),
    ),
)

STEPS = Table(
    "steps",
    "One row per step: the load, and how the client held it.",
    ("step",),
    (
        Column("step", "int", "Number of the step, from 0."),
        Column("loop", "str", "closed (a fixed number of users) or open (arrivals at a rate)."),
        Column("users", "int", "Users that send one request after the other; null for open loops.", nullable=True),
        Column("rate_per_s", "float", "Requested arrivals; null for closed loops.", unit="1/s", nullable=True),
        Column("think_s", "float", "Mean think time of a user between requests.", unit="s"),
        Column("arrivals", "str", "users, poisson, constant or trace."),
        Column("gpus", "int", "GPUs that served it."),
        Column("clock", "str", "real or virtual."),
        Column("simulated", "bool", "The service was a simulator."),
        Column("started_at", "str", "Start of the step, UTC; null in virtual time.", nullable=True),
        Column("duration_s", "float", "Length of the step.", unit="s"),
        Column("timeout_s", "float", "Time limit of a request; null for none.", unit="s", nullable=True),
        Column("processes", "int", "Client processes that shared the load."),
        Column("loop_lag_p99_s", "float", "p99 lateness of the client's event loop.", unit="s", nullable=True),
        Column("client_cpu_share", "float", "CPU used by the busiest client process, of one core.", nullable=True),
        Column("stopped", "str", "Why it ended: tight, samples, time, limit, interrupted."),
    ),
)

POINTS = Table(
    "points",
    "One row per step: what was kept, what failed, whether the point is valid.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "The load: users, or arrivals a second for open loops."),
        Column("load_unit", "str", "users or 1/s."),
        Column("gpus", "int", "GPUs that served it."),
        Column("n_requests", "int", "Requests sent, tail included."),
        Column("n_warmup", "int", "Requests dropped at the start."),
        Column("n_kept", "int", "Attempts that count, failures included."),
        Column("n_ok", "int", "Kept and answered."),
        *(Column(f"n_{kind}", "int", f"Kept and ended as {kind}.") for kind in OUTCOMES[1:]),
        Column("n_retries", "int", "Retries among the kept."),
        Column("error_ratio", "float", "Failures of all kinds, of the kept."),
        Column("in_flight", "float", "Mean requests in flight while the kept were sent, by the client."),
        Column("rate_per_s", "float", "Requests a second that ended, over the kept window.", unit="1/s"),
        Column("send_lag_p99_s", "float", "p99 of sent minus intended.", unit="s"),
        Column("loop_lag_p99_s", "float", "p99 lateness of the client's event loop.", unit="s", nullable=True),
        Column("client_cpu_share", "float", "CPU of the busiest client process.", nullable=True),
        Column(
            "server_in_service", "float", "Rate times the server's own runtime: requests in service.", nullable=True
        ),
        Column("server_in_service_low", "float", "Low end of its 90 % interval.", nullable=True),
        Column("server_in_service_high", "float", "High end of its 90 % interval.", nullable=True),
        Column("clock_gap_s", "float", "Median of client runtime minus server runtime.", unit="s", nullable=True),
        Column("tokens_per_s", "float", "Output tokens a second.", unit="1/s", nullable=True),
        Column(
            "repeated_prompts", "float", "Share of kept requests whose prompt was sent before, in an earlier step too."
        ),
        Column("block", "int", "Length of the blocks in which the kept are resampled (1: independent)."),
        Column("verdict", "str", "valid, few samples, interrupted, client-limited, server-limited, saturated."),
        Column("reason", "str", "The verdict in words; null when valid.", nullable=True),
    ),
)

QUANTILES = Table(
    "quantiles",
    "Quantiles per step and metric over attempts; failures count as infinitely slow.",
    ("step", "metric", "q"),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "The load of the step."),
        Column("metric", "str", f"{METRIC_NAMES_TEXT}."),
        Column("q", "float", "The quantile, 0.95 for p95."),
        Column("n", "int", "Values: attempts, or LLM calls for llm."),
        Column("value_s", "float", "The quantile; null when it lies among failures.", unit="s", nullable=True),
        Column("low_s", "float", "Low end of the 90 % interval.", unit="s", nullable=True),
        Column(
            "high_s", "float", "High end; null when it lies among failures or n is too small.", unit="s", nullable=True
        ),
        Column("ok_only_s", "float", "The quantile of successes alone.", unit="s", nullable=True),
        Column("note", "str", "Why a value is null, such as '> timeout'.", nullable=True),
    ),
)

ESTIMATES = Table(
    "estimates",
    "One row per target: how many GPUs it takes, with a 90 % interval.",
    ("target",),
    (
        Column("target", "str", "Name of the target: metric, quantile, limit."),
        Column("metric", "str", f"{METRIC_NAMES_TEXT}."),
        Column("q", "float", "The quantile."),
        Column("limit_s", "float", "The largest value allowed.", unit="s"),
        Column("load", "float", "Load to be served: users or arrivals a second."),
        Column("load_unit", "str", "users or 1/s."),
        Column("test_gpus", "int", "GPUs that the sweep ran on."),
        Column("method", "str", "The estimator that was chosen.", nullable=True),
        Column("capacity", "float", "Largest load that the test GPUs carry at the target.", nullable=True),
        Column("capacity_low", "float", "Low end of its 90 % interval.", nullable=True),
        Column("capacity_high", "float", "High end.", nullable=True),
        Column("gpus", "float", "GPUs for the load, not rounded.", nullable=True),
        Column("gpus_low", "float", "Low end of the 90 % interval.", nullable=True),
        Column("gpus_high", "float", "High end.", nullable=True),
        Column("recommended", "int", "High end, rounded up to whole GPUs.", nullable=True),
        Column("binding", "bool", "It asks for the most GPUs of all targets."),
        Column("slope_gpus", "float", "What the slope-based calculator says to the same points.", nullable=True),
        Column("n_levels", "int", "Levels that the fit rests on."),
        Column("n_samples", "int", "Samples that the fit rests on."),
        Column("verdict", "str", "estimated, no estimate, or with what reserve."),
        Column("reason", "str", "What is assumed or missing, and what to do.", nullable=True),
    ),
)

SCALING = Table(
    "scaling",
    "One row per target and law: what several GPU counts say about more of them.",
    ("target", "model"),
    (
        Column("target", "str", "Name of the target."),
        Column("model", "str", "linear, Amdahl or USL."),
        Column("counts", "list[int]", "GPU counts that were measured."),
        Column("load", "float", "Load to be served: users or arrivals a second."),
        *(
            Column(f"{name}{end}", "float", f"{words}{of}.")
            for name, words in (
                ("per_gpu", "Load that one GPU carries"),
                ("contention", "Share of the work that does not spread"),
                ("coherency", "Cost of each pair of GPUs"),
            )
            for end, of in (("", ""), ("_low", ", low end of its 90 % interval"), ("_high", ", high end"))
        ),
        Column(
            "gpus", "int", "Least count that carries the load; null when none up to twice the largest.", nullable=True
        ),
        Column("gpus_low", "int", "Low end of its 90 % interval.", nullable=True),
        Column("gpus_high", "int", "High end.", nullable=True),
        Column("verdict", "str", "estimated or no estimate."),
        Column("reason", "str", "Why there is no estimate.", nullable=True),
    ),
)

VERIFICATION = Table(
    "verification",
    "One row per target: whether it was met at the predicted load.",
    ("target",),
    (
        Column("target", "str", "Name of the target."),
        Column("limit_s", "float", "The largest value allowed.", unit="s"),
        Column("predicted_gpus", "int", "GPU count that is verified."),
        Column("load", "float", "Load that the answer is for."),
        Column("gpus", "int", "GPUs that were driven."),
        Column("driven_load", "float", "Load that was driven."),
        Column("load_unit", "str", "users or 1/s."),
        Column("scope", "str", "whole load, or per-GPU load: the share of the test GPUs."),
        Column("simulated", "bool", "The service was a simulator."),
        Column("n", "int", "Values behind the quantile."),
        Column("value_s", "float", "The quantile; null when it lies among failures.", unit="s", nullable=True),
        Column("low_s", "float", "Low end of its 90 % interval.", unit="s", nullable=True),
        Column("high_s", "float", "High end.", unit="s", nullable=True),
        Column("verdict", "str", "held, failed, undecided or invalid."),
        Column("reason", "str", "The verdict in words; null when held.", nullable=True),
    ),
)

GOODPUT = Table(
    "goodput",
    "One row per step: requests served within all targets, and throughput per GPU.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("load", "float", "The load of the step."),
        Column(
            "within_share",
            "float",
            "Kept requests answered within the limits of all targets; null: a success lacks a target's metric.",
            nullable=True,
        ),
        Column("goodput_per_s", "float", "Requests a second within all limits.", unit="1/s", nullable=True),
        Column("goodput_per_gpu", "float", "The same for one GPU.", unit="1/s", nullable=True),
        Column("tokens_per_s_per_gpu", "float", "Output tokens a second of one GPU.", unit="1/s", nullable=True),
        Column("cost_per_1000", "float", "Price of 1,000 requests within the limits.", nullable=True),
    ),
)

CAPACITIES = Table(
    "capacities",
    "One row per GPU count and limit: the load that the count carries within it.",
    ("gpus", "limit_ms"),
    (
        Column("gpus", "int", "GPUs that were measured."),
        Column("limit_ms", "int", "The largest value allowed.", unit="ms"),
        Column(
            "capacity", "float", "Largest load within it; null where the measured loads cannot tell.", nullable=True
        ),
        Column("capacity_low", "float", "Low end of its 90 % interval.", nullable=True),
        Column("capacity_high", "float", "High end.", nullable=True),
    ),
)

CURVE = Table(
    "curve",
    "The fitted curve of the binding target on the largest measured GPU count.",
    ("load",),
    (
        Column("load", "float", "The load."),
        Column("value_s", "float", "The quantile by the curve.", unit="s"),
    ),
)

COMPARISON = Table(
    "comparison",
    "One row per method: its answer.",
    ("answer",),
    (
        Column("answer", "str", "Method."),
        Column("gpus", "float", "GPUs, not rounded; null without an answer.", nullable=True),
        Column("gpus_low", "float", "Low end of the 90 % interval.", nullable=True),
        Column("gpus_high", "float", "High end.", nullable=True),
        Column(
            "deployed",
            "int",
            "GPUs to deploy: the high end, or the estimate, rounded up.",
            nullable=True,
        ),
        Column("off", "int", "Deployed minus the true need: below 0 the target is missed.", nullable=True),
        Column("basis", "str", "Data behind the answer."),
    ),
)
