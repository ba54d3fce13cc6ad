"""Real logs with golden files (of the developers' machines), and small ones made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools import made
from workbench.cli import app

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def golden(shared: Path) -> Path:
    return shared / "golden" / "speedup"


@pytest.fixture
def logs(shared: Path) -> Path:
    return shared / "data" / "eventlogs"


@pytest.fixture
def cpu_log(tmp_path: Path) -> Path:
    path = tmp_path / "cpu_log"
    path.write_bytes(made.cpu())
    return path


@pytest.fixture
def gpu_log(tmp_path: Path) -> Path:
    path = tmp_path / "gpu_log"
    path.write_bytes(made.gpu())
    return path


@pytest.fixture
def speedup(capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app.main(["speedup", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call
