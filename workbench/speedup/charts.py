"""Charts of a profile, a pair and a fleet, each drawn from one analysed table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from workbench import charts
from workbench.charts.data import join_sentences
from workbench.core.frames import takes_frames
from workbench.eventlog.wall_time import clip_spans, merge_spans, subtract_spans
from workbench.stats import Interval
from workbench.stats.verdicts import DECIDED

if TYPE_CHECKING:
    import altair as alt

from workbench.speedup.comparison.plan_alignment import PlanAlignment

PART_LABELS = {"running": "running", "waiting": "waiting", "driver": "driver alone", "nothing": "no query"}
# Shorter gaps are too thin to be seen.
MIN_SHADED_SHARE = 0.002
MAX_SAVING_STEPS = 10


@takes_frames
def chart_slot_time(wall_parts: pl.DataFrame, n_slots: int | None) -> alt.LayerChart:
    """Wall time times task slots as one bar; the wall time alone where the slots are not known.

    `wall_parts`: Table WALL_PARTS.
    """
    value = "wall_s" if wall_parts["slot_s"].null_count() else "slot_s"
    wall = f"{float(wall_parts['wall_s'].sum()):,.1f} s"
    known = value == "slot_s" and n_slots
    title = f"Where did {wall} x {n_slots:,} task slots go?" if known else f"Where did the {wall} go?"
    return charts.stacked_bar(
        wall_parts.with_columns(what=pl.col("part").replace(PART_LABELS)),
        title=title,
        label="what",
        value=value,
        details=("meaning",),
        subtitle="waiting: a stage was open and the slot had no task" if known else "",
    )


@takes_frames
def chart_timeline(
    queries: pl.DataFrame, stage_spans: pl.DataFrame, *, start_s: float | None = None, end_s: float | None = None
) -> alt.VConcatChart:
    """Queries and stages over time; overlapping ones are stacked, and time without a stage is shaded.

    `queries`, `stage_spans`: Tables of these names. `start_s`, `end_s`: The time to show; null: that of the queries.
    """
    columns = ("lane", "what", "start_s", "end_s", "outcome", "task_time_s", "n_tasks")
    of_queries = queries.with_columns(lane=pl.lit("queries"), what="query", outcome=_outcome_expr("query"))
    of_stages = stage_spans.with_columns(
        lane=pl.lit("stages"), what=pl.format("{}, {}", "stage", "query"), outcome=_outcome_expr("stage")
    )
    shaded = _list_gaps(stage_spans, start_s, end_s) if start_s is not None and end_s is not None else None
    return charts.timeline(
        pl.concat([of_queries.select(columns), of_stages.select(columns)]),
        title="Queries and stages over time; brush the overview to zoom in",
        start="start_s",
        end="end_s",
        lane="lane",
        category="outcome",
        details=("what", "task_time_s", "n_tasks"),
        shaded=shaded,
        subtitle="shaded: no stage ran" if shaded is not None and shaded.height else "",
    )


def _list_gaps(stage_spans: pl.DataFrame, start_s: float, end_s: float) -> pl.DataFrame:
    """Times without an open stage: `start_s, end_s, gap_s`. `stage_spans`: Table STAGE_SPANS."""
    stages = merge_spans(clip_spans(stage_spans.select("start_s", "end_s").iter_rows(), start_s, end_s))
    gaps = pl.DataFrame(
        subtract_spans(merge_spans([(start_s, end_s)]), stages),
        schema={"start_s": pl.Float64, "end_s": pl.Float64},
        orient="row",
    ).with_columns(gap_s=pl.col("end_s") - pl.col("start_s"))
    return gaps.filter(pl.col("gap_s") >= MIN_SHADED_SHARE * (end_s - start_s))


def _outcome_expr(kind: str) -> pl.Expr:
    return pl.when(pl.col("status") == "failed").then(pl.lit("failed")).otherwise(pl.lit(kind))


@takes_frames
def chart_operator_times(operator_times: pl.DataFrame, *, top: int) -> alt.Chart:
    """The largest operator times, by operator and metric; they nest, so bars must not be added.

    `operator_times`: Table OPERATOR_TIMES.
    """
    labelled = operator_times.with_columns(
        label=pl.format("{} · {}", "operator", "metric")
        + pl.when(pl.col("where") == "driver").then(pl.lit(" (driver)")).otherwise(pl.lit(""))
    )
    return charts.bars(
        labelled,
        title="Time that operators report, summed over tasks",
        label="label",
        value="total_s",
        category="where",
        top=top,
        subtitle="times nest: a codegen span includes its operators",
    )


@takes_frames
def chart_coverage(coverage: pl.DataFrame) -> alt.Chart:
    """Task time by what the log says about it.

    `coverage`: Table COVERAGE.
    """
    return charts.bars(
        coverage, title="Which task time does the log explain?", label="part", value="task_time_s", top=coverage.height
    )


@takes_frames
def chart_skew(stage_spans: pl.DataFrame) -> alt.Chart:
    """Stages in which one task took much longer than the median.

    `stage_spans`: Table STAGE_SPANS.
    """
    uneven = stage_spans.filter(pl.col("skew_cost_s").is_not_null()).with_columns(
        label=pl.format("{} · {}", "stage", "query")
    )
    return charts.bars(
        uneven,
        title="Longest minus median task by stage: the most that an even split could save",
        label="label",
        value="skew_cost_s",
        top=10,
    )


@takes_frames
def chart_savings(factors: pl.DataFrame, *, baseline: str, candidate: str) -> alt.Chart:
    """From the time of all queries on the baseline to that on the candidate, operator by operator.

    `factors`: Table FACTORS. The largest steps are drawn, the others as one; a step's factor stands beside its name.
    """
    saved = factors.with_columns(change_s=pl.col("candidate_s") - pl.col("baseline_s")).sort(
        pl.col("change_s").abs(), descending=True
    )
    top, rest = saved.head(MAX_SAVING_STEPS), saved.slice(MAX_SAVING_STEPS)
    totals = {name: float(factors[f"{name}_s"].sum()) for name in ("baseline", "candidate")}
    rows = [(baseline, totals["baseline"], "total", True)]
    for row in top.iter_rows(named=True):
        known = row["quality"] not in ("baseline only", "candidate only")
        name = f"{row['operator']}, {row['measured_factor']:.2g}x" if known else str(row["operator"])
        rows.append((name, row["change_s"], row["verdict"].lower(), False))
    if rest.height:
        rows.append((f"{rest.height} others", float(rest["change_s"].sum()), "undecided", False))
    rows.append((candidate, totals["candidate"], "total", True))
    names = {"step": pl.String, "time_s": pl.Float64, "kind": pl.String, "total": pl.Boolean}
    steps = pl.DataFrame(rows, schema=names, orient="row")
    # A total is where its bar ends; the steps between add up from the first.
    running = pl.when(pl.col("total") & (pl.col("step") != baseline)).then(0.0).otherwise(pl.col("time_s")).cum_sum()
    return charts.waterfall(
        steps.with_columns(end_s=pl.when(pl.col("total")).then(pl.col("time_s")).otherwise(running)),
        title=f"Where does {candidate} save time?",
        label="step",
        change="time_s",
        end="end_s",
        category="kind",
        total="total",
        subtitle="one run of all queries, largest steps first; beside each operator, "
        f"the time on {baseline} over that on {candidate}",
    )


@takes_frames
def chart_factors(factors: pl.DataFrame, *, baseline: str, candidate: str) -> alt.Chart:
    """Factor of each operator with its interval; operators on one side only have no ratio and are counted.

    `factors`: Table FACTORS.
    """
    both = factors.filter(~pl.col("quality").is_in(["baseline only", "candidate only"]))
    one_sided = factors.height - both.height
    drawn = both.with_columns(
        factor_ratio=pl.col("factor"),
        weak=pl.col("quality") == "weak",
        decided=pl.col("verdict").is_in(DECIDED),
        n=pl.format("{} and {} sessions x {} passes", "n_baseline_sessions", "n_candidate_sessions", "n_passes"),
    )
    return charts.forest(
        drawn,
        title=f"How many times faster is each operator on {candidate} than on {baseline}?",
        label="operator",
        estimate="factor_ratio",
        low="factor_low",
        high="factor_high",
        told_apart="decided",
        category="verdict",
        faint="weak",
        details=("quality", "n", "n_queries", "baseline_s", "baseline_share", "note"),
        comparisons=factors.height,
        subtitle="most time on top" + (f" · {one_sided} on one side only: see the table" if one_sided else ""),
    )


@takes_frames
def chart_pairs(pairs: pl.DataFrame, overall: Interval, verdict: str, *, baseline: str, candidate: str) -> alt.Chart:
    """Ratio of each query with its interval; the geometric mean is the last row.

    `pairs`: Table PAIRS. `overall`, `verdict`: Interval and verdict of the geometric mean.
    """
    row = {"query": "all queries", "ratio": overall.estimate, "ratio_low": overall.low, "ratio_high": overall.high}
    last = pl.DataFrame(
        [row | {"verdict": verdict}], schema_overrides={"ratio_low": pl.Float64, "ratio_high": pl.Float64}
    )
    drawn = pl.concat([pairs, last], how="diagonal_relaxed").with_columns(
        speedup_ratio=pl.col("ratio"), decided=pl.col("verdict").is_in(DECIDED)
    )
    return charts.forest(
        drawn,
        title=f"How many times faster is each query on {candidate} than on {baseline}?",
        label="query",
        estimate="speedup_ratio",
        low="ratio_low",
        high="ratio_high",
        told_apart="decided",
        category="verdict",
        details=("baseline_s", "candidate_s", "n_baseline_sessions", "n_candidate_sessions"),
        comparisons=pairs.height,
        subtitle="last row: geometric mean",
    )


@takes_frames
def chart_steps(steps: pl.DataFrame, *, query: str = "", changed: int = 0) -> alt.Chart:
    """Waterfall of a query from its time on the baseline to the predicted one.

    `query` is shown first; without it, the query that takes longest on the baseline.

    `steps`: Table STEPS. `changed`: Number of factors that the user changed.
    """
    longest = steps.filter(pl.col("kind") == "baseline").sort("time_s", descending=True)["query"].head(1).to_list()
    changes = f"{changed} changed factor{'s' if changed != 1 else ''}" if changed else ""
    return charts.waterfall(
        steps,
        title="From the baseline's time to the predicted one, operator by operator",
        label="what",
        change="time_s",
        end="end_s",
        category="kind",
        total="total",
        case="query",
        first=query or (longest[0] if longest else None),
        low="low_s",
        high="high_s",
        details=("before_s", "factor"),
        subtitle=changes or "the factors come from queries that include this one",
    )


@takes_frames
def chart_validation(validation: pl.DataFrame, *, level: float) -> alt.Chart:
    """Predicted over measured time of left-out queries; the worst three are labelled.

    `validation`: Table VALIDATION.
    """
    worst = pl.col("log_error").abs().rank("ordinal", descending=True).over("predictor") <= 3
    first = validation["predictor"].head(1).to_list()
    others = tuple(name for name in validation["predictor"].unique(maintain_order=True) if name not in first)
    return charts.scatter(
        validation.with_columns(measured_s=pl.col("actual_s"), worst=worst & pl.col("predictor").is_in(first)),
        title="Left-out queries: predicted against measured",
        x="measured_s",
        y="predicted_s",
        label="query",
        low="predicted_low_s",
        high="predicted_high_s",
        group="predictor",
        hidden=others,
        named="worst",
        details=("baseline_s", "absolute_error_share", "covered"),
        subtitle=f"bars: {100 * level:.0f} % prediction intervals · above the line: slower predicted than measured",
    )


@takes_frames
def chart_applications(applications: pl.DataFrame, *, top: int = 30) -> alt.Chart:
    """Predicted savings of each application with their interval, largest first; those not judged are counted.

    `applications`: Table APPLICATIONS.
    """
    name = pl.col("app_name").fill_null(pl.col("app_id")).fill_null(pl.col("log"))
    judged = applications.filter(pl.col("saved_s").is_not_null())
    drawn = judged.head(top)
    ending = pl.Series(shorten_paths(drawn["log"].to_list()), dtype=pl.String)
    drawn = drawn.with_columns(
        label=pl.when(name.is_duplicated()).then(pl.format("{} · {}", ending, name)).otherwise(name)
    )
    not_judged, below = applications.height - judged.height, judged.height - drawn.height
    return charts.forest(
        drawn,
        title="How much time would each application save?",
        label="label",
        estimate="saved_s",
        low="saved_low_s",
        high="saved_high_s",
        category="recommendation",
        reference=0.0,
        log=False,
        details=("baseline_s", "predicted_s", "ratio", "unsupported_share", "reason"),
        subtitle=join_sentences(
            f"{below} more not shown" if below else "",
            f"{not_judged} not judged: see the table" if not_judged else "",
        ),
    )


@takes_frames
def chart_scenarios(scenarios: pl.DataFrame) -> alt.Chart:
    """Wall time of the scenarios of one application with their interval, beside the run as it was.

    `scenarios`: Table SCENARIOS, whose first row is the run as it was.
    """
    known = scenarios.filter(pl.col("wall_s").is_not_null())
    return charts.forest(
        known,
        title="What would the application take otherwise?",
        label="scenario",
        estimate="wall_s",
        low="low_s",
        high="high_s",
        category="verdict",
        reference=scenarios["wall_s"][0] if scenarios.height else None,
        log=False,
        details=("saved_s", "executor_h", "core_h"),
    )


def shorten_paths(paths: Sequence[str]) -> list[str]:
    """Each path's shortest ending, in whole parts, that no other of them has.

    >>> shorten_paths(["/a/b/app", "/a/c/app", "/a/c/job"])
    ['b/app', 'c/app', 'job']
    """
    parts = [path.rstrip("/").split("/") for path in paths]
    endings = Counter("/".join(path_parts[-n:]) for path_parts in parts for n in range(1, len(path_parts) + 1))
    return [
        next((end for n in range(1, len(path_parts)) if endings[end := "/".join(path_parts[-n:])] == 1), path)
        for path_parts, path in zip(parts, paths, strict=True)
    ]


@takes_frames
def chart_at_stake(operators: pl.DataFrame, *, top: int) -> alt.Chart:
    """Time in operators that stay on the CPU or have no factor.

    `operators`: Table OPERATORS_AT_STAKE.
    """
    return charts.bars(
        operators,
        title="Time in operators that are left on the CPU or have no factor",
        label="operator",
        value="baseline_s",
        category="kind",
        top=top,
    )


def chart_plan_alignment(name: str, alignment: PlanAlignment) -> alt.HConcatChart:
    """Both plans of a query as trees, with matched operators side by side, coloured by wall time."""
    return charts.plan_trees(
        alignment.sides,
        title=f"{name}: operators of both plans",
        side="side",
        node="node_id",
        parent="parent_id",
        pair="row",
        label="name",
        value="wall_s",
        details=("change", "rows"),
        subtitle=f"{alignment.baseline_s:,.3f} s and {alignment.candidate_s:,.3f} s",
    )
