"""Event logs of every codec, damaged in their bytes and in their structure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fakes import codecs
from tests.fakes import eventlogs as made
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import damaged, json_lines
from workbench.eventlog import reader, tables
from workbench.eventlog.reader import EventLogFacts

pytestmark = pytest.mark.slow

MOST_LINE_CHARS = 7_000
ENCODERS = {
    "plain": codecs.plain,
    "gzip": codecs.gzip,
    "zstd": codecs.zstd,
    "lz4": codecs.lz4,
    "snappy": codecs.snappy,
    "lzf": codecs.lzf,
}


def _real_events() -> list[dict[str, Any]]:
    """The sample with every kind of event, without the lines that only make examples slow."""
    lines = (SAMPLES / "eventlogs" / "small" / "three_queries").read_text().splitlines()
    return [json.loads(line) for line in lines if len(line) < MOST_LINE_CHARS]


EVENTS = _real_events()
MADE = made.small(
    made.sql_start(0, made.plan("Range", metrics={7: "rows"})),
    made.job_start(0, [0], {"spark.sql.execution.id": "0"}),
    made.stage_submitted(0, tasks=1),
    made.task_start(),
    made.task_end(),
    made.stage_completed(0),
    made.job_end(),
    made.sql_end(),
)
PACKED = {name: encode(MADE, piece_bytes=1024) if name != "plain" else MADE for name, encode in ENCODERS.items()}
PACKED["lz4 stored"] = codecs.lz4(MADE, stored=True)
PACKED["lzf stored"] = codecs.lzf(MADE, stored=True)
ATTRIBUTES = {table.name: table for table in tables.ALL_TABLES}


def assert_sound(facts: EventLogFacts) -> None:
    """The tables are as declared, and their figures are numbers."""
    assert facts.logs.height >= 1
    for name, table in ATTRIBUTES.items():
        frame = getattr(facts, name)
        table.check(frame, where=name)
        floats = [column for column, dtype in frame.schema.items() if dtype.is_float()]
        assert not any(frame[column].is_nan().any() for column in floats), name


def read(path: Path, **options: Any) -> EventLogFacts | None:
    facts = harmless(lambda: reader.read_event_logs(path, jobs=1, **options))
    if facts is not None:
        assert_sound(facts)
    return facts


@fuzz(150, content=damaged(list(PACKED.values())))
def test_damaged_bytes_of_any_codec_are_read_up_to_the_damage_or_refused(content: bytes) -> None:
    with scratch() as folder:
        path = folder / "log"
        path.write_bytes(content)
        read(path, chunk_bytes=2_000)


@fuzz(60, content=json_lines(EVENTS), redact=st.booleans())
def test_changed_events_give_sound_tables_or_a_refusal(content: bytes, redact: bool) -> None:
    with scratch() as folder:
        path = folder / "log"
        path.write_bytes(content)
        read(path, redact=redact)


@fuzz(
    25,
    content=json_lines(EVENTS, most=6),
    codec=st.sampled_from(sorted(ENCODERS)),
    chunk_bytes=st.integers(500, 90_000),
)
def test_a_changed_log_gives_the_same_tables_in_any_codec(content: bytes, codec: str, chunk_bytes: int) -> None:
    with scratch() as folder:
        plain, packed = folder / "plain" / "log", folder / "packed" / "log"
        for path, data in ((plain, content), (packed, ENCODERS[codec](content))):
            path.parent.mkdir()
            path.write_bytes(data)
        one, other = read(plain, chunk_bytes=chunk_bytes), read(packed, chunk_bytes=chunk_bytes)
        if one is None and not content.lstrip().startswith(b"{"):
            return  # only a plain file is told by its first bytes
        assert (one is None) == (other is None)
        if one is None or other is None:
            return
        for name in set(ATTRIBUTES) - {"logs", "bad_lines"}:
            assert getattr(one, name).equals(getattr(other, name)), name
