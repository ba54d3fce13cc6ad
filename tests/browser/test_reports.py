from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser import pages, samples
from workbench import report as reports

pytestmark = pytest.mark.browser

SMUGGLE = """() => {
    const one = document.createElement('script');
    one.textContent = 'window.smuggled = 1';
    document.body.append(one);
}"""
OTHER_LABELS = """([index, before]) => {
    const labels = [...document.querySelectorAll(`#chart-${index} g.role-axis-label text`)];
    return labels.map(one => one.textContent).join() !== before;
}"""
FAILURE_IN_SIGHT = """() => {
    const box = document.querySelector('.cell.failed').getBoundingClientRect();
    return box.top >= -1 && box.top < innerHeight;
}"""
FOREST, TIMELINE, ECDF, HEATMAP, LADDER, BARS, WATERFALL, SCATTER, POINTS = range(9)


def test_every_chart_draws_the_marks_that_its_data_implies_at_every_width_and_mode(
    browser: Any, report: Path, shots: Path
) -> None:
    with pages.watched(browser) as seen:
        counts = pages.check_report(seen.page, report)
        seen.page.screenshot(path=shots / "report-1280.png", full_page=True)
        seen.assert_quiet()
    assert len(counts) == 8
    assert counts[FOREST]["layer_2_marks"] == len(samples.OPERATORS), "one dot a row"
    assert counts[FOREST]["layer_1_marks"] == len(samples.OPERATORS) - 1, "no interval for a single observation"
    assert counts[BARS]["layer_0_marks"] == 10


def test_a_missing_mark_is_noticed(browser: Any, report: Path) -> None:
    with pages.watched(browser) as seen:
        page = seen.open(report)
        page.evaluate("document.querySelector('#chart-0 g.role-mark.layer_2_marks > *').remove()")
        with pytest.raises(AssertionError, match="chart 0: drawn"):
            pages.check_charts(page)


def test_a_request_is_noticed(browser: Any, report: Path) -> None:
    with pages.watched(browser) as seen:
        page = seen.open(report)
        seen.requests.append("https://example.org/spy.gif")
        page.evaluate("console.error('bad')")
        with pytest.raises(AssertionError, match="bad"):
            seen.assert_quiet()
        seen.errors.clear()
        with pytest.raises(AssertionError, match=r"example\.org"):
            seen.assert_quiet()


def test_the_page_forbids_requests_and_foreign_scripts(browser: Any, report: Path) -> None:
    with pages.watched(browser) as seen:
        page = seen.open(report)
        with page.expect_event("requestfailed") as failed:
            page.evaluate("const one = new Image(); one.src = 'https://example.org/a.png'; document.body.append(one)")
        assert failed.value.failure == "csp", "stopped by the page itself, not by the missing network"
        page.evaluate(SMUGGLE)
        assert page.evaluate("window.smuggled") is None
        assert any("Content Security Policy" in text for text in seen.errors)


def test_charts_above_5000_rows_are_pixels(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    assert pages.is_canvas(page, POINTS)
    assert pages.canvas_has_marks(page, POINTS)
    assert not pages.is_canvas(page, ECDF)


def test_brushing_the_overview_changes_what_the_detail_shows(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    name = "concat_1_marks"
    everything = pages.drawn_marks(page, TIMELINE, [name])[name]
    pages.brush(page, TIMELINE, 0.0, 0.15)
    few = pages.wait_marks_change(page, TIMELINE, name, everything)
    table = samples.stages()
    first, last = table["start_s"].min(), table["end_s"].max()
    border = first + 0.2 * (last - first)
    assert 0 < few < everything
    assert few <= table.filter(table["start_s"] <= border).height


def test_moving_the_slider_changes_the_drawing(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    height = page.locator(f"#chart-{BARS} .canvas svg").get_attribute("height")
    pages.set_slider(page, BARS, 25)
    assert pages.wait_marks_change(page, BARS, "layer_0_marks", 10) == 25
    assert page.locator(f"#chart-{BARS} .canvas svg").get_attribute("height") != height
    pages.set_slider(page, BARS, 3)
    assert pages.wait_marks_change(page, BARS, "layer_0_marks", 25) == 3


def test_choosing_another_case_draws_its_steps(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    first = samples.steps().filter(samples.steps()["query"] == "q1").height
    assert pages.drawn_marks(page, WATERFALL, ["layer_1_marks"])["layer_1_marks"] == first
    page.locator(f"#chart-{WATERFALL} .vega-bindings select").select_option("q2")
    assert pages.wait_marks_change(page, WATERFALL, "layer_1_marks", first) == samples.steps().height - first
    assert "Join" in pages.axis_labels(page, WATERFALL)
    assert "Filter" not in pages.axis_labels(page, WATERFALL)


def test_a_hidden_group_is_drawn_once_it_is_ticked(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    one = samples.predictions().height // 2
    assert pages.drawn_marks(page, SCATTER, ["layer_2_marks"])["layer_2_marks"] == one
    page.locator(f"#chart-{SCATTER} .vega-bindings input[type=checkbox]").check()
    assert pages.wait_marks_change(page, SCATTER, "layer_2_marks", one) == 2 * one


@pytest.mark.parametrize(
    ("index", "name", "words"),
    [
        (FOREST, "layer_2_marks", "Filter"),
        (TIMELINE, "concat_1_marks", "executor"),
        (ECDF, "layer_1_marks", "share"),
        (HEATMAP, "layer_0_marks", "q0"),
        (LADDER, "layer_2_marks", "concurrency"),
        (BARS, "layer_0_marks", "operator"),
        (WATERFALL, "layer_1_marks", "baseline"),
        (SCATTER, "layer_2_marks", "predictor"),
    ],
)
def test_pointing_at_a_mark_shows_its_row(
    open_page: Callable[..., Any], report: Path, index: int, name: str, words: str
) -> None:
    assert words in pages.tooltip_at(open_page(report), index, name)


def test_the_wheel_scrolls_the_page_until_a_chart_was_clicked(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    page.locator(f"#chart-{ECDF}").scroll_into_view_if_needed()
    before, scrolled = pages.axis_labels(page, ECDF), page.evaluate("scrollY")
    pages.wheel(page, ECDF, click=False)
    page.wait_for_function("scrolled => scrollY < scrolled", arg=scrolled)
    assert pages.axis_labels(page, ECDF) == before
    pages.wheel(page, ECDF, click=True)
    page.wait_for_function(OTHER_LABELS, arg=[ECDF, ",".join(before)])


def test_all_code_opens_and_closes_with_one_button(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report)
    total, opened = page.locator("details.code").count(), page.locator("details.code[open]")
    assert total > 5
    assert opened.count() == 0
    page.click("#code-toggle")
    assert opened.count() == total
    page.click("#code-toggle")
    assert opened.count() == 0


def test_the_dark_page_draws_charts_for_dark(open_page: Callable[..., Any], report: Path, shots: Path) -> None:
    page = open_page(report)
    ink = "getComputedStyle(document.querySelector('#chart-0 g.role-axis-label text')).fill"
    light = page.evaluate(ink)
    pages.toggle_mode(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert page.evaluate(ink) != light
    page.screenshot(path=shots / "report-dark.png", full_page=True)


def test_the_system_setting_chooses_the_first_mode(open_page: Callable[..., Any], report: Path) -> None:
    page = open_page(report, scheme="dark")
    assert page.evaluate("workbenchMode()") == "dark"
    assert page.locator("#mode-toggle").inner_text() == "Light"


def test_a_phone_shows_one_column_without_scrolling_sideways(
    open_page: Callable[..., Any], report: Path, shots: Path
) -> None:
    page = open_page(report, width=360)
    pages.assert_no_overflow(page)
    pages.check_charts(page)
    page.screenshot(path=shots / "report-360.png", full_page=True)


def test_paper_gets_light_colours_and_no_controls(open_page: Callable[..., Any], report: Path, shots: Path) -> None:
    page = open_page(report, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#mode-toggle").is_visible()
    assert not page.locator(f"#chart-{BARS} .vega-bindings").is_visible()
    assert page.locator("#chart-0 img.still").is_visible(), "the light picture stands in for a chart drawn for dark"
    assert page.locator("#provenance").is_visible()
    assert page.pdf(path=shots / "report.pdf", format="A4")[:5] == b"%PDF-"


def test_the_link_on_top_leads_to_the_failing_cell(open_page: Callable[..., Any], tmp_path: Path, shots: Path) -> None:
    from nbformat import v4

    error = v4.new_output(
        "error",
        ename="ValueError",
        evalue="<script>window.hit = 1</script>",
        traceback=["<script>window.hit = 1</script>"],
    )
    notebook = [
        v4.new_markdown_cell("# Why?\n\n<img src=x onerror='window.hit = 1'>"),
        *[
            v4.new_code_cell(f"step({index})", outputs=[v4.new_output("stream", text="line\n" * 40)])
            for index in range(5)
        ],
        v4.new_code_cell("fails()", outputs=[error]),
        v4.new_code_cell("never()"),
    ]
    failure = {"cell_number": 6, "source": "fails()", "error_name": "ValueError", "error": "<b>bad</b>"}
    page = open_page(reports.write_report(samples.write_run(tmp_path, notebook, status="failed", failure=failure)))
    assert "ValueError: <b>bad</b>" in page.locator(".banner").inner_text()
    page.click("#to-failure")
    page.wait_for_function(FAILURE_IN_SIGHT)
    assert page.locator(".cell.failed details.code").get_attribute("open") is not None
    assert "Not run" in page.locator("#cell-7").inner_text()
    assert page.evaluate("window.hit") is None
    page.screenshot(path=shots / "report-failed.png", full_page=True)


def test_the_gallery_opens_offline_and_leads_to_its_reports(browser: Any, report: Path, shots: Path) -> None:
    index = reports.write_gallery(report.parents[2])
    with pages.watched(browser) as seen:
        page = seen.open(index)
        assert page.locator(".card img.for-light").first.is_visible()
        assert not page.locator(".card img.for-dark").first.is_visible()
        page.click("#mode-toggle")
        assert page.locator(".card img.for-dark").first.is_visible()
        page.screenshot(path=shots / "gallery-dark.png", full_page=True)
        page.set_viewport_size({"width": 360, "height": 800})
        pages.assert_no_overflow(page)
        page.click(".card h3 a")
        pages.wait_drawn(page)
        assert "faster" in page.locator("h1").inner_text()
        seen.assert_quiet()
