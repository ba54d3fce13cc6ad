"""A server of a test's own on loopback."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(
    answers: Handler | web.Application, tls: ssl.SSLContext | None = None, **how: Any
) -> AsyncIterator[str]:
    """An application, or a handler of whatever is asked, by its URL."""
    app = answers if isinstance(answers, web.Application) else web.Application()
    if app is not answers:
        app.router.add_route("*", "/{tail:.*}", answers)
    runner = web.AppRunner(app, **{"shutdown_timeout": 0.1, "access_log": None} | how)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
