"""Measure a fleet's logs in Spark tasks: packs by bytes, results by way of a shared folder or URL, resumable."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.runs.run_stores import check_writable, is_url
from workbench.spark import jvm
from workbench.speedup.fleet.fleet_logs import LogCandidate, hash_reader_code
from workbench.speedup.fleet.fleet_results import (
    FleetResults,
    build_keys,
    open_results,
    prune_default_results,
    resolve_place,
)
from workbench.speedup.fleet.measured_logs import MeasuredLog, build_unreadable_log
from workbench.speedup.fleet.spark_task import KILLED, MAX_BEGUN, LogOutcome, PlannedLog

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

MAX_PACK_BYTES = 256 << 20
PACKS_PER_SLOT = 3
POLL_S = 1.0
READERS = 8
# Results that are read before the first of them is used.
READ_AHEAD = 64
# Short jobs of Python tasks: what a JVM compiles and collects well does not pay here.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.app.name": "workbench speedup fleet",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {jvm.QUIET_LOGGING}",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
}
_Told = tuple[str, str, str, float]
"""A `LogOutcome` as it comes from an executor, which may not have that class."""
SHARE_RESULTS = "--results: a folder or URL that this driver and every executor reach, such as s3://bucket/fleet"
BRING_PACKAGE = "workbench speedup package, and the two settings that it prints"


@dataclass(frozen=True)
class SparkOptions:
    """Where and how Spark reads a fleet.

    `master`: Master of a new session; null: as Spark's own configuration says.
    `settings`: Spark settings of a new session, over those of `SETTINGS`.
    `results`: Folder or URL of the results; null: in the user's cache, where executors of other machines do not reach.
    `reuse`: Take the results that an earlier run left for the same path, size and time, but of unreadable logs.
    `session`: Session to use and to leave running; by default the active one, or a new one.
    """

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    results: str | Path | None = None
    reuse: bool = True
    session: SparkSession | None = None


def measure_on_spark(candidates: Sequence[LogCandidate], options: SparkOptions) -> Iterator[tuple[str, MeasuredLog]]:
    """Measure each log in a Spark task; yields path and result as they are written, earlier runs' results first.

    The driver plans, looks at the folder of results and reads what is new; Spark carries keys and seconds only. A log
    that ends its process is tried alone, and then alone in a job; a third time makes it an unreadable log.
    """
    run = secrets.token_hex(4)
    results = open_results(options.results, run)
    if is_url(options.results):
        check_writable(str(options.results))
    waiting = build_keys(candidates, run, reuse=options.reuse)
    for key, result in _read_new_results(results, set(waiting)):
        if result.application["status"][0] == "unreadable":
            results.delete_result(key)
            continue
        yield waiting.pop(key).path, MeasuredLog(result.application, result.measured, from_cache=True)
    if not waiting:
        return
    with open_context(options) as context:
        # Run jobs until each waiting log has a result or was tried often enough; those with one leave `waiting`.
        place = resolve_place(options.results)
        while packs := _plan_packs((before := results.list_state()).begun, waiting, context.defaultParallelism):
            job = _Job(context, packs, place, results.run)
            has_ended = False
            while not has_ended:
                has_ended = job.wait(POLL_S)
                for key, result in _read_new_results(results, set(waiting)):
                    yield waiting.pop(key).path, result
            job.check_outcomes(waiting)
            if job.error is not None and results.list_state() == before:
                lines = [line.strip() for line in str(job.error).splitlines() if line.strip()]
                causes = [
                    line
                    for line in lines
                    if "PYTHON_VERSION_MISMATCH" in line or "Error" in line or "Exception" in line
                ]
                raise RunFailedError(
                    "the Spark job failed before any log was measured",
                    found=(causes or lines or [type(job.error).__name__])[0][:300],
                    do="see Spark's log; the executors need the same Python minor version as this driver",
                )
    for candidate in waiting.values():
        yield candidate.path, build_unreadable_log(candidate.path, KILLED)
    results.delete_marks()
    if options.results is None:
        prune_default_results()


def _plan_packs(begun: Mapping[str, int], waiting: Mapping[str, LogCandidate], slots: int) -> list[list[PlannedLog]]:
    """The tasks of the next job, by how often a log was begun (see MAX_BEGUN); empty: all were tried.

    Logs that no task has begun, in packs; else those that were begun once, one a task; else one that was begun twice,
    alone in its job: where a job is aborted, the neighbours of the log that did it have marks, too.
    """
    planned = {key: PlannedLog(key, log.path, begun.get(key, 0)) for key, log in waiting.items()}
    fresh = [key for key, log in planned.items() if not log.begun]
    if fresh:
        sizes = {key: waiting[key].size_bytes for key in fresh}
        return [[planned[key] for key in pack] for pack in pack_by_size(sizes, slots)]
    once = [[log] for log in planned.values() if log.begun == 1]
    return once or [[log] for log in planned.values() if log.begun < MAX_BEGUN][:1]


def pack_by_size(sizes: Mapping[str, int], slots: int) -> list[list[str]]:
    """Names in packs, largest first: at least three a slot where there are as many, none above 256 MB.

    `sizes`: Bytes by name; a larger one has a pack of its own.

    >>> pack_by_size({"a": 300 << 20, "b": 5 << 20, "c": 3 << 20, "d": 2 << 20}, 1)
    [['a'], ['b'], ['c'], ['d']]
    >>> pack_by_size(dict.fromkeys("abcdefg", 1), 1)
    [['a', 'b'], ['c', 'd'], ['e', 'f'], ['g']]
    """
    n_packs = PACKS_PER_SLOT * slots
    max_bytes, max_names = min(MAX_PACK_BYTES, sum(sizes.values()) // n_packs), max(1, len(sizes) // n_packs)
    packs: list[list[str]] = []
    pack_bytes = 0
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if not packs or pack_bytes + sizes[name] > max_bytes or len(packs[-1]) == max_names:
            packs.append([])
            pack_bytes = 0
        packs[-1].append(name)
        pack_bytes += sizes[name]
    return packs


def _read_new_results(results: FleetResults, wanted: set[str]) -> Iterator[tuple[str, MeasuredLog]]:
    """The results that are there of the wanted ones; one that cannot be read is removed and stays wanted."""
    present = sorted(results.list_state().measured & wanted)
    with ThreadPoolExecutor(READERS) as readers:
        for start in range(0, len(present), READ_AHEAD):
            keys = present[start : start + READ_AHEAD]
            for key, result in zip(keys, readers.map(results.read_result, keys), strict=True):
                if result is None:
                    results.delete_result(key)
                else:
                    yield key, result


class _Job:
    """One Spark job over the packs, in a thread of its own, so that results are read while it runs."""

    def __init__(self, context: SparkContext, packs: Sequence[Sequence[PlannedLog]], place: str, run: str) -> None:
        from pyspark import InheritableThread

        self.error: Exception | None = None
        self.outcomes: list[LogOutcome] = []
        self._context, self._group = context, f"workbench-fleet-{run}"
        self._packs = [[tuple(log) for log in pack] for pack in packs]
        self._task = _build_task(place, run, hash_reader_code())
        self._thread = InheritableThread(target=self._run)
        self._thread.daemon = True
        self._thread.start()

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "measure event logs", interruptOnCancel=True)
            packs = self._context.parallelize(self._packs, len(self._packs))
            self.outcomes = [LogOutcome(*outcome) for outcome in packs.mapPartitions(self._task).collect()]
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.error = error

    def wait(self, timeout_s: float) -> bool:
        """Whether the job has ended within the time; a signal cancels it."""
        try:
            self._thread.join(timeout_s)
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise
        return not self._thread.is_alive()

    def check_outcomes(self, waiting: Mapping[str, LogCandidate]) -> None:
        """Refuse what would go wrong in every task alike: another version, no package, no shared results."""
        for _, kind, detail, _ in self.outcomes:
            if kind == "other version":
                raise ConfigError(
                    "the executors have another version of the workbench",
                    where="Spark executors",
                    found=detail,
                    allowed=f"reader {hash_reader_code()}",
                    do=BRING_PACKAGE,
                )
            if kind == "no package":
                raise ConfigError(
                    "the executors cannot import the workbench", where="Spark executors", found=detail, do=BRING_PACKAGE
                )
            if kind == "no result":
                raise ConfigError(
                    "the executors cannot write their results", where="--results", found=detail, do=SHARE_RESULTS
                )
        written = {outcome.key for outcome in self.outcomes if outcome.kind in ("measured", "unreadable")}
        if written and written <= set(waiting):
            raise ConfigError(
                "results that executors wrote are not where this driver looks", where="--results", do=SHARE_RESULTS
            )


def _build_task(place: str, run: str, reader_code: str) -> Callable[[Iterator[Any]], Iterator[_Told]]:
    """The function of a task; it is sent by value, so that it can say that an executor has no workbench."""

    def measure_packs(packs: Iterator[Any]) -> Iterator[_Told]:
        from pyspark import TaskContext

        try:
            from workbench.speedup.fleet.spark_task import PlannedLog, measure_pack
        except ImportError as error:
            yield "", "no package", str(error), 0.0
            return
        context = TaskContext.get()
        is_retry = context is not None and context.attemptNumber() > 0
        for pack in packs:
            logs = [PlannedLog(*log) for log in pack]
            yield from measure_pack(logs, place, run, reader_code, is_retry=is_retry)

    return measure_packs


@contextlib.contextmanager
def open_context(options: SparkOptions) -> Iterator[SparkContext]:
    """The Spark context of the given session, of the active one, or of a new one, which is stopped at the end."""
    if importlib.util.find_spec("pyspark") is None:
        raise MissingToolError(
            "the Spark backend needs pyspark", do="pip install 'pyspark>=3.5,<3.6', or --backend local"
        )
    if options.session is None:
        jvm.use_spark(keep_python=True)
    from pyspark.sql import SparkSession

    session = options.session or SparkSession.getActiveSession()
    if session is not None:
        if not hasattr(session, "sparkContext"):
            raise ConfigError(
                "a session of Spark Connect cannot read a fleet", do="use a session of the cluster itself, or --master"
            )
        if options.master is not None or options.settings:
            raise ConfigError(
                "a session already exists, with its own master and settings",
                where="master, settings",
                do="omit them, or stop that session",
            )
        yield session.sparkContext
        return
    # Only spark-submit reads the Python of executors from the settings.
    if python := options.settings.get("spark.pyspark.python"):
        os.environ["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder
    if options.master is not None:
        builder = builder.master(options.master)
    # Under spark-submit its settings hold, and its JVM runs already.
    defaults = {} if "PYSPARK_GATEWAY_PORT" in os.environ else SETTINGS
    for name, value in {**defaults, **options.settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session.sparkContext
    finally:
        session.stop()
