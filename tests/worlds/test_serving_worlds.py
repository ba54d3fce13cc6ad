"""What load tools write of a service of known law is imported as it was, or refused (SIMULATED runs)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.serving import FOREIGN, write_foreign
from tests.worlds.serving_answers import UNKNOWABLE, judge_world
from workbench.core.errors import InputError
from workbench.sizing.other_tools.sweep_import import read_tool_result

SEEDS = range(70_000, 70_160)
MAX_REFUSED_SHARE = 0.02


def test_no_import_is_wrong_in_silence_and_few_are_refused() -> None:
    found = [judge_world(seed) for seed in SEEDS]
    assert [(one.seed, one.wrong) for one in found if one.wrong] == []
    supported = [one for one in found if not UNKNOWABLE & set(one.traits)]
    refused = [(one.seed, one.refused) for one in supported if one.refused]
    assert len(supported) > 40
    assert len(refused) <= max(1, MAX_REFUSED_SHARE * len(supported)), refused


@pytest.mark.parametrize("name", FOREIGN)
def test_results_without_times_of_requests_are_refused_by_their_own_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"(?i)a result of {name}"):
        read_tool_result(write_foreign(name, tmp_path))
