"""Make the pictures of README.md and the guides: photograph what a reader of the sample runs sees.

    python docs/pictures.py [RUNS]

RUNS is a folder with a run of every notebook, such as `make report OUT=RUNS` makes; without it they are run first.
Pictures are generated and never edited by hand. Each carries a digest of what its run said; the check of CI's reports
(tests/browser/check_reports.py) refuses pictures of other answers, and makes the new ones. Needs Chromium.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs import live_picture  # noqa: E402
from tests.browser import pages  # noqa: E402 - the script is called by its path
from workbench.charts.data import extract_title  # noqa: E402
from workbench.execution import discovery, runner  # noqa: E402
from workbench.report import gallery  # noqa: E402
from workbench.runs import catalogue  # noqa: E402

IMAGES = ROOT / "docs" / "images"
# Name of the picture: the notebook's area, and what is photographed of its report, from the top.
REPORTS = {
    "report": ("speedup", (1000, 1150)),
    "eventlog": ("profile", (1000, 900)),
    "lore": ("lore", (1000, 775)),
    "sizing": ("sizing", (1000, 900)),
    "indicators": ("indicators", (1000, 1000)),
    "scaletest": ("scaletest", (1000, 900)),
    "capacity_plan": ("capacity_plan", (1000, 1000)),
}
# First charts alone, for the README's table of questions.
CHARTS = ("speedup", "lore", "sizing", "indicators", "scaletest")
GALLERY, LIVE = "gallery", "live"
GALLERY_PX = (1400, 800)
LOOKS = {
    GALLERY: ("workbench/report/templates/gallery.js", "workbench/report/templates/page.css"),
    LIVE: ("workbench/live/static/live.css", "workbench/live/static/toolbar.js"),
}
LOOK_OF_REPORTS = ("workbench/report/templates/page.css", "workbench/charts/theme.py")
# Measured anew in each run: its answer depends on the machine.
MEASURED = ("lore",)
DIGEST = "shows"
LARGEST_BYTES = 250_000


def main(folder: str | None = None) -> int:
    """Make all pictures; exit code 1 when one is larger than the repository should carry."""
    with tempfile.TemporaryDirectory() as name:
        if folder is None:
            runner.run_notebooks(discovery.resolve_notebooks(["all"]), out=Path(name))
            gallery.write_gallery(Path(name))
        sizes = make_pictures(Path(folder or name), IMAGES)
    return 1 if max(sizes) > LARGEST_BYTES else 0


def make_pictures(folder: Path, images: Path) -> list[int]:
    """Photograph the newest runs below a folder; give the sizes of the pictures in bytes."""
    images.mkdir(parents=True, exist_ok=True)
    runs = find_runs(folder)
    with pages.chromium_browser() as browser:
        for name, (area, size_px) in REPORTS.items():
            photograph(browser, Path(runs[area].place) / catalogue.REPORT_FILE, images / f"{name}.png", size_px)
        for area in CHARTS:
            photograph_chart(browser, Path(runs[area].place) / catalogue.REPORT_FILE, images / f"chart-{area}.png")
        photograph(browser, folder / "index.html", images / f"{GALLERY}.png", GALLERY_PX)
        live_picture.take(browser, images / f"{LIVE}.png")
    for name, digest in list_digests(folder).items():
        sign(images / f"{name}.png", digest)
    sizes = {path: path.stat().st_size for path in images.glob("*.png")}
    sys.stdout.writelines(f"{path.name}: {size:,} bytes\n" for path, size in sorted(sizes.items()))
    return list(sizes.values())


def find_runs(folder: Path) -> dict[str, catalogue.StoredRun]:
    """The newest run of each area."""
    return {run.area: run for run in reversed(catalogue.list_runs(folder))}


def list_digests(folder: Path) -> dict[str, str]:
    """Digest of what each picture shows: words of the runs, and the files that give the pages their look.

    Figures count in the answer only, since the last digits of others may depend on the machine.
    """
    words = {area: list_words(run) for area, run in find_runs(folder).items()}
    shown = {name: ([words[area]], LOOK_OF_REPORTS) for name, (area, _) in REPORTS.items()}
    shown |= {f"chart-{area}": ([words[area]], LOOK_OF_REPORTS) for area in CHARTS}
    shown[GALLERY] = ([entry[:2] for _, entry in sorted(words.items())], LOOKS[GALLERY])
    shown[LIVE] = ([words["start_here"]], LOOKS[LIVE])
    texts = {
        name: json.dumps([said, [(ROOT / path).read_text() for path in files]]) for name, (said, files) in shown.items()
    }
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}


def list_words(run: catalogue.StoredRun) -> list[str]:
    """Question, answer, and the title of the first chart."""
    headline, charts = gallery.read_headline_and_charts(run)
    question = str(headline.get("question") or headline.get("heading"))
    answer = "" if run.area in MEASURED else str(headline.get("answer"))
    titles = [extract_title(spec)[0] for spec in charts[:1]]
    return [question, answer, *map(blank_digits, titles)]


def blank_digits(text: str) -> str:
    """A text without its figures.

    >>> blank_digits("19 GPUs, 1.5x")
    '# GPUs, #x'
    """
    return re.sub(r"\d[\d.,]*", "#", text)


def list_old_pictures(folder: Path) -> list[str]:
    """Names of pictures that show something else than the runs below the folder."""
    return [name for name, digest in list_digests(folder).items() if read_digest(IMAGES / f"{name}.png") != digest]


def read_digest(path: Path) -> str | None:
    """The digest that a picture carries; null without a picture or a digest."""
    if not path.is_file():
        return None
    with Image.open(path) as picture:
        digest = picture.info.get(DIGEST)
    return None if digest is None else str(digest)


def sign(path: Path, digest: str) -> None:
    """Write the digest into the picture."""
    told = PngImagePlugin.PngInfo()
    told.add_text(DIGEST, digest)
    with Image.open(path) as picture:
        picture.load()
        picture.save(path, pnginfo=told, optimize=True)


def photograph(browser: Browser, source: Path, target: Path, size_px: tuple[int, int]) -> None:
    """Photograph the top of a page."""
    width, height = size_px
    with pages.watched(browser, width=width) as seen:
        page = seen.open(source)
        height = min(height, int(page.evaluate("document.body.scrollHeight")))
        page.set_viewport_size({"width": width, "height": height})
        pages.wait_drawn(page)
        page.screenshot(path=target)
        seen.assert_quiet()


def photograph_chart(browser: Browser, source: Path, target: Path) -> None:
    """Photograph the first chart of a report, in the width of a column."""
    with pages.watched(browser, width=700) as seen:
        page = seen.open(source)
        pages.wait_drawn(page)
        page.locator("figure.chart").first.screenshot(path=target)
        seen.assert_quiet()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
