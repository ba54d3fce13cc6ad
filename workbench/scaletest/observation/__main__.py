"""Sampler process: `python -m workbench.scaletest.observation --folder DIR --run RUN --namespace NS`.

Prints `ready` on stdout once every watch is connected, then its state as one JSON line per second. Stops at the end of
stdin (so it ends with its parent process) and on SIGTERM or SIGINT, after writing its files. Exit codes: 0 stopped,
2 invalid use, 3 the cluster or the disk failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Sequence

import msgspec

from workbench.core.errors import ConfigError, WorkbenchError
from workbench.scaletest.cluster_api import api_discovery, connection
from workbench.scaletest.observation import component_metrics
from workbench.scaletest.observation.sampler import SamplerState, run_sampler

READY = "ready"
USER_AGENT = "workbench-sampler"
CONNECTIONS = 512  # each watch holds one


def build_parser() -> argparse.ArgumentParser:
    """Build the command line parser."""
    parser = argparse.ArgumentParser(prog="python -m workbench.scaletest.observation", description=__doc__)
    parser.add_argument("--folder", required=True, help="run folder")
    parser.add_argument("--kubeconfig", help="kubeconfig of the measuring identity")
    parser.add_argument("--context", help="context in the kubeconfig")
    parser.add_argument("--run", required=True, help="run id, st-…")
    parser.add_argument("--namespace", action="append", required=True, help="namespace to watch; repeatable")
    parser.add_argument("--kind", action="append", default=[], help="GROUP/VERSION/PLURAL of workloads; repeatable")
    parser.add_argument("--by-namespace", action="store_true", help="watch without a label selector")
    parser.add_argument("--foreign-pods", action="store_true", help="count evicted and pending pods of other users")
    parser.add_argument("--audit-log", help="audit log of the API server, if readable")
    parser.add_argument("--side-pid", type=int, action="append", default=[], help="process of a local cluster")
    parser.add_argument("--metrics", action="append", default=[], help="COMPONENT=URL on this machine; repeatable")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run until stopped; returns the exit code."""
    chosen = build_parser().parse_args(argv)
    try:
        if not api_discovery.RUN_ID.fullmatch(chosen.run):
            raise ConfigError("not a run's id", where="--run", found=chosen.run[:40], allowed="st- and 8 hex digits")
        asyncio.run(_run_sampler(chosen))
    except WorkbenchError as error:
        print(error, file=sys.stderr)  # noqa: T201 -- a program of its own
        return error.exit_code
    return 0


async def _run_sampler(chosen: argparse.Namespace) -> None:
    kinds = [api_discovery.parse_resource(text) for text in chosen.kind]
    target = _set_user_agent(connection.load_target(chosen.kubeconfig, chosen.context))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=_stop_at_end_of_stdin, args=(loop, stop), daemon=True).start()
    async with connection.Connection(target, max_connections=CONNECTIONS) as api:
        await run_sampler(
            api,
            chosen.folder,
            chosen.run,
            chosen.namespace,
            kinds,
            stop=stop,
            ready=lambda: _print_line(READY.encode()),
            tell=_print_state,
            by_namespace=chosen.by_namespace,
            foreign_pods=chosen.foreign_pods,
            audit_log=chosen.audit_log,
            client_pids=(os.getppid(),),
            side_pids=chosen.side_pid,
            metrics=component_metrics.parse_sources(chosen.metrics),
        )


def _set_user_agent(target: connection.Target) -> connection.Target:
    """The target with the sampler's own user agent, which tells its requests from the load in audit logs."""
    return dataclasses.replace(target, headers=lambda: target.headers() | {"User-Agent": USER_AGENT})


def _stop_at_end_of_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # os.read, not sys.stdin, whose lock would still be held at interpreter exit.
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(stop.set)


def _print_state(state: SamplerState) -> None:
    _print_line(msgspec.json.encode(state))


def _print_line(text: bytes) -> None:
    """Write a line; drop it if the pipe is full, so that the watches do not block."""
    os.set_blocking(1, False)
    with contextlib.suppress(OSError):
        os.write(1, text + b"\n")


if __name__ == "__main__":
    sys.exit(main())
