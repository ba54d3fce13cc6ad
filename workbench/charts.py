"""Charts that all areas use: ready-made pieces that draw a table and compute nothing, in one look.

Each piece checks its columns, draws from the given polars table, and gives back an Altair chart that is still open to
change. Units come from the column names. No piece puts more than 5,000 rows into a page; what was left out or merged
stands in its subtitle. Each carries a text alternative computed from its table.
"""

from __future__ import annotations

from workbench.pieces.bars import bars
from workbench.pieces.ecdf import ecdf
from workbench.pieces.forest import forest
from workbench.pieces.heatmap import heatmap
from workbench.pieces.ladder import ladder
from workbench.pieces.plan_trees import plan_trees
from workbench.pieces.scatter import scatter
from workbench.pieces.timeline import timeline
from workbench.pieces.waterfall import waterfall
from workbench.theme import COLOURS

__all__ = [
    "COLOURS",
    "bars",
    "ecdf",
    "forest",
    "heatmap",
    "ladder",
    "plan_trees",
    "scatter",
    "setup",
    "timeline",
    "waterfall",
]


def setup() -> None:
    """Make charts look and show as this project's do; the first code cell of each notebook calls it.

    Headless a chart becomes a spec that the report draws, a picture and a text; live it is drawn in the page by the
    Vega that this call brings along. Neither needs a network.
    """
    from workbench import renderer, theme

    theme.enable()
    renderer.enable()
    renderer.announce_bundle()
