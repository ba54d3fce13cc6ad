"""What differs between two sides is said, and what makes them no pair is called invalid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from workbench.core.errors import InputError
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.attribution.session_settings import read_session_settings
from workbench.speedup.comparison.comparability import check_comparability
from workbench.speedup.tables import COMPARABILITY

Make = Callable[..., EventLogFacts]


@pytest.fixture
def session(tmp_path: Path) -> Make:
    """One session: a query run twice, its scan of `lineitem` with these rows and bytes."""
    numbers = iter(range(100))

    def make(
        *,
        properties: dict[str, str] | None = None,
        rows: int = 1000,
        size_bytes: int = 5000,
        scan: str = "Scan parquet ",
        plugin: str | None = None,
        cores: int = 4,
        passes: int = 2,
        table: str = "lineitem",
    ) -> EventLogFacts:
        number = next(numbers)
        events: list[dict[str, Any]] = [
            made.log_start(),
            made.application_start() | {"App ID": f"app-{number}", "Timestamp": 1000 + number},
            made.environment((properties or {}) | ({"spark.plugins": plugin} if plugin else {})),
            made.executor_added(cores=cores),
        ]
        for run in range(passes):
            tree = made.plan(
                scan,
                f"FileScan parquet [a#1] Location: InMemoryFileIndex[file:/x/{table}], ReadSchema: struct<a:int>",
                metrics={10 * run + 1: "number of output rows", 10 * run + 2: "size of files read"},
            )
            events += [
                made.sql_start(run, tree, "q1"),
                made.job_start(run, [run], {"spark.sql.execution.id": str(run)}),
                made.stage_submitted(run),
                made.task_end(run, 0, run, updates={10 * run + 1: rows}),
                made.stage_completed(run),
                made.driver_updates(run, (10 * run + 2, size_bytes)),
                made.job_end(run),
                made.sql_end(run),
            ]
        path = tmp_path / f"log{number}"
        path.write_bytes(made.dump(*events, made.application_end()))
        return read_event_logs(path)

    return make


def by_property(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["property"]: row for row in frame.iter_rows(named=True)}


def severities(frame: pl.DataFrame) -> dict[str, str]:
    return {row["property"]: row["severity"] for row in frame.iter_rows(named=True) if row["severity"] != "ok"}


def test_equal_sides_are_comparable_in_everything(session: Make) -> None:
    found = check_comparability([session(), session()], [session(), session()])
    assert severities(found) == {}
    assert COMPARABILITY.check(found).height == 16
    assert by_property(found)["data"]["baseline"] == "1 table(s), 1,000 rows, 4.88 KiB"


@pytest.mark.parametrize(
    ("name", "properties", "value"),
    [
        ("shuffle partitions", {"spark.sql.shuffle.partitions": "4"}, "4"),
        ("broadcast threshold", {"spark.sql.autoBroadcastJoinThreshold": "-1"}, "off"),
        ("broadcast threshold", {"spark.sql.autoBroadcastJoinThreshold": "20MB"}, "20 MiB"),
        ("adaptive execution", {"spark.sql.adaptive.enabled": "false"}, "off"),
        ("driver memory", {"spark.driver.memory": "4g"}, "4 GiB"),
        ("executor memory", {"spark.executor.memory": "2048"}, "2 GiB"),
        ("file cache", {"spark.rapids.filecache.enabled": "true"}, "RAPIDS file cache"),
        ("file cache", {"spark.databricks.io.cache.enabled": "true"}, "Databricks disk cache"),
        ("master", {"spark.master": "yarn"}, "yarn"),
        ("task slots", {"spark.task.cpus": "2"}, "2"),
    ],
)
def test_a_setting_that_differs_is_a_warning(name: str, properties: dict[str, str], value: str, session: Make) -> None:
    found = check_comparability([session(), session()], [session(properties=properties) for _ in range(2)])
    row = by_property(found)[name]
    assert (row["severity"], row["candidate"]) == ("warning", value)
    assert severities(found) == {name: "warning"}


def test_a_default_that_is_spelt_out_is_no_difference(session: Make) -> None:
    spelt = {"spark.sql.autoBroadcastJoinThreshold": "10485760b", "spark.sql.adaptive.enabled": "true"}
    assert severities(check_comparability([session(), session()], [session(properties=spelt), session()])) == {}


def test_off_heap_memory_of_the_accelerator_is_memory(session: Make) -> None:
    heap = {"spark.executor.memory": "4g"}
    off = heap | {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "4g"}
    found = check_comparability([session(properties=heap)] * 1, [session(properties=off)])
    assert by_property(found)["executor memory"]["candidate"] == "8 GiB (heap 4 GiB + off-heap 4 GiB)"
    assert severities(found)["executor memory"] == "warning"


def test_off_heap_memory_that_is_off_does_not_count(session: Make) -> None:
    assert read_session_settings(session(properties={"spark.memory.offHeap.size": "4g"})).executor_memory == "1 GiB"


def test_sessions_of_one_side_that_differ_are_told(session: Make) -> None:
    found = check_comparability([session(), session(cores=8)], [session(), session()])
    row = by_property(found)["task slots"]
    assert (row["baseline"], row["severity"]) == ("4 / 8", "warning")
    assert "sessions of the baseline differ" in row["why"]


@pytest.mark.parametrize(("rows", "size_bytes", "severity"), [(1011, 5100, "invalid"), (1000, 9000, "warning")])
def test_other_data_are_told(rows: int, size_bytes: int, severity: str, session: Make) -> None:
    found = check_comparability([session(), session()], [session(rows=rows, size_bytes=size_bytes) for _ in range(2)])
    assert severities(found) == {"data": severity}


@pytest.mark.parametrize(("rows", "size_bytes"), [(1009, 5049), (700, 5000)])
def test_equal_data_are_recognised_though_filters_reach_into_the_files(
    rows: int, size_bytes: int, session: Make
) -> None:
    found = check_comparability([session(), session()], [session(rows=rows, size_bytes=size_bytes) for _ in range(2)])
    assert severities(found) == {}


def test_no_common_table_leaves_the_data_unknown(session: Make) -> None:
    found = check_comparability([session(), session()], [session(table="orders") for _ in range(2)])
    assert severities(found) == {"data": "warning"}


COMET = {"scan": "CometScan parquet ", "plugin": "org.apache.spark.CometPlugin"}


def test_an_accelerated_candidate_is_what_is_compared(session: Make) -> None:
    found = check_comparability([session(), session()], [session(**COMET) for _ in range(2)])
    assert severities(found) == {}
    assert by_property(found)["accelerated operators"]["candidate"] == "100%"


def test_swapped_sides_are_invalid_unless_they_were_named(session: Make) -> None:
    sides = [session(**COMET) for _ in range(2)], [session(), session()]
    row = by_property(check_comparability(*sides))["accelerated operators"]
    assert row["severity"] == "invalid"
    assert "swapped" in row["why"]
    assert severities(check_comparability(*sides, named=True)) == {}


def test_an_accelerator_that_ran_nothing_is_told(session: Make) -> None:
    idle = [session(plugin=COMET["plugin"]) for _ in range(2)]
    found = check_comparability([session(), session()], idle)
    assert severities(found) == {"accelerated operators": "warning"}


def test_sessions_on_different_engines_are_no_side(session: Make) -> None:
    found = check_comparability([session(), session()], [session(**COMET), session()])
    assert severities(found)["engine"] == "invalid"


def test_an_application_on_both_sides_is_no_pair(session: Make) -> None:
    one = session()
    assert severities(check_comparability([one, session()], [one, session()]))["applications"] == "invalid"


def test_runs_that_are_all_cold_are_no_pair_and_unequal_numbers_a_warning(session: Make) -> None:
    two = [session(), session()]
    assert severities(check_comparability(two, [session(passes=1), session(passes=1)])) == {"warm runs": "invalid"}
    assert severities(check_comparability(two, [session(passes=3), session(passes=3)])) == {"warm runs": "warning"}


def test_one_session_on_a_side_is_told(session: Make) -> None:
    assert severities(check_comparability([session()], [session(), session()])) == {"applications": "warning"}


def test_a_side_without_logs_is_refused(session: Make) -> None:
    with pytest.raises(InputError, match="no event log"):
        check_comparability([session()], [])


def test_executors_that_replace_each_other_are_not_added_up() -> None:
    facts = read_event_logs(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")
    one = facts.executors.row(0, named=True)
    replaced = [one | {"removed_time_ms": 5000, "added_time_ms": 1000}]
    replaced.append(one | {"executor_id": "other", "added_time_ms": 5000})
    frame = pl.DataFrame(replaced, schema=facts.executors.schema)
    fields = {name: getattr(facts, name) for name in EventLogFacts.__dataclass_fields__}
    found = read_session_settings(EventLogFacts(**fields | {"executors": frame}))
    assert (found.n_executors, found.task_slots) == (1, one["total_cores"])
