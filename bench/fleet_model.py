"""How long does a fleet take on N executors, and what bounds it? A simulation with figures measured here.

    python -m bench.fleet_model [--logs 10000] [--gb 1000] [--executors 1 2 8 64 512] [--s-per-gb 9] [--store s3]

Simulated, not measured: tasks are planned by the fleet's own `pack_by_size` and run by the first free executor; each
log takes its bytes times the seconds per GB (drawn within 20 %), or the five requests of its mark and result by four
writers where these take longer; the driver lists and reads results as it does, eight at a time. Bounds are printed
beside the simulated time: the executors' work, the largest log, the driver's reading, the store's requests. Sizes of
logs are lognormal (a 95th percentile of ten times the median).
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import random
from dataclasses import dataclass

from workbench.console.tables import format_table
from workbench.speedup.fleet.spark_fleet import POLL_S, READERS, pack_by_size
from workbench.speedup.fleet.spark_task import WRITERS

TASK_S = 0.02
"""Launch of a task, and the imports that a worker makes anew."""
START_S = 6.0
"""Start of driver and executors, measured on a standalone cluster of this machine."""
UNPACK_S = 0.001
LISTED_A_REQUEST = 1000
REQUESTS_A_LOG = 5
"""Of a task: mark and result, each with its size asked for, and the mark removed; the driver sends one more."""


@dataclass(frozen=True)
class StoreCosts:
    """Seconds of a small request and of a listing of a thousand names, and requests/s that the store takes."""

    request_s: float
    listing_s: float
    requests_per_s: float


STORES = {
    "folder": StoreCosts(0.0005, 0.002, 50_000),
    "s3": StoreCosts(0.03, 0.1, 3500),
}


@dataclass(frozen=True)
class FleetForecast:
    """Simulated seconds of a run, and the bounds below which it cannot fall."""

    total_s: float
    work_s: float
    largest_s: float
    driver_s: float
    store_s: float

    @property
    def bound(self) -> str:
        """The largest of the bounds."""
        bounds = {"executors": self.work_s, "largest log": self.largest_s, "driver": self.driver_s}
        bounds["store"] = self.store_s
        return max(bounds, key=bounds.__getitem__)


def draw_sizes(n_logs: int, total_bytes: float, seed: int = 0) -> list[int]:
    """Bytes of each log: lognormal, scaled to the total."""
    draw = random.Random(seed)
    raw = [draw.lognormvariate(0, 1.4) for _ in range(n_logs)]
    return [int(total_bytes * size / sum(raw)) for size in raw]


def simulate_fleet(
    sizes: list[int], executors: int, s_per_gb: float, store: StoreCosts, *, start_s: float = START_S, seed: int = 0
) -> FleetForecast:
    """The run of a fleet on one-core executors, each task to the first that is free."""
    draw = random.Random(seed)
    writes_s = REQUESTS_A_LOG * store.request_s / WRITERS
    packs = pack_by_size({str(number): size for number, size in enumerate(sizes)}, executors)
    free = [0.0] * executors
    ends = []
    for pack in packs:
        at_s = heapq.heappop(free) + TASK_S
        for name in pack:
            at_s += max(sizes[int(name)] / 1e9 * s_per_gb * draw.uniform(0.8, 1.2), writes_s)
            ends.append(at_s)
        heapq.heappush(free, at_s)
    listing_s = -(-len(sizes) // LISTED_A_REQUEST) * store.listing_s
    total_s = follow_results(sorted(ends), listing_s, store.request_s / READERS + UNPACK_S)
    return FleetForecast(
        start_s + total_s,
        start_s + sum(sizes) / 1e9 * s_per_gb / executors,
        start_s + max(sizes) / 1e9 * s_per_gb,
        start_s + listing_s + len(sizes) * (store.request_s / READERS + UNPACK_S),
        start_s + (REQUESTS_A_LOG + 1) * len(sizes) / store.requests_per_s,
    )


def follow_results(ends_s: list[float], listing_s: float, read_s: float) -> float:
    """When a driver has read the last result: it lists all names, reads what is new, and does so again after a pause.

    >>> follow_results([1.0, 2.0, 2.5], 0.5, 0.1)
    3.2
    """
    at_s, n_read = 0.0, 0
    while n_read < len(ends_s):
        n_there = bisect.bisect_right(ends_s, at_s)
        at_s += listing_s + (n_there - n_read) * read_s
        n_read = n_there
        # The wait for the job ends with it.
        at_s = max(at_s, min(at_s + POLL_S, ends_s[-1])) if n_read < len(ends_s) else at_s
    return round(at_s, 6)


def main() -> None:
    """Simulate and print one row for each number of executors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--gb", type=float, default=1000.0, help="all logs, decoded")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 8, 64, 512])
    parser.add_argument("--s-per-gb", type=float, default=9.0, help="CPU seconds of a GB on one core")
    parser.add_argument("--store", choices=STORES, default="s3")
    parser.add_argument("--start-s", type=float, default=START_S)
    options = parser.parse_args()
    sizes = draw_sizes(options.logs, options.gb * 1e9)
    rows = []
    for executors in options.executors:
        forecast = simulate_fleet(sizes, executors, options.s_per_gb, STORES[options.store], start_s=options.start_s)
        rows.append(
            (executors, forecast.total_s, forecast.work_s, forecast.largest_s, forecast.driver_s, forecast.bound)
        )
    headers = ["executors", "simulated (s)", "work (s)", "largest log (s)", "driver (s)", "bound by"]
    print(
        f"simulated: {options.logs:,} logs, {options.gb:,g} GB, {options.s_per_gb:g} s/GB, results in {options.store}"
    )
    print("\n".join(format_table(rows, headers)))


if __name__ == "__main__":
    main()
