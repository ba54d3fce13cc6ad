"""The same on the real index with real packages; skipped, and counted, where it cannot be reached."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import pytest

from workbench.indicators.stacks import environments, stack_solver
from workbench.indicators.stacks.environments import ensure_environment
from workbench.indicators.stacks.stack_request import build_stack_request, parse_moment
from workbench.indicators.stacks.stack_sets import format_stack_set
from workbench.indicators.stacks.uv_tool import load_sources

pytestmark = [pytest.mark.network, pytest.mark.timeout(900)]
BEFORE = parse_moment("2025-06-30", "")


@pytest.fixture(autouse=True)
def _reachable() -> None:
    found = load_sources()
    if not found.indexes:
        pytest.skip("no package index is configured")
    try:
        with urllib.request.urlopen(f"{found.indexes[-1].rstrip('/')}/six/", timeout=20):
            pass
    except (OSError, ValueError) as error:
        pytest.skip(f"cannot reach the package index: {type(error).__name__}")


def test_a_grid_of_pandas_and_numpy_keeps_what_cannot_be_with_uvs_reason() -> None:
    request = build_stack_request(free=("pandas>=2.1,<2.3", "numpy>=1.26,<2.1"), before=BEFORE)
    found = stack_solver.solve_request(request)
    assert {one.point for one in found.rejected} == {"pandas 2.1.4, numpy 2.0.2"}
    assert "depends on numpy" in found.rejected[0].reason
    assert len(found.stacks) == 3
    assert format_stack_set(found) == format_stack_set(stack_solver.solve_request(request))


def test_numpy_is_installed_with_its_hashes_checked_and_runs(tmp_path: Path) -> None:
    (stack,) = stack_solver.solve_request(build_stack_request(free=("numpy==2.2.6",), before=BEFORE)).stacks
    made = ensure_environment(stack, tmp_path)
    again = ensure_environment(stack, tmp_path, copy=1)
    assert made.installed == again.installed == {"numpy": "2.2.6"}
    assert made.record_sha256 == again.record_sha256
    assert environments.find_altered_files(made.folder) == []
    code = "import numpy; print(numpy.__version__)"
    assert subprocess.run([made.python, "-I", "-c", code], capture_output=True, text=True).stdout == "2.2.6\n"
