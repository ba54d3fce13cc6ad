"""`workbench lore replay` in processes of its own: verdicts, times, two sides, bundles, other file systems."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lore.local_spark import MARKS, dumped, local, lore_command, sign_other_rows
from workbench import lore
from workbench.lore import tables
from workbench.lore.dumps.bundles import write_bundle
from workbench.lore.dumps.dump_folder import read_sidecar
from workbench.lore.replays.operator_replay import ReplayResult
from workbench.lore.trust import trust_check

pytestmark = MARKS

JOIN = "SELECT b.name, a.v FROM a JOIN b ON a.k = b.k"
ENGINE = ("--master", "local[2]", "--driver-memory", "1g")
MOUNT = "spark.hadoop.fs.viewfs.mounttable.dumps.link./there"
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Dumps:
    """Dumps of one session; `from_python` is what its own `lore.replay` gave while it went on."""

    join: Path
    changed: Path
    mounted: Path
    from_python: ReplayResult


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Dumps:
    home = tmp_path_factory.mktemp("dumps")
    (home / "real").mkdir()
    with local(**{MOUNT: (home / "real").as_uri()}) as spark:
        frame = spark.sql(JOIN)
        join = dumped(frame, "SortMergeJoin", home / "a folder", batch_rows=40)
        changed = dumped(frame, "SortMergeJoin", home / "changed", keep_output_rows=0)
        mounted = dumped(frame, "SortMergeJoin", "viewfs://dumps/there/q")
        options = {"master": "local[2]", "driver_memory": "1g"}
        answer = lore.replay(join.as_uri(), partition=1, repeat=0, **options)
        assert spark.range(3).count() == 3
    sign_other_rows(changed)
    return Dumps(join, changed, home / "real" / "q" / mounted.name, answer)


def test_a_session_that_goes_on_may_replay_one_partition(dumps: Dumps) -> None:
    found = dumps.from_python
    assert found.passed
    assert found.verification["n_found"] == trust_check.check_trust(dumps.join).output.fingerprint["1"].n_rows
    assert (found.sides, found.timings, found.ratio) == ([], [], None)


@pytest.fixture(scope="module")
def timed(dumps: Dumps, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """Timed, with a recording, as JSON."""
    recording = tmp_path_factory.mktemp("profile") / "a run.jfr"
    options = ("--repeat", "3", "--json", "--profile", "jfr", "--profile-to", recording)
    return lore_command("replay", dumps.join, *ENGINE, *options), recording


def test_a_good_replay_is_one_document_and_code_0(timed: tuple[Done, Path]) -> None:
    done, _ = timed
    assert done.returncode == 0, done.stderr
    found = ReplayResult.model_validate_json(done.stdout)
    assert found.passed
    assert found.verification["row_for_row"]
    assert found.answer.startswith("PASS (recomputed): 230 rows, row for row")
    assert "SortMergeJoin" in found.plans["replay"]
    assert "LoreReplay input-0" in found.plans["replay"]


def test_times_and_metrics_are_the_tables_of_these_names(timed: tuple[Done, Path]) -> None:
    found = ReplayResult.model_validate_json(timed[0].stdout)
    timings = tables.TIMINGS.check(tables.TIMINGS.frame(found.timings))
    assert timings["repeat"].to_list() == [1, 2, 3]
    assert (timings["total_s"] - timings["scan_s"]).to_list() == pytest.approx(timings["operator_s"].to_list())
    side = tables.SIDES.check(tables.SIDES.frame(found.sides)).to_dicts()[0]
    assert (side["side"], side["n"]) == ("replay", 3)
    # Null where the interval of the elapsed time reaches 0; a busy machine may make it so.
    assert side["operator_s"] is None or side["operator_s"] == pytest.approx(timings["operator_s"].median())
    assert side["operator_cpu_s"] is None or side["operator_cpu_s"] > 0
    metrics = {row["metric"]: row["value"] for row in found.metrics}
    # Of one run, not of all.
    assert metrics["SortMergeJoin.numOutputRows"] == 230
    assert found.ratio is None


def test_the_recording_is_one_of_flight_recorder(timed: tuple[Done, Path]) -> None:
    done, recording = timed
    assert recording.read_bytes()[:4] == b"FLR\0"
    assert json.loads(done.stdout)["profile"] == str(recording)


def test_nothing_of_spark_s_own_talk_reaches_the_user(timed: tuple[Done, Path]) -> None:
    assert not re.search(r"WARN|ERROR|log level|Exception", timed[0].stderr)


def test_a_bundle_is_replayed_with_two_sets_of_settings(dumps: Dumps, tmp_path: Path) -> None:
    bundle = write_bundle(dumps.join, tmp_path / "join.zip", max_bytes=1 << 30).path
    key = "spark.sql.codegen.wholeStage"
    sides = ("--a", f"{key}=true", "--b", f"{key}=false")
    done = lore_command("replay", bundle, *ENGINE, "--repeat", "2", "--wide", *sides)
    assert done.returncode == 0, done.stderr
    assert "PASS (recomputed): 230 rows" in done.stdout
    assert "A and B gave the same rows: 230 and 230" in done.stdout
    assert f"{key}=true" in done.stdout
    assert f"{key}=false" in done.stdout
    plans = dict(re.findall(r"plan of ([AB]):\n((?:.+\n)+)", done.stdout))
    assert "*(1)" in plans["A"]
    assert "*(1)" not in plans["B"]
    assert "SortMergeJoin" in plans["A"]


def test_another_answer_is_code_1_with_the_reason(dumps: Dumps) -> None:
    done = lore_command("verify", dumps.changed, *ENGINE)
    assert done.returncode == 1, done.stderr
    assert "FAIL: 230 rows where the operator recomputed at dump time gave 230" in done.stdout
    assert "partitions that differ: 0, 1, 2" in done.stdout
    assert "--keep-output-rows" in done.stdout


def test_a_dump_on_another_file_system_is_read_where_it_lies(dumps: Dumps) -> None:
    # Of the dump as this machine's own files: Hadoop's .crc beside each, which only its own file systems hide.
    assert read_sidecar(dumps.mounted).output.fingerprint == trust_check.check_trust(dumps.join).output.fingerprint
    url = f"viewfs://dumps/there/q/{dumps.mounted.name}"
    mount = f"{MOUNT}={dumps.mounted.parents[1].as_uri()}"
    done = lore_command("verify", url, *ENGINE, "--conf", mount, "--json")
    assert done.returncode == 0, done.stderr
    found = ReplayResult.model_validate_json(done.stdout)
    assert found.folder == url
    assert found.verification["row_for_row"]


def test_a_partition_that_was_not_dumped_is_refused_with_those_there_are(dumps: Dumps) -> None:
    done = lore_command("replay", dumps.join, "--partition", "9")
    assert done.returncode == 2
    assert "this partition was not dumped" in done.stderr
    assert "allowed: 0, 1, 2" in done.stderr
