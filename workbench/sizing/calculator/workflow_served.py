"""Runs of a workflow that is served, by requests to `POST /generate/full`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from workbench.errors import ConfigError
from workbench.sizing.calculator.dataset import Item
from workbench.sizing.calculator.workflow_runs import Run, Told, cleaned


class ServedWorkflow:
    """A workflow that is served: `POST URL/generate/full`.

    Parameters
    ----------
    url
        Base of the service.
    timeout_s
        Longest time of a request.
    header_env
        Header to the environment variable that holds its value.
    server_clock
        Take the server's events for the runtime, as the toolkit does; else this client's clock, which also sees the
        wait before the server begins.
    """

    def __init__(
        self, url: str, *, timeout_s: float, header_env: Mapping[str, str] | None = None, server_clock: bool = False
    ) -> None:
        self.name = "endpoint"
        self._url = url
        self._timeout_s = timeout_s
        self._header_env = dict(header_env or {})
        self._server_clock = server_clock

    async def __aenter__(self) -> Self:
        from workbench.sizing.driving.client import allow_connections
        from workbench.sizing.driving.targets.opening import opened
        from workbench.sizing.driving.wire import Target

        self._allow = allow_connections
        self._target = opened(
            Target(protocol="nat", url=self._url, timeout_s=self._timeout_s, header_env=self._header_env)
        )
        await self._target.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._target.close()

    async def level(self, concurrency: int, items: list[Item], told: Told) -> list[Run]:
        """Send the items, so many in flight."""
        self._allow(concurrency)
        waiting, runs = iter(items), list[Run]()
        failed = False

        async def user() -> None:
            nonlocal failed
            for item in waiting:
                if failed:
                    return
                run = await self._send(item)
                failed = failed or run.outcome != "ok"
                runs.append(run)
                told(len(runs), len(items))

        await asyncio.gather(*(user() for _ in range(min(concurrency, len(items)))))
        return runs

    async def _send(self, item: Item) -> Run:
        sent = time.perf_counter()
        reply = await self._target.send(item.prompt)
        if reply.outcome != "ok":
            status = f"HTTP {reply.status}: " if reply.status else ""
            return Run(
                item.id,
                reply.outcome,
                detail=cleaned(f"{status}{reply.detail or reply.outcome}", *self._header_env.values()),
            )
        took = reply.ended - sent
        runtime_s = reply.server_runtime_s if self._server_clock and reply.server_runtime_s else took
        return Run(item.id, "ok", runtime_s, reply.llm_s or [], sent, reply.ended, reply.server_runtime_s)


def host_of(url: str) -> str:
    """The host of an endpoint, in lower case.

    Raises
    ------
    ConfigError
        It is no http or https URL, or holds a user name.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    del port
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        allowed = "http://HOST:PORT or https://HOST, without a user name"
        raise ConfigError(
            "not a URL of a served workflow", where="--endpoint", found=url.split("@")[-1], allowed=allowed
        )
    return host.lower()
