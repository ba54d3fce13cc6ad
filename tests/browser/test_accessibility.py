"""axe-core finds nothing serious on a report and the gallery; a tier of its own, since it comes from npm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import axe, pages
from tests.browser.test_reading import long_report  # noqa: F401 - a fixture
from tests.conftest import chromium
from workbench import report as reports

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on PATH (apt-get install chromium)"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_a_report_and_the_gallery(
    browser: Any,
    long_report: Path,  # noqa: F811
    report: Path,
    scheme: str,
) -> None:
    index = Path(reports.write_gallery(long_report.parents[2]))
    for path in (long_report, report, index):
        with pages.watched(browser, scheme=scheme, width=1440) as seen:
            assert axe.find_violations(seen.open(path)) == [], path
