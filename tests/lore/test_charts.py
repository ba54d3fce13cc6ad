"""Charts of dumps draw the rows of their table, for none, one and many, and say how uneven they are."""

from __future__ import annotations

import json
from typing import Any, Literal

import polars as pl
import pytest

from workbench.errors import InputError
from workbench.lore.charts import chart_partitions
from workbench.lore.inspection.tables import PARTITIONS


def partitions(*n_rows: int | None, lore_ids: tuple[int, ...] = (7,)) -> pl.DataFrame:
    """One input a dump, with so many rows by partition; the median is given as 10."""
    return PARTITIONS.frame(
        [
            {
                "lore_id": lore_id,
                "input": "input-0",
                "partition": number,
                "n_batches": 1,
                "promised_batches": None,
                "n_rows": count,
                "n_bytes": 1000 + number,
                "rows_share": None,
                "skew_ratio": None if count is None else count / 10,
                "note": "",
            }
            for lore_id in lore_ids
            for number, count in enumerate(n_rows)
        ]
    )


def drawn(chart: Any) -> tuple[list[dict[str, Any]], str]:
    built = chart.to_dict()
    return [row for data in built["datasets"].values() for row in data], json.dumps(built, ensure_ascii=False)


def test_the_largest_stands_first_and_the_skew_in_the_subtitle() -> None:
    rows, text = drawn(chart_partitions(partitions(10, 31, 5)))
    assert [row["label"] for row in rows] == [f"input-0 · {number}" for number in (1, 0, 2)]
    assert [row["n_rows"] for row in rows] == [31, 10, 5]
    assert "Rows by partition" in text
    assert "the largest has 3.1 times the median of its input" in text


def test_bytes_are_drawn_on_request_and_claim_no_skew_of_rows() -> None:
    rows, text = drawn(chart_partitions(partitions(10, 31), of="n_bytes"))
    assert [row["n_bytes"] for row in rows] == [1001, 1000]
    assert "Bytes of the files by partition" in text
    assert "times the median" not in text


def test_partitions_of_several_dumps_are_told_apart() -> None:
    rows, _ = drawn(chart_partitions(partitions(10, lore_ids=(7, 9))))
    assert {row["label"] for row in rows} == {"loreId-7 · input-0 · 0", "loreId-9 · input-0 · 0"}


def test_rows_that_are_not_known_are_counted_and_not_drawn_as_0() -> None:
    rows, text = drawn(chart_partitions(partitions(None, 10)))
    assert [row["n_rows"] for row in rows] == [10]
    assert "1 row without a value not drawn" in text


@pytest.mark.parametrize("of", ["n_rows", "n_bytes"])
@pytest.mark.parametrize("n_rows", [(), (10,), (0, 0), (None,), tuple(range(300))])
def test_none_one_and_many_partitions_draw(n_rows: tuple[int | None, ...], of: Literal["n_rows", "n_bytes"]) -> None:
    rows, _ = drawn(chart_partitions(partitions(*n_rows), of=of))
    assert len(rows) <= 100


def test_another_table_is_refused() -> None:
    with pytest.raises(InputError, match="missing"):
        chart_partitions(pl.DataFrame({"partition": [1]}))
