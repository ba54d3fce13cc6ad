"""Fixed costs of plans: found where they are planted, none in what has none, and carried to machines of other speed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.conftest import SAMPLES
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factor_model import FactorModel, load_factor_model
from workbench.speedup.calibration.factors import PairedTimes, fit_factors, predict_left_out_queries, query_wall_times
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.calibration.plan_costs import (
    COST_PULLS,
    MULTIPLIER_PULLS,
    Design,
    choose_pulls,
    count_plan,
    fit_member,
    split_folds,
)
from workbench.speedup.calibration.prediction import (
    MAX_LOG_PACE,
    PLAN_COSTS,
    load_plan_counts,
    predict_by_term,
    predict_queries,
    read_candidate_plans,
    select_counted_runs,
)
from workbench.speedup.calibration.time_split import PlannedOperators
from workbench.speedup.comparison.pair import Pair, load_recorded_pair
from workbench.speedup.tables import PLANNED_NODES

TERMS = ("Filter", "HashAggregate", "Scan parquet", "idle")
FREE = (MULTIPLIER_PULLS[0], COST_PULLS[0])


def drawn_pair(
    seed: int, *, n: int = 60, cost_s: float = 0.0, factor: float = 3.0, noise: float = 0.05, n_sessions: int = 3
) -> PairedTimes:
    """Queries that run `factor` times faster, plus fixed seconds for each of their planned operators."""
    draw = np.random.default_rng(seed)
    parts = np.exp(draw.normal(-2.5, 1.0, size=(n, len(TERMS))))
    plan = np.column_stack([np.ones(n), draw.integers(5, 150, size=n), np.zeros(n)])
    actual = parts / factor
    actual[:, -1] += cost_s * plan[:, 1]

    def run(times: np.ndarray) -> np.ndarray:
        return np.asarray(times[None] * np.exp(draw.normal(0, noise, size=(n_sessions, n, 1))))

    names = tuple(f"q{number}" for number in range(n))
    return PairedTimes(names, TERMS, run(parts), run(actual), np.zeros((n, len(TERMS))), plan=plan, plan_of_log=plan)


def left_out_errors(both: PairedTimes, *, by_plan: bool = True) -> float:
    """Mean square of the left-out errors of 8 queries, everything fitted without each."""
    squares = []
    for row in range(8):
        fitted, held_out = fit_factors(both.drop_queries([row])), both.select_queries([row])
        assert held_out.plan is not None
        plan = held_out.plan if by_plan else np.zeros_like(held_out.plan)
        predictor = fitted.by_plan if by_plan else fitted.by_log
        predicted = fitted.predict(held_out.baseline.mean(axis=0), held_out.work, plan, predictor)
        squares.append(float(np.log(predicted / query_wall_times(held_out.candidate))[0]) ** 2)
    return float(np.mean(squares))


def test_planted_costs_are_found_with_their_size() -> None:
    both = drawn_pair(1, cost_s=0.004)
    fitted = fit_factors(both)
    costs = sum(member.weight * np.exp(member.calibration) * member.costs[1] for member in fitted.by_plan.members)
    assert costs == pytest.approx(0.004, rel=0.15)
    # Without the plans' counts the same fit must book these costs on operators, and is off by far more.
    blind = replace(both, plan=np.zeros_like(both.plan), plan_of_log=np.zeros_like(both.plan))  # type: ignore[arg-type]
    assert left_out_errors(both) < 0.2 * left_out_errors(blind)


def test_where_no_operator_costs_anything_nothing_is_charged() -> None:
    for seed in range(5):
        fitted = fit_factors(drawn_pair(seed))
        charged = sum(member.weight * member.costs[1] * 75 for member in fitted.by_plan.members)
        assert charged < 0.02 * 0.1


def test_noise_alone_is_predicted_by_the_engine_wide_factor() -> None:
    def ratios(seed: int) -> PairedTimes:
        both = drawn_pair(seed, n=30, noise=0.0)
        luck = np.exp(np.random.default_rng(seed).normal(0, 0.4, size=(1, 30, 1)))
        return replace(both, candidate=both.candidate * luck)

    constants = 0
    for seed in range(20):
        fitted = fit_factors(ratios(seed))
        constants += len(fitted.by_plan.members) == 1 and fitted.by_plan.members[0].time_weight is None
        assert fitted.by_plan.log_sd == pytest.approx(0.4, rel=0.45)
    assert constants >= 5


def test_where_sessions_differ_more_than_queries_nothing_is_learned_from_them() -> None:
    both = drawn_pair(1, cost_s=0.004)
    restless = np.array([0.1, 1.0, 10.0])[:, None, None]
    fitted = fit_factors(replace(both, candidate=both.candidate * restless))
    assert [member.time_weight for member in fitted.by_plan.members] == [None]


def test_coverage_of_left_out_queries_is_that_of_their_level() -> None:
    from scipy.stats import t

    held = []
    for seed in range(6):
        both = drawn_pair(seed, n=40, cost_s=0.003, noise=0.15)
        for row in range(0, 40, 5):
            fitted, held_out = fit_factors(both.drop_queries([row])), both.select_queries([row])
            assert held_out.plan is not None
            assert fitted.by_plan.log_sd is not None
            predicted = fitted.predict(held_out.baseline.mean(axis=0), held_out.work, held_out.plan, fitted.by_plan)
            error = np.log(predicted / query_wall_times(held_out.candidate))[0]
            held.append(abs(error) <= t.ppf(0.95, 38) * fitted.by_plan.log_sd)
    # 48 queries: 90 % within three standard errors.
    assert 0.77 <= np.mean(held) <= 1.0


def test_multipliers_and_costs_are_those_of_plain_ridge_regression_where_none_is_negative() -> None:
    draw = np.random.default_rng(3)
    times, counts = draw.uniform(0.1, 1, size=(40, 3)), draw.uniform(1, 9, size=(40, 3))
    actual = times @ [0.8, 1.2, 1.0] + counts @ [0.02, 0.01, 0.03]
    member = fit_member(Design(times, counts, actual), 1.0, FREE)
    weighted = np.hstack([times, counts]) / actual[:, None]
    scale = np.sqrt((weighted**2).mean(axis=0))
    penalty = 40 * np.concatenate([np.full(3, FREE[0] * scale[:3].max() ** 2), FREE[1] * scale[3:] ** 2])
    prior = np.array([1, 1, 1, 0, 0, 0])
    expected = np.linalg.solve(weighted.T @ weighted + np.diag(penalty), weighted.sum(axis=0) + penalty * prior)
    assert np.concatenate([member.multipliers, member.costs]) == pytest.approx(expected, rel=1e-6)


def test_a_term_that_no_training_query_has_keeps_its_factor() -> None:
    both = drawn_pair(2)
    baseline, candidate = both.baseline.copy(), both.candidate.copy()
    baseline[:, :, 1] = candidate[:, :, 1] = 0.0
    fitted = fit_factors(replace(both, baseline=baseline, candidate=candidate))
    assert all(member.multipliers[1] == pytest.approx(1.0) for member in fitted.by_plan.members)


def test_folds_leave_out_each_query_once() -> None:
    for n in (8, 22, 99):
        folds = split_folds([str(number) for number in range(n)])
        assert sorted(row for _, held_out in folds for row in held_out) == list(range(n))
        assert all(sorted(training + held_out) == list(range(n)) for training, held_out in folds)


def test_pulls_are_chosen_on_left_out_queries() -> None:
    draw = np.random.default_rng(4)
    times, counts = draw.uniform(0.1, 1, size=(30, 2)), draw.uniform(1, 9, size=(30, 3))
    plain = Design(times, np.zeros_like(counts), times.sum(axis=1))

    def select(rows: list[int]) -> Design:
        return Design(plain.times[rows], plain.counts[rows], plain.actual[rows])

    names = [str(number) for number in range(30)]
    folds = [(select(training), select(held_out)) for training, held_out in split_folds(names)]
    pulls, predictions = choose_pulls(folds)
    assert np.concatenate(predictions) == pytest.approx(np.concatenate([held.actual for _, held in folds]), rel=1e-3)
    assert pulls[0] in MULTIPLIER_PULLS


def test_no_costs_are_learned_where_first_plans_are_not_known(pair: Pair) -> None:
    unknown = pl.lit(None)
    executions = pair.measured.executions.with_columns(
        planned_operators=unknown.cast(pl.List(pl.String)), planned_counts=unknown.cast(pl.List(pl.Int64))
    )
    found = calibrate_pair(replace(pair.measured, executions=executions), pair.baseline, pair.candidate).model
    assert {
        cost for predictor in (found.by_plan, found.by_log) for one in predictor.members for cost in one.costs_s
    } == {0}


def test_counts_of_a_plan_are_its_own_or_told_by_what_the_engine_leaves() -> None:
    planned = PlannedOperators(("Filter*", "Sort", "Sort*"), np.array([[3.0, 1.0, 2.0]]))
    assert count_plan(planned).tolist() == [[1.0, 5.0, 1.0]]
    assert count_plan(planned, frozenset({"Sort"})).tolist() == [[1.0, 3.0, 3.0]]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_recorded_pair(SAMPLES / "speedup" / "tpch-sf1")


@pytest.fixture(scope="module")
def calibrated(pair: Pair) -> CalibrationResult:
    return calibrate_pair(pair.measured, pair.baseline, pair.candidate)


@pytest.fixture(scope="module")
def side(pair: Pair) -> Measured:
    return select_counted_runs(pair.measured, pair.baseline)


def test_a_known_plan_moves_a_prediction_and_parts_still_add_up(
    pair: Pair, calibrated: CalibrationResult, side: Measured
) -> None:
    plans = read_candidate_plans(pair.measured, pair.candidate)
    assert len(plans) == 22
    by_log, by_plan = predict_queries(calibrated.model, side), predict_queries(calibrated.model, side, plans=plans)
    assert (by_log["predicted_s"] / by_plan["predicted_s"]).log().abs().max() > 0.05  # type: ignore[operator]
    parts = predict_by_term(calibrated.model, side, plans=plans)
    assert parts.filter(pl.col("operator") == PLAN_COSTS)["baseline_s"].unique().to_list() == [0.0]
    sums = parts.group_by("session", "query").agg(pl.col("baseline_s", "predicted_s").sum())
    both = by_plan.join(sums, on=["session", "query"], suffix="_parts")
    assert (both["baseline_s_parts"] / both["predicted_s_parts"]).to_list() == pytest.approx(both["ratio"].to_list())


def test_plans_of_some_queries_leave_the_others_as_they_are(
    pair: Pair, calibrated: CalibrationResult, side: Measured
) -> None:
    plans = {"q13": read_candidate_plans(pair.measured, pair.candidate)["q13"]}
    without, some = predict_queries(calibrated.model, side), predict_queries(calibrated.model, side, plans=plans)
    moved = some.filter((some["predicted_s"] / without["predicted_s"] - 1).abs() > 1e-9)["query"].unique().to_list()
    assert moved == ["q13"]


@pytest.mark.parametrize("slow", [0.4, 1.0, 2.5])
def test_on_a_slower_machine_fixed_costs_grow_with_the_time_outside_operators(
    calibrated: CalibrationResult, side: Measured, slow: float
) -> None:
    pieces = side.pieces.with_columns(pl.col("wall_s", "task_s") * slow)
    executions = side.executions.with_columns(pl.col("wall_s", "task_s") * slow)
    plain, slower = (
        predict_by_term(calibrated.model, side),
        predict_by_term(calibrated.model, Measured(executions, pieces)),
    )
    costs = [table.filter(pl.col("operator") == PLAN_COSTS)["predicted_s"].sum() for table in (plain, slower)]
    # Drawn to 1 by two of 22 queries.
    assert np.log(costs[1] / costs[0]) == pytest.approx(np.log(slow) * 22 / 24, abs=0.02)


def test_another_kind_of_time_is_not_taken_for_a_machine(calibrated: CalibrationResult, side: Measured) -> None:
    idle = pl.when(pl.col("term") == "idle").then(1000.0).otherwise(1.0)
    pieces = side.pieces.with_columns(pl.col("wall_s") * idle)
    sums = pieces.group_by("label", "session", "sql_id").agg(wall_s=pl.col("wall_s").sum())
    executions = side.executions.drop("wall_s").join(sums, on=["label", "session", "sql_id"])
    costs = [
        predict_by_term(calibrated.model, measured).filter(pl.col("operator") == PLAN_COSTS)["predicted_s"].sum()
        for measured in (side, Measured(executions.select(side.executions.columns), pieces))
    ]
    assert costs[1] / costs[0] == pytest.approx(np.exp(MAX_LOG_PACE), rel=0.02)


def test_left_out_queries_are_predicted_with_and_without_their_plan(pair: Pair, calibrated: CalibrationResult) -> None:
    queries = list(calibrated.queries)
    found = predict_left_out_queries(calibrated.pieces, pair.baseline, pair.candidate, queries, calibrated.model.groups)
    assert found["query"].to_list() == queries
    assert found.null_count().sum_horizontal().item() == 0
    assert (found["predicted_s"] / found["predicted_by_log_s"]).log().abs().max() > 0.01  # type: ignore[operator]


def test_queries_of_another_suite_have_wider_intervals(calibrated: CalibrationResult, side: Measured) -> None:
    own = predict_queries(calibrated.model, side)
    other = predict_queries(calibrated.model.model_copy(update={"queries": ["a", "b"]}), side)
    widths = [(one["predicted_high_s"] / one["predicted_low_s"]).log() for one in (own, other)]
    assert (widths[1] > widths[0] * 1.2).all()
    assert other["predicted_s"].to_list() == pytest.approx(own["predicted_s"].to_list())


def test_a_model_is_read_as_it_was_written(calibrated: CalibrationResult, side: Measured, tmp_path: Path) -> None:
    read = load_factor_model(calibrated.model.write(tmp_path / "f.json"))
    assert predict_queries(read, side).equals(predict_queries(calibrated.model, side))


def test_a_file_of_the_first_format_predicts_as_it_did(calibrated: CalibrationResult, tmp_path: Path) -> None:
    document = json.loads(calibrated.model.model_dump_json())
    for name in ("by_plan", "by_log", "left_operators", "log_fixed_rate"):
        del document[name]
    old = {"format_version": 1, "time_weight": 0.8, "calibration": 0.01, "log_sd": 0.2, "correction": []}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document | old))
    model = load_factor_model(path)
    (member,) = model.by_log.members
    assert (member.time_weight, member.calibration, member.costs_s, model.by_log.log_sd) == (0.8, 0.01, [0, 0, 0], 0.2)
    path.write_text(json.dumps(document | old | {"correction": [{"name": "Filter"}]}))
    with pytest.raises(Exception, match="correction"):
        load_factor_model(path)


def test_counts_of_a_plan_run_are_read_from_its_table(tmp_path: Path) -> None:
    blank = {"parent_ids": [], "operator": "Sort", "node_name": "Sort", "reason": None, "run_operator": None}
    rows = [blank | {"query": "q1", "node_id": place, "accelerated": place < 2} for place in range(3)]
    PLANNED_NODES.write(PLANNED_NODES.frame(rows), tmp_path / "tables")
    assert {query: list(counts) for query, counts in load_plan_counts(tmp_path).items()} == {"q1": [1.0, 2.0, 1.0]}


def test_a_constant_model_says_so(calibrated: CalibrationResult) -> None:
    assert not calibrated.model.by_plan.is_constant
    plain = calibrated.model.by_plan.members[0].model_copy(update={"time_weight": None, "multipliers": {}})
    constant = calibrated.model.by_plan.model_copy(update={"members": [plain]})
    assert isinstance(calibrated.model.model_copy(update={"by_plan": constant}), FactorModel)
    assert constant.is_constant
