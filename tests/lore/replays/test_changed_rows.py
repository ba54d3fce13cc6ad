"""Rows that are given to an operator: a null where its plan has none is refused, at any depth."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import InputColumn
from workbench.lore.replays.operator_runs import _refuse_nulls

ARRAY = {"type": "array", "elementType": "long", "containsNull": False}
STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": False, "metadata": {}},
        {"name": "b", "type": ARRAY, "nullable": True, "metadata": {}},
    ],
}
INNER = pl.Struct({"a": pl.Int64, "b": pl.List(pl.Int64)})


def refuse(values: list[Any], kind: Any, dtype: Any, *, nullable: bool) -> None:
    column = InputColumn(name="v", stored_as="v", type=kind, nullable=nullable, expr_id=1)
    _refuse_nulls(pl.DataFrame({"v": pl.Series(values, dtype=dtype)}).to_arrow(), [column], "input-0")


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "nullable", "place"),
    [
        ([1, None], "long", pl.Int64, False, "input-0, v "),
        ([[1], [None]], ARRAY, pl.List(pl.Int64), True, "v[]"),
        ([{"a": None, "b": None}], STRUCT, INNER, True, "v.a"),
        ([{"a": 1, "b": [2, None]}], STRUCT, INNER, True, "v.b[]"),
    ],
)
def test_a_null_where_the_plan_has_none_is_refused(
    values: list[Any], kind: Any, dtype: Any, nullable: bool, place: str
) -> None:
    with pytest.raises(ConfigError, match="a null where the plan of this operator has none") as refusal:
        refuse(values, kind, dtype, nullable=nullable)
    assert place in f"{refusal.value.facts['where']} "


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "nullable"),
    [
        ([1, None], "long", pl.Int64, True),
        ([1, 2], "long", pl.Int64, False),
        ([[1], None, []], ARRAY, pl.List(pl.Int64), True),
        ([None, {"a": 1, "b": None}], STRUCT, INNER, True),
        ([], "long", pl.Int64, False),
    ],
)
def test_a_null_where_the_plan_allows_it_is_a_row(values: list[Any], kind: Any, dtype: Any, nullable: bool) -> None:
    refuse(values, kind, dtype, nullable=nullable)
