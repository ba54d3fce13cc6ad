"""Open a page in Chromium without a window, wait until its charts are drawn, and scroll to its end.

python -m bench.page_opening FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.browser import pages

if __name__ == "__main__":
    with pages.chromium_browser() as browser, pages.watched(browser) as seen:
        page = seen.open(Path(sys.argv[1]))
        page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        page.screenshot()
