"""Samples: what fits into a budget, what a planted error of one query is found to be, and how far it moves it."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.planted import BASELINE, CANDIDATE, Design, planted
from workbench.core.errors import InputError
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.pair_calibration import calibrate_pair
from workbench.speedup.calibration.prediction import SampledError, predict_queries, select_counted_runs
from workbench.speedup.comparison.pair import Pair
from workbench.speedup.sampling.query_sample import (
    BEYOND_BUDGET,
    DIFFERS,
    MAX_SHARE,
    MIN_SHARE,
    NOT_IN_SUITE,
    RUN_S,
    SESSION_S,
    SPILLS,
    SamplePlan,
    build_sample,
    measure_sampled_queries,
    plan_sample,
)

SLOWER = 1.5


@pytest.fixture(scope="module")
def measured() -> Measured:
    return planted(Design(n_queries=9, n_sessions=3), seed=4)


@pytest.fixture(scope="module")
def model(measured: Measured) -> FactorModel:
    return calibrate_pair(measured, BASELINE, CANDIDATE).model


def build_pair(measured: Measured) -> Pair:
    return Pair(BASELINE, CANDIDATE, measured, pl.DataFrame(), ("spark", "comet"), [], ((), ()))


def slow_down(measured: Measured, query: str) -> Measured:
    """The same times, but one query's on the candidate are longer."""
    slower = (pl.col("query") == query) & (pl.col("label") == CANDIDATE)
    executions = measured.executions.with_columns(
        wall_s=pl.when(slower).then(pl.col("wall_s") * SLOWER).otherwise(pl.col("wall_s"))
    )
    return Measured(executions, measured.pieces)


@given(st.lists(st.floats(0.01, 5000), min_size=1, max_size=30), st.floats(0.02, 0.5), st.integers(1, 4))
def test_the_expected_cost_of_a_plan_is_within_the_budget(times: list[float], budget: float, n_passes: int) -> None:
    names = [f"q{number}" for number in range(len(times))]
    table = pl.DataFrame({"query": names, "baseline_s": sorted(times, reverse=True)})
    try:
        plan = plan_sample(table, names, budget, n_passes)
    except InputError:
        # Not even the longest query's smallest slice fits.
        least_s = 2 * SESSION_S + 2 * n_passes * (RUN_S + MIN_SHARE * max(times))
        assert budget * sum(times) < least_s * (1 + 1e-9)
        return
    assert MIN_SHARE <= plan.share <= MAX_SHARE
    assert list(plan.queries) == names[: len(plan.queries)]
    runs_s = plan.share * table.head(len(plan.queries))["baseline_s"].sum()
    cost_s = 2 * SESSION_S + 2 * n_passes * (len(plan.queries) * RUN_S + runs_s)
    assert cost_s <= budget * sum(times) * (1 + 1e-9)


def test_a_log_of_other_queries_is_refused() -> None:
    with pytest.raises(InputError, match="no query of the log is in the suite"):
        plan_sample(pl.DataFrame({"query": ["mine"], "baseline_s": [1000.0]}), ["q1"], 0.1, 1)


def test_queries_that_may_spill_are_not_sampled() -> None:
    times = pl.DataFrame({"query": ["a", "b", "c"], "baseline_s": [900.0, 500.0, 400.0]})
    assert plan_sample(times, ["a", "b", "c"], 0.1, 1, {"a"}).queries == ("b", "c")
    with pytest.raises(InputError, match="every query may spill on the candidate") as refused:
        plan_sample(times, ["a", "b", "c"], 0.1, 1, {"a", "b", "c"})
    assert "more memory" in str(refused.value)


def test_a_planted_error_of_one_query_is_found(measured: Measured, model: FactorModel) -> None:
    query = model.queries[0]
    before, after = (
        dict(measure_sampled_queries(model, build_pair(sample)).select("query", "log_error").iter_rows())
        for sample in (measured, slow_down(measured, query))
    )
    assert after[query] - before[query] == pytest.approx(-math.log(SLOWER))
    assert {name: error for name, error in after.items() if name != query} == pytest.approx(
        {name: error for name, error in before.items() if name != query}
    )


@pytest.mark.parametrize(("log_variance", "moved"), [(1e12, 0.0), (1e-12, 1.0)])
def test_a_prediction_moves_as_far_as_its_sample_is_known_to_tell(
    measured: Measured, model: FactorModel, log_variance: float, moved: float
) -> None:
    query = model.queries[0]
    side = select_counted_runs(measured, BASELINE)
    plain = predict_queries(model, side).sort("session", "query")
    samples = {query: SampledError(0.3, log_variance)}
    with_sample = predict_queries(model, side, samples=samples).sort("session", "query")
    change = (with_sample["ratio"] / plain["ratio"]).log()
    is_sampled = plain["query"] == query
    assert change.filter(is_sampled).to_list() == pytest.approx([0.3 * moved] * 3, abs=1e-6)
    assert with_sample.filter(~is_sampled).equals(plain.filter(~is_sampled))
    widths = [(frame["ratio_high"] / frame["ratio_low"]).filter(is_sampled)[0] for frame in (with_sample, plain)]
    assert widths[0] < widths[1] if moved else widths[0] == pytest.approx(widths[1])


def test_a_sample_says_what_it_lacks(measured: Measured, model: FactorModel) -> None:
    log = measured.select(pl.col("label") == BASELINE, pl.col("session") == measured.executions["session"][0])
    sampled, failed = model.queries[:2], model.queries[2]
    part = measured.select(pl.col("query").is_in(list(sampled)))
    plan = SamplePlan((*sampled, failed), 0.05, budget_s=100.0, unknown=(model.queries[3],))
    sample = build_sample(model, log, build_pair(part), plan, [], 9.0)
    reasons = dict(sample.queries.select("query", "reason").iter_rows())
    assert [reasons[query] for query in sampled] == [None, None]
    assert reasons[failed] == DIFFERS
    assert reasons[model.queries[3]] == NOT_IN_SUITE
    assert set(reasons.values()) == {None, DIFFERS, NOT_IN_SUITE, BEYOND_BUDGET}
    assert failed in sample.reasons[0]
    assert "2 of 9 queries" in sample.answer
    assert "beyond the budget" not in sample.answer
    assert "beyond the budget of 5.0 s" in replace(sample, plan=replace(plan, budget_s=5.0)).answer


def test_queries_that_may_spill_correct_nothing_and_make_the_answer_unknown(
    measured: Measured, model: FactorModel
) -> None:
    log = measured.select(pl.col("label") == BASELINE, pl.col("session") == measured.executions["session"][0])
    plan = SamplePlan(tuple(model.queries), 0.05, budget_s=100.0)
    needs = dict.fromkeys(model.queries, 0.4)
    fits = build_sample(model, log, build_pair(measured), plan, [], 9.0, needs)
    assert fits.reasons == ()
    longest = fits.queries["query"][0]
    spills = build_sample(model, log, build_pair(measured), plan, [], 9.0, needs | {longest: 2.5})
    row = spills.queries.filter(query=longest).row(0, named=True)
    assert (row["reason"], row["log_error"], row["memory_need"]) == (SPILLS, None, 2.5)
    assert f"a task of {longest} had 2.5 times the memory that it has there" in spills.reasons[0]
    assert spills.n_sampled == fits.n_sampled - 1
