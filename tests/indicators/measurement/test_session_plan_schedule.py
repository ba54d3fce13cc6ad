"""The order of a session's runs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from tests.indicators.measurement.making import Tiny, session
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement.session_plan import order_runs
from workbench.indicators.store.archive import Session

CASES = [Case.from_parameters(Tiny, {"n": n}) for n in (2, 3, 4)]


@pytest.fixture(scope="module")
def plan() -> Session:
    return session(CASES, rounds=(3, 6), seed=11)


def test_each_round_has_every_arm_and_case_once(plan: Session) -> None:
    slots = order_runs(plan)
    assert len(slots) == 6 * 3 * 3
    assert set(Counter((one.round, one.case, one.arm) for one in slots).values()) == {1}
    assert [one.position for one in slots] == list(range(len(slots)))
    assert [one.round for one in slots] == sorted(one.round for one in slots)


def test_the_arms_of_a_case_run_next_to_each_other(plan: Session) -> None:
    together = [
        (key, len(list(slots))) for key, slots in groupby(order_runs(plan), key=lambda one: (one.round, one.case))
    ]
    assert len(together) == len(set(together)) == 6 * 3
    assert {count for _, count in together} == {3}


def test_rounds_do_not_share_their_order_with_the_next_seed(plan: Session) -> None:
    def rounds(seed: int) -> list[tuple[tuple[str, str], ...]]:
        slots = order_runs(plan.model_copy(update={"seed": seed}))
        return [tuple((one.case, one.arm) for one in slots if one.round == number) for number in range(6)]

    assert rounds(11) == rounds(11)
    assert rounds(11) != rounds(12)
    assert rounds(11)[1:] != rounds(12)[:-1]
    assert len(set(rounds(11))) > 3


def test_more_rounds_leave_the_first_ones_as_they_are(plan: Session) -> None:
    longer = order_runs(plan.model_copy(update={"looks": (3, 6, 9)}))
    assert longer[: 6 * 9] == order_runs(plan)


def test_every_place_is_taken_equally_often() -> None:
    plan = session([Case.from_parameters(Tiny)], rounds=(600,), seed=3)
    first = Counter(one.arm for one in order_runs(plan) if one.position % 3 == 0)
    # 200 expected of each of three arms; 60 is five standard deviations.
    assert all(abs(count - 200) < 60 for count in first.values())
    assert set(first) == {"one", "two", "control"}


def test_a_case_that_does_not_apply_has_no_runs(plan: Session) -> None:
    case = plan.cases[0].model_copy(update={"skipped": {"two": "has no numpy"}})
    found = order_runs(plan.model_copy(update={"cases": (case, *plan.cases[1:])}))
    assert len(found) == 6 * 8
    assert not [one for one in found if (one.case, one.arm) == (case.label, "two")]
    assert [one.position for one in found] == list(range(48))


def test_blocks_run_one_arm_after_the_other(plan: Session) -> None:
    found = order_runs(plan.model_copy(update={"design": "blocks"}))
    assert [arm for arm, _ in groupby(found, key=lambda one: one.arm)] == ["one", "two", "control"]
    assert len(found) == 54
