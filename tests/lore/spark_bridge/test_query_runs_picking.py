"""The operator that most rows go through is chosen, and said to be."""

from __future__ import annotations

import polars as pl
import pytest

from tests.lore import outcomes
from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.query_runs import choose_operator


def test_the_join_or_aggregate_that_most_rows_go_through_is_picked() -> None:
    found = choose_operator(outcomes.CHAIN)
    assert found.lore_id == 2
    assert found.reason == "of 2 joins and aggregates that can be dumped, most rows go through it: 50 rows in, 40 out"


def test_of_operators_alike_the_first_to_run_is_picked() -> None:
    alike = outcomes.plan(("HashAggregate", 2, 5, 5, None), ("HashAggregate", 1, 5, 5, None), ("S", 0, None, 5, "no"))
    assert choose_operator(alike).lore_id == 1


def test_without_joins_any_operator_that_can_be_dumped_is_picked() -> None:
    chain = outcomes.plan(("Sort", 2, 9, None, None), ("Filter", 1, 50, 9, None), ("Scan", 0, None, 50, "a leaf"))
    found = choose_operator(chain)
    assert found.lore_id == 1
    assert "of 2 operators" in found.reason


def test_rows_that_no_metric_tells_are_said_to_be_unknown() -> None:
    found = choose_operator(outcomes.plan(("SortMergeJoin", 0, None, None, None)))
    assert found.reason.endswith("unknown rows in, unknown out")


def test_a_plan_of_refused_operators_is_an_error_that_says_why() -> None:
    refused = outcomes.CHAIN.with_columns(refused=pl.lit("it is a leaf"))
    with pytest.raises(ConfigError, match="it is a leaf"):
        choose_operator(refused)
