"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.core.files import UnwritableError, hash_file, read_up_to, replace_atomically, write_text


def test_a_crash_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = write_text(tmp_path / "deep" / "file.txt", "old")
    with pytest.raises(RuntimeError, match="crash"):
        _write_half(path)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def _write_half(path: Path) -> None:
    with replace_atomically(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("crash")


def test_others_may_read_what_was_written_as_the_umask_says(tmp_path: Path) -> None:
    path = write_text(tmp_path / "file", "text")
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(data)
    assert hash_file(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_file_is_read_up_to_its_bound_and_no_further(tmp_path: Path) -> None:
    path = write_text(tmp_path / "file", "12345")
    assert read_up_to(path, 5) == b"12345"
    with pytest.raises(InputError, match="too large"):
        read_up_to(path, 4)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            read_up_to(path, 5)
    with pytest.raises(FileNotFoundError):
        read_up_to(tmp_path / "none", 5)


def test_a_place_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableError, match=r"below\.json"):
        write_text(tmp_path / "file" / "below.json", "{}")
