"""Time breakdown: durations of each step by clock, their quantiles, and the share of each segment in the total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.analysis.gangs import count_pods_together
from workbench.scaletest.analysis.throughput import HOLDING, RESERVED, Floats, select_queue_transitions
from workbench.scaletest.tables import MILESTONES, PODS, QUANTILES, SHARES, STEPS
from workbench.stats import quantiles

QUANTILE_LEVEL = 0.95
STEP_QUANTILES = (0.5, 0.9, 0.95, 0.99)
# What was held waits for these from its release on, and for no controller or scheduler before.
_AFTER_RELEASE = ("first pod", "last pod", "decision", "first binding", "scheduling")
_CLOCKS = (("client", "client_s", "client_s"), ("server", "server_s", "server_s"), ("mixed", "client_s", "server_s"))
# By one clock nothing ends before it begins; between two, whole seconds may be off by one.
_IMPOSSIBLE = pl.col("duration_s") < -pl.when(pl.col("clock") == "mixed").then("resolution_s").otherwise(0.0)
TAIL_FRACTION = 0.05
SHARE_LEVEL = 0.95
BLOCKS = 20
DRAWS = 1_000
_GPU_AMOUNT = r"/gpu=([0-9.eE+-]+)"
# Milestone that ends it -> name of the segment.
SEGMENTS = {
    "sent": "waiting to be sent",
    "acked": "accepted by the API server",
    "job": "job made",
    "released": "held by its queue",
    "last pod": "pods made",
    "podgroup": "podgroup made",
    "all scheduled": "scheduled",
    "all running": "started",
}

# In the order in which a workload reaches them.
MILESTONE_ORDER = (
    "due",
    "sent",
    "acked",
    "created",
    "job",
    "held",
    "quota reserved",
    "released",
    "first pod",
    "last pod",
    "podgroup",
    "decided",
    "first scheduled",
    "all scheduled",
    "first running",
    "all running",
    "evicted",
    "pvc requested",
    "pvc bound",
    "backend",
    "finished",
)
_POD_TIMES = {"created": "created", "scheduled": "scheduled", "running": "running"}
_ENDS = ("succeeded", "failed", "evicted", "deleted")
_FINER = ("event", "audit")
_SHAPE = {
    "index": pl.Int64,
    "milestone": pl.String,
    "client_s": pl.Float64,
    "server_s": pl.Float64,
    "resolution_s": pl.Float64,
    "gap": pl.Boolean,
}


@dataclass(frozen=True)
class Step:
    """A step's name, its ends among `MILESTONE_ORDER`, and the component that works on it.

    `expected`: every workload that begins it should end it, so one that does not is infinitely slow. Evictions and
    volumes are not expected: only those that happened are counted.
    """

    name: str
    begin: str
    end: str
    who: str
    expected: bool = True


# Ours. Those `expected` count a missing end as infinitely slow.
WORKLOAD_STEPS = (
    Step("lateness", "due", "sent", "the submitter"),
    Step("admission", "sent", "acked", "the API server"),
    Step("job creation", "created", "job", "the workload's controller", expected=False),
    Step("queue wait", "acked", "released", "its queue", expected=False),
    Step("quota admission", "quota reserved", "released", "its queue", expected=False),
    Step("first pod", "created", "first pod", "the job's controller"),
    Step("last pod", "first pod", "last pod", "the job's controller"),
    Step("podgroup", "first pod", "podgroup", "the pod grouper", expected=False),
    Step("decision", "first pod", "decided", "the scheduler"),
    Step("first binding", "first pod", "first scheduled", "the scheduler"),
    Step("scheduling", "last pod", "all scheduled", "the scheduler"),
    Step("gang completion", "first scheduled", "all scheduled", "the scheduler"),
    Step("start", "all scheduled", "all running", "the kubelet (simulated on simulated nodes)"),
    Step("eviction", "podgroup", "evicted", "the scheduler", expected=False),
    Step("volume request", "podgroup", "pvc requested", "the scheduler", expected=False),
    Step("volume", "pvc requested", "pvc bound", "the provisioner", expected=False),
    Step("backend", "podgroup", "backend", "the backend", expected=False),
    Step("due to scheduled", "due", "all scheduled", "all of it"),
    Step("due to running", "due", "all running", "all of it"),
)
# The old tool's total, for its runs alone: "unschedulable" ends it, too.
IMPORTED_STEP = Step("sent to decided", "sent", "decided", "all of it", expected=False)
STEP_NAMES = tuple(step.name for step in (*WORKLOAD_STEPS, IMPORTED_STEP))


def build_step_table(milestones: pl.DataFrame, submissions: pl.DataFrame, *, imported: bool = False) -> pl.DataFrame:
    """Build every step of every workload, by each clock that has both ends.

    `imported`: Milestones that are not there are not known, instead of never reached; and steps that end before they
    begin, by more than the clocks' resolution allows, are left out: `count_impossible_steps` tells how many.

    Returns: Table STEPS. Clock `mixed` (begin by ours, end by the cluster's) is given only where neither of the
    others is: it is off by the clocks' distance, which table `skew` bounds. The resolution of a server's duration is
    the larger of its ends'. A step with `expected` has a row with a null duration where its end was not reached; a
    workload that never came to the server has none beyond sending. One whose begin by our clock is an upper bound (a
    watch was away) has none by our clock.
    """
    wide = _milestones_wide(milestones)
    accepted = submissions.select("index", pl.col("status").is_in(["created", "known"]).alias("accepted"), "status")
    wide = wide.join(accepted, on="index", how="left")
    steps = (*WORKLOAD_STEPS, IMPORTED_STEP) if imported else WORKLOAD_STEPS
    parts = [part for step in steps for part in _step_durations(wide, step)]
    rows = pl.concat(parts) if parts else pl.DataFrame(schema=STEPS.schema())
    if imported:
        rows = rows.filter(pl.col("duration_s").is_not_null() & ~_IMPOSSIBLE)
    order = pl.Enum(STEP_NAMES)
    return STEPS.check(
        rows.with_columns(pl.col("step").cast(order))
        .sort("index", "step", "clock")
        .with_columns(pl.col("step").cast(pl.String))
    )


def count_impossible_steps(milestones: pl.DataFrame, submissions: pl.DataFrame) -> tuple[int, int]:
    """Steps of an imported run that end before they begin, and all that have both ends.

    `milestones`: Table MILESTONES. `submissions`: `index, status`.
    """
    wide = _milestones_wide(milestones).join(
        submissions.select("index", pl.lit(value=True).alias("accepted"), "status"), on="index", how="left"
    )
    parts = [part for step in (*WORKLOAD_STEPS, IMPORTED_STEP) for part in _step_durations(wide, step)]
    rows = pl.concat(parts).filter(pl.col("duration_s").is_not_null()) if parts else pl.DataFrame(schema=STEPS.schema())
    return rows.filter(_IMPOSSIBLE).height, rows.height


def _milestones_wide(milestones: pl.DataFrame) -> pl.DataFrame:
    """Pivot table MILESTONES to one row for each workload, with four columns for each milestone.

    Returns: `index`, and for each milestone `M` of the run `M|client_s, M|server_s, M|resolution_s, M|gap`: the frame
    `wide` of the functions below.
    """
    values = ["client_s", "server_s", "resolution_s", "gap"]
    indexes = milestones.select("index").unique(maintain_order=True)
    for name in sorted(set(milestones["milestone"])):
        rows = milestones.filter(pl.col("milestone") == name)
        renamed = rows.select("index", *(pl.col(value).alias(f"{name}|{value}") for value in values))
        indexes = indexes.join(renamed, on="index", how="left")
    return indexes


def _step_durations(wide: pl.DataFrame, step: Step) -> list[pl.DataFrame]:
    """Rows of table STEPS for one step, one frame for each clock that has both ends; none if it never began.

    `wide`: As `_milestones_wide` returns it, with `accepted, status` of the submission.
    """
    if f"{step.begin}|client_s" not in wide.columns:
        return []
    wide = _begin_at_release(_with_milestone(wide, step.end), step)
    # A resumed run does not know when the workloads that it found were accepted.
    counted = pl.col("accepted") & ((pl.col("status") != "known") | pl.lit(step.name != "admission"))
    if step.name in ("lateness", "admission"):
        counted = counted | (pl.col("status") == "failed")
    rows = wide.filter(counted)
    parts: list[pl.DataFrame] = []
    for clock, first, last in _CLOCKS:
        begin, end = pl.col(f"{step.begin}|{first}"), pl.col(f"{step.end}|{last}")
        clock_rows = _rows_with_begin(rows, step, begin, clock)
        if (clock != "mixed" or not parts) and clock_rows.filter(end.is_not_null()).height:
            parts.append(_build_step_rows(clock_rows, step, clock, begin, end))
    begin = pl.col(f"{step.begin}|client_s")
    begun = _rows_with_begin(rows, step, begin, "client")
    if not parts and step.expected and begun.height:
        # No workload completed it; this is a result too.
        parts.append(_build_step_rows(begun, step, "client", begin, pl.lit(None, dtype=pl.Float64)))
    return parts


def _begin_at_release(wide: pl.DataFrame, step: Step) -> pl.DataFrame:
    """Let steps of a held workload begin at its release; without a release they never began.

    `wide`: As `_milestones_wide` returns it.
    """
    if "held|client_s" not in wide.columns or (step.name not in _AFTER_RELEASE and step.name != "podgroup"):
        return wide
    was_held = pl.col("held|client_s").is_not_null() | pl.col("held|server_s").is_not_null()
    if step.name == "podgroup":  # the queue's own object, made before there are pods
        return wide.filter(~was_held)
    wide = _with_milestone(wide, "released")
    free = wide.filter(
        ~was_held | pl.col("released|client_s").is_not_null() | pl.col("released|server_s").is_not_null()
    )
    later = [
        pl.when(pl.col(f"released|{clock}") <= pl.col(f"{step.end}|{clock}"))
        .then(pl.max_horizontal(f"{step.begin}|{clock}", f"released|{clock}"))
        .otherwise(pl.col(f"{step.begin}|{clock}"))
        .alias(f"{step.begin}|{clock}")
        for clock in ("client_s", "server_s")
    ]
    return free.with_columns(later)


def _rows_with_begin(rows: pl.DataFrame, step: Step, begin: pl.Expr, clock: str) -> pl.DataFrame:
    """Select the rows of a step that began at a time that this clock knows."""
    late = pl.col(f"{step.begin}|gap").fill_null(value=False) & pl.lit(clock != "server")
    return rows.filter(begin.is_not_null() & ~late)


def _with_milestone(wide: pl.DataFrame, milestone: str) -> pl.DataFrame:
    """The frame `wide` with the columns of a milestone, null where the run does not have it."""
    if f"{milestone}|client_s" in wide.columns:
        return wide
    none = pl.lit(None, dtype=pl.Float64)
    names = [f"{milestone}|{value}" for value in ("client_s", "server_s", "resolution_s")]
    return wide.with_columns(*(none.alias(name) for name in names), pl.lit(False).alias(f"{milestone}|gap"))


def _build_step_rows(rows: pl.DataFrame, step: Step, clock: str, begin: pl.Expr, end: pl.Expr) -> pl.DataFrame:
    """Rows of table STEPS from `wide` rows; `begin` and `end` are the step's ends by this clock, in seconds."""
    gap = pl.col(f"{step.end}|gap").fill_null(value=False) & pl.lit(clock == "client")
    ends = [f"{name}|resolution_s" for name in (step.begin, step.end)]
    resolution = pl.lit(0.0) if clock == "client" else pl.max_horizontal(ends).fill_null(0.0)
    step_rows = rows.select(
        "index",
        pl.lit(step.name).alias("step"),
        pl.lit(clock).alias("clock"),
        begin.alias("begin_s"),
        (end - begin).alias("duration_s"),
        resolution.alias("resolution_s"),
        gap.alias("gap"),
    )
    return step_rows if step.expected else step_rows.filter(pl.col("duration_s").is_not_null())


def build_step_quantiles(steps: pl.DataFrame) -> pl.DataFrame:
    """How long does each step take: p50, p90, p95 and p99, with 95 % intervals within this run.

    Returns: Table QUANTILES. A workload that never ended the step is infinitely slow. Workloads that follow one
    another resemble each other (they wait in the same queue): the interval counts only as many as are independent.

    Does not show how another run would differ; repeat the run and compare. Source: `workbench.stats.quantiles`.
    """
    records = []
    for (step, clock), rows in steps.group_by(["step", "clock"], maintain_order=True):
        ordered = rows.sort("begin_s", "index")
        durations = ordered["duration_s"]
        values = np.where(durations.is_null().to_numpy(), np.inf, durations.fill_null(0.0).to_numpy())
        ended = durations.drop_nulls()
        common = {
            "step": step,
            "clock": clock,
            "level": QUANTILE_LEVEL,
            "n": rows.height,
            "missing": rows.height - len(ended),
            "gaps": int(ordered["gap"].sum()),
            "mean_s": ended.mean() if len(ended) else None,
            "longest_s": ended.max() if len(ended) else None,
            "resolution_s": ordered["resolution_s"].max(),
        }
        for share in STEP_QUANTILES:
            estimate = quantiles.estimate_quantile(values[:, None], share, level=QUANTILE_LEVEL)
            ends = {"value_s": estimate.value, "low_s": estimate.low, "high_s": estimate.high}
            seconds = {name: float(value) if np.isfinite(value) else None for name, value in ends.items()}
            records.append(common | {"quantile": share} | seconds)
    order = pl.Enum(STEP_NAMES)
    frame = QUANTILES.frame(records).with_columns(pl.col("step").cast(order)).sort("step", "clock", "quantile")
    return QUANTILES.check(frame.with_columns(pl.col("step").cast(pl.String)))


def build_segments(milestones: pl.DataFrame) -> pl.DataFrame:
    """Build one row for each workload that ran, and one column for each segment, in seconds by the client's clock.

    Workloads without one of the ends (a resumed run does not know when those before were accepted) are left out.

    `milestones`: `index, milestone, client_s`.

    Returns: `index, due_s`, and a column for each segment of `SEGMENTS`.
    """
    wide = milestones.filter(pl.col("client_s").is_not_null()).pivot("milestone", index="index", values="client_s")
    needed = ("due", "all running" if "all running" in wide.columns else "all scheduled")
    if any(name not in wide.columns for name in needed):
        return pl.DataFrame(schema={"index": pl.Int64, "due_s": pl.Float64})
    ends = [name for name in SEGMENTS if name in wide.columns and _is_common(wide, name, needed[1])]
    complete_rows = wide.drop_nulls(["due", *ends]).sort("due", "index")
    reached = pl.col("due")
    columns = []
    for name in ends:
        later = pl.max_horizontal(reached, pl.col(name))
        columns.append((later - reached).alias(SEGMENTS[name]))
        reached = later
    return complete_rows.select("index", pl.col("due").alias("due_s"), *columns)


def _is_common(wide: pl.DataFrame, name: str, last: str) -> bool:
    """Tell whether 95 % or more of the workloads with column `last` have column `name`, too; others are left out.

    `wide`: As `_milestones_wide` returns it.
    """
    rows = wide.filter(pl.col(last).is_not_null())
    return rows.height > 0 and rows[name].null_count() <= 0.05 * rows.height


def build_share_table(milestones: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """Compute the share of each segment in the time of all workloads, and in that of the slowest 5 %.

    Returns: Table SHARES; both kinds of shares add up to 1. Intervals are of the slowest ones' shares, by resampling
    20 blocks of workloads that follow one another.

    Does not say what would happen if a segment were faster: the next one may be as slow. Source: circular block
    bootstrap, Politis and Romano (1992).
    """
    table = build_segments(milestones)
    names = [name for name in table.columns if name not in ("index", "due_s")]
    if not table.height or not names:
        return SHARES.frame([])
    values = table.select(names).to_numpy().astype(float)
    total = values.sum(axis=1)
    slow = total >= np.quantile(total, 1 - TAIL_FRACTION)
    all_share, tail_share = _share_of_total(values), _share_of_total(values[slow])
    low, high = _bootstrap_bounds(values, np.random.default_rng(seed))
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(names):
        rows.append(
            {
                "segment": name,
                "mean_s": float(values[:, place].mean()),
                "share": all_share[place],
                "tail_mean_s": float(values[slow, place].mean()),
                "tail_share": tail_share[place],
                "low": low[place],
                "high": high[place],
                "n": len(values),
                "n_tail": int(slow.sum()),
            }
        )
    return SHARES.frame(rows)


def _share_of_total(values: Floats) -> list[float | None]:
    """Share of each segment in all time; null where there is none. `values`: Seconds, [workload, segment]."""
    sums = values.sum(axis=0)
    total = float(sums.sum())
    return [float(part) / total if total > 0 else None for part in sums]


def _bootstrap_bounds(values: Floats, random: np.random.Generator) -> tuple[list[float | None], list[float | None]]:
    """Bootstrap the lower and upper bounds of each segment's share in the slowest workloads' time.

    `values`: Seconds, [workload, segment], in order of due time, since blocks of consecutive workloads are drawn.
    Bounds are null for too few workloads.
    """
    n, count = len(values), values.shape[1]
    if n < 2 * BLOCKS:
        return [None] * count, [None] * count
    length = -(-n // BLOCKS)
    draws = max(100, min(DRAWS, 20_000_000 // n))
    shares = np.empty((draws, count))
    tail_begin = int(n * (1 - TAIL_FRACTION))
    for draw in range(draws):
        starts = random.integers(0, n, size=(BLOCKS, 1))
        picked = values[((starts + np.arange(length)) % n).ravel()[:n]]
        total = picked.sum(axis=1)
        slow = picked[total >= np.partition(total, tail_begin)[tail_begin]]
        shares[draw] = slow.sum(axis=0) / max(float(slow.sum()), 1e-12)
    low, high = np.quantile(shares, [(1 - SHARE_LEVEL) / 2, (1 + SHARE_LEVEL) / 2], axis=0)
    return [float(bound) for bound in low], [float(bound) for bound in high]


def build_pod_table(schedule: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Build a table of every incarnation of the run's pods.

    Returns: Table PODS. The server's time of a binding is the finest there is: an Event's or the audit log's
    microseconds before the whole seconds of the pod's condition.
    """
    pod_rows = transitions.filter(pl.col("resource") == "pod")
    ended = pl.col("arrival_s").filter(pl.col("transition").is_in(_ENDS)).min()
    succeeded = (pl.col("transition") == "succeeded").any()
    wide = pod_rows.group_by("uid", maintain_order=True).agg(
        pl.col("name").first(),
        pl.col("workload").drop_nulls().first(),
        pl.col("owner").drop_nulls().first(),
        pl.col("node").drop_nulls().first(),
        pl.col("gap").any(),
        *(_first_value(name, "arrival_s").alias(f"{name}_s") for name in _POD_TIMES),
        *(_first_value(name, "server_s").alias(f"server_{name}_s") for name in _POD_TIMES),
        *(_first_value(name, "resolution_s").alias(f"{name}_resolution_s") for name in _POD_TIMES),
        *(_first_value(name, "gap").alias(f"{name}_gap") for name in _POD_TIMES),
        ended.alias("ended_s"),
        pl.when(~succeeded).then(ended).alias("lost_s"),
        (pl.col("transition") == "unschedulable").any().alias("unschedulable"),
        _first_value("unschedulable", "arrival_s").alias("unschedulable_s"),
        _first_value("unschedulable", "reason").alias("unschedulable_reason"),
        pl.col("asks").drop_nulls().first(),
        (pl.col("transition") == "evicted").any().alias("evicted"),
    )
    placed = _refine_binding_times(wide, transitions)
    # Map the uid of each job or workload to the workload's name.
    owners = transitions.filter(pl.col("resource").is_in(["job", "workload"]) & pl.col("workload").is_not_null())
    by_uid = owners.group_by(pl.col("uid").alias("owner")).agg(pl.col("workload").first().alias("workload_of_owner"))
    named = placed.join(by_uid, on="owner", how="left").with_columns(
        pl.coalesce("workload", "workload_of_owner").alias("workload")
    )
    plan = schedule.select("index", pl.col("name").alias("workload"), "pods", pl.col("gpus_per_pod").alias("gpus"))
    pods = named.join(plan, on="workload", how="inner").sort("index", "created_s", "name")
    # A part of a GPU is no request: it stands in the plan alone.
    asked = (
        pl.col("asks").str.extract_all(_GPU_AMOUNT).list.eval(pl.element().str.extract(_GPU_AMOUNT).cast(pl.Float64))
    )
    is_part = pl.col("gpus").is_between(0, 1, closed="none")
    pods = pods.with_columns(gpus=pl.when(pl.col("asks").is_null() | is_part).then("gpus").otherwise(asked.list.sum()))
    rank = pl.col("uid").cum_count().over("index") - 1
    return PODS.check(pods.with_columns((rank // pl.col("pods") + 1).cast(pl.Int64).alias("attempt")))


def _first_value(transition: str, column: str) -> pl.Expr:
    return pl.col(column).filter(pl.col("transition") == transition).first()


def _refine_binding_times(wide: pl.DataFrame, transitions: pl.DataFrame) -> pl.DataFrame:
    """Replace times of bindings with those in microseconds from an Event (by uid) or the audit log (by name).

    `wide`: Rows by pod with `uid, name, server_scheduled_s, scheduled_resolution_s`, the last two of which are refined.
    """
    is_binding = pl.col("resource").is_in(_FINER) & pl.col("transition").is_in(["scheduled", "bound"])
    bound = transitions.filter(is_binding & pl.col("server_s").is_not_null())
    by_uid = (
        bound.filter(pl.col("owner").is_not_null())
        .group_by(pl.col("owner").alias("uid"))
        .agg(
            pl.col("server_s").sort_by("resolution_s").first().alias("event_s"),
            pl.col("resolution_s").min().alias("event_r"),
        )
    )
    # A name may come back after an eviction: only where it stands for one incarnation.
    once = wide.group_by("name").len().filter(pl.col("len") == 1).select("name")
    by_name = (
        bound.filter(pl.col("resource") == "audit", pl.col("owner_name").is_not_null())
        .group_by(pl.col("owner_name").alias("name"))
        .agg(pl.col("server_s").first().alias("audit_s"), pl.col("resolution_s").first().alias("audit_r"))
        .join(once, on="name", how="semi")
    )
    frame = wide.join(by_uid, on="uid", how="left").join(by_name, on="name", how="left")
    return frame.with_columns(
        pl.coalesce("event_s", "audit_s", "server_scheduled_s").alias("server_scheduled_s"),
        pl.coalesce("event_r", "audit_r", "scheduled_resolution_s").alias("scheduled_resolution_s"),
    )


def build_milestones(
    schedule: pl.DataFrame, submissions: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame
) -> pl.DataFrame:
    """Build every milestone that each workload reached.

    `schedule`: `index, name, pods, kind, gang`.
    `submissions`: `index, status, due_s, sent_s, acked_s`.
    `transitions`: All columns of the table but `session` and `node`.
    `pods`: `index, uid`, and of each event (created, scheduled, running) the columns `E_s, server_E_s, E_resolution_s,
    E_gap`; `ended_s` and `lost_s`.

    Returns: Table MILESTONES. The functions below give rows of it, unsorted; `plan` is `index, name, pods, kind, gang`.
    """
    plan = schedule.select("index", "name", "pods", "kind", "gang")
    parts = [
        *_submission_milestones(submissions),
        *_object_milestones(plan, transitions, pods),
        *_queue_milestones(schedule, transitions, pods),
        *_build_workload_milestones(plan, pods),
        _podgroup_milestones(plan, transitions, pods),
        *_event_milestones(plan, transitions, pods),
    ]
    order = pl.Enum(MILESTONE_ORDER)
    milestones = pl.concat([part.select(*_SHAPE) for part in parts]).with_columns(pl.col("milestone").cast(order))
    timed_rows = milestones.filter(pl.col("client_s").is_not_null() | pl.col("server_s").is_not_null())
    return MILESTONES.check(timed_rows.sort("index", "milestone").with_columns(pl.col("milestone").cast(pl.String)))


def _milestone_rows(
    frame: pl.DataFrame, milestone: str, *, client: str | None, server: str | None = None
) -> pl.DataFrame:
    """Rows of table MILESTONES for one milestone.

    `frame`: `index`, the milestone's times in the columns `client` and `server`, and perhaps `resolution_s` and `gap`.
    """
    none = pl.lit(None, dtype=pl.Float64)
    resolution = pl.col("resolution_s") if "resolution_s" in frame.columns else none
    return frame.select(
        "index",
        pl.lit(milestone).alias("milestone"),
        (pl.col(client) if client else none).alias("client_s"),
        (pl.col(server) if server else none).alias("server_s"),
        (resolution if server else none).alias("resolution_s"),
        (pl.col("gap") if "gap" in frame.columns else pl.lit(False)).alias("gap"),
    )


def _submission_milestones(submissions: pl.DataFrame) -> list[pl.DataFrame]:
    """Milestones of the submission (due, sent, acknowledged), by the client's clock.

    `submissions`: Table SUBMISSIONS. Returns: Rows of table MILESTONES, a frame for each milestone.
    """
    sent = submissions.filter(pl.col("status") != "unsent")
    return [
        _milestone_rows(submissions, "due", client="due_s"),
        _milestone_rows(sent, "sent", client="sent_s"),
        _milestone_rows(sent, "acked", client="acked_s"),
    ]


def _object_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """Milestones of the workload's own object, of its job where that is another object, and of its end.

    `plan`: Table SCHEDULE. `transitions`, `pods`: Tables of these names. Returns: Rows of table MILESTONES.
    """
    named = transitions.filter(pl.col("workload").is_not_null()).join(
        plan.select("index", pl.col("name").alias("workload"), "kind"), on="workload", how="inner"
    )
    creations = named.filter(pl.col("transition") == "created")
    jobs = creations.filter((pl.col("resource") == "job") & (pl.col("kind") != "Job"))
    endings = named.filter(
        pl.col("resource").is_in(["job", "workload"]) & pl.col("transition").is_in(["complete", "succeeded", "failed"])
    )
    parts = [
        ("created", _creation_milestone(creations, pods)),
        ("job", _earliest_rows(jobs)),
        ("finished", _earliest_rows(endings)),
    ]
    return [_milestone_rows(rows, name, client="arrival_s", server="server_s") for name, rows in parts]


def _creation_milestone(creations: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Find when a workload was first seen; its parts count only where it has no object of its own.

    Each resource has its own watch, so that a part may arrive a moment before the workload: it existed by then. Objects
    found after a gap of their watch prove nothing, because their time is unknown.
    """
    rank = pl.col("resource").replace_strict({"workload": 0, "job": 1}, default=2, return_dtype=pl.Int64)
    itself = _earliest_rows(creations.filter(rank == rank.min().over("index")))
    seen = pl.concat(
        [creations.select("index", "arrival_s"), pods.select("index", pl.col("created_s").alias("arrival_s"))]
    )
    earliest = seen.group_by("index").agg(pl.col("arrival_s").min().alias("seen_s"))
    earlier = pl.when(~pl.col("gap")).then(pl.min_horizontal("arrival_s", "seen_s")).otherwise("arrival_s")
    return itself.join(earliest, on="index", how="left").with_columns(earlier.alias("arrival_s"))


def _earliest_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Earliest row of each workload, by each clock.

    `rows`: `index, arrival_s, server_s, resolution_s, gap`; the same columns, one row per workload, are returned.
    """
    return rows.group_by("index").agg(
        pl.col("arrival_s").min(),
        pl.col("gap").sort_by("arrival_s").first(),
        pl.col("resolution_s").sort_by("server_s", nulls_last=True).first(),
        pl.col("server_s").min(),
    )


def _queue_milestones(schedule: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """Milestones of a queue: workload held, quota reserved, workload released (by its own object, else by the job).

    `schedule`, `transitions`, `pods`: Tables of these names. Returns: Rows of table MILESTONES.
    """
    queue_rows = select_queue_transitions(schedule, transitions, pods)
    is_podgroup = pl.col("resource") == "podgroup"
    reserved = queue_rows.filter(is_podgroup & pl.col("transition").is_in(RESERVED))
    admitted = queue_rows.filter(is_podgroup & (pl.col("transition") == "admitted"))
    resumed = queue_rows.filter(pl.col("transition") == "resumed").join(
        admitted.select("index"), on="index", how="anti"
    )
    holds = queue_rows.filter(pl.col("transition").is_in(HOLDING) | is_podgroup)
    parts = {"held": holds, "quota reserved": reserved, "released": pl.concat([admitted, resumed])}
    return [
        _milestone_rows(_earliest_rows(rows), name, client="arrival_s", server="server_s")
        for name, rows in parts.items()
    ]


def _build_workload_milestones(plan: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """Milestones of a workload's pods: the first and the last that was created, bound and running.

    `plan`: Table SCHEDULE. `pods`: Table PODS. Returns: Rows of table MILESTONES, a frame for each milestone.
    """
    parts = []
    names = {
        "created": ("first pod", "last pod"),
        "scheduled": ("first scheduled", "all scheduled"),
        "running": ("first running", "all running"),
    }
    for event, (first, last) in names.items():
        parts.append(_nth_pod_milestone(plan.with_columns(pods=pl.lit(1, dtype=pl.Int64)), pods, first, event))
        # Select the pods that existed when a workload first had its full number of pods. All pods are selected where
        # only the cluster's times are known, because no watch saw them.
        begin = f"{event}_s"
        size = plan.select("index", pl.col("pods").alias("needed"), "gang")
        until = pl.when(pl.col("gang") & (pl.col("needed") > 1)).then("ended_s").otherwise("lost_s")
        sized_pods = pods.join(size, on="index", how="inner").with_columns(until.alias("until_s"))
        levels = count_pods_together(sized_pods, begin, "until_s").join(size, on="index", how="left")
        reached = levels.filter(pl.col("level") >= pl.col("needed"))
        dated_pods = sized_pods.join(
            reached.group_by("index").agg(pl.col("at_s").min().alias("whole_s")), on="index", how="left"
        )
        gone, at_once = pl.max_horizontal("until_s", begin), pl.col("until_s") <= pl.col("scheduled_s")
        later = (gone > pl.col("whole_s")) | ((gone == pl.col("whole_s")) & at_once)
        there = (pl.col(begin) <= pl.col("whole_s")) & (pl.col("until_s").is_null() | later)
        watched = pl.col(begin).is_not_null().any().over("index")
        parts.append(_nth_pod_milestone(plan, dated_pods.filter(~watched | there), last, event))
    return parts


def _nth_pod_milestone(plan: pl.DataFrame, pods: pl.DataFrame, milestone: str, event: str) -> pl.DataFrame:
    """Find when a workload's n-th pod reached an event, n being its number of pods; each clock has its own order.

    `plan`: `index, pods`. `pods`: Table PODS. Returns: Rows of table MILESTONES.
    """
    client, server, resolution, gap = f"{event}_s", f"server_{event}_s", f"{event}_resolution_s", f"{event}_gap"

    def rank_pods(column: str, *more: str) -> pl.DataFrame:
        """Select each workload's n-th pod by this time, n being its number of pods."""
        rows = pods.filter(pl.col(column).is_not_null()).select("index", column, *more).sort("index", column)
        place = rows.with_columns(pl.col(column).cum_count().over("index").cast(pl.Int64).alias("place"))
        return place.join(plan.select("index", pl.col("pods").alias("place")), on=["index", "place"]).drop("place")

    both = rank_pods(client, gap).join(rank_pods(server, resolution), on="index", how="full", coalesce=True)
    nth_rows = both.rename({resolution: "resolution_s"}).with_columns(pl.col(gap).fill_null(value=False).alias("gap"))
    return _milestone_rows(nth_rows, milestone, client=client, server=server)


def _podgroup_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Milestones of PodGroups, which are matched to workloads by label, by owner, or by name.

    `plan`: Table SCHEDULE. `transitions`, `pods`: Tables of these names. Returns: Rows of table MILESTONES.
    """
    groups = transitions.filter((pl.col("resource") == "podgroup") & (pl.col("transition") == "created"))
    names = plan.select("index", "name")
    by_label = groups.join(names, left_on="workload", right_on="name", how="inner")
    unlabelled = groups.filter(pl.col("workload").is_null())
    owners = pl.concat(
        [
            transitions.filter(pl.col("resource").is_in(["job", "workload"]) & pl.col("workload").is_not_null())
            .join(names, left_on="workload", right_on="name", how="inner")
            .select("index", pl.col("uid").alias("owner")),
            pods.select("index", pl.col("uid").alias("owner")),
        ]
    ).unique("owner")
    by_owner = unlabelled.join(owners, on="owner", how="inner")
    by_name = unlabelled.filter(pl.col("owner").is_null()).join(names, on="name", how="inner")
    columns = ["index", "arrival_s", "server_s", "resolution_s", "gap"]
    group_rows = pl.concat([part.select(columns) for part in (by_label, by_owner, by_name)])
    return _milestone_rows(_earliest_rows(group_rows), "podgroup", client="arrival_s", server="server_s")


def _event_milestones(plan: pl.DataFrame, transitions: pl.DataFrame, pods: pl.DataFrame) -> list[pl.DataFrame]:
    """Milestones from events: first decision of the scheduler (bound or unschedulable), eviction, volumes, backend.

    `plan`: Table SCHEDULE. `transitions`, `pods`: Tables of these names. Returns: Rows of table MILESTONES.
    """
    pod_uids = pods.select("index", pl.col("uid"))
    of_pods = transitions.filter(pl.col("resource") == "pod").join(pod_uids, on="uid", how="inner")
    pod_events = transitions.filter(pl.col("resource") == "event").join(
        pod_uids, left_on="owner", right_on="uid", how="inner"
    )
    decided = of_pods.filter(pl.col("transition").is_in(["scheduled", "unschedulable"]))
    columns = ["index", "arrival_s", "server_s", "resolution_s", "gap"]
    evicted = pl.concat(
        [rows.filter(pl.col("transition") == "evicted").select(columns) for rows in (of_pods, pod_events)]
    )
    named = transitions.filter(pl.col("workload").is_not_null()).join(
        plan.select("index", pl.col("name").alias("workload")), on="workload", how="inner"
    )
    parts = {"decided": decided, "evicted": evicted}
    for milestone in ("pvc requested", "pvc bound", "backend"):
        parts[milestone] = named.filter(pl.col("transition") == milestone.replace(" ", "-"))
    return [
        _milestone_rows(_earliest_rows(rows), name, client="arrival_s", server="server_s")
        for name, rows in parts.items()
    ]
