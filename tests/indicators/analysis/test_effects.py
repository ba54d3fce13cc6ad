"""Differences within rounds: known answers, verdicts, families, and how often copies of one stack are told apart."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.indicators.worlds import equal_stacks, of_values, result, session
from workbench.indicators.analysis.effects import compare_session, estimate_effects, is_decided
from workbench.indicators.analysis.observations import Observations, build_observations
from workbench.indicators.store.archive import CONTROL, Session, inspection_id

STEADY = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 10.03, 9.97, 10.0]


def row(table: pl.DataFrame, arm: str, metric: str = "Sort") -> dict[str, object]:
    return table.filter((pl.col("arm") == arm) & (pl.col("metric") == metric)).row(0, named=True)


def beside(
    other: list[float | None], control: list[float | None] = STEADY[::-1], plan: Session | None = None
) -> Observations:
    values = {("base", "Sort"): STEADY, ("other", "Sort"): other, (CONTROL, "Sort"): control}
    return of_values(plan or session(), values)


def two(other: list[float | None], **plan: object) -> pl.DataFrame:
    return estimate_effects(beside(other, plan=session(**plan)))


def test_the_ratio_is_the_geometric_mean_within_rounds_and_cancels_what_is_common_to_a_round() -> None:
    host = np.exp(np.linspace(0, 2, 10))
    plan = session()
    values = {
        ("base", "Sort"): [10 * h for h in host],
        ("other", "Sort"): [5 * h * e for h, e in zip(host, [1.01, 0.99] * 5, strict=True)],
        (CONTROL, "Sort"): [10 * h * e for h, e in zip(host, [0.99, 1.01] * 5, strict=True)],
    }
    found = row(estimate_effects(of_values(plan, values)), "other")
    logs = [math.log(2 / e) for e in [1.01, 0.99] * 5]
    assert found["ratio"] == pytest.approx(math.exp(np.mean(logs)))
    assert found["spread"] == pytest.approx(np.std(logs, ddof=1))
    assert (found["verdict"], found["n"], found["failed"], found["rounds_needed"]) == ("FASTER", 10, 0, None)
    assert found["level"] == pytest.approx(1 - 0.05 / 3)


def test_where_higher_is_better_a_higher_value_is_faster() -> None:
    assert row(two([2 * value for value in STEADY], better="higher"), "other")["verdict"] == "FASTER"
    assert row(two([2 * value for value in STEADY], better="lower"), "other")["verdict"] == "SLOWER"


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "SAME"), (1.004, "SAME"), (1.02, "UNDECIDED"), (1.06, "SLOWER"), (0.9, "FASTER")]
)
def test_a_claim_needs_the_whole_interval_beyond_the_margin(factor: float, verdict: str) -> None:
    noise = [1.002, 0.998, 1.001, 0.999, 1.0] * 2
    found = row(two([value * factor * e for value, e in zip(STEADY, noise, strict=True)]), "other")
    assert found["verdict"] == verdict
    if verdict == "SLOWER":
        assert found["high"] < 1 / 1.02
    if verdict == "SAME":
        assert 1 / 1.02 <= found["low"] <= found["high"] <= 1.02


def test_an_undecided_row_says_how_many_rounds_would_decide_it() -> None:
    rng = np.random.default_rng(3)
    ratios = np.exp(-math.log(1.10) + rng.normal(0, 0.08, 10))
    found = row(two([value / r for value, r in zip(STEADY, ratios, strict=True)]), "other")
    assert found["verdict"] == "UNDECIDED"
    needed = found["rounds_needed"]
    assert isinstance(needed, int)
    assert needed > 10
    plan, base = session(), list(np.resize(STEADY, needed))
    other = [b / r for b, r in zip(base, np.resize(ratios, needed), strict=True)]
    values = {("base", "Sort"): base, ("other", "Sort"): other, (CONTROL, "Sort"): base}
    assert row(estimate_effects(of_values(plan, values)), "other")["verdict"] != "UNDECIDED"


def test_a_run_without_a_value_is_counted_and_its_round_left_out() -> None:
    found = row(two([None, *STEADY[1:8], None, None]), "other")
    assert (found["n"], found["failed"]) == (7, 3)
    nothing = row(two([None] * 10), "other")
    assert (nothing["ratio"], nothing["verdict"], nothing["n"], nothing["failed"]) == (None, "UNDECIDED", 0, 10)
    # At an earlier look only the first rounds count.
    early = row(estimate_effects(beside([2 * v for v in STEADY[:5]] + STEADY[5:]), rounds=5), "other")
    assert (early["n"], early["ratio"]) == (5, pytest.approx(0.5))


def test_holm_goes_over_stacks_and_metrics_and_leaves_the_control_out() -> None:
    rng = np.random.default_rng(5)
    names = [f"s{i}" for i in range(12)]
    plan = session(("base", *names), looks=(10,))
    shift = 0.053
    values = {("base", "Sort"): STEADY, (CONTROL, "Sort"): STEADY}
    for name in names:
        values[name, "Sort"] = [v * math.exp(shift + e) for v, e in zip(STEADY, rng.normal(0, 0.03, 10), strict=True)]
    table = estimate_effects(of_values(plan, values)).filter(~pl.col("control"))
    alone = []
    for name in names:
        own = {key: series for key, series in values.items() if key[0] in ("base", name, CONTROL)}
        alone.append(row(estimate_effects(of_values(session(("base", name), looks=(10,)), own)), name))
    assert sum(one["verdict"] == "SLOWER" for one in alone) > table.filter(pl.col("verdict") == "SLOWER").height
    assert all(p >= own for p, own in table.select("adjusted_p_value", "p_value").iter_rows())


def test_a_control_that_is_told_apart_makes_the_session_invalid() -> None:
    judged = compare_session(beside(STEADY, [1.3 * v for v in STEADY]))
    assert not judged.valid
    assert "the control differs from the baseline that it duplicates: Sort 0.769" in judged.judgement["reasons"][0][0]


@pytest.mark.parametrize(
    ("plan", "rounds", "reason"),
    [
        ({"control": False}, 10, "no control"),
        ({"design": "blocks"}, 10, "measured in blocks"),
        ({}, 4, "Sort: 4 round(s) of the control, at least 5"),
    ],
)
def test_a_session_that_can_prove_nothing_is_invalid(plan: dict[str, object], rounds: int, reason: str) -> None:
    made = session(**plan)
    values = {(arm.name, "Sort"): STEADY[:rounds] for arm in made.arms}
    judged = compare_session(of_values(made, values))
    assert not judged.valid
    assert any(reason in one for one in judged.judgement["reasons"][0])


@pytest.mark.parametrize("control", [[None] * 10, [10.0] + [None] * 9, []])
def test_a_control_without_values_vouches_for_nothing(control: list[float | None]) -> None:
    judged = compare_session(beside([2 * v for v in STEADY], control))
    assert not judged.valid
    assert any("round(s) of the control" in reason for reason in judged.judgement["reasons"][0])


def test_a_quiet_session_is_valid_and_failures_and_cases_that_nobody_is_compared_by_stand_beside_it() -> None:
    judged = compare_session(beside([None, *STEADY[1:]]))
    assert judged.valid
    assert judged.judgement["reasons"][0].to_list() == ["other, Sort: 1 of 10 run(s) without values: timeout"]
    values = {(arm, "Sort"): STEADY for arm in ("base", "other", CONTROL)} | {("base", "Lost"): [None, None]}
    lost = compare_session(of_values(session(cases=("Sort", "Lost")), values))
    assert (lost.valid, lost.sound) == (False, True)
    first = "other: not compared: the baseline: 2 of 2 run(s) without values: timeout"
    assert lost.judgement["reasons"][0][0] == first


def test_one_stack_alone_is_measured_and_nothing_is_claimed() -> None:
    values = {("base", "Sort"): STEADY, (CONTROL, "Sort"): STEADY[::-1]}
    judged = compare_session(of_values(session(("base",)), values))
    assert judged.valid
    assert judged.effects.filter(~pl.col("control")).height == 0
    short = {key: series[:3] for key, series in values.items()}
    assert not compare_session(of_values(session(("base",)), short)).valid


def test_rounds_on_several_machines_or_in_several_versions_are_no_session() -> None:
    found = beside(STEADY)
    other = pl.when(pl.col("round") < 5).then(pl.lit("host-1")).otherwise(pl.col("hardware_key"))
    mixed = replace(found, runs=found.runs.with_columns(hardware_key=other))
    reasons = compare_session(mixed).judgement["reasons"][0].to_list()
    assert reasons == ["measured with several machines: host-0, host-1"]


def test_values_beyond_all_measure_cost_their_own_row_alone() -> None:
    plan = session(("base", "other", "third"))
    wild = [1e-300, 1e300, 1e-300, 1e300, 1e-300, None, None, None, None, None]
    values = {("base", "Sort"): STEADY, ("other", "Sort"): wild, ("third", "Sort"): [2 * v for v in STEADY]}
    table = estimate_effects(of_values(plan, values | {(CONTROL, "Sort"): STEADY}))
    assert row(table, "other")["verdict"] == "UNDECIDED"
    assert "too far apart" in str(row(table, "other")["reason"])
    assert row(table, "third")["verdict"] == "SLOWER"


def test_checks_that_fail_or_differ_from_the_baseline_stand_at_the_stack() -> None:
    plan = session(("base", "other", "third"), compared_checks=("digest",))
    found = []
    for arm, digest, failed in (
        ("base", "a", ()),
        ("other", "b", ()),
        ("third", "a", ("error is 3 ulp",)),
        (CONTROL, "a", ()),
    ):
        for number, value in enumerate(STEADY):
            made = result(plan, arm, "Sort", number, value, checks={"digest": digest}, failed_checks=failed)
            found.append((inspection_id(plan.session_id, arm, "Sort"), number, made))
    table = estimate_effects(build_observations(plan, found))
    told = {arm: (row(table, arm)["passed"], row(table, arm)["reason"]) for arm in ("other", "third")}
    differs = "digest differs from the baseline's (b, baseline a)"
    assert told == {"other": (False, differs), "third": (False, "error is 3 ulp")}
    assert [row(table, arm)["spoiled_by"] for arm in ("other", "third")] == [differs, None]
    assert row(table, CONTROL)["passed"]


def test_all_is_decided_when_only_the_control_is_open() -> None:
    assert is_decided(two([2 * value for value in STEADY]))
    assert not is_decided(two([value * e for value, e in zip(STEADY, [0.8, 1.3] * 5, strict=True)]))


def test_copies_of_one_stack_measured_as_blocks_are_often_told_apart() -> None:
    verdicts = pl.concat([estimate_effects(equal_stacks(seed, "blocks")) for seed in range(200)])["verdict"]
    assert len(verdicts) == 200 * 3 * 2
    assert float(verdicts.is_in(["FASTER", "SLOWER"]).mean() or 0.0) >= 0.15


def test_stopping_at_looks_does_not_add_false_claims() -> None:
    claims = 0
    for seed in range(100):
        found = equal_stacks(seed, "rounds", rounds=30, cases=("Sort",))
        found = replace(found, session=found.session.model_copy(update={"looks": (10, 20, 30)}))
        for look in (10, 20, 30):
            table = estimate_effects(found, rounds=look).filter(~pl.col("control"))
            if is_decided(table) or look == 30:
                claims += table.filter(pl.col("verdict").is_in(["FASTER", "SLOWER"])).height > 0
                break
    assert claims <= 5
