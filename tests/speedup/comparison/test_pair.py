"""Sides of a pair: read once, and from the cache afterwards, with the same result."""

from __future__ import annotations

from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from tests.conftest import SAMPLES
from workbench.core.errors import InputError
from workbench.speedup.comparison import pair
from workbench.speedup.fleet.fleet_logs import FactsCache

LOGS = [str(SAMPLES / "speedup" / "tpch-sf1" / "logs" / f"{side}-s1.zstd") for side in ("spark", "comet")]


def test_a_pair_from_the_cache_is_the_same_and_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FactsCache(tmp_path / "logs")
    monkeypatch.setattr(pair, "open_default_cache", lambda: cache)
    first = pair.load_pair_from_logs(LOGS[:1], LOGS[1:])
    monkeypatch.setattr(pair, "_read_session", lambda *_: pytest.fail("read again"))
    again = pair.load_pair_from_logs(LOGS[:1], LOGS[1:])
    assert_frame_equal(again.comparability, first.comparability)
    assert_frame_equal(again.measured.executions, first.measured.executions)
    assert_frame_equal(again.measured.pieces, first.measured.pieces)
    assert (again.engines, again.sources) == (first.engines, first.sources)
    # The sides' names are the caller's, not those of the first reading.
    named = pair.load_pair_from_logs(LOGS[:1], LOGS[1:], ("a", "b"))
    assert set(named.measured.executions["label"]) == {"a", "b"}


def test_a_damaged_entry_of_the_cache_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FactsCache(tmp_path / "logs")
    monkeypatch.setattr(pair, "open_default_cache", lambda: cache)
    whole = pair._read_sessions(LOGS[:1])[LOGS[0]][1]
    for path in (tmp_path / "logs").rglob("executions.parquet"):
        path.write_bytes(b"PAR1")
    assert_frame_equal(pair._read_sessions(LOGS[:1])[LOGS[0]][1].executions, whole.executions)


def test_what_cannot_be_read_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FactsCache(tmp_path / "logs")
    monkeypatch.setattr(pair, "open_default_cache", lambda: cache)
    log = tmp_path / "log"
    log.write_text("no event log")
    for _ in range(2):
        with pytest.raises(InputError):
            pair._read_sessions([str(log)])
