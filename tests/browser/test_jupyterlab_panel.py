"""The panel in JupyterLab: a file picked by keyboard, a run, its tables, a restart, a cancel; and no markup runs."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import polars as pl
import psutil
import pytest
from playwright.sync_api import Browser, FrameLocator, Page

from tests.browser import labs
from tests.browser.labs import Lab, Opened
from tests.live.making import OPERATORS
from workbench.core.locks import find_holder
from workbench.live import run_control
from workbench.runs import run_folder

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(1500)]
EVIL = "<script>top.evil=1</script><img src='http://127.0.0.1:1/x' onerror='top.evil=2'>"
ROWS = ".wb-grid tbody tr"


@pytest.fixture(scope="module", autouse=True)
def things_to_find(lab: Lab) -> None:
    """A notebook that waits, and a run that is markup."""
    waiting_notebook(lab.notebooks)
    evil_run(lab.out)


def waiting_notebook(folder: Path) -> None:
    """The template, with a cell that in a run says its process and waits for good."""
    notebook = json.loads((folder / "_template.ipynb").read_text())
    first, parameters, settings = notebook["cells"][:3]
    wait = dict(settings, id="waits", source="import os, pathlib, threading\nif os.environ.get('WORKBENCH_RUN_DIR'):\n"
                "    pathlib.Path('kernel').write_text(str(os.getpid()))\n    threading.Event().wait()")  # fmt: skip
    settings["source"] = [line.replace('"template"', '"waits"') for line in settings["source"]]
    notebook["cells"] = [first, parameters, settings, wait]
    (folder / "90_waits.ipynb").write_text(json.dumps(notebook))


def evil_run(out: Path) -> None:
    """A run whose every text is markup that would tell if it ran."""
    run = run_folder.start_run("start_here", out, config={"event_log": EVIL}, command="workbench run start_here")
    run.write_table(OPERATORS, pl.DataFrame({"operator": [EVIL, "b"], "time_s": [1.0, None]}))
    run.record |= {"verdict": "invalid", "reasons": [EVIL], "answer": EVIL}
    run.report.write_text(f"<!doctype html><title>x</title><p>a report</p>{EVIL}", encoding="utf-8")
    run.end("succeeded")


def column(one: Opened, index: int) -> list[str]:
    """The texts of a column of the shown result table."""
    return one.page.locator(f".wb-panel .widget-tab .wb-grid tbody td:nth-child({index})").all_inner_texts()


def chosen_by_keyboard(one: Opened) -> None:
    """Another log, by keys alone: Browse, up and down, into a folder, choose."""
    browse = one.panel.get_by_role("button", name="Browse…")
    browse.focus()
    browse.press("Enter")
    entries = one.panel.locator(".wb-picker select")
    entries.wait_for()
    entries.focus()
    label = one.page.evaluate("[...document.querySelectorAll('.wb-picker option')].map(one => one.textContent)")
    entries.press("Home")
    for _ in range(next(index for index, name in enumerate(label) if "failing.zstd" in name)):
        entries.press("ArrowDown")
    choose = one.panel.get_by_role("button", name="Choose", exact=True)
    choose.focus()
    choose.press("Enter")
    entries.wait_for(state="detached")
    assert one.panel.get_by_label("event_log", exact=True).input_value() == "../data/samples/eventlogs/failing.zstd"


def test_a_log_picked_by_keyboard_is_run_to_a_report_and_its_tables_sort_and_filter(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "00_start_here.ipynb", scheme="dark") as one:
        one.run_all()
        chosen_by_keyboard(one)
        one.panel.get_by_role("button", name="Run and make report").click()
        one.panel.get_by_text(re.compile(r"cell \d+ of \d+ · ")).wait_for()
        one.panel.get_by_text("Done after").wait_for()
        frame = one.page.frame_locator(".wb-panel iframe")
        frame.get_by_role("heading", name="What can this workbench answer?").first.wait_for()
        frame.locator("figure.chart svg g.root").first.wait_for()
        controls_of_report(one, frame)
        assert frame.locator("a.beside").count() == 0  # nothing lies beside a frame
        report_in_a_tab(one)
        one.panel.get_by_role("tab", name="Tables").click()
        one.panel.locator(".wb-grid caption", has_text="overview").wait_for()
        command = one.panel.locator(".wb-copy code").inner_text()
        # By its path: this is a copy, and by its name the checkout's own would be run.
        copy = lab.notebooks / "00_start_here.ipynb"
        assert command == f"workbench run {copy} -p event_log=../data/samples/eventlogs/failing.zstd"
        choose_evil(one)
        one.fine()


def controls_of_report(one: Opened, report: Page | FrameLocator) -> None:
    """Contents and files of a chart do what they say, in the panel's frame and in a tab."""
    page = report if isinstance(report, Page) else one.page
    contents = report.locator("nav.contents details")
    if contents.get_attribute("open") is None:
        contents.locator("summary").click()
    contents.get_by_role("link").last.click()
    report.get_by_role("heading", name="What can this workbench answer?").first.wait_for(state="attached")
    for name in ("CSV", "PNG", "SVG"):
        with page.expect_download() as kept:
            report.get_by_role("button", name=re.compile(f"^Download .* as {name}$")).first.click()
        assert kept.value.suggested_filename.endswith(f".{name.lower()}")


def report_in_a_tab(one: Opened) -> None:
    """Open report: all of it works there, too, and leads to the gallery; who has not logged in gets nothing."""
    link = one.panel.get_by_role("link", name="Open report").first
    with one.page.context.expect_page() as opened:
        link.click()
    tab = opened.value
    tab.locator("figure.chart svg g.root").first.wait_for()
    controls_of_report(one, tab)
    tab.locator("details:has(a.beside)").evaluate("one => { one.open = true; }")
    with tab.expect_download() as kept:
        tab.get_by_role("link", name="overview", exact=True).click()
    assert pl.read_parquet(kept.value.path()).height == 1
    address = tab.url.split("#")[0]
    tab.get_by_role("link", name="All reports").click()
    tab.get_by_role("link", name="What can this workbench answer?").first.wait_for()
    tab.close()
    assert address.startswith(f"{one.lab.address}/workbench-runs/start_here/")
    with urllib.request.urlopen(address) as answer:
        assert answer.url.startswith(f"{one.lab.address}/login")


def choose_evil(one: Opened) -> None:
    """The evil run, by its row: it is shown as text, sorted, filtered, and nothing of it runs."""
    one.panel.locator(ROWS, has_text="invalid").locator("button").click()
    one.page.frame_locator(".wb-panel iframe").get_by_text("a report").wait_for(state="attached")
    one.panel.locator(".widget-tab .wb-grid").get_by_text("2 rows").wait_for()
    assert column(one, 1) == [EVIL, "b"]
    header = one.panel.get_by_role("columnheader", name="time (s)").get_by_role("button")
    header.press("Enter")
    header.press("Enter")
    assert one.panel.get_by_role("columnheader", name="time (s)").get_attribute("aria-sort") == "descending"
    assert column(one, 2) == ["1", "–"]  # what is missing stays last
    one.panel.locator(".widget-tab .wb-grid input").fill("b")
    one.panel.get_by_text("1 of 2 rows").wait_for()
    assert column(one, 1) == ["b"]
    assert one.panel.get_by_label("event_log", exact=True).input_value() == EVIL
    # The report's frame tried this page and the network, and was refused; nothing else was said.
    assert one.page.evaluate("top.evil") is None
    refusals = ('Blocked a frame with origin "null"', 'Content Security Policy directive: "img-src data:"')
    assert [text for text in one.complaints if not any(refusal in text for refusal in refusals)] == []
    assert [refusal for refusal in refusals if not any(refusal in text for text in one.complaints)] == []
    one.complaints.clear()


def test_a_run_is_found_again_after_a_restart_of_the_kernel_and_cancelled(lab: Lab, browser: Browser) -> None:
    with labs.opened(browser, lab, "90_waits.ipynb") as one:
        one.run_all()
        one.panel.get_by_role("button", name="Run and make report").click()
        one.panel.get_by_text(re.compile(r"cell 4 of 4 · ")).wait_for()
        one.panel.evaluate("one => { one.id = 'of-the-old-kernel'; }")
        one.menu("Kernel", "Restart Kernel and Run All Cells…")
        one.page.get_by_role("button", name="Confirm Kernel Restart").click()
        # The old kernel's panel looks alike, and does nothing any more; it goes with its cell's output.
        one.page.locator(".wb-panel:not(#of-the-old-kernel)").wait_for()
        one.panel.get_by_text(re.compile(r"cell 4 of 4 · ")).wait_for()
        (run,) = run_control.list_recent_runs(lab.out, ["waits"])
        assert find_holder(run.folder)
        kernel = psutil.Process(int((lab.notebooks / "kernel").read_text()))
        one.panel.get_by_role("button", name="Cancel").click()
        one.panel.get_by_text("Cancelled after").wait_for()
        psutil.wait_procs([kernel], timeout=60)
        assert not kernel.is_running()
        assert run_folder.load_run(run.folder).status == "cancelled"
        one.panel.locator(ROWS, has_text="cancelled").wait_for()
        one.fine()
