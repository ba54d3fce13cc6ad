"""The sample event logs are what their manifest says, tell nothing about the machine, and show what they are for."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

LOGS = Path(__file__).parents[1] / "data" / "samples" / "eventlogs"
MANIFEST: dict[str, dict[str, Any]] = json.loads((LOGS / "MANIFEST.json").read_text())
SCRIPTS = {"record.py", "applications.py", "queries.py", "scrub.py", "README.md", "MANIFEST.json"}


def _load(path: Path) -> Any:
    # By path: neither the fakes nor the recording scripts are importable packages, and tests may run from anywhere.
    spec = importlib.util.spec_from_file_location(f"sample_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


codecs = _load(Path(__file__).parent / "fakes" / "codecs.py")
scrub = _load(LOGS / "scrub.py")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(LOGS)
    before = set(sys.modules)
    yield _load(LOGS / "record.py")
    for name in {"applications", "queries", "scrub"} - before:
        sys.modules.pop(name, None)


@cache
def content(name: str) -> bytes:
    return codecs.decode((LOGS / name).read_bytes(), MANIFEST[name]["codec"])


def rolled(folder: str) -> bytes:
    names = [name for name in MANIFEST if name.startswith(folder) and "/events_" in name]
    return b"".join(
        content(name) for name in sorted(names, key=lambda name: int(name.split("/events_")[1].split("_")[0]))
    )


def log(prefix: str) -> bytes:
    (name,) = [name for name in MANIFEST if name.startswith(prefix)]
    return content(name)


def events(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.splitlines():
        yield json.loads(line)


def of_kind(data: bytes, kind: str) -> list[dict[str, Any]]:
    return [event for event in events(data) if event["Event"].endswith(kind)]


def nodes(plan: dict[str, Any]) -> Iterator[str]:
    yield plan["nodeName"]
    for child in plan["children"]:
        yield from nodes(child)


def test_every_file_is_in_the_manifest_and_every_entry_is_a_file() -> None:
    present = {
        path.relative_to(LOGS).as_posix()
        for path in LOGS.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert present - SCRIPTS == set(MANIFEST)


@pytest.mark.parametrize("name", MANIFEST)
def test_file_and_content_have_the_digests_of_the_manifest(name: str) -> None:
    data = (LOGS / name).read_bytes()
    entry = MANIFEST[name]
    assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])
    decoded = content(name)
    assert (len(decoded), hashlib.sha256(decoded).hexdigest()) == (entry["content_bytes"], entry["content_sha256"])


def test_the_samples_stay_small() -> None:
    sizes = [path.stat().st_size for path in LOGS.rglob("*") if path.is_file()]
    assert sum(sizes) < 5_000_000
    assert max(sizes) < 2_000_000


def test_the_readme_names_every_log() -> None:
    text = (LOGS / "README.md").read_text()
    for name in MANIFEST:
        assert name.split("/")[0] in text


def test_the_small_application_has_the_same_bytes_in_every_codec() -> None:
    copies = {
        entry["codec"]: entry["content_sha256"] for name, entry in MANIFEST.items() if name.startswith("small/three")
    }
    assert set(copies) == {"plain", "gzip", "zstd", "lz4", "snappy", "lzf"}
    assert set(copies.values()) == {hashlib.sha256(rolled("small/eventlog_v2_")).hexdigest()}


def leaks(text: str) -> set[str]:
    # Written apart from the recording script's own check: whatever looks like a path must lie below /data.
    paths = re.findall(r"(?:(?<=[\"'\s=\[(,])|(?<=file:)|(?<=file://))/+[\w.-]+/[^\s\"\\,\]]*", text)
    return (
        {path for path in paths if not path.lstrip("/").startswith("data/")}
        | set(re.findall(r"(?<![\w.])root(?![\w.])", text))
        | set(re.findall(r"(?<![\w.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.])", text)) - {"127.0.0.1"}
        | set(re.findall(r'"(?:Host|spark\.driver\.host)":"([^"]*)"', text)) - {"localhost"}
        | set(re.findall(r'"User":"([^"]*)"', text)) - {"user"}
        | set(re.findall(r"\b\w+://([^/\":]+)", text)) - {"localhost"}
    )


@pytest.mark.parametrize("name", MANIFEST)
def test_no_log_tells_about_the_machine_that_recorded_it(name: str) -> None:
    assert leaks(content(name).decode()) == set()


TELLING = [
    ('{"a":"file:/root/x.parquet"}', "file URI"),
    ('{"a":"[file:///home/me/x]"}', "file URI"),
    ('{"a":"collect at /work/app.py:3"}', "absolute path"),
    ('{"User":"root"}', "user root"),
    ('{"a":"10.0.0.7:4040"}', "IP address"),
    ('{"Task Info":[{"Host":"build-7"}]}', "host: build-7"),
]


@pytest.mark.parametrize(("line", "finding"), TELLING)
def test_lines_that_tell_about_a_machine_are_found_by_the_test_and_by_the_recording(line: str, finding: str) -> None:
    assert leaks(line)
    assert any(text.startswith(finding) for text in scrub.list_machine_traces(line))


@pytest.mark.parametrize("name", [name for name in MANIFEST if MANIFEST[name]["bytes"]])
def test_environments_are_emptied(name: str) -> None:
    for event in of_kind(content(name).rpartition(b"\n")[0], "EnvironmentUpdate"):
        assert {key: event[key] for key in ("System Properties", "Classpath Entries", "Hadoop Properties")} == {
            "System Properties": {},
            "Classpath Entries": {},
            "Hadoop Properties": {},
        }


def test_the_recording_objects_to_the_names_it_is_told() -> None:
    assert scrub.list_machine_traces('{"a":"at build-7 now"}', names=("build-7",)) == ["name: build-7"]
    assert scrub.list_machine_traces('{"a":"at build-70 now"}', names=("build-7",)) == []


def test_the_recording_does_not_object_to_what_spark_writes_anyway() -> None:
    line = (
        '{"spark.sql.execution.root.id":"1","x":"java.base/java.lang.Thread 127.0.0.1 file:/data/t a / b","v":"3.5.9"}'
    )
    assert scrub.list_machine_traces(line) == []
    assert leaks(line) == set()


def test_scrubbing_replaces_the_longer_place_first_and_keeps_other_lines_byte_for_byte() -> None:
    places = {"/a": "/data/x", "/a/b": "/data/y"}
    assert (
        scrub.scrub_line('{"Event":"E", "p":"/a/b/c","q":"/a/c"}', places)
        == '{"Event":"E", "p":"/data/y/c","q":"/data/x/c"}'
    )


def test_the_main_log_has_three_passes_of_eleven_queries() -> None:
    described = Counter(event["description"] for event in of_kind(log("tpch_sf"), "SQLExecutionStart"))
    queries = {name.split()[0] for name in described if " pass " in name}
    assert {f"{query} pass {number}" for query in queries for number in range(3)} <= set(described)
    assert len(queries) == 11


def test_the_main_log_shows_overlap_skew_broadcast_reuse_and_a_cache() -> None:
    data = log("tpch_sf")
    stages = [event["Stage Info"] for event in of_kind(data, "StageCompleted")]
    spans = sorted((stage["Submission Time"], stage["Completion Time"]) for stage in stages)
    assert sum(after[0] < before[1] for before, after in pairwise(spans)) > 20
    times: dict[int, list[int]] = {}
    for event in of_kind(data, "TaskEnd"):
        times.setdefault(event["Stage ID"], []).append(event["Task Metrics"]["Executor Run Time"])
    assert max(max(of) / sorted(of)[len(of) // 2] for of in times.values() if len(of) > 4 and max(of) > 100) > 5
    seen = {name for event in of_kind(data, "AdaptiveExecutionUpdate") for name in nodes(event["sparkPlanInfo"])}
    assert {
        "BroadcastHashJoin",
        "SortMergeJoin",
        "ReusedExchange",
        "AQEShuffleRead",
        "Scan In-memory table orders_cached",
    } <= seen


def test_the_rolled_log_was_rolled_by_spark_and_ends_well() -> None:
    sizes = {
        name: entry["content_bytes"]
        for name, entry in MANIFEST.items()
        if name.startswith("rolled/") and "/events_" in name
    }
    assert len(sizes) >= 2
    assert max(sizes.values()) > 10_000_000
    names = [event["Event"] for event in events(rolled("rolled/"))]
    assert (names[0], names.count("SparkListenerLogStart"), names[-1]) == (
        "SparkListenerLogStart",
        1,
        "SparkListenerApplicationEnd",
    )


def test_the_killed_log_ends_inside_a_line_of_a_query_that_never_ended() -> None:
    whole, _, last = log("killed/").rpartition(b"\n")
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(last)
    started = {event["executionId"] for event in of_kind(whole, "SQLExecutionStart")}
    ended = {event["executionId"] for event in of_kind(whole, "SQLExecutionEnd")}
    assert len(started - ended) == 1
    assert of_kind(whole, "ApplicationEnd") == []


def test_the_failing_log_has_failed_jobs_retried_tasks_and_queries_that_succeed() -> None:
    data = log("failing")
    errors = {event["executionId"]: event["errorMessage"] for event in of_kind(data, "SQLExecutionEnd")}
    by_name = {event["description"]: errors[event["executionId"]] for event in of_kind(data, "SQLExecutionStart")}
    assert "planned failure" in by_name["raise_error pass 0"]
    assert "DIVIDE_BY_ZERO" in by_name["division pass 0"]
    assert not by_name["q6 pass 0"] + by_name["retried pass 0"] + by_name["q1 pass 0"]
    assert Counter(event["Job Result"]["Result"] for event in of_kind(data, "JobEnd"))["JobFailed"] == 2
    assert sum("Failure Reason" in event["Stage Info"] for event in of_kind(data, "StageCompleted")) == 2
    tasks = [
        (event["Stage ID"], event["Task Info"]["Index"], event["Task End Reason"]["Reason"])
        for event in of_kind(data, "TaskEnd")
    ]
    failed = {task[:2] for task in tasks if task[2] == "ExceptionFailure"}
    assert len(failed & {task[:2] for task in tasks if task[2] == "Success"}) == 1


def test_a_log_is_split_at_line_ends_and_nothing_is_lost(record: Any) -> None:
    data = b"".join(b"x" * (37 * number % 50) + b"\n" for number in range(400))
    parts = record.split_at_lines(data, 11)
    assert (len(parts), b"".join(parts)) == (11, data)
    assert all(part.endswith(b"\n") for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) < 2 * 50


def test_frames_end_where_spark_flushes(record: Any) -> None:
    lines = [
        b'{"Event":"SparkListenerTaskStart"}\n',
        b'{"Event":"SparkListenerTaskEnd"}\n',
        b'{"Event":"SparkListenerJobEnd"}\n',
    ]
    cut = list(record.frames(b"".join(lines) * 2 + lines[0], record.as_spark_does))
    assert cut == [b"".join(lines), b"".join(lines), lines[0]]


@pytest.mark.spark
def test_the_recording_script_still_records_and_scrubs(record: Any, tmp_path: Path) -> None:
    data = record.make_data(tmp_path / "tpch", "0.001")
    path = record.run_application("small", data, tmp_path)
    assert leaks(path.read_text())
    kept = record.scrubbed(path, record.places_of(data, tmp_path))
    assert leaks(kept.decode()) == set()
    described = [event["description"] for event in of_kind(kept, "SQLExecutionStart")]
    assert {"q6 pass 0", "q3 pass 0", "q1 pass 0"} <= set(described)


def test_a_path_that_spark_cut_short_is_scrubbed() -> None:
    line = "Location: InMemoryFileIndex [file:/home/ann/long-fol..., file:/home/ann/long-folder/data/x]"
    assert scrub.scrub_line(line, {"/home/ann/long-folder": "/data/work"}) == (
        "Location: InMemoryFileIndex [file:/data/..., file:/data/work/data/x]"
    )


@pytest.mark.parametrize("codec", ["plain", "gzip", "zstd", "lz4", "snappy", "lzf"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(unit=st.binary(max_size=40), repeats=st.integers(0, 400))
def test_the_fake_encoders_and_decoders_agree(codec: str, unit: bytes, repeats: int) -> None:
    data = unit * repeats + unit[:7]
    assert codecs.decode(codecs.ENCODERS[codec](data), codec) == data


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    patch = pytest.MonkeyPatch()
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
        patch.setenv(name, "")  # set by `start`; noted here so that it is put back
    patch.syspath_prepend(LOGS)
    ours = SparkSession.getActiveSession() is None
    folder = tmp_path_factory.mktemp("events")
    session = _load(LOGS / "applications.py").start("codecs", folder, settings={"spark.eventLog.enabled": "false"})
    yield session
    if ours:
        session.stop()
    sys.modules.pop("queries")
    patch.undo()


VARIANTS = [
    ("zstd", {"piece_bytes": 1000}),
    ("zstd", {}),
    ("lz4", {"piece_bytes": 4096}),
    ("lz4", {"stored": True}),
    ("snappy", {"piece_bytes": 1000}),
    ("snappy", {}),
    ("lzf", {"stored": True}),
    ("lzf", {"piece_bytes": 3000}),
    ("lzf", {}),
]


@pytest.mark.spark
@pytest.mark.parametrize(("codec", "options"), VARIANTS)
def test_spark_reads_what_the_fake_encoders_wrote(
    spark: Any, tmp_path: Path, codec: str, options: dict[str, Any]
) -> None:
    data = content("small/three_queries")[:200_000]
    (tmp_path / "encoded").write_bytes(codecs.ENCODERS[codec](data, **options))
    context = spark.sparkContext
    java = context._jvm
    reader = java.org.apache.spark.io.CompressionCodec.createCodec(context._jsc.sc().conf(), codec)
    stream = reader.compressedContinuousInputStream(java.java.io.FileInputStream(str(tmp_path / "encoded")))
    target = java.java.io.File(str(tmp_path / "decoded")).toPath()
    try:
        java.java.nio.file.Files.copy(stream, target, context._gateway.new_array(java.java.nio.file.CopyOption, 0))
    finally:
        stream.close()
    assert (tmp_path / "decoded").read_bytes() == data
