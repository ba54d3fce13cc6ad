"""Signal handling around long work: stop requests, SIGTERM as interrupt, ignored signals."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")


class StopRequest(Protocol):
    """A request to stop; `times` counts how often it was made."""

    times: int

    def request_stop(self) -> None:
        """Count one more request."""


def run_in_thread(
    body: Callable[[], Coroutine[Any, Any, _Result]],
    stop_request: StopRequest,
    on_request: Callable[[int], None],
    *,
    name: str,
) -> _Result:
    """Run a coroutine in a thread with its own event loop, since a notebook's main thread already runs one."""
    results: list[_Result] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def run_body() -> None:
        try:
            results.append(asyncio.run(body()))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)
        finally:
            over.set()

    threading.Thread(target=run_body, name=name, daemon=True).start()
    times = 0
    with _stop_on_signals(stop_request):
        while not over.wait(0.1):
            if stop_request.times > times:
                times = stop_request.times
                on_request(times)
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def _stop_on_signals(stop_request: StopRequest) -> Iterator[None]:
    """Ctrl-C and SIGTERM become stop requests; raised as exceptions they could lose measurements."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    exempt_handlers = (None, signal.SIG_IGN)
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) not in exempt_handlers]
    old = {number: signal.signal(number, lambda *_: stop_request.request_stop()) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in old.items():
            signal.signal(number, earlier)


@contextmanager
def interrupt_on_termination() -> Iterator[None]:
    """SIGTERM and SIGHUP interrupt like Ctrl-C; in the main thread only, which alone may set handlers.

    Python drops an interrupt that comes while it calls a destructor or a callback of a weak reference, as it does
    often during imports. One that the block has never seen is raised at its end.
    """
    interrupts: list[int] = []

    def raise_interrupt(number: int, _: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    old = {
        number: signal.signal(number, raise_interrupt)
        for number in numbers
        # A handler of someone else's for Ctrl-C stays.
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
        and (number != signal.SIGINT or signal.getsignal(number) is signal.default_int_handler)
    }
    try:
        yield
        if interrupts:
            raise KeyboardInterrupt
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM while kernels are stopped: a second one would leave kernels behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
