"""Told apart, the same, or undecided with the reason: by wall time, by CPU time, beside the control and the load."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.indicators.worlds import result, session
from workbench.indicators import summary
from workbench.indicators.analysis.effects import Comparison, compare_by_clock, compare_session
from workbench.indicators.analysis.observations import Observations, build_observations
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.store.archive import CONTROL, Pressure, Session, inspection_id

ROUNDS = 20


def world(
    shift: float = 0.0,
    *,
    wall: float = 0.004,
    control: float | None = None,
    cpu: float | None = None,
    whole: bool = False,
    cpu_shift: float | None = None,
    seed: int = 1,
    plan: Session | None = None,
    busy: float = 0.0,
    rounds: int = ROUNDS,
) -> Observations:
    """A baseline, another stack that takes exp(shift) times as long, and the control; noise as log deviations."""
    plan = plan or session(method="sequence")
    rng = np.random.default_rng(seed)
    found = []
    for number in range(rounds):
        for arm in plan.arms:
            moved = shift if arm.name == "other" else 0.0
            noise = control if control is not None and arm.name == CONTROL else wall
            value = 10 * math.exp(moved + rng.normal(0, noise))
            own = moved if cpu_shift is None or not moved else cpu_shift
            used = None if cpu is None else 9 * math.exp(own + rng.normal(0, cpu))
            more = {"run_cpu_s": used} if whole else {"cpu_ms": used}
            made = result(plan, arm.name, "Sort", number, value, **more)
            cpu_s = made.workbench.cpu_s or 0.5
            before, after = (Pressure(busy_s=busy_s, steal_s=0.0, mhz=2000.0) for busy_s in (0.0, cpu_s + busy))
            changed = {"cpus": (1,), "cpu_s": cpu_s, "before": before, "after": after}
            made = made.model_copy(update={"workbench": made.workbench.model_copy(update=changed)})
            found.append((inspection_id(plan.session_id, arm.name, "Sort"), number, made))
    return build_observations(plan, found)


def other(found: Comparison) -> dict[str, object]:
    return found.effects.filter(pl.col("arm") == "other").row(0, named=True)


@pytest.mark.parametrize(("percent", "verdict"), [(0, "SAME"), (3, "SLOWER"), (10, "SLOWER"), (-10, "FASTER")])
def test_on_a_quiet_machine_planted_differences_are_found_and_equal_stacks_are_the_same(
    percent: float, verdict: str
) -> None:
    found = compare_session(world(math.log1p(percent / 100)))
    assert (found.valid, other(found)["verdict"], other(found)["decided_by"]) == (True, verdict, "wall")
    assert other(found)["undecided_because"] is None


@pytest.mark.parametrize("percent", [0, 3, 5, 10])
def test_where_nothing_is_known_the_session_is_not_valid_and_says_why(percent: float) -> None:
    found = compare_session(world(math.log1p(percent / 100), wall=0.4, busy=0.6))
    row = other(found)
    assert (found.valid, found.sound, row["verdict"], row["decided_by"]) == (False, True, "UNDECIDED", None)
    (reason,) = found.judgement["reasons"][0]
    assert reason.startswith("nothing is known yet: the comparison is undecided: the interval reaches ±")
    assert "the margin is 2 %" in reason
    assert "other processes used 60 % of the run's cores" in reason
    answer = recommend(found, build_request())
    assert (answer.answer.kind, answer.is_known) == ("not decided", False)
    assert "difference" not in answer.answer.sentence


def test_no_same_where_the_control_is_wider_than_the_margin_while_a_clear_difference_stands() -> None:
    found = compare_session(world(0.0, control=0.08))
    row = other(found)
    assert row["verdict"] == "UNDECIDED"
    assert 1 / 1.02 < row["low"] < row["high"] < 1.02  # type: ignore[operator]
    assert str(row["undecided_because"]).startswith("the control, the same stack twice, is uncertain to ±")
    assert row["rounds_needed"] is None or row["rounds_needed"] > ROUNDS  # type: ignore[operator]
    said = recommend(found, build_request()).answer
    assert said.kind == "not decided"
    assert "the control" in said.sentence
    clear = compare_session(world(0.2, control=0.08))
    assert (clear.valid, other(clear)["verdict"]) == (True, "SLOWER")


def test_cpu_time_decides_where_wall_time_cannot_and_the_row_says_so() -> None:
    found = compare_session(world(0.1, wall=0.5, cpu=0.01))
    row = other(found)
    verdicts = (row["verdict"], row["other_verdict"], row["decided_by"], found.valid)
    assert verdicts == ("UNDECIDED", "SLOWER", "cpu", True)
    assert "; by CPU time: SLOWER 0.90" in str(row["undecided_because"])
    row = other(compare_by_clock(found, "cpu"))
    told = [row[name] for name in ("verdict", "clock", "decided_by", "other_verdict")]
    assert told == ["SLOWER", "cpu", "cpu", "UNDECIDED"]
    assert recommend(found, build_request(clock="cpu")).answer.kind == "keep"


def test_cpu_time_of_whole_runs_never_shows_that_a_part_of_them_is_the_same() -> None:
    # Half of the run is the start of Python: the part is 10 % slower, the run is not.
    found = compare_by_clock(compare_session(world(0.1, wall=0.5, cpu=0.002, whole=True, cpu_shift=1e-9)), "cpu")
    row = other(found)
    assert (row["verdict"], row["cpu_part"]) == ("UNDECIDED", "whole run")
    assert "diluted" in str(row["undecided_because"])
    slow = other(compare_session(world(0.1, wall=0.5, cpu=0.005, whole=True)))
    assert (slow["other_verdict"], slow["decided_by"]) == ("SLOWER", "cpu, whole run")


def test_both_clocks_are_one_family_so_that_neither_is_a_second_chance() -> None:
    both = other(compare_session(world(0.04, cpu=0.5)))
    assert both["adjusted_p_value"] == pytest.approx(2 * float(both["p_value"]))  # type: ignore[arg-type]


def test_a_control_that_is_told_apart_makes_the_session_unsound() -> None:
    observed = world(0.0)
    moved = pl.when(pl.col("arm") == CONTROL).then(pl.col("value") * 1.2).otherwise(pl.col("value"))
    found = compare_session(replace(observed, values=observed.values.with_columns(value=moved)))
    assert (found.valid, found.sound) == (False, False)
    assert recommend(found, build_request()).answer.stack is None


def test_the_key_number_of_the_control_is_the_end_of_its_interval() -> None:
    found = compare_session(world(0.0, control=0.02))
    row = found.effects.filter(pl.col("control")).row(0, named=True)
    numbers = {number[0]: number for number in summary.list_key_numbers(found, recommend(found, build_request()))}
    assert numbers["control off by at most"][1] == pytest.approx(100 * (max(row["high"], 1 / row["low"]) - 1))


def test_unequal_conditions_stand_at_every_verdict_that_rests_on_them() -> None:
    plan = session(method="sequence")
    equal = {"byte code": "compiled", "hash seed": "0", "threads": "1"}
    arms = tuple(
        arm.model_copy(update={"conditions": equal | ({"threads": "4"} if arm.name == "other" else {})})
        for arm in plan.arms
    )
    found = compare_session(world(0.1, plan=plan.model_copy(update={"arms": arms})))
    assert other(found)["unequal"] == ["threads: 4 (baseline: 1)"]
    told = "other runs under other conditions than the baseline: threads: 4"
    assert any(told in one for one in found.judgement["reasons"][0])
    assert found.effects.filter(pl.col("control"))["unequal"].to_list() == [[]]
    # Nothing is unequal that the matrix varies on purpose.
    varied = tuple(
        arm.model_copy(
            update={"factors": {"LANG": arm.name}, "conditions": {"locale": arm.name, "hash seed": arm.name}}
        )
        for arm in plan.arms
    )
    found = compare_session(world(0.1, plan=plan.model_copy(update={"arms": varied})))
    assert other(found)["unequal"] == [f"hash seed: other (baseline: {plan.baseline})"]


def test_a_session_of_looks_is_judged_as_it_was_planned() -> None:
    found = compare_session(world(0.1, plan=session(method="looks")))
    assert other(found)["level"] == pytest.approx(1 - 0.05 / 3)


@pytest.mark.parametrize("percent", [0.0, 2.0])
def test_sessions_that_may_end_after_any_round_hardly_ever_err(percent: float) -> None:
    """Whole sessions of three stacks by two clocks: no false claim, and no false SAME at exactly the margin."""
    plan, wrong = session(("base", "other", "third"), method="sequence"), 0
    for seed in range(25):
        observed = world(math.log1p(percent / 100), wall=0.01, cpu=0.01, seed=seed, plan=plan, rounds=16)
        for rounds in (6, 9, 12, 16):
            part = pl.col("round") < rounds
            cut = replace(observed, runs=observed.runs.filter(part), values=observed.values.filter(part))
            row = other(compare_session(cut))
            told = {row["verdict"], row["other_verdict"]}
            if told & ({"FASTER", "SLOWER"} if percent == 0 else {"FASTER", "SAME", "SLOWER"}):
                wrong += 1
                break
    assert wrong <= 3
