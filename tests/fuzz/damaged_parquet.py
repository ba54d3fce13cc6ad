"""Reads damaged Parquet files, a line of JSON each; in a process of its own, which polars may abort.

python -m tests.fuzz.damaged_parquet FIRST STOP FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.conftest import SAMPLES
from tests.fuzz.fuzzing import assert_useful
from workbench.core.errors import WorkbenchError
from workbench.core.tables import read_parquet
from workbench.scaletest.tables import SUBMISSIONS

SAMPLE = SAMPLES / "scaletest" / "default-and-kai" / "00-default-scheduler" / "tables" / f"{SUBMISSIONS.name}.parquet"
SMALL = SAMPLES / "speedup" / "tpch-sf1" / "answers.parquet"


def damaged(content: bytes, seed: int) -> bytes:
    """The same damage for the same seed."""
    draw, data = random.Random(seed), bytearray(content)
    for _ in range(draw.randint(1, 3)):
        at, kind = draw.randrange(len(data)), draw.random()
        if kind < 0.6:
            data[at] ^= 1 << draw.randrange(8)
        elif kind < 0.8:
            data[at] = draw.choice([0, 1, 127, 128, 255])
        elif kind < 0.9:
            del data[at : at + draw.choice([1, 8, len(data)])]
        else:
            data[at : at + 4] = b"\xff\xff\xff\x7f"
    return bytes(data)


def main(first: int, stop: int, folder: Path) -> None:
    """Read what each seed makes of two samples."""
    path = folder / f"{SUBMISSIONS.name}.parquet"
    for seed in range(first, stop):
        path.write_bytes(damaged((SAMPLE if seed % 2 else SMALL).read_bytes(), seed))
        told = "read"
        try:
            read_parquet(path)
            SUBMISSIONS.read(folder)
        except WorkbenchError as error:
            assert_useful(error)
            told = "refused"
        print(json.dumps({"seed": seed, "told": told}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
