"""Logs of other people's making, held against a reading of their lines that shares nothing with ours.

Those beside the checkout are read where they are; WORKBENCH_PUBLIC_LOGS names a folder of more.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from workbench.speedup.fleet.fleet_reader import MeasuredFleet, measure_fleet

MORE = os.environ.get("WORKBENCH_PUBLIC_LOGS")
# Plan nodes and properties by which an engine is known to its makers' documentation.
MARKS = {
    "rapids": re.compile(rb'com\.nvidia\.spark\.SQLPlugin|"nodeName":"Gpu'),
    "photon": re.compile(rb'-photon-|"nodeName":"Photon'),
    "gluten": re.compile(rb'GlutenPlugin|"nodeName":"VeloxColumnarToRow'),
    "comet": re.compile(rb'CometPlugin|CometSparkSessionExtensions|"nodeName":"Comet'),
}
MS = 1000.0


@dataclass
class Reading:
    """What the lines of one log say."""

    app_id: str | None = None
    attempt_id: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    last_ms: int = 0
    longest_task_s: float = 0.0
    engine: str = "spark"

    @property
    def wall_s(self) -> float | None:
        end_ms = self.end_ms or self.last_ms
        return None if self.start_ms is None or not end_ms else (end_ms - self.start_ms) / MS

    def take(self, event: dict[str, Any]) -> None:
        kind = str(event.get("Event")).rpartition(".")[2]
        if kind == "SparkListenerApplicationStart":
            self.app_id, self.attempt_id = event["App ID"], event.get("App Attempt ID")
            self.start_ms = event["Timestamp"]
        elif kind == "SparkListenerApplicationEnd":
            self.end_ms = event["Timestamp"]
        elif kind == "SparkListenerJobEnd":
            self.last_ms = max(self.last_ms, event["Completion Time"])
        elif kind == "SparkListenerSQLExecutionEnd":
            self.last_ms = max(self.last_ms, event["time"])
        elif kind == "SparkListenerStageCompleted":
            self.last_ms = max(self.last_ms, event["Stage Info"].get("Completion Time") or 0)
        elif kind == "SparkListenerTaskEnd":
            info = event["Task Info"]
            self.last_ms = max(self.last_ms, info["Finish Time"])
            self.longest_task_s = max(self.longest_task_s, (info["Finish Time"] - info["Launch Time"]) / MS)


def list_lines(log: Path) -> Iterator[bytes]:
    """Of a file, or of a folder's parts in their order: rolling logs have their number, Databricks' the newest bare."""
    if log.is_dir():
        parts = [path for path in log.iterdir() if path.name.startswith("event")]
        rolled = re.compile(r"events_(\d+)_")
        numbers = {path: rolled.match(path.name) for path in parts}
        for part in sorted(
            parts,
            key=lambda path: (int(found[1]) if (found := numbers[path]) else 0, path.name == "eventlog", path.name),
        ):
            yield from list_lines(part)
        return
    content = log.read_bytes()
    if content[:4] == b"\x28\xb5\x2f\xfd":
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read()
    elif content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    yield from content.splitlines()


def read_log(log: Path) -> Reading:
    found, engines = Reading(), set()
    for line in list_lines(log):
        engines.update(name for name, mark in MARKS.items() if mark.search(line))
        try:
            event = json.loads(line)
        except ValueError:
            continue  # cut off, or written over
        if isinstance(event, dict):
            found.take(event)
    found.engine = next(iter(sorted(engines)), "spark")
    return found


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> MeasuredFleet:
    from tests.conftest import SHARED

    if not SHARED.is_dir():
        pytest.skip("reference inputs are not on this machine")
    folders = [SHARED / "data" / "eventlogs", *([Path(MORE)] if MORE else [])]
    return measure_fleet(folders)


@pytest.fixture(scope="module")
def readings(fleet: MeasuredFleet) -> dict[str, Reading]:
    return {log: read_log(Path(log)) for log in fleet.applications["log"]}


def test_each_log_is_a_row(fleet: MeasuredFleet) -> None:
    assert fleet.applications["log"].n_unique() == fleet.applications.height >= 19


def test_times_attempts_and_engines_are_those_of_the_lines(fleet: MeasuredFleet, readings: dict[str, Reading]) -> None:
    wrong = {}
    for row in fleet.applications.filter(pl.col("status") != "unreadable").iter_rows(named=True):
        one = readings[row["log"]]
        ours = (row["app_id"], row["attempt_id"], row["engine"])
        if ours != (one.app_id, one.attempt_id, one.engine) or row["wall_s"] != pytest.approx(one.wall_s, abs=1e-3):
            wrong[row["log"]] = (ours, row["wall_s"], one, one.wall_s)
    assert wrong == {}


def test_what_is_called_unreadable_has_no_application(fleet: MeasuredFleet, readings: dict[str, Reading]) -> None:
    rows = fleet.applications.filter(pl.col("status") == "unreadable")
    assert [log for log in rows["log"] if readings[log].wall_s is not None] == []
    assert rows["reason"].null_count() == 0


def test_no_time_is_one_that_its_tasks_disprove(fleet: MeasuredFleet, readings: dict[str, Reading]) -> None:
    known = fleet.applications.filter(pl.col("wall_s").is_not_null())
    assert [
        log for log, wall_s in known.select("log", "wall_s").iter_rows() if wall_s < readings[log].longest_task_s
    ] == []


def test_one_row_counts_of_each_application(fleet: MeasuredFleet, readings: dict[str, Reading]) -> None:
    counted = fleet.applications.filter(~pl.col("status").is_in(["unreadable", "duplicate", "superseded"]))
    # Somebody gave a log the id of another application; it began at another time.
    assert counted.filter(pl.col("app_id").is_not_null()).select("app_id", "start_time_ms").is_unique().all()
    attempts = counted.filter(pl.col("attempt_id").is_not_null())
    for app_id, attempt_id in attempts.select("app_id", "attempt_id").iter_rows():
        ended = [one for one in readings.values() if one.app_id == app_id and one.end_ms]
        assert int(attempt_id) == max(int(one.attempt_id or 0) for one in ended)
