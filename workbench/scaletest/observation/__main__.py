"""Sampler process: `python -m workbench.scaletest.observation OPTIONS`, with `SamplerOptions` as a JSON document.

Prints `ready` on stdout once every watch is connected, then its state as one JSON line per second. Stops at the end of
stdin (so it ends with its parent process) and on SIGTERM or SIGINT, after writing its files. Exit codes: 0 stopped,
2 invalid use, 3 the cluster or the disk failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys

import msgspec

from workbench.core import child_process
from workbench.core.data_files import parse_json
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.core.schema import validate_model
from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api import api_discovery, connection
from workbench.scaletest.observation.sampler import SamplerState, run_sampler
from workbench.scaletest.observation.sampler_process import READY_LINE, SamplerOptions

NOUN = "set of sampler options"
USER_AGENT = "workbench-sampler"
CONNECTIONS = 512  # each watch holds one


def main(document: str) -> int:
    """Run until stopped; returns the exit code."""
    try:
        values = parse_json(document, noun=NOUN, error_type=ConfigError)
        options = validate_model(SamplerOptions, values, noun=NOUN, error_type=ConfigError)
        if not api_discovery.RUN_ID.fullmatch(options.run):
            raise ConfigError("not a run's id", where="run", found=options.run[:40], allowed="st- and 8 hex digits")
        asyncio.run(_run_until_told(options))
    except WorkbenchError as error:
        print(error, file=sys.stderr)  # noqa: T201 -- a program of its own
        return error.exit_code
    return 0


async def _run_until_told(options: SamplerOptions) -> None:
    target = load_target(options.kubeconfig, options.context)
    # A user agent of its own tells its requests from the load in audit logs.
    named = dataclasses.replace(target, headers=lambda: target.headers() | {"User-Agent": USER_AGENT})
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    child_process.set_at_stdin_end(stop)
    async with connection.Connection(named, max_connections=CONNECTIONS) as api:
        await run_sampler(api, options, stop=stop, ready=lambda: _print_line(READY_LINE.encode()), tell=_print_state)


def _print_state(state: SamplerState) -> None:
    _print_line(msgspec.json.encode(state))


def _print_line(text: bytes) -> None:
    """Write a line; drop it if the pipe is full, so that the watches do not block."""
    os.set_blocking(1, False)
    with contextlib.suppress(OSError):
        os.write(1, text + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
