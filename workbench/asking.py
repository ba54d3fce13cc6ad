"""How a person ends long work: signals that ask, and a thread that lets them come."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

_Made = TypeVar("_Made")


class Asked(Protocol):
    """What a person wants: `times` counts how often the end was asked for."""

    times: int

    def stop(self) -> None:
        """Ask once more."""


def in_a_thread(
    body: Callable[[], Coroutine[Any, Any, _Made]], asked: Asked, told: Callable[[int], None], *, name: str
) -> _Made:
    """Run it in a thread with its own event loop: a notebook's own is running, and signals come to this one.

    Parameters
    ----------
    body
        Makes the work; what it raises is raised here.
    asked
        Whom Ctrl-C and SIGTERM ask meanwhile.
    told
        Told how often it was asked for the end, each time it was.
    name
        The thread's name.
    """
    found: list[_Made] = []
    died: list[BaseException] = []
    over = threading.Event()

    def work() -> None:
        try:
            found.append(asyncio.run(body()))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            died.append(error)
        finally:
            over.set()

    threading.Thread(target=work, name=name, daemon=True).start()
    times = 0
    with _by_signals(asked):
        while not over.wait(0.1):
            if asked.times > times:
                times = asked.times
                told(times)
    if died:
        raise died[0]
    return found[0]


@contextmanager
def _by_signals(asked: Asked) -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM ask for the end; raised as an exception they could lose what was measured."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = (None, signal.SIG_IGN)
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) not in kept]
    old = {number: signal.signal(number, lambda *_: asked.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in old.items():
            signal.signal(number, earlier)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the runs as Ctrl-C does; only the main thread may say so."""
    names = ("SIGTERM", "SIGHUP")
    signals = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    old = {
        number: signal.signal(number, _interrupt) for number in signals if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def no_more_signals() -> Iterator[None]:
    """While kernels are being stopped a second Ctrl-C changes nothing: it would leave them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
