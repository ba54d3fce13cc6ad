"""What a reader does with a page, offline: contents, folds, sort, filter, files to keep; also by ear and by keys."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from nbformat import v4

from tests.browser import samples
from workbench import report as reports
from workbench.report.display import headline, table

pytestmark = pytest.mark.browser

ROWS = [
    {"name": f"row {index:02}", "time_s": None if index == 7 else 1000.0 * ((index * 7) % 30)} for index in range(30)
]
ROWS[3]["name"] = '=HYPERLINK("x")'
BY_QUERY = pl.DataFrame({"query": ["q1", "q2", "q1"], "stage": ["1", "2", "3"], "time_s": [1.23456, 2.0, 1 / 3]})
LONG = pl.DataFrame({"query": ["q1", "q2"], "reason": ["words that go on and on " * 6, "none"]})
KEYS = [
    ("faster", 1.77, "×", "90 % interval 1.69 to 1.86"),
    ("queries", 22),
    ("operators", 14),
    ("error", 0.5),
    ("noise", 4.9),
]


def shown(display: Any) -> Any:
    return v4.new_output("display_data", data=display._repr_mimebundle_())


@pytest.fixture(scope="module")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with sections, a short and a long table, a chart, and six key numbers."""
    said = headline(
        answer="Fast.",
        verdict="valid",
        key_numbers=[*KEYS, ("sixth", 6, "s")],
        next_steps=["Run `workbench run lore`."],
    )
    chart = samples.shown(samples.all_pieces()["forest"])
    cells = [
        v4.new_markdown_cell("# How fast?"),
        v4.new_code_cell("answer()", outputs=[shown(said), chart]),
        v4.new_markdown_cell("## Long\n\nWords below the heading."),
        v4.new_code_cell("long()", outputs=[shown(table(pl.DataFrame(ROWS), caption="Times", limit=40))]),
        v4.new_code_cell("silent = 1"),
        v4.new_markdown_cell("## Short"),
        v4.new_code_cell("short()", outputs=[shown(table(pl.DataFrame(ROWS[:5]), caption="Few"))]),
        v4.new_markdown_cell("## By query"),
        v4.new_code_cell("stages()", outputs=[shown(table(BY_QUERY, caption="Stages"))]),
        v4.new_code_cell("why()", outputs=[shown(table(LONG, caption="Why"))]),
        v4.new_markdown_cell("## Last"),
    ]
    run = samples.write_run(tmp_path_factory.mktemp("reading"), cells, verdict="valid", answer="Fast.")
    return reports.write_report(run)


def read_column(page: Any, column: int, label: str = "Times") -> list[str]:
    script = """([label, column]) => [...document.querySelector(`.wb-scroll[aria-label="${label}"] tbody`).rows]
        .filter((row) => !row.hidden).map((row) => row.cells[column].textContent)"""
    return list(page.evaluate(script, [label, column]))


def click(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def download(page: Any, name: str) -> tuple[str, bytes]:
    with page.expect_download() as waited:
        click(page, name)
    return waited.value.suggested_filename, Path(waited.value.path()).read_bytes()


def test_contents_stand_beside_the_page_where_there_is_room_and_lead_to_its_sections(
    open_page: Callable[..., Any], long_report: Path
) -> None:
    page = open_page(long_report, width=1440)
    nav = page.get_by_role("navigation", name="Contents")
    assert nav.locator("a").all_inner_texts() == ["Long", "Short", "By query", "Last", "Provenance"]
    box, main = nav.bounding_box(), page.locator("main").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= main["x"] + 24
    click(page, "Short")
    assert not page.locator('.wb-scroll[aria-label="Few"]').is_visible()
    nav.get_by_text("Short").click()
    page.wait_for_function("document.querySelector('.wb-scroll[aria-label=Few]').checkVisibility()")


@pytest.mark.parametrize(("width", "is_beside"), [(1200, True), (1199, False), (390, False)])
def test_contents_are_folded_above_the_page_where_there_is_no_room(
    open_page: Callable[..., Any], long_report: Path, width: int, is_beside: bool
) -> None:
    page = open_page(long_report, width=width)
    nav = page.get_by_role("navigation", name="Contents")
    first = nav.locator("a").first
    assert first.is_visible() is is_beside
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if not is_beside:
        nav.locator("summary").click()
        assert first.is_visible()


def test_verdict_and_the_way_to_all_reports_stay_in_view(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report, width=390)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    bar = page.locator("header.bar")
    # The longest name of an area.
    page.evaluate("document.querySelector('.brand').textContent = 'capacity_plan'")
    box = bar.bounding_box()
    assert box["y"] == 0
    assert box["height"] <= 48
    assert bar.locator(".wb-chip").inner_text() == "valid"
    assert bar.get_by_role("link", name="All reports").get_attribute("href") == "../../index.html"


def test_a_section_folds_with_all_that_is_below_its_heading(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    inside = page.get_by_text("Words below the heading."), page.locator('.wb-scroll[aria-label="Times"]')
    page.get_by_role("button", name="Long", exact=True).focus()
    page.keyboard.press("Enter")
    assert [one.is_visible() for one in inside] == [False, False]
    assert page.locator('.wb-scroll[aria-label="Few"]').is_visible()
    assert page.get_by_role("button", name="Long", exact=True).get_attribute("aria-expanded") == "false"
    page.emulate_media(media="print")
    assert [one.is_visible() for one in inside] == [True, True]


def test_code_takes_no_line_until_the_switch_shows_it(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    silent = page.locator(".cell", has_text="silent = 1")
    assert silent.bounding_box()["height"] == 0
    page.click("#code-toggle")
    assert page.get_by_text("silent = 1").is_visible()


def test_a_long_table_scrolls_in_place_sorts_and_filters(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    scroll = page.locator('.wb-scroll[aria-label="Times"]')
    assert scroll.bounding_box()["height"] <= 470
    assert page.locator('.wb-scroll[aria-label="Few"]').evaluate("one => one.classList.contains('tall')") is False
    first = read_column(page, 1)
    scroll.get_by_role("button").nth(1).click()
    numbers = [float(text.replace(",", "")) for text in read_column(page, 1)[:-1]]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) > 20
    assert scroll.locator("th").nth(1).get_attribute("aria-sort") == "descending"
    scroll.get_by_role("button").nth(1).click()
    numbers = [float(text.replace(",", "")) for text in read_column(page, 1)[:-1]]
    assert numbers == sorted(numbers), "the missing value stays last"
    scroll.get_by_role("button").nth(1).click()
    assert read_column(page, 1) == first
    page.get_by_label("Filter rows of Times").fill("hyperlink x")
    assert read_column(page, 0) == [ROWS[3]["name"]]
    assert page.get_by_text("1 of 30 rows").is_visible()
    # The head stays in sight.
    page.get_by_label("Filter rows of Times").fill("")
    scroll.evaluate("one => { one.scrollTop = 400 }")
    top, head = scroll.bounding_box()["y"], scroll.locator("th").first.bounding_box()["y"]
    assert abs(top - head) < 3


def test_a_table_is_kept_as_csv_whose_cells_a_spreadsheet_does_not_run(
    open_page: Callable[..., Any], long_report: Path
) -> None:
    page = open_page(long_report)
    name, content = download(page, "Download Times as CSV")
    lines = list(csv.reader(io.StringIO(content.decode())))
    assert name == "times.csv"
    assert len(lines) == 31
    assert lines[4][0] == '\'=HYPERLINK("x")'
    assert [lines[1][1], lines[2][1], lines[8][1]] == ["0", "7000", ""]


def press_tab_until(page: Any, script: str) -> None:
    """Move the focus on by the keyboard until it is on what the script asks for."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"(() => {{ const at = document.activeElement; return Boolean({script}); }})()"):
            return
    raise AssertionError(f"not reached by Tab: {script}")


def test_by_keys_alone_from_the_gallery_to_a_tables_csv(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(Path(reports.write_gallery(long_report.parents[2])))
    press_tab_until(page, "at.matches('.card h3 a')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/report.html")
    press_tab_until(page, "at.getAttribute('aria-label') === 'Download Times as CSV'")
    with page.expect_download() as waited:
        page.keyboard.press("Enter")
    assert waited.value.suggested_filename == "times.csv"
    # And back, by the link that stays in view.
    page.evaluate("document.querySelector('.bar a').focus()")
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html")


def test_a_chart_is_kept_as_png_svg_and_csv(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    title = page.locator("figcaption strong").first.inner_text()
    name, png = download(page, f"Download {title} as PNG")
    assert name.endswith(".png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(png) > 5_000
    _, svg = download(page, f"Download {title} as SVG")
    assert svg.startswith(b"<svg style=")
    assert svg.count(b"<path") > 5
    _, content = download(page, f"Download {title} as CSV")
    drawn = page.evaluate("JSON.parse(document.getElementById('spec-0').textContent)")
    lines = list(csv.reader(io.StringIO(content.decode())))
    assert len(lines) - 1 == max(len(rows) for rows in drawn["datasets"].values())


def test_at_most_five_key_numbers_stand_in_one_row(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    boxes = [one.bounding_box() for one in page.locator(".wb-keys > div").all()]
    assert len(boxes) == 5
    assert len({round(box["y"]) for box in boxes}) == 1
    assert "Also: sixth: 6 s" in page.locator(".wb-also").inner_text()


def test_the_gallery_filters_by_verdict_and_by_words_and_shows_the_trend(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    for index, (area, verdict, value) in enumerate(
        [("speedup", "valid", 1.5), ("speedup", "valid", 2.5), ("sizing", "invalid", 3)]
    ):
        said = headline(answer=f"Answer {index}.", verdict=verdict, reasons=["few"], key_numbers=[("faster", value)])
        cells = [v4.new_markdown_cell(f"# About {area}?"), v4.new_code_cell("a()", outputs=[shown(said)])]
        extra = {"reasons": ["few"]} if verdict == "invalid" else {}
        samples.write_run(tmp_path, cells, area=area, verdict=verdict, **extra)
    page = open_page(Path(reports.write_gallery(tmp_path)))
    cards = page.locator(".card:visible")
    assert cards.count() == 2
    assert "faster over 2 runs: 1.5, 2.5" in page.locator("svg.trend").get_attribute("aria-label")
    assert page.get_by_text("faster, before: 1.5").is_visible()
    assert not page.locator(".card > p .wb-valid").count(), "what is as it should be has no chip"
    page.get_by_label("Verdict").select_option(label="invalid (1)")
    assert [text.split("\n")[-1] for text in cards.locator("h3").all_inner_texts()] == ["About sizing?"]
    page.get_by_label("Verdict").select_option(label="All verdicts")
    page.get_by_label("Area").select_option(label="speedup")
    assert cards.count() == 1
    page.get_by_label("Area").select_option(label="All areas")
    page.get_by_label("Order").select_option(label="Newest first")
    assert cards.locator("h3").first.inner_text() == "About sizing?"
    page.get_by_label("Filter reports").fill("about speedup")
    assert cards.count() == 1
    assert page.get_by_text("1 of 2").is_visible()


def test_what_is_chosen_in_one_table_is_shown_alone_in_all_until_it_is_chosen_again(
    open_page: Callable[..., Any], long_report: Path
) -> None:
    page = open_page(long_report)
    cell = page.locator('.wb-scroll[aria-label="Stages"] td.pick', has_text="q1").first
    cell.click()
    assert read_column(page, 0, "Stages") == ["q1", "q1"]
    assert read_column(page, 0, "Why") == ["q1"]
    assert len(read_column(page, 0)) == 30, "a table without queries is as it was"
    _, content = download(page, "Download Stages as CSV")
    lines = list(csv.reader(io.StringIO(content.decode())))
    assert [line[0] for line in lines[1:]] == ["q1", "q1"], "the file has what is shown"
    assert [float(line[2]) for line in lines[1:]] == [1.23456, 1 / 3], "with all digits"
    cell.click()
    assert read_column(page, 0, "Stages") == ["q1", "q2", "q1"]
    # By keys, from the list in the bar.
    page.get_by_label("Show only").select_option(label="q2")
    assert read_column(page, 0, "Why") == ["q2"]


def test_a_section_and_a_chart_have_a_link_by_name(open_page: Callable[..., Any], long_report: Path) -> None:
    page = open_page(long_report)
    page.get_by_role("button", name="Copy the link to By query", exact=True).focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#by-query")
    assert page.locator("figcaption strong").first.get_attribute("id")
    page.goto(long_report.resolve().as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"


def test_a_report_that_was_mailed_links_nothing_beside_it(
    open_page: Callable[..., Any], long_report: Path, tmp_path: Path
) -> None:
    assert open_page(long_report).locator("a.beside").count() > 0
    mailed = tmp_path / "report.html"
    mailed.write_bytes(long_report.read_bytes())
    page = open_page(mailed)
    assert page.locator("a.beside").count() == 0
    assert not page.get_by_text("All reports").count()


def test_a_phone_shows_a_row_with_long_words_as_a_list_of_its_cells(
    open_page: Callable[..., Any], long_report: Path
) -> None:
    page = open_page(long_report, width=390)
    row = page.locator('.wb-scroll[aria-label="Why"] tbody tr').first
    boxes = [cell.bounding_box() for cell in row.locator("td").all()]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"] - 1, "below each other"
    assert max(box["x"] + box["width"] for box in boxes) <= 390


def test_a_wide_table_shows_that_it_goes_on_and_keeps_its_first_column(
    open_page: Callable[..., Any], long_report: Path
) -> None:
    page = open_page(long_report, width=390)
    scroll = page.locator('.wb-scroll[aria-label="Stages"]')
    scroll.evaluate("one => { one.style.width = '120px'; }")
    wide = """() => document.querySelector('.wb-scroll[aria-label="Stages"]').classList.contains('wide')"""
    page.wait_for_function(wide)
    before = scroll.locator("tbody td").first.bounding_box()["x"]
    scroll.evaluate("one => { one.scrollLeft = 60; }")
    assert abs(scroll.locator("tbody td").first.bounding_box()["x"] - before) < 2
