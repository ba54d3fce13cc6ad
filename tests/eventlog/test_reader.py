"""Every figure equals a computation that shares no code with the reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tests.eventlog.conftest import LOGS, OTHERS, OWN
from tests.eventlog.reference import Reference, content
from tests.fakes import eventlogs as made
from workbench.core.errors import ConfigError, InputError
from workbench.eventlog.codecs import decode_blocks
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.eventlog.sources import LogCutter, list_logs

Read = Callable[[Path], EventLogFacts]
ALL = OWN + OTHERS
METRICS = {
    "executor_run_time_ms": "Executor Run Time",
    "executor_cpu_time_ns": "Executor CPU Time",
    "executor_deserialize_time_ms": "Executor Deserialize Time",
    "executor_deserialize_cpu_time_ns": "Executor Deserialize CPU Time",
    "result_size_bytes": "Result Size",
    "jvm_gc_time_ms": "JVM GC Time",
    "result_serialization_time_ms": "Result Serialization Time",
    "memory_spilled_bytes": "Memory Bytes Spilled",
    "disk_spilled_bytes": "Disk Bytes Spilled",
    "input_bytes": "Input Metrics/Bytes Read",
    "input_records": "Input Metrics/Records Read",
    "output_bytes": "Output Metrics/Bytes Written",
    "output_records": "Output Metrics/Records Written",
    "shuffle_read_remote_blocks": "Shuffle Read Metrics/Remote Blocks Fetched",
    "shuffle_read_local_blocks": "Shuffle Read Metrics/Local Blocks Fetched",
    "shuffle_read_fetch_wait_time_ms": "Shuffle Read Metrics/Fetch Wait Time",
    "shuffle_read_remote_bytes": "Shuffle Read Metrics/Remote Bytes Read",
    "shuffle_read_remote_bytes_to_disk": "Shuffle Read Metrics/Remote Bytes Read To Disk",
    "shuffle_read_local_bytes": "Shuffle Read Metrics/Local Bytes Read",
    "shuffle_read_records": "Shuffle Read Metrics/Total Records Read",
    "shuffle_write_bytes": "Shuffle Write Metrics/Shuffle Bytes Written",
    "shuffle_write_records": "Shuffle Write Metrics/Shuffle Records Written",
    "shuffle_write_time_ns": "Shuffle Write Metrics/Shuffle Write Time",
}


@pytest.fixture(scope="module", params=ALL)
def path(request: pytest.FixtureRequest) -> Path:
    """Each log: a fixture of the module, so that the tests of one log follow each other and it is computed once."""
    return Path(request.param)


@pytest.fixture(scope="module")
def reference(path: Path) -> Reference:
    return Reference(content(path))


def test_there_are_logs_to_compare() -> None:
    assert len(OWN) >= 10


def test_every_accumulator_of_every_stage_equals_the_reference(
    path: Path, reference: Reference, facts_of: Read
) -> None:
    rows = {
        (row["stage_id"], row["stage_attempt_id"], row["accumulator_id"]): row
        for row in facts_of(path).accumulators.iter_rows(named=True)
    }
    with_numbers = {key for key, row in rows.items() if row["n"]}
    assert with_numbers == set(reference.values)
    for key, values in reference.values.items():
        row = rows[key]
        assert (row["n"], row["min"], row["max"], row["total"]) == (len(values), min(values), max(values), sum(values))
        assert row["median"] == np.median(values)
        assert row["p95"] == pytest.approx(np.percentile(values, 95), rel=1e-15)
        assert row["name"] == reference.names[key[2]]


def test_the_sets_of_applications_executions_jobs_and_stages_are_equal(
    path: Path, reference: Reference, facts_of: Read
) -> None:
    facts = facts_of(path)
    assert facts.applications["app_id"].to_list() == reference.app_ids
    assert set(facts.sql_executions["sql_id"]) == reference.sql_ids
    assert set(facts.jobs["job_id"]) == reference.jobs
    assert set(facts.stages.select("stage_id", "stage_attempt_id").iter_rows()) == reference.stages
    assert facts.applications["status"].to_list() == ["complete" if reference.ended else "incomplete"]


def test_task_metrics_durations_and_outcomes_equal_the_reference(
    path: Path, reference: Reference, facts_of: Read
) -> None:
    rows = {(row["stage_id"], row["stage_attempt_id"]): row for row in facts_of(path).stage_tasks.iter_rows(named=True)}
    assert {key for key, row in rows.items() if row["n_tasks"]} == set(reference.durations)
    for key, durations in reference.durations.items():
        row = rows[key]
        assert [row["n_succeeded"], row["n_failed"], row["n_killed"]] == reference.outcomes[key]
        assert row["task_duration_total_ms"] == sum(durations)
        assert (row["task_duration_min_ms"], row["task_duration_max_ms"]) == (min(durations), max(durations))
        assert row["task_duration_median_ms"] == np.median(durations)
        got = {name: row[name] for name in METRICS}
        assert got == {name: reference.metrics[key].get(there, 0) for name, there in METRICS.items()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tpch_sf0.1.zstd", {"chunk_bytes": 100_000}),
        ("tpch_sf0.1.zstd", {"chunk_bytes": 700_001}),
        ("failing.zstd", {"chunk_bytes": 100_000, "jobs": 2}),
    ],
)
def test_cutting_a_log_into_chunks_and_using_processes_changes_nothing(
    name: str, options: dict[str, int], facts_of: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "jobs" in options:
        monkeypatch.setattr("workbench.eventlog.reader.PARALLEL_BYTES", 0)
    cut = read_event_logs(LOGS / name, **options)
    for table in EventLogFacts.__dataclass_fields__:
        assert getattr(cut, table).equals(getattr(facts_of(LOGS / name), table)), table


def test_node_metrics_over_several_stages_are_exact(facts_of: Read) -> None:
    path = LOGS / "tpch_sf0.1.zstd"
    reference, facts = Reference(content(path)), facts_of(path)
    by_accumulator: dict[tuple[int | None, int], list[int]] = {}
    for (stage_id, _, accumulator_id), values in reference.values.items():
        by_accumulator.setdefault((reference.sql_of_stage.get(stage_id), accumulator_id), []).extend(values)
    several = 0
    for row in facts.node_metrics.iter_rows(named=True):
        values = by_accumulator.get((row["sql_id"], row["accumulator_id"]), [])
        assert row["n"] == len(values)
        if values:
            assert (row["min"], row["max"], row["total"]) == (min(values), max(values), sum(values))
            assert row["median"] == np.median(values)
            several += len(row["stage_ids"]) > 1
        else:
            assert row["min"] is None
            assert row["median"] is None
    assert several > 0, "the sample must hold a node that several stages work on"


def test_the_last_plan_version_is_final_and_accumulators_outlive_versions(facts_of: Read) -> None:
    facts = facts_of(LOGS / "tpch_sf0.1.zstd")
    versions = dict(facts.sql_executions.select("sql_id", "n_plan_versions").iter_rows())
    assert max(versions.values()) > 1
    for row in facts.plan_nodes.iter_rows(named=True):
        assert row["is_final"] == (row["plan_version"] == versions[row["sql_id"]] - 1)
    reused = facts.plan_nodes.filter(facts.plan_nodes["parent_ids"].list.len() > 1)
    assert reused.height > 0, "the sample must hold a reused exchange"


def test_failures_of_every_kind_are_told(facts_of: Read) -> None:
    facts = facts_of(LOGS / "failing.zstd")
    kinds = dict(facts.failures["kind"].value_counts().iter_rows())
    assert set(kinds) >= {"task", "stage", "job", "sql"}
    assert set(facts.sql_executions["status"]) == {"succeeded", "failed"}
    failed = facts.stage_tasks.filter(facts.stage_tasks["n_failed"] > 0)
    assert kinds["task"] == failed["n_failed"].sum() + facts.stage_tasks["n_killed"].sum()
    assert facts.failures.filter(facts.failures["kind"] == "task")["message"].null_count() == 0


@pytest.mark.parametrize("name", ["gpu_oom_eventlog.zstd", "tasks_executors_fail_compressed_eventlog.zstd"])
def test_a_query_whose_job_failed_has_failed_before_spark_3_4_too(name: str, shared: Path, facts_of: Read) -> None:
    facts = facts_of(shared / "data" / "eventlogs" / name)
    failed = facts.sql_executions.filter(facts.sql_executions["status"] == "failed")
    jobs = facts.jobs.filter(facts.jobs["status"] == "failed")
    assert set(failed["sql_id"]) == set(jobs["sql_id"].drop_nulls()) != set()
    assert failed["error"].null_count() == 0


def test_several_applications_in_a_folder_are_separate_rows() -> None:
    facts = read_event_logs(LOGS / "small")
    assert facts.logs.height == 7
    assert facts.applications["log_id"].to_list() == list(range(7))
    assert facts.applications["app_id"].n_unique() == 1


def test_nonsense_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "photo").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "other.json").write_text('{"a": 1}\n{"b": 2}\n')
    (tmp_path / "folder").mkdir()
    for name, words in {
        "empty": "empty",
        "photo": "not a Spark event log",
        "other.json": "no Spark event",
        "folder": "no event log in this folder",
        "absent": "no such file",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            read_event_logs(tmp_path / name)
        assert caught.value.facts["do"]
        assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="jobs"):
        read_event_logs(LOGS / "failing.zstd", jobs=0)
    with pytest.raises(InputError, match=r"cannot be opened|cannot be read"):
        read_event_logs("nosuchprotocol://bucket/log")


@pytest.mark.parametrize("fault", ["none", "frames end within lines", "damage", "cut", "other bytes", "no line end"])
def test_frames_read_in_groups_give_what_one_stream_gives(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = content(LOGS / "failing.zstd").splitlines(keepends=True)
    lines.insert(len(lines) // 3, b'{"Event":oops\n')
    bad_offset = sum(map(len, lines[: len(lines) // 3]))
    if fault == "no line end":
        lines[-1] = lines[-1].rstrip(b"\n")
    parts = [b"".join(lines[at : at + 20]) for at in range(0, len(lines), 20)]
    if fault == "frames end within lines":
        whole = b"".join(lines)
        parts = [whole[at : at + 40_007] for at in range(0, len(whole), 40_007)]
    frames = [zstandard.compress(part, 1) for part in parts]
    middle = len(frames) // 2
    if fault == "damage":
        frames[middle] = frames[middle][:40] + bytes(20) + frames[middle][60:]
    elif fault == "other bytes":
        frames.insert(middle, b"no frame")
    path = tmp_path / "log"
    path.write_bytes(b"".join(frames)[: -7 if fault == "cut" else None])
    cutter = LogCutter(0, list_logs(str(path))[0], 300_000)
    assert sum(chunk.codec == "zstd" for chunk in cutter.iter_chunks()) >= 2
    in_groups = read_event_logs(path, chunk_bytes=300_000)
    if fault in ("damage", "other bytes"):
        # One stream may lose the last lines of the frame before the damage.
        path.write_bytes(b"".join(frames[:middle]))
    monkeypatch.setattr("workbench.eventlog.sources.iter_zstd_frames", lambda file, max_bytes: ())
    one_stream = read_event_logs(path, chunk_bytes=300_000)
    for table in EventLogFacts.__dataclass_fields__:
        of_both = [
            getattr(facts, table).drop("fault", "input_bytes", strict=False) for facts in (in_groups, one_stream)
        ]
        assert of_both[0].equals(of_both[1]), table
    assert in_groups.bad_lines["byte_offset"][0] == bad_offset
    assert (in_groups.logs["fault"][0] is None) == (fault in ("none", "frames end within lines", "no line end", "cut"))


def test_settings_that_a_session_changed_are_those_of_its_query(facts_of: Read, tmp_path: Path) -> None:
    found = facts_of(LOGS / "failing.zstd").sql_executions
    changed = [text for text in found["modified_configs"] if text != "{}"]
    assert changed == [f'{{"spark.sql.ansi.enabled": "{value}"}}' for value in ("true", "true", "false")]
    with (LOGS / "failing.zstd").open("rb") as opened:
        text = b"".join(decode_blocks(opened, "zstd")).decode()
    log = tmp_path / "log"
    log.write_text(
        text.replace('"spark.sql.ansi.enabled":"true"', '"spark.sql.my.password":"hush"').replace(
            '"modifiedConfigs":{"spark.sql.ansi.enabled":"false"}', '"modifiedConfigs":[1]'
        )
    )
    other = read_event_logs(log).sql_executions
    assert "hush" not in str(other["modified_configs"].to_list())
    assert other["modified_configs"].null_count() == 1
    assert other.drop("modified_configs").equals(found.drop("modified_configs"))


def test_a_query_of_spark_connect_names_its_session_and_user(tmp_path: Path) -> None:
    def tag(user: str, session: str) -> str:
        return f"SparkConnect_OperationTag_User_{user}_Session_{session}_Operation_55430bea-7a4e-4471-89e7-4273d937e384"

    tags = [[tag("ann_b", "5fcc-1"), "spark-session-e2d6"], [tag("", "5fcc-2")], ["mine"], []]
    starts = [made.sql_start(sql_id) | {"jobTags": its_tags} for sql_id, its_tags in enumerate(tags)]
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(event) + "\n" for event in [made.application_start(), *starts]))
    rows = read_event_logs(path).sql_executions.sort("sql_id")
    assert rows["connect_session"].to_list() == ["5fcc-1", "5fcc-2", None, None]
    assert rows["connect_user"][0] is not None
    assert rows["connect_user"].to_list()[1:] == [None, None, None]
