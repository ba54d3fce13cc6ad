"""Plots and times.csv of Run:ai's plotter, from its files or from a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from workbench.charts import theme
from workbench.core.errors import ConfigError, InputError, refuse_os_errors
from workbench.core.files import replace_atomically
from workbench.scaletest.compat_runai import runai_files
from workbench.scaletest.compat_runai.delta_chain import STEPS, US_PER_S, ChainStep, build_deltas
from workbench.scaletest.compat_runai.runai_files import build_view

if TYPE_CHECKING:
    import altair as alt

Plot = Literal["general", "detailed"]
PLOTS: tuple[Plot, ...] = ("general", "detailed")
MAX_POINTS = 1000
_MAX_BINS = 40
_WIDTH_PX, _HEIGHT_PX, _SIDE_PX = 1000, 220, 380
_SCALE = 1.5
_COLUMNS = {"x": pl.Float64, "delta_s": pl.Float64}
_SUBTITLE = "both ends of a time are cut to whole seconds: each value is true to within 1 s"


def select_jobs(
    jobs: pl.DataFrame, *, skip_errors: bool = True, head: int | None = None, tail: int | None = None
) -> Any:
    """Select the workloads to draw, by time of submission: the first `head` of them, and of those the last `tail`.

    `jobs`: Table `upstream_jobs`. `skip_errors`: Leave out those that were not kept.

    >>> jobs = pl.DataFrame({"row": [0, 1, 2], "kept": [True, False, True], "submitted_at_us": [30, 20, 10]})
    >>> select_jobs(jobs)["row"].to_list(), select_jobs(jobs, skip_errors=False, head=2)["row"].to_list()
    ([2, 0], [2, 1])
    """
    for name, count in (("--head", head), ("--tail", tail)):
        if count is not None and count < 1:
            raise ConfigError("not a number of workloads", where=name, found=count, allowed="1 or more")
    selection = (jobs.filter("kept") if skip_errors else jobs).sort("submitted_at_us", "row")
    selection = selection if head is None else selection.head(head)
    return selection if tail is None else selection.tail(tail)


def check_plot(plot: Plot) -> None:
    """Refuse a plot that there is not."""
    if plot not in PLOTS:
        raise ConfigError("no such plot", where="--plot", found=str(plot)[:40], allowed=PLOTS)


def chart_plot(jobs: pl.DataFrame, plot: Plot) -> alt.VConcatChart:
    """The plot of these workloads, in the order given.

    `jobs`: Table `upstream_jobs`.
    """
    import altair as alt

    check_plot(plot)
    if not jobs.height:
        raise InputError(
            "nothing to draw", where="submitted.json, sampled.json", found="no workload in both that counts"
        )
    steps = [step for step in STEPS if step.plots == plot]
    long = build_deltas(jobs).select("row", "step", pl.col("delta_s").cast(pl.Float64))
    rows: list[Any] = []
    for step in steps:
        values = jobs.select("row", "submitted_at_us").join(
            long.filter(pl.col("step") == step.name), on="row", how="left", maintain_order="left"
        )
        # What was never measured is not drawn; the decision always is.
        if values["delta_s"].null_count() < values.height:
            rows.append(_chart_general(step, values) if plot == "general" else _chart_deltas_and_spread(step, values))
    title = alt.TitleParams(f"Total number of workloads: {jobs.height:,}", subtitle=_SUBTITLE, anchor="start")
    chart: alt.VConcatChart = alt.vconcat(*rows, spacing=18, title=title)
    return chart


def render_png(chart: alt.VConcatChart) -> bytes:
    """The picture of a plot."""
    import vl_convert

    spec = chart.to_dict() | {"config": theme.build_vega_config(), "padding": 12, "background": "#ffffff"}
    picture: bytes = vl_convert.vegalite_to_png(spec, vl_version=vl_convert.get_vegalite_versions()[-1], scale=_SCALE)
    return picture


def format_heading(step: ChainStep, values: pl.Series) -> str:
    """Format the heading of a plot row: the mean as the old tool has it, p50 and p95 as observed values."""
    seconds = values.drop_nulls().to_numpy()
    p50, p95 = (float(np.quantile(seconds, q, method="inverted_cdf")) for q in (0.5, 0.95))
    summary = f"average: {seconds.mean():.2f} seconds, p50 {p50:.0f}, p95 {p95:.0f}"
    if step.plots == "general":
        return f"{step.name} Time from {step.reference} ({summary})"
    return f"Time between {step.reference} and {step.name} ({summary})"


def _chart_general(step: ChainStep, values: pl.DataFrame) -> alt.LayerChart:
    place = values.with_row_index("x").select(pl.col("x").cast(pl.Float64) + 1, "delta_s")
    return _chart_line(place, "Workload, by time of submission", format_heading(step, values["delta_s"]))


def _chart_deltas_and_spread(step: ChainStep, values: pl.DataFrame) -> alt.HConcatChart:
    """Chart a step's durations by submission time, and their spread; columns `submitted_at_us`, `delta_s`."""
    import altair as alt

    begin = values["submitted_at_us"][0]
    at = values.select(((pl.col("submitted_at_us") - begin) / US_PER_S).alias("x"), "delta_s")
    title = format_heading(step, values["delta_s"])
    chart: alt.HConcatChart = alt.hconcat(
        _chart_line(at, "Submitted, after the first (seconds)", title),
        _chart_spread(values["delta_s"].drop_nulls()),
        spacing=30,
    )
    return chart


def _chart_line(points: pl.DataFrame, x: str, title: str) -> alt.LayerChart:
    """Line of `delta_s` over `x`, both columns of `points`, thinned where there are too many.

    `x` is also the axis title.
    """
    import altair as alt

    shown = downsample_points(points)
    merged = f"every point is {points.height / (MAX_POINTS / 2):.0f} workloads' least or most"
    subtitle = [merged] if shown.height < points.height else []
    base = alt.Chart(
        alt.Data(values=shown.to_dicts()),
        title=alt.TitleParams(title, subtitle=subtitle, anchor="start"),
        width=_WIDTH_PX,
        height=_HEIGHT_PX if "Workload" in x else _HEIGHT_PX // 2,
    ).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(nice=False)),
        y=alt.Y("delta_s:Q", title="Time (seconds)"),
    )
    # A lone workload is a point: a line of one would be nothing.
    return alt.layer(base.mark_line(strokeWidth=1.5), base.mark_point(filled=True, size=8))


def _chart_spread(values: pl.Series) -> alt.LayerChart:
    """Histogram of `values`, in bins of whole seconds, with the share of values at or below each."""
    import altair as alt

    base = alt.Chart(alt.Data(values=build_bins(values))).properties(width=_SIDE_PX, height=_HEIGHT_PX // 2)
    x = alt.X("low:Q", title="Time (seconds)", scale=alt.Scale(zero=False), axis=alt.Axis(tickMinStep=1, format="d"))
    count = alt.Y("count:Q", title="Number of workloads", axis=alt.Axis(tickMinStep=1, format="d"))
    bars = base.mark_bar(color=theme.COLOURS["neutral"], opacity=0.5).encode(
        x=x, x2="high:Q", y=count, y2=alt.Y2Datum(0)
    )
    steps = base.mark_line(interpolate="step-after", point=alt.OverlayMarkDef(size=12)).encode(
        x=alt.X("last:Q"), y=alt.Y("share:Q", title="Share at or below", scale=alt.Scale(domain=[0, 1]))
    )
    chart: alt.LayerChart = alt.layer(bars, steps).resolve_scale(y="independent")
    return chart


def build_bins(values: pl.Series) -> list[dict[str, float]]:
    """Build at most 40 bins of whole seconds, drawn around them; `share` of the values is at or below `last`.

    >>> build_bins(pl.Series([0.0, 0.0, 2.0, 2.0]))[0]
    {'low': -0.5, 'high': 0.5, 'last': 0, 'count': 2, 'share': 0.5}
    """
    low, high = int(values.min() or 0), int(values.max() or 0)  # type: ignore[arg-type]
    width = -(-(high - low + 1) // _MAX_BINS)
    counts = np.bincount((values.to_numpy() - low).astype(int) // width)
    shares = np.cumsum(counts) / counts.sum()
    begins = [low + i * width for i in range(len(counts))]
    return [
        {
            "low": begin - 0.5,
            "high": begin + width - 0.5,
            "last": begin + width - 1,
            "count": int(count),
            "share": float(share),
        }
        for begin, count, share in zip(begins, counts, shares, strict=True)
    ]


def downsample_points(points: pl.DataFrame) -> pl.DataFrame:
    """Thin points to at most MAX_POINTS: the least and greatest of each group of neighbours; nulls are left out.

    `points`: `x, delta_s`.

    >>> downsample_points(pl.DataFrame({"x": [0, 1, 2], "delta_s": [5.0, None, 7.0]})).rows()
    [(0, 5.0), (2, 7.0)]
    """
    valid_points = points.filter(pl.col("delta_s").is_not_null())
    if valid_points.height <= MAX_POINTS:
        return valid_points
    size = -(-valid_points.height // (MAX_POINTS // 2))
    numbered = valid_points.with_row_index("place").with_columns(group=pl.col("place") // size)
    least = numbered.group_by("group").agg(pl.col("place").sort_by("delta_s").first())
    greatest = numbered.group_by("group").agg(pl.col("place").sort_by("delta_s").last())
    extremes = pl.concat([least, greatest]).select("place").unique().sort("place")
    return extremes.join(numbered, on="place").sort("place").select("x", "delta_s")


@dataclass(frozen=True)
class ReportFiles:
    """Files that were written.

    `drawn`, `skipped`, `sampled`: Workloads: in the picture; left out as the old tool does; in all.
    """

    picture: Path
    times: Path
    drawn: int
    skipped: int
    sampled: int


def write_upstream_report(
    folder: str | Path,
    plot: Plot = "general",
    skip_errors: bool = True,
    head: int | None = None,
    tail: int | None = None,
    out: str | Path | None = None,
) -> ReportFiles:
    """Write times.csv and general.png or detailed.png.

    `folder`: With submitted.json and sampled.json, or a run folder with its tables.
    `skip_errors`: Leave out what the old tool leaves out: pod groups earlier than their pods, negative totals.
    `head`, `tail`: Draw only the first, or the last, N workloads by time of submission; times.csv has all.
    """
    check_plot(plot)
    place = Path(folder)
    if not place.is_dir():
        raise InputError("no such folder", where=place)
    jobs = build_view(place).jobs
    chosen = select_jobs(jobs, skip_errors=skip_errors, head=head, tail=tail)
    picture = render_png(chart_plot(chosen, plot))
    target = place if out is None else Path(out)
    path = target / f"{plot}.png"
    with refuse_os_errors("cannot be written", target, do="choose another --out", error_type=ConfigError):
        times = runai_files.write_times_csv(target, jobs, skip_errors=skip_errors)
        with replace_atomically(path) as temporary:
            temporary.write_bytes(picture)
    skipped = int((~jobs["kept"]).sum()) if skip_errors else 0
    return ReportFiles(path, times, chosen.height, skipped, jobs.height)
