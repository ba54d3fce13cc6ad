"""Files of a sampler: their notes, and whose they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.core.errors import RunFailedError
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import RunFiles


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
