"""A cache of a test's own, and programs that only pretend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.scaletest.local_cluster import program_builds


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache is empty and elsewhere, and no program of a control plane is given."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv(program_builds.VARIABLE, raising=False)
    return folder / "workbench"


@pytest.fixture
def script() -> Callable[[Path, str], Path]:
    """Writes an executable shell script."""

    def write(path: Path, body: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write
