"""Reads a model server's own view of its load out of Prometheus text: running, waiting, KV cache, tokens, GPU."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench.core.errors import InputError
from workbench.core.nvml import Nvml, NvmlError, open_nvml
from workbench.sizing.load.client_messages import clock
from workbench.sizing.tables import SERVER_METRICS

if TYPE_CHECKING:
    import aiohttp


MAX_VALUE = float(2**53)
"""Larger values are no counts: DCGM writes 2**63 - 14 for a field that a GPU does not have."""
ServerSample = dict[str, float | None]
"""One value by quantity; null where the server does not say."""
_Samples = dict[str, list[tuple[dict[str, str], float]]]
MAX_METRICS_BYTES = 8 << 20
METRICS_TIMEOUT_S = 2.0
MAX_SAMPLES = 200_000


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
    """Read the metrics of this machine's GPUs, taken together; the server's own are null."""
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
    """Values of a metric series among scraped samples, in its unit; negative, infinite and huge ones are left out."""
    return [
        series.factor * value
        for labels, value in samples.get(series.name, [])
        if all(labels.get(name) == wanted for name, wanted in series.labels.items())
        and math.isfinite(value)
        and 0 <= value < MAX_VALUE
    ]


class MetricsSampler:
    """Samples of a metrics endpoint, of this machine's GPUs by NVML, or of both, on the clock of the client.

    `gpus`: Whether the server's GPUs are this machine's; what the endpoint says of GPUs goes before NVML.
    `failures`: Number of requests of the endpoint that gave no sample, by reason.
    """

    def __init__(self, url: str, every_s: float, *, gpus: bool = False, timeout_s: float = METRICS_TIMEOUT_S) -> None:
        self._url = url
        self._gpus = gpus
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._samples: list[tuple[float, ServerSample]] = []
        self.failures: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def run_beside(self) -> AsyncIterator[MetricsSampler]:
        """Sample while the block runs; its end does not wait for an answer."""
        task = asyncio.get_running_loop().create_task(self._sample_forever())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def take_samples(self, step: int, base: float) -> pl.DataFrame:
        """Table `server_metrics` of the samples since the last call, their times counted from `base`."""
        samples, self._samples = self._samples, []
        rows = [{"step": step, "at_s": at - base, **values} for at, values in samples if at >= base]
        return SERVER_METRICS.frame(rows)

    async def _sample_forever(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        # No proxy and no cookie of this machine, and no redirect to where the user did not point.
        with contextlib.ExitStack() as stack:
            nvml = stack.enter_context(open_nvml()) if self._gpus else None
            async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
                due = clock()
                while True:
                    due = max(due + self._every_s, clock())
                    await self._sample_once(session, nvml)
                    await asyncio.sleep(max(0.0, due - clock()))

    async def _sample_once(self, session: aiohttp.ClientSession, nvml: Nvml | None) -> None:
        import aiohttp

        begun = clock()
        try:
            # Some drivers take tens of milliseconds, which must not hold up the load.
            values = dict.fromkeys(QUANTITIES) if nvml is None else await asyncio.to_thread(read_gpu_sample, nvml)
            if self._url:
                # Text of the answer.
                options: dict[str, Any] = {"allow_redirects": False, "headers": {"Accept": "text/plain"}}
                async with session.get(self._url, **options) as response:
                    if response.status != 200:
                        raise InputError(f"status {response.status}")
                    body = bytearray()
                    async for chunk in response.content.iter_any():
                        body += chunk
                        if len(body) > MAX_METRICS_BYTES:
                            raise InputError(f"an answer of more than {MAX_METRICS_BYTES >> 20} MiB")
                readings = parse_server_metrics(body.decode(errors="replace"))
                values |= {name: value for name, value in readings.items() if value is not None}
        except InputError as error:
            self.failures[error.what] += 1
        except TimeoutError:
            self.failures[f"no answer within {self._timeout_s:g} s"] += 1
        except NvmlError as error:
            self.failures[str(error)] += 1
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.failures[type(error).__name__] += 1
        else:
            if len(self._samples) < MAX_SAMPLES:
                # The server looked at itself somewhere between the request and its answer.
                self._samples.append(((begun + clock()) / 2, values))
