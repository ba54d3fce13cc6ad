"""A report in the panel's frame: its contents, files and copies work there, and what lies beside it is no link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nbformat import v4

from tests.browser import pages, samples
from workbench import charts, report
from workbench.live import result_widgets
from workbench.report import page
from workbench.runs import run_folder

pytestmark = pytest.mark.browser


def report_with_contents(folder: Path) -> run_folder.Run:
    chart = charts.bars(samples.ranked(), title="t", label="operator", value="time_s")
    headings = [v4.new_markdown_cell(f"## Part {number}") for number in range(3)]
    answer = report.headline(answer="2 times faster.", verdict="valid")
    cells = [v4.new_code_cell("x", outputs=[samples.shown(shown)]) for shown in (answer, chart)]
    written = samples.write_run(folder, [v4.new_markdown_cell("# How fast?"), *cells, *headings], verdict="valid")
    page.write_report(written)
    return run_folder.load_run(written)


def test_contents_scroll_in_the_frame_and_files_are_kept(browser: Any, tmp_path: Path) -> None:
    frame_html = result_widgets.render_report_frame(report_with_contents(tmp_path))
    (tmp_path / "panel.html").write_text(f"<!doctype html><meta charset=utf-8>{frame_html}", encoding="utf-8")
    with pages.watched(browser) as seen:
        seen.page.goto((tmp_path / "panel.html").as_uri())
        frame = seen.page.frame_locator("iframe")
        frame.locator("figure.chart svg g.root").first.wait_for()
        frame.locator("summary", has_text="Contents").click()
        link = frame.locator("nav.contents a").last
        link.click()
        (inner,) = seen.page.main_frame.child_frames
        assert inner.url == "about:srcdoc" + str(link.get_attribute("href"))
        assert frame.locator("h1").count() == 1
        for name in ("CSV", "PNG", "SVG"):
            with seen.page.expect_download() as kept:
                frame.get_by_role("button", name=f"as {name}").first.click()
            assert kept.value.suggested_filename.endswith(f".{name.lower()}")
        assert frame.locator("a.beside").count() == 0
        seen.assert_quiet()
