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
from workbench.speedup.attribution.application_time import read_session_settings
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
            of_run = [
                made.sql_start(run, tree, "q1"),
                made.job_start(run, [run], {"spark.sql.execution.id": str(run)}),
                made.stage_submitted(run),
                made.task_end(run, 0, run, updates={10 * run + 1: rows}),
                made.stage_completed(run),
                made.driver_updates(run, (10 * run + 2, size_bytes)),
                made.job_end(run),
                made.sql_end(run),
            ]
            events += made.shift_times(of_run, 6000 * run)
        path = tmp_path / f"log{number}"
        path.write_bytes(made.dump(*events, made.application_end(3000 + 6000 * passes)))
        return read_event_logs(path)

    return make


def by_property(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["property"]: row for row in frame.iter_rows(named=True)}


def severities(frame: pl.DataFrame) -> dict[str, str]:
    return {row["property"]: row["severity"] for row in frame.iter_rows(named=True) if row["severity"] != "ok"}


def test_equal_sides_are_comparable_in_everything(session: Make) -> None:
    found = check_comparability([session(), session()], [session(), session()])
    assert severities(found) == {}
    assert COMPARABILITY.check(found).height == 17
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


def test_logs_with_holes_make_no_pair(session: Make, tmp_path: Path) -> None:
    whole = [session(), session()]
    log = tmp_path / "log1"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b"TaskEnd" not in line))
    found = check_comparability([session(), session()], [whole[0], read_event_logs(log)])
    row = by_property(found)["logs with holes"]
    assert (row["baseline"], row["candidate"], row["severity"]) == ("0 of 2 log(s)", "1 of 2 log(s)", "invalid")
    assert row["why"] == "2 of 2 planned tasks have no end in the log (stage 0, stage 1)"


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


COMET = {"scan": "CometScan parquet ", "plugin": "org.apache.spark.CometPlugin"}
SPELT = {"spark.sql.autoBroadcastJoinThreshold": "10485760b", "spark.sql.adaptive.enabled": "true"}


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ([{"properties": SPELT}, {}], {}),
        ([{"rows": 1009, "size_bytes": 5049}] * 2, {}),
        ([{"rows": 700}] * 2, {}),
        ([{"rows": 1011, "size_bytes": 5100}] * 2, {"data": "invalid"}),
        ([{"size_bytes": 9000}] * 2, {"data": "warning"}),
        ([{"table": "orders"}] * 2, {"data": "warning"}),
        ([COMET] * 2, {}),
        ([{"plugin": COMET["plugin"]}] * 2, {"accelerated operators": "warning"}),
        ([{"passes": 1}] * 2, {"warm runs": "invalid"}),
        ([{"passes": 3}] * 2, {"warm runs": "warning"}),
        ([{}], {"applications": "warning"}),
    ],
    ids=[
        *("a default spelt out", "equal data", "a filter that reaches into the files", "other rows", "other bytes"),
        *("no common table", "an accelerator", "an idle accelerator", "all runs cold", "more runs", "one session"),
    ],
)
def test_what_the_sides_differ_in_has_its_severity(
    session: Make, candidate: list[dict[str, Any]], expected: dict[str, str]
) -> None:
    found = check_comparability([session(), session()], [session(**changed) for changed in candidate])
    assert severities(found) == expected
    assert by_property(found)["accelerated operators"]["candidate"] == ("100 %" if COMET in candidate else "0 %")


def test_swapped_sides_are_invalid_unless_they_were_named(session: Make) -> None:
    sides = [session(**COMET) for _ in range(2)], [session(), session()]
    row = by_property(check_comparability(*sides))["accelerated operators"]
    assert row["severity"] == "invalid"
    assert "swapped" in row["why"]
    assert severities(check_comparability(*sides, named=True)) == {}


def test_sessions_on_different_engines_are_no_side(session: Make) -> None:
    found = check_comparability([session(), session()], [session(**COMET), session()])
    assert severities(found)["engine"] == "invalid"


def test_an_application_on_both_sides_is_no_pair(session: Make) -> None:
    one = session()
    assert severities(check_comparability([one, session()], [one, session()]))["applications"] == "invalid"


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
