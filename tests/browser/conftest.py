from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import labs, pages, samples


# Not for the session: as long as it is open, its event loop runs in this thread, and no other could.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with pages.chromium_browser() as one:
        yield one


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[labs.Lab]:
    """One JupyterLab on the notebooks, for all tests that want one."""
    with labs.started(tmp_path_factory.mktemp("lab")) as one:
        yield one


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: the CI's output, or the test's own folder; never the checkout."""
    folder = Path(os.environ.get("WORKBENCH_SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.write_sample_report(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages that are closed, and found quiet, when the test ends."""
    with contextlib.ExitStack() as stack:
        opened = []

        def opens(path: Path, **options: Any) -> Any:
            seen = stack.enter_context(pages.watched(browser, **options))
            opened.append(seen)
            return seen.open(path)

        yield opens
        for seen in opened:
            seen.assert_quiet()
