"""Drawn programs of agents (SIMULATED): what waits for what is read from their recordings, or said to be unclear."""

from __future__ import annotations

import pytest

from tests.worlds import agent_services, agent_traces

SEEDS = range(50_000, 50_080)


def test_no_plan_takes_another_time_than_the_program_and_none_is_refused_that_is_whole() -> None:
    found = [agent_traces.judge_world(seed) for seed in SEEDS]
    assert [(one.seed, one.form, one.wrong) for one in found if one.wrong] == []
    assert [(one.seed, one.refused) for one in found if one.refused and "missing tokens" not in one.traits] == []
    assert {trait for one in found for trait in one.traits} == set(agent_traces.TRAITS)
    assert {one.form for one in found} == set(agent_traces.FORMS)
    assert sum(one.n_unclear for one in found) < 0.2 * sum(one.n_tasks for one in found)


@pytest.mark.live
@pytest.mark.slow
def test_gpus_for_agents_are_enough_where_they_are_verified() -> None:
    found = [agent_services.judge_world(seed) for seed in range(200, 212)]
    verified = [one for one in found if one.verified]
    assert len(verified) >= 6
    assert [one for one in verified if (one.recommended or 0) < (one.needed or 0)] == []
