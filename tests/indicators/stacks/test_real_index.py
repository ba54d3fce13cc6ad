"""The same on the real index with real packages; skipped, and counted, where it cannot be reached."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import pytest

from workbench.indicators.stacks import inside, making
from workbench.indicators.stacks.environments import environment
from workbench.indicators.stacks.model import as_json
from workbench.indicators.stacks.request import checked, read_moment
from workbench.indicators.stacks.sources import configured

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]
BEFORE = read_moment("2025-06-30", "")


@pytest.fixture(autouse=True)
def _reachable() -> None:
    found = configured()
    if not found.indexes:
        pytest.skip("no package index is configured")
    try:
        with urllib.request.urlopen(f"{found.indexes[-1].rstrip('/')}/six/", timeout=20):
            pass
    except (OSError, ValueError) as error:
        pytest.skip(f"the package index cannot be reached: {type(error).__name__}")


def test_five_minors_of_numpy_are_five_locks_and_the_same_bytes_again() -> None:
    request = checked(free=("numpy>=1.24",), latest=5, before=BEFORE)
    found = making.make(request)
    assert len(found.stacks) == 5
    assert found.rejected == ()
    assert as_json(found) == as_json(making.make(request))


def test_a_grid_of_pandas_and_numpy_keeps_what_cannot_be_with_uvs_reason() -> None:
    request = checked(free=("pandas>=2.1,<2.3", "numpy>=1.26,<2.1"), before=BEFORE)
    found = making.make(request)
    assert {one.point for one in found.rejected} == {"pandas 2.1.4, numpy 2.0.2"}
    assert "depends on numpy" in found.rejected[0].reason
    assert len(found.stacks) == 3
    assert as_json(found) == as_json(making.make(request))


def test_numpy_is_installed_with_its_hashes_checked_and_runs(tmp_path: Path) -> None:
    (stack,) = making.make(checked(free=("numpy==2.2.6",), before=BEFORE)).stacks
    made = environment(stack, tmp_path)
    again = environment(stack, tmp_path, copy=1)
    assert made.installed == again.installed == {"numpy": "2.2.6"}
    assert made.record_sha256 == again.record_sha256
    assert inside.altered(made.folder) == []
    code = "import numpy; print(numpy.__version__)"
    assert subprocess.run([made.python, "-I", "-c", code], capture_output=True, text=True).stdout == "2.2.6\n"
