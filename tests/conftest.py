"""What holds for the whole suite: which kinds of tests this machine cannot run, and which of these it must.

`pytest` alone is the gate, by the markers of `addopts`; `pytest -m ""` is everything (tests/README.md).
`WORKBENCH_MUST_RUN=spark,browser` turns a skip of those kinds into a failure: CI sets it, so that a missing tool can
never pass as a green run.
"""

from __future__ import annotations

import gc
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


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _reason_to_skip(item: pytest.Item) -> str | None:
    if item.get_closest_marker("browser") and not chromium():
        return "no Chromium on PATH (apt-get install chromium)"
    if item.get_closest_marker("spark") and not importlib.util.find_spec("pyspark"):
        return "pyspark is not installed (pip install -r requirements.lock)"
    return None


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker has what its controller set
    # An archive of Spark's classes takes half a minute to make: not for the one Spark of the gate.
    is_gate = config.option.markexpr.startswith("smoke")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", jvm.options(make=not is_gate))
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.QUICK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The real parts take longest: begun first, no core is idle while the last of them is under way.
    items.sort(key=lambda item: item.get_closest_marker("smoke") is None)


def pytest_collection_finish() -> None:
    # Thousands of tests with their modules stay to the end: no collection need look at them again.
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if reason := _reason_to_skip(item):
        pytest.skip(reason)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    report = (yield).get_result()
    must = {mark.name for mark in item.iter_markers()} & MUST_RUN
    if report.skipped and must and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{', '.join(sorted(must))} must run here (WORKBENCH_MUST_RUN), but: {reason}"


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
