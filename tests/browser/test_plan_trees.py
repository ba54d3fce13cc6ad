"""The pair of plan trees in a page: all marks drawn, and pointing at a node lights up its twin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from nbformat import v4

from tests.browser import pages, samples
from workbench import charts
from workbench.charts import theme
from workbench.report import page as report_page

pytestmark = pytest.mark.browser
N_NODES = 60
LIT = (
    "() => [...document.querySelectorAll('#chart-0 g.role-mark.mark-rect path')]"
    ".filter(one => one.getAttribute('opacity') > 0)"
)


def plans() -> pl.DataFrame:
    """Two chains with a branch at every fifth node; twins have equal numbers."""
    rows = [
        {
            "side": side,
            "node_id": node,
            "parent_id": None if node == 0 else (node - 5 if node % 5 == 0 else node - 1),
            "row": node,
            "name": f"{side} operator {node} with a name that is far too long to be written in full at its place",
            "wall_s": float(node % 7) / 10,
        }
        for side in ("baseline", "candidate")
        for node in range(N_NODES)
    ]
    return pl.DataFrame(rows, schema_overrides={"parent_id": pl.Int64})


@pytest.fixture(scope="module")
def page_of_trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    theme.enable_theme()
    chart = charts.plan_trees(
        plans(),
        title="Plans",
        side="side",
        node="node_id",
        parent="parent_id",
        pair="row",
        label="name",
        value="wall_s",
    )
    cells = [
        v4.new_markdown_cell("# What became of each operator?"),
        v4.new_code_cell("chart", outputs=[samples.shown(chart)]),
    ]
    return report_page.write_report(
        samples.write_run(tmp_path_factory.mktemp("runs"), cells, verdict="valid", answer="Two plans.")
    )


def test_both_trees_draw_what_their_data_imply(open_page: Callable[..., Any], page_of_trees: Path) -> None:
    page = open_page(page_of_trees)
    spec = pages.specs(page)[0]
    expected = pages.expected_marks(spec)
    assert sorted(expected.values()) == sorted([N_NODES] * 8 + [N_NODES - 1] * 4)
    assert pages.drawn_marks(page, 0, list(expected)) == expected


def test_pointing_at_a_node_lights_up_its_twin(open_page: Callable[..., Any], page_of_trees: Path) -> None:
    page = open_page(page_of_trees)
    assert page.evaluate(f"({LIT})().length") == 0
    for side in ("baseline", "candidate"):
        page.locator("#chart-0 svg text", has_text=f"{side} operator 7 ").first.hover()
        page.wait_for_function(f"({LIT})().length === 2")
    page.locator("h1").first.hover()
    page.wait_for_function(f"({LIT})().length === 0")
