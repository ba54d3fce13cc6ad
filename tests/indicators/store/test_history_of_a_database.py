"""Points of a history from a database of sessions, on both kinds of databases."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.indicators.store.conftest import Place
from tests.indicators.store.making import PiSorted, arm, planned, run, session, stdout_of
from workbench.core.errors import InputError
from workbench.indicators.history.history_points import HistoryFilter, load_history
from workbench.indicators.store.archive import inspection_id, write_result, write_session
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.sql_database import open_database


def test_points_come_from_a_database_of_sessions(place: Place, tmp_path: Path) -> None:
    case = planned(PiSorted)
    for number in range(3):
        arms = (arm("reference", "2.2.6"), arm("control", "2.2.6", 1), arm("2.4.6", "2.4.6"))
        of = session(
            f"s-{number}",
            created_at=f"2026-01-0{number + 1}T00:00:00+00:00",
            arms=arms,
            baseline="reference",
            revision=f"abc{number}",
            rounds_done=4,
        )
        folder = tmp_path / of.session_id
        for one in arms:
            for round_ in range(4):
                value = (2.0 if one.name == "2.4.6" else 4.0) * (1 + round_ / 100)
                made = run(of, case, one.name, round_, stdout=stdout_of(case, value))
                write_result(folder, inspection_id(of.session_id, one.name, case.label), round_, made)
        write_session(folder, of)
    target = place()
    with open_database(target) as database:
        assert sync_sessions([tmp_path], database).failed == 0
    found = load_history(target, HistoryFilter(indicator="sorted"))
    followed = found.points.filter(pl.col("kind") == "followed")
    assert followed["log_ratio"].exp().to_list() == pytest.approx([2.0] * followed.height)
    assert set(followed["revision"]) == {"abc0", "abc1", "abc2"}
    with pytest.raises(InputError, match="no figure fits"):
        load_history(target, HistoryFilter(indicator="nothing"))
