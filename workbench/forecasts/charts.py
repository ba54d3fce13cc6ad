"""Charts of forecasts and of what came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench import charts
from workbench.charts.scatter_chart import MAX_POINTS
from workbench.core.frames import takes_frames

if TYPE_CHECKING:
    import altair as alt

HELD, MISSED, OPEN_ENDED = "interval held", "interval missed", "no interval"


@takes_frames
def chart_outcomes(forecasts: pl.DataFrame) -> alt.Chart:
    """Each forecast with its interval against its outcome; `forecasts` is table FORECASTS.

    Both axes are logarithmic: forecasts and outcomes of 0 are not drawn.
    """
    matched = forecasts.filter(pl.col("state") == "matched").sort("made_at")
    drawn = matched.filter((pl.col("value") > 0) & (pl.col("outcome") > 0)).tail(MAX_POINTS)
    has_ends = (pl.col("low") > 0) & pl.col("high").is_not_null()
    held = pl.when(pl.col("covered")).then(pl.lit(HELD)).when(~pl.col("covered")).then(pl.lit(MISSED))
    points = drawn.select(
        forecast="value",
        outcome="outcome",
        low=pl.when(has_ends).then("low"),
        high=pl.when(has_ends).then("high"),
        result=held.otherwise(pl.lit(OPEN_ENDED)),
        subject=pl.when(pl.col("subject").is_unique()).then("subject").otherwise(pl.format("{}, {}", "subject", "id")),
        quantity="quantity",
        unit="unit",
        area="area",
        missed=~pl.col("covered").fill_null(True),
    )
    left_out = matched.height - points.height
    note = f" · {left_out} not drawn" if left_out else ""
    return charts.scatter(
        points,
        title="What came, against what was forecast",
        x="outcome",
        y="forecast",
        label="subject",
        low="low",
        high="high",
        group="result",
        named="missed",
        details=("area", "quantity", "unit"),
        subtitle=f"bars: intervals of the forecasts, each in its own unit{note}",
    )


@takes_frames
def chart_coverage(scores: pl.DataFrame) -> alt.Chart:
    """How many intervals held, by area, against the promised share; `scores` is table FORECAST_SCORES."""
    level = scores["level"].drop_nulls()
    return charts.forest(
        scores.drop_nulls(["coverage"]),
        title="How many intervals held, by area?",
        label="area",
        estimate="coverage",
        low="coverage_low",
        high="coverage_high",
        n="n_intervals",
        reference=level[-1] if level.len() else None,
        log=False,
        subtitle="share that held, with its 90 % interval · line: the promised share",
    )
