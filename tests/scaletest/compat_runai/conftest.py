"""The golden files of the old tool."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from workbench.scaletest.compat_runai import runai_files


@pytest.fixture
def old(shared: Path) -> Path:
    return shared / "golden" / "scaletest"


@pytest.fixture
def jobs(old: Path) -> pl.DataFrame:
    return runai_files.build_jobs(runai_files.read_files(old))
