"""Bottleneck inside the server, by its own metrics: requests that wait, a full KV cache, or all but its GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

MIN_SAMPLES = 4
"""Fewer samples of a level say nothing."""
MIN_WAITING_SHARE = 0.5
MIN_FULL_SHARE = 0.5
FULL_CACHE = 0.95
"""A server stops admitting requests shortly before its last block is taken."""
MAX_IDLE_BUSY = 0.5
"""GPUs that run a kernel for less than half of the time with work do not hold it back."""
QUEUE, CACHE, HOST = "queue", "kv cache", "host"

SERVER_COLUMNS = (
    "server_samples",
    "server_running",
    "server_waiting",
    "waiting_share",
    "kv_cache",
    "kv_cache_full_share",
    "preemptions",
    "gpu_busy",
    "gpu_power_w",
    "gpu_clock_mhz",
    "server_binds",
)


def summarize_server_metrics(
    samples: pl.DataFrame | None, begin_s: float, end_s: float, in_flight: float | None = None
) -> dict[str, Any]:
    """Columns of `points` that the server's own metrics give.

    `samples`: Rows of `server_metrics` of one step; null without metrics.
    `begin_s`, `end_s`: First and last kept send time: filling and draining do not count.
    `in_flight`: Mean of the requests in flight, by the client; null where it is not known.

    Returns: Medians of requests running and waiting, the share of the samples in which a request waited and in which
    the KV cache was full (95 % and more), its highest fraction, preemptions, means of the GPUs' load, power and
    clock, and what binds: 'kv cache' where it was full in half of the samples, or requests were preempted while it
    filled, else 'queue' where requests waited in half of them, else 'host' where GPUs were busy for less than half of
    the time with a request in flight. All null without samples, and what binds below four.

    A full cache makes requests wait, too, so it comes first. Does not show why a queue is there: a limit of the server
    (`--max-num-seqs`), its computing, or a cache that it does not report. A GPU counts as busy while any kernel runs,
    however small: 'host' is never said of one that is full, and a full one may still be slow.

    >>> import polars as pl
    >>> samples = {"at_s": range(5), "running": 8, "waiting": [0, 3, 4, 4, 5], "kv_cache": 0.4, "preemptions": 0}
    >>> samples |= dict.fromkeys(("gpu_busy", "gpu_power_w", "gpu_clock_mhz"))
    >>> summary = summarize_server_metrics(pl.DataFrame(samples), 0.0, 10.0)
    >>> summary["server_waiting"], summary["waiting_share"], summary["server_binds"]
    (4.0, 0.8, 'queue')
    """
    nothing = dict.fromkeys(SERVER_COLUMNS)
    if samples is None:
        return nothing
    window = samples.filter((samples["at_s"] >= begin_s) & (samples["at_s"] <= end_s))
    if not window.height:
        return nothing | {"server_samples": 0}
    waiting, cache, preempted = (window[name].drop_nulls() for name in ("waiting", "kv_cache", "preemptions"))
    summary: dict[str, Any] = {
        "server_samples": window.height,
        "server_running": window["running"].median(),
        "server_waiting": window["waiting"].median(),
        "waiting_share": (waiting > 0).mean(),
        "kv_cache": cache.max(),
        "kv_cache_full_share": (cache >= FULL_CACHE).mean(),
        # A counter that falls was started anew: what it counted before is not known.
        "preemptions": int(preempted[-1] - preempted[0]) if len(preempted) and preempted[-1] >= preempted[0] else None,
        **{name: window[name].mean() for name in ("gpu_busy", "gpu_power_w", "gpu_clock_mhz")},
    }
    return (
        nothing
        | summary
        | {"server_binds": _find_binding(summary, in_flight) if window.height >= MIN_SAMPLES else None}
    )


def _find_binding(summary: dict[str, Any], in_flight: float | None) -> str | None:
    """Name the resource that binds inside the server, null if none; `in_flight` is the mean number of requests."""
    was_full = (summary["kv_cache_full_share"] or 0.0) > 0
    if (summary["kv_cache_full_share"] or 0.0) >= MIN_FULL_SHARE or (was_full and summary["preemptions"]):
        return CACHE
    if (summary["waiting_share"] or 0.0) >= MIN_WAITING_SHARE:
        return QUEUE
    # With arrivals by chance, one request or more is in flight for this share of the time.
    with_work = 1 - math.exp(-(in_flight or 0.0))
    busy = summary["gpu_busy"]
    return HOST if busy is not None and in_flight is not None and busy < MAX_IDLE_BUSY * with_work else None


def describe_server_bottleneck(point: dict[str, Any]) -> str | None:
    """Describe what binds at one level, in words; null if nothing does or it is not known.

    >>> row = dict.fromkeys(SERVER_COLUMNS) | {"server_binds": "queue", "server_waiting": 3.0, "waiting_share": 0.8}
    >>> describe_server_bottleneck(row)
    'requests wait in the server (80 % of the samples, 3 in the median)'
    """
    if point.get("server_binds") == QUEUE:
        share = f"{100 * point['waiting_share']:.0f} % of the samples"
        return f"requests wait in the server ({share}, {point['server_waiting']:g} in the median)"
    if point.get("server_binds") == CACHE:
        preempted = f", {point['preemptions']} preemptions" if point["preemptions"] else ""
        return f"the KV cache is full ({100 * point['kv_cache_full_share']:.0f} % of the samples{preempted})"
    if point.get("server_binds") == HOST:
        return f"GPUs that wait for the server's own program (busy {100 * point['gpu_busy']:.0f} % of the time)"
    return None


def describe_waiting_gpus(points: pl.DataFrame) -> str | None:
    """Describe in a sentence the loads at which the GPUs wait for the server's program; null if there are none.

    `points`: `load, load_unit, server_binds, gpu_busy` of table POINTS.

    >>> import polars as pl
    >>> loads = {"load": [8.0, 16.0], "load_unit": ["users", "users"]}
    >>> points = pl.DataFrame(loads | {"server_binds": [None, HOST], "gpu_busy": [0.5, 0.31]})
    >>> print(describe_waiting_gpus(points).split(";")[0])
    16 users: the GPUs wait for the server's own program (busy 31 % of the time)
    """
    waiting = points.filter(points["server_binds"] == HOST).sort("load")
    if not waiting.height:
        return None
    unit = "/s" if waiting["load_unit"][0] == "1/s" else " users"
    loads = " to ".join(dict.fromkeys(f"{load:g}" for load in (waiting["load"][0], waiting["load"][-1])))
    shares = [round(100 * share) for share in waiting["gpu_busy"]]
    busy = " to ".join(dict.fromkeys(str(share) for share in (min(shares), max(shares)))) + " %"
    return (
        f"{loads}{unit}: the GPUs wait for the server's own program (busy {busy} of the time); "
        "more or faster GPUs would help little"
    )


def find_first_bottleneck(points: pl.DataFrame, gpus: int) -> str | None:
    """Find the load from which something binds on this many GPUs, and what, as one clause; null if nothing does.

    `points`: Table `points`.
    """
    rows = points.filter((points["gpus"] == gpus) & points["server_binds"].is_not_null()).sort("load")
    if not rows.height:
        return None
    first = rows.row(0, named=True)
    unit = "users" if first["load_unit"] == "users" else "requests/s"
    return f"from {first['load']:g} {unit} on {describe_server_bottleneck(first)}"
