"""The journal by itself: durable first, and one writer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.observation import run_records
from workbench.scaletest.submission.submission_journal import (
    SubmissionJournal,
    is_final_status,
    lock_test_folder,
    read_journal,
)

RUN = "st-00c0ffee"


async def test_what_is_durable_is_on_disk_when_it_comes_back_and_shares_its_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), fsync(file)))
    journal = SubmissionJournal(tmp_path)

    async def one(index: int) -> None:
        await journal.write_durably([run_records.Intent(index, 1)])
        assert b'"index":%d,' % index in (tmp_path / run_records.JOURNAL).read_bytes()

    await asyncio.gather(*(one(index) for index in range(200)))
    journal.close()
    assert len((tmp_path / run_records.JOURNAL).read_bytes().splitlines()) == 200
    assert 1 <= len(synced) < 100


def test_notes_are_written_in_order_and_all_by_the_end(tmp_path: Path) -> None:
    journal = SubmissionJournal(tmp_path)
    for index in range(5000):
        journal.write_soon(run_records.Intent(index, 1))
    journal.close()
    found = run_records.read_lines(tmp_path / run_records.JOURNAL, run_records.JournalLine)
    assert [one.index for one in found] == list(range(5000))


def test_what_is_known_of_each_workload(tmp_path: Path) -> None:
    journal = SubmissionJournal(tmp_path)
    lines = [
        run_records.Begun(RUN, 5, 5),
        *(run_records.Intent(index, 6) for index in range(5)),
        run_records.Acked(0, 6, 7, 201),
        run_records.Failed(1, 6, 7, "Invalid", 422),
        run_records.Failed(2, 6, 7, "no answer"),
        run_records.Failed(3, 6, 7, "too much", 429),
        run_records.Stopped(8, "interrupted"),
        run_records.Begun(RUN, 9, 5, resumed=True),
    ]
    for line in lines:
        journal.write_soon(line)
    journal.close()
    found = read_journal(tmp_path)
    assert (found.run, found.origin_ns, found.stopped) == (RUN, 5, None)
    assert (found.acked, found.refused, found.open, found.done) == ({0}, {1}, {2, 3, 4}, {0, 1})


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    found = read_journal(tmp_path)
    assert (found.run, found.done, found.open) == (None, set(), set())


def test_a_journal_of_two_runs_is_none(tmp_path: Path) -> None:
    lines = [run_records.Begun(RUN, 1, 1), run_records.Begun("st-0badf00d", 2, 2)]
    (tmp_path / run_records.JOURNAL).write_bytes(b"".join(map(run_records.encode_line, lines)))
    with pytest.raises(InputError, match="a journal of two runs"):
        read_journal(tmp_path)


def test_only_refusals_are_final() -> None:
    statuses = (None, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)
    assert [status for status in statuses if is_final_status(status)] == [403, 404, 413, 422]


HOLD = """
import pathlib, sys, time
from workbench.scaletest.submission.submission_journal import lock_test_folder
with lock_test_folder(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_test_of_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with (
        lock_test_folder(tmp_path),
        pytest.raises(ConfigError, match="another process is running the test"),
        lock_test_folder(tmp_path),
    ):
        pass
    with lock_test_folder(tmp_path):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="wait for it, or end it"), lock_test_folder(tmp_path):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    with lock_test_folder(tmp_path):
        pass
