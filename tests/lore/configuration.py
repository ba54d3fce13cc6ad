"""One configuration of the matrix: its two processes, and what they wrote, ready to be looked at."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests import jvm
from tests.lore import matrix_data
from tests.lore.local_spark import run_python
from tests.lore.matrix import CANARY_CONFS, CANARY_VARIABLE
from workbench.core.errors import MissingToolError

CANARY = "yellow-bird-5d2f"


@dataclass(frozen=True)
class Operator:
    """An operator as the dumping process met it; one without an id is a reference to a reused exchange."""

    query: str
    lore_id: int | None
    kind: str
    refused: str | None
    error: str | None

    @property
    def dumped(self) -> bool:
        """Is there a folder of it?"""
        return self.lore_id is not None and self.refused is None and self.error is None


@dataclass(frozen=True)
class Replay:
    """A replay: the same rows, in the same order, and what `verify` said."""

    query: str
    lore_id: int
    passed: bool
    row_for_row: bool | None
    said: str

    def __str__(self) -> str:
        return f"{self.query} {self.lore_id}: {self.said}"


class Outcome:
    """What both processes of a configuration wrote.

    `folder` has the dumps, as QUERY/loreId-N. By query there are a digest of what it gives (`original`), of what the
    replay of its topmost operator gives (`answers`), and the tree with ids from each process. No file holds a secret.
    """

    def __init__(self, folder: Path, secrets: dict[str, bytes]) -> None:
        dumped, replayed = (json.loads((folder / f"{work}.json").read_text()) for work in ("dump", "replay"))
        self.folder = folder
        self.spark: str = dumped["spark"]
        self.operators = [Operator(**one) for one in dumped["operators"]]
        self.replays = [Replay(**one) for one in replayed["operators"]]
        self.original: dict[str, str] = dumped["answers"]
        self.answers: dict[str, str] = replayed["answers"]
        self.trees: dict[str, str] = dumped["trees"]
        self.trees_again: dict[str, str] = replayed["trees"]
        self.secrets = secrets | {name: text.encode() for name, text in dumped["secrets"].items()}

    @property
    def queries(self) -> list[str]:
        """Names of the queries that were run."""
        return list(self.trees)

    @property
    def folders(self) -> dict[str, str]:
        """Class of the operator by the folder of its dump."""
        return {
            str(self.folder / one.query / f"loreId-{one.lore_id}"): one.kind for one in self.operators if one.dumped
        }


def run(
    folder: Path,
    *,
    line: Literal["3.5", "4"],
    adaptive: Literal["on", "off"] = "on",
    only: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
    extra: Mapping[str, str] | None = None,
) -> Outcome:
    """Dump in one process and replay in another; of `only` some queries; skips where this machine lacks the line."""
    home, out = folder / f"home-{CANARY}", folder / "dumps"
    data = matrix_data.write(folder / f"tables-{CANARY}")
    for path in (home, out):
        path.mkdir()
    environment = _environment(line) | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        CANARY_VARIABLE: f"{CANARY}-variable",
        # Executors of a local cluster listen on loopback, too.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        **(extra or {}),
    }
    for work in ("dump", "replay"):
        arguments = [work, str(out), "--data", str(data), "--adaptive", adaptive, *options, "--only", *only]
        done = run_python("-m", "tests.lore.matrix", *arguments, **environment)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    secrets = {"home": str(home), "data": str(data), "canary": CANARY, "python": sys.executable}
    return Outcome(
        out, {name: text.encode() for name, text in secrets.items()} | {key: key.encode() for key in CANARY_CONFS}
    )


def _environment(line: str) -> dict[str, str]:
    from workbench.spark.jvm import build_spark_environment

    pytest.importorskip("pyspark", reason="pyspark is not installed (pip install -r requirements.lock)")
    if line == "3.5":
        return build_spark_environment()
    try:
        beside = build_spark_environment("4.1")
    except MissingToolError as error:
        pytest.skip(f"Spark 4.1 cannot be had here: {error}")
    # The archive of classes is of the installed Spark.
    return beside | {"SPARK_SUBMIT_OPTS": jvm.QUICK}
