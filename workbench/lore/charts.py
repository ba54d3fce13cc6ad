"""Charts of plans, dumps and replays; each draws one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from workbench import charts
from workbench.charts.data import join_sentences, list_categories
from workbench.charts.theme import (
    CATEGORIES,
    COLOURS,
    ROW_PX,
    encode_rows,
    encode_tooltip,
    finish_chart,
    short_number_expression,
)
from workbench.core.formats import format_number
from workbench.core.frames import takes_frames
from workbench.lore.tables import PARTITIONS, PLAN_TREE, TIMINGS
from workbench.stats.verdicts import DECIDED

if TYPE_CHECKING:
    import altair as alt

MAX_DOTS = 2_000
MAX_CHART_NODES = 400
LINE_PX = 21
# Dumped, dumpable and refused operators.
KIND_COLOURS = {"replayed": CATEGORIES[1], "can be dumped": COLOURS["accent"], "refused": COLOURS["neutral"]}
# Columns of figures, from the right edge.
STAGE_PX, TIME_PX, ROWS_PX, BAR_PX = 4, 82, 142, 56
# Below this width, only rows are shown beside the names.
NARROW_PX = 460
_IDS = r"#\d+L?|,? ?\[?plan_id=\d+\]?"
# The deepest operator starts within a third of the width.
_STEP = f"min(14 * datum.depths, width * (width < {NARROW_PX} ? 0.17 : 0.3))"
_WIDE = f"width >= {NARROW_PX} ? 1 : 0"
# Without the other columns, rows move to the right edge; hidden marks stay inside, or Vega would reserve space.
_ROWS_SHIFT = f"(width < {NARROW_PX} ? {ROWS_PX - STAGE_PX} : 0)"
_ROWS_END = f"width - {ROWS_PX} + {_ROWS_SHIFT}"


@takes_frames
def chart_partitions(
    partitions: pl.DataFrame, *, of: Literal["n_rows", "n_bytes"] = "n_rows", top: int = 20
) -> alt.Chart:
    """Chart of rows or bytes by partition, largest on top.

    Parameters
    ----------
    partitions
        Table `tables.PARTITIONS`.
    of
        Quantity to draw.
    top
        Number of partitions shown at first.

    Raises
    ------
    InputError
        Another table, or `top` is below 1.

    Notes
    -----
    Partitions that were not dumped are not shown; they may be the largest.
    """
    frame = PARTITIONS.check(partitions)
    several = frame["lore_id"].n_unique() > 1
    dump = pl.format("loreId-{} · ", "lore_id") if several else pl.lit("")
    labelled = frame.with_columns(label=dump + pl.format("{} · {}", "input", "partition"))
    skew = frame["skew_ratio"].max() if of == "n_rows" else None
    return charts.bars(
        labelled,
        title="Rows by partition" if of == "n_rows" else "Bytes of the files by partition",
        label="label",
        value=of,
        category="input",
        top=top,
        subtitle=join_sentences(
            "input and number of the partition",
            f"the largest has {format_number(skew)} times the median of its input" if skew is not None else "",
        ),
    )


@takes_frames
def chart_times(timings: pl.DataFrame, times: pl.DataFrame) -> alt.Chart:
    """Chart of the time of the operator and of reading its inputs: dots are runs, bars intervals of the median.

    Parameters
    ----------
    timings
        Table `tables.TIMINGS`; at most 2,000 dots are drawn, those of the first repeats.
    times
        Table `tables.TIMES`.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Does not show the time inside the query, where the operator shares its stage and cores.
    """
    import altair as alt

    quantities = {"operator": "operator_s", "reading its inputs": "scan_s"}
    runs = TIMINGS.check(timings)
    dots = pl.concat(
        runs.select("side", "repeat", quantity=pl.lit(name), time_s=column) for name, column in quantities.items()
    )
    shown = dots.sort("repeat", maintain_order=True).head(MAX_DOTS)
    n_hidden = dots.height - shown.height
    several = times["side"].n_unique() > 1
    label = pl.format("{} · {}", "side", "quantity") if several else pl.col("quantity")
    drawn, spans = shown.with_columns(label=label), times.with_columns(label=label)
    scale = alt.Scale(zero=True, nice=False, padding=12)
    x = alt.X("time_s", type="quantitative", title="time (s)", scale=scale, axis=alt.Axis(tickCount=8))
    names = list_categories(spans, "quantity")
    shades = [COLOURS["neutral" if name.startswith("reading") else "accent"] for name in names]
    colours = alt.Scale(domain=names, range=shades)
    # The rows have the names.
    shade = {"color": alt.Color("quantity", type="nominal", scale=colours, legend=None)} if names else {}
    bars = alt.Chart(spans).encode(y=encode_rows("label"), tooltip=encode_tooltip(spans, leave_out=("label",)))
    wide = bars.mark_rule(strokeWidth=7, opacity=0.35, strokeCap="round")
    ends = {"x": alt.X("low_s", type="quantitative", scale=scale), "x2": alt.X2("high_s")}
    middle = bars.mark_tick(thickness=3, size=18).encode(x=alt.X("median_s", type="quantitative", scale=scale), **shade)
    points = alt.Chart(drawn).mark_circle(size=46, opacity=0.75)
    each = points.encode(x=x, y=encode_rows("label"), tooltip=encode_tooltip(drawn, leave_out=("label",)), **shade)
    intervals = wide.transform_filter("isValid(datum.low_s) && isValid(datum.high_s)").encode(**ends, **shade)
    n = runs.group_by("side").len()["len"].max()
    subtitle = join_sentences(
        f"dots: {format_number(n or 0)} run{'' if n == 1 else 's'} each",
        f"{format_number(n_hidden)} more not drawn" if n_hidden else "",
        "bar: interval of the median",
        "the operator's time is total minus reading",
    )
    return finish_chart(
        alt.layer(intervals, middle, each),
        "Time of the operator, and of reading its inputs",
        subtitle,
        spans,
        height=max(60, ROW_PX * 1.4 * max(1, spans.height)),
    )


@takes_frames
def chart_ratios(ratios: pl.DataFrame, *, settings_a: str, settings_b: str) -> alt.Chart:
    """Chart of the speed ratio of B to A; reading the inputs is a control and should be near 1.

    Does not show the gain of the whole query.

    `ratios`: Table RATIOS.
    """
    drawn = ratios.with_columns(told=pl.col("verdict").is_in(DECIDED))
    return charts.forest(
        drawn,
        title="How many times as fast is B as A?",
        label="quantity",
        estimate="speed_ratio",
        low="low_ratio",
        high="high_ratio",
        n="n",
        told_apart="told",
        category="verdict",
        subtitle=join_sentences(f"A: {settings_a or 'as dumped'}", f"B: {settings_b or 'as dumped'}"),
    )


@takes_frames
def chart_plan(plan: pl.DataFrame, *, lore_id: int | None = None) -> alt.Chart:
    """Chart of the plan with rows and times, and of the operators that can be dumped.

    Parameters
    ----------
    plan
        Table `tables.PLAN_TREE`; at most 400 operators are drawn, from the root.
    lore_id
        The replayed operator, drawn bold.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Times are summed over tasks. Times of operators in a fused stage include each other: do not add them.
    """
    import altair as alt

    frame = _prepare_plan(PLAN_TREE.check(plan).sort("position").head(MAX_CHART_NODES), lore_id)
    n_hidden = plan.height - frame.height
    count = max(1, frame.height)
    down = alt.Scale(domain=[-1.4, count - 0.4], reverse=True, nice=False, zero=False)
    y = alt.Y("position", type="quantitative", axis=None, scale=down)
    layers = [
        *_edge_layers(frame, y),
        *_stage_layers(frame, y),
        *_figure_layers(frame, y),
        *_name_layers(frame, y),
        _heading_layer(y),
    ]
    refused = plan["refused"].count()
    subtitle = join_sentences(
        f"{format_number(plan.height - refused)} of {format_number(plan.height)} operators can be dumped",
        f"{format_number(n_hidden)} more not drawn" if n_hidden else "",
        "times are summed over tasks; those of one fused stage include each other",
        "point at one for its text",
    )
    words = frame.select("operator", "lore_id", "n_rows", "time_ms", "refused")
    return finish_chart(
        alt.layer(*layers), "The plan, with the id of each operator", subtitle, words, height=LINE_PX * (count + 1)
    )


def _prepare_plan(plan: pl.DataFrame, lore_id: int | None) -> pl.DataFrame:
    """Prepare the rows of table TREE for drawing: labels without expression ids, kinds, and positions of parents."""
    bare = pl.col("text").str.replace(r"^(subquery: )?\[(?:loreId=\d+|reused)\] ", "$1").str.replace_all(_IDS, "")
    named = pl.when(pl.col("lore_id").is_null()).then(pl.lit("reused")).otherwise(pl.col("lore_id").cast(pl.String))
    kind = (
        pl.when(pl.col("lore_id") == pl.lit(lore_id, dtype=pl.Int64))
        .then(pl.lit("replayed"))
        .when(pl.col("refused").is_null())
        .then(pl.lit("can be dumped"))
        .otherwise(pl.lit("refused"))
    )
    depth = max(1, plan["depth"].max() or 1)
    return plan.with_columns(
        label=pl.format("{} · {}", named, bare),
        kind=kind,
        indent=pl.col("depth") / depth,
        depths=pl.lit(depth),
        rows_share=pl.col("n_rows") / max(1, plan["n_rows"].max() or 1),
    ).with_columns(indent_up=(pl.col("depth") - 1) / depth)


def _edge_layers(frame: pl.DataFrame, y: Any) -> list[Any]:
    """Lines from each operator to its parent; `frame` needs position, parent, indent, indent_up, depths."""
    import altair as alt

    edges = frame.filter(pl.col("parent").is_not_null()).select("position", "parent", "indent", "indent_up", "depths")
    up = alt.ExprRef(f"5 + datum.indent_up * {_STEP}")
    here = alt.ExprRef(f"5 + datum.indent * {_STEP}")
    base = alt.Chart(edges)
    falling = base.mark_rule(color=COLOURS["neutral"], opacity=0.5, x=up).encode(y=y, y2=alt.Y2("parent"))
    lying = base.mark_rule(color=COLOURS["neutral"], opacity=0.5, x=up, x2=here).encode(y=y)
    return [falling, lying]


def _name_layers(frame: pl.DataFrame, y: Any) -> list[Any]:
    """Dot and name of each operator; `frame` needs position, indent, label, kind and the tooltip's columns."""
    import altair as alt

    tips = encode_tooltip(frame.select("text", "refused", "rows_in", "n_rows", "time_ms", "span_ms"))
    base = alt.Chart(frame).encode(y=y, tooltip=tips)
    x = f"5 + datum.indent * {_STEP}"
    kinds = [name for name in KIND_COLOURS if name in set(frame["kind"])]
    scale = alt.Scale(domain=kinds, range=[KIND_COLOURS[name] for name in kinds])
    shade = alt.Color("kind", type="nominal", title=None, scale=scale) if kinds else alt.value(COLOURS["neutral"])
    dots = base.mark_circle(size=70, opacity=1, x=alt.ExprRef(x)).encode(color=shade)
    room = f"max(30, {_ROWS_END} - {BAR_PX + 6} - ({x}) - 9)"
    words = base.mark_text(
        align="left",
        fontSize=12,
        x=alt.ExprRef(f"{x} + 9"),
        text=alt.ExprRef("datum.label"),
        limit=alt.ExprRef(room),
        fontWeight=alt.ExprRef("datum.kind == 'replayed' ? 'bold' : 'normal'"),
        opacity=alt.ExprRef("datum.kind == 'refused' ? 0.62 : 1"),
    )
    return [dots, words]


def _figure_layers(frame: pl.DataFrame, y: Any) -> list[Any]:
    """Rows and time of each operator, right-aligned; `frame` needs position, n_rows, rows_share, time_ms."""
    import altair as alt

    base = alt.Chart(frame).encode(y=y)
    end = _ROWS_END
    bars = alt.Chart(frame.filter(pl.col("rows_share") > 0)).mark_rect(
        color=COLOURS["accent"],
        opacity=0.22,
        height=LINE_PX - 7,
        x=alt.ExprRef(f"{end} - {BAR_PX} * datum.rows_share"),
        x2=alt.ExprRef(end),
    )
    bars = bars.encode(y=y)
    counted = f"isValid(datum.n_rows) ? ({short_number_expression('datum.n_rows')}) : ''"
    taken = f"isValid(datum.time_ms) ? ({short_number_expression('datum.time_ms')}) : ''"
    style: dict[str, Any] = {"align": "right", "fontSize": 11.5}
    return [
        bars,
        base.mark_text(**style, x=alt.ExprRef(f"{end} - 3"), text=alt.ExprRef(counted)),
        base.mark_text(
            **style, x=alt.ExprRef(f"width - {TIME_PX}"), text=alt.ExprRef(taken), opacity=alt.ExprRef(_WIDE)
        ),
    ]


def _stage_layers(frame: pl.DataFrame, y: Any) -> list[Any]:
    """A line beside the operators of each fused stage, with its time at the top.

    One piece per operator, since operators in between may belong to another stage.
    """
    import altair as alt

    first, last = pl.col("position").min().over("span"), pl.col("position").max().over("span")
    spans = frame.filter(pl.col("span").is_not_null()).select(
        "span",
        "position",
        span_ms=pl.when(pl.col("position") == first).then(pl.col("span_ms").max().over("span")),
        top=pl.col("position") - pl.when(pl.col("position") == first).then(0.35).otherwise(0.5),
        bottom=pl.col("position") + pl.when(pl.col("position") == last).then(0.35).otherwise(0.5),
    )
    base = alt.Chart(spans)
    across = alt.Y("top", type="quantitative", axis=None, scale=y["scale"])
    line = base.mark_rule(
        color=COLOURS["neutral"], strokeWidth=2.5, opacity=alt.ExprRef(_WIDE), x=alt.ExprRef(f"width - {STAGE_PX - 4}")
    ).encode(y=across, y2=alt.Y2("bottom"))
    figure = f"isValid(datum.span_ms) ? ({short_number_expression('datum.span_ms')}) : ''"
    words = base.mark_text(
        align="right",
        fontSize=11.5,
        opacity=alt.ExprRef(_WIDE),
        x=alt.ExprRef(f"width - {STAGE_PX + 4}"),
        text=alt.ExprRef(figure),
    ).encode(y=y)
    return [line, words]


def _heading_layer(y: Any) -> Any:
    """Headings above the columns of figures; `y` is the vertical axis of the operators."""
    import altair as alt

    frame = pl.DataFrame(
        {
            "position": [-1.0, -1.0, -1.0],
            "words": ["rows", "ms", "fused, ms"],
            "place": [ROWS_PX + 3, TIME_PX, STAGE_PX + 4],
        }
    )
    x = f"width - datum.place + (datum.words == 'rows' ? {_ROWS_SHIFT} : 0)"
    return (
        alt.Chart(frame)
        .mark_text(
            align="right",
            fontSize=11,
            x=alt.ExprRef(x),
            text=alt.ExprRef("datum.words"),
            opacity=alt.ExprRef(f"datum.words == 'rows' ? 0.75 : 0.75 * ({_WIDE})"),
        )
        .encode(y=y)
    )
