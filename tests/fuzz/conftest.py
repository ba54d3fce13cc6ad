from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# What a reader may take for inputs of some kilobytes, whatever sizes these declare.
MOST_GROWN_BYTES = 768 << 20


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """A test fails when its readers held more than inputs so small can excuse."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        yield
        return
    # 5: the peak is counted anew from here (man proc_pid_clear_refs).
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    yield
    grown = _peak_bytes() - before
    assert grown < MOST_GROWN_BYTES, f"held {grown >> 20} MiB more than before"
