"""All benchmarks that the headline figures come from: what each runs, how long it takes, which figures stand out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """One benchmark as `python -m bench` runs it."""

    name: str
    area: str
    command: tuple[str, ...]
    """Module below bench, and its options."""
    minutes: float
    """About how long it takes on two cores."""
    repeats: bool = True
    """False: takes no --trials, for it runs once (minutes) or is exact (seeds)."""
    only_named: bool = False
    """True: run by its name alone."""


_WORLDS = ("bench_indicators_world", "--worlds", "150")
ALL = (
    Headline("house", "house", ("bench_house", "start"), 1),
    Headline("panel", "house", ("bench_house", "panel"), 1.5),
    Headline("notebooks", "house", ("bench_house", "all"), 1, repeats=False),
    Headline("suite", "house", ("bench_house", "suite"), 50, repeats=False, only_named=True),
    Headline("growth", "house", ("bench_growth", "--trials", "3"), 15, repeats=False, only_named=True),
    Headline("eventlog", "eventlog", ("bench_eventlog",), 16.5),
    Headline("fleet", "speedup", ("bench_qualify", "--logs", "40"), 5),
    Headline("fleet-spark", "speedup", ("bench_fleet_spark",), 20, only_named=True),
    Headline("lore", "lore", ("bench_lore",), 5.5),
    Headline("lore-times", "lore", ("bench_lore_times",), 30, repeats=False, only_named=True),
    Headline("lore-cost", "lore", ("bench_lore_cost",), 20, repeats=False, only_named=True),
    Headline("sizing-calc", "sizing", ("bench_sizing_calc",), 0.5),
    Headline("sizing-engine", "sizing", ("bench_sizing_engine",), 2),
    Headline("sizing-http", "sizing", ("bench_sizing_http",), 2, repeats=False),
    Headline("sizing-peers", "sizing", ("bench_sizing_peers",), 15, only_named=True),
    Headline("sizing-truth", "sizing", ("bench_sizing_truth", "--seeds", "5"), 5, repeats=False),
    Headline("copies", "indicators", ("bench_indicators_copies", "--sessions", "1"), 2, repeats=False),
    Headline("runs", "indicators", ("bench_indicators_overhead",), 1.3),
    Headline("worlds", "indicators", (*_WORLDS, "--only", "the bar", "alone"), 0.5, repeats=False),
    Headline("rounds", "indicators", ("bench_indicators_rounds",), 1, repeats=False, only_named=True),
    Headline("matrix", "indicators", ("bench_indicators_matrix",), 10, repeats=False, only_named=True),
    Headline("history", "indicators", ("bench_indicators_history",), 3, repeats=False, only_named=True),
    Headline("cluster", "scaletest", ("bench_scaletest_cluster",), 0.8),
    Headline("submit", "scaletest", ("bench_scaletest_submit",), 1.2),
    Headline("upstream", "scaletest", ("bench_scaletest_upstream",), 2.5),
    Headline("sampler", "scaletest", ("bench_scaletest_sampler", "memory"), 0.3, repeats=False),
    Headline("analysis", "scaletest", ("bench_scaletest_analysis",), 0.9),
    Headline("large", "scaletest", ("bench_scaletest_large",), 8, repeats=False, only_named=True),
    Headline("trace", "scaletest", ("bench_scaletest_trace",), 15, repeats=False, only_named=True),
)

TOLD = (
    ("eventlog", "100 tasks a stage: wall time", "2 processes", "JVM profiling tool, -Xmx1g"),
    ("eventlog", "many small queries: wall time", "2 processes", "JVM profiling tool, -Xmx1g"),
    ("eventlog", "100 tasks a stage: peak memory", "2 processes", "JVM profiling tool, -Xmx8g"),
    ("fleet", "measured", "2 processes", "JVM qualification tool, -Xmx4g"),
    ("lore", "post-hoc", "with a dump of 1 of 8 partitions", "the query alone"),
    ("sizing-calc", "wall time", "workbench, both plots", "toolkit, both plots"),
    ("sizing-truth", "(or one more)", "workbench", "slope, two bursts"),
    ("submit", "as fast as they go", "workbench, 32 in flight", "kubectl apply, 8 at once"),
)
"""What stands in short on top: benchmark, end of its scenario's text, ours, the side beside it."""

NO_PEER = {
    "indicators beside Thoth": "Amun and Thoth's services run on a cluster and are no longer run; there is nothing to "
    "install, and what they did is compared in the guide by its design (in blocks, one figure an image)",
    "LORE beside the RAPIDS plugin": "its dumps and replays need the plugin's jar and a GPU, and there is none here",
    "load beside the toolkit's client": "the online calculator needs a model behind its workflow; what was seen of its "
    "client (100 requests in flight) stands in the sizing guide, dated",
    "a real cluster, a real GPU": "none at hand: the cluster's control plane is real, its nodes are simulated",
}
"""What was not measured by any of them, and why."""
