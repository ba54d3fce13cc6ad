"""The tables' word against the engine's own plan of all TPC-DS queries: the same operators stay on Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from workbench.speedup.config import PlanConfig
from workbench.speedup.planning import candidate_plans
from workbench.speedup.planning.planned_operators import list_left_to_spark, read_plan
from workbench.speedup.support.cpu_operators import list_reasons
from workbench.speedup.support.engine_support import load_support


def plan_suite(monkeypatch: pytest.MonkeyPatch, suite: str, scale: float) -> list[dict[str, Any]]:
    """Rows of the planning session: each query's plan with the engine and without."""
    kept: list[dict[str, Any]] = []
    build = candidate_plans.build_candidate_plans

    def keep(engine: str, version: str, rows: list[dict[str, Any]], *more: Any) -> Any:
        kept.extend(rows)
        return build(engine, version, rows, *more)

    monkeypatch.setattr(candidate_plans, "build_candidate_plans", keep)
    candidate_plans.plan_queries(PlanConfig(queries=suite, scale=scale, engine="comet"), say=print)
    return kept


@pytest.mark.spark
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("suite", "scale"), [("tpch", 0.01), ("tpcds", 0.01)])
def test_what_stays_on_spark_is_what_comet_itself_leaves(
    suite: str, scale: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    support = load_support("comet@0.12")
    n_right = n_told = n_left = n_same = n_queries = 0
    for row in plan_suite(monkeypatch, suite, scale):
        if not (row["plan"] and row["baseline_plan"]):
            continue
        told = Counter(
            name
            for _, name in {
                (node.node_id, node.operator.name)
                for node, *_ in list_reasons(read_plan(row["baseline_plan"]), support)
            }
        )
        left = Counter(operator.operator.name for operator in list_left_to_spark(read_plan(row["plan"])))
        n_right += sum((told & left).values())
        n_told, n_left = n_told + sum(told.values()), n_left + sum(left.values())
        n_same, n_queries = n_same + (told == left), n_queries + 1
        if told != left:
            print(row["query"], "told", dict(told - left), "missed", dict(left - told))
    print(f"{suite}: {n_same} of {n_queries} queries alike; told {n_told}, left {n_left}, both {n_right}")
    assert n_queries >= 20
    assert n_same >= 0.9 * n_queries
