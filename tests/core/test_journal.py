"""The append-only journal, as all its users have it: whole lines whatever happens to the writer or the disk."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forecasts.conftest import make_forecast
from workbench.core import journal as journals
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.journal import Journal, LineTail, read_lines
from workbench.forecasts import ledger
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Intent
from workbench.scaletest.submission.submission_journal import SubmissionJournal


def encode(text: str) -> bytes:
    return text.encode() + b"\n"


def texts(path: Path) -> list[str]:
    return [line.decode().rstrip() for _, line in read_lines(path)]


@contextlib.contextmanager
def little_room(most_bytes: int) -> Iterator[None]:
    """Files of this process can grow no further: what a full disk does."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_lines_are_in_the_file_after_a_flush_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    file = Journal(path, encode, noun="notes")
    file.put("1")
    assert texts(path) == []
    file.flush()
    assert texts(path) == ["1"]
    file.put("2")
    file.close()
    file.close()
    assert texts(path) == ["1", "2"]
    assert texts(tmp_path / "none") == []


@pytest.mark.parametrize("as_one", [False, True])
def test_much_is_written_before_it_is_asked_for_unless_it_is_one(
    as_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "SPILL_BYTES", 100)
    with Journal(tmp_path / "a", encode, noun="notes", as_one=as_one) as file:
        for number in range(100):
            file.put(f"line {number}")
        assert len(texts(file.path)) == (0 if as_one else 92)
    assert len(texts(file.path)) == 100


def keep_observation(path: Path, number: int) -> None:
    with contextlib.closing(run_records.open_observations(path)) as file:
        file.put(Intent(number, 1))


def keep_intent(path: Path, number: int) -> None:
    file = SubmissionJournal(path.parent)
    file.write_soon(Intent(number, 1))
    file.close()


def keep_forecast(path: Path, number: int) -> None:
    ledger.append_entries(path, lambda _: [make_forecast(number)])


TORN = [b'{"type":"int', b"\x00\x00", b"x" * 200_000]
USERS = [(keep_observation, torn) for torn in TORN] + [(keep_intent, torn) for torn in TORN]
USERS += [(keep_intent, b'{"type":"intent","index":7,"at_ns":1}')] + [(keep_forecast, torn) for torn in TORN]


@pytest.mark.parametrize(("keep", "torn"), USERS)
@pytest.mark.parametrize("begins_anew", [False, True])
def test_what_a_killed_writer_left_of_a_line_is_gone_before_the_next_is_written(
    keep: Callable[[Path, int], None], torn: bytes, begins_anew: bool, tmp_path: Path
) -> None:
    for folder in ("whole", "torn"):
        (tmp_path / folder).mkdir()
    whole, path = tmp_path / "whole" / run_records.JOURNAL, tmp_path / "torn" / run_records.JOURNAL
    if not begins_anew:
        keep(whole, 1)
    before = whole.read_bytes() if whole.exists() else b""
    path.write_bytes(before + torn)
    assert b"".join(line for _, line in read_lines(path)) == before
    for place in (whole, path):
        keep(place, 2)
    assert path.read_bytes() == whole.read_bytes()


def test_a_file_that_is_only_opened_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("of a user, who gave the wrong name")
    Journal(path, encode, noun="notes").close()
    assert path.read_text() == "of a user, who gave the wrong name"


@pytest.mark.parametrize("as_one", [False, True])
def test_a_full_disk_is_told_and_leaves_whole_lines(as_one: bool, tmp_path: Path) -> None:
    file = Journal(tmp_path / "a", encode, noun="notes", do="free some space", as_one=as_one)
    file.put("1")
    file.flush()
    for number in range(2, 500):
        file.put(str(number))
    with little_room(1000), pytest.raises(RunFailedError, match="cannot write notes") as told:
        file.flush()
    assert "free some space" in str(told.value)
    kept = texts(file.path)
    assert kept == [str(number + 1) for number in range(len(kept))]
    assert len(kept) == 1 if as_one else 200 < len(kept) < 499
    assert file.path.read_bytes().endswith(b"\n")
    file.put("then")
    file.close()
    assert texts(file.path) == [*kept, "then"]


def test_a_journal_has_one_writer_until_it_is_closed_and_keeps_no_handle_of_one_that_failed(tmp_path: Path) -> None:
    def open_journal(name: str) -> Journal[str]:
        return Journal(tmp_path / name, encode, noun="notes", busy="another process writes these notes")

    (tmp_path / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with open_journal("a"), pytest.raises(ConfigError, match="another process writes these notes"):
        open_journal("a")
    for name in ("folder", "a/below"):
        with pytest.raises(RunFailedError, match="cannot write notes"):
            open_journal(name)
    open_journal("a").close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_submission_whose_journal_cannot_be_opened_says_so_and_lets_the_next_one_in(tmp_path: Path) -> None:
    (tmp_path / run_records.JOURNAL).mkdir()
    with pytest.raises(RunFailedError, match="cannot write the journal"):
        SubmissionJournal(tmp_path)
    (tmp_path / run_records.JOURNAL).rmdir()
    SubmissionJournal(tmp_path).close()


def test_a_tail_gives_each_line_once_also_where_a_writer_was_killed_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    tail: LineTail[Any] = LineTail(path, bytes.decode)
    assert list(tail.read_new()) == []
    path.write_bytes(b"1\n\n2\n3 and a to")
    assert list(tail.read_new()) == ["1", "2"]
    assert list(tail.read_new()) == []
    with Journal(path, encode, noun="notes") as file:
        file.put("3")
    assert list(tail.read_new()) == ["3"]


def test_readers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n" + b"2" * 50 + b"\n")
    with pytest.raises(InputError, match=r"(?s)a line is too long.*line 2.*20 bytes"):
        list(read_lines(path, max_line_bytes=20))
    monkeypatch.setattr(journals, "_BLOCK", 20)
    tail: LineTail[Any] = LineTail(path, bytes.decode)
    assert list(tail.read_new()) == ["1"]
    with pytest.raises(InputError, match="a line is too long"):
        list(tail.read_new())
