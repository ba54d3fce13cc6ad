"""A JupyterLab for tests, as `workbench lab` starts it, and a reader's hands in its pages."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route

from tests.conftest import ROOT

WAIT_MS = 480_000
"""Only guards against hanging: 02_lore starts three Sparks, on a machine that may be busy."""
SETTINGS = {
    # Cells below the window are otherwise made when they are scrolled to, and could not be looked at together.
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/themes": {"adaptive-theme": True},
}
BOXES = "document.querySelectorAll('.jp-OutputArea div[id^=\"wb-\"]')"
# What cells write to stderr, and their errors: both are shown so.
STDERR = "[data-mime-type='application/vnd.jupyter.stderr']"
FAILED = f'document.querySelector("{STDERR}")'
NOTEBOOK = "[...window.jupyterapp.shell.widgets('main')].find(one => one.content?.widgets).content"
# The numbers of the code cells that are not empty; 0 for one that has not run or still does.
NUMBERS = f"""{NOTEBOOK}.widgets.map(one => one.model)
    .filter(one => one.type === 'code' && one.sharedModel.getSource().trim()).map(one => one.executionCount || 0)"""
DRAWN = f"[...{BOXES}].every(box => box.querySelector('svg g.root'))"


@dataclass
class Lab:
    """A running server: its address without a path, its token, the folder of its notebooks, where its runs go."""

    address: str
    token: str
    notebooks: Path
    out: Path


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Lab]:
    """JupyterLab on a copy of the notebooks beside the samples, until the block ends."""
    checkout, config = folder / "checkout", folder / "config"
    shutil.copytree(ROOT / "notebooks", checkout / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (checkout / "data").mkdir()
    (checkout / "data" / "samples").symlink_to(ROOT / "data" / "samples")
    for name, values in SETTINGS.items():
        path = config / "lab" / "user-settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    env = os.environ | {"WORKBENCH_OUT": str(folder / "runs"), "JUPYTER_CONFIG_DIR": str(config)}
    env.pop("WORKBENCH_RUN_DIR", None)
    options = ["--no-browser", "--ip=127.0.0.1", "--ServerApp.port=0", "--LabApp.expose_app_in_browser=True"]
    command = [sys.executable, "-m", "workbench", "lab", "--notebooks", str(checkout / "notebooks"), *options]
    with open(folder / "log", "w") as log:
        server = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert server.stderr is not None
        try:
            # The server says its address, with its token, once it listens; whoever does not read on would block it.
            found = (re.search(r"(http://127\.0\.0\.1:\d+)(/\S*)\?token=(\w+)", line) for line in server.stderr)
            match = next(match for match in found if match)
            assert match[2] == "/lab/tree/00_start_here.ipynb", "it opens on the first notebook"
            drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=log)
            yield Lab(match[1], match[3], checkout / "notebooks", folder / "runs")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(60)
            server.stderr.close()
        drain.wait(60)


@dataclass
class Opened:
    """One notebook in a page, with all that the page complained of."""

    page: Page
    lab: Lab
    complaints: list[str] = field(default_factory=list)

    def heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def only_here(self, route: Route) -> None:
        """The network is cut: only this machine's server answers."""
        url = route.request.url
        if url.startswith((self.lab.address, "data:", "blob:")):
            route.continue_()
        else:
            self.complaints.append(f"asked for {url}")
            route.abort()

    def menu(self, menu: str, item: str) -> None:
        """Choose a menu's item."""
        self.page.get_by_role("menuitem", name=menu, exact=True).first.click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def idle(self) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.get_by_text("Python (workbench) | Idle").wait_for()

    def run_all(self) -> None:
        """Run all cells and wait until the last one has its number, or one has failed."""
        self.idle()
        before = self.page.evaluate(NUMBERS)
        self.menu("Run", "Run All Cells")
        self.ran(before)

    def ran(self, before: list[int]) -> None:
        """Wait until the last cell that is not empty has a new number; none may have failed."""
        done = f"before => {FAILED} || Math.max(...before) < ({NUMBERS}).at(-1)"
        self.page.wait_for_function(done, arg=before)
        self.fine()

    def fine(self) -> None:
        """No cell failed or wrote to stderr, and the page complained of nothing."""
        assert self.page.locator(STDERR).all_inner_texts() == []
        assert self.complaints == []

    def charts_drawn(self) -> int:
        """Wait until every chart of the notebook is drawn; how many there are."""
        self.page.wait_for_function(f"() => {DRAWN}")
        return int(self.page.evaluate(f"{BOXES}.length"))

    @property
    def panel(self) -> Locator:
        """The panel of the notebook's settings."""
        return self.page.locator(".wb-panel")

    def set(self, name: str, text: str) -> None:
        """Type into a field of the panel's form and leave it; its group is opened where it is folded."""
        place = self.panel.get_by_label(name, exact=True)
        # Handles of the buttons themselves: a locator by the sign would count again once the first has changed its own.
        folded = self.panel.locator(".wb-fold", has_text="▸").element_handles() if not place.is_visible() else ()
        for fold in folded:
            fold.click()
        place.fill(text)
        place.press("Tab")

    def run_below_panel(self) -> None:
        """Run the panel's cell and all below, as the notebook says."""
        panel = f"{NOTEBOOK}.widgets.findIndex(one => one.node.querySelector('.wb-panel'))"
        self.page.evaluate(f"() => {{ {NOTEBOOK}.activeCellIndex = {panel}; }}")
        before = self.page.evaluate(NUMBERS)
        self.menu("Run", "Run Selected Cell and All Below")
        self.ran(before)


@contextlib.contextmanager
def opened(browser: Browser, lab: Lab, name: str, *, scheme: str = "light", width_px: int = 1400) -> Iterator[Opened]:
    """A notebook in a page whose network is cut; its kernel is gone afterwards."""
    context = browser.new_context(viewport={"width": width_px, "height": 1100}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    one = Opened(page, lab)
    page.on("console", one.heard)
    page.on("pageerror", lambda error: one.complaints.append(str(error)))
    page.on("dialog", lambda dialog: one.complaints.append(f"dialog: {dialog.message}"))
    context.route("**/*", one.only_here)
    try:
        # A workspace of its own: the first notebook would open beside it.
        page.goto(f"{lab.address}/lab/workspaces/{Path(name).stem}/tree/{name}?token={lab.token}")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        one.idle()
        yield one
        if shots := os.environ.get("WORKBENCH_SCREENSHOTS"):
            page.screenshot(path=Path(shots) / f"lab-{Path(name).stem}-{scheme}.png")
    finally:
        headers = {"Authorization": f"token {lab.token}"}
        for session in page.request.get(f"{lab.address}/api/sessions", headers=headers).json():
            page.request.delete(f"{lab.address}/api/sessions/{session['id']}", headers=headers)
        context.close()
