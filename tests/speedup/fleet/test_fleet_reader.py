"""Many logs: one row each, bad ones with their reason; equal in every way of reading; only new ones are read."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from tests.speedup.applications import application as content
from workbench.core.errors import ConfigError, InputError
from workbench.speedup.fleet import fleet_reader, measured_logs
from workbench.speedup.fleet.fleet_logs import FactsCache
from workbench.speedup.fleet.fleet_reader import FleetFilters, MeasuredFleet, measure_fleet
from workbench.speedup.tables import APPLICATIONS_MEASURED

LOGS = SAMPLES / "eventlogs"
DAY_MS = 86_400_000


@pytest.fixture
def cache(tmp_path: Path) -> FactsCache:
    return FactsCache(tmp_path / "cache")


def log(folder: Path, name: str, *, start_ms: int = 1000, end_ms: int = 9000, app_name: str = "made") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    start = made.application_start(name=app_name, time_ms=start_ms) | {"App ID": f"id-{name}"}
    path.write_bytes(made.dump(made.log_start(), start, made.application_end(end_ms)))
    return path


def attempt(folder: Path, number: int, *, end_ms: int | None) -> None:
    start = made.application_start(time_ms=1000 * number) | {
        "App ID": "application_1_0001",
        "App Attempt ID": str(number),
    }
    end = [made.application_end(end_ms)] if end_ms is not None else []
    folder.mkdir(exist_ok=True)
    (folder / f"attempt-{number}").write_bytes(made.dump(made.log_start(), start, *end))


@pytest.mark.parametrize(("ended", "counted"), [((1, 2), 2), ((1,), 1), ((), 3)])
def test_attempts_are_one_application_and_the_last_one_that_ended_counts(
    tmp_path: Path, cache: FactsCache, ended: tuple[int, ...], counted: int
) -> None:
    for number in (1, 2, 3):
        attempt(tmp_path / "logs", number, end_ms=9000 if number in ended else None)
    found = status_of(measure_fleet([tmp_path / "logs"], jobs=1, cache=cache))
    assert {int(name[-1]) for name, (status, _) in found.items() if status != "superseded"} == {counted}
    reasons = [reason for status, reason in found.values() if status == "superseded"]
    assert len(reasons) == 2
    assert all(f"attempt {counted} counts" in str(reason) for reason in reasons)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four applications of days 1 to 4, lasting 1 to 4 s."""
    for day in range(1, 5):
        start_ms = day * DAY_MS
        log(tmp_path / "logs", f"app-{day}", start_ms=start_ms, end_ms=start_ms + day * 1000, app_name=f"etl {day % 2}")
    return tmp_path / "logs"


def names(found: MeasuredFleet) -> list[str]:
    return [Path(path).name for path in found.applications["log"]]


def status_of(found: MeasuredFleet) -> dict[str, tuple[str, str | None]]:
    return {Path(row["log"]).name: (row["status"], row["reason"]) for row in found.applications.iter_rows(named=True)}


def same(first: MeasuredFleet, second: MeasuredFleet) -> bool:
    return (
        first.applications.equals(second.applications)
        and first.measured.executions.equals(second.measured.executions)
        and first.measured.pieces.equals(second.measured.pieces)
    )


def test_every_log_is_a_row_and_every_query_is_measured(cache: FactsCache) -> None:
    found = measure_fleet([LOGS / "tpch_sf0.1.zstd", LOGS / "failing.zstd"], jobs=1, cache=cache)
    APPLICATIONS_MEASURED.check(found.applications)
    assert names(found) == ["failing.zstd", "tpch_sf0.1.zstd"]
    assert found.applications["status"].to_list() == ["complete", "complete"]
    assert set(found.measured.executions["session"]) == set(found.applications["log"])
    assert set(found.measured.executions["label"]) == {"baseline"}
    added = found.measured.pieces.group_by("session", "sql_id").agg(pl.col("wall_s").sum().alias("added_s"))
    both = found.measured.executions.join(added, on=["session", "sql_id"])
    assert both.height == found.measured.executions.height > 20
    assert ((both["added_s"] - both["wall_s"]).abs() < 0.01 * both["wall_s"]).all()


def test_two_processes_give_the_rows_of_one(cache: FactsCache) -> None:
    sources = [LOGS / "small", LOGS / "killed"]
    one = measure_fleet(sources, jobs=1)
    two = measure_fleet(sources, jobs=2)
    assert same(one, two)
    assert (one.n_read, one.n_cached) == (one.applications.height, 0)


def test_what_is_wrong_with_a_log_stands_in_its_row(folder: Path, cache: FactsCache) -> None:
    (folder / "empty").touch()
    (folder / "noise").write_bytes(b"\x00\x01\x02")
    (folder / "other.zstd").write_bytes(b"\x28\xb5\x2f\xfdnot zstd at all")
    (folder / "config").write_bytes(b'{"a": 1}\n')
    (folder / "cut").write_bytes(content()[:-300])
    other = content().replace(b'"app-1"', b'"app-other"')
    bad = other.replace(b'"Task Info":', b'"Task Info"', 1)
    (folder / "bad_line").write_bytes(bad)
    (folder / "README.md").write_text("no log")
    (folder / "eventlog_v2_none").mkdir()
    (folder / "eventlog_v2_none" / "events_1_none").touch()
    found = status_of(measure_fleet([folder], jobs=1, cache=cache))
    assert "README.md" not in found
    assert found["app-1"] == ("complete", None)
    assert found["empty"] == ("unreadable", "the file is empty")
    assert found["noise"][0] == found["other.zstd"][0] == found["config"][0] == "unreadable"
    assert "not a Spark event log" in str(found["noise"][1])
    assert "no Spark event in it" in str(found["config"][1])
    assert found["eventlog_v2_none"][0] == "unreadable"
    assert found["cut"][0] in ("incomplete", "damaged")
    assert found["bad_line"][0] == "damaged"
    assert "1 of" in str(found["bad_line"][1])


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_costs_its_own_row_only(folder: Path, cache: FactsCache) -> None:
    (folder / "app-1").chmod(0)
    found = status_of(measure_fleet([folder], jobs=1, cache=cache))
    assert found["app-1"][0] == "unreadable"
    assert found["app-2"][0] == "complete"


def test_a_fault_of_the_method_costs_its_own_row_only(
    folder: Path, cache: FactsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def measure(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise KeyError("odd plan")
        return real(*args, **more)

    real = measured_logs.measure_log_times
    monkeypatch.setattr(measured_logs, "measure_log_times", measure)
    found = measure_fleet([folder], jobs=1, cache=cache).applications
    assert found["status"].to_list().count("unreadable") == 1
    assert "KeyError: 'odd plan'" in found["reason"].to_list()


def die(path: str, cache: FactsCache | None = None) -> Any:
    """Stands for a reader that the system kills on one log."""
    if path.endswith("app-2"):
        os._exit(9)
    return measured_logs.measure_log(path, cache)


def test_a_process_that_dies_costs_the_log_that_killed_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_reader, "measure_log", die)
    found = status_of(measure_fleet([folder], jobs=2))
    assert found["app-2"][0] == "unreadable"
    assert "died" in str(found["app-2"][1])
    assert [found[f"app-{number}"][0] for number in (1, 3, 4)] == ["complete"] * 3


def test_only_new_and_changed_logs_are_read(folder: Path, cache: FactsCache) -> None:
    first = measure_fleet([folder], jobs=1, cache=cache)
    again = measure_fleet([folder], jobs=1, cache=cache)
    assert (first.n_read, first.n_cached) == (4, 0)
    assert (again.n_read, again.n_cached) == (0, 4)
    assert same(first, again)
    log(folder, "app-5", start_ms=DAY_MS)
    log(folder, "app-1", start_ms=9 * DAY_MS, end_ms=10 * DAY_MS)
    grown = measure_fleet([folder], jobs=1, cache=cache)
    assert (grown.n_read, grown.n_cached) == (2, 3)


def test_measured_tables_come_back_from_the_cache_unchanged(cache: FactsCache) -> None:
    first = measure_fleet([LOGS / "tpch_sf0.1.zstd"], jobs=1, cache=cache)
    again = measure_fleet([LOGS / "tpch_sf0.1.zstd"], jobs=1, cache=cache)
    assert again.n_cached == 1
    assert same(first, again)


def test_copies_of_a_log_count_once(folder: Path, cache: FactsCache) -> None:
    (folder / "copy").write_bytes((folder / "app-1").read_bytes())
    found = status_of(measure_fleet([folder], jobs=1, cache=cache))
    assert found["app-1"] == ("complete", None)
    assert found["copy"][0] == "duplicate"
    assert str(found["copy"][1]).endswith("app-1")


def test_copies_take_no_place_among_the_newest(folder: Path, cache: FactsCache) -> None:
    for name in ("app-4", "app-1"):
        (folder / f"a-copy-of-{name}").write_bytes((folder / name).read_bytes())
    found = status_of(measure_fleet([folder], jobs=1, cache=cache, filters=FleetFilters(newest=2)))
    assert {name: status for name, (status, _) in found.items()} == {
        "a-copy-of-app-4": "complete",
        "app-3": "complete",
        "app-4": "duplicate",
    }


def test_earlier_attempts_take_no_place_among_the_newest(tmp_path: Path, cache: FactsCache) -> None:
    for number in (8, 9):
        attempt(tmp_path / "logs", number, end_ms=20_000)
    log(tmp_path / "logs", "older", start_ms=1000)
    log(tmp_path / "logs", "oldest", start_ms=500)
    found = status_of(measure_fleet([tmp_path / "logs"], jobs=1, cache=cache, filters=FleetFilters(newest=2)))
    assert {name: status for name, (status, _) in found.items()} == {
        "attempt-8": "superseded",
        "attempt-9": "complete",
        "older": "complete",
    }


def test_one_application_in_several_codecs_counts_once(cache: FactsCache) -> None:
    found = measure_fleet([LOGS / "small"], jobs=1, cache=cache)
    assert sorted(found.applications["status"]) == ["complete"] + ["duplicate"] * 6
    assert found.measured.executions["session"].n_unique() == 1


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        (FleetFilters(), [1, 2, 3, 4]),
        (FleetFilters(app_name="etl 1"), [1, 3]),
        (FleetFilters(app_name="etl*"), [1, 2, 3, 4]),
        (FleetFilters(app_name="ETL*"), []),
        (FleetFilters(since=date(1970, 1, 4)), [3, 4]),
        (FleetFilters(newest=1), [4]),
        (FleetFilters(min_duration_s=3), [3, 4]),
        (FleetFilters(app_name="etl 0", newest=1, min_duration_s=1), [4]),
    ],
)
def test_filters_keep_what_they_say(filters: FleetFilters, kept: list[int], folder: Path, cache: FactsCache) -> None:
    found = measure_fleet([folder], jobs=1, cache=cache, filters=filters)
    assert names(found) == [f"app-{number}" for number in kept]
    assert found.n_filtered == 4 - len(kept)


def test_a_log_that_cannot_be_read_passes_every_filter(folder: Path, cache: FactsCache) -> None:
    (folder / "empty").touch()
    found = measure_fleet([folder], jobs=1, cache=cache, filters=FleetFilters(app_name="none", newest=1))
    assert names(found) == ["empty"]


@pytest.mark.parametrize("wrong", [{"newest": 0}, {"min_duration_s": -1}, {"min_duration_s": float("nan")}])
def test_a_filter_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FleetFilters(**wrong)


def test_no_process_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError):
        measure_fleet([folder], jobs=0)


def test_globs_and_urls_name_logs(folder: Path, cache: FactsCache) -> None:
    import fsspec

    assert names(measure_fleet([folder / "app-[12]"], jobs=1, cache=cache)) == ["app-1", "app-2"]
    store = fsspec.filesystem("memory")
    with store.open("/fleet/app-9", "wb") as file:
        file.write((folder / "app-1").read_bytes())
    try:
        found = measure_fleet(["memory://fleet/*"], jobs=1, cache=cache)
    finally:
        store.rm("/fleet", recursive=True)
    assert names(found) == ["app-9"]
    assert found.applications["status"].to_list() == ["complete"]


@pytest.mark.parametrize("source", ["absent", "absent*"])
def test_a_path_that_is_not_there_is_refused(source: str, folder: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        measure_fleet([folder / source])


def test_progress_counts_logs(folder: Path, cache: FactsCache) -> None:
    told: list[tuple[int, int]] = []
    measure_fleet([folder], jobs=1, cache=cache, progress=lambda done, all_: told.append((done, all_)))
    assert told == [(number, 4) for number in range(1, 5)]
