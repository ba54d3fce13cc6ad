"""Open every report of a gallery offline and check that its charts were drawn and answer to a reader's hand.

    python tests/browser/check_reports.py DIR

Every numbered notebook must have a good report below DIR. Screenshots go to $WORKBENCH_SCREENSHOTS when it is set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from docs import pictures  # noqa: E402
from tests.browser import pages  # noqa: E402 - the script is called by its path
from workbench.cli import demo  # noqa: E402 - as above
from workbench.core.formats import MAX_ANSWER_CHARS  # noqa: E402 - as above
from workbench.runs import run_folder  # noqa: E402

# A report is mailed.
MAX_PAGE_BYTES = 1_500_000


def main(folder: Path) -> int:
    """Check all reports below the folder and the gallery; print what was seen."""
    wanted = {path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    found = {run.record["notebook"]: run for run in reversed(run_folder.list_run_folders(folder))}
    if missing := wanted - set(found):
        print(f"no report of {', '.join(sorted(missing))} below {folder}")
        return 1
    with pages.chromium_browser() as browser:
        for name in sorted(wanted):
            run = found[name]
            assert run.status == "succeeded", f"{name}: {run.status}"
            assert run.verdict == "valid", f"{name}: {run.verdict}"
            answer = run.answer or ""
            assert 0 < len(answer) <= MAX_ANSWER_CHARS, f"{name}: an answer of {len(answer)} characters: {answer}"
            assert not set(answer) & set("()[]"), f"{name}: brackets in the answer: {answer}"
            size = run.report.stat().st_size
            assert size <= MAX_PAGE_BYTES, f"{name}: {size:,} bytes, at most {MAX_PAGE_BYTES:,} are allowed"
            print(f"{name}: {examine(browser, run.report)}, {size / 1e6:.2f} MB")
        with pages.watched(browser) as seen:
            seen.page.goto((folder / "index.html").resolve().as_uri())
            thumbnails = seen.page.locator("img").count()
            assert thumbnails >= len(wanted), f"the gallery shows {thumbnails} pictures"
            keep(seen.page, "gallery")
            seen.assert_quiet()
    print(f"gallery: {thumbnails} pictures")
    readme = (ROOT / "README.md").read_text()
    stale = [name for name in demo.NOTEBOOKS if f"\n  {found[name + '.ipynb'].answer}\n" not in readme]
    assert not stale, f"README.md shows other answers of {', '.join(stale)}: paste those of workbench demo"
    if old := pictures.list_old_pictures(folder):
        made = folder.parent / "images"
        pictures.make_pictures(folder, made)
        print(f"docs/images shows other answers or another look: {', '.join(old)}")
        print(f"copy the new pictures there from {made.name}/, or run: python docs/pictures.py")
        return 1
    print("docs/images: pictures of these answers")
    return 0


def examine(browser: Browser, path: Path) -> str:
    """One report: everything drawn, nothing asked for, brushes and sliders change what is drawn."""
    name = path.parent.parent.name
    with pages.watched(browser) as seen:
        marks = pages.check_report(seen.page, path)
        keep(seen.page, name)
        pages.toggle_mode(seen.page)
        keep(seen.page, f"{name}-dark")
        pages.toggle_mode(seen.page)
        specs = pages.specs(seen.page)
        brushed = [index for index, spec in enumerate(specs) if "vconcat" in spec and has_brush(spec)]
        slid = [index for index in range(len(specs)) if seen.page.locator(f"#chart-{index} input[type=range]").count()]
        for index in brushed:
            brush(seen.page, index, marks[index])
        for index in slid:
            slide(seen.page, index, marks[index])
        pages.resize(seen.page, 360)
        keep(seen.page, f"{name}-360px")
        seen.assert_quiet()
    total = sum(sum(of_chart.values()) for of_chart in marks)
    acted = f"{len(brushed)} brushed, {len(slid)} sliders moved"
    return f"{len(marks)} charts, {total:,} marks, {acted}, no request, no error"


def has_brush(spec: dict[str, Any]) -> bool:
    """Whether a reader can drag over the chart; views below each other may also do without."""
    return any("interval" in str(one.get("select")) for one in spec.get("params", []))


def brush(page: Page, index: int, marks: dict[str, int]) -> None:
    """Brushing the overview must change how many marks the detail shows."""
    detail = max(marks, key=lambda name: marks[name])
    pages.brush(page, index, 0.3, 0.5)
    after = pages.wait_marks_change(page, index, detail, marks[detail])
    assert 0 < after < marks[detail], f"chart {index}: {marks[detail]} marks, {after} after the brush"


def slide(page: Page, index: int, marks: dict[str, int]) -> None:
    """Moving each slider to its least must change what is drawn, where there is more than one mark to change."""
    if max(marks.values()) <= 1:
        return
    for which in range(page.locator(f"#chart-{index} input[type=range]").count()):
        before = pages.drawing(page, index)
        pages.set_slider(page, index, 1, which=which)  # below the least, a slider stops at it
        pages.wait_drawing_change(page, index, before)


def keep(page: Page, name: str) -> Any:
    """A screenshot for whoever looks at CI's output."""
    if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
