"""Charts for all areas: each draws a table of polars or pandas in one common look and computes nothing."""

from __future__ import annotations

from workbench.charts.bar_chart import bars
from workbench.charts.course_chart import course
from workbench.charts.ecdf_chart import ecdf
from workbench.charts.forest_chart import forest
from workbench.charts.heatmap_chart import heatmap
from workbench.charts.ladder_chart import ladder
from workbench.charts.plan_tree_chart import plan_trees
from workbench.charts.scatter_chart import scatter
from workbench.charts.stacked_bar_chart import stacked_bar
from workbench.charts.theme import COLOURS
from workbench.charts.timeline_chart import timeline
from workbench.charts.waterfall_chart import waterfall

__all__ = [
    "COLOURS",
    "bars",
    "course",
    "ecdf",
    "forest",
    "heatmap",
    "ladder",
    "plan_trees",
    "scatter",
    "setup",
    "stacked_bar",
    "timeline",
    "waterfall",
]


def setup() -> None:
    """Make charts look and show as this project's do; the first code cell of each notebook calls it.

    Headless a chart becomes a spec that the report draws, a picture and a text; live it is drawn in the page by the
    Vega that this call brings along. Neither needs a network.
    """
    from workbench.charts import renderer, theme

    theme.enable_theme()
    renderer.enable_renderer()
    renderer.show_vega_bundle()
