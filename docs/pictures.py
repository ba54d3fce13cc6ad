"""Make the pictures of README.md: run the notebooks on the sample logs and photograph what a reader sees.

    python docs/pictures.py

Pictures are generated and never edited by hand. Needs Chromium; takes less than a minute on two cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs import live_picture  # noqa: E402
from tests.browser import pages  # noqa: E402 - the script is called by its path
from workbench.execution import discovery, runner  # noqa: E402
from workbench.report import gallery  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# What is photographed of each page, from its top: of a report the sentence and the chart that carry the answer.
SIZES_PX = {
    "report": (1000, 775),
    "eventlog": (1000, 900),
    "lore": (1000, 775),
    "sizing": (1000, 900),
    "indicators": (1000, 1000),
    "scaletest": (1000, 900),
    "capacity_plan": (1000, 1000),
    "gallery": (1000, 690),
    "live": (1400, 1100),  # of the panel in JupyterLab, by live_picture.py
}
AREAS = ("lore", "sizing", "indicators", "scaletest", "capacity_plan")
LOG = "data/samples/eventlogs/tpch_sf0.1.zstd"
LARGEST_BYTES = 250_000


def main() -> int:
    """Make all pictures; exit code 1 when one is larger than the repository should carry."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, pages.chromium_browser() as browser:
        out = Path(name)
        results = runner.run_notebooks(discovery.resolve_notebooks(["all"]), out=out / "all")
        pages_of = {one.run.area: one.run.report for one in results}
        sources = {"report": pages_of["speedup"], **{area: pages_of[area] for area in AREAS}}
        (profile,) = runner.run_notebooks(
            discovery.resolve_notebooks(["speedup"]), {"event_log": str(ROOT / LOG)}, out=out / "log"
        )
        sources["eventlog"] = profile.run.report
        sources["gallery"] = gallery.write_gallery(out / "all")
        sizes = [photograph(browser, source, name) for name, source in sources.items()]
        sizes.append(live_picture.take(browser, IMAGES / "live.png"))
    return 1 if max(sizes) > LARGEST_BYTES else 0


def photograph(browser: Browser, source: Path, name: str) -> int:
    """Photograph the top of a page; give the size of the picture in bytes."""
    target = IMAGES / f"{name}.png"
    width, height = SIZES_PX[name]
    with pages.watched(browser, width=width) as seen:
        page = seen.open(source)
        height = min(height, int(page.evaluate("document.body.scrollHeight")))
        page.set_viewport_size({"width": width, "height": height})
        pages.wait_drawn(page)
        page.screenshot(path=target)
        seen.assert_quiet()
    size_bytes = target.stat().st_size
    sys.stdout.write(f"{target.relative_to(ROOT)}: {size_bytes:,} bytes\n")
    return size_bytes


if __name__ == "__main__":
    sys.exit(main())
