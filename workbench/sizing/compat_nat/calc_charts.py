"""Charts of the calculator as Vega-Lite specifications and PNG files.

The specifications are plain dicts, because importing Altair would take longer than the rest of `workbench sizing calc`;
`chart_from_spec` converts one to an Altair chart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.charts import theme
from workbench.core.files import replace_atomically
from workbench.sizing.compat_nat.calculation import METRIC_LABELS, CalcMetric, Calculation

if TYPE_CHECKING:
    import altair as alt

SIMPLE_CHART = "concurrency_vs_p95_simple"
ANALYSIS_CHART = "concurrency_vs_p95_analysis"
COLOURS: dict[CalcMetric, str] = {"llm_latency": theme.CATEGORIES[0], "wf_runtime": theme.CATEGORIES[2]}
LIMIT_COLOUR = theme.COLOURS["failure"]
_SHAPES = ["circle", "cross", "stroke"]
PICTURE_SCALE = 2.0
WIDTH_PX, HEIGHT_PX = 560, 340
Spec = dict[str, Any]
Row = dict[str, Any]


def build_chart_specs(result: Calculation) -> dict[str, Spec]:
    """Build the charts that have data, by the file names of the toolkit's pictures.

    Returns: `concurrency_vs_p95_simple` if any level is usable; `concurrency_vs_p95_analysis` with a panel per metric
    if there is a fitted line.
    """
    specs = {}
    if result.levels_in_fit:
        rows = [
            row
            for metric in METRIC_LABELS
            for row in _level_rows(result, metric)
            if row["p95_s"] or metric == "wf_runtime"
        ]
        x, y = _axis_encodings(rows)
        counts = f"{len(result.levels_in_fit)} levels"
        counts += f", {len(result.left_out)} more not drawn (see the table)" if result.left_out else ""
        names = [f"p95 {METRIC_LABELS[metric]}" for metric in METRIC_LABELS]
        base: Spec = {
            "encoding": {
                "x": x,
                "y": y,
                "color": _colour_encoding(names, [COLOURS[metric] for metric in METRIC_LABELS]),
            }
        }
        tips = [
            {"field": "series", "type": "nominal", "title": "metric"},
            {"field": "concurrency", "type": "quantitative"},
            {"field": "p95_s", "type": "quantitative", "title": "p95 (s)", "format": ",.4~g"},
        ]
        shapes: Spec = {"field": "series", "type": "nominal", "scale": {"domain": names, "range": ["square", "circle"]}}
        spec = {
            **base,
            "data": {"values": rows},
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 2}},
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": {"shape": {**shapes, "title": None}, "tooltip": tips},
                },
            ],
            "title": {"text": "p95 over the load", "subtitle": counts},
            "width": WIDTH_PX,
            "height": HEIGHT_PX,
            "description": _describe_charts(result),
        }
        specs[SIMPLE_CHART] = _add_frame(spec)
    if panels := [
        _build_panel_spec(result, metric) for metric in METRIC_LABELS if result.fits[metric].line is not None
    ]:
        # Each panel has the colour of its metric.
        apart = {"resolve": {"scale": {"color": "independent"}}}
        specs[ANALYSIS_CHART] = _add_frame(
            {"hconcat": panels, "spacing": 40, "description": _describe_charts(result), **apart}
        )
    return specs


def chart_from_spec(spec: Spec) -> alt.TopLevelMixin:
    """Convert a specification to an Altair chart."""
    import altair as alt

    bare = {name: value for name, value in spec.items() if name not in ("config", "padding", "background")}
    kinds = {"hconcat": alt.HConcatChart, "layer": alt.LayerChart}
    chart: alt.TopLevelMixin = next(kind for name, kind in kinds.items() if name in bare).from_dict(bare)
    return chart


def write_pictures(result: Calculation, folder: Path) -> list[Path]:
    """Write a PNG file per chart and return the paths."""
    import vl_convert

    paths = []
    version = vl_convert.get_vegalite_versions()[-1]
    for name, spec in build_chart_specs(result).items():
        picture = vl_convert.vegalite_to_png(spec, vl_version=version, scale=PICTURE_SCALE)
        path = folder / f"{name}.png"
        with replace_atomically(path) as temporary:
            temporary.write_bytes(picture)
        paths.append(path)
    return paths


def _build_panel_spec(result: Calculation, metric: CalcMetric) -> Spec:
    """Panel of one metric: points, outliers as crosses, the fitted line and the limit."""
    line = result.fits[metric].line
    assert line is not None
    rows = _level_rows(result, metric)
    loads = [row["concurrency"] for row in rows]
    ends = [{"concurrency": load, "p95_s": line.at(load)} for load in (min(loads), max(loads))]
    names = ["level", "outlier, left out", "line"]
    x, y = _axis_encodings([*rows, *ends], limit_s=result.goal.limit_s(metric))
    # Crosses have direct labels, because the panels share one legend.
    colour = {**_colour_encoding(names, [COLOURS[metric], LIMIT_COLOUR, theme.COLOURS["neutral"]]), "legend": None}
    shape = {"field": "kind", "type": "nominal", "legend": None, "scale": {"domain": names, "range": _SHAPES}}
    tips = [
        {"field": "concurrency", "type": "quantitative"},
        {"field": "p95_s", "type": "quantitative", "title": "p95 (s)", "format": ",.4~g"},
        {"field": "kind", "type": "nominal"},
    ]
    layers: list[Spec] = [
        {
            "data": {"values": [{**end, "kind": "line"} for end in ends]},
            "mark": {"type": "line", "strokeDash": [6, 4], "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tips},
        },
        {
            "data": {"values": [row for row in rows if row["kind"] != "level"]},
            "mark": {"type": "text", "color": LIMIT_COLOUR, "align": "right", "dx": -9},
            "encoding": {"x": x, "y": y, "text": {"value": "outlier, left out"}},
        },
    ]
    title = f"p95 {METRIC_LABELS[metric]}: no target"
    if (answer := next((answer for answer in result.answers if answer.metric == metric), None)) is not None:
        title = f"p95 {METRIC_LABELS[metric]} ≤ {answer.limit_s:g} s"
        gpus = None if answer.gpus is None else f"{answer.gpus:.1f} GPUs"
        title += f" for {result.goal.target_users:,} users: {gpus}" if gpus else ": no estimate"
    values, out = [row["p95_s"] for row in rows], [str(row["concurrency"]) for row in rows if row["kind"] != "level"]
    span = f"{len(rows)} levels, {min(values):.4g} to {max(values):.4g} s"
    span += f"; outliers at {', '.join(out)}" if out else ""
    equation = f"slope {line.slope:.4g} s per user, intercept {line.intercept:.4g} s, R² {line.r_squared:.3f}"
    return {
        "layer": layers + _limit_layers(result.goal.limit_s(metric), y),
        "title": {"text": title, "subtitle": [equation, span]},
        "width": WIDTH_PX - 80,
        "height": HEIGHT_PX,
    }


def _limit_layers(limit_s: float, y: Spec) -> list[Spec]:
    """Dashed line and label at the target latency; empty for 0, which means no target."""
    if not limit_s:
        return []
    at = {"data": {"values": [{"p95_s": limit_s, "words": f"target {limit_s:g} s"}]}}
    rule = {
        **at,
        "mark": {"type": "rule", "color": LIMIT_COLOUR, "strokeDash": [2, 3], "strokeWidth": 2},
        "encoding": {"y": y},
    }
    words = {
        **at,
        "mark": {"type": "text", "color": LIMIT_COLOUR, "align": "left", "dx": 6, "dy": -9},
        "encoding": {"x": {"value": 0}, "y": y, "text": {"field": "words", "type": "nominal"}},
    }
    return [rule, words]


def _level_rows(result: Calculation, metric: CalcMetric) -> list[Row]:
    """Rows of the chart for a metric, one for each level: concurrency, p95_s, kind (level or outlier), series."""
    line = result.fits[metric].line
    removed = line.outliers_removed if line is not None else ()
    rows = []
    for level in sorted(result.levels_in_fit):
        metrics = result.output.calc_data[level].sizing_metrics
        p95_s = metrics.llm_latency_p95 if metric == "llm_latency" else metrics.workflow_runtime_p95
        kind = "outlier, left out" if level in removed else "level"
        rows.append({"concurrency": level, "p95_s": p95_s, "kind": kind, "series": f"p95 {METRIC_LABELS[metric]}"})
    return rows


def _axis_encodings(rows: Iterable[Row], limit_s: float = 0.0) -> tuple[Spec, Spec]:
    """Axes of concurrency and p95 in seconds; `rows` need concurrency and p95_s, `limit_s` is to be inside."""
    rows = list(rows)
    loads = sorted({row["concurrency"] for row in rows})
    # Axis ticks are the measured levels; more than a dozen would overlap.
    ticks = {"values": loads} if len(loads) <= 12 else {"tickCount": 8}
    x = {
        "field": "concurrency",
        "type": "quantitative",
        "title": "concurrency (runs in flight)",
        "scale": {"zero": False, "nice": False, "padding": 16},
        "axis": {**ticks, "labelOverlap": "greedy"},
    }
    highest = max([limit_s, *(row["p95_s"] for row in rows)])
    scale = {"zero": True, "nice": False, **({"domainMax": 1.06 * highest} if highest > 0 else {})}
    return x, {"field": "p95_s", "type": "quantitative", "title": "p95 (s)", "scale": scale}


def _colour_encoding(names: list[str], colours: list[str]) -> Spec:
    field = "kind" if "line" in names else "series"
    return {"field": field, "type": "nominal", "title": None, "scale": {"domain": names, "range": colours}}


def _describe_charts(result: Calculation) -> str:
    """Text alternative of the charts: each answer, or the reason why there is none."""
    parts = [f"p95 over concurrency at {len(result.levels_in_fit)} levels."]
    for answer in result.answers:
        estimate = f"{answer.gpus:.1f} GPUs" if answer.gpus is not None else f"no estimate, {answer.reason}"
        parts.append(f"{METRIC_LABELS[answer.metric]} at most {answer.limit_s:g} s: {estimate}.")
    return " ".join(parts)


def _add_frame(spec: Spec) -> Spec:
    return {**spec, "config": theme.build_vega_config(), "padding": 12, "background": "#ffffff"}
