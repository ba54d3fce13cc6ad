"""Slices of tables: the share that was asked for, from all over the large tables, with small tables whole."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import InputError
from workbench.speedup.sampling.query_sample import choose_rows, slice_tables


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60).filter(any), st.data())
def test_chosen_rows_sum_up_to_the_share_and_never_exceed_a_group(sizes: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, sum(sizes)))
    chosen = choose_rows(sizes, wanted)
    assert sum(n for _, n in chosen) == wanted
    assert all(0 < n <= sizes[group] for group, n in chosen)
    assert [group for group, _ in chosen] == sorted({group for group, _ in chosen})


def test_a_slice_comes_from_all_over_the_table() -> None:
    groups = [group for group, _ in choose_rows([1000] * 100, 2000)]
    assert groups[0] < 5
    assert groups[-1] >= 95
    assert len(groups) == 20


def test_large_tables_are_sliced_and_small_ones_whole(tmp_path: Path) -> None:
    source = tmp_path / "tables"
    (source / "facts" / "day=1").mkdir(parents=True)
    (source / "facts" / "day=2").mkdir()
    for day in (1, 2):
        frame = pl.DataFrame({"key": range(day * 10_000, day * 10_000 + 10_000)})
        frame.write_parquet(source / "facts" / f"day={day}" / "part.parquet", row_group_size=1000)
    pl.DataFrame({"key": range(500)}).write_parquet(source / "names.parquet")
    views = {"facts": str(source / "facts"), "names": str(source / "names.parquet")}
    sliced = {part.name: part for part in slice_tables(views, tmp_path / "slices", 0.05)}
    assert (sliced["facts"].n_rows, sliced["facts"].n_taken) == (20_000, 1000)
    assert sliced["names"].n_taken is None
    taken = pl.read_parquet(tmp_path / "slices" / "facts.parquet" / "**" / "*.parquet", hive_partitioning=True)
    assert taken.group_by("day").len().sort("day").rows() == [(1, 500), (2, 500)]
    assert taken["key"].is_unique().all()
    assert pl.read_parquet(tmp_path / "slices" / "names.parquet").height == 500


def test_a_table_that_is_no_parquet_is_refused_by_name(tmp_path: Path) -> None:
    broken = tmp_path / "facts.parquet"
    broken.write_bytes(b"no table")
    with pytest.raises(InputError, match="cannot be read"):
        slice_tables({"facts": str(broken)}, tmp_path / "slices", 0.5)
