"""Effects by dimension of a stack matrix, on simulated sessions with planted effects."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.indicators.worlds import of_values, session
from workbench.indicators.analysis.effects import estimate_dimension_effects, format_dimension_effects
from workbench.indicators.analysis.observations import Observations
from workbench.indicators.store.archive import CONTROL, Session

LEVELS = {"python": ("3.11", "3.12", "3.13"), "numpy": ("2.2.6", "2.3.4"), "threads": ("1", "2")}
PLANTED = {("python", "3.12"): 0.02, ("python", "3.13"): 0.06, ("numpy", "2.3.4"): -0.05, ("threads", "2"): 0.4}


def matrix(levels: dict[str, tuple[str, ...]] = LEVELS, *, method: str = "sequence") -> Session:
    combos = [dict(zip(levels, one, strict=True)) for one in itertools.product(*levels.values())]
    plan = session([" ".join(one.values()) for one in combos], method=method)
    factors = [*combos, combos[0]]
    arms = [arm.model_copy(update={"factors": own}) for arm, own in zip(plan.arms, factors, strict=True)]
    return plan.model_copy(update={"arms": tuple(arms)})


def measured(
    plan: Session,
    random: np.random.Generator,
    *,
    rounds: int = 20,
    noise: float = 0.01,
    planted: dict[tuple[str, str], float] = PLANTED,
    odd: dict[str, float] | None = None,
    lost: tuple[str, ...] = (),
) -> Observations:
    """Times in which each level makes an arm faster by its share; the machine changes by a half in mid-session."""
    values: dict[tuple[str, str], list[float | None]] = {}
    drift = np.where(np.arange(rounds) < rounds // 2, 1.0, 1.5) * np.exp(random.normal(0, 0.1, rounds))
    for arm in plan.arms:
        faster = sum(planted.get(item, 0.0) for item in arm.factors.items()) + (odd or {}).get(arm.name, 0.0)
        times = 100 * drift * math.exp(-faster) * np.exp(random.normal(0, noise, rounds))
        values[arm.name, "Sort"] = [None] * rounds if arm.name in lost else list(times)
    return of_values(plan, values)


def test_planted_effects_of_three_pythons_two_versions_and_two_thread_counts_are_found() -> None:
    plan, random = matrix(), np.random.default_rng(7)
    missed = dict.fromkeys(PLANTED, 0)
    for _ in range(30):
        found = estimate_dimension_effects(measured(plan, random))
        assert found.height == 4
        assert set(found["n_arms"]) == {4, 6}
        for row in found.iter_rows(named=True):
            truth = math.exp(PLANTED[row["dimension"], row["level"]])
            missed[row["dimension"], row["level"]] += not row["low"] <= truth <= row["high"]
            assert row["is_additive"] is True
        assert found.filter(found["dimension"] == "threads")["verdict"].to_list() == ["FASTER"]
    # 95 % intervals: over four times 30 sessions at most one in ten may miss (the chance of more is below 1 %).
    assert sum(missed.values()) <= 12


def test_the_sentence_says_what_a_level_is_worth_whatever_the_rest() -> None:
    found = estimate_dimension_effects(measured(matrix(), np.random.default_rng(3), rounds=30))
    lines = format_dimension_effects(found)
    assert lines[1].startswith("Sort: python 3.13 against 3.11: +6")
    assert lines[1].endswith("whatever numpy, threads")


@pytest.mark.parametrize(("rounds", "verdict"), [(4, "UNDECIDED"), (5, "FASTER")])
def test_no_level_is_faster_before_five_rounds(rounds: int, verdict: str) -> None:
    plan = matrix({"environment": ("cpu", "gpu")})
    planted = {("environment", "gpu"): math.log(30)}
    found = estimate_dimension_effects(measured(plan, np.random.default_rng(1), rounds=rounds, planted=planted))
    assert found["verdict"].to_list() == [verdict]
    assert found["undecided_because"].to_list() == [f"{rounds} rounds, at least 5 are needed" if rounds < 5 else None]


def test_nothing_is_claimed_where_nothing_is_planted() -> None:
    plan, random = matrix(), np.random.default_rng(11)
    claims = 0
    for _ in range(100):
        found = estimate_dimension_effects(measured(plan, random, planted={}))
        claims += found["verdict"].is_in(["FASTER", "SLOWER"]).any() or not found["is_additive"].all()
    assert claims <= 5


def test_a_combination_that_is_not_the_sum_of_its_parts_is_named() -> None:
    odd = {"3.13 2.3.4 2": 0.3}
    found = estimate_dimension_effects(measured(matrix(), np.random.default_rng(5), odd=odd, noise=0.005))
    row = found.filter(found["level"] == "3.13").row(0, named=True)
    assert row["is_additive"] is False
    assert row["interaction_arm"] == "3.13 2.3.4 2"
    assert any("on average only: 3.13 2.3.4 2 deviates" in line for line in format_dimension_effects(found))


def test_levels_that_only_occur_together_have_no_effect_of_their_own() -> None:
    combos = itertools.product(*LEVELS.values())
    lost = tuple(" ".join(one) for one in combos if (one[0] == "3.11") != (one[1] == "2.2.6"))
    found = estimate_dimension_effects(measured(matrix(), np.random.default_rng(2), lost=lost))
    by_level = {row["level"]: row for row in found.iter_rows(named=True)}
    assert by_level["2.3.4"]["ratio"] is None
    assert "only occur together" in by_level["2.3.4"]["undecided_because"]
    # What can still be told is told: threads, in all that is left.
    assert by_level["2"]["low"] <= math.exp(0.4) <= by_level["2"]["high"]


def test_an_arm_that_mostly_fails_does_not_take_the_rounds_of_the_others() -> None:
    plan = matrix()
    found = estimate_dimension_effects(measured(plan, np.random.default_rng(2), lost=("3.12 2.2.6 1",)))
    assert set(found["n"]) == {20}
    assert found.filter(found["level"] == "3.12")["n_arms"][0] == 3
    gone = tuple(arm.name for arm in plan.arms if arm.factors["python"] == "3.12")
    found = estimate_dimension_effects(measured(plan, np.random.default_rng(2), lost=gone))
    row = found.filter(found["level"] == "3.12").row(0, named=True)
    assert (row["ratio"], row["verdict"]) == (None, "UNDECIDED")
    assert row["undecided_because"] == "no arm of this level has values"


@pytest.mark.parametrize("method", ["looks", "sequence"])
def test_same_needs_a_control_within_the_margin(method: str) -> None:
    plan = matrix({"threads": ("1", "2")}, method=method)
    random = np.random.default_rng(4)
    quiet = measured(plan, random, planted={}, noise=0.002)
    assert estimate_dimension_effects(quiet)["verdict"].to_list() == ["SAME"]
    base = np.exp(random.normal(0, 0.01, 20))
    apart = {"1": 0.0, "2": 0.002, CONTROL: 0.2}
    values = {(arm, "Sort"): list(base * np.exp(random.normal(0, by, 20))) for arm, by in apart.items()}
    row = estimate_dimension_effects(of_values(plan, values)).row(0, named=True)
    assert row["verdict"] == "UNDECIDED"
    assert "control" in row["undecided_because"]


def test_a_session_without_a_matrix_has_no_dimensions() -> None:
    plan = session()
    random = np.random.default_rng(1)
    values = {(arm.name, "Sort"): list(np.exp(random.normal(0, 0.01, 10))) for arm in plan.arms}
    assert estimate_dimension_effects(of_values(plan, values)).height == 0
