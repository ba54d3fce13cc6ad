"""Photograph the live panel for docs/guide/live.md: JupyterLab on 00_start_here after a run from the panel.

`take` is called by docs/pictures.py; it needs Chromium and takes half a minute.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser import labs

SIZE_PX = (1400, 1100)
# A command that was copied names the notebook's folder, which is one of this machine.
SHORTEN = "one.textContent = one.textContent.replace(/\\S*\\/(?=notebooks\\/)/, '')"


def take(browser: Browser, target: Path) -> int:
    """Run the first notebook from its panel, photograph the page; give the picture's bytes."""
    with (
        tempfile.TemporaryDirectory() as name,
        labs.started(Path(name)) as lab,
        labs.opened(browser, lab, "00_start_here.ipynb") as one,
    ):
        one.run_all()
        one.panel.get_by_role("button", name="Run and make report").click()
        one.panel.get_by_text("Done after").wait_for()
        one.page.frame_locator(".wb-panel iframe").locator("figure.chart svg g.root").first.wait_for()
        # The folder of this machine's run is nobody's business.
        one.page.evaluate("document.querySelectorAll('.wb-panel p.wb-help').forEach(one => one.remove())")
        one.page.evaluate(f"document.querySelectorAll('.wb-panel code').forEach(one => {SHORTEN})")
        one.panel.evaluate("one => one.scrollIntoView({ block: 'start' })")
        one.page.screenshot(path=target)
        one.fine()
    return target.stat().st_size
