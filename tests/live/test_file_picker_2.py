"""The picker: opened, walked, closed with a choice; by buttons that a keyboard reaches."""

from __future__ import annotations

from pathlib import Path

from workbench.live.file_picker import FilePicker, Pick

LOG = Pick("event log", files=("*.zstd",))


def made(tmp_path: Path, value: str = "") -> tuple[FilePicker, list[str]]:
    base = tmp_path / "notebooks"
    base.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "app.zstd").write_text("")
    (tmp_path / "data" / "notes.txt").write_text("")
    chosen: list[str] = []
    return FilePicker(LOG, base, lambda: value, chosen.append), chosen


def names(picker: FilePicker) -> list[str]:
    return [label for label, _ in picker.entries.options]


def test_it_walks_from_the_notebook_to_a_log_and_writes_it_relative(tmp_path: Path) -> None:
    picker, chosen = made(tmp_path)
    picker.button.click()
    assert picker.place.children
    picker.up.click()
    assert names(picker) == ["data/", "notebooks/"]
    assert (picker.open.disabled, picker.choose.disabled) == (False, True)
    picker.open.click()
    assert names(picker) == ["● app.zstd"]
    assert (picker.open.disabled, picker.choose.disabled) == (True, False)
    picker.choose.click()
    assert chosen == ["../data/app.zstd"]
    assert picker.place.children == ()


def test_it_opens_at_the_fields_value_and_closes_without_a_change(tmp_path: Path) -> None:
    picker, chosen = made(tmp_path, "../data/app.zstd")
    picker.button.click()
    assert picker.selected is not None
    assert picker.selected.path.name == "app.zstd"
    picker.close.click()
    assert (chosen, picker.place.children) == ([], ())


def test_all_files_may_be_shown_and_chosen(tmp_path: Path) -> None:
    picker, chosen = made(tmp_path, "../data/app.zstd")
    picker.button.click()
    picker.everything.value = True
    picker.entries.value = names(picker).index("notes.txt")
    picker.choose.click()
    assert chosen == ["../data/notes.txt"]


def test_names_of_folders_and_files_are_no_markup(tmp_path: Path) -> None:
    picker, _ = made(tmp_path)
    odd = tmp_path / "<img src=x onerror=alert(1)>"
    odd.mkdir()
    picker.open_folder(odd)
    assert "<img" not in picker.where.value
