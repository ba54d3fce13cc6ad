"""Rows of a chart: select and check columns, downsample large tables, word the notes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.errors import InputError
from workbench.core.formats import NULL, format_label, format_number

if TYPE_CHECKING:
    import polars as pl

MAX_CHART_ROWS = 5_000
"""No chart of this project carries more rows than this: beyond it pages turn slow and marks hide one another."""
MAX_POSITIONS = 2_000
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
TOP_ROWS = 5


def downsample_ecdf(values: pl.Series, *, positions: int = MAX_POSITIONS) -> pl.DataFrame:
    """The steps of the empirical distribution function, thinned to at most `positions` of them.

    Every kept step is exact; first, last and the outermost steps always stay, since tails are what is read.

    `values`: Observations; nulls are left out.

    Returns: `value` (ascending, one row per kept distinct value), `share` of all observations at or below it, in (0,
    1].

    >>> import polars as pl
    >>> downsample_ecdf(pl.Series([3.0, 1.0, 1.0, 2.0])).rows()
    [(1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]
    """
    import polars as pl

    observations = values.drop_nulls().cast(pl.Float64)
    steps = (
        pl.DataFrame({"value": observations})
        .group_by("value")
        .len()
        .sort("value")
        .select("value", share=pl.col("len").cum_sum() / max(1, observations.len()))
    )
    if steps.height <= positions:
        return steps
    tail = positions // 10
    inner = positions - 2 * tail
    last = steps.height - 1
    even = {tail + round(index * (last - 2 * tail) / (inner - 1)) for index in range(inner)}
    row_numbers = sorted(set(range(tail)) | even | set(range(last - tail + 1, last + 1)))
    return steps[row_numbers]


def merge_intervals(
    frame: pl.DataFrame, start: str, end: str, by: list[str], *, limit: int
) -> tuple[pl.DataFrame, str]:
    """Intervals of one lane and colour that touch, merged until at most `limit` are left.

    `frame`: One row per interval; `start` <= `end`, both without nulls.

    Returns: The columns of `by`, `start`, `end` and `intervals` (how many were merged), and the sentence that tells
    what was done ("" when nothing was).

    >>> import polars as pl
    >>> tasks = pl.DataFrame({"begin": [0.0, 1.0, 5.0], "end": [1.0, 2.0, 6.0], "core": ["a", "a", "a"]})
    >>> merged, note = merge_intervals(tasks, "begin", "end", ["core"], limit=2)
    >>> merged.sort("begin").rows(), note
    ([('a', 0.0, 2.0, 2), ('a', 5.0, 6.0, 1)], '3 intervals drawn as 2: those that touch are merged')
    """
    import polars as pl

    if frame.height <= limit:
        return frame.select(*by, start, end, intervals=pl.lit(1)), ""
    groups = frame.select(by).n_unique() if by else 1
    if groups > limit:
        raise InputError(
            "too many lanes to draw",
            found=f"{groups} lanes and colours",
            allowed=f"at most {limit}",
            do="draw the lanes that matter, or group them",
        )
    span = float(frame.get_column(end).max()) - float(frame.get_column(start).min())  # type: ignore[arg-type]
    gap = 0.0
    while (merged := _merge_touching(frame, start, end, by, gap)).height > limit:
        gap = gap * 2 if gap else span / 4_000
    note = f"{format_number(frame.height)} intervals drawn as {format_number(merged.height)}: "
    return merged, note + (
        "those that touch are merged" if not gap else f"gaps up to {format_number(gap)} s are closed"
    )


def _merge_touching(frame: pl.DataFrame, start: str, end: str, by: list[str], gap: float) -> pl.DataFrame:
    """Merge the intervals of a group that overlap or are at most `gap` apart.

    Returns by, start, end, intervals (count).

    >>> import polars as pl
    >>> _merge_touching(pl.DataFrame({"a": [0, 2, 9], "b": [2, 4, 10]}), "a", "b", [], 0).rows()
    [(0, 4, 2), (9, 10, 1)]
    """
    import polars as pl

    def within_groups(expression: pl.Expr) -> pl.Expr:
        return expression.over(by) if by else expression

    ordered = frame.select(*by, start, end).sort(*by, start, end)
    reached = within_groups(pl.col(end).cum_max().shift(1))
    opens = (pl.col(start) > reached + gap).fill_null(value=True)
    return (
        ordered.with_columns(opens.alias("_opens"))
        .with_columns(within_groups(pl.col("_opens").cum_sum()).alias("_block"))
        .group_by(*by, "_block", maintain_order=True)
        .agg(pl.col(start).min(), pl.col(end).max(), pl.len().cast(pl.Int32).alias("intervals"))
        .drop("_block")
    )


def count_open_intervals(
    frame: pl.DataFrame, start: str, end: str, *, positions: int = 1_000
) -> tuple[pl.DataFrame, str]:
    """How many intervals are open at each moment, as steps; the peak of each bin where there are too many steps.

    Returns: `at` (same unit as `start`), `open`; and the sentence that tells of binning ("" when exact).

    >>> import polars as pl
    >>> frame = pl.DataFrame({"start_s": [0.0, 1.0], "end_s": [2.0, 3.0]})
    >>> steps, note = count_open_intervals(frame, "start_s", "end_s")
    >>> steps.rows(), note
    ([(0.0, 1), (1.0, 2), (2.0, 1), (3.0, 0)], '')
    """
    import polars as pl

    starts = frame.select(at=pl.col(start).cast(pl.Float64), change=pl.lit(1))
    ends = frame.select(at=pl.col(end).cast(pl.Float64), change=pl.lit(-1))
    steps = (
        pl.concat([starts, ends])
        .group_by("at")
        .agg(pl.col("change").sum())
        .sort("at")
        .select("at", open=pl.col("change").cum_sum())
    )
    if steps.height <= positions:
        return steps, ""
    low, high = steps["at"][0], steps["at"][-1]
    width = (high - low) / (positions - 1)
    bins = pl.DataFrame({"_bin": pl.int_range(positions, eager=True)})
    peaks = steps.group_by(((pl.col("at") - low) / width).floor().cast(pl.Int64).alias("_bin")).agg(
        pl.col("open").max().alias("peak"), pl.col("open").last().alias("left")
    )
    # What a bin leaves open is still open in the bins after it in which nothing happens.
    carried = bins.join(peaks, on="_bin", how="left").with_columns(
        pl.col("left").forward_fill().shift(1).alias("before")
    )
    binned = carried.select(at=low + pl.col("_bin") * width, open=pl.max_horizontal("peak", "before").fill_null(0))
    return binned, f"overview: peak in bins of {format_number(width)} s"


def assign_sub_rows(starts: list[float], ends: list[float]) -> list[int]:
    """The row of each interval so that none covers another, as few rows as there are open at once.

    >>> assign_sub_rows([0, 1, 2], [2, 3, 4])
    [0, 1, 0]
    """
    import heapq

    order = sorted(range(len(starts)), key=lambda index: (starts[index], ends[index]))
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    rows = [0] * len(starts)
    for index in order:
        while busy and busy[0][0] <= starts[index]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        row = heapq.heappop(free) if free else len(busy)
        rows[index] = row
        heapq.heappush(busy, (ends[index], row))
    return rows


def select_columns(
    table: pl.DataFrame,
    chart_name: str,
    *,
    numbers: Sequence[str | None] = (),
    texts: Sequence[str | None] = (),
    flags: Sequence[str | None] = (),
    details: Sequence[str] = (),
) -> pl.DataFrame:
    """The named columns of `table`, with NaN as null and a dash for missing text; null names are skipped.

    `numbers`, `texts`, `flags`: Columns that must be numeric, that are written as text, that must be boolean.
    `details`: Columns that are taken as numbers where they are numeric, else as text.

    >>> import polars as pl
    >>> table = pl.DataFrame({"query": ["q1", None], "seconds": [1.0, float("nan")], "other": [1, 2]})
    >>> select_columns(table, "times", numbers=["seconds"], texts=["query"]).rows()
    [('q1', 1.0), ('–', None)]
    """
    import polars as pl

    if not isinstance(table, pl.DataFrame):
        raise InputError(
            "not a data frame",
            where=chart_name,
            found=type(table).__name__,
            allowed="a frame of polars or pandas, or an Arrow table",
        )
    numeric = [name for name in details if name in table.columns and table.schema[name].is_numeric()]
    text_names = [name for name in (*texts, *(name for name in details if name not in numeric)) if name]
    number_names = [name for name in (*numbers, *numeric) if name]
    flag_names = [name for name in flags if name]
    frame = _select_by_name(table, chart_name, [*text_names, *number_names, *flag_names])
    for name, dtype in frame.schema.items():
        where = f"chart {chart_name}, column {name}"
        if name in number_names and not dtype.is_numeric():
            allowed = "numbers; durations in the unit of the column's name"
            raise InputError("column of another type", where=where, found=dtype, allowed=allowed)
        if name in flag_names and dtype != pl.Boolean:
            raise InputError("column of another type", where=where, found=dtype, allowed="true, false and null")
        if name in number_names and dtype.is_float() and frame.get_column(name).is_infinite().any():
            raise InputError("infinite values", where=where, do="make them null and count them")
    frame = frame.with_columns(pl.col(name).cast(pl.String).fill_null(NULL) for name in text_names)
    return frame.with_columns(pl.col(name).fill_nan(None) for name in frame.columns if frame.schema[name].is_float())


def _select_by_name(table: pl.DataFrame, chart_name: str, names: list[str]) -> pl.DataFrame:
    """Select the named columns of a table; refuse one that is missing or whose name a chart cannot use."""
    where = f"chart {chart_name}"
    if missing := [name for name in names if name not in table.columns]:
        raise InputError("column(s) missing: " + ", ".join(missing), where=where, found=table.columns)
    if odd := [name for name in names if not _PLAIN_NAME.fullmatch(name)]:
        allowed = "letters, digits and _"
        raise InputError("column name that a chart cannot use", where=where, found=odd, allowed=allowed, do="rename it")
    return table.select(list(dict.fromkeys(names)))


def check_row_count(frame: pl.DataFrame, chart_name: str, limit: int, advice: str) -> pl.DataFrame:
    """Return the frame, but refuse more rows than `limit`, too many to tell apart; `advice`: what to do then.

    >>> import polars as pl
    >>> check_row_count(pl.DataFrame({"x": [1, 2]}), "bars", 10, "draw fewer").height
    2
    """
    if frame.height > min(limit, MAX_CHART_ROWS):
        raise InputError(
            f"too many rows for the chart {chart_name}",
            found=format_number(frame.height),
            allowed=f"at most {format_number(limit)}",
            do=advice,
        )
    return frame


def check_positive(frame: pl.DataFrame, chart_name: str, columns: Sequence[str | None]) -> None:
    """Refuse values of 0 and below, which a log axis cannot show; null columns are skipped.

    >>> import polars as pl
    >>> check_positive(pl.DataFrame({"ratio": [0.5, 2.0]}), "forest", ["ratio", None])
    """
    for name in filter(None, columns):
        low = frame.get_column(name).min()
        if isinstance(low, int | float) and not math.isnan(low) and low <= 0:
            raise InputError(
                "a log axis needs values above 0",
                where=f"chart {chart_name}, column {name}",
                found=format_number(low),
                do="pass log=False",
            )


def check_unique(frame: pl.DataFrame, chart_name: str, columns: list[str]) -> None:
    """Refuse two rows with equal values in `columns`, which would be drawn over each other.

    >>> import polars as pl
    >>> check_unique(pl.DataFrame({"query": ["q1", "q2"]}), "bars", ["query"])
    """
    twice = frame.select(columns).filter(frame.select(columns).is_duplicated())
    if twice.height:
        place = ", ".join(str(value) for value in twice.row(0))
        raise InputError(
            "two rows in one place",
            where=f"chart {chart_name}, column(s) {', '.join(columns)}",
            found=place,
            do="one row for each, please",
        )


def list_categories(frame: pl.DataFrame, column: str) -> list[str]:
    """The categories of a column in the order of the table.

    >>> import polars as pl
    >>> list_categories(pl.DataFrame({"side": ["new", None, "old", "new"]}), "side")
    ['new', 'old']
    """
    return [value for value in frame.get_column(column).unique(maintain_order=True).to_list() if value is not None]


def join_sentences(*parts: str) -> str:
    """Parts that say something, joined to one line.

    >>> join_sentences("n = 5", "", "2 missing")
    'n = 5 · 2 missing'
    """
    return " · ".join(part for part in parts if part)


def format_missing_note(count: int, noun: str = "row") -> str:
    """Note on the number of rows that have no value; "" for 0.

    >>> format_missing_note(3), format_missing_note(0)
    ('3 rows without a value not drawn', '')
    """
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'} without a value not drawn" if count else ""


def describe_table(
    title: str, frame: pl.DataFrame, *, subtitle: str = "", labels: Mapping[str, str] | None = None
) -> str:
    """Describe a chart in text: its title, number of rows, the range of each quantity, and the first rows.

    `frame`: The rows that are drawn; numeric columns are told as ranges, nulls are counted.
    `labels`: Column name to words with unit; a column that is not named here gets the words of its name.

    >>> import polars as pl
    >>> print(describe_table("Waits", pl.DataFrame({"query": ["q1", "q2"], "wall_s": [1.5, None]})))
    Waits.
    2 rows drawn.
    wall (s): 1.5, 1 missing.
    Rows:
    query q1; wall (s) 1.5
    query q2; wall (s) –
    """
    rows = frame.head(TOP_ROWS).to_dicts()
    return _format_description(
        title,
        subtitle,
        frame.height,
        {name: frame.get_column(name).to_list() for name in frame.columns},
        rows,
        labels or {},
    )


def describe_spec(spec: Mapping[str, Any]) -> str:
    """The text alternative of any Vega-Lite spec: its own description, else one computed from its data."""
    description = next((view["description"] for view in _iterate_views(spec) if view.get("description")), None)
    if description:
        return str(description)
    title, subtitle = extract_title(spec)
    rows = max(list_datasets(spec), key=len, default=[])
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    return _format_description(title or "Chart without a title", subtitle, len(rows), columns, rows[:TOP_ROWS], {})


def extract_title(spec: Mapping[str, Any]) -> tuple[str, str]:
    """Title and subtitle of a spec as plain lines, "" where there is none.

    >>> extract_title({"title": {"text": "Waits", "subtitle": ["by side"]}})
    ('Waits', 'by side')
    """
    title = spec.get("title") or ""
    if not isinstance(title, Mapping):
        return _join_title_lines(title), ""
    return _join_title_lines(title.get("text")), _join_title_lines(title.get("subtitle"))


def list_datasets(spec: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Return all rows that a spec carries, as one list per data set."""
    named = [rows for rows in (spec.get("datasets") or {}).values() if isinstance(rows, list)]
    inline = [
        view["data"]["values"]
        for view in _iterate_views(spec)
        if isinstance(view.get("data"), Mapping) and isinstance(view["data"].get("values"), list)
    ]
    return [[row if isinstance(row, dict) else {"value": row} for row in rows] for rows in named + inline]


def _iterate_views(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec
    for key in ("layer", "hconcat", "vconcat", "concat"):
        for child in spec.get(key) or []:
            yield from _iterate_views(child)
    if isinstance(spec.get("spec"), Mapping):
        yield from _iterate_views(spec["spec"])


def _join_title_lines(text: object) -> str:
    return " ".join(str(part) for part in text) if isinstance(text, list) else str(text or "")


def _format_description(
    title: str,
    subtitle: str,
    count: int,
    columns: Mapping[str, Sequence[Any]],
    rows: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
) -> str:
    """Text description of a chart: its titles, the range of each column, and its first rows.

    `columns`: Values by column. `labels`: Texts by column, where they differ from the column's own label.
    """
    lines = [f"{title.rstrip('.')}." if title and title[-1] not in ".?!" else title]
    lines += [subtitle] if subtitle else []
    lines += [f"{format_number(count)} row{'' if count == 1 else 's'} drawn."]
    lines += [
        line
        for name, values in columns.items()
        if (line := _format_range(labels.get(name) or format_label(name), values))
    ]
    if rows:
        lines += [("First rows:" if count > len(rows) else "Rows:")]
        lines += [
            "; ".join(f"{labels.get(name) or format_label(name)} {format_number(value)}" for name, value in row.items())
            for row in rows
        ]
    return "\n".join(lines)


def _format_range(label: str, values: Sequence[Any]) -> str | None:
    """Line with the range of a column's numbers and the count of missing ones; null if it has no number.

    >>> _format_range("time (s)", [1.5, None, 4])
    'time (s): 1.5 to 4, 1 missing.'
    """
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not numbers:
        return None
    missing = sum(value is None for value in values)
    low, high = format_number(min(numbers)), format_number(max(numbers))
    span = low if low == high else f"{low} to {high}"
    return f"{label}: {span}" + (f", {format_number(missing)} missing" if missing else "") + "."
