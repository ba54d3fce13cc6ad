"""Make one large, valid event log from a small one: its queries repeated, with shifted ids and times.

The events between the first and the last SQL execution, job, stage and task are written again and again, every id
(execution, job, stage, task, accumulator) moved behind the highest one so far and every time stamp moved by the
application's span: one application that ran the same work N times. With `tasks` above 1 each task becomes so many, as
if the data had been cut into as many more partitions, and an executor has as many more cores; what the stage's end says
stays that of the first. Compressed, the result is far smaller than a real log of its size, since it repeats itself:
benchmarks read it plain.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

IDS = {
    "Stage ID": "stage",
    "Job ID": "job",
    "Task ID": "task",
    "executionId": "sql",
    "rootExecutionId": "sql",
    "ID": "accumulator",
    "accumulatorId": "accumulator",
}
TIMES = {"Timestamp", "time", "Submission Time", "Completion Time", "Launch Time", "Finish Time", "Getting Result Time"}
STAGE_LISTS = {"Stage IDs", "Parent IDs"}
REPEATED = (
    "SQLExecution",
    "AdaptiveExecution",
    "ListenerJob",
    "ListenerStage",
    "ListenerTask",
    "DriverAccum",
    "SQLAdaptiveSQLMetric",
)
FIRST_TIME_MS = 10**12  # smaller numbers under these names are durations or 0 for "not yet"


def replicate(content: bytes, target: Path, size_bytes: int, tasks: int = 1, at_least: int = 0) -> int:
    """Write a log of at least `size_bytes` and `at_least` repetitions to `target`; give their number."""
    events = [orjson.loads(line) for line in content.splitlines() if line]
    repeated = [event for event in events if any(name in event["Event"] for name in REPEATED)]
    ends = [event for event in events if event["Event"].endswith("ApplicationEnd")]
    head = [event for event in events if event not in ends and not any(name in event["Event"] for name in REPEATED)]
    offsets = {kind: highest + 1 for kind, highest in _highest(events).items()}
    span_ms = ends[0]["Timestamp"] - next(
        event["Timestamp"] for event in events if event["Event"].endswith("ApplicationStart")
    )
    with target.open("wb") as file:
        file.writelines(orjson.dumps(_widened(event, tasks)) + b"\n" for event in head)
        rounds = 0
        while rounds < at_least or file.tell() < size_bytes:
            for event in repeated:
                shifted = _shifted(event, rounds, offsets, span_ms)
                file.writelines(orjson.dumps(one) + b"\n" for one in _multiplied(shifted, tasks))
            rounds += 1
        for event in ends:
            file.write(orjson.dumps(event | {"Timestamp": event["Timestamp"] + (rounds - 1) * span_ms}) + b"\n")
    return rounds


def _widened(event: dict[str, Any], tasks: int) -> dict[str, Any]:
    """An executor with so many times its cores, since so many more tasks run at once; other events as they are."""
    info = event.get("Executor Info")
    return event | {"Executor Info": info | {"Total Cores": info["Total Cores"] * tasks}} if info else event


def _multiplied(event: dict[str, Any], tasks: int) -> Iterator[dict[str, Any]]:
    """The event of a task as those of `tasks` tasks; the others as they are, with that number of tasks."""
    if info := event.get("Task Info"):
        for number in range(tasks):
            own = {name: info[name] * tasks + number for name in ("Task ID", "Index")}
            yield event | {"Task Info": info | own}
        return
    for stage in (*event.get("Stage Infos", []), event.get("Stage Info", {})):
        if "Number of Tasks" in stage:
            stage["Number of Tasks"] *= tasks
    yield event


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
        for item in value.values():
            yield from _pairs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _pairs(item)


def _highest(events: list[dict[str, Any]]) -> dict[str, int]:
    highest = dict.fromkeys(IDS.values(), 0)
    for name, value in _pairs(events):
        if name in IDS and isinstance(value, int):
            highest[IDS[name]] = max(highest[IDS[name]], value)
    return highest


def _shifted(value: Any, rounds: int, offsets: dict[str, int], span_ms: int) -> Any:
    if isinstance(value, list):
        return [_shifted(item, rounds, offsets, span_ms) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _shifted_field(name, item, rounds, offsets, span_ms) for name, item in value.items()}


def _shifted_field(name: str, value: Any, rounds: int, offsets: dict[str, int], span_ms: int) -> Any:
    if type(value) is int:
        if name in IDS:
            return value + rounds * offsets[IDS[name]]
        return value + rounds * span_ms if name in TIMES and value > FIRST_TIME_MS else value
    if name in STAGE_LISTS and isinstance(value, list):
        return [item + rounds * offsets["stage"] if type(item) is int else item for item in value]
    if name == "accumUpdates" and isinstance(value, list):
        return [[update[0] + rounds * offsets["accumulator"], *update[1:]] for update in value]
    if name == "spark.sql.execution.id":
        return str(int(value) + rounds * offsets["sql"])
    return _shifted(value, rounds, offsets, span_ms) if isinstance(value, dict | list) else value


def main() -> None:
    from tests.eventlog.reference import content

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="small event log, any codec")
    parser.add_argument("target", type=Path, help="large plain log to write")
    parser.add_argument("--gb", type=float, default=1.0, help="size in GB (10^9 bytes)")
    parser.add_argument("--tasks", type=int, default=1, help="tasks for each task of the log")
    options = parser.parse_args()
    rounds = replicate(content(options.log), options.target, int(options.gb * 1e9), options.tasks)
    print(f"{options.target}: {options.target.stat().st_size:,} bytes, {rounds} rounds")


if __name__ == "__main__":
    main()
