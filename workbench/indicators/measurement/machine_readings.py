"""Readings of the kernel's files about this machine; null where a file does not tell.

Also read in pods: Python 3.9 and its standard library alone.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def read_fields(path: Path) -> dict[str, str]:
    """`name: value` lines up to the first empty one, names in lower case; of cpuinfo the first processor's."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if not colon and fields:
                break
            if colon:
                fields[name.strip().lower()] = value.strip()
    return fields


def parse_whole_number(text: str | None) -> int | None:
    """The number of a text of digits."""
    return int(text) if text is not None and text.isdigit() else None


def read_steal_s(path: Path) -> float | None:
    """Time that the hypervisor took since boot, from /proc/stat."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # cpu user nice system idle iowait irq softirq steal …, in ticks
        return int(path.read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    return None


def read_some_avg10(path: Path) -> float | None:
    """The share of the last 10 s in which some task waited, from a file of /proc/pressure."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        some = next(line for line in path.read_text().splitlines() if line.startswith("some"))
        return float(next(part for part in some.split() if part.startswith("avg10=")).removeprefix("avg10="))
    return None
