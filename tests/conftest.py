"""Tiers: a test names its tier by a marker; a tier that this machine cannot run is skipped, counted and named.

`WORKBENCH_MUST_RUN=spark,spark4,browser,notebook` turns a skip in those tiers into a failure: CI sets it, so that a
missing tool can never pass as a green run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import jvm

MUST_RUN = {name for name in os.environ.get("WORKBENCH_MUST_RUN", "").replace(" ", "").split(",") if name}
ROOT = Path(__file__).parents[1]
# The same examples in every run, and no limit on the time of one: a busy machine must fail nobody's change.
settings.register_profile("workbench", deadline=None, derandomize=True, database=None)
settings.load_profile("workbench")
SAMPLES = ROOT / "data" / "samples"
SHARED = Path(os.environ.get("WORKBENCH_SHARED", ROOT.parent / "shared"))
# Files of minutes, begun before all others, so that no core is idle while the last of them is under way.
LONG = (
    "lore/test_matrix.py",
    "lore/test_failing_and_bisect.py",
    "test_guides.py",
    "lore/test_local_cluster.py",
    "browser/test_jupyterlab.py",
    "speedup/test_planted.py",
    "sizing/test_scenarios.py",
    "lore/test_matrix_quick.py",
    "test_environment.py",
    "browser/test_jupyterlab_panel.py",
    "test_faults.py",
)


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


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker has what its controller set
    chosen = jvm.options(make=bool(getattr(config.option, "numprocesses", None)))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", chosen)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.QUICK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


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


@pytest.fixture
def usual_ctrl_c() -> Iterator[None]:
    """Ctrl-C as Python has it: another test's Spark leaves a handler of its own behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.default_int_handler)
