"""The sample that the notebook runs on is what its script makes, small, and shows skew."""

from __future__ import annotations

import importlib.util
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.conftest import ROOT

SAMPLE = ROOT / "data" / "samples" / "lore"
MOST_BYTES = 1_000_000


@pytest.fixture(scope="module")
def script() -> Any:
    # By path: the samples are no package.
    spec = importlib.util.spec_from_file_location("lore_sample", SAMPLE / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_that_the_script_makes(script: Any) -> None:
    made = script.tables()
    assert sorted(path.stem for path in (SAMPLE / "tables").glob("*.parquet")) == sorted(made)
    for name, frame in made.items():
        assert_frame_equal(pl.read_parquet(SAMPLE / "tables" / f"{name}.parquet"), frame)


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) < MOST_BYTES


def test_one_sale_in_five_is_of_one_product(script: Any) -> None:
    shares = script.tables()["sales"]["product_id"].value_counts(normalize=True, sort=True)["proportion"]
    assert shares[0] == pytest.approx(0.2, abs=0.01)
    assert shares[1] < 0.01


def test_every_sale_has_one_price(script: Any) -> None:
    tables = script.tables()
    joined = tables["sales"].with_row_index().join(tables["prices"], on="product_id")
    valid = joined.filter((pl.col("day") >= pl.col("valid_from")) & (pl.col("day") < pl.col("valid_until")))
    assert valid.height == tables["sales"].height == valid["index"].n_unique()
