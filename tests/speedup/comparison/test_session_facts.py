"""Facts of sessions: read once, then from the cache or from the recording itself, with the same result."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.conftest import SAMPLES
from workbench.core.errors import InputError
from workbench.speedup.attribution.operator_explanation import read_sessions
from workbench.speedup.comparison import comparability, pair
from workbench.speedup.compat_rapids_tools.accuracy import estimate_seed_ratios
from workbench.speedup.fleet.fleet_logs import FactsCache
from workbench.speedup.recording.recording_plan import load_recording

RECORDING = SAMPLES / "speedup" / "tpch-sf1"
LOGS = [str(RECORDING / "logs" / f"{side}-s1.zstd") for side in ("spark", "comet")]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FactsCache:
    cache = FactsCache(tmp_path / "logs")
    monkeypatch.setattr(comparability, "open_default_cache", lambda: cache)
    return cache


@pytest.mark.usefixtures("cache")
def test_a_pair_from_the_cache_is_the_same_and_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = pair.load_pair_from_logs(LOGS[:1], LOGS[1:])
    monkeypatch.setattr(comparability, "_read_session", lambda *_: pytest.fail("read again"))
    again = pair.load_pair_from_logs(LOGS[:1], LOGS[1:])
    assert_frame_equal(again.comparability, first.comparability)
    assert_frame_equal(again.measured.executions, first.measured.executions)
    assert_frame_equal(again.measured.pieces, first.measured.pieces)
    assert (again.engines, again.sources) == (first.engines, first.sources)
    # The sides' names are the caller's, not those of the first reading.
    named = pair.load_pair_from_logs(LOGS[:1], LOGS[1:], ("a", "b"))
    assert set(named.measured.executions["label"]) == {"a", "b"}


@pytest.mark.usefixtures("cache")
def test_a_damaged_entry_of_the_cache_is_read_again(tmp_path: Path) -> None:
    whole = comparability.read_session_logs(LOGS[:1])[LOGS[0]][1]
    for path in (tmp_path / "logs").rglob("executions.parquet"):
        path.write_bytes(b"PAR1")
    assert_frame_equal(comparability.read_session_logs(LOGS[:1])[LOGS[0]][1].executions, whole.executions)


@pytest.mark.usefixtures("cache")
def test_what_cannot_be_read_is_not_cached(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("no event log")
    for _ in range(2):
        with pytest.raises(InputError):
            comparability.read_session_logs([str(log)])


def test_a_recording_keeps_facts_instead_of_logs_and_stays_the_same_pair(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    shutil.copytree(RECORDING, folder)
    before, size = pair.load_recorded_pair(folder), sum(path.stat().st_size for path in (folder / "logs").iterdir())
    comparability.replace_logs_by_facts(load_recording(folder))
    recording = load_recording(folder)
    assert not list(recording.iterate_logs())
    assert len(recording.list_good_sessions()) == 10
    assert sum(path.stat().st_size for path in (folder / "facts").iterdir()) < size / 3
    after = pair.load_recorded_pair(folder)
    assert_frame_equal(after.comparability, before.comparability)
    for name in ("executions", "pieces"):
        assert_frame_equal(getattr(after.measured, name), getattr(before.measured, name))
    assert [one["sha256"] for one in after.sources] == [one["sha256"] for one in before.sources]
    assert [one["file"] for one in after.sources] == [one["file"] for one in before.sources]
    # What needs a log says so.
    assert estimate_seed_ratios(after, ["q1"]) is None
    with pytest.raises(InputError, match="no logs"):
        read_sessions(str(folder))
    # A later call has nothing to do, and keeps the facts.
    comparability.replace_logs_by_facts(recording)
    assert len(pair.load_recorded_pair(folder).sources) == 10


def test_a_session_without_executions_keeps_its_facts_and_the_others_theirs(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    shutil.copytree(RECORDING, folder)
    comparability.replace_logs_by_facts(load_recording(folder))
    whole = comparability.load_session_facts(load_recording(folder))
    (label, number), *others = whole
    for name in ("executions", "pieces"):
        path = folder / "facts" / f"{name}.parquet"
        rows = pl.read_parquet(path)
        rows.filter(~((pl.col("label") == label) & (pl.col("session") == str(number)))).write_parquet(path)
    cut = comparability.load_session_facts(load_recording(folder))
    assert list(cut) == list(whole)
    assert cut[label, number][1].executions.height == 0
    for key in (*others, (label, number)):
        assert_frame_equal(cut[key][0].applications, whole[key][0].applications)


def test_facts_of_some_sessions_and_logs_of_others_are_one_recording(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    shutil.copytree(RECORDING, folder)
    whole = load_recording(folder)
    later = [one.model_copy() for one in whole.sessions if one.session > 3]
    logs = {one.log: (folder / str(one.log)).read_bytes() for one in later}
    whole.sessions = [one for one in whole.sessions if one.session <= 3]
    comparability.replace_logs_by_facts(whole)
    (folder / "logs").mkdir()
    for name, content in logs.items():
        (folder / str(name)).write_bytes(content)
    whole.sessions += later
    whole.write()
    both = pair.load_recorded_pair(folder)
    assert_frame_equal(both.measured.executions, pair.load_recorded_pair(RECORDING).measured.executions)
    comparability.replace_logs_by_facts(load_recording(folder))
    again = pair.load_recorded_pair(folder)
    assert_frame_equal(again.measured.pieces, both.measured.pieces)
