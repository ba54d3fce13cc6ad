"""Every committed notebook works live: in JupyterLab with the network cut it runs, draws, and answers a move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import labs
from tests.browser.labs import Lab, Opened

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(1500)]
CHARTS = "[...document.querySelectorAll('.jp-OutputArea .vega-embed svg')].map(one => one.outerHTML).join()"


def wait_drawn_otherwise(one: Opened, before: str) -> None:
    """Wait until a chart of the notebook is drawn otherwise than before."""
    one.page.wait_for_function(f"before => ({CHARTS}) !== before", arg=before)


def sort_a_table(one: Opened) -> None:
    """A table of the notebook's own cells sorts by its header, as in a report, and is kept as a file."""
    table = one.page.locator(".jp-OutputArea .wb-scroll[data-equipped]:has(th.num)").last
    head = table.locator("th.num").first
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    column = int(head.evaluate("one => one.cellIndex")) + 1
    texts = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
    numbers = [float(text.replace(",", "")) for text in texts]
    assert numbers == sorted(numbers, reverse=True)


def another_log(one: Opened) -> None:
    """Another event log, typed into the panel, becomes another answer and another chart."""
    sort_a_table(one)
    answer = one.page.locator(".wb-headline").inner_text()
    one.set("event_log", "../data/samples/eventlogs/failing.zstd")
    one.page.get_by_text("Changed since this cell ran: event_log").wait_for()
    # The old answer says that it is old, and the note goes when the cells have run.
    note = one.page.locator(".wb-outdated-note")
    note.get_by_text("Below: the cells as they last ran, with event_log").wait_for()
    before = one.page.evaluate(labs.NUMBERS)
    note.get_by_role("button", name="Run the cells with these settings").click()
    one.ran(before)
    note.wait_for(state="detached")
    assert one.page.locator(".wb-headline").inner_text() != answer
    one.charts_drawn()


def factor_and_back(one: Opened) -> None:
    """A factor set by hand, and back: the sentence and the waterfall follow."""
    before = one.page.evaluate(CHARTS)
    handle = one.page.locator(".jupyter-widgets .noUi-handle").first
    handle.scroll_into_view_if_needed()
    handle.focus()
    handle.press("ArrowRight")
    one.page.get_by_text("; with the measured factors").wait_for()
    wait_drawn_otherwise(one, before)
    one.page.get_by_role("button", name="Back to the measured factors").click()
    one.page.get_by_text("; with the measured factors").wait_for(state="detached")


def another_operator(one: Opened) -> None:
    """Another operator, dumped and replayed from its button."""
    before = one.page.evaluate(CHARTS)
    label = one.page.get_by_role("button", name="Dump and replay")
    label.scroll_into_view_if_needed()
    one.page.get_by_role("button", name="Filter").first.click()
    label.click()
    wait_drawn_otherwise(one, before)
    one.page.locator(".jupyter-button[disabled]", has_text="Dump and replay").wait_for(state="detached")


def slider(one: Opened) -> None:
    """The first slider of the live what-if, by the keyboard: the sentence and the chart follow."""
    handle = one.page.locator(".jupyter-widgets .noUi-handle").first
    handle.scroll_into_view_if_needed()
    before = one.page.evaluate(CHARTS)
    handle.focus()
    handle.press("PageUp")
    wait_drawn_otherwise(one, before)


def setting(name: str, value: str) -> Callable[[Opened], None]:
    """A move: another value of a setting, from the panel, draws the charts otherwise."""

    def move(one: Opened) -> None:
        before = one.page.evaluate(CHARTS)
        one.set(name, value)
        one.run_below_panel()
        one.charts_drawn()
        wait_drawn_otherwise(one, before)

    return move


NOTEBOOKS = [
    pytest.param("00_start_here.ipynb", 1, another_log, id="00"),
    pytest.param("01_speedup.ipynb", 3, factor_and_back, id="01", marks=pytest.mark.slow),
    pytest.param("02_lore.ipynb", 3, another_operator, id="02", marks=[pytest.mark.spark, pytest.mark.slow]),
    pytest.param("03_sizing.ipynb", 4, slider, id="03", marks=pytest.mark.slow),
    pytest.param("04_indicators.ipynb", 4, slider, id="04", marks=pytest.mark.slow),
    pytest.param("05_scaletest.ipynb", 4, setting("step", "due to running"), id="05", marks=pytest.mark.slow),
    pytest.param("06_capacity_plan.ipynb", 3, setting("utilisation", "0.35"), id="06", marks=pytest.mark.slow),
    pytest.param("07_fleet.ipynb", 2, setting("level", "0.6"), id="07", marks=pytest.mark.slow),
    pytest.param("08_profile.ipynb", 4, setting("top_operators", "3"), id="08", marks=pytest.mark.slow),
    pytest.param("09_history.ipynb", 1, setting("since", "2026-11-25T08:39"), id="09", marks=pytest.mark.slow),
    pytest.param("10_forecasts.ipynb", 2, sort_a_table, id="10", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "charts", "move"), NOTEBOOKS)
def test_a_notebook_runs_live_draws_its_charts_and_answers_a_move_without_a_network(
    lab: Lab, browser: Browser, name: str, charts: int, move: Callable[[Opened], None]
) -> None:
    with labs.opened(browser, lab, name, scheme="dark" if name.startswith("04") else "light") as one:
        # Code is folded but for the reader's own cells, and the panel is there before anybody runs a cell.
        one.panel.wait_for()
        assert one.page.locator(".jp-CodeCell .jp-InputArea-editor:visible").count() <= 4
        # The list of files begins with the questions, not with the template.
        assert one.page.locator(".jp-DirListing-itemText").first.inner_text() == "00_start_here.ipynb"
        one.run_all()
        assert one.panel.count() == 1
        one.panel.locator(".wb-grid tbody td", has_text="by hand").first.wait_for()
        assert one.charts_drawn() >= charts
        move(one)
        one.fine()


def test_every_notebook_is_opened_by_the_test_above() -> None:
    there = {path.name for path in (Path(labs.ROOT) / "notebooks").glob("[0-9]*.ipynb")}
    assert {str(case.values[0]) for case in NOTEBOOKS} == there
