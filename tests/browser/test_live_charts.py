"""A chart in a live page: drawn in the colours of JupyterLab's theme, and anew when somebody switches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import pages, samples
from workbench import charts
from workbench.charts import renderer
from workbench.charts.theme import COLOURS, ON_DARK, build_vega_config

pytestmark = pytest.mark.browser
BAR = "document.querySelector('svg .mark-rect path')?.getAttribute('fill')"
TEXT = "document.querySelector('svg .role-axis-label text')?.getAttribute('fill')"


def test_a_live_chart_follows_the_theme_of_jupyterlab(browser: Any, tmp_path: Path) -> None:
    charts.setup()
    chart = charts.bars(samples.ranked(), title="t", label="operator", value="time_s").to_dict()
    page = tmp_path / "live.html"
    script = f"<script>{renderer.load_vega_bundle()}</script>"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><body data-jp-theme-light="false">'
        f"{script}{renderer.render_live_html(chart)}",
        encoding="utf-8",
    )
    with pages.watched(browser) as seen:
        seen.page.goto(page.as_uri())
        for mode, bar in (("dark", ON_DARK[COLOURS["accent"]]), ("light", COLOURS["accent"])):
            seen.page.evaluate(f"document.body.dataset.jpThemeLight = '{str(mode == 'light').lower()}'")
            seen.page.wait_for_function(f"{BAR} === '{bar}'")
            assert seen.page.evaluate(TEXT) == build_vega_config(mode)["axis"]["labelColor"]
        assert seen.page.locator("svg").count() == 1
        # It fills the column.
        assert seen.page.evaluate("document.querySelector('svg').clientWidth / document.body.clientWidth") > 0.95
        seen.assert_quiet()
