"""Metrics of goals: one entry of the registry is all that goals, stop rule, points and charts need."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation import metrics
from workbench.sizing.estimation.metrics import METRICS, Metric
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load import sweep_plan
from workbench.sizing.load.client_messages import RequestRow
from workbench.sizing.load.load_step import build_stop_rule_columns
from workbench.sizing.load.sweep_plan import StopRule
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.virtual_time import simulate_sweep

PER_TOKEN = pl.when(pl.col("output_tokens") > 1).then(
    (pl.col("runtime_s") - pl.col("ttft_s")) / (pl.col("output_tokens") - 1)
)


@pytest.fixture
def tpot(monkeypatch: pytest.MonkeyPatch) -> Metric:
    added = Metric("tpot", "time per output token", PER_TOKEN, ("openai",), pl.col("output_tokens") > 1)
    monkeypatch.setitem(METRICS, "tpot", added)
    return added


def test_a_derived_metric_names_its_columns(tpot: Metric) -> None:
    assert set(tpot.columns) == {"output_tokens", "runtime_s", "ttft_s"}
    assert metrics.needs_first_token(["runtime", "tpot"])
    assert "protocol openai reports it for streamed answers" in metrics.explain_missing("tpot")


def test_a_derived_metric_is_read_from_requests_that_are_not_in_a_table_yet(tpot: Metric) -> None:
    row = RequestRow(0, 0.0, 0.0, 5.0, "ok", 200, 0, 1.0, None, None, None, 10, 5, tail=False)
    failed = RequestRow(1, 0.0, 0.0, 9.0, "timeout", None, 0, None, None, None, None, None, None, tail=False)
    columns = build_stop_rule_columns([row, failed], StopRule(metric="tpot"))
    assert metrics.metric_values(columns, tpot.name).tolist() == [[1.0], [float("inf")]]


@pytest.mark.parametrize("name", METRICS)
def test_what_running_requests_do_not_tell_is_unknown(name: str) -> None:
    values = metrics.metric_values({"runtime_s": [2.0], "outcome": ["ok"]}, name)
    assert (values == 2.0).all() if name == "runtime" else np.isnan(values).all()


def test_a_sweep_is_sized_on_a_derived_metric(tpot: Metric) -> None:
    goal = Goal(metric=tpot.name, q=0.95, limit_s=0.008)
    config = build_sweep_config(protocol="function", goals=[goal], simulated=True)
    requests, steps = simulate_sweep(Service(calls=1), config)
    answer = compute_answer(requests, steps, [goal], 100)
    assert answer.recommended is not None
    assert "tpot" in answer.quantiles["metric"].to_list()
    assert answer.goodput["within_share"].null_count() == 0


def test_a_high_quantile_gets_the_samples_that_its_interval_needs() -> None:
    goal = Goal.read("ttft p99.9<=2")
    assert (goal.q, goal.name) == (0.999, "ttft p99.9 <= 2 s")
    shared = {"protocol": "function", "goals": [goal]}
    assert sweep_plan.build_stop_rule(build_sweep_config(**shared)).max_samples == metrics.min_samples_for(0.999)
    assert sweep_plan.build_stop_rule(build_sweep_config(**shared, most_samples=500)).max_samples == 500
