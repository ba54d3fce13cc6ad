"""What reading files shares: a table of random rows written into a file, read, and held against what was written.

The file is written by this script, byte for byte the same in every stack; it was just written when it is read, so
it comes from memory: the disk is not measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._frames import Pandas
    from workbench.indicators.shipped.scripts._measure import Run

Columns = dict[str, list[Any]]
WORDS = 1_000


def table(rows: int, seed: int) -> Columns:
    """Random rows: `id` of up to 40 bits, `value` with three decimals, `word` one of a thousand.

    A fraction of so few digits is read exactly by any reader that rounds once.
    """
    from _measure import wholes

    return {
        "id": wholes(rows, seed, 40).tolist(),
        "value": [(number - 500_000) / 1_000 for number in (draw % 1_000_000 for draw in wholes(rows, seed + 1, 40))],
        "word": [f"word-{number % WORDS:04d}" for number in wholes(rows, seed + 2, 40)],
    }


def measure(
    run: Run,
    rows: int,
    name: str,
    write: Callable[[str, Columns], None],
    read: Callable[[Pandas, str], Any],
) -> None:
    """Write the table, measure reading it, compare every value."""
    import _frames

    seed = run.whole("seed", 0)
    frames = _frames.opened(run)
    columns = table(rows, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}{os.sep}{name}"
        write(path, columns)
        with open(path, "rb") as file:
            run.checks["input_digest"] = _digest(file.read())
        answer = run.first(lambda: frames.listed(read(frames, path)))
        run.time(lambda: read(frames, path))
    wrong = abs(len(answer) - len(columns))
    for column, values in columns.items():
        cells = answer.get(column, [])
        wrong += sum(cell != other for cell, other in zip(cells, values))  # noqa: B905
        wrong += abs(len(cells) - len(values))
    run.checks["wrong"] = wrong
    run.checks["answer_digest"] = _frames.text_digest(answer.get(column, []) for column in columns)


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()[:16]
