"""Faults of the protocol over loopback: above four in flight the service answers wrongly, which bounds its capacity."""

from __future__ import annotations

import pytest

from tests.fakes.misbehaving import BODIES, FAULTS, misbehaving
from workbench.sizing.config import Goal
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.tables import FAILING_VERDICTS

pytestmark = pytest.mark.live

ADMITS = 4
GOAL = Goal(limit_s=2.0)
QUICK = {"least_samples": 60, "most_samples": 60, "min_step_s": 0, "processes": 0, "goals": [GOAL]}
CORE = ("429", "error in stream", "apology")


def describe_target(fault: str) -> dict[str, object]:
    if fault in BODIES:
        return {"protocol": "http", "body": {"q": "{prompt}"}, "answer_at": "answer"}
    return {"protocol": "openai", "model": "m"}


@pytest.mark.parametrize(
    "fault", [fault if fault in CORE else pytest.param(fault, marks=pytest.mark.slow) for fault in FAULTS]
)
def test_what_is_no_answer_bounds_the_capacity(fault: str) -> None:
    with misbehaving(fault, ADMITS) as url:
        found = run_sweep(url=url, users=[2, 4, 8], **describe_target(fault), **QUICK)  # type: ignore[arg-type]
    verdicts = found.points["verdict"].to_list()
    assert not set(verdicts[:2]) & set(FAILING_VERDICTS), found.points["reason"].to_list()
    expected = {"429": "admission limit", "503": "admission limit", "apology": "other answers"}
    assert verdicts[2] == expected.get(fault, "interrupted"), found.points["reason"].to_list()
    # 4 is served and 8 is not: the need lies between, and no number is given without a level in between.
    answer = compute_answer(found.requests, found.steps, [GOAL], 40)
    assert answer.recommended is None
    assert answer.reasons


def test_an_apology_at_every_load_is_shown_since_it_cannot_be_known() -> None:
    with misbehaving("error in json", 100) as url:
        target = {"protocol": "http", "body": {"q": "{prompt}"}}
        found = run_sweep(url=url, users=[2], **target, **QUICK)  # type: ignore[arg-type]
    assert found.example is not None
    assert "word" in found.example
    assert any("--answer-at" in note for note in found.notes)
