"""The tables' word against the engine's own plan of all TPC-DS queries: the same operators stay on Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from workbench.speedup.config import PlanConfig
from workbench.speedup.engines import classify_operator, refine_operator
from workbench.speedup.planning import candidate_plans
from workbench.speedup.planning.planned_operators import PlannedOperator, list_left_to_spark, read_plan
from workbench.speedup.support.cpu_operators import list_reasons
from workbench.speedup.support.engine_support import load_support


def plan_suite(monkeypatch: pytest.MonkeyPatch, suite: str, engine: str) -> list[dict[str, Any]]:
    """Rows of the planning session: each query's plan with the engine and without."""
    kept: list[dict[str, Any]] = []
    build = candidate_plans.build_candidate_plans

    def keep(engine: str, version: str, rows: list[dict[str, Any]], *more: Any) -> Any:
        kept.extend(rows)
        return build(engine, version, rows, *more)

    monkeypatch.setattr(candidate_plans, "build_candidate_plans", keep)
    candidate_plans.plan_queries(PlanConfig(queries=suite, scale=0.01, engine=engine), say=print)
    return [row for row in kept if row["plan"] and row["baseline_plan"]]


def refine(node: PlannedOperator) -> PlannedOperator:
    return replace(node, operator=refine_operator(node.operator, node.text))


@pytest.mark.spark
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("engine", "tables"), [("comet", "comet@0.12"), ("comet@4.1", "comet@1.2")])
@pytest.mark.parametrize("suite", ["tpch", "tpcds"])
def test_what_stays_on_spark_is_what_comet_itself_leaves(
    suite: str, engine: str, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_right = n_told = n_left = n_same = 0
    rows = plan_suite(monkeypatch, suite, engine)
    for row in rows:
        nodes = [refine(node) for node in read_plan(row["baseline_plan"])]
        found = {node.node_id: node.name for node, *_ in list_reasons(nodes, load_support(tables))}
        told = Counter(classify_operator(name).name for name in found.values())
        left = Counter(node.operator.name for node in list_left_to_spark(read_plan(row["plan"])))
        n_right += sum((told & left).values())
        n_told, n_left = n_told + sum(told.values()), n_left + sum(left.values())
        n_same += told == left
        if told != left:
            print(row["query"], "told", dict(told - left), "missed", dict(left - told))
    print(f"{suite} {tables}: {n_same} of {len(rows)} queries alike; told {n_told}, left {n_left}, both {n_right}")
    assert len(rows) >= 20
    assert n_same >= 0.9 * len(rows)
