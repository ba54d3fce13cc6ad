"""Chart of the control plane's own figures over the course of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.charts.data import join_sentences
from workbench.charts.theme import encode_colour, encode_tooltip, finish_chart
from workbench.scaletest.tables import PRESSURE

if TYPE_CHECKING:
    import altair as alt

PRESSURE_HEIGHT_PX = 220
MAX_LINES, MIN_SHOWN_S = 6, 0.001


def chart_pressure(pressure: pl.DataFrame) -> alt.LayerChart:
    """What did calls wait for while the test ran? Mean times by the components' own metrics, look by look.

    Parameters
    ----------
    pressure
        Table PRESSURE of one run. The six subjects on which most time went are drawn; those that never took a
        millisecond are left out, and counted.
    """
    import altair as alt

    table = PRESSURE.check(pressure).filter(pl.col("mean_s").is_not_null())
    whose = pl.concat_str("component", pl.lit(": "), "measure", pl.lit(" "), "subject").str.strip_chars()
    named = table.with_columns(whose.alias("whose"), (pl.col("mean_s") * pl.col("n")).alias("spent_s"))
    ranked = (
        named.group_by("whose", maintain_order=True)
        .agg(pl.col("spent_s").sum(), pl.col("mean_s").max())
        .filter(pl.col("mean_s") >= MIN_SHOWN_S)
        .sort("spent_s", descending=True)
    )
    subjects = ranked.head(MAX_LINES)["whose"].to_list()
    hidden = named["whose"].n_unique() - len(subjects)
    frame = named.filter(pl.col("whose").is_in(subjects)).select(
        pl.col("at_s").round(3), "whose", pl.col("mean_s").round_sig_figs(4), "p99_s", "n"
    )
    legend = encode_colour(frame, "whose")
    base = alt.Chart(frame).encode(
        x=alt.X("at_s", type="quantitative", title="time since the start [s]"),
        y=alt.Y("mean_s", type="quantitative", title="mean time of a call [s]"),
        tooltip=encode_tooltip(frame),
        **legend,
    )
    subtitle = join_sentences(
        "a mean since the look before, every five seconds",
        f"{hidden} more that took less are not drawn" if hidden else "",
    )
    title = "What did calls wait for in the control plane?"
    return finish_chart(
        alt.layer(base.mark_line(), base.mark_point(size=40, filled=True)),
        title,
        subtitle,
        frame,
        height=PRESSURE_HEIGHT_PX,
    )
