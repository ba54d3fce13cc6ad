"""Being stopped: SIGTERM as Ctrl-C, no second signal while things are put away."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def _handling(numbers: list[int], handler: Callable[..., None] | signal.Handlers) -> Iterator[None]:
    # Only the main thread may set handlers; elsewhere nothing is changed.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = {number: signal.signal(number, handler) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, earlier in old.items():
            signal.signal(number, earlier)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def termination_as_interrupt() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP stop a recording as Ctrl-C does."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return _handling([getattr(signal, name) for name in names], _interrupt)


def shielded() -> contextlib.AbstractContextManager[None]:
    """While processes are being ended a second Ctrl-C changes nothing: it would leave them behind."""
    return _handling([signal.SIGINT, signal.SIGTERM], signal.SIG_IGN)
