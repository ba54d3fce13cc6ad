"""Tiers: a test names its tier by a marker; a tier that this machine cannot run is skipped, counted and named.

`WORKBENCH_MUST_RUN=spark,spark4,browser,notebook` turns a skip in those tiers into a failure: CI sets it, so that a
missing tool can never pass as a green run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

MUST_RUN = {name for name in os.environ.get("WORKBENCH_MUST_RUN", "").replace(" ", "").split(",") if name}
ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data" / "samples"
SHARED = Path(os.environ.get("WORKBENCH_SHARED", ROOT.parent / "shared"))


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _reason_to_skip(item: pytest.Item) -> str | None:
    if item.get_closest_marker("browser") and not chromium():
        return "no Chromium on PATH (apt-get install chromium)"
    needs_spark = any(map(item.get_closest_marker, ("spark", "spark4", "comet")))
    if needs_spark and not importlib.util.find_spec("pyspark"):
        return "pyspark is not installed (pip install -r requirements.lock)"
    if item.get_closest_marker("spark4"):
        from tests.lore import spark4

        if spark4.java_home() is None:
            return f"no full JDK of {spark4.OLDEST_JAVA} or newer (apt-get install openjdk-17-jdk-headless)"
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := _reason_to_skip(item):
        pytest.skip(reason)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    report = (yield).get_result()
    tiers = {mark.name for mark in item.iter_markers()} & MUST_RUN
    if report.skipped and tiers and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"tier {', '.join(sorted(tiers))} must run here (WORKBENCH_MUST_RUN), but: {reason}"


@pytest.fixture
def shared() -> Path:
    """Inputs and golden outputs of other people's making; absent outside the developers' machines."""
    if not SHARED.is_dir():
        pytest.skip("reference inputs are not on this machine")
    return SHARED
