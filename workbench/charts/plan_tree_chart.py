"""Two plan trees side by side, coloured by a quantity, with matching nodes highlighted."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from workbench.charts.data import (
    check_row_count,
    check_unique,
    describe_table,
    join_sentences,
    list_categories,
    select_columns,
)
from workbench.charts.theme import COLOURS, encode_tooltip, short_number_expression
from workbench.core.errors import InputError
from workbench.core.formats import cut_text, format_label, format_number
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

MAX_NODES = 400
# Both sides fit a page of 1,280 px.
SIDE_PX, FIGURE_PX, STEP_PX = 470, 52, 18
MAX_INDENT_PX, MAX_TOTAL_INDENT_PX = 14, 190
CHARACTER_PX = 6.6
SPACE_PX = 12
# What highlights a node and its twin: pointing at it, or, to stay, a click.
SELECTIONS = {"pointed": "pointerover", "kept": "click"}
# Figures below this fraction of the largest are written as about 0.
MIN_SHARE = 1e-3


@takes_frames
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
    """Two plan trees side by side, root above, coloured by a quantity; twins are highlighted together.

    `table`: One row per node and side, at most 400 a side; siblings are drawn in the table's order.
    `side`: Column with one or two values: the trees, left and right in the table's order.
    `node`, `parent`, `pair`: Numeric columns: the node's number within its side, that of the node above (null at a
    root), and the number that twins of both sides share.
    `label`, `value`: Columns: what is written at the node (cut where it is too long, whole in the tooltip), and the
    quantity that colours it (null: no colour). The figure stands at the right.

    Does not show how sure a figure is. Colours have one scale for both sides.
    """
    import altair as alt
    import polars as pl

    numbers = [node, parent, pair, value]
    frame = select_columns(table, "plan_trees", texts=[side, label], numbers=numbers, details=details)
    check_row_count(frame, "plan_trees", 2 * MAX_NODES, "draw one query at a time")
    check_unique(frame, "plan_trees", [side, node])
    names = list_categories(frame, side)
    if len(names) > 2:
        raise InputError("more than two trees", where=f"chart plan_trees, column {side}", found=names, allowed="two")
    parts = [frame.filter(pl.col(side) == name) for name in names]
    trees = [_lay_out_nodes(part, side, node, parent, label) for part in parts]
    n_lines = max((tree.height for tree in trees), default=1)
    top = frame.get_column(value).max()
    drawn = [_build_tree(tree, value, f"tree_{place}", n_lines=n_lines, top=top) for place, tree in enumerate(trees)]
    note = join_sentences(subtitle, f"colour and figure: {format_label(value)}", "point at a node to see its twin")
    if not drawn:
        words = alt.Chart(pl.DataFrame({"words": ["no plan"]})).mark_text(align="left")
        drawn = [words.encode(text=alt.Text("words", type="nominal"))]
    chart = alt.hconcat(*drawn, spacing=16).properties(
        title=alt.TitleParams(text=title, subtitle=note), description=describe_table(title, frame, subtitle=note)
    )
    # Written out, so that one selection listens on both sides; Altair would make two of it.
    views = [f"tree_{place}" for place in range(len(trees))]
    chart.params = []
    for name, on in SELECTIONS.items() if trees else ():
        gone = {"clear": "pointerout"} if on == "pointerover" else {}
        select = alt.PointSelectionConfig(type="point", fields=[pair], on=on, **gone)
        chart.params.append(alt.TopLevelSelectionParameter(name=name, select=select, views=views))
    return chart


def _lay_out_nodes(frame: pl.DataFrame, side: str, node: str, parent: str, label: str) -> pl.DataFrame:
    """Order the nodes from the root down and add their place: `line`, `x` and the parent's `line_up`, `x_up`.

    `side`, `node`, `parent`, `label`: Columns of `frame`.
    """
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
    indent_px = min(MAX_INDENT_PX, MAX_TOTAL_INDENT_PX / max(1, *(depth for _, depth in order)))
    place = {ids[row]: (line, depth * indent_px) for line, (row, depth) in enumerate(order)}
    rows = [row for row, _ in order]
    ups = [place[parents[row]] if parents[row] is not None else (None, None) for row in rows]
    here = [place[ids[row]] for row in rows]
    # Labels are cut to the room between their indentation and the figure.
    rooms = [int((SIDE_PX - FIGURE_PX - SPACE_PX - x) / CHARACTER_PX) for _, x in here]
    words = [cut_text(frame.item(row, label), room) for row, room in zip(rows, rooms, strict=True)]
    return frame[rows].with_columns(
        pl.Series("line", [line for line, _ in here], dtype=pl.Int64),
        pl.Series("x", [x for _, x in here], dtype=pl.Float64),
        pl.Series("line_up", [line for line, _ in ups], dtype=pl.Int64),
        pl.Series("x_up", [x for _, x in ups], dtype=pl.Float64),
        pl.Series("words", words),
    )


def _build_tree(frame: pl.DataFrame, value: str, name: str, *, n_lines: int, top: Any) -> Any:
    """Draw one plan as an indented tree; `frame` needs line, x, line_up, x_up (the parent's place), words and `value`.

    `n_lines`: Lines of the longer side. `top`: Largest value of both sides, for the colours.
    """
    import altair as alt
    import polars as pl

    side = frame.columns[0]
    height = n_lines * STEP_PX
    across = alt.Scale(domain=[0, SIDE_PX], nice=False, zero=False)
    # A row lower than the last, so that both sides have equal rows.
    down = alt.Scale(domain=[-0.5, n_lines - 0.5], reverse=True, nice=False, zero=False)
    x = alt.X("x", type="quantitative", axis=None, scale=across)
    y = alt.Y("line", type="quantitative", axis=None, scale=down)
    tips = encode_tooltip(frame, leave_out=("line", "x", "line_up", "x_up", "words"))
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
        legend=alt.Legend(title=format_label(value), gradientLength=180, gradientThickness=8),
    )
    squares = base.mark_square(size=110, opacity=1, stroke=ink, strokeWidth=0.5).encode(x=x, color=shade)
    words = base.mark_text(align="left", dx=SPACE_PX, fontSize=11).encode(x=x, text=alt.Text("words", type="nominal"))
    least = MIN_SHARE * (top or 0)
    number_text = (
        f"datum.{value} > 0 && datum.{value} < {least} ? '≈ 0' : ({short_number_expression('datum.' + value)})"
    )
    figure = f"isValid(datum.{value}) ? ({number_text}) : '–'"
    figures = base.mark_text(align="right", fontSize=11, text=alt.ExprRef(figure)).encode(x=alt.value(SIDE_PX - 4))
    heading = alt.TitleParams(text=f"{frame.item(0, side)} ({format_number(frame.height)} nodes)", fontSize=12)
    return alt.layer(falling, lying, band, squares, words, figures).properties(
        width=SIDE_PX, height=height, title=heading
    )
