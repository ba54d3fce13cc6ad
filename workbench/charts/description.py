"""Text description of a chart, computed from its data: for screen readers, mail, terminals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.formats import format_label, format_number

if TYPE_CHECKING:
    import polars as pl

TOP_ROWS = 5


def describe_table(
    title: str, frame: pl.DataFrame, *, subtitle: str = "", labels: Mapping[str, str] | None = None
) -> str:
    """A chart's title, its number of rows, the range of each quantity, and the first rows.

    `frame`: The rows that are drawn; numeric columns are told as ranges, nulls are counted.
    `labels`: Column name to words with unit; a column that is not named here gets the words of its name.
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
    """Title and subtitle of a spec as plain lines, "" where there is none."""
    title = spec.get("title") or ""
    if not isinstance(title, Mapping):
        return _join_title_lines(title), ""
    return _join_title_lines(title.get("text")), _join_title_lines(title.get("subtitle"))


def list_datasets(spec: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """All rows that a spec carries, one list a data set."""
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
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not numbers:
        return None
    missing = sum(value is None for value in values)
    low, high = format_number(min(numbers)), format_number(max(numbers))
    span = low if low == high else f"{low} to {high}"
    return f"{label}: {span}" + (f", {format_number(missing)} missing" if missing else "") + "."
