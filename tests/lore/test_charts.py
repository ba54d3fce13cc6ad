"""Charts of dumps draw the rows of their table, for none, one and many, and say how uneven they are."""

from __future__ import annotations

import json
from typing import Any, Literal

import polars as pl
import pytest

from tests.lore import outcomes
from workbench.core.errors import InputError
from workbench.lore.charts import chart_partitions, chart_plan, chart_ratios, chart_times
from workbench.lore.tables import PARTITIONS


def partitions(*n_rows: int | None, lore_ids: tuple[int, ...] = (7,)) -> pl.DataFrame:
    """One input a dump, with so many rows by partition; the median is given as 10."""
    return PARTITIONS.frame(
        [
            dict.fromkeys(column.name for column in PARTITIONS.columns)
            | {"lore_id": lore_id, "input": "input-0", "partition": number, "n_batches": 1, "note": ""}
            | {"n_rows": count, "n_bytes": 1000 + number, "skew_ratio": None if count is None else count / 10}
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


def test_dumps_are_told_apart_unknown_rows_counted_and_another_table_refused() -> None:
    rows, _ = drawn(chart_partitions(partitions(10, lore_ids=(7, 9))))
    assert {row["label"] for row in rows} == {"loreId-7 · input-0 · 0", "loreId-9 · input-0 · 0"}
    rows, text = drawn(chart_partitions(partitions(None, 10)))
    assert [row["n_rows"] for row in rows] == [10], "what is not known is not drawn as 0"
    assert "1 row without a value not drawn" in text
    with pytest.raises(InputError, match="missing"):
        chart_partitions(pl.DataFrame({"partition": [1]}))


@pytest.mark.parametrize("of", ["n_rows", "n_bytes"])
@pytest.mark.parametrize("n_rows", [(), (10,), (0, 0), (None,), tuple(range(300))])
def test_none_one_and_many_partitions_draw(n_rows: tuple[int | None, ...], of: Literal["n_rows", "n_bytes"]) -> None:
    rows, _ = drawn(chart_partitions(partitions(*n_rows), of=of))
    assert len(rows) <= 100


def test_every_run_is_a_dot_and_every_median_a_bar() -> None:
    found = outcomes.outcome()
    rows, text = drawn(chart_times(found.timings, found.times))
    dots = [row for row in rows if "repeat" in row]
    assert sorted(row["time_s"] for row in dots if row["label"] == "B · operator") == [0.8, 0.81, 0.84]
    assert len(dots) == 12
    assert [row["label"] for row in rows if "median_s" in row] == [
        f"{side} · {quantity}" for side in "AB" for quantity in ("operator", "reading its inputs")
    ]
    assert "dots: 3 runs each" in text
    for seconds, labels in (({"replay": (1.0, 2.0)}, {"operator", "reading its inputs"}), ({}, set())):
        found = outcomes.outcome(outcomes.replayed(seconds))
        assert {row["label"] for row in drawn(chart_times(found.timings, found.times))[0]} == labels


def test_of_more_runs_than_a_page_should_carry_the_first_of_each_side_are_drawn() -> None:
    runs = tuple(1 + place / 1_000 for place in range(1_000))
    found = outcomes.outcome(outcomes.replayed({"A": runs, "B": runs}))
    rows, text = drawn(chart_times(found.timings, found.times))
    dots = [row["label"] for row in rows if "repeat" in row]
    assert {label: dots.count(label) for label in dots} == {
        f"{side} · {quantity}": 500 for side in "AB" for quantity in ("operator", "reading its inputs")
    }
    assert max(row["repeat"] for row in rows if "repeat" in row) == 500
    assert "dots: 1,000 runs each · 2,000 more not drawn" in text
    # Of all runs, drawn or not.
    assert {row["median_s"] for row in rows if row.get("quantity") == "operator" and "median_s" in row} == {1.4995}


def test_both_sides_are_named_by_their_settings() -> None:
    rows, text = drawn(chart_ratios(outcomes.outcome().ratios, settings_a="", settings_b="key=B"))
    assert [row["quantity"] for row in rows if "quantity" in row] == ["operator", "operator and scan", "scan (control)"]
    assert "A: as dumped · B: key=B" in text


def test_the_plan_is_drawn_from_its_root_with_bare_labels() -> None:
    rows, text = drawn(chart_plan(outcomes.CHAIN, lore_id=3))
    kinds = {row["lore_id"]: row["kind"] for row in rows if "kind" in row}
    assert kinds == {4: "can be dumped", 3: "replayed", 2: "can be dumped", 1: "can be dumped", 0: "refused"}
    assert "2 · SortMergeJoin [a]" in {row["label"] for row in rows if "label" in row}
    assert "4 of 5 operators can be dumped" in text


def test_a_reused_exchange_has_no_id_and_no_false_rows() -> None:
    chain = outcomes.CHAIN.with_columns(
        lore_id=pl.when(pl.col("position") == 3).then(None).otherwise(pl.col("lore_id")),
        text=pl.when(pl.col("position") == 3).then(pl.lit("subquery: [reused] Exchange")).otherwise(pl.col("text")),
    )
    rows, _ = drawn(chart_plan(chain))
    assert "reused · subquery: Exchange" in {row["label"] for row in rows if "label" in row}
    assert [row["n_rows"] for row in rows if row.get("position") == 3 and "n_rows" in row] == [None]


def test_operators_of_a_fused_stage_have_a_line_each_and_one_figure() -> None:
    fused = outcomes.plan(("Filter", 1, 5, 5, None), ("Project", 0, 5, None, None), fused=7)
    rows, _ = drawn(chart_plan(fused))
    pieces = [row for row in rows if "bottom" in row]
    assert [(row["position"], row["span_ms"]) for row in pieces] == [(0, 5.0), (1, None)]
    assert pieces[0]["bottom"] == pieces[1]["top"] == 0.5


def test_small_and_large_plans_draw_and_of_more_operators_the_first() -> None:
    chain = outcomes.plan(
        *(("Filter", 402 - place, None, None, "a leaf" if place == 402 else None) for place in range(403))
    )
    rows, text = drawn(chart_plan(chain, lore_id=0))
    assert {row["position"] for row in rows if "label" in row} == set(range(400))
    assert "402 of 403 operators can be dumped · 3 more not drawn" in text
    for count in (1, 400):
        rows, text = drawn(chart_plan(chain.head(count)))
        assert len({row["position"] for row in rows if "label" in row}) == count
        assert "more not drawn" not in text
