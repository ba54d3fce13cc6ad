"""What Spark's logs do in practice and damage does to them: every line counted once, none fatal."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import eventlogs as made
from workbench.eventlog import completeness, tables
from workbench.eventlog.fold import Chunk, fold_chunk, parse_integer
from workbench.eventlog.reader import EventLogFacts, read_event_logs

Log = Callable[[bytes], EventLogFacts]


@pytest.fixture
def facts(tmp_path: Path) -> Log:
    def of(content: bytes, **options: Any) -> EventLogFacts:
        path = tmp_path / "log"
        path.write_bytes(content)
        return read_event_logs(path, **options)

    return of


def tasks_of(facts: EventLogFacts, stage_id: int = 0, attempt: int = 0) -> dict[str, Any]:
    rows = facts.stage_tasks.filter(facts.stage_tasks["stage_id"] == stage_id)
    return rows.filter(rows["stage_attempt_id"] == attempt).row(0, named=True)


def accumulator(facts: EventLogFacts, accumulator_id: int = 7) -> dict[str, Any]:
    return facts.accumulators.filter(facts.accumulators["accumulator_id"] == accumulator_id).row(0, named=True)


def stage(*middle: dict[str, Any] | bytes, tasks: int = 1, **ended: Any) -> list[dict[str, Any] | bytes]:
    return [made.stage_submitted(tasks=tasks), *middle, made.stage_completed(tasks=tasks, **ended)]


def test_a_task_that_ends_after_its_stage_belongs_to_it(facts: Log) -> None:
    """A speculative copy loses: its stage is complete before it is killed."""
    found = facts(
        made.small(
            *stage(made.task_start(task_id=0), made.task_start(task_id=1), made.task_end(task_id=0, updates={7: 5})),
            made.task_end(task_id=1, updates={7: 3}, killed=True, speculative=True, finish_ms=2500),
        )
    )
    row = tasks_of(found)
    assert (row["n_tasks"], row["n_succeeded"], row["n_killed"], row["n_speculative"]) == (2, 1, 1, 1)
    assert (accumulator(found)["n"], accumulator(found)["total"]) == (2, 8)
    assert row["failed_task_duration_total_ms"] == 400
    assert found.logs["n_late_task_ends"][0] == 0


@pytest.mark.parametrize("chunk_bytes", [200, 700, 1 << 20])
def test_starts_that_spark_dropped_do_not_lose_tasks(facts: Log, chunk_bytes: int) -> None:
    middle = [made.task_end(task_id=i, updates={7: i}) for i in range(5)]
    found = facts(made.small(*stage(made.task_start(task_id=4), *middle, tasks=5)), chunk_bytes=chunk_bytes)
    assert tasks_of(found)["n_tasks"] == 5
    assert accumulator(found)["total"] == 10


def test_a_retried_stage_has_a_row_for_each_attempt(facts: Log) -> None:
    found = facts(
        made.small(
            made.job_start(0, [0]),
            *stage(made.task_end(updates={7: 1}, failed=True), failure="fetch failed"),
            made.stage_submitted(attempt=1),
            made.task_end(attempt=1, updates={7: 2}),
            made.stage_completed(attempt=1, values={7: 3}),
            made.job_end(),
        )
    )
    assert found.stages["status"].to_list() == ["failed", "succeeded"]
    assert found.stages["job_ids"].to_list() == [[0], [0]]
    assert [row["total"] for row in found.accumulators.iter_rows(named=True)] == [1, 2]
    assert [row["value_at_stage_end"] for row in found.accumulators.iter_rows(named=True)] == [None, 3]
    assert found.failures["kind"].to_list() == ["stage", "task"]


def test_a_stage_without_tasks_has_no_durations_and_is_no_zero(facts: Log) -> None:
    row = tasks_of(facts(made.small(*stage(tasks=0))))
    assert row["n_tasks"] == 0
    assert [row[f"task_duration_{name}_ms"] for name in ("min", "median", "p95", "max", "total")] == [None] * 5
    assert row["first_launch_time_ms"] is None


def test_lines_that_come_twice_are_read_once_and_told(facts: Log) -> None:
    once = [made.sql_start(), made.job_start(0, [0], {"spark.sql.execution.id": "0"}), *stage(made.task_end())]
    found = facts(made.small(*[event for event in once for _ in range(2)], made.job_end(), made.job_end()))
    assert found.stages.height == 1
    assert found.jobs.height == 1
    assert found.sql_executions["n_plan_versions"].to_list() == [1]
    assert tasks_of(found)["n_tasks"] == 1
    told = found.completeness.filter(kind="repeated lines")
    assert told["subject"].to_list() == ["6 lines"]


def test_a_task_whose_output_is_lost_ends_once_whether_its_second_end_has_its_metrics_or_not(facts: Log) -> None:
    first, again, bare = (made.task_end(updates={7: 5}), made.task_end(updates={7: 5}), made.task_end())
    for event in (again, bare):
        event["Task End Reason"] = {"Reason": "Resubmitted"}
    found = facts(made.small(*stage(first, again, bare, made.task_end(task_id=1, updates={7: 5}))))
    row = tasks_of(found)
    assert (row["n_tasks"], row["n_succeeded"], row["n_resubmitted"]) == (2, 2, 2)
    assert accumulator(found)["total"] == 10


def test_a_field_of_another_type_costs_the_field_and_not_the_event(facts: Log) -> None:
    start = made.job_start(0, [0], {"spark.sql.execution.id": "0"})
    start["Properties"]["spark.job.description"] = None
    completed = made.stage_completed()
    completed["Stage Info"] |= {"Parent IDs": None, "Stage Name": None}
    end = made.task_end(updates={7: 5})
    end["Task Info"]["Executor ID"] = None
    found = facts(made.small(made.sql_start(), start, made.stage_submitted(), end, completed))
    assert found.logs["n_bad_lines"].to_list() == [0]
    assert tasks_of(found)["n_tasks"] == 1
    told = found.completeness.filter(kind="odd fields")["subject"].to_list()
    assert told == ["Stage Info.Parent IDs (1), Stage Info.Stage Name (1), Task Info.Executor ID (1)"]


def test_an_unreadable_metric_of_a_task_is_a_hole_and_no_zero(facts: Log) -> None:
    end = made.task_end(updates={7: 5})
    end["Task Metrics"] = {"Executor Run Time": None}
    found = facts(made.small(*stage(end)))
    assert found.completeness.filter(kind="lost fields")["touches"].to_list() == [completeness.TASK_FIGURES]


def test_a_plan_of_thousands_of_levels_is_read(facts: Log) -> None:
    plan = b'{"nodeName":"a","children":[' * 10_000 + b"]}" * 10_000
    start = b'{"Event":"' + made.SQL.encode() + b'SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":'
    found = facts(made.small(start + plan + b"}", made.sql_end()))
    assert found.plan_nodes.height == 10_000
    assert found.logs["n_bad_lines"].to_list() == [0]


@pytest.mark.parametrize(
    ("job", "error", "status"),
    [
        (None, None, "succeeded"),
        ("lost", None, "failed"),
        ("lost", "", "succeeded"),  # Spark 3.4 says itself how it ended
        (None, "wrong plan", "failed"),
    ],
)
def test_an_execution_that_does_not_say_how_it_ended_failed_with_its_job(
    facts: Log, job: str | None, error: str | None, status: str
) -> None:
    properties = {"spark.sql.execution.id": "0"}
    found = facts(
        made.small(made.sql_start(), made.job_start(0, [], properties), made.job_end(0, job), made.sql_end(0, error))
    )
    assert found.sql_executions["status"].to_list() == [status]
    assert found.sql_executions["error"].to_list() == [(error or job) if status == "failed" else None]
    assert ("sql" in found.failures["kind"]) == (status == "failed")


def test_updates_that_are_no_integers_are_counted_and_the_others_kept(facts: Log) -> None:
    updates = [1, "2", 2.5, [1, 2], {"a": 1}, "text", None, True, "00:00:01.500", 2**63, -(2**63), "9" * 30]
    found = facts(made.small(*stage(*[made.task_end(task_id=i, updates={7: u}) for i, u in enumerate(updates)])))
    row = accumulator(found)
    assert found.logs["n_bad_lines"][0] == 0
    assert tasks_of(found)["n_tasks"] == len(updates)
    assert (row["n"], row["min"], row["max"]) == (4, -(2**63), 1500)
    assert row["n_not_integer"] == len(updates) - 4 - 1  # an update of null is none


def test_text_is_read_as_a_number_only_when_it_is_one() -> None:
    texts = ("+5", "-0", " 5", "5_0", "1:02:03.004", "1e3")
    assert [parse_integer(text) for text in texts] == [5, 0, None, None, 3723004, None]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda lines: b"\r\n".join(lines), id="CRLF"),
        pytest.param(lambda lines: b"\n\n  \n".join(lines), id="blank lines"),
        pytest.param(lambda lines: b"\xef\xbb\xbf" + b"\n".join(lines), id="byte order mark"),
        pytest.param(lambda lines: b"\n".join(lines), id="no line end at the end"),
        pytest.param(lambda lines: b"\n".join(json.dumps(json.loads(line)).encode() for line in lines), id="blanks"),
        pytest.param(
            lambda lines: b"\n".join(json.dumps(dict(reversed(json.loads(line).items()))).encode() for line in lines),
            id="other key order",
        ),
        pytest.param(
            lambda lines: b"\n".join(line[:-1] + b',"Field of a later Spark":{"a":[1,{}]}}' for line in lines),
            id="unknown fields",
        ),
    ],
)
def test_other_layouts_of_the_same_events_give_the_same_facts(
    content: Callable[[list[bytes]], bytes], facts: Log
) -> None:
    whole = made.small(
        made.sql_start(),
        made.job_start(0, [0], {"spark.sql.execution.id": "0"}),
        *stage(made.task_end(updates={7: 5, 8: [1]}), made.task_end(task_id=1, updates={7: 6}), tasks=2),
        made.job_end(),
        made.sql_end(),
    )
    expected, got = facts(whole), facts(content(whole.splitlines()))
    assert got.logs["n_bad_lines"][0] == 0
    for table in tables.FACT_TABLES:
        assert getattr(got, table.name).equals(getattr(expected, table.name)), table.name


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00 not UTF-8",
        b"42",
        b'"text"',
        b"null",
        b"[1,2]",
        b"{}",
        b'{"Event":17}',
        b'{"Event":"SparkListenerTaskEnd"}',
        b'{"Event":"SparkListenerTaskEnd","Stage ID":"x"}',
        b'{"Event":"SparkListenerTaskStart","Stage ID":null,"Task Info":{}}',
        b'{"Event":"SparkListenerStageCompleted","Stage Info":{}}',
        b'{"Event":"SparkListenerJobStart"}',
        b'{"Event":"SparkListenerSomething"',
        json.dumps(made.task_end(stage_id=2**70)).encode(),
        json.dumps(made.task_end(finish_ms=2**70)).encode(),
        json.dumps(made.task_end(updates={2**70: 1})).encode(),
        json.dumps(made.task_end(updates={2**70: [1]})).encode(),
        json.dumps(made.stage_submitted(stage_id=2**70)).encode(),
        json.dumps(made.job_start(2**70)).encode(),
        b'{"Event":"' + made.SQL.encode() + b'SparkListenerSQLExecutionStart","executionId":0,"sparkPlanInfo":'
        + b'{"nodeName":"a","children":[' * 300_000 + b"]}" * 300_000 + b"}",
        b'{"Event":"SparkListenerEnvironmentUpdate","Spark Properties":' + b"[" * 100_000,
    ],
    ids=lambda line: line[:60].decode("latin-1"),
)  # fmt: skip
def test_a_line_that_is_no_event_is_one_bad_line_and_nothing_more(line: bytes, facts: Log) -> None:
    found = facts(made.small(made.stage_submitted(), line, made.task_end(updates={7: 5}), made.stage_completed()))
    assert found.logs.select("n_lines", "n_bad_lines").row(0) == (9, 1)
    assert found.bad_lines["line"].to_list() == [6]
    assert found.applications["status"].to_list() == ["complete"]
    assert tasks_of(found)["n_tasks"] >= 1
    assert accumulator(found)["total"] == 5


def test_absurd_task_metrics_are_capped_and_a_total_beyond_64_bits_is_null(facts: Log) -> None:
    more = {"metrics": {"Executor Run Time": 2**62, "Peak Execution Memory": 2**80}, "updates": {7: 2**62}}
    found = facts(made.small(*stage(*[made.task_end(task_id=i, **more) for i in range(4)], tasks=4)))
    assert tasks_of(found)["executor_run_time_ms"] == 2**63 - 1
    assert tasks_of(found)["peak_execution_memory_max_bytes"] == 2**63 - 1
    row = accumulator(found)
    assert (row["n"], row["min"], row["max"], row["total"]) == (4, 2**62, 2**62, None)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
def test_a_line_without_an_end_is_read_in_pieces(
    compress: Callable[[bytes], bytes], facts: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.eventlog.fold.MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr("workbench.eventlog.sources.MAX_LINE_BYTES", 1 << 20)
    found = facts(compress(made.small() + b"x" * (5 << 20)), chunk_bytes=1 << 19)
    assert found.applications["app_id"].to_list() == ["app-1"]
    assert 1 <= found.logs["n_bad_lines"][0] <= 16


# The peak is read from /proc: what getrusage tells includes the process that started this one.
BOMB = """
import re, sys
from pathlib import Path
from workbench.eventlog import fold, sources
from workbench.eventlog.reader import read_event_logs
sources.MAX_LINE_BYTES = fold.MAX_LINE_BYTES = 8 << 20
facts = read_event_logs(sys.argv[1], jobs=1)
assert facts.applications.height == 1
assert facts.logs["content_bytes"][0] > 1_000_000_000, facts.logs["content_bytes"][0]
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_decompression_bomb_takes_bounded_memory(codec: str, tmp_path: Path) -> None:
    """1 GB of zeros behind an application, in a file of about 1 MB or less."""
    block, path = bytes(1 << 20), tmp_path / "log"
    with path.open("wb") as file:
        if codec == "gzip":
            file.write(gzip.compress(made.small()))
            member = gzip.compress(block * 50, 6)
            file.writelines([member] * 20)
        else:
            with zstandard.ZstdCompressor(level=1).stream_writer(file, closefd=False) as writer:
                writer.write(made.small())
                for _ in range(1000):
                    writer.write(block)
    assert path.stat().st_size < 2_000_000
    done = subprocess.run([sys.executable, "-c", BOMB, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 450_000, "KiB at the peak"


def test_offsets_count_from_the_start_of_the_decoded_file(tmp_path: Path) -> None:
    content = made.small(b"oops") * 3
    path = tmp_path / "log"
    path.write_bytes(content)
    whole = fold_chunk(Chunk(0, 0, 0, len(content), path=str(path)))
    places = [bad.offset for bad in whole.bad]
    assert [content[place : place + 4] for place in places] == [b"oops"] * 3
    cut = [fold_chunk(Chunk(0, 0, at, at + 100, path=str(path))) for at in range(0, len(content), 100)]
    starts = itertools.accumulate((part.bytes for part in cut), initial=0)
    assert [start + bad.offset for start, part in zip(starts, cut, strict=False) for bad in part.bad] == places
    assert sum(part.lines for part in cut) == whole.lines
    assert sum(part.bytes for part in cut) == len(content)


def _application(draw: random.Random) -> list[dict[str, Any]]:
    """A valid application: the events of its stages interleaved at random, each stage's own in order."""
    queues = []
    for number in range(draw.randint(1, 4)):
        tasks = draw.randint(0, 5)
        # Starts that were dropped and ends behind the stage's end are both met, but of one stage only one of them:
        # else what is still running cannot be told.
        dropped = draw.random() < 0.5
        starts = [made.task_start(number, 0, i) for i in range(tasks) if not dropped or draw.random() < 0.8]
        ends = [
            made.task_end(
                number, 0, i, updates={7: draw.randint(-5, 5), 8 + number: draw.choice([1, "2", [3], None])},
                failed=draw.random() < 0.2, killed=draw.random() < 0.1,
            )
            for i in range(tasks)
        ]  # fmt: skip
        inside = [*starts, *ends[: len(ends) - (not dropped and draw.randint(0, min(1, len(ends))))]]
        behind = ends[len(inside) - len(starts) :]
        queues.append([made.stage_submitted(number, tasks=tasks), *inside, made.stage_completed(number), *behind])
    sql = [made.sql_start(0, made.plan("Range", metrics={7: "rows"})), made.job_start(0, list(range(len(queues))),
           {"spark.sql.execution.id": "0"})]  # fmt: skip
    mixed = []
    while queues:
        queue = draw.choice(queues)
        mixed.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return [*sql, *mixed, made.job_end(), made.sql_end()]


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10**6), chunk_bytes=st.integers(60, 3000))
def test_any_interleaving_cut_anywhere_gives_the_tables_of_one_chunk(
    seed: int, chunk_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "log"
    path.write_bytes(made.small(*_application(random.Random(seed))))
    whole, cut = read_event_logs(path), read_event_logs(path, chunk_bytes=chunk_bytes)
    for name in EventLogFacts.__dataclass_fields__:
        assert getattr(cut, name).equals(getattr(whole, name)), name
