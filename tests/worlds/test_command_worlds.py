"""Sessions of commands and scripts of known traits: never valid with what spoils them, never mute without."""

from __future__ import annotations

import pytest

from tests.worlds.commands import judge_pair, judge_world
from workbench.indicators.measurement import sessions

SEEDS = range(5_000, 5_032)


def test_no_recorded_session_is_wrong_in_silence_and_none_is_refused_that_is_clear() -> None:
    found = [judge_world(seed) for seed in SEEDS]
    assert [(one.seed, one.wrong) for one in found if one.wrong] == []
    assert [(one.seed, one.refused) for one in found if one.refused] == []


@pytest.mark.live
@pytest.mark.parametrize("kind", ["left_short", "shorter", "bash"])
def test_commands_that_do_other_work_than_the_baseline_are_told_when_they_really_run(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Copies of byte code take seconds, and have tests of their own.
    monkeypatch.setattr(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants))
    judged = judge_pair(71, kind=kind)
    assert (judged.wrong, judged.refused) == ([], "")
