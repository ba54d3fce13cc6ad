"""The committed notebook works live: opened in JupyterLab without a network, its charts draw and answer."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route

from tests.conftest import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.notebook, pytest.mark.timeout(300)]
CHOICES = ".jp-OutputArea .vega-bindings select"
# The label that a reader sees on the first slider of the what-if, and the figure of the waterfall's prediction.
PREDICTED = """() => { const charts = [...document.querySelectorAll('.jp-OutputArea .vega-embed')].filter(one =>
    one.querySelector('.vega-bindings select')); const words = charts.map(one => one.querySelector('svg').textContent);
    return words.join(); }"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a running JupyterLab on a copy of the notebooks, as `workbench lab` starts it."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "notebooks", checkout / "notebooks")
    shutil.copytree(ROOT / "data" / "samples" / "speedup", checkout / "data" / "samples" / "speedup")
    env = os.environ | {"WORKBENCH_OUT": str(tmp_path / "runs"), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    env.pop("WORKBENCH_RUN_DIR", None)
    options = ["--no-browser", "--ip=127.0.0.1", "--ServerApp.port=0"]
    command = [sys.executable, "-m", "workbench", "lab", "--notebooks", str(checkout / "notebooks"), *options]
    server = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert server.stderr is not None
    try:
        # The server says its address, with its token, once it listens.
        found = (re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", line) for line in server.stderr)
        yield next(match[0] for match in found if match)
    finally:
        server.send_signal(signal.SIGINT)
        server.stderr.close()
        server.wait(60)


def test_the_speedup_notebook_runs_live_with_charts_and_controls_and_no_network(lab: str, browser: Browser) -> None:
    foreign: list[str] = []

    def only_here(route: Route) -> None:
        url = route.request.url
        if url.startswith(("http://127.0.0.1", "data:", "blob:")):
            route.continue_()
        else:
            foreign.append(url)
            route.abort()

    # The session's browser: a process can run only one.
    with contextlib.closing(browser.new_context(viewport={"width": 1400, "height": 1200})) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.context.route("**/*", only_here)
        page.goto(lab.replace("/lab?", "/lab/tree/01_speedup.ipynb?"))
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        # Cells that are run before their kernel stands make JupyterLab ask for one.
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).first.click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_selector(".jp-OutputArea .wb-answer")
        page.get_by_text("Invariants; a broken one stops the notebook").wait_for(state="attached")
        # Cells below the window are drawn when they are scrolled to.
        page.locator(CHOICES).scroll_into_view_if_needed()
        handle = page.locator(".jupyter-widgets .noUi-handle").first
        handle.scroll_into_view_if_needed()
        before = page.evaluate(PREDICTED)
        assert "predicted" in before
        handle.focus()
        handle.press("ArrowRight")
        page.get_by_text("set by hand").wait_for(state="attached")
        page.get_by_text("; with the measured factors").wait_for(state="attached")
        page.wait_for_function(f"before => ({PREDICTED})() !== before", arg=before)
        page.get_by_role("button", name="Back to the measured factors").click()
        page.get_by_text("; with the measured factors").wait_for(state="detached")
        page.wait_for_function(f"before => ({PREDICTED})() === before", arg=before)
        if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / "jupyterlab.png")
        assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert foreign == []
