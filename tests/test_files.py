"""Files are written whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from workbench.files import replacing, sha256, write_text


def test_a_crash_while_writing_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = write_text(tmp_path / "deep" / "file.txt", "old")
    with pytest.raises(RuntimeError, match="crash"):
        _write_half(path)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def _write_half(path: Path) -> None:
    with replacing(path) as temporary:
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
    assert sha256(tmp_path / "file") == hashlib.sha256(data).hexdigest()
