"""What the page gets of a table: units in headers, dashes for nulls, keys that sort by value, bounded rows."""

from __future__ import annotations

import json

import polars as pl
import pytest

from workbench.live import result_widgets

FRAME = pl.DataFrame(
    {"name": ["a", "b", None], "time_s": [10.5, None, 9.0], "n": [1000, 2, 3], "kept": [True, False, None]}
)


def test_headers_carry_units_and_nulls_are_dashes() -> None:
    found = result_widgets.build_grid_content(FRAME)
    assert [column["label"] for column in found["columns"]] == ["name", "time (s)", "n", "kept"]
    assert [column["kind"] for column in found["columns"]] == ["short", "num", "num", "short"]
    assert found["texts"][1] == ["b", "–", "2", "no"]
    assert found["texts"][0][2] == "1,000"


def test_keys_sort_by_value_and_not_by_text() -> None:
    keys = result_widgets.build_grid_content(FRAME)["keys"]
    assert [row[2] for row in keys] == [1000.0, 2.0, 3.0]
    assert keys[2][0] is keys[1][1] is keys[2][3] is None


def test_numbers_that_json_does_not_know_do_not_break_the_page() -> None:
    found = result_widgets.build_grid_content(pl.DataFrame({"x": [float("inf"), float("-inf"), float("nan")]}))
    json.dumps(found, allow_nan=False)
    assert found["keys"][2] == [None]
    assert found["keys"][1][0] < 0 < found["keys"][0][0]


def test_lists_and_long_texts_are_shown_as_texts() -> None:
    found = result_widgets.build_grid_content(pl.DataFrame({"ids": [[1, 2], []], "why": ["x" * 200, "y"]}))
    assert found["texts"][0][0] == "1, 2"
    assert found["columns"][1]["kind"] == ""


def test_too_many_rows_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_widgets, "MAX_CELLS", 20)
    found = result_widgets.build_grid_content(pl.DataFrame({"a": range(30), "b": range(30)}))
    assert len(found["texts"]) == 10
    assert found["notice"] == "the first 10 of 30"
    assert result_widgets.build_grid_content(FRAME)["notice"] == ""


def test_an_empty_table_has_its_columns() -> None:
    found = result_widgets.build_grid_content(FRAME.head(0))
    assert (len(found["columns"]), found["texts"], found["keys"]) == (4, [], [])


def test_the_widget_is_made_of_files_of_this_package_and_asks_for_nothing() -> None:
    made = result_widgets.create_grid(FRAME, caption="x", selectable=True)
    assert (made.selected, made.selectable, made.table["caption"]) == (None, True, "x")
    for name in ("grid.js", "copy.js", "live.css"):
        text = (result_widgets.STATIC / name).read_text()
        assert "://" not in text
        assert "innerHTML" not in text
