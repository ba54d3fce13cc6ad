"""An environment without any index but the test's own, and caches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.indicators.stacks.making import SMALL, Served, local_index, own_settings, served
from workbench.indicators.stacks.uv_tool import Sources


@pytest.fixture(autouse=True)
def _own_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the user's: no index, no caches, no configuration; tests of the real index keep what they need."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if not request.node.get_closest_marker("network"):
        own_settings(monkeypatch, tmp_path)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """A local index of three packages that do not all go together."""
    sources = Sources((local_index(tmp_path / "index", SMALL).as_uri(),))
    monkeypatch.setenv("UV_DEFAULT_INDEX", sources.indexes[-1])
    return sources


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    """Serve an index until the test ends, and configure it."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(*arguments: object, **options: object) -> Served:
            index = stack.enter_context(served(*arguments, **options))  # type: ignore[arg-type]
            monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
            return index

        yield start
