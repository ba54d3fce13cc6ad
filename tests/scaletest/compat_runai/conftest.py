"""The golden files of the old tool."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from workbench.scaletest.compat_runai import delta_chain, runai_files


@pytest.fixture
def old(shared: Path) -> Path:
    return shared / "golden" / "scaletest"


@pytest.fixture
def jobs(old: Path) -> pl.DataFrame:
    return delta_chain.build_jobs(runai_files.read_files(old))
