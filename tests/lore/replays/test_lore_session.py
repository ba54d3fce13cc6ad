"""A session that stays, as Python code uses it: it answers, refuses and ends, and an interrupted one is over."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.lore.local_spark import MARKS
from workbench.core.child_process import ChildProcess
from workbench.core.errors import InputError, RunFailedError
from workbench.lore.replays import lore_session
from workbench.lore.replays.lore_session import LoreSession

pytestmark = MARKS


def test_a_refusal_is_told_and_the_session_goes_on_until_it_is_closed(tmp_path: Path) -> None:
    with LoreSession() as session:
        for _ in range(2):
            with pytest.raises(InputError, match=r"(?s)lore replay was refused.*there is no dump"):
                session.verify(tmp_path / "none")
    session.close()
    with pytest.raises(RunFailedError, match=r"(?s)the session has ended.*start another one"):
        session.verify(tmp_path / "none")


def test_spark_starts_before_it_is_needed_and_its_answer_is_not_that_of_the_next_question(tmp_path: Path) -> None:
    with LoreSession() as session:
        session.start_spark(master="local[1]", driver_memory="1g")
        session.start_spark(driver_memory="none")
        for _ in range(2):
            with pytest.raises(InputError, match=r"(?s)lore replay was refused.*there is no dump"):
                session.verify(tmp_path / "none")


def test_the_answer_to_a_question_that_was_interrupted_is_not_taken_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = "import os, signal, sys; sys.stdin.readline(); os.kill(os.getppid(), signal.SIGINT); sys.stdin.read()"
    command = [sys.executable, "-c", silent]
    monkeypatch.setattr(lore_session, "ChildProcess", lambda _, **options: ChildProcess(command, **options))
    session = LoreSession()
    # A Spark of an earlier test leaves a handler of its own.
    left = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.verify(tmp_path)
    finally:
        signal.signal(signal.SIGINT, left)
    with pytest.raises(RunFailedError, match="the session has ended"):
        session.verify(tmp_path)
