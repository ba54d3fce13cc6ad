"""The same facts computed the straightforward way: json.loads line by line, no code shared with the package."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.fakes import codecs

MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd", b"LZ": "lz4", b"\x82S": "snappy", b"ZV": "lzf"}


def content(path: Path) -> bytes:
    """The decoded bytes of a file or of a rolling folder."""
    if path.is_dir():
        parts = [part for part in path.iterdir() if part.name.startswith("events_")]
        return b"".join(content(part) for part in sorted(parts, key=lambda part: int(part.name.split("_")[1])))
    data = path.read_bytes()
    return codecs.decode(data, MAGIC.get(data[:2], "plain"))


def events(data: bytes) -> list[dict[str, Any]]:
    found = []
    for line in data.split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def integer(value: Any) -> int | None:
    """What counts as a number in an accumulator: an integer, a text of digits, RAPIDS' clock times as milliseconds."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value):
        return int(value)
    if isinstance(value, str) and (clock := re.fullmatch(r"(\d+):(\d\d):(\d\d)[.](\d{3})", value)):
        return int(clock[1]) * 3_600_000 + int(clock[2]) * 60_000 + int(clock[3]) * 1000 + int(clock[4])
    return None


class Reference:
    """Everything that the tests compare, from one decoded log."""

    def __init__(self, data: bytes) -> None:
        self.values: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.names: dict[int, str] = {}
        self.sql_ids: set[int] = set()
        self.stages: set[tuple[int, int]] = set()
        self.jobs: set[int] = set()
        self.sql_of_stage: dict[int, int] = {}
        self.app_ids: list[str] = []
        self.ended = False
        self.metrics: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.durations: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.outcomes: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
        for event in events(data):
            self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        name = str(event.get("Event", "")).rsplit(".", 1)[-1]
        if name == "SparkListenerApplicationStart":
            self.app_ids.append(event.get("App ID"))
        elif name == "SparkListenerApplicationEnd":
            self.ended = True
        elif name == "SparkListenerSQLExecutionStart":
            self.sql_ids.add(event["executionId"])
        elif name in ("SparkListenerJobStart", "SparkListenerJobEnd"):
            self.jobs.add(event["Job ID"])
            for stage_id in event.get("Stage IDs", []):
                if "spark.sql.execution.id" in (event.get("Properties") or {}):
                    self.sql_of_stage.setdefault(stage_id, int(event["Properties"]["spark.sql.execution.id"]))
        elif name in ("SparkListenerStageSubmitted", "SparkListenerStageCompleted"):
            self.stages.add((event["Stage Info"]["Stage ID"], event["Stage Info"]["Stage Attempt ID"]))
        elif name == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] != "Resubmitted":
            self.task(event)

    def task(self, event: dict[str, Any]) -> None:
        key = (event["Stage ID"], event["Stage Attempt ID"])
        info = event["Task Info"]
        self.durations[key].append(info["Finish Time"] - info["Launch Time"])
        self.outcomes[key][2 if info["Killed"] else 1 if info["Failed"] else 0] += 1
        for update in info["Accumulables"]:
            self.names[update["ID"]] = update["Name"]
            if (value := integer(update.get("Update"))) is not None:
                self.values[(*key, update["ID"])].append(value)
        for name, value in flat(event.get("Task Metrics") or {}).items():
            self.metrics[key][name] += value


def flat(metrics: dict[str, Any], prefix: str = "") -> dict[str, int]:
    found = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, int):
            found[prefix + name] = value
    return found
