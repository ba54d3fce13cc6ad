"""Notebooks that cannot be saved open as copies; changed copies are kept, others follow their originals."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from workbench.cli import lab
from workbench.core.errors import RunFailedError


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two notebooks and a sample, and a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    folder = tmp_path / "checkout"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "data" / "samples").mkdir(parents=True)
    (folder / "data" / "samples" / "log").write_text("log")
    for name in ("00_start_here", "01_speedup"):
        (folder / "notebooks" / f"{name}.ipynb").write_text("{}")
    return folder


def read_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing below the folder can be written; said for root, too, whom permissions do not hold."""
    real = os.access

    def access(path: Any, mode: int) -> bool:
        return not (mode == os.W_OK and Path(path).is_relative_to(folder)) and real(path, mode)

    monkeypatch.setattr(os, "access", access)


def test_copies_lie_beside_the_samples(checkout: Path) -> None:
    copies = lab.copy_notebooks(checkout / "notebooks")
    assert sorted(path.name for path in copies.glob("*.ipynb")) == ["00_start_here.ipynb", "01_speedup.ipynb"]
    assert (copies / "../data/samples/log").read_text() == "log"
    assert not copies.is_relative_to(checkout)
    assert copies == lab.copy_notebooks(checkout / "notebooks")


def test_a_changed_copy_is_kept_and_another_follows_its_original(checkout: Path) -> None:
    copies = lab.copy_notebooks(checkout / "notebooks")
    (copies / "00_start_here.ipynb").write_text('{"mine": 1}')
    for path in (checkout / "notebooks").iterdir():
        path.write_text('{"newer": 1}')
    (checkout / "notebooks" / "02_lore.ipynb").write_text("{}")
    (copies / "own.ipynb").write_text("{}")
    lab.copy_notebooks(checkout / "notebooks")
    assert (copies / "00_start_here.ipynb").read_text() == '{"mine": 1}'
    assert (copies / "01_speedup.ipynb").read_text() == '{"newer": 1}'
    assert {path.name for path in copies.glob("*.ipynb")} >= {"02_lore.ipynb", "own.ipynb"}


def test_without_the_note_of_what_was_copied_nothing_is_overwritten(checkout: Path) -> None:
    copies = lab.copy_notebooks(checkout / "notebooks")
    (copies / lab.ORIGINALS_FILE).write_text("cut")
    (copies / "00_start_here.ipynb").write_text('{"mine": 1}')
    lab.copy_notebooks(checkout / "notebooks")
    assert (copies / "00_start_here.ipynb").read_text() == '{"mine": 1}'


def test_checkouts_have_copies_of_their_own(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "notebooks"
    other.mkdir(parents=True)
    assert lab.find_copies_folder(other) != lab.find_copies_folder(checkout / "notebooks")


def test_copies_that_cannot_be_written_are_an_error_that_says_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lab.find_copies_folder(checkout / "notebooks")
    place.parent.mkdir(parents=True)
    place.write_text("a file where the folder should be")
    with pytest.raises(RunFailedError, match="cannot be copied") as caught:
        lab.copy_notebooks(checkout / "notebooks")
    assert "XDG_CACHE_HOME" in str(caught.value.facts["do"])


@pytest.mark.parametrize("is_closed", [True, False])
def test_lab_opens_copies_only_where_the_notebooks_cannot_be_saved(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_closed: bool
) -> None:
    started: list[list[str]] = []
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        started.append(command)
        return real(["true"], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    if is_closed:
        read_only(monkeypatch, checkout)
    assert lab.start_lab(checkout / "notebooks") == 0
    copies = lab.find_copies_folder(checkout / "notebooks")
    folder = copies if is_closed else checkout / "notebooks"
    assert f"--ServerApp.root_dir={folder}" in started[0]
    assert (str(copies) in capfd.readouterr().err) is is_closed
