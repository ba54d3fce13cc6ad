"""Charts that all areas use: ready-made pieces that draw a table and compute nothing, in one look.

Each piece checks its columns, draws from the given polars table, and gives back an Altair chart that is still open to
change. Units come from the column names. No piece puts more than 5,000 rows into a page; what was left out or merged
stands in its subtitle. Each carries a text alternative computed from its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.chart_data import at_most, chosen, first_appearance, missing_note, positive, sentences, unique
from workbench.chart_text import table_text
from workbench.errors import InputError
from workbench.formats import label_of, number
from workbench.theme import COLOURS, category_colours
from workbench.timeline import timeline

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

__all__ = ["COLOURS", "bars", "ecdf", "forest", "heatmap", "ladder", "setup", "timeline"]

WIDTH_PX = 640
ROW_PX = 24


def setup() -> None:
    """Make charts look and show as this project's do; the first code cell of each notebook calls it.

    Headless a chart becomes a spec that the report draws, a picture and a text; live it is drawn in the page by the
    Vega that this call brings along. Neither needs a network.
    """
    from workbench import renderer, theme

    theme.enable()
    renderer.enable()
    renderer.announce_bundle()


def forest(
    table: pl.DataFrame,
    *,
    title: str,
    label: str,
    estimate: str,
    low: str,
    high: str,
    n: str | None = None,
    told_apart: str | None = None,
    reference: float | None = 1.0,
    log: bool = True,
    subtitle: str = "",
) -> alt.Chart:
    """Which of these differ from the reference, and by how much? Dots with intervals, one row of the table each.

    Parameters
    ----------
    table
        One row per `label`, drawn in the table's order; at most 200.
    label, estimate, low, high
        Columns: name of the row, its figure, ends of its interval (null: no interval, only the dot is drawn).
    n
        Column with the number of observations, printed at the right.
    told_apart
        Boolean column: does the figure differ from the reference? Rows that do not are hollow and grey.
    reference
        Where the line of no difference stands (null: none).
    log
        Log axis, as ratios need it; every value must then be above 0.

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, too many rows, values <= 0 on a log axis.

    Notes
    -----
    Does not show whether the rows differ from each other.
    """
    import altair as alt
    import polars as pl

    frame = chosen(table, "forest", texts=[label], numbers=[estimate, low, high, n], flags=[told_apart])
    at_most(frame, "forest", 200, "draw the rows that matter: table.head(40)")
    unique(frame, "forest", [label])
    if log:
        positive(frame, "forest", [estimate, low, high])
    drawn = frame.filter(pl.col(estimate).is_not_null())
    subtitle = sentences(
        subtitle, "hollow: not told apart" if told_apart else "", missing_note(frame.height - drawn.height)
    )
    x = alt.X(
        estimate,
        type="quantitative",
        title=label_of(estimate),
        scale=alt.Scale(type="log" if log else "linear", zero=False, nice=False, padding=12),
    )
    base = alt.Chart(drawn).encode(y=_rows(label), tooltip=_tooltip(drawn))
    solid = (
        alt.value(COLOURS["accent"])
        if told_apart is None
        else alt.condition(f"datum.{told_apart}", alt.value(COLOURS["accent"]), alt.value(COLOURS["baseline"]))
    )
    filled = (
        alt.value(COLOURS["accent"])
        if told_apart is None
        else alt.condition(f"datum.{told_apart}", alt.value(COLOURS["accent"]), alt.value("transparent"))
    )
    spans = (
        base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X(low, type="quantitative"), x2=alt.X2(high), color=solid)
    )
    dots = base.mark_point(size=70, filled=True, opacity=1, strokeWidth=2).encode(x=x, stroke=solid, fill=filled)
    layers = [spans, dots]
    if n:
        layers.append(
            base.mark_text(align="left", dx=10, clip=False).encode(
                x=alt.value("width"),
                text=alt.Text(n, type="quantitative", format=","),
                color=alt.value(COLOURS["baseline"]),
            )
        )
    if reference is not None:
        line = alt.Chart(pl.DataFrame({"reference": [float(reference)]})).mark_rule(
            strokeDash=[4, 3], strokeWidth=1.5, color=COLOURS["baseline"]
        )
        layers.insert(
            0,
            line.encode(
                x=alt.X("reference", type="quantitative"), tooltip=[alt.Tooltip("reference", type="quantitative")]
            ),
        )
    chart = alt.layer(*layers).add_params(alt.selection_interval(bind="scales", encodings=["x"]))
    subtitle = sentences(subtitle, "n at the right" if n else "")
    return _finish(chart, title, subtitle, frame, height=max(60, ROW_PX * drawn.height))


def ecdf(
    table: pl.DataFrame,
    *,
    title: str,
    value: str,
    group: str | None = None,
    quantiles: tuple[float, ...] = (0.5, 0.95, 0.99),
    slo: float | None = None,
    log: bool = False,
    subtitle: str = "",
) -> alt.Chart:
    """How are these values spread: which share stays at or below each value?

    Parameters
    ----------
    table
        One row per observation, any number; above 2,000 distinct values the curve keeps 2,000 exact steps.
    value, group
        Columns: the observed quantity; the variant that gets a line of its own (at most 8).
    quantiles
        Shares in (0, 1) that are marked on the curve: the smallest observation that at least this share does not
        exceed (inverse of the drawn function, no interpolation).
    slo
        A limit in the value's unit, drawn as a line.

    Raises
    ------
    InputError
        Columns missing or of another type, too many groups, values <= 0 on a log axis.

    Notes
    -----
    Does not show how sure the curve is, nor the order in time.
    """
    import altair as alt
    import polars as pl

    from workbench.thinning import LIMIT_POSITIONS, ecdf_steps

    frame = chosen(table, "ecdf", texts=[group], numbers=[value])
    if log:
        positive(frame, "ecdf", [value])
    known = frame.filter(pl.col(value).is_not_null())
    parts = (
        [((group or "all"), known)]
        if group is None
        else [(name, known.filter(pl.col(group) == name)) for name in first_appearance(known, group)]
    )
    if len(parts) > 8:
        raise InputError(
            "too many groups for the chart ecdf",
            found=len(parts),
            allowed="at most 8",
            do="draw the groups that matter",
        )
    positions = min(LIMIT_POSITIONS, 4_800 // max(1, len(parts)))
    key = group or "all"
    steps = {name: ecdf_steps(part.get_column(value), positions=positions) for name, part in parts}
    none = pl.DataFrame(schema={"value": pl.Float64, "share": pl.Float64, key: pl.String})
    curve = pl.concat([none, *(one.with_columns(pl.lit(name).alias(key)) for name, one in steps.items())]).rename(
        {"value": value}
    )
    # The marks are looked up on all steps, not on the kept ones.
    exact = {name: ecdf_steps(part.get_column(value), positions=max(10, part.height)) for name, part in parts}
    marks = pl.DataFrame(
        [
            {
                key: name,
                "quantile": f"p{100 * share:g}",
                value: one.filter(pl.col("share") >= share - 1e-12)["value"][0],
                "share": share,
            }
            for name, one in exact.items()
            for share in quantiles
        ],
        schema={key: pl.String, "quantile": pl.String, value: pl.Float64, "share": pl.Float64},
    ).with_columns(
        pl.struct("quantile", value)
        .map_elements(lambda row: f"{row['quantile']} {number(row[value])}", return_dtype=pl.String)
        .alias("text")
    )
    x = alt.X(
        value,
        type="quantitative",
        title=label_of(value),
        scale=alt.Scale(type="log" if log else "linear", zero=False, nice=False),
    )
    y = alt.Y(
        "share",
        type="quantitative",
        title="share at or below",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[0, 1.02], nice=False),
    )
    colour = _colour(curve, group)
    line = alt.Chart(curve).mark_line(interpolate="step-after", strokeWidth=2).encode(x=x, y=y, **colour)
    hover = (
        alt.Chart(curve)
        .mark_point(size=50, opacity=0, filled=True)
        .encode(x=x, y=y, tooltip=_tooltip(curve, {"share": ".1%"}, leave_out=() if group else (key,)), **colour)
    )
    dots = (
        alt.Chart(marks)
        .mark_point(size=60, filled=True, opacity=1)
        .encode(x=x, y=y, tooltip=_tooltip(marks, leave_out=("text",) if group else ("text", key)), **colour)
    )
    names = alt.Chart(marks).mark_text(align="left", dx=8, dy=9).encode(x=x, y=y, text=alt.Text("text", type="nominal"))
    layers = [line, hover, dots] + ([names] if len(parts) <= 2 else [])
    if slo is not None:
        layers += _limit_line(alt, slo, value, axis="x")
    counts = "n = " + ", ".join(f"{number(part.height)}" + (f" ({name})" if group else "") for name, part in parts)
    thinned = sum(one.height for one in exact.values()) > curve.height
    told = (
        f"{number(sum(one.height for one in exact.values()))} steps thinned to {number(curve.height)} exact ones"
        if thinned
        else ""
    )
    chart = alt.layer(*layers).add_params(alt.selection_interval(bind="scales", encodings=["x"]))
    subtitle = sentences(subtitle, counts, missing_note(frame.height - known.height), told)
    return _finish(chart, title, subtitle, marks.select(*([key] if group else []), "quantile", value), height=280)


def heatmap(
    table: pl.DataFrame, *, title: str, x: str, y: str, value: str, count: str | None = None, subtitle: str = ""
) -> alt.Chart:
    """How does the value change over two categories? Cells coloured by value, with their counts printed.

    Parameters
    ----------
    table
        One row per cell, at most 1,500 cells, 60 columns and 60 rows.
    x, y, value
        Columns: the two categories (drawn in the table's order), the quantity that colours the cell (null: no colour).
    count
        Column whose number is printed in the cell (null: the value is printed).

    Raises
    ------
    InputError
        Columns missing or of another type, a cell twice, too many cells.

    Notes
    -----
    Does not show how sure a cell is; read the count.
    """
    import altair as alt

    frame = chosen(table, "heatmap", texts=[x, y], numbers=[value, count])
    at_most(frame, "heatmap", 1_500, "group the categories before drawing")
    unique(frame, "heatmap", [x, y])
    for name in (x, y):
        if len(first_appearance(frame, name)) > 60:
            raise InputError(
                "too many categories for the chart heatmap",
                where=name,
                allowed="at most 60",
                do="group them before drawing",
            )
    across = alt.X(
        x, type="nominal", sort=None, title=label_of(x), axis=alt.Axis(labelAngle=0, labelLimit=90, orient="bottom")
    )
    if len(first_appearance(frame, x)) > 8:
        across = alt.X(x, type="nominal", sort=None, title=label_of(x), axis=alt.Axis(labelAngle=-40, labelLimit=110))
    down = alt.Y(y, type="nominal", sort=None, title=label_of(y))
    base = alt.Chart(frame).encode(x=across, y=down, tooltip=_tooltip(frame))
    legend = alt.Legend(title=label_of(value), gradientLength=180, gradientThickness=8)
    cells = base.mark_rect(cornerRadius=2, stroke=None).encode(
        color=alt.Color(value, type="quantitative", legend=legend)
    )
    printed = count or value
    # The figure must stand out from its own cell, in the light ramp and in the dark one.
    ink = alt.ExprRef(
        f"isValid(datum.{value}) ? (luminance(scale('color', datum.{value})) > 0.22 ? '#10151c' : '#ffffff') : '#808894'"
    )
    figures = base.mark_text(color=ink, fontSize=11).encode(
        text=alt.condition(
            f"isValid(datum.{printed})", alt.Text(printed, type="quantitative", format=".3~s"), alt.value("–")
        )
    )
    rows = len(first_appearance(frame, y))
    without = frame.get_column(value).null_count()
    told = sentences(
        subtitle, f"printed: {label_of(printed)}", f"{number(without)} cells without a value" if without else ""
    )
    return _finish(alt.layer(cells, figures), title, told, frame, height=max(80, 28 * rows))


def ladder(
    table: pl.DataFrame,
    *,
    title: str,
    level: str,
    value: str,
    low: str | None = None,
    high: str | None = None,
    n: str | None = None,
    variant: str | None = None,
    slo: float | None = None,
    subtitle: str = "",
) -> alt.Chart:
    """How does the value grow as the load is raised, and at which level does it pass the limit?

    Parameters
    ----------
    table
        One row per load level (and variant), at most 2,000.
    level, value
        Columns: the load that was set; the quantity, such as p95 latency.
    low, high
        Columns with the ends of the value's interval, drawn as bars (null: none at that level).
    n, variant
        Columns: number of observations (in the tooltip); what gets a line of its own.
    slo
        The limit in the value's unit, drawn as a line.

    Raises
    ------
    InputError
        Columns missing or of another type, two rows at one level, too many rows.

    Notes
    -----
    Does not show what happens between the measured levels: the line only joins them.
    """
    import altair as alt
    import polars as pl

    frame = chosen(table, "ladder", texts=[variant], numbers=[level, value, low, high, n])
    at_most(frame, "ladder", 2_000, "draw fewer levels or variants")
    unique(frame, "ladder", [name for name in (variant, level) if name])
    drawn = frame.filter(pl.col(level).is_not_null() & pl.col(value).is_not_null())
    x = alt.X(level, type="quantitative", title=label_of(level), scale=alt.Scale(zero=False, padding=14))
    y = alt.Y(value, type="quantitative", title=label_of(value), scale=alt.Scale(zero=True))
    colour = _colour(drawn, variant)
    base = alt.Chart(drawn).encode(x=x, tooltip=_tooltip(drawn), **colour)
    layers = [base.mark_line(strokeWidth=2).encode(y=y), base.mark_point(size=60, filled=True, opacity=1).encode(y=y)]
    if low and high:
        known = base.transform_filter(f"isValid(datum.{low}) && isValid(datum.{high})")
        layers.insert(
            0, known.mark_rule(strokeWidth=6, opacity=0.3).encode(y=alt.Y(low, type="quantitative"), y2=alt.Y2(high))
        )
    if slo is not None:
        layers += _limit_line(alt, slo, value, axis="y")
    chart = alt.layer(*layers).add_params(alt.selection_interval(bind="scales"))
    return _finish(chart, title, sentences(subtitle, missing_note(frame.height - drawn.height)), frame, height=280)


def bars(
    table: pl.DataFrame,
    *,
    title: str,
    label: str,
    value: str,
    category: str | None = None,
    top: int = 10,
    subtitle: str = "",
) -> alt.Chart:
    """Which are the largest? Ranked bars, with a slider for how many are shown.

    Parameters
    ----------
    table
        One row per `label`; the 100 largest values can be shown.
    label, value, category
        Columns: name of the row, the quantity (nulls are counted, not drawn), what gives the bar its colour.
    top
        How many bars are shown at first.

    Raises
    ------
    InputError
        Columns missing or of another type, labels twice, `top` below 1.

    Notes
    -----
    Does not show how sure the figures are: neighbours in rank may not differ.
    """
    import altair as alt
    import polars as pl

    frame = chosen(table, "bars", texts=[label, category], numbers=[value])
    unique(frame, "bars", [label])
    if top < 1:
        raise InputError("top must be 1 or more", where="chart bars", found=top)
    known = frame.filter(pl.col(value).is_not_null()).sort(value, descending=True, maintain_order=True)
    drawn = known.head(100).with_row_index("rank", offset=1)
    many = max(1, drawn.height)
    shown = alt.param(value=min(top, many), bind=alt.binding_range(min=1, max=many, step=1, name="Show the top "))
    base = alt.Chart(drawn).transform_filter(alt.datum.rank <= shown).encode(y=_rows(label), tooltip=_tooltip(drawn))
    x = alt.X(value, type="quantitative", title=label_of(value), axis=alt.Axis(format="~s"))
    colour = _colour(drawn, category)
    bar = base.mark_bar(cornerRadiusEnd=2, height={"band": 0.72}).encode(x=x, **colour)
    figure = base.mark_text(align="left", dx=5).encode(x=x, text=alt.Text(value, type="quantitative", format=".3~s"))
    rest = known.height - drawn.height
    told = sentences(
        subtitle,
        f"{number(known.height)} in all",
        f"{number(rest)} below the largest 100 not drawn" if rest else "",
        missing_note(frame.height - known.height),
    )
    chart = (
        alt.layer(bar, figure).add_params(shown)
        if many > 1
        else alt.layer(bar, figure).add_params(alt.param(name=shown.name, value=1))
    )
    return _finish(chart, title, told, drawn.drop("rank"), height=alt.Step(ROW_PX))


def _rows(label: str) -> Any:
    import altair as alt

    return alt.Y(label, type="nominal", sort=None, title=None, axis=alt.Axis(grid=False, labelPadding=8))


def _colour(frame: pl.DataFrame, column: str | None) -> dict[str, Any]:
    """The colour encoding of a category, the same colour for the same meaning everywhere; none without a column."""
    import altair as alt

    if column is None:
        return {"color": alt.value(COLOURS["accent"])}
    names = first_appearance(frame, column)
    scale = alt.Scale(domain=names, range=category_colours(names))
    return {"color": alt.Color(column, type="nominal", title=None, scale=scale)}


def _tooltip(
    frame: pl.DataFrame, formats: dict[str, str] | None = None, *, leave_out: tuple[str, ...] = ()
) -> list[Any]:
    import altair as alt

    tips = []
    for name, dtype in frame.schema.items():
        if name in leave_out:
            continue
        text = {"format": (formats or {}).get(name, ",.4~g" if dtype.is_float() else ",")} if dtype.is_numeric() else {}
        tips.append(
            alt.Tooltip(name, type="quantitative" if dtype.is_numeric() else "nominal", title=label_of(name), **text)
        )
    return tips


def _limit_line(alt: Any, slo: float, value: str, *, axis: str) -> list[Any]:
    import polars as pl

    frame = pl.DataFrame({value: [float(slo)], "limit": [f"SLO {number(float(slo))}"]})
    place = alt.X(value, type="quantitative") if axis == "x" else alt.Y(value, type="quantitative")
    base = alt.Chart(frame).encode(**{axis: place}, tooltip=_tooltip(frame))
    corner = {"y": alt.value(0)} if axis == "x" else {"x": alt.value("width")}
    text = base.mark_text(
        color=COLOURS["failure"], align="right", dx=-5 if axis == "x" else 0, dy=6 if axis == "x" else -7
    )
    return [
        base.mark_rule(color=COLOURS["failure"], strokeDash=[6, 3], strokeWidth=1.5),
        text.encode(text=alt.Text("limit", type="nominal"), **corner),
    ]


def _finish(chart: Any, title: str, subtitle: str, frame: pl.DataFrame, *, height: Any) -> Any:
    import altair as alt

    text = table_text(title, frame, subtitle=subtitle)
    heading = alt.TitleParams(text=title, subtitle=subtitle) if subtitle else alt.TitleParams(text=title)
    return chart.properties(title=heading, description=text, width=WIDTH_PX, height=height)
