"""A small process of one thread that starts the runs, one after the other, and watches over each.

Not the workbench itself: a notebook's process has threads (it must not fork), is large (a run's `ru_maxrss` begins at
its size), and would adopt orphans that are not its own. Set up once, so that a run costs no second interpreter: in the
control group, without a network, with the user for the runs. When the workbench goes away, however that happens, its
end of the pipe closes: the current run is killed and everything cleaned up.
"""

from __future__ import annotations

import os
import shutil

from workbench.indicators.running.surroundings import prepare
from workbench.indicators.running.watching import ready, run, sweep
from workbench.indicators.running.wire import Ended, command_of, line, setup_of

_ANSWERS = 1


def main() -> None:
    """Read the setup, tell what is in force, then run what is asked for until the other end closes."""
    requests = _Lines(0)
    text = requests.next()
    if text is None:
        return
    surroundings = prepare(setup_of(text))
    try:
        _answer(Ended("exited", isolation=surroundings.isolation))
        while (text := requests.next()) is not None:
            _answer(run(command_of(text), surroundings, requests))
    finally:
        sweep(surroundings.groups)
        shutil.rmtree(surroundings.scratch, ignore_errors=True)
        surroundings.groups.leave()


def _answer(ended: Ended) -> None:
    text = line(ended)
    while text:
        text = text[os.write(_ANSWERS, text) :]


class _Lines:
    """Lines of a pipe, and whether its other end is closed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._held = b""

    def next(self) -> bytes | None:
        """The next line; null at the end."""
        while b"\n" not in self._held:
            chunk = os.read(self.descriptor, 1 << 16)
            if not chunk:
                return None
            self._held += chunk
        text, _, self._held = self._held.partition(b"\n")
        return text

    def closed(self) -> bool:
        """Nobody can ask any more. Requests come one at a time, so anything to read now is the end."""
        if not ready([self.descriptor], 0):
            return False
        return os.read(self.descriptor, 1 << 16) == b""
