"""What the fuzz tests share: how many examples there are, and what must hold of a reader whatever it is given.

By default the examples are few and always the same, so that CI is deterministic. A long run draws others each time:

    WORKBENCH_FUZZ=50 pytest -m "" tests/fuzz

gives every test fifty times its examples, and prints the blob that repeats a failure.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, settings

from workbench.core.errors import WorkbenchError

T = TypeVar("T")
FACTOR = max(1, int(os.environ.get("WORKBENCH_FUZZ", "1")))
# No reader needs a second for inputs of this size; this is what tells "slow" from "never".
HANG_S = 60.0
_MUTED = [
    HealthCheck.function_scoped_fixture,
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
]
_HIDING_PLACE = re.compile(r"Traceback \(most recent call last\)")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Positions of the paths that change, and of the folders' descriptors that they are relative to.
_CHANGES = {
    "os.mkdir": {0: 2},
    "os.rename": {0: 2, 1: 3},
    "os.symlink": {1: 2},
    "os.link": {1: 3},
    "os.remove": {0: 1},
    "os.rmdir": {0: 1},
    "os.chmod": {0: 2},
}


class HangError(BaseException):
    """A reader took so long that it may never end. No `Exception`: nothing must swallow it."""


def fuzz(examples: int, **strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test over drawn inputs: `examples` of them by default, more in a long run."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        drawn = given(**strategies)(test)
        return settings(
            max_examples=examples * FACTOR,
            deadline=None,
            database=None,
            derandomize=FACTOR == 1,
            print_blob=True,
            suppress_health_check=_MUTED,
            phases=[phase for phase in Phase if phase != Phase.explain],
        )(drawn)

    return decorate


def harmless(call: Callable[[], T], *, writes: Path | None = None) -> T | None:
    """What the call gives, or None when it refused its input as it should.

    It may raise a WorkbenchError of exit code 1 or 2 that says where; anything else fails the test: another exception,
    a time without end, and a file made, changed or removed elsewhere than below `writes`.
    """
    with _within(HANG_S), _keeping_to(writes):
        try:
            return call()
        except WorkbenchError as error:
            assert_useful(error)
    return None


def assert_useful(error: WorkbenchError) -> None:
    """A refusal of an input: exit code 2 (or 1, of a result), words, and the place that is meant."""
    text = str(error)
    assert error.exit_code in (1, 2), f"exit code {error.exit_code}: {text}"
    assert error.what.strip(), "a refusal without words"
    assert any(error.facts[name] is not None for name in ("where", "found")), f"does not say where: {text}"
    assert not _HIDING_PLACE.search(text), text
    assert len(text) < 50_000, "a refusal as long as a book"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one example: fixtures would be shared by all of them."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        yield Path(folder)


@contextlib.contextmanager
def _within(limit_s: float) -> Iterator[None]:
    """Ends what goes on for ever; only where signals arrive, which is where pytest runs tests."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ends(number: int, frame: FrameType | None) -> None:
        raise HangError(f"still at work after {limit_s:.0f} s")

    before = signal.signal(signal.SIGALRM, ends)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Watch:
    """Python tells every file that it opens (PEP 578); while a call is watched, writes elsewhere are noted."""

    def __init__(self) -> None:
        self.on = False
        self.allowed: tuple[str, ...] = ()
        self.strangers: list[str] = []
        self.installed = False

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or not (set(mode or "") & set("wax+") or (flags or 0) & _WRITES):
                return
            self.judge(event, path)
        elif event in _CHANGES:
            for place, of_folder in _CHANGES[event].items():
                self.judge(event, arguments[place], arguments[of_folder])

    def judge(self, event: str, path: Any, folder: int = -1) -> None:
        if isinstance(path, int):
            return
        base = f"/proc/self/fd/{folder}" if folder >= 0 else os.getcwd()
        # A link that was made inside must not lead out; the last part may be the link that is made.
        parent, name = os.path.split(os.path.join(base, os.fsdecode(path)))
        text = os.path.join(os.path.realpath(parent), name)
        text = os.path.realpath(text) if event == "open" else text
        if not text.startswith(self.allowed):
            self.strangers.append(f"{event} {text}")


_WATCH = _Watch()


@contextlib.contextmanager
def _keeping_to(folder: Path | None) -> Iterator[None]:
    """Fails when something was written outside of `folder`; byte code of imports and devices do not count."""
    if not _WATCH.installed:
        sys.addaudithook(_WATCH.heard)
        _WATCH.installed = True
    allowed = ["/dev/", "/proc/"] + ([os.path.realpath(folder) + os.sep, os.path.realpath(folder)] if folder else [])
    if sys.pycache_prefix:
        allowed.append(os.path.realpath(sys.pycache_prefix) + os.sep)
    _WATCH.allowed, _WATCH.strangers, _WATCH.on = tuple(allowed), [], True
    try:
        yield
    finally:
        _WATCH.on = False
    strangers = [text for text in _WATCH.strangers if "__pycache__" not in text]
    assert not strangers, f"written outside of {folder}: {strangers[:5]}"
