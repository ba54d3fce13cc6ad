"""What a plan says: the sentence, what binds, what is left out, what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.capacity.making import (
    application,
    config,
    names,
    only,
    scale_run,
    sizing_run,
    speedup_run,
    stack_run,
)
from workbench.capacity import invariants, peak, summary, tables
from workbench.capacity.study import Study, build_plan, build_study
from workbench.core.errors import BrokenInvariantError, ConfigError, InputError
from workbench.report.display import headline
from workbench.runs import run_folder

JOBS = ["etl applications='etl*' gpus=2 pods=4 per_hour=7 hours=9"]
BY_HAND: dict[str, Any] = {"jobs": JOBS, "users": ["100 hours=9"], "least_replicas": 0, "draws": 100}


def by_hand(place: Path, **more: Any) -> Study:
    """The plan of test_model, from runs: 5 jobs of 2 GPUs and 3 replicas of 2 on nodes of 8."""
    inputs: dict[str, Any] = {"speedup": speedup_run(place), "sizing": sizing_run(place), "scaletest": scale_run(place)}
    return build_plan(config(**(only(**inputs) | BY_HAND | more)))


def figures(found: Study) -> dict[str, tuple[float, ...]]:
    return {row["figure"]: (row["p5"], row["p50"], row["p95"]) for row in found.day.iter_rows(named=True)}


def test_point_inputs_give_the_plan_worked_out_by_hand_from_runs_to_the_sentence(tmp_path: Path) -> None:
    """By hand: 7 x 0.5 h / 0.7 x 2 GPUs = 10 for Spark, ceil(100 / 40) x 2 = 6 for the service; 16 GPUs in 8 shapes of
    2 fill 2 nodes of 8. At 20 an hour: 40 a day when scaled, 2 x 24 x 20 = 960 fixed. Pods: 7 x 4 / 600 s + 3 / 60 s.
    """
    found = by_hand(tmp_path)
    expected = {peak.GPUS: 16.0, peak.SPARK_GPUS: 10.0, peak.SERVICE_GPUS: 6.0, peak.NODES: 2.0}
    expected |= {peak.COST_SCALED: 40.0, peak.COST_FIXED: 960.0, peak.PODS: 28 / 600 + 3 / 60}
    assert {name: values[0] for name, values in figures(found).items()} == pytest.approx(expected)
    assert all(low == middle == high for low, middle, high in figures(found).values())
    assert found.answer == "Provide 2 nodes: the 09:00 peak needs 16 GPUs."
    assert found.details == (
        "P5 to P95: 16 GPUs on 2 nodes.",
        "The peak is bound by Spark work.",
        "The scheduler keeps up (0.0967 pods/s at the worst time, 5 sustained).",
    )
    assert found.verdict == "valid"
    assert found.check()["holds"].all()
    told = json.loads(json.dumps(summary.build_plan_document(found, None)))
    assert (told["verdict"], told["bound_by"], told["scheduler"]) == ("valid", peak.SPARK, peak.SUSTAINED)


def test_the_samples_make_a_valid_plan_with_an_interval_that_is_written_whole(tmp_path: Path) -> None:
    run = run_folder.start_run("capacity_plan", folder=tmp_path / "run")
    found = build_study(config(draws=2000), run)
    assert found.verdict == "valid"
    assert found.check()["holds"].all()
    low, _, high = figures(found)[peak.GPUS]
    assert low < high
    assert {one.name for one in tables.PLAN_TABLES} == {path.stem for path in run.tables_folder.iterdir()}
    assert [Path(one["path"]).name for one in run.record["inputs"]] == ["speedup", "sizing", "indicators", "scaletest"]
    assert len(found.key_numbers()) == 6
    headline(answer=found.answer, verdict="valid", key_numbers=found.key_numbers())


def test_what_is_simulated_says_so_and_points_are_named(tmp_path: Path) -> None:
    notes = "\n".join(by_hand(tmp_path).notes)
    assert "Simulated: the service of the sizing run." in notes
    assert "Simulated: the nodes of the scale test." in notes
    assert "no interval: duration of etl, jobs of the day, load per replica, users of the day" in notes
    assert "each input independently from its own interval" in notes


@pytest.mark.parametrize(
    ("left_out", "word"), [("speedup", "Spark jobs"), ("sizing", "a service"), ("scaletest", "the scheduler's rate")]
)
def test_what_is_left_out_is_not_covered_and_told(tmp_path: Path, left_out: str, word: str) -> None:
    found = by_hand(tmp_path, **{left_out: ""})
    assert any(note.startswith(f"Not covered: {word}") for note in found.notes)
    assert found.check()["holds"].all()
    headline(answer=found.answer, verdict="valid", key_numbers=found.key_numbers())
    if left_out == "scaletest":
        assert found.details[-1] == "The scheduler was not measured."
        assert found.kept_up == peak.NOT_MEASURED
    else:
        gone = peak.SPARK_GPUS if left_out == "speedup" else peak.SERVICE_GPUS
        assert gone not in figures(found)


def test_days_that_differ_are_an_input_of_what_is_covered_alone(tmp_path: Path) -> None:
    found = by_hand(tmp_path, speedup="", users_spread=1.2, jobs_spread=1.2)
    assert names(found.sources, "input") == ["load per replica", "sustainable rate", "users of the day"]
    assert names(found.tornado, "input") == ["users of the day"]


def test_a_service_grows_by_the_law_of_its_run_as_far_as_that_is_believed(tmp_path: Path) -> None:
    """By hand: 1, 2, 3, 4 GPUs carry 1, 2 / 1.2, 3 / 1.4, 4 / 1.6 times one; 2 carry 40, so 1 carries 24, 4 carry 60.
    50 users take 3 GPUs (51.4), where the line says 50 / 20; with 2 a replica 2 of them, as 4 GPUs carry 60.
    """
    run = sizing_run(tmp_path, law=True)
    asked = BY_HAND | only(sizing=run) | {"users": ["50 hours=9"]}
    one, two = (build_plan(config(**asked | {"gpus_per_replica": gpus})) for gpus in (1, 2))
    assert [found.get_figure(peak.GPUS)["p50"] for found in (one, two)] == [3.0, 4.0]
    for found in (one, two):
        assert (found.verdict, found.check()["holds"].all()) == ("valid", True)
        assert any("scales by Amdahl over 1, 2 GPUs: up to 4 GPUs" in note for note in found.notes)
    beyond = build_plan(config(**asked | {"users": ["61 hours=9"]}))
    assert beyond.verdict == "invalid"
    said = "does not carry 61 users (P95): up to 4 GPUs, twice the largest measured count, it carries 60"
    assert said in beyond.reasons[0]
    assert beyond.next_steps()[0].startswith("Do not order")
    assert beyond.check()["holds"].all()
    # Replicas that are there anyhow are no knowledge of what they carry, and no load that is not carried either.
    for users, verdict in ((50, "valid"), (61, "invalid")):
        of_least = build_plan(config(**asked | {"users": [f"{users} hours=9"], "least_replicas": 5}))
        assert of_least.verdict == verdict


def test_a_plan_that_takes_scaling_for_granted_says_so(tmp_path: Path) -> None:
    run = sizing_run(tmp_path)
    asked = BY_HAND | only(sizing=run)
    said = "Linear scaling assumed: each replica carries the same load; the service was measured on 2 GPUs."
    assert said in build_plan(config(**asked)).notes
    assert said not in build_plan(config(**asked | {"users": ["40 hours=9"]})).notes


def test_an_end_that_is_not_known_widens_the_plan_and_is_told(tmp_path: Path) -> None:
    asked = only(sizing=sizing_run(tmp_path, capacity_low=25.0)) | {"users": ["400 hours=9"], "draws": 2000}
    found = build_plan(config(**asked))
    assert "An unknown end is assumed as far from the value as the known one: load per replica (upper)." in found.notes
    row = found.sources.row(by_predicate=pl.col("input") == "load per replica", named=True)
    assert (row["low"], row["high"]) == pytest.approx((25.0, 64.0))
    assert "no interval" not in row["note"]
    assert "its upper end is not known" in row["note"]
    low, _, high = figures(found)[peak.SERVICE_GPUS]
    # 400 / 64 and 400 / 25, in replicas of 2 GPUs.
    assert (low, high) == pytest.approx((14.0, 32.0), abs=2)
    assert found.check()["holds"].all()


@pytest.mark.parametrize(
    ("low", "high"), [(40.0, 40.0), (40.0, 48.0), (25.0, 40.0), (40.0 - 1e-12, 40.0 + 1e-12), (40.0 - 1e-12, 48.0)]
)
def test_a_side_without_width_has_no_draws_beyond_it(tmp_path: Path, low: float, high: float) -> None:
    run = sizing_run(tmp_path, capacity_low=low, capacity_high=high)
    found = build_plan(config(**only(sizing=run), users=["400 hours=9"]))
    checks = found.check()
    assert checks["holds"].all()
    assert any("draws of load per replica" in name for name in checks["check"].to_list()) == (high - low > 1)
    if high - low > 1:
        # A side that has a width is still looked at: draws three times as far out.
        farther = 40 * (found.given["load per replica"] / 40) ** 3
        with pytest.raises(BrokenInvariantError, match="load per replica"):
            replace(found, given=found.given | {"load per replica": farther}).check()


def test_a_price_by_gpu_is_that_of_all_gpus_of_a_node_and_without_a_price_there_is_no_cost(tmp_path: Path) -> None:
    by_gpu = by_hand(tmp_path / "gpu", price_per_node_h=None, price_per_gpu_h=2.5)
    assert figures(by_gpu)[peak.COST_SCALED][1] == pytest.approx(40.0)
    found = by_hand(tmp_path, price_per_node_h=None)
    assert peak.COST_SCALED not in figures(found)
    assert "a day" not in found.answer
    assert found.hours["cost_p50"].null_count() == 24


def test_an_invalid_run_makes_an_invalid_plan_that_says_so(tmp_path: Path) -> None:
    bad = {"verdict": "invalid", "reasons": ["the client was late"]}
    given = only(sizing=sizing_run(tmp_path, record=bad)) | BY_HAND
    with pytest.raises(InputError, match="cannot support a plan"):
        build_plan(config(**given))
    found = build_plan(config(**given, accept_invalid=True))
    assert found.verdict == "invalid"
    assert "the client was late" in found.reasons[0]
    assert found.next_steps()[0].startswith("Do not order by this plan")
    assert names(found.sources, "verdict") == ["invalid"]


def test_a_replica_of_other_gpus_than_measured_scales_and_says_so(tmp_path: Path) -> None:
    found = by_hand(tmp_path, gpus_per_replica=4)
    assert found.model.serving is not None
    assert found.model.serving.per_replica.value == 80.0
    assert figures(found)[peak.SERVICE_GPUS][1] == 8.0
    assert any("linear scaling assumed" in line for line in found.uses)


def test_a_stack_multiplies_what_is_stated_and_the_report_says_what(tmp_path: Path) -> None:
    stack = stack_run(tmp_path)
    idle = by_hand(tmp_path / "a", indicators=stack)
    assert figures(idle)[peak.SPARK_GPUS][1] == pytest.approx(10.0)
    assert any("has no effect: no share is set" in line for line in idle.uses)
    used = by_hand(tmp_path / "b", indicators=stack, jobs=[f"{JOBS[0]} stack_share=0.4"])
    # 0.4 / 2 + 0.6 = 0.8 of the time; drawn, with the ratio's own interval.
    assert used.median.spark_gpus is not None
    assert used.median.spark_gpus.max() == pytest.approx(8.0)
    assert any("applies to 40 % of the time of etl" in line for line in used.uses)
    assert used.check()["holds"].all()


def test_the_service_binds_where_it_asks_for_more_nodes(tmp_path: Path) -> None:
    found = by_hand(tmp_path, users=["1000 hours=9"])
    assert found.bound_by == peak.SERVICE
    row = found.constraints.row(by_predicate=pl.col("binding"), named=True)
    # 25 replicas of 2 are 50 GPUs, with 10 of Spark 60 on 8 nodes; without the service 10 GPUs are 2.
    assert (row["figure"], row["nodes_without"], row["nodes_saved"]) == (50.0, 2, 6)
    assert "replica" in row["relief"]
    provide, relax, *_ = found.next_steps()
    assert provide == "Provide 8 nodes for the peak: enough in 19 of 20 draws."
    assert relax == f"To need fewer nodes: {row['relief']}."


def test_spark_is_relieved_by_the_work_that_holds_most_gpus(tmp_path: Path) -> None:
    # 10 jobs of 1 GPU at once beside 2 of 8 GPUs: the few large ones hold more.
    jobs = ["etl applications='etl*' gpus=1 per_hour=20 hours=9", "ml applications='etl*' gpus=8 per_hour=4 hours=9"]
    rows = {row["constraint"]: row for row in by_hand(tmp_path, jobs=jobs).constraints.iter_rows(named=True)}
    assert rows[peak.SPARK]["relief"].startswith("move jobs of ml out of 09:00")


def test_packing_binds_where_whole_shapes_waste_more_than_each_work_takes(tmp_path: Path) -> None:
    # Five jobs of 5 GPUs want a node of 8 each: 5 nodes for 25 GPUs, where 4 would do; the service fits beside them.
    found = by_hand(tmp_path, jobs=["etl applications='etl*' gpus=5 per_hour=7 hours=9"], users=["100 hours=9"])
    rows = {row["constraint"]: row for row in found.constraints.iter_rows(named=True)}
    assert (rows[peak.PACKING]["nodes_without"], rows[peak.PACKING]["nodes_saved"]) == (4, 1)
    assert rows[peak.SERVICE]["nodes_saved"] == 0
    assert rows[peak.PACKING]["figure"] == pytest.approx(5 * 8 - 25 - 6)
    assert found.bound_by == peak.SPARK


def test_a_scheduler_that_does_not_keep_up_binds_before_all(tmp_path: Path) -> None:
    found = by_hand(tmp_path, scaletest=scale_run(tmp_path / "slow", low=0.09))
    assert found.kept_up == peak.NOT_SUSTAINED
    assert found.bound_by == peak.RATE
    assert "The scheduler does not keep up (0.0967 pods/s at the worst time, 0.09 sustained)." in found.details
    assert "Provide 2 nodes and a faster scheduler: " in found.answer


def test_a_rate_that_is_exactly_sustained_keeps_up_and_an_unknown_one_is_not_measured(tmp_path: Path) -> None:
    rate = 28 / 600 + 3 / 60
    assert by_hand(tmp_path / "a", scaletest=scale_run(tmp_path, low=rate)).kept_up == peak.SUSTAINED
    unknown = by_hand(tmp_path / "b", scaletest=scale_run(tmp_path / "c", low=None, reason="too few windows"))
    assert unknown.kept_up == peak.NOT_MEASURED
    assert any("too few windows" in note for note in unknown.notes)


def test_the_tornado_moves_one_input_at_a_time_and_stands_sorted(tmp_path: Path) -> None:
    row = application(predicted_low_s=1500.0, predicted_high_s=2400.0)
    sizing = sizing_run(tmp_path, capacity_low=35.0, capacity_high=50.0)
    found = build_plan(config(**(only(speedup=speedup_run(tmp_path, row), sizing=sizing) | BY_HAND)))
    rows = {one["input"]: one for one in found.tornado.iter_rows(named=True)}
    assert set(rows) == {"duration of etl", "load per replica"}
    etl = rows["duration of etl"]
    # Spark 10 GPUs at the value, in proportion to the duration; 6 of the service stay.
    ends = [etl[name] for name in ("gpus_at_p5", "gpus_median", "gpus_at_p95")]
    assert ends == pytest.approx([6 + 10 / 1.2, 16, 6 + 10 * 4 / 3])
    assert [rows["load per replica"][f"gpus_at_{end}"] for end in ("p5", "p95")] == pytest.approx([16, 14])
    assert found.tornado["swing_gpus"].to_list() == pytest.approx([10 * (4 / 3 - 1 / 1.2), 2])


def test_idle_gpus_are_those_of_the_nodes_that_nothing_holds(tmp_path: Path) -> None:
    """By hand: 2 nodes of 8 GPUs at 9:00, of which 7 jobs an hour of half an hour hold 7 GPUs and 3 replicas 6."""
    hours = by_hand(tmp_path, price_per_node_h=16.0).hours
    nine, ten = hours.row(9, named=True), hours.row(10, named=True)
    assert (nine["idle_gpus"], nine["idle_cost"], nine["idle_cost_fixed"]) == pytest.approx((3.0, 6.0, 6.0))
    assert (ten["idle_gpus"], ten["idle_cost"], ten["idle_cost_fixed"]) == pytest.approx((0.0, 0.0, 32.0))
    free = by_hand(tmp_path / "free", price_per_node_h=None).hours
    assert free["idle_cost"].null_count() == 24
    assert free["idle_gpus"].null_count() == 0


def test_a_capacity_that_is_a_lower_bound_makes_gpus_that_are_at_most(tmp_path: Path) -> None:
    bounded = sizing_run(tmp_path / "low", capacity=None, capacity_low=40.0, verdict="at least", binding=False)
    found = by_hand(tmp_path, sizing=bounded)
    assert found.answer.startswith("Provide 2 nodes: the 09:00 peak needs at most 16 GPUs")
    assert any(note.startswith("At most: ") for note in found.notes)
    assert any("a lower bound" in use for use in found.uses)
    without = sizing_run(tmp_path / "none", capacity=None, capacity_low=40.0, verdict="no estimate")
    with pytest.raises(InputError, match="without a capacity"):
        by_hand(tmp_path / "refused", sizing=without)


def test_a_ratio_that_was_not_decided_is_drawn_and_said(tmp_path: Path) -> None:
    jobs = [f"{JOBS[0]} stack_share=0.5"]
    undecided = stack_run(tmp_path / "undecided", ratio=1.1, low=0.8, high=1.5, verdict="UNDECIDED")
    found = by_hand(tmp_path, indicators=undecided, jobs=jobs)
    assert any(note.startswith("Not decided: new") for note in found.notes)
    assert found.information.height == 1
    decided = by_hand(tmp_path / "b", indicators=stack_run(tmp_path / "c", verdict="FASTER"), jobs=jobs)
    assert not any("Not decided" in note for note in decided.notes)
    assert not any("Not decided" in note for note in by_hand(tmp_path / "d", indicators=undecided).notes)


def test_another_scheduler_of_the_same_test_is_named_where_it_keeps_up(tmp_path: Path) -> None:
    row = {"level": 0.95, "simulated_nodes": True, "reason": "made"}
    rows = [row | {"side": "slow", "low_per_s": 0.09}, row | {"side": "fast", "low_per_s": 7.0}]
    place = scale_run(tmp_path / "two")
    rates = pl.DataFrame(rows).with_columns(high_per_s=pl.lit(None, pl.Float64))
    rates.write_parquet(place / "tables" / f"{tables.INPUT_SUSTAINED_RATES.name}.parquet")
    found = by_hand(tmp_path, scaletest=place)
    assert "fast sustained 7 pods/s in the same test" in found.constraints.filter("binding")["relief"][0]
    fast = by_hand(tmp_path / "fast", scaletest=place, scaletest_side="fast")
    assert fast.kept_up == peak.SUSTAINED
    # One that keeps up is not to be replaced by one that is slower, nor by any.
    assert "scheduler keeps up" in fast.constraints.filter(constraint=peak.RATE)["relief"][0]
    assert "another scheduler" not in fast.constraints.filter(constraint=peak.RATE)["relief"][0]


def test_the_next_measurement_is_the_one_that_is_worth_most(tmp_path: Path) -> None:
    row = application(predicted_low_s=900.0, predicted_high_s=3600.0)
    sizing = sizing_run(tmp_path, capacity_low=39.0, capacity_high=41.0, record={})
    steps = pl.DataFrame({"step": [0], "simulated": [False]})
    steps.write_parquet(sizing / "tables" / "steps.parquet")
    given = only(speedup=speedup_run(tmp_path, row), sizing=sizing) | BY_HAND | {"draws": 4000, "gpus_per_node": 2}
    found = build_plan(config(**given))
    assert found.information["input"][0] == "duration of etl"
    assert "`workbench run fleet -p logs=LOGS`" in found.next_steps()[-1]
    assert "Measure duration of etl next" in found.next_steps()[-1]


def test_the_what_if_at_100_percent_is_the_plan_and_half_the_jobs_are_half(tmp_path: Path) -> None:
    found = by_hand(tmp_path)
    table = found.what_if.filter(hour=9)
    same = table.filter((pl.col("jobs_percent") == 100) & (pl.col("users_percent") == 100)).row(0, named=True)
    assert (same["gpus"], same["nodes"]) == (pytest.approx(16.0), 2)
    half = table.filter((pl.col("jobs_percent") == 50) & (pl.col("users_percent") == 100))["gpus"][0]
    assert half == pytest.approx(5 + 6)
    assert by_hand(tmp_path / "alone", sizing="").what_if["users_percent"].unique().to_list() == [100]


def test_break_even_is_told_only_with_both_prices(tmp_path: Path) -> None:
    """By hand: a job takes 3,600 s at 1 an hour before (1), and 1,800 s at 1.5 an hour after (0.75); 7 a day. Both cost
    the same when the accelerator's hour costs 3,600 / 1,800 = 2 times the baseline's."""
    assert by_hand(tmp_path / "a").break_even is None
    priced = speedup_run(tmp_path, application(baseline_cost=1.0, predicted_cost=0.75))
    found = by_hand(tmp_path / "b", speedup=priced).break_even
    assert found is not None
    assert (found.baseline_cost, found.candidate_cost, found.price_ratio) == pytest.approx((7.0, 5.25, 1.5))
    assert found.even_ratio == pytest.approx((2.0, 2.0, 2.0))
    assert "2x (P5 to P95: 2 to 2)" in found.text


def test_a_job_larger_than_a_node_is_refused_or_spans_nodes(tmp_path: Path) -> None:
    large = ["etl applications='etl*' gpus=12 per_hour=7 hours=9"]
    with pytest.raises(ConfigError, match="larger than a node"):
        by_hand(tmp_path / "a", jobs=large)
    found = by_hand(tmp_path / "b", jobs=large, spanning=True)
    # 5 jobs of 12 GPUs take 2 nodes each; three replicas of 2 one more.
    assert figures(found)[peak.NODES][1] == 11
    assert found.check()["holds"].all()


def test_a_day_of_nothing_is_a_plan_of_nothing(tmp_path: Path) -> None:
    found = by_hand(tmp_path, jobs=["etl applications='etl*' per_hour=0"], users=["0"])
    assert found.answer == "Provide nothing: no hour of the day needs a node."
    assert found.bound_by == ""
    assert found.check()["holds"].all()


@pytest.mark.parametrize("what", ["nodes", "quantiles", "draws", "formula"])
def test_a_plan_whose_figures_disagree_is_stopped(tmp_path: Path, what: str) -> None:
    row = application(predicted_low_s=1500.0, predicted_high_s=2400.0)
    found = by_hand(tmp_path, speedup=speedup_run(tmp_path / "x", row))
    assert invariants.check_plan(found)["holds"].all()
    if what == "nodes":
        object.__setattr__(found.outcome, "nodes", np.maximum(found.outcome.nodes - 1, 0))
    elif what == "quantiles":
        found.__dict__["day"] = found.day.with_columns(p5=pl.col("p95") + 1)
    elif what == "draws":
        found.given["duration of etl"][:] = 1499.0
    else:
        found.__dict__["sources"] = found.sources.with_columns(value=pl.col("value") * 1.01)
    with pytest.raises(BrokenInvariantError):
        invariants.check_plan(found)


def test_sessions_an_hour_are_planned_as_users_and_the_step_is_shown(tmp_path: Path) -> None:
    """By hand: 2,880 sessions an hour of 125 s are 100 users at once, which the plan by hand has."""
    found = by_hand(tmp_path, users=["2880/h session=125 hours=9"])
    assert found.get_figure(peak.SERVICE_GPUS)["p95"] == 6.0
    step = "2,880 sessions an hour x 125 s = 100 users at once (Little's law), hours 9."
    assert step in found.notes
    assert step in summary.build_plan_document(found, None)["notes"]
    assert f"note: {step}" in summary.format_plan(found)


def test_users_are_told_as_sessions_an_hour_where_their_length_is_known(tmp_path: Path) -> None:
    told = "100 users at once, the most of the day, are about 3,000 sessions an hour of 120 s, as in the sizing run"
    known = build_plan(config(**only(sizing=sizing_run(tmp_path / "one", session_s=120.0)), users=["100 hours=9"]))
    assert any(note.startswith(told) for note in known.notes)
    unknown = build_plan(config(**only(sizing=sizing_run(tmp_path / "two")), users=["100 hours=9"]))
    assert not any("sessions an hour" in note for note in unknown.notes)


def test_a_currency_is_shown_beside_each_cost(tmp_path: Path) -> None:
    found = by_hand(tmp_path, currency="EUR")
    assert ", for up to 40 EUR a day." in found.answer
    assert {row[2] for row in found.key_numbers() if row[0].startswith("cost")} == {"EUR a day"}
    assert "EUR a day" in summary.format_plan(found)
    assert summary.build_plan_document(found, None)["currency"] == "EUR"
    assert "EUR" not in summary.format_plan(by_hand(tmp_path / "any"))


def test_sessions_an_hour_are_no_requests_a_second(tmp_path: Path) -> None:
    run = sizing_run(tmp_path, load_unit="1/s")
    with pytest.raises(ConfigError, match="sessions an hour"):
        build_plan(config(**only(sizing=run), users=["100/h session=20"]))
