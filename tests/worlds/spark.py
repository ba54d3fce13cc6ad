"""SIMULATED Spark applications: a truth is drawn, run on simulated executors, and written as Spark would log it.

`draw_world` draws an application with traits switched on; `World.write` writes its event log. The product reads only
the files; `World.truth` holds what they must show. A trait is a kind of what people report of their logs, never one
example of it.

Traits of `SUPPORTED` leave the log whole: its figures are wanted. Those of `DAMAGE` take something away or falsify it:
then a refusal is right, and a wrong figure is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.worlds.spark_plans import (
    EXCHANGE,
    PYTHON_METRICS,
    PYTHONS,
    SCALA,
    SOURCES,
    build_aggregate,
    build_join,
    build_scan,
    copy_plan,
    freeze_plan,
    rename_engine,
)
from tests.worlds.spark_run import ROWS, T0_MS, World
from tests.worlds.spark_truth import Executor, Node, Query, StageSpec

SPARKS = ("2.4.8", "3.3.4", "3.5.9", "4.0.1", "4.1.1")
LAYOUTS = ("plain", "rolled", "databricks")
SUPPORTED = (
    "resubmitted",
    "speculation",
    "failed_tasks",
    "fetch_failed",
    "killed_stage",
    "repeated_lines",
    "skew_join",
    "plugin_idle",
    "mixed_engine",
    "other_baseline",
    "gpu_slots",
    "task_cpus",
    "stage_profile",
    "dynamic_allocation",
    "queue_wait",
    "executor_replaced",
    "unnamed",
    "same_name",
    "connect",
    "driver_time",
    "client_fetch",
    "commit",
    "python_metric",
    "python_blind",
    "scala_udf",
    "cache",
    "subquery",
    "concurrent",
    "ctas",
    "failed_query",
    "number_gaps",
    "odd_fields",
    "deep_plan",
    "byte_order_mark",
    "sources",
    "rdd_jobs",
    "gaps_between",
)
DAMAGE = ("cut_tail", "lost_tasks", "clock_back", "two_applications", "lost_query_end", "utf16")
UNNAMED = "save at NativeMethodAccessorImpl.java:0"
PLUGINS = {
    "rapids": "com.nvidia.spark.SQLPlugin",
    "comet": "org.apache.spark.CometPlugin",
    "gluten": "org.apache.gluten.GlutenPlugin",
    "auron": "",
    "photon": "",
}
NEEDS_SPARK = {"python_metric": (4, 1), "stage_profile": (3, 1), "gpu_slots": (3, 1), "connect": (3, 4), "ctas": (3, 4)}


def draw_world(
    seed: int, traits: Sequence[str], *, spark: str | None = None, layout: str | None = None, t0_ms: int = T0_MS
) -> World:
    """Draw an application with these traits, and run it."""
    rng = np.random.default_rng(seed)
    traits = [trait for trait in traits if trait not in ("same_name", "connect") or "unnamed" not in traits]
    wanted = SPARKS[int(rng.integers(len(SPARKS)))] if spark is None else spark
    if any(trait in NEEDS_SPARK and tuple(map(int, wanted.split(".")[:2])) < NEEDS_SPARK[trait] for trait in traits):
        wanted = "4.1.1"
    world = World(rng, traits, wanted, layout or LAYOUTS[int(rng.choice(3, p=[0.6, 0.2, 0.2]))], t0_ms)
    world.session_id = f"{rng.integers(1 << 32):08x}-1111"
    n_slots = min(draw_executors(world), 24)
    set_engine(world)
    queries = [draw_query(world, number, n_slots) for number in range(int(rng.integers(2, 6)))]
    if world.has("same_name") and len(queries) > 1 and rng.random() < 0.5:
        queries.append(repeat_query(world, queries[0], len(queries), n_slots))
    if world.has("cache"):
        add_cached_queries(world, queries, n_slots)
    if world.has("subquery"):
        queries.append(draw_subquery(world, len(queries), n_slots))
    if world.has("stage_profile"):
        for query in queries[::2]:
            query.stages[-1].profile = 1
    if world.has("deep_plan") and not any(query.identity == queries[0].identity for query in queries[1:]):
        for _ in range(int(rng.integers(300, 1500))):
            queries[0].plan = Node("Project", "Project [k#1L]", [queries[0].plan])
            queries[0].plan.stage = len(queries[0].stages) - 1
    run_queries(world, queries)
    world.truth = world.finish()
    if world.has("two_applications"):
        world.other = draw_world(seed + 1, (), spark=world.spark, layout="plain", t0_ms=t0_ms + 86_400_000)
    return world


def draw_executors(world: World) -> int:
    """Draw executors and resources; returns the slots that most stages have."""
    rng = world.rng
    cores = int(rng.choice([2, 4, 8]))
    n = int(rng.integers(1, 4))
    world.properties |= {"spark.executor.cores": str(cores)}
    gpus = 0
    if world.has("task_cpus") and cores > 1:
        world.properties["spark.task.cpus"] = "2"
        world.profiles[0] = {"cpus": 2}
    if world.has("gpu_slots"):
        gpus = 1
        amount = float(rng.choice([0.25, 0.5, 1.0]))
        world.properties |= {"spark.executor.resource.gpu.amount": "1", "spark.task.resource.gpu.amount": str(amount)}
        world.profiles[0] = world.profiles[0] | {"gpu": amount}
    waits = int(rng.integers(30_000, 600_000)) if world.has("queue_wait") else 0
    if waits:
        world.properties["spark.dynamicAllocation.enabled"] = "true"
    for number in range(n):
        world.executors.append(Executor(str(number + 1), cores, waits + int(rng.integers(0, 500)), gpus=gpus))
    if world.has("dynamic_allocation"):
        world.properties["spark.dynamicAllocation.enabled"] = "true"
        for number in range(int(rng.integers(1, 4))):
            added = waits + int(rng.integers(2000, 30_000))
            world.executors.append(
                Executor(str(n + 1 + number), cores, added, added + int(rng.integers(15_000, 60_000)), gpus=gpus)
            )
    if world.has("executor_replaced") or world.has("resubmitted"):
        victim = world.executors[0]
        victim.removed, victim.lost = waits + int(rng.integers(4000, 20_000)), True
        world.executors.append(Executor("90", cores, victim.removed + int(rng.integers(1000, 20_000)), gpus=gpus))
    if world.has("stage_profile"):
        world.profiles[1] = {"cpus": 1}
        world.executors += [Executor(f"{50 + number}", 4, waits + 100, profile=1) for number in range(2)]
    return sum(world.slots_of(executor, 0) for executor in world.executors if executor.profile == 0)


def set_engine(world: World) -> None:
    """Settings of an accelerator that is loaded, and whether it runs anything."""
    rng = world.rng
    if world.has("plugin_idle"):
        choice = [
            {
                "spark.plugins": PLUGINS["rapids"],
                "spark.rapids.sql.enabled": "true",
                "spark.rapids.sql.mode": "explainOnly",
            },
            {"spark.plugins": PLUGINS["rapids"], "spark.rapids.sql.enabled": "False"},
            {"spark.plugins": PLUGINS["rapids"], "spark.rapids.sql.mode": "executeOnGPU"},
            {"spark.plugins": PLUGINS["comet"], "spark.comet.enabled": "FALSE"},
            {"spark.plugins": PLUGINS["gluten"], "spark.gluten.enabled": "false "},
        ]
        world.properties |= choice[int(rng.integers(len(choice)))]
    if world.has("other_baseline"):
        world.engine = str(rng.choice(["photon", "gluten", "auron"]))
    elif world.has("mixed_engine"):
        world.engine = "mixed"


def draw_query(world: World, number: int, n_slots: int) -> Query:
    """A query of its own tables, with those traits that are of queries."""
    rng = world.rng
    rows = int(rng.integers(100_000, 5_000_000))
    mean = float(rng.uniform(1500, 9000))
    n = max(3, n_slots * int(rng.integers(1, 3)))
    table = f"t{number}"
    identity = f"q{number}"
    specs = [StageSpec(draw_durations(rng, n, mean)), StageSpec(draw_durations(rng, max(3, n_slots), mean / 2), (0,))]
    plan = build_aggregate(table, rows)
    told = True
    if world.has("skew_join") and rng.random() < 0.5:
        suffix = "(skew=true)" if rng.random() < 0.7 else ""
        plan = build_join(f"l{number}", f"r{number}", rows, suffix)
        specs = [
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 3)),
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 3), (0,)),
            StageSpec(draw_durations(rng, n, mean), (0, 1)),
        ]
    elif world.has("python_metric") and rng.random() < 0.7:
        share = float(rng.uniform(0.6, 0.93))
        name, text = PYTHONS[int(rng.integers(len(PYTHONS)))]
        node = Node(name, text, [], [ROWS, *PYTHON_METRICS], 0, rows // 2, {PYTHON_METRICS[0][0]: share})
        plan = build_aggregate(table, rows, middle=[node], opaque=share)
        specs = [
            StageSpec(draw_durations(rng, n, mean), opaque=share),
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 20), (0,)),
        ]
    elif (world.has("python_blind") or world.has("scala_udf")) and rng.random() < 0.7:
        share, told = float(rng.uniform(0.4, 0.93)), False
        is_python = world.has("python_blind") and not (world.has("scala_udf") and rng.random() < 0.5)
        kinds = PYTHONS if is_python else SCALA
        name, text = kinds[int(rng.integers(len(kinds)))]
        node = Node(name, text, [], [ROWS] if is_python else [], 0, rows // 2 if is_python else None)
        plan = build_aggregate(table, rows, middle=[node], opaque=share)
        specs = [
            StageSpec(draw_durations(rng, n, mean), opaque=share),
            StageSpec(draw_durations(rng, max(3, n_slots), mean / 20), (0,)),
        ]
    elif world.has("sources"):
        source = SOURCES[int(rng.integers(len(SOURCES)))]
        scan = Node(source[0].format(table=table), source[1].format(table=table), [], [ROWS], 0, rows)
        plan = build_aggregate(table, rows, source=scan)
    query = Query(identity, f"step {number}", plan, specs, opaque_told=told)
    if world.has("driver_time"):
        query.before = int(rng.integers(2000, 60_000))
    if world.has("commit"):
        query.after = int(rng.integers(2000, 60_000))
        query.plan = Node(
            "Execute InsertIntoHadoopFsRelationCommand",
            "Execute InsertIntoHadoopFsRelationCommand hdfs:/out",
            [plan],
            [("number of written files", "sum"), ("task commit time", "timing")],
            (specs and len(specs) - 1) or 0,
        )
    if world.has("client_fetch") and rng.random() < 0.5:
        query.after = int(rng.integers(20_000, 300_000))
    if world.has("ctas") and rng.random() < 0.5:
        query.wraps = True
    if world.has("failed_query") and number == 1:
        query.fails = True
    return query


def repeat_query(world: World, query: Query, number: int, n_slots: int) -> Query:
    """The same query once more."""
    again = draw_query(world, number, n_slots)
    again.plan = build_aggregate("t0", 700_000) if not isinstance(query.plan, Node) else copy_plan(query.plan)
    again.stages = [StageSpec(list(spec.durations), spec.after, spec.profile, spec.opaque) for spec in query.stages]
    again.identity, again.opaque_told, again.wraps = query.identity, query.opaque_told, query.wraps
    again.fails = False
    return again


def add_cached_queries(world: World, queries: list[Query], n_slots: int) -> None:
    """Two queries over a cached table: the first makes it, the second reads it; both show the plan below the cache."""
    rng = world.rng
    below = Node(
        "Filter", "Filter isnotnull(k#1L)", [build_scan("cached_source", 900_000, share=0.1)], [ROWS], 0, 800_000
    )
    for part in range(2):
        number = len(queries)
        lower = below if part == 0 else freeze_plan(below)
        relation = Node(
            "InMemoryRelation",
            "InMemoryRelation [k#1L, v#2], StorageLevel(disk, memory, deserialized, 1 replicas)",
            [lower],
        )
        source = Node(
            "InMemoryTableScan",
            "InMemoryTableScan [k#1L, v#2]",
            [relation],
            [ROWS, ("scan time", "timing")],
            0,
            800_000,
            {"scan time": 0.2},
        )
        plan = build_aggregate("x", 800_000, source=source, condition=f"(v#2 > {part})")
        specs = [StageSpec(draw_durations(rng, max(3, n_slots), 4000)), StageSpec(draw_durations(rng, 3, 800), (0,))]
        queries.append(Query(f"q{number}", f"step {number}", plan, specs))


def draw_subquery(world: World, number: int, n_slots: int) -> Query:
    """A scalar subquery with stages of its own, inside a filter."""
    rng = world.rng
    scan = build_scan("dim", 500_000, share=0.1, stage=0)
    part = Node(
        "HashAggregate",
        "HashAggregate(keys=[], functions=[partial_max(v#2)])",
        [scan],
        [ROWS, ("time in aggregation build", "timing")],
        0,
        8,
        {"time in aggregation build": 0.7},
    )
    exchange = Node(
        "Exchange", "Exchange SinglePartition", [part], EXCHANGE, 0, None, {}, {"shuffle records written": 8}
    )
    final = Node(
        "HashAggregate",
        "HashAggregate(keys=[], functions=[max(v#2)])",
        [exchange],
        [ROWS, ("time in aggregation build", "timing")],
        1,
        1,
        {"time in aggregation build": 0.5},
    )
    subquery = Node("Subquery", f"Subquery subquery#{number}, [id=#99]", [final])
    main = build_scan(f"facts{number}", 3_000_000, share=0.2, stage=2)
    top = Node("Filter", f"Filter (v#2 > Subquery subquery#{number}, [id=#99])", [main, subquery], [ROWS], 2, 1_000_000)
    out = Node(
        "Exchange",
        "Exchange hashpartitioning(k#1L, 8)",
        [top],
        EXCHANGE,
        2,
        None,
        {"shuffle write time": 0.1},
        {"shuffle records written": 1_000_000},
    )
    last = Node(
        "HashAggregate",
        "HashAggregate(keys=[k#1L], functions=[sum(v#2)])",
        [out],
        [ROWS, ("time in aggregation build", "timing")],
        3,
        1000,
        {"time in aggregation build": 0.8},
    )
    specs = [
        StageSpec(draw_durations(rng, 4, 2000)),
        StageSpec([300], (0,)),
        StageSpec(draw_durations(rng, max(4, n_slots), 5000), (1,)),
        StageSpec(draw_durations(rng, 4, 1500), (2,)),
    ]
    return Query(f"q{number}", f"step {number}", last, specs)


def run_queries(world: World, queries: list[Query]) -> None:
    """Run queries one after the other, or several at a time."""
    rng = world.rng
    # A plugin that is loaded and left idle is Spark; of a mixed application one small query is the accelerator's.
    fast = len(queries) - 1 if world.has("mixed_engine") else None
    for number, query in enumerate(queries):
        query.description = describe(world, number if not query.identity.startswith("q") else int(query.identity[1:]))
        if world.engine in ("photon", "gluten", "auron"):
            rename_engine(query.plan, world.engine)
            query.engine = world.engine
        elif number == fast:
            query.engine = str(rng.choice(["rapids", "comet"]))
            rename_engine(query.plan, query.engine)
    now = 500
    for query in queries:
        start = now
        if world.has("rdd_jobs") and rng.random() < 0.5:
            now = start = run_rdd_job(world, start) + 50
        world.run_query(query, start)
        if not (world.has("concurrent") and rng.random() < 0.6):
            now = query.end + (int(rng.integers(2000, 60_000)) if world.has("gaps_between") else 200)
        else:
            now = start + int(rng.integers(100, 3000))


def describe(world: World, number: int) -> str:
    """Description of a query, as its front end writes it."""
    if world.has("unnamed"):
        return UNNAMED
    if world.has("same_name"):
        return f"load {number % 2}"
    if world.has("connect"):
        return (
            f'Spark Connect - session_id: "{world.session_id}" user_context {{ user_id: "ann" }}'
            f" plan {{ root {{ common {{ plan_id: {number + 7} }} ag..."
        )
    return f"step {number}"


def run_rdd_job(world: World, start: int) -> int:
    """A job outside SQL."""
    stage, job = next(world.stage_ids), next(world.job_ids)
    spec = StageSpec(draw_durations(world.rng, 4, 1500))
    world.emit(
        start,
        2,
        {
            "Event": "SparkListenerJobStart",
            "Job ID": job,
            "Submission Time": world.at(start),
            "Stage Infos": [world.stage_info(stage, 0, spec, 4)],
            "Stage IDs": [stage],
            "Properties": {},
        },
    )
    world.submit(stage, 0, spec, 4, start + 5, {}, [])
    end = world.run_stage(spec, stage, 0, start + 5, {})
    world.complete(stage, 0, spec, 4, start + 5, end)
    world.emit(
        end + 5,
        8,
        {
            "Event": "SparkListenerJobEnd",
            "Job ID": job,
            "Completion Time": world.at(end + 5),
            "Job Result": {"Result": "JobSucceeded"},
        },
    )
    world.open_spans.append((start, end + 5))
    world.last = max(world.last, end + 5)
    world.rdd_spans.append((start + 5, end))
    return end + 5


def draw_durations(rng: np.random.Generator, n: int, mean_ms: float) -> list[int]:
    """Durations of tasks: alike, with some spread."""
    return [max(20, round(mean_ms * float(np.exp(rng.normal(0, 0.15))))) for _ in range(n)]
