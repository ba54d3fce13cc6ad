"""Samples a server's metrics and this machine's GPUs beside the load; what goes wrong is counted and hurts no sweep."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.core.nvml import NvmlError, open_nvml
from workbench.sizing.load.client_messages import clock
from workbench.sizing.load.server_metrics import QUANTITIES, ServerSample, parse_server_metrics, read_gpu_sample
from workbench.sizing.tables import SERVER_METRICS

if TYPE_CHECKING:
    import aiohttp
    import polars as pl

    from workbench.core.nvml import Nvml

MAX_METRICS_BYTES = 8 << 20
METRICS_TIMEOUT_S = 2.0
MAX_SAMPLES = 200_000


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
                readings = parse_server_metrics(await _fetch_text(session, self._url))
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


async def _fetch_text(session: aiohttp.ClientSession, url: str) -> str:
    """Text of the answer."""
    options: dict[str, Any] = {"allow_redirects": False, "headers": {"Accept": "text/plain"}}
    async with session.get(url, **options) as response:
        if response.status != 200:
            raise InputError(f"status {response.status}")
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_METRICS_BYTES:
                raise InputError(f"an answer of more than {MAX_METRICS_BYTES >> 20} MiB")
    return body.decode(errors="replace")
