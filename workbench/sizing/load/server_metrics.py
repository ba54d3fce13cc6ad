"""Reads a model server's own view of its load out of Prometheus text: running, waiting, KV cache, tokens, GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from workbench.core.errors import InputError

if TYPE_CHECKING:
    from workbench.core.nvml import Nvml

MAX_VALUE = float(2**53)
"""Larger values are no counts: DCGM writes 2**63 - 14 for a field that a GPU does not have."""


ServerSample = dict[str, float | None]
"""One value by quantity; null where the server does not say."""
_Samples = dict[str, list[tuple[dict[str, str], float]]]


@dataclass(frozen=True)
class Series:
    """Samples of one name, those with these labels; over the sum of `parts` where that is given."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    factor: float = 1.0
    parts: tuple[Series, ...] = ()


@dataclass(frozen=True)
class Quantity:
    """One column of the table `server_metrics`: the series of known servers, and how those of several replicas join."""

    series: tuple[Series, ...]
    join: Literal["sum", "max", "mean"] = "sum"


def _triton(kind: str) -> Series:
    return Series("nv_trt_llm_request_metrics", {"request_type": kind})


def _triton_blocks(kind: str, *parts: Series) -> Series:
    return Series("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": kind}, parts=parts)


def _fraction_of(used: str, *other_names: str) -> Series:
    return Series(used, parts=tuple(Series(name) for name in other_names))


QUANTITIES: dict[str, Quantity] = {
    "running": Quantity(
        (
            Series("vllm:num_requests_running"),
            Series("num_requests_running"),
            Series("tgi_batch_current_size"),
            _triton("scheduled"),
            _triton("active"),
            Series("sglang:num_running_reqs"),
            Series("trtllm_num_requests_running"),
            Series("active_requests_count"),
            Series("active_requests_count_requests"),
        )
    ),
    "waiting": Quantity(
        (
            Series("vllm:num_requests_waiting"),
            Series("num_requests_waiting"),
            Series("tgi_queue_size"),
            _triton("waiting"),
            Series("sglang:num_queue_reqs"),
            Series("trtllm_num_requests_waiting"),
            Series("waiting_requests_count"),
            Series("waiting_requests_count_requests"),
            Series("nv_inference_pending_request_count"),
        )
    ),
    "kv_cache": Quantity(
        (
            Series("vllm:kv_cache_usage_perc"),
            Series("vllm:gpu_cache_usage_perc"),
            Series("kv_cache_usage_perc"),
            Series("gpu_cache_usage_perc"),
            _triton_blocks("fraction"),
            _triton_blocks("used", _triton_blocks("max")),
            Series("sglang:token_usage"),
            Series("trtllm_kv_cache_utilization"),
            _fraction_of("kv_cache_memory_bytes", "kv_cache_memory_bytes", "kv_cache_free_memory_bytes"),
        ),
        "max",
    ),
    "preemptions": Quantity(
        (
            Series("vllm:num_preemptions_total"),
            Series("num_preemptions_total"),
            Series("sglang:num_retractions_total"),
        )
    ),
    "prompt_tokens": Quantity(
        (
            Series("vllm:prompt_tokens_total"),
            Series("prompt_tokens_total"),
            Series("tgi_request_input_length_sum"),
            Series("sglang:prompt_tokens_total"),
            Series("prefill_tokens_processed_total"),
            Series("prefill_tokens_processed_tokens_total"),
        )
    ),
    "generated_tokens": Quantity(
        (
            Series("vllm:generation_tokens_total"),
            Series("generation_tokens_total"),
            Series("tgi_request_generated_tokens_sum"),
            Series("sglang:generation_tokens_total"),
            Series("decode_tokens_processed_total"),
            Series("decode_tokens_processed_tokens_total"),
        )
    ),
    "gpu_busy": Quantity(
        (Series("DCGM_FI_DEV_GPU_UTIL", factor=0.01), Series("nv_gpu_utilization"), Series("gpu_utilization")), "mean"
    ),
    "gpu_memory": Quantity(
        (
            _fraction_of("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
            _fraction_of("nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"),
            _fraction_of("gpu_memory_used_bytes", "gpu_memory_total_bytes"),
        ),
        "max",
    ),
    "gpu_power_w": Quantity(
        (Series("DCGM_FI_DEV_POWER_USAGE"), Series("nv_gpu_power_usage"), Series("gpu_power_usage_watts"))
    ),
    "gpu_clock_mhz": Quantity((Series("DCGM_FI_DEV_SM_CLOCK"),), "mean"),
}
"""Names as of 2026: vLLM (and its names before 0.10), NIM (without a prefix), TGI, Triton with TensorRT-LLM,
`trtllm-serve`, SGLang, transformers (through an OpenTelemetry exporter: its `serve` has no `/metrics` of its own), and
GPUs by dcgm-exporter, Triton or NIM. The first series that a text has is read."""


def _list_names(series: Series) -> Iterable[str]:
    yield series.name
    for part in series.parts:
        yield from _list_names(part)


_KNOWN_NAMES = frozenset(
    name for quantity in QUANTITIES.values() for series in quantity.series for name in _list_names(series)
)


def parse_server_metrics(text: str) -> ServerSample:
    """The quantities of one answer of a metrics endpoint.

    `text`: Prometheus text of a model server, untrusted: lines of other names are not parsed.

    Returns: By quantity, null where no known series has a finite value of 0 or more: `running`, `waiting` in
    requests, `kv_cache`, `gpu_busy`, `gpu_memory` as fractions, `preemptions`, `prompt_tokens`, `generated_tokens` as
    counters, `gpu_power_w` in watts, `gpu_clock_mhz`. Replicas (series with other labels) are added; of `kv_cache`
    the largest counts, of `gpu_busy` and `gpu_clock_mhz` the mean.

    >>> found = parse_server_metrics('sglang:num_queue_reqs{engine="0"} 3\\nsglang:num_queue_reqs{engine="1"} 4\\n')
    >>> found["waiting"], found["running"]
    (7.0, None)
    """
    samples = _parse_known_lines(text)
    sample = {name: _read_quantity(quantity, samples) for name, quantity in QUANTITIES.items()}
    if all(value is None for value in sample.values()):
        raise InputError("no metric of a known server", where="--metrics-url", allowed="vLLM, NIM, TGI, Triton, …")
    return sample


def read_gpu_sample(nvml: Nvml) -> ServerSample:
    """The quantities that the GPUs of this machine tell, over all of them; null for those of a server."""
    gpus = [nvml.read_gpu(index) for index in range(nvml.count_gpus())]

    def values(name: str) -> list[float]:
        return [gpu[name] for gpu in gpus if gpu[name] is not None]

    def mean(name: str) -> float | None:
        readings = values(name)
        return sum(readings) / len(readings) if readings else None

    total_bytes, power_w = sum(values("memory_bytes")), values("power_w")
    return {
        **dict.fromkeys(QUANTITIES),
        "gpu_busy": mean("busy"),
        "gpu_memory": sum(values("memory_used_bytes")) / total_bytes if total_bytes else None,
        "gpu_power_w": sum(power_w) if power_w else None,
        "gpu_clock_mhz": mean("sm_clock_mhz"),
    }


def _parse_known_lines(text: str) -> _Samples:
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in text.split("\n") if line.split("{", 1)[0].split(" ", 1)[0] in _KNOWN_NAMES]
    samples: _Samples = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError("not Prometheus text", where="--metrics-url", found=type(error).__name__) from error
    return samples


def _read_quantity(quantity: Quantity, samples: _Samples) -> float | None:
    for series in quantity.series:
        values = _select_values(series, samples)
        if not values:
            continue
        total = sum(values)
        if series.parts:
            capacity = sum(sum(_select_values(part, samples)) for part in series.parts)
            return min(1.0, total / capacity) if capacity > 0 else None
        if quantity.join == "sum":
            return total
        return max(values) if quantity.join == "max" else total / len(values)
    return None


def _select_values(series: Series, samples: _Samples) -> list[float]:
    return [
        series.factor * value
        for labels, value in samples.get(series.name, [])
        if all(labels.get(name) == wanted for name, wanted in series.labels.items())
        and math.isfinite(value)
        and 0 <= value < MAX_VALUE
    ]
