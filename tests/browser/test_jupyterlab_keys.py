"""JupyterLab by keys alone: from the first cell to the report; key numbers in a row; settings in groups."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser import labs
from tests.browser.labs import Lab, Opened

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(1500)]
MAX_TABS = 120
CARDS = "[...document.querySelectorAll('.wb-keys > div')]"
FOCUS = """() => { const one = document.activeElement;
    return `${one.tagName} ${one.className} ${one.textContent}`; }"""


def tab_to(one: Opened, pattern: str, key: str = "Tab") -> None:
    """Press a key until what has the focus is what a reader looks for."""
    seen = []
    for _ in range(MAX_TABS):
        one.page.keyboard.press(key)
        seen.append(one.page.evaluate(FOCUS)[:80])
        if re.search(pattern, one.page.evaluate(FOCUS)):
            return
    raise AssertionError(f"{pattern} never had the focus: {seen}")


def boxes(one: Opened) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = one.page.evaluate(f"{CARDS}.map(one => one.getBoundingClientRect().toJSON())")
    return found


def test_key_numbers_are_cards_in_one_row_at_1280_px(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "00_start_here.ipynb", width_px=1280) as one:
        one.run_all()
        cards = boxes(one)
        assert 3 <= len(cards) <= 5
        assert max(card["top"] for card in cards) - min(card["top"] for card in cards) < 1
        lefts = [card["left"] for card in cards]
        assert lefts == sorted(lefts)
        assert all(left["right"] <= right["left"] for left, right in itertools.pairwise(cards))
        # In one row, and none cut by the edge of the notebook or wider than its card.
        area = one.page.locator(".jp-OutputArea-output").filter(has=one.page.locator(".wb-keys")).bounding_box()
        assert area is not None
        assert cards[-1]["right"] <= area["x"] + area["width"] + 1
        assert one.page.evaluate(f"{CARDS}.filter(one => one.scrollWidth > one.clientWidth + 1).length") == 0
        one.fine()


@pytest.mark.slow
def test_a_notebook_is_run_from_its_first_cell_to_its_report_by_keys_alone(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "00_start_here.ipynb") as one:
        press = one.page.keyboard.press
        one.page.locator(".jp-Notebook").focus()  # where a click on the file in the list leaves it
        press("Escape")
        cells = one.page.locator(".jp-Notebook .jp-Cell").count()
        press("Control+Home")
        for _ in range(cells):
            press("Shift+Enter")
        one.page.wait_for_function(f"() => {labs.FAILED} || Math.max(...{labs.NUMBERS}) >= 3")
        one.panel.wait_for()
        one.idle()
        press("Escape")
        one.page.locator(".jp-Notebook").evaluate("one => one.scrollTo(0, 0)")
        tab_to(one, r"^BUTTON .*Run and make report")
        press("Enter")
        one.page.locator(".wb-toolbar-text", has_text=re.compile(r"cell \d+ of \d+")).wait_for()
        one.page.locator(".wb-toolbar-text", has_text="Done after").wait_for()
        frame = one.page.frame_locator(".wb-panel iframe")
        frame.get_by_role("heading", name="What can this workbench answer?").first.wait_for()
        tab_to(one, r"^IFRAME")
        one.fine()


@pytest.mark.slow
def test_a_run_is_started_and_cancelled_in_the_notebooks_own_toolbar(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "00_start_here.ipynb") as one:
        one.run_all()
        toolbar = one.page.locator(".jp-NotebookPanel-toolbar .wb-toolbar")
        assert toolbar.count() == 1
        run, cancel = (toolbar.get_by_role("button", name=name) for name in ("Run and make report", "Cancel"))
        assert not cancel.is_visible()
        run.press("Enter")
        cancel.wait_for()
        toolbar.get_by_role("progressbar").wait_for()
        cancel.press("Enter")
        toolbar.get_by_text(re.compile("Cancelled after|Cancelled before|Done after")).wait_for()
        run.wait_for()
        # The panel's cell runs again: its old controls go with its old output.
        one.run_below_panel()
        one.page.wait_for_function("document.querySelectorAll('.wb-toolbar').length === 1")
        one.fine()


@pytest.mark.slow
def test_settings_of_a_mode_unfold_with_it_and_more_settings_by_keys(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "04_indicators.ipynb") as one:
        one.run_all()
        stacks, seed = (one.panel.get_by_label(name, exact=True) for name in ("stacks", "seed"))
        assert (stacks.is_visible(), seed.is_visible()) == (False, False)
        one.panel.get_by_role("checkbox").first.check()
        stacks.wait_for()
        more = one.panel.get_by_role("button", name="More settings")
        more.focus()
        more.press("Enter")
        seed.wait_for()
        more.press("Enter")
        seed.wait_for(state="hidden")
        one.fine()
