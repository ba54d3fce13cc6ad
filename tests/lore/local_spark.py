"""A Spark of a test module, small dumps made in it, and commands in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from workbench.lore.dumps.dump_folder import Sidecar
    from workbench.lore.replays.output_verification import Verification

ROOT = Path(__file__).parents[2]
SMALL = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "Europe/Berlin",
    # Seconds of work: what the JVM's second compiler gains, it never earns back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
MARKS = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    # Of pyspark's and py4j's own making.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@contextlib.contextmanager
def local(**settings: str) -> Iterator[SparkSession]:
    """A session on two cores whose queries have three partitions; keys are written with __ for a dot."""
    from workbench.lore.spark_bridge import replay_session

    changed = {key.replace("__", "."): value for key, value in settings.items()}
    with replay_session.fresh_session(master="local[2]", filtered=False, settings=SMALL | changed) as spark:
        left = spark.range(0, 300, 1, 3).selectExpr("id % 40 AS k", "id * 0.5D AS v", "concat('n', id % 7) AS s")
        left.createOrReplaceTempView("a")
        spark.range(0, 30, 1, 2).selectExpr("id AS k", "concat('name', id) AS name").createOrReplaceTempView("b")
        yield spark


def lore_id(frame: DataFrame, name: str) -> int:
    """The id of the only operator of this name; of the topmost for `root`."""
    from workbench.lore.spark_bridge.physical_plan import PlanTree

    nodes = PlanTree.from_frame(frame).nodes
    found = [number for number, node in nodes.items() if node.name == name]
    if name == "root":
        return max(nodes)
    assert len(found) == 1, PlanTree.from_frame(frame).render_text()
    return found[0]


def dumped(frame: DataFrame, name: str, path: Path | str, partitions: Any = None, **settings: Any) -> Path:
    """Dump the only operator of this name; gives loreId-N."""
    from workbench import lore

    number = lore_id(frame, name)
    made = lore.dump(frame, {number: partitions}, str(path), **settings)
    return Path(path) / made.folders[number].rpartition("/")[2]


def verified(spark: SparkSession, folder: Path, **options: Any) -> Verification:
    """What `verify` says of a dump, in this session."""
    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.replays.output_verification import verify_replay
    from workbench.lore.spark_bridge.operator_isolation import rebuild_operator
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    sidecar, found = trust_check.check_trust(folder), connect_bridge(spark)
    store = DumpStore(found, str(folder))
    rebuilt = rebuild_operator(store, sidecar, (folder / "plan.meta").read_bytes(), found)
    verification, _ = verify_replay(store, sidecar, rebuilt, **options)
    return verification


def signed_anew(folder: Path, sidecar: Sidecar) -> None:
    """Write a changed plan.json as this user would have."""
    (folder / "plan.json").write_text(trust_check.sign_sidecar(sidecar).model_dump_json(indent=1))


def sign_other_rows(folder: Path) -> None:
    """Write plan.json anew as if the original had given other rows in every partition."""
    sidecar = trust_check.check_trust(folder)
    prints = {
        number: one.model_copy(update={"hash_sum": one.hash_sum + 1})
        for number, one in sidecar.output.fingerprint.items()
    }
    output = sidecar.output.model_copy(update={"fingerprint": prints})
    signed_anew(folder, sidecar.model_copy(update={"output": output}))


def run_python(*arguments: str | Path, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, which knows nothing of a Spark of this process; `text` is its stdin."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "_PYSPARK"))}
    command, given = [sys.executable, *map(str, arguments)], {"env": kept | environment, "input": text or ""}
    return subprocess.run(command, cwd=ROOT, **given, capture_output=True, text=True, timeout=1500, check=False)


def lore_command(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`workbench lore …` as a user runs it."""
    return run_python("-m", "workbench", "lore", *arguments, **environment)


def lore_session(lines: Sequence[Sequence[str | Path]]) -> list[dict[str, Any]]:
    """What one `workbench lore session` answers to each of these lines."""
    text = "".join(shlex.join(map(str, line)) + "\n" for line in lines)
    done = run_python("-m", "workbench", "lore", "session", "--json", text=text)
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers
