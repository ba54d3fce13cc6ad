"""The same application gives the same tables however it is stored; a damaged one those from before the damage."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.eventlog.conftest import LOGS
from tests.eventlog.reference import Reference, content
from tests.fakes import codecs
from workbench.core.errors import InputError
from workbench.eventlog import tables
from workbench.eventlog.codecs import detect_codec
from workbench.eventlog.reader import EventLogFacts, read_event_logs

Read = Callable[[Path], EventLogFacts]
CODECS = ["plain", "gzip", "zstd", "lz4", "snappy", "lzf"]
SMALL = sorted((LOGS / "small").iterdir())


def digest(facts: EventLogFacts) -> dict[str, int]:
    """One number per table of facts: all rows, in their order."""
    return {
        table.name: hash(tuple(getattr(facts, table.name).hash_rows(seed=7).to_list())) for table in tables.FACT_TABLES
    }


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_the_same_application_in_every_codec_and_rolled_gives_identical_tables(
    path: Path, small: Path, facts_of: Read
) -> None:
    assert digest(facts_of(path)) == digest(facts_of(small))


def test_the_samples_hold_every_codec(facts_of: Read) -> None:
    told = {facts_of(path).logs["codec"][0] for path in SMALL}
    assert told == set(CODECS)


@pytest.mark.parametrize("codec", CODECS)
def test_file_names_do_not_matter(codec: str, small: Path, tmp_path: Path, facts_of: Read) -> None:
    misnamed = tmp_path / "events.json.lz4.txt"
    misnamed.write_bytes(codecs.ENCODERS[codec](small.read_bytes()))
    facts = read_event_logs(misnamed)
    assert facts.logs["codec"].to_list() == [codec]
    assert digest(facts) == digest(facts_of(small))


@pytest.mark.parametrize("codec", ["lz4", "lzf"])
def test_blocks_that_are_stored_uncompressed_are_read(codec: str, small: Path, tmp_path: Path, facts_of: Read) -> None:
    path = tmp_path / "log"
    path.write_bytes(codecs.ENCODERS[codec](small.read_bytes(), stored=True))
    assert digest(read_event_logs(path)) == digest(facts_of(small))


@pytest.fixture(scope="module")
def short() -> bytes:
    """The first part of a real log, with stages, tasks and plans: small, since it is read 600 times."""
    lines = (LOGS / "small" / "three_queries").read_bytes().splitlines(keepends=True)
    return b"".join(lines[:70])


def counts(facts: EventLogFacts) -> dict[str, int]:
    tasks = int(facts.stage_tasks["n_tasks"].sum())
    return {"sql": facts.sql_executions.height, "stages": facts.stages.height, "tasks": tasks}


def read_damaged(data: bytes, path: Path) -> EventLogFacts | None:
    """Facts, or None when nothing could be read and the reason was given; anything else fails the test."""
    path.write_bytes(data)
    try:
        return read_event_logs(path)
    except InputError as caught:
        error = caught
    assert error.facts["do"] or error.facts["found"]
    return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", CODECS)
def test_a_log_cut_anywhere_gives_the_facts_up_to_there(codec: str, short: bytes, tmp_path: Path) -> None:
    whole = codecs.ENCODERS[codec](short, **({} if codec == "plain" else {"piece_bytes": 8192}))
    offsets = sorted(random.Random(1).sample(range(1, len(whole)), 50))
    before = {"sql": 0, "stages": 0, "tasks": 0}
    readable = 0
    for offset in offsets:
        facts = read_damaged(whole[:offset], tmp_path / "log")
        if facts is None:
            continue
        readable += 1
        assert facts.applications["status"].to_list() == ["incomplete"]
        now = counts(facts)
        assert all(now[name] >= before[name] for name in now), (offset, before, now)
        before = now
        if codec == "plain":
            assert now["tasks"] == sum(map(len, Reference(whole[:offset]).durations.values()))
    assert readable > 25
    assert before["tasks"] > 0


def test_a_fault_is_named_in_the_log_table(short: bytes, tmp_path: Path) -> None:
    data = bytearray(codecs.ENCODERS["lz4"](short, piece_bytes=8192))
    data[len(data) // 2] ^= 0xFF
    facts = read_damaged(bytes(data), tmp_path / "log")
    assert facts is not None
    assert "lz4" in facts.logs["fault"][0]


def test_a_bad_line_is_counted_located_and_shown_and_costs_nothing_else(
    small: Path, tmp_path: Path, facts_of: Read
) -> None:
    lines = small.read_bytes().splitlines(keepends=True)
    at = 40
    lines.insert(at, b'{"Event":"SparkListenerTaskEnd","Stage ID":oops' + b"x" * 200 + b"}\n")
    path = tmp_path / "log"
    path.write_bytes(b"".join(lines))
    facts = read_event_logs(path)
    bad = facts.bad_lines.row(0, named=True)
    assert facts.logs["n_bad_lines"].to_list() == [1]
    assert (bad["line"], bad["byte_offset"]) == (at + 1, len(b"".join(lines[:at])))
    assert bad["text"] == lines[at].decode()[:80]
    assert digest(facts) == digest(facts_of(small))


def test_a_log_in_another_store_is_read_through_its_url(small: Path, facts_of: Read) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    with store.open("/logs/app", "wb") as file:
        file.write((LOGS / "small" / "three_queries.snappy").read_bytes())
    try:
        assert digest(read_event_logs("memory://logs/app")) == digest(facts_of(small))
        assert read_event_logs("memory://logs").logs["path"][0].endswith("/logs/app")
    finally:
        store.rm("/logs", recursive=True)


def test_codecs_are_told_by_the_first_bytes() -> None:
    assert detect_codec(b'\xef\xbb\xbf {"Event":') == "plain"
    assert detect_codec(b"PK\x03\x04") is None
    assert detect_codec(b"") is None


def test_the_killed_application_is_incomplete_and_its_last_line_is_told(facts_of: Read) -> None:
    path = next((LOGS / "killed").iterdir())
    facts = facts_of(path)
    application = facts.applications.row(0, named=True)
    assert [application[name] for name in ("status", "end_time_ms", "duration_ms")] == ["incomplete", None, None]
    assert application["last_event_time_ms"] > application["start_time_ms"]
    assert facts.bad_lines["reason"].to_list() == ["cut off at the end of the file"]
    assert "running" in set(facts.stages["status"])
    assert content(path)[-1:] != b"\n"


def test_a_compressed_file_of_something_else_in_a_folder_is_told_and_not_fatal(small: Path, tmp_path: Path) -> None:
    (tmp_path / "a_log").write_bytes(small.read_bytes())
    (tmp_path / "other.gz").write_bytes(codecs.ENCODERS["gzip"](b"no log\n" * 100))
    facts = read_event_logs(tmp_path)
    assert facts.applications.height == 1
    assert facts.logs.filter(pl.col("fault").is_not_null())["fault"].to_list() == ["no event in it"]


@pytest.mark.parametrize("value", ["--1", "²", "9" * 30])
def test_an_odd_number_in_a_log_is_passed_over_and_never_a_traceback(value: str, small: Path, tmp_path: Path) -> None:
    update = "org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates"
    odd = (
        f'{{"Event":"{update}","executionId":0,"accumUpdates":[[1,"{value}"]]}}\n'
        f'{{"Event":"SparkListenerJobStart","Job ID":999,"Properties":{{"spark.sql.execution.id":"{value}"}}}}\n'
    )
    path = tmp_path / "log"
    path.write_bytes(small.read_bytes() + odd.encode())
    facts = read_event_logs(path)
    assert facts.jobs.filter(pl.col("job_id") == 999)["sql_id"].to_list() == [None]
