"""Tiers: a test names its tier by a marker; a tier that this machine cannot run is skipped, counted and named.

`WORKBENCH_TESTS=most`, which `make test` sets, leaves out what tests/tiers.py calls exhaustive.
`WORKBENCH_MUST_RUN=spark,spark4,browser,notebook` turns a skip in those tiers into a failure: CI sets it, so that a
missing tool can never pass as a green run.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import jvm, tiers, times

MUST_RUN = {name for name in os.environ.get("WORKBENCH_MUST_RUN", "").replace(" ", "").split(",") if name}
ROOT = Path(__file__).parents[1]
# The same examples in every run, and no limit on the time of one: a busy machine must fail nobody's change.
settings.register_profile("workbench", deadline=None, derandomize=True, database=None)
settings.load_profile("workbench")
SAMPLES = ROOT / "data" / "samples"
OVER_BUDGET = "begun no more: the time budget of this call is used up"
STARTED = pytest.StashKey[float]()
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


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker has what its controller set
    if config.getoption("--green-cache"):
        config.pluginmanager.register(_Areas(config))
    chosen = jvm.options(make=bool(getattr(config.option, "numprocesses", None)))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", chosen)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", jvm.QUICK)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--time-budget", type=float, metavar="S", help="begin no test after so many seconds")
    parser.addoption("--green-cache", type=Path, metavar="FILE", help="note areas whose exhaustive tests all passed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if tiers.is_exhaustive(item.nodeid, {mark.name for mark in item.iter_markers()}):
            item.add_marker("exhaustive")
    if tiers.TIER == "most":
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    # The long ones first, so that no core is idle while the last of them is under way; areas one after the other where
    # they are counted.
    spent = times.read_times()
    by_area = config.getoption("--green-cache") is not None
    order = {item.path: -spent.get(item.path.relative_to(ROOT).as_posix(), 0.0) for item in items}
    items.sort(key=lambda item: (tiers.area_of(item.path.relative_to(ROOT)) if by_area else "", order[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker for each file, whose fixtures are then made once; and one for all files on the plain control plane.

    xdist's own groups are names in node ids, which pytest 9.2 no longer takes: each test went to any worker.
    """
    from xdist.scheduler import LoadScopeScheduling

    class FileScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "cluster" if _needs_cluster(file) else file

    return FileScheduling(config, log)


@functools.cache
def _needs_cluster(file: str) -> bool:
    path = ROOT / file
    return path.suffix == ".py" and "pytest.mark.cluster" in path.read_text(encoding="utf-8")


def pytest_collection_finish() -> None:
    # Ten thousand tests with their modules stay to the end: no collection need look at them again.
    gc.collect()
    gc.freeze()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[STARTED] = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget_s = item.config.getoption("--time-budget")
    if budget_s is not None and time.monotonic() - item.session.stash[STARTED] > budget_s:
        pytest.skip(OVER_BUDGET)
    if reason := _reason_to_skip(item):
        pytest.skip(reason)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, None, None]:
    report = (yield).get_result()
    must = {mark.name for mark in item.iter_markers()} & MUST_RUN
    if report.skipped and must and OVER_BUDGET not in str(report.longrepr) and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"tier {', '.join(sorted(must))} must run here (WORKBENCH_MUST_RUN), but: {reason}"


class _Areas:
    """Which areas' tests all passed; told to the controller alone."""

    def __init__(self, config: pytest.Config) -> None:
        self._cache: Path = config.getoption("--green-cache")
        self._bad: set[str] = set()
        self._stale = tiers.GreenCache(self._cache).list_stale_areas()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.skipped and OVER_BUDGET in str(report.longrepr)):
            self._bad.add(tiers.area_of(report.nodeid.partition("::")[0]))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        # 5: there was nothing to run. Anything else than that, passed and failed is no statement about any area.
        if exitstatus in (0, 1, 5):
            green = [name for name in self._stale if name not in self._bad]
            tiers.GreenCache(self._cache).add(green)
            not_yet = ", ".join(sorted(self._bad)) or "none"
            print(f"\nareas that passed: {', '.join(green) or 'none'}; not yet: {not_yet}")


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
