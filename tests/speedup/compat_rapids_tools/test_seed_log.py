"""Logs as the seed method holds them: what it refuses, and sums at the moment they are wiped out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import eventlogs as fake
from tests.speedup.compat_rapids_tools import made
from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.seed_log import SeedLog, read_seed_logs


def held(tmp_path: Path, content: bytes, *, need_sql: bool = True) -> SeedLog:
    path = tmp_path / "log"
    path.write_bytes(content)
    return read_seed_logs(path, need_sql=need_sql)[0]


STREAM = {"Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (fake.small(fake.sql_start(), fake.sql_end()), "no task ended in this log"),
        (fake.dump(fake.log_start(), fake.sql_start(), fake.task_end()), "no application starts in this log"),
        (fake.small(fake.sql_start(), STREAM, fake.task_end()), "structured streaming"),
    ],
)
def test_a_log_of_which_nothing_can_be_estimated_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        held(tmp_path, content)


def test_a_log_without_sql_is_refused_unless_it_may_be(tmp_path: Path) -> None:
    content = fake.small(fake.job_start(), fake.stage_submitted(), fake.task_end(), fake.stage_completed())
    content = content.replace(b'"Timestamp":9000', b'"Timestamp":9001')
    with pytest.raises(InputError, match="no SQL ran in this log"):
        held(tmp_path, content)
    assert held(tmp_path, content, need_sql=False).queries == {}


def test_lines_that_cannot_be_read_and_an_end_in_the_middle_of_one_are_told(tmp_path: Path) -> None:
    found = held(tmp_path, b'{"Event":"SparkListenerTaskEnd","Stage\n' + made.cpu())
    assert found.warnings == ["1 of 13 lines could not be read: the original drops such a log whole"]
    found = held(tmp_path, made.cpu() + b'{"Event":"SparkListenerTaskEnd","Stage')
    assert found.warnings == ["the log ends in the middle of a line: figures cover the part before"]


def test_events_that_only_other_readers_need_are_passed_over(tmp_path: Path) -> None:
    part = {"Event": "DBCEventLoggingListenerMetadata", "Rollover Number": 0, "Spark Version": "3.5.1"}
    found = held(tmp_path, fake.dump(part) + made.cpu())
    assert (found.warnings, found.queries.keys()) == ([], held(tmp_path, made.cpu()).queries.keys())


def test_nanoseconds_are_floored_task_by_task(tmp_path: Path) -> None:
    metrics = {"Executor Run Time": 1, "Executor CPU Time": 1_900_000}
    tasks = [fake.task_end(task_id=number, metrics=metrics) for number in range(3)]
    found = held(tmp_path, fake.small(fake.sql_start(), fake.job_start(0, [0], made.SQL), *tasks))
    assert found.stage_sums[0].cpu_ms == 3
    assert found.sql_sums[0].run_ms == 3


def test_a_failed_job_wipes_out_what_its_query_had_added_up_so_far(tmp_path: Path) -> None:
    before, after = (fake.task_end(task_id=number) for number in (0, 1))
    failed = fake.job_end(0, "Job aborted")
    found = held(tmp_path, fake.small(fake.sql_start(), fake.job_start(0, [0], made.SQL), before, failed, after))
    assert found.sql_sums[0].run_ms == 100
    assert found.stage_sums[0].run_ms == 200
    assert found.failures == {0: ["Job0"]}


def test_a_cancelled_job_is_no_failure(tmp_path: Path) -> None:
    cancelled = fake.job_end(0, "Job 0 cancelled part of group")
    found = held(tmp_path, fake.small(fake.sql_start(), fake.job_start(0, [0], made.SQL), fake.task_end(), cancelled))
    assert found.failures == {}


def test_without_an_end_the_last_job_or_query_stands_for_it(tmp_path: Path) -> None:
    content = b"".join(made.cpu().splitlines(keepends=True)[:-1])
    found = held(tmp_path, content)
    assert found.end_is_estimated
    assert found.end_ms == 7100
