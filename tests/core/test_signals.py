"""Interrupts around long work: raised where they come, and at the end where Python dropped them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from workbench.core.signals import interrupt_on_termination

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def pythons_own_handlers() -> Iterator[None]:
    """As in a process of its own: Spark's driver sets another, and under nohup a hang-up is ignored."""
    own = dict.fromkeys(NUMBERS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    for _ in range(1000):  # handlers run between two instructions
        pass


class Sending:
    """Sends a signal from its destructor, where Python drops what the handler raises."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        send(self.number)


def work(step: Callable[[], object], done: list[bool]) -> None:
    with interrupt_on_termination():
        step()
        done.append(True)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_interrupts_and_the_handlers_are_as_before(number: signal.Signals) -> None:
    before: list[object] = [signal.getsignal(one) for one in NUMBERS]
    done: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        work(lambda: send(number), done)
    assert done == []
    assert [signal.getsignal(one) for one in NUMBERS] == before


@pytest.mark.parametrize("number", NUMBERS)
def test_one_that_was_dropped_is_raised_at_the_end(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[object] = []
    done: list[bool] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: dropped.append(told.exc_type))
    with pytest.raises(KeyboardInterrupt):
        work(lambda: Sending(number), done)
    assert (dropped, done) == ([KeyboardInterrupt], [True])


def test_a_block_that_fails_says_why_and_one_that_ends_is_not_interrupted() -> None:
    with interrupt_on_termination():
        pass
    with pytest.raises(ValueError, match="own"), interrupt_on_termination():
        raise ValueError("own")


@pytest.mark.parametrize("kept", [signal.SIG_IGN, lambda *_: None])
def test_a_handler_of_someone_elses_stays(kept: Callable[..., object]) -> None:
    before = signal.signal(signal.SIGINT, kept)
    try:
        with interrupt_on_termination():
            assert signal.getsignal(signal.SIGINT) is kept
            send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
