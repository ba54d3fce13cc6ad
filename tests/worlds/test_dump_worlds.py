"""Drawn queries, dumped and replayed by a real Spark: no verdict and no row is wrong in silence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lore.local_spark import MARKS
from tests.worlds import dumps

pytestmark = MARKS
SEEDS = range(60_000, 60_006)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dumps.Judge]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        with dumps.open_judge() as found:
            yield found


def test_no_dump_of_a_drawn_query_is_wrong_and_supported_ones_are_not_refused(judge: dumps.Judge) -> None:
    found = [judge.judge_world(seed) for seed in SEEDS]
    assert [(one.world.seed, one.notes) for one in found if one.state == "wrong"] == []
    assert [(one.world.seed, one.notes) for one in found if one.state == "refused" and one.is_supported] == []
    assert not any(Path(judge.folder).iterdir())
