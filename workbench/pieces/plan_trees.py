"""Two trees side by side, one row a node, coloured by a quantity; pointing at a node shows its twin."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, first_appearance, sentences, unique
from workbench.chart_text import table_text
from workbench.errors import InputError
from workbench.formats import label_of, number
from workbench.pieces.encodings import short, tooltip
from workbench.theme import COLOURS

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

LIMIT_NODES = 400
# Both sides fit a page of 1,280 px.
SIDE_PX, FIGURE_PX, STEP_PX = 470, 52, 18
MOST_INDENT_PX, INDENTED_PX = 14, 190
CHARACTER_PX = 6.6
SPACE_PX = 12
# What lights up a node and its twin: pointing at it, and for longer a click.
SELECTIONS = {"pointed": "pointerover", "kept": "click"}
# Of the largest figure: less than this is written as about nothing.
LEAST_SHARE = 1e-3


def plan_trees(
    table: pl.DataFrame,
    *,
    title: str,
    side: str,
    node: str,
    parent: str,
    pair: str,
    label: str,
    value: str,
    details: tuple[str, ...] = (),
    subtitle: str = "",
) -> alt.HConcatChart:
    """What became of each node of a plan? Two trees, root above, coloured by a quantity; twins light up together.

    Parameters
    ----------
    table
        One row per node and side, at most 400 a side; siblings are drawn in the table's order.
    side
        Column with one or two values: the trees, left and right in the table's order.
    node, parent, pair
        Numeric columns: the node's number within its side, that of the node above (null at a root), and the number
        that twins of both sides share.
    label, value
        Columns: what is written at the node (cut where it is too long, whole in the tooltip), and the quantity that
        colours it (null: no colour). The figure stands at the right.
    details
        More columns for the tooltip.

    Raises
    ------
    InputError
        Columns missing or of another type, more than two sides, a node twice, too many nodes, a parent that is not
        there, or nodes that feed each other in a circle.

    Notes
    -----
    Does not show how sure a figure is. Colours have one scale for both sides.
    """
    import altair as alt

    numeric = [name for name in details if name in table.columns and table.schema[name].is_numeric()]
    texts = [side, label, *(name for name in details if name not in numeric)]
    frame = chosen(table, "plan_trees", texts=texts, numbers=[node, parent, pair, value, *numeric])
    at_most(frame, "plan_trees", 2 * LIMIT_NODES, "draw one query at a time")
    unique(frame, "plan_trees", [side, node])
    names = first_appearance(frame, side)
    if len(names) > 2:
        raise InputError("more than two trees", where=f"chart plan_trees, column {side}", found=names, allowed="two")
    laid = [_laid_out(part, side, node, parent, label) for name in names if (part := _of(frame, side, name)).height]
    most = max((part.height for part in laid), default=1)
    top = frame.get_column(value).max()
    shades = [_tree(part, value, f"tree_{place}", most=most, top=top) for place, part in enumerate(laid)]
    told = sentences(subtitle, f"colour and figure: {label_of(value)}", "point at a node to see its twin")
    text = table_text(title, frame, subtitle=told)
    heading = alt.TitleParams(text=title, subtitle=told)
    drawn = alt.hconcat(*(shades or [_nothing()]), spacing=16).properties(title=heading, description=text)
    # Written out, so that one selection listens on both sides; Altair would make two of it.
    drawn.params = [_selection(name, on, pair, len(shades)) for name, on in SELECTIONS.items() if shades]
    return drawn


def _selection(name: str, on: str, pair: str, count: int) -> Any:
    import altair as alt

    gone = {"clear": "pointerout"} if on == "pointerover" else {}
    select = alt.PointSelectionConfig(type="point", fields=[pair], on=on, **gone)
    return alt.TopLevelSelectionParameter(name=name, select=select, views=[f"tree_{place}" for place in range(count)])


def _of(frame: pl.DataFrame, side: str, name: str) -> pl.DataFrame:
    import polars as pl

    return frame.filter(pl.col(side) == name)


def _nothing() -> Any:
    import altair as alt
    import polars as pl

    empty = pl.DataFrame({"words": ["no plan"]})
    return alt.Chart(empty).mark_text(align="left").encode(text=alt.Text("words", type="nominal"))


def _laid_out(frame: pl.DataFrame, side: str, node: str, parent: str, label: str) -> pl.DataFrame:
    """The rows from the root down, with their place: `line`, `x` and the parent's `line_up`, `x_up`."""
    import polars as pl

    ids, parents = frame.get_column(node).to_list(), frame.get_column(parent).to_list()
    below: dict[Any, list[int]] = defaultdict(list)
    for row, above in enumerate(parents):
        if above is not None and above not in set(ids):
            raise InputError("a node feeds one that is not there", where="chart plan_trees", found=above)
        below[above].append(row)
    order: list[tuple[int, int]] = []
    todo = [(row, 0) for row in reversed(below[None])]
    while todo:
        row, depth = todo.pop()
        order.append((row, depth))
        todo += [(child, depth + 1) for child in reversed(below[ids[row]])]
    if len(order) < frame.height:
        raise InputError("nodes feed each other in a circle", where="chart plan_trees", found=frame.item(0, side))
    indent_px = min(MOST_INDENT_PX, INDENTED_PX / max(1, *(depth for _, depth in order)))
    place = {ids[row]: (line, depth * indent_px) for line, (row, depth) in enumerate(order)}
    rows = [row for row, _ in order]
    ups = [place[parents[row]] if parents[row] is not None else (None, None) for row in rows]
    here = [place[ids[row]] for row in rows]
    return frame[rows].with_columns(
        pl.Series("line", [line for line, _ in here], dtype=pl.Int64),
        pl.Series("x", [x for _, x in here], dtype=pl.Float64),
        pl.Series("line_up", [line for line, _ in ups], dtype=pl.Int64),
        pl.Series("x_up", [x for _, x in ups], dtype=pl.Float64),
        pl.Series("words", [_cut(frame.item(row, label), x) for row, (_, x) in zip(rows, here, strict=True)]),
    )


def _cut(text: str, x_px: float) -> str:
    """As much of a label as fits between its indentation and the figure."""
    room = int((SIDE_PX - FIGURE_PX - SPACE_PX - x_px) / CHARACTER_PX)
    return text if len(text) <= room else text[: room - 1] + "…"


def _tree(frame: pl.DataFrame, value: str, name: str, *, most: int, top: Any) -> Any:
    import altair as alt
    import polars as pl

    side = frame.columns[0]
    height = most * STEP_PX
    across = alt.Scale(domain=[0, SIDE_PX], nice=False, zero=False)
    # A row lower than the last, so that both sides have equal rows.
    down = alt.Scale(domain=[-0.5, most - 0.5], reverse=True, nice=False, zero=False)
    x = alt.X("x", type="quantitative", axis=None, scale=across)
    y = alt.Y("line", type="quantitative", axis=None, scale=down)
    tips = tooltip(frame, leave_out=("line", "x", "line_up", "x_up", "words"))
    edges = frame.filter(pl.col("line_up").is_not_null()).select("line", "x", "line_up", "x_up")
    ink = COLOURS["neutral"]
    falling = alt.Chart(edges).mark_rule(color=ink, strokeWidth=1, opacity=0.5)
    falling = falling.encode(x=alt.X("x_up", type="quantitative", axis=None, scale=across), y=y, y2=alt.Y2("line_up"))
    lying = alt.Chart(edges).mark_rule(color=ink, strokeWidth=1, opacity=0.5)
    lying = lying.encode(x=alt.X("x_up", type="quantitative", axis=None, scale=across), x2=alt.X2("x"), y=y)
    base = alt.Chart(frame).encode(y=y, tooltip=tips)
    lit = {"condition": [{"param": point, "empty": False, "value": 0.22} for point in SELECTIONS], "value": 0.0}
    band = base.mark_rect(color=COLOURS["accent"], height=STEP_PX).properties(name=name)
    band = band.encode(x=alt.value(0), x2=alt.value(SIDE_PX), opacity=lit)
    shade = alt.Color(
        value,
        type="quantitative",
        scale=alt.Scale(domain=[0, top or 1]),
        legend=alt.Legend(title=label_of(value), gradientLength=180, gradientThickness=8),
    )
    squares = base.mark_square(size=110, opacity=1, stroke=ink, strokeWidth=0.5).encode(x=x, color=shade)
    words = base.mark_text(align="left", dx=SPACE_PX, fontSize=11).encode(x=x, text=alt.Text("words", type="nominal"))
    least = LEAST_SHARE * (top or 0)
    known = f"datum.{value} > 0 && datum.{value} < {least} ? '≈ 0' : ({short('datum.' + value)})"
    figure = f"isValid(datum.{value}) ? ({known}) : '–'"
    figures = base.mark_text(align="right", fontSize=11, text=alt.ExprRef(figure)).encode(x=alt.value(SIDE_PX - 4))
    heading = alt.TitleParams(text=f"{frame.item(0, side)} ({number(frame.height)} nodes)", fontSize=12)
    return alt.layer(falling, lying, band, squares, words, figures).properties(
        width=SIDE_PX, height=height, title=heading
    )
