"""Files of whole lines, whatever happens to the writer or the disk."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workbench.core.errors import RunFailedError
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import LineAppender, RunFiles


def seen(number: int) -> run_records.Seen:
    return run_records.Seen("pod", "created", f"uid-{number}", f"p{number}", "ns", number)


def names(path: Path) -> list[str]:
    return [one.name for one in run_records.read_lines(path, run_records.ObservedLine)]


@contextmanager
def little_room(most_bytes: int) -> Iterator[None]:
    """Files of this process can grow no further: what a full disk does."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_lines_are_on_disk_after_a_flush_and_not_before(tmp_path: Path) -> None:
    file = LineAppender(tmp_path / "a.jsonl")
    file.put(seen(1))
    assert names(file.path) == []
    file.flush()
    assert names(file.path) == ["p1"]
    file.put(seen(2))
    file.close()
    file.close()
    assert names(file.path) == ["p1", "p2"]


def test_much_is_written_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_records, "SPILL_BYTES", 1000)
    file = LineAppender(tmp_path / "a.jsonl")
    for number in range(100):
        file.put(seen(number))
    assert len(names(file.path)) > 80
    file.close()


@pytest.mark.parametrize("torn", [b'{"type":"seen","res', b"x" * 200_000])
def test_what_a_killed_writer_left_of_a_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(run_records.encode_line(seen(1)) + torn)
    file = LineAppender(path)
    file.put(seen(2))
    file.close()
    assert names(path) == ["p1", "p2"]


def test_a_file_of_one_torn_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"type"')
    file = LineAppender(path)
    file.put(seen(2))
    file.close()
    assert names(path) == ["p2"]


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    file = LineAppender(tmp_path / "a.jsonl")
    file.put(seen(1))
    file.flush()
    # Of a batch that fits in part, whole lines stay, and not the half of one.
    for number in range(2, 50):
        file.put(seen(number))
    with little_room(1000), pytest.raises(RunFailedError, match="cannot write observations") as told:
        file.flush()
    assert "free some space" in str(told.value)
    kept = names(file.path)
    assert 1 < len(kept) < 49
    assert kept == [f"p{number + 1}" for number in range(len(kept))]
    assert file.path.read_bytes().endswith(b"\n")
    assert file.path.stat().st_size <= 1000
    file.close()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailedError, match="cannot write observations"):
        RunFiles(tmp_path / "file" / "below")


def test_notes_are_bounded_in_number_and_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_records, "MAX_NOTES", 3)
    found = RunFiles(tmp_path)
    for number in range(10):
        found.note(f"{number} " + "x" * 5000, spoils=number == 0)
    found.close()
    notes = list(run_records.read_lines(tmp_path / run_records.HEALTH, run_records.HealthLine))
    assert [one.spoils for one in notes] == [True, False, False]
    assert max(len(one.text) for one in notes) == 1000
    assert "not recorded" in notes[-1].text


def test_files_are_the_users_own_by_the_umask(tmp_path: Path) -> None:
    RunFiles(tmp_path).close()
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / run_records.OBSERVED).stat().st_mode & 0o777 == 0o666 & ~mask
