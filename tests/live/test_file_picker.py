"""What a picker lists: what fits first, never too much, and nothing that it may not read stops it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.live import file_picker
from workbench.live.file_picker import Pick, find_start_folder, format_chosen_path, list_folder

LOG = Pick("event log", files=("*.zstd",), folders=("events_*",))


def made(folder: Path) -> Path:
    for name in ("b.zstd", "a.zstd", "notes.txt", ".hidden.zstd"):
        (folder / name).write_text("")
    for name in ("rolling", "other"):
        (folder / name).mkdir()
    (folder / "rolling" / "events_1_app").write_text("")
    return folder


def test_what_fits_stands_first_then_folders_to_go_into(tmp_path: Path) -> None:
    found = list_folder(made(tmp_path), LOG)
    assert [entry.name for entry in found.entries] == ["rolling/", "a.zstd", "b.zstd", "other/"]
    assert [entry.fits for entry in found.entries] == [True, True, True, False]
    assert found.notice == "1 other file"


def test_everything_shows_the_other_files_and_hidden_names(tmp_path: Path) -> None:
    names = [entry.name for entry in list_folder(made(tmp_path), LOG, everything=True).entries]
    assert {"notes.txt", ".hidden.zstd"} <= set(names)


def test_a_huge_folder_is_listed_in_part_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_picker, "MAX_SCANNED", 20)
    monkeypatch.setattr(file_picker, "MAX_LISTED", 5)
    for index in range(30):
        (tmp_path / f"{index:02}.zstd").write_text("")
    found = list_folder(tmp_path, LOG)
    assert len(found.entries) == 5
    assert found.notice == "only the first 20 entries were looked at; 15 more are not listed; type the path"


def test_a_folder_that_is_gone_or_no_folder_says_why(tmp_path: Path) -> None:
    assert list_folder(tmp_path / "none", LOG).notice == "cannot be read: No such file or directory"
    (tmp_path / "file").write_text("")
    assert "Not a directory" in list_folder(tmp_path / "file", LOG).notice


def test_a_link_to_nowhere_and_odd_names_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.zstd").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe.zstd")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.zstd")).write_text("")
    (tmp_path / "<img src=x onerror=alert(1)>.zstd").write_text("")
    assert len(list_folder(tmp_path, LOG).entries) == 4


def test_the_list_starts_where_the_value_lies(tmp_path: Path) -> None:
    base = tmp_path / "notebooks"
    base.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.zstd").write_text("")
    assert find_start_folder("../data/a.zstd", base) == tmp_path / "data"
    assert find_start_folder("../data/none/none/x", base) == tmp_path / "data"
    assert (
        find_start_folder("", base)
        == find_start_folder("s3://bucket/log", base)
        == find_start_folder("a\0b", base)
        == base
    )


def test_a_choice_outside_of_the_checkout_is_absolute(tmp_path: Path) -> None:
    base = tmp_path / "checkout" / "notebooks"
    assert format_chosen_path(tmp_path / "checkout" / "data" / "x", base) == "../data/x"
    assert format_chosen_path(tmp_path / "x", base) == str(tmp_path / "x")
