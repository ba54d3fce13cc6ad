"""What does the load engine cost beside a bare aiohttp loop, how many can it hold, how far off is its p95?

    python -m bench.bench_sizing_engine [--trials 5] [--requests 10000] [--json FILE]

The service is a process of its own that answers as cheaply as asyncio can. CPU per request: the engine (its client
process and the sweep's own, statistics and tables included) and a loop of `session.post` and `read` alternate at 64
in flight on a service without delay. Bias: p95 of the client over p95 logged by the service, which takes 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from bench import shape
from bench.shape import Bar, Row
from workbench.sizing.load.load_driver import raise_file_limit
from workbench.sizing.load.request_plan import Prompts
from workbench.sizing.load.sweep_report import SweepResult
from workbench.sizing.load.sweep_runner import run_sweep

USERS = 64
LEVELS = (1, 64, 256, 1000)
DELAY_S = 0.1
COST = Bar("ratio", at_least=0.77)  # at most 1.3 times the cost
AIOHTTP = f"aiohttp {metadata.version('aiohttp')}"


class Service:
    """The service's process."""

    def __init__(self, delay_s: float, events: int = 0) -> None:
        command = [sys.executable, "-m", "bench.plain_service", str(delay_s), "--events", str(events)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def counted(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def service(delay_s: float, events: int = 0) -> Iterator[Service]:
    found = Service(delay_s, events)
    try:
        yield found
    finally:
        found.close()


def bare(url: str, requests: int) -> dict[str, float]:
    """CPU of a bare loop, per request, in us; its rate."""
    import aiohttp

    async def work() -> None:
        left = iter(range(requests))
        _, prompt = next(Prompts([]).iterate_items(0, 0, 1))
        body = json.dumps({"input_message": prompt}).encode()
        headers = {"Content-Type": "application/json"}
        connector = aiohttp.TCPConnector(limit=0)

        async def user() -> None:
            for _ in left:
                async with session.post(url + "/generate/full", data=body, headers=headers) as response:
                    await response.read()

        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(user() for _ in range(USERS)))

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work())
    spent = time.process_time() - cpu
    return {"cpu_us": spent / requests * 1e6, "rate_per_s": requests / (time.perf_counter() - began)}


def engine(url: str, requests: int, protocol: str) -> dict[str, float]:
    """The same of the engine, with one client process; the sweep's own CPU counts too."""
    cpu = time.process_time()
    found = sweep(url, USERS, requests, protocol)
    own_s = time.process_time() - cpu
    step = found.steps.row(0, named=True)
    sent = found.requests.height
    client_s = step["client_cpu_share"] * step["duration_s"]
    return {
        "cpu_us": (client_s + own_s) / sent * 1e6,
        "client_cpu_us": client_s / sent * 1e6,
        "rate_per_s": sent / step["duration_s"],
    }


def sweep(url: str, users: int, requests: int, protocol: str, **settings: Any) -> SweepResult:
    target = {"url": url} if protocol == "nat" else {"url": url + "/json", "body": {"q": "{prompt}"}}
    return run_sweep(
        protocol=protocol,
        users=[users],
        least_samples=requests,
        most_samples=requests,
        max_step_s=60,
        **target,
        **settings,
    )


def costs(trials: int, requests: int, protocol: str) -> list[Row]:
    """CPU per request of both, in turn."""
    with service(0.0, events=2 if protocol == "nat" else 0) as target:
        sides: dict[str, Callable[[], dict[str, float]]] = {
            "workbench": lambda: engine(target.url, requests, protocol),
            "a bare aiohttp loop": lambda: alone("bare", target.url, requests),
        }
        found = shape.alternating(sides, trials)
    what = "JSON" if protocol == "http" else "the toolkit's events parsed (the bare loop parses none)"
    return [
        Row(
            "sizing",
            f"CPU per request, {what}",
            side,
            "us",
            found.of(side, "cpu_us"),
            peer=peer,
            failures=found.failures[side],
            bar=bar,
        )
        for side, peer, bar in (
            ("workbench", "", COST if protocol == "http" else None),
            ("a bare aiohttp loop", AIOHTTP, None),
        )
    ]


def alone(what: str, url: str, requests: int) -> dict[str, float]:
    """The bare loop in a process of its own, as the engine's client is."""
    command = [sys.executable, "-m", "bench.bench_sizing_engine", "--only", what, url, str(requests)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def held(users: int, ramp_s: float | None) -> list[Row]:
    """In flight by the service, rate, and how far the client's p95 is from the service's: one trial."""
    with service(DELAY_S) as target:
        found = sweep(target.url, users, max(400, 4 * users), "http", ramp_s=ramp_s)
        counted = target.counted()
    point = found.points.row(0, named=True)
    runtime = found.quantiles.filter((found.quantiles["metric"] == "runtime") & (found.quantiles["q"] == 0.95))
    bias_pct = 100 * (runtime["value_s"][0] / counted["p95_s"] - 1)
    what = f"{users} in flight on a 100 ms service, begun {'at once' if ramp_s == 0.0 else 'spread'}"
    note = f"{point['verdict']}; loop lag p99 {1e3 * point['loop_lag_p99_s']:.1f} ms"
    return [
        Row(
            "sizing",
            f"{what}: most in flight",
            "workbench",
            "requests",
            [counted["peak"]],
            note=note,
            higher_is_better=True,
        ),
        Row("sizing", f"{what}: rate", "workbench", "/s", [point["rate_per_s"]], note=note, higher_is_better=True),
        Row("sizing", f"{what}: p95 of the client beyond the service's", "workbench", "%", [bias_pct], note=note),
    ]


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--only", nargs=3, metavar=("WHAT", "URL", "N"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(bare(given.only[1], int(given.only[2]))))
        return 0
    levels = LEVELS[:2] if given.quick else LEVELS
    raise_file_limit(max(levels))
    rows: list[Row] = []
    for protocol in ("http", "nat"):
        rows += costs(given.trials, 500 if given.quick else given.requests, protocol)
    for users in levels:
        rows += held(users, None)
    return shape.finish(rows, given.json)


if __name__ == "__main__":
    sys.exit(main())
