"""The picture of a tagged plan: an operator a line, root on top, with its rows, its time and what it is fused with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.chart_data import sentences
from workbench.formats import number
from workbench.lore.picking import TREE
from workbench.pieces.encodings import finish, short, tooltip
from workbench.theme import CATEGORIES, COLOURS

if TYPE_CHECKING:
    import altair as alt

LIMIT_NODES = 400
LINE_PX = 21
# What is dumped, what could be, what is refused.
KINDS = {"replayed": CATEGORIES[1], "can be dumped": COLOURS["accent"], "refused": COLOURS["neutral"]}
# Columns of figures, from the right end of the picture.
STAGE_PX, TIME_PX, ROWS_PX, BAR_PX = 4, 82, 142, 56
# Narrower than this, only rows stand beside the names.
NARROW_PX = 460
_IDS = r"#\d+L?|,? ?\[?plan_id=\d+\]?"


def chart_plan(plan: pl.DataFrame, *, lore_id: int | None = None) -> alt.Chart:
    """What does the query do, how many rows go where, and which operators can be dumped?

    Parameters
    ----------
    plan
        Table `picking.TREE`; of more than 400 operators the first are drawn, from the root on.
    lore_id
        The operator that is replayed, which is drawn bold.

    Raises
    ------
    InputError
        Another table.

    Notes
    -----
    Times are added over tasks, and those of operators in one fused stage hold each other: they must not be added.
    """
    import altair as alt

    frame = _readable(TREE.check(plan).sort("position").head(LIMIT_NODES), lore_id)
    rest = plan.height - frame.height
    count = max(1, frame.height)
    down = alt.Scale(domain=[-1.4, count - 0.4], reverse=True, nice=False, zero=False)
    y = alt.Y("position", type="quantitative", axis=None, scale=down)
    layers = [
        *_edges(frame, y),
        *_stages(frame, y),
        *_figures(frame, y),
        *_names(frame, y),
        _headings(y),
    ]
    refused = plan["refused"].count()
    told = sentences(
        f"{number(plan.height - refused)} of {number(plan.height)} operators can be dumped",
        f"{number(rest)} more not drawn" if rest else "",
        "times are added over tasks; those of one fused stage hold each other",
        "point at one for its text",
    )
    words = frame.select("operator", "lore_id", "n_rows", "time_ms", "refused")
    return finish(
        alt.layer(*layers), "The plan, with the id of each operator", told, words, height=LINE_PX * (count + 1)
    )


def _readable(plan: pl.DataFrame, lore_id: int | None) -> pl.DataFrame:
    """Labels without numbers of expressions, the kind of each operator, and where its parent stands."""
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


# Steps are as wide as there is room for: the deepest operator starts within a third of the picture.
_STEP = f"min(14 * datum.depths, width * (width < {NARROW_PX} ? 0.17 : 0.3))"


def _edges(frame: pl.DataFrame, y: Any) -> list[Any]:
    import altair as alt

    edges = frame.filter(pl.col("parent").is_not_null()).select("position", "parent", "indent", "indent_up", "depths")
    up = alt.ExprRef(f"5 + datum.indent_up * {_STEP}")
    here = alt.ExprRef(f"5 + datum.indent * {_STEP}")
    base = alt.Chart(edges)
    falling = base.mark_rule(color=COLOURS["neutral"], opacity=0.5, x=up).encode(y=y, y2=alt.Y2("parent"))
    lying = base.mark_rule(color=COLOURS["neutral"], opacity=0.5, x=up, x2=here).encode(y=y)
    return [falling, lying]


def _names(frame: pl.DataFrame, y: Any) -> list[Any]:
    import altair as alt

    tips = tooltip(frame.select("text", "refused", "rows_in", "n_rows", "time_ms", "span_ms"))
    base = alt.Chart(frame).encode(y=y, tooltip=tips)
    x = f"5 + datum.indent * {_STEP}"
    known = [name for name in KINDS if name in set(frame["kind"])]
    scale = alt.Scale(domain=known, range=[KINDS[name] for name in known])
    shade = alt.Color("kind", type="nominal", title=None, scale=scale) if known else alt.value(COLOURS["neutral"])
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


_WIDE = f"width >= {NARROW_PX} ? 1 : 0"
# Where columns are left out, rows move to the right end; what is hidden stays inside, or Vega would make room for it.
_MOVED = f"(width < {NARROW_PX} ? {ROWS_PX - STAGE_PX} : 0)"
_ROWS_END = f"width - {ROWS_PX} + {_MOVED}"


def _figures(frame: pl.DataFrame, y: Any) -> list[Any]:
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
    counted = f"isValid(datum.n_rows) ? ({short('datum.n_rows')}) : ''"
    taken = f"isValid(datum.time_ms) ? ({short('datum.time_ms')}) : ''"
    style: dict[str, Any] = {"align": "right", "fontSize": 11.5}
    return [
        bars,
        base.mark_text(**style, x=alt.ExprRef(f"{end} - 3"), text=alt.ExprRef(counted)),
        base.mark_text(
            **style, x=alt.ExprRef(f"width - {TIME_PX}"), text=alt.ExprRef(taken), opacity=alt.ExprRef(_WIDE)
        ),
    ]


def _stages(frame: pl.DataFrame, y: Any) -> list[Any]:
    """A line beside the operators of each fused stage, with its time at its top.

    A piece an operator: what stands between two of a stage may belong to another.
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
    figure = f"isValid(datum.span_ms) ? ({short('datum.span_ms')}) : ''"
    words = base.mark_text(
        align="right",
        fontSize=11.5,
        opacity=alt.ExprRef(_WIDE),
        x=alt.ExprRef(f"width - {STAGE_PX + 4}"),
        text=alt.ExprRef(figure),
    ).encode(y=y)
    return [line, words]


def _headings(y: Any) -> Any:
    import altair as alt

    frame = pl.DataFrame(
        {
            "position": [-1.0, -1.0, -1.0],
            "words": ["rows", "ms", "fused, ms"],
            "place": [ROWS_PX + 3, TIME_PX, STAGE_PX + 4],
        }
    )
    x = f"width - datum.place + (datum.words == 'rows' ? {_MOVED} : 0)"
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
