"""How time and memory grow with the work: each job at three sizes, ten times apart, as an exponent.

    python -m bench.bench_growth [--job NAME ...] [--trials 3] [--quick] [--list] [--json FILE]

Each trial is a whole process on inputs that are made before, the sizes in turn. A process has a cost that does not
grow, such as its start; with times a + b * size ** k, k is log((t3 - t1) / (t2 - t1) - 1) / log 10, whatever a and b
are. Where the second size takes no more than 5 % longer than the first one, the work is too small beside the start, and
has no exponent. Memory is the largest of the process and its children.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import shape
from bench.bench_eventlog import SAMPLE
from bench.shape import Bar, Row

FACTOR, AREA = 10, "sizing"
# A time that grows by less says nothing of its exponent.
MIN_GROWTH = 0.05
BAR = Bar("value", at_most=1.15)
# A small process in between: the largest memory of a child counts what its parent had when it was forked.
_STARTER = """
import json, resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3]))
sys.exit(code)
"""
OUT = "OUT"
"""In a command: a folder that is new in each trial."""
Prepare = Callable[[Path, int], list[str]]


@dataclass(frozen=True)
class Job:
    """A command whose input grows: `smallest` is its first size, of what `of` says.

    `prepare`: Makes the input of a size in a folder; returns the command over it.
    """

    name: str
    area: str
    of: str
    smallest: int
    prepare: Prepare

    def list_sizes(self, *, quick: bool) -> list[int]:
        """The three sizes; quick: two steps of two only, to try the command."""
        factor = 2 if quick else FACTOR
        return [self.smallest * factor**step for step in range(3)]


def workbench(*arguments: str | Path) -> list[str]:
    """A command of the workbench."""
    return [sys.executable, "-m", "workbench", *map(str, arguments)]


def _make_log(folder: Path, *, queries: int, tasks: int) -> Path:
    """The shipped sample with its queries so many times, and each of its tasks so many times."""
    from bench.replicate import replicate
    from tests.eventlog.reference import content

    target = folder / "log"
    replicate(content(SAMPLE), target, 0, tasks, queries)
    return target


def prepare_tasks(folder: Path, size: int) -> list[str]:
    """Facts of one log of the sample's queries."""
    return workbench("eventlog", "facts", _make_log(folder, queries=1, tasks=size), "--out", OUT, "--no-hash")


def prepare_queries(folder: Path, size: int) -> list[str]:
    """Facts of one log of many small queries."""
    return workbench("eventlog", "facts", _make_log(folder, queries=size, tasks=1), "--out", OUT, "--no-hash")


def prepare_profile(folder: Path, size: int) -> list[str]:
    """The profile of one log of many small queries."""
    return workbench("speedup", "profile", _make_log(folder, queries=size, tasks=1), "--out", OUT)


def prepare_what_if(folder: Path, size: int) -> list[str]:
    """Another run of one log of the sample's queries."""
    return workbench("speedup", "what-if", _make_log(folder, queries=1, tasks=size), "--executors", "2", "--out", OUT)


def prepare_depth(folder: Path, size: int) -> list[str]:
    """Facts of 50 queries by the depth of their plans."""
    from tests.fakes import eventlogs

    tree = eventlogs.plan("Range", metrics={1: "number of output rows"})
    for place in range(size):
        tree = eventlogs.plan("Filter", f"step {place}", [tree], metrics={place + 2: "number of output rows"})
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 20 * size)
    queries = [
        event for number in range(50) for event in (eventlogs.sql_start(number, tree), eventlogs.sql_end(number))
    ]
    path = folder / "log"
    path.write_bytes(eventlogs.small(*queries))
    sys.setrecursionlimit(limit)
    return workbench("eventlog", "facts", path, "--out", OUT, "--no-hash")


def prepare_executors(folder: Path, size: int) -> list[str]:
    """Another run of one log by its executors, each with five tasks of one core."""
    from tests.fakes import eventlogs

    names = [str(place) for place in range(1, size + 1)]
    job = {"tasks": 5 * size}
    tasks = [
        event
        for task in range(5 * size)
        for event in (
            eventlogs.task_start(task_id=task),
            eventlogs.task_end(
                task_id=task,
                executor_id=names[task % size],
                launch_ms=2100 + 100 * (task // size),
                finish_ms=2200 + 100 * (task // size),
            ),
        )
    ]
    added = [eventlogs.executor_added(name, f"worker-{name}", cores=1) for name in names]
    begin = (eventlogs.log_start(), *added, eventlogs.environment(), eventlogs.application_start())
    stage = (eventlogs.stage_submitted(**job), *tasks, eventlogs.stage_completed(**job))
    end = (eventlogs.job_end(), eventlogs.application_end())
    path = folder / "log"
    path.write_bytes(eventlogs.dump(*begin, eventlogs.job_start(), *stage, *end))
    return workbench("speedup", "what-if", path, "--executors", "2", "--out", OUT)


def prepare_fleet(folder: Path, size: int) -> list[str]:
    """A fleet of small logs, measured."""
    from bench.bench_qualify import MEASURE, make_fleet

    logs, script = folder / "fleet", folder / "measure.py"
    logs.mkdir()
    script.write_text(MEASURE)
    make_fleet(SAMPLE, logs, size, 1)
    return [sys.executable, str(script), str(logs), "2", str(size)]


def _write_load_result(folder: Path, *, levels: int, requests: int) -> Path:
    """The result of vllm's client: so many requests at each of so many rates."""
    path = folder / "result.jsonl"
    with path.open("w") as file:
        for level in range(1, levels + 1):
            rate = 20.0 * level / levels
            document = {
                "backend": "openai-chat", "endpoint_type": "openai-chat", "num_prompts": requests,
                "request_rate": rate, "burstiness": 1.0, "max_concurrency": None, "request_throughput": rate,
                "completed": requests, "failed": 0, "input_lens": [100] * requests, "output_lens": [41] * requests,
                "ttfts": (0.1 + np.arange(requests) % 7 / 100).tolist(), "itls": [[0.02] * 40] * requests,
                "errors": [""] * requests, "start_times": (np.arange(requests) / rate).tolist(),
            }  # fmt: skip
            file.write(json.dumps(document) + "\n")
    return path


def prepare_requests(folder: Path, size: int) -> list[str]:
    """The import of a load test's result by its requests."""
    path = _write_load_result(folder, levels=1, requests=size)
    return workbench("sizing", "import", path, "--gpus", "1", "--out", OUT)


def prepare_levels(folder: Path, size: int) -> list[str]:
    """The import of a load test's result by its levels, 50 requests each."""
    path = _write_load_result(folder, levels=size, requests=50)
    return workbench("sizing", "import", path, "--gpus", "1", "--out", OUT)


def prepare_estimate(folder: Path, size: int) -> list[str]:
    """How many GPUs, from four levels, by the requests of each."""
    path = _write_load_result(folder, levels=4, requests=size)
    command = workbench("sizing", "import", path, "--gpus", "1", "--goal", "p95<=2", "--out", folder / "sweeps")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (sweep,) = (found.parent for found in (folder / "sweeps").rglob("sweep.json"))
    return workbench("sizing", "estimate", sweep, "--target-rate", "100")


def prepare_rounds(folder: Path, size: int) -> list[str]:
    """What a session of six stacks recommends, by its rounds."""
    return _recommend(folder, n_arms=6, n_rounds=size)


def prepare_arms(folder: Path, size: int) -> list[str]:
    """What a session of ten rounds recommends, by its stacks."""
    return _recommend(folder, n_arms=size, n_rounds=10)


def _recommend(folder: Path, *, n_arms: int, n_rounds: int) -> list[str]:
    from tests.indicators.worlds import on_disk, session

    plan, rng = session([f"stack {place}" for place in range(n_arms)]), np.random.default_rng(1)
    values = {(arm.name, "Sort"): rng.lognormal(3, 0.02, n_rounds).tolist() for arm in plan.arms}
    return workbench("indicators", "recommend", on_disk(folder / "session", plan, values), "--out", OUT)


def prepare_replay(folder: Path, size: int) -> list[str]:
    """A join of two tables replayed alone and verified, by its rows."""
    return _dump_join(folder, n_rows=size, n_partitions=4)


def prepare_partitions(folder: Path, size: int) -> list[str]:
    """A join of 200,000 rows replayed alone and verified, by its partitions."""
    return _dump_join(folder, n_rows=200_000, n_partitions=size)


def _dump_join(folder: Path, *, n_rows: int, n_partitions: int) -> list[str]:
    import polars as pl

    from workbench.lore.config import NotebookConfig, format_operator_id
    from workbench.lore.spark_bridge.query_runs import build_plan_table, choose_operator
    from workbench.lore.spark_bridge.query_sources import OpenQuery

    tables, rng = folder / "tables", np.random.default_rng(1)
    tables.mkdir()
    keys = rng.integers(0, n_rows, n_rows)
    pl.DataFrame({"k": keys, "v": rng.random(n_rows)}).write_parquet(tables / "sales.parquet")
    pl.DataFrame({"k": np.arange(n_rows), "name": np.arange(n_rows) % 97}).write_parquet(tables / "products.parquet")
    config = NotebookConfig(
        query_file=str(folder / "query.sql"),
        data_folder=str(tables),
        confs=[f"spark.sql.shuffle.partitions={n_partitions}", "spark.sql.adaptive.coalescePartitions.enabled=false"],
    )
    Path(config.query_file).write_text("SELECT /*+ MERGE(products) */ * FROM sales JOIN products USING (k)")
    with contextlib.closing(OpenQuery(config)) as query:
        assert query.tree is not None
        chosen = choose_operator(build_plan_table(query.tree))
        dump, _ = query.dump_operator(format_operator_id(chosen.lore_id, None), folder / "dump")
    return workbench("lore", "verify", dump)


def prepare_series(folder: Path, size: int) -> list[str]:
    """The import of a file of results by its series, ten days of each."""
    rng = np.random.default_rng(1)
    rows = [
        f"2026-11-{day:02d}T02:00:00+00:00,case_{place},{rng.lognormal(0, 0.02):.6f},ms,lower"
        for day in range(1, 11)
        for place in range(size)
    ]
    path = folder / "results.csv"
    path.write_text("\n".join(["time,series,value,unit,direction", *rows]) + "\n")
    return workbench("indicators", "import", path, "--out", OUT)


def prepare_pods(folder: Path, size: int) -> list[str]:
    """The tables and charts of a scale test by its pods."""
    from bench import bench_scaletest_analysis

    (folder / "tables").mkdir()
    bench_scaletest_analysis._make(folder, size)
    return [sys.executable, "-m", "bench.bench_scaletest_analysis", "--one", "ours", "--folder", str(folder)]


def prepare_plan(folder: Path, size: int) -> list[str]:
    """What a scenario would do, by its workloads."""
    path = folder / "scenario.yaml"
    path.write_text(
        f"name: growth\nlimits: {{rate_per_s: 100, objects: {size}}}\n"
        f"arrival: {{process: constant, rate_per_s: 100, n: {size}}}\n"
        "workloads:\n  - {kind: Job, name: job, gpus: 1, lifetime: 20}\n"
    )
    return workbench("scaletest", "plan", path)


def prepare_starts(folder: Path, size: int) -> list[str]:
    """When a job starts, by the nodes of a full cluster: four jobs on each, and one that waits for each."""
    from tests.scaletest.start_times.making_states import make_state, make_workload
    from workbench.scaletest.start_times.cluster_state import write_state

    running = [
        make_workload(f"job-{place}", 2, node=f"n{place // 4}", created_s=-60.0 * place, started_s=-60.0 * place)
        for place in range(4 * size)
    ]
    waiting = [make_workload(f"next-{place}", 4, created_s=-float(place)) for place in range(size)]
    state, job = folder / "state.json", folder / "job.yaml"
    write_state(make_state(*running, *waiting, n_nodes=size), state)
    job.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: mine, namespace: team}\nspec:\n  containers:\n"
        "    - {name: main, image: none, resources: {limits: {nvidia.com/gpu: 2}}}\n"
    )
    return workbench("scaletest", "when", job, "--state", state, "--run-time", "all=2h..8h", "--no-arrivals")


def prepare_day_jobs(folder: Path, size: int) -> list[str]:
    """A capacity plan by the jobs of an hour, in four classes."""
    jobs = [f"jobs-{place} applications='tpch spark*' gpus=1 pods=2 per_hour={size} hours=8-18" for place in range(4)]
    plan = folder / "plan.yaml"
    plan.write_text(json.dumps({"jobs": jobs}))
    return workbench("capacity", "plan", "-f", plan, "--speedup", "sample:capacity/speedup", "--out", OUT)


def _make_runs(folder: Path, size: int) -> Path:
    """Runs of one notebook, one an hour until now, with a table of three figures each."""
    from datetime import UTC, datetime, timedelta

    from workbench.core.tables import Column, Table
    from workbench.runs import run_folder

    ends = [Column(f"p50_{end}", "float", f"{end} end.", unit="ms") for end in ("low", "high")]
    columns = (Column("name", "str", "Case."), Column("p50", "float", "Median.", unit="ms", better="lower"), *ends)
    table, out, rng = Table("cases", "One row per case.", ("name",), columns), folder / "runs", np.random.default_rng(1)
    now = datetime.now(UTC)
    ended = {"title": "Growth", "config": {"scale": 1}, "status": "succeeded", "duration_s": 60.0}
    record = run_folder.build_record("", AREA, now) | ended | {"verdict": "valid", "answer": "An answer."}
    for place in range(size):
        began = now - timedelta(hours=size - place)
        times = {"started_at": began.isoformat(), "ended_at": (began + timedelta(minutes=1)).isoformat()}
        run_id = f"{began:%Y%m%dT%H%M%SZ}-{place:06x}"
        values = rng.lognormal(2, 0.02, 3).tolist()
        rows = [
            {"name": name, "p50": value, "p50_low": 0.98 * value, "p50_high": 1.02 * value}
            for name, value in zip("abc", values, strict=True)
        ]
        run_folder.Run(out / AREA / run_id, record | times | {"run_id": run_id}).write_table(table, table.frame(rows))
    return out


def prepare_listing(folder: Path, size: int) -> list[str]:
    """The newest of many runs."""
    return workbench("runs", "list", "--out", _make_runs(folder, size))


def prepare_run_history(folder: Path, size: int) -> list[str]:
    """The figures of one notebook over its runs."""
    return workbench("runs", "history", AREA, "--out", _make_runs(folder, size))


def prepare_gallery(folder: Path, size: int) -> list[str]:
    """The index page of many runs."""
    return workbench("gallery", _make_runs(folder, size))


def prepare_questions(folder: Path, size: int) -> list[str]:
    """The newest of many runs, asked of the MCP server."""
    return [sys.executable, "-m", "bench.mcp_question", str(_make_runs(folder, size))]


def prepare_gallery_page(folder: Path, size: int) -> list[str]:
    """The index page of many runs, opened in Chromium and scrolled to its end."""
    from workbench.report.gallery import write_gallery

    return [sys.executable, "-m", "bench.page_opening", str(write_gallery(_make_runs(folder, size)))]


def prepare_report_page(folder: Path, size: int) -> list[str]:
    """A report by its charts, opened in Chromium and scrolled to its end."""
    from nbformat import v4

    from tests.browser import samples
    from workbench.report import page

    pieces = list(samples.all_pieces().values())
    outputs = [samples.shown(pieces[place % len(pieces)]) for place in range(size)]
    run = samples.write_run(folder, [v4.new_markdown_cell("# Q?"), v4.new_code_cell("charts", outputs=outputs)])
    return [sys.executable, "-m", "bench.page_opening", str(page.write_report(run))]


JOBS = (
    Job("facts-tasks", "eventlog", "tasks a task of the sample", 2, prepare_tasks),
    Job("facts-queries", "eventlog", "times the sample's queries", 1, prepare_queries),
    Job("profile-queries", "speedup", "times the sample's queries", 1, prepare_profile),
    Job("what-if-tasks", "speedup", "tasks a task of the sample", 2, prepare_what_if),
    Job("facts-depth", "eventlog", "operators in a plan", 60, prepare_depth),
    Job("what-if-executors", "speedup", "executors", 20, prepare_executors),
    Job("fleet-logs", "speedup", "logs", 4, prepare_fleet),
    Job("import-requests", "sizing", "requests", 500, prepare_requests),
    Job("import-levels", "sizing", "levels", 5, prepare_levels),
    Job("estimate-requests", "sizing", "requests a level", 100, prepare_estimate),
    Job("recommend-rounds", "indicators", "rounds", 50, prepare_rounds),
    Job("recommend-stacks", "indicators", "stacks", 10, prepare_arms),
    Job("replay-rows", "lore", "rows", 50_000, prepare_replay),
    Job("replay-partitions", "lore", "partitions", 4, prepare_partitions),
    Job("import-series", "indicators", "series", 10, prepare_series),
    Job("analysis-pods", "scaletest", "pods", 1000, prepare_pods),
    Job("plan-workloads", "scaletest", "workloads", 1000, prepare_plan),
    Job("when-nodes", "scaletest", "nodes", 5, prepare_starts),
    Job("capacity-jobs", "capacity", "jobs of a class an hour", 2, prepare_day_jobs),
    Job("runs-list", "runs", "runs", 100, prepare_listing),
    Job("runs-history", "runs", "runs", 200, prepare_run_history),
    Job("gallery-runs", "runs", "runs", 100, prepare_gallery),
    Job("mcp-runs", "runs", "runs", 100, prepare_questions),
    Job("gallery-page", "report", "runs", 100, prepare_gallery_page),
    Job("report-page", "report", "charts", 1, prepare_report_page),
)


def run_once(command: list[str], folder: Path) -> dict[str, float]:
    """Wall time, CPU time and largest memory of a process and its children."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    argv = [str(out) if part == OUT else part for part in command]
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _STARTER, *argv], capture_output=True, cwd=Path(__file__).parents[1], check=False
    )
    wall_s = time.perf_counter() - begin
    # 1 is an answer, too: that nothing can be known of it.
    if done.returncode not in (0, 1):
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()[-300:]}")
    cpu_s, memory_mb = json.loads(done.stdout)
    return {"wall_s": wall_s, "cpu_s": cpu_s, "memory_mb": memory_mb}


def estimate_exponent(values: Sequence[float | None], factor: float) -> float | None:
    """The exponent of three values at sizes a factor apart, without what does not grow; null where it is not resolved.

    >>> round(estimate_exponent([1.1, 2.0, 11.0], 10), 3)
    1.0
    """
    first, second, third = values
    if first is None or second is None or third is None or second - first <= MIN_GROWTH * first or third <= second:
        return None
    return math.log((third - first) / (second - first) - 1) / math.log(factor)


def measure(job: Job, trials: int, *, quick: bool) -> Iterator[Row]:
    """Rows of a job: its times at each size, and the exponents of time and memory."""
    sizes = job.list_sizes(quick=quick)
    with tempfile.TemporaryDirectory() as scratch:
        sides: dict[str, Any] = {}
        for size in sizes:
            folder = Path(scratch) / str(size)
            folder.mkdir()
            command = job.prepare(folder, size)
            sides[f"{size:,} {job.of}"] = lambda command=command, folder=folder: run_once(command, folder)
        found = shape.alternating(sides, trials)
    unresolved = []
    for quantity, name in (("wall_s", "time"), ("memory_mb", "memory")):
        by_size = zip(*(found.of(side, quantity) for side in sides), strict=True)
        exponents = [estimate_exponent(values, sizes[1] / sizes[0]) for values in by_size]
        known = [value for value in exponents if value is not None]
        if known:
            what = f"{job.name}: exponent of {name}, {sizes[0]:,} to {sizes[-1]:,} {job.of}"
            yield Row(job.area, what, "workbench", "", list(known), bar=BAR)
        else:
            unresolved.append(name)
    note = f"{' and '.join(unresolved)}: too little growth for an exponent" if unresolved else ""
    for side in sides:
        failures = found.failures[side]
        yield Row(job.area, f"{job.name}: time", side, "s", found.of(side, "wall_s"), note=note, failures=failures)


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__, trials=3)
    parser.add_argument("--job", nargs="+", default=[], help="these jobs only")
    parser.add_argument("--list", action="store_true", help="list the jobs and their sizes")
    given = parser.parse_args()
    chosen = [job for job in JOBS if job.name in given.job or not given.job]
    if unknown := sorted(set(given.job) - {job.name for job in JOBS}):
        parser.error(f"--job {', '.join(unknown)}: there is {', '.join(job.name for job in JOBS)}")
    if given.list:
        shape.print_rows([{"job": job.name, "sizes": job.list_sizes(quick=False), "of": job.of} for job in chosen])
        return 0
    rows: list[Row] = []
    for job in chosen:
        shape.say(job.name)
        rows += measure(job, given.trials, quick=given.quick)
    return shape.finish(rows, given.json)


if __name__ == "__main__":
    sys.exit(main())
