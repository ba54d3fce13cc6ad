"""One event log as the v24.08 qualification tool holds it after its last event.

The area's tables are not used here: the tool floors nanoseconds task by task, keeps accumulators' values by task, reads
plan texts whole, and lets failures wipe out sums at the moment they come. All that needs the events in their order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from workbench.core.errors import InputError
from workbench.eventlog import listener_events as shared
from workbench.eventlog.fold import parse_integer
from workbench.eventlog.listener_events import Metric, Plan, TaskMetrics
from workbench.eventlog.log_redaction import remove_secrets
from workbench.eventlog.plan_graph import PlanNode, build_graph
from workbench.eventlog.sources import LogSource, list_logs
from workbench.spark.engines import ENGINES
from workbench.speedup.compat_rapids_tools import log_records as own
from workbench.speedup.compat_rapids_tools.jvm_semantics import immutable_order, mutable_order
from workbench.speedup.compat_rapids_tools.log_records import Accumulator, Job, Query, Task, TaskSums, list_plan_reads

INTERNAL = "internal.metrics."
RAPIDS_PLUGIN, COMET_PLUGIN = (ENGINES[name].classes[0] for name in ("rapids", "comet"))
NS_PER_MS = 1_000_000
Item = TypeVar("Item")
Result = TypeVar("Result")


class SeedLog:
    """Contents of one event log. Make it with `read`."""

    def __init__(self, source: LogSource, *, keep_tasks: bool) -> None:
        self.where = remove_secrets(source.path)
        self.keep_tasks = keep_tasks
        self.start: shared.ApplicationStart | None = None
        self.app_end_ms: int | None = None
        self.last_job_end_ms: int | None = None
        self.last_sql_end_ms: int | None = None
        self.spark_version = ""
        self.properties: dict[str, str] = {}
        self.gpu_mode = self.hive = self.streaming = False
        self.queries: dict[int, Query] = {}
        self.loose_metrics: list[tuple[int, Metric]] = []
        self.jobs: dict[int, Job] = {}
        self.stages: dict[tuple[int, int], own.Stage] = {}
        self.sql_of_stage: dict[int, int] = {}
        self.accumulators: defaultdict[int, Accumulator] = defaultdict(Accumulator)
        self.driver: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self.tasks: defaultdict[tuple[int, int], list[Task]] = defaultdict(list)
        self.stage_sums: dict[int, TaskSums] = {}
        self.sql_sums: dict[int, TaskSums] = {}
        self.failures: dict[int, list[str]] = {}
        self.executors: dict[str, dict[str, Any]] = {}
        self.warnings: list[str] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            own.TaskEnd: self._on_task_end,
            own.StageSubmitted: self._on_stage_submission,
            own.StageCompleted: self._on_stage_completion,
            own.JobStart: self._on_job_start,
            own.Streaming: self._on_streaming_event,
            shared.JobEnd: self._on_job_end,
            shared.SqlStart: self._on_sql_start,
            shared.SqlUpdate: self._on_sql_update,
            shared.SqlMetrics: self._on_sql_metrics,
            shared.SqlEnd: self._on_sql_end,
            shared.DriverUpdates: self._on_driver_updates,
            shared.LogStart: self._on_log_start,
            shared.ApplicationStart: self._on_application_start,
            shared.ApplicationEnd: self._on_application_end,
            shared.Environment: self._on_environment,
            shared.ExecutorAdded: self._on_executor_start,
            shared.ExecutorRemoved: self._on_executor_end,
        }
        events = own.EventReader(source)
        for event in events:
            # Readers of other kinds share the decoders: what the method has no use for is passed over.
            if (handle := self._handlers.get(type(event))) is not None:
                handle(event)
        if events.n_bad:
            self.warnings.append(
                f"{events.n_bad:,} of {events.n_lines:,} lines could not be read: the original drops such a log whole"
            )
        if events.n_cut:
            self.warnings.append("the log ends in the middle of a line: figures cover the part before")
        self.warnings += [f"the log is damaged: {fault}" for fault in events.faults]

    # --- what follows from the events ---------------------------------------------------------------------------

    @property
    def app_name(self) -> str:
        return self.start.name if self.start else ""

    @property
    def app_id(self) -> str:
        return (self.start.id if self.start else None) or ""

    @property
    def start_ms(self) -> int:
        return (self.start.time_ms if self.start else None) or 0

    @property
    def comet(self) -> bool:
        return COMET_PLUGIN in self.properties.get("spark.plugins", "") and (
            self.properties.get("spark.comet.enabled", "true").lower() != "false"
        )

    @property
    def accelerated(self) -> bool:
        return self.gpu_mode or self.comet

    @property
    def end_ms(self) -> int | None:
        """The application's end, or the later of its last job's and its last query's where the log does not say."""
        if self.app_end_ms is not None:
            return self.app_end_ms
        return max(self.last_sql_end_ms or 0, self.last_job_end_ms or 0) or None

    @property
    def profile_end_ms(self) -> int | None:
        """The end as the original's profiler takes it: the latest of any job or query, not the last in the log."""
        if self.app_end_ms is not None:
            return self.app_end_ms
        jobs, queries = ([item.end_ms or 0 for item in items.values()] for items in (self.jobs, self.queries))
        return max(*jobs, *queries, 0, 0) or None

    @property
    def duration_ms(self) -> int | None:
        return None if self.end_ms is None or self.start is None else self.end_ms - self.start_ms

    @property
    def end_is_estimated(self) -> bool:
        return self.app_end_ms is None and self.end_ms is not None

    def list_node_stages(self, node: PlanNode) -> list[int]:
        """Stages whose tasks reported one of the node's metrics, in the order in which the original has them."""
        stages: list[int] = []
        for metric in node.metrics:
            if metric.accumulator_id in self.accumulators:
                stages += immutable_order(mutable_order(self.accumulators[metric.accumulator_id].stages))
        return immutable_order(stages)

    def sum_stage_duration_ms(self, stage_id: int) -> int:
        """Wall time of all attempts of a stage; 0 where the log does not say."""
        return sum(stage.duration_ms or 0 for key, stage in self.stages.items() if key[0] == stage_id)

    # --- events, as they come ----------------------------------------------------------------------------------

    def _on_log_start(self, event: shared.LogStart) -> None:
        self.spark_version = event.version

    def _on_application_start(self, event: shared.ApplicationStart) -> None:
        self.start = event

    def _on_application_end(self, event: shared.ApplicationEnd) -> None:
        self.app_end_ms = event.time_ms

    def _on_environment(self, event: shared.Environment) -> None:
        pairs = event.spark.items() if isinstance(event.spark, dict) else event.spark or []
        self.properties |= {str(pair[0]): str(pair[1]) for pair in pairs if len(pair) == 2}
        self.gpu_mode |= RAPIDS_PLUGIN in self.properties.get("spark.plugins", "") and (
            self.properties.get("spark.rapids.sql.enabled", "true").lower() != "false"
        )
        self.hive |= self.properties.get("spark.sql.catalogImplementation") == "hive"

    def _on_executor_start(self, event: shared.ExecutorAdded) -> None:
        host, cores = (event.info.host, event.info.cores) if event.info else ("", None)
        self.executors[event.id] = {"host": host, "cores": cores, "active": True}

    def _on_executor_end(self, event: shared.ExecutorRemoved) -> None:
        self.executors.setdefault(event.id, {"host": "", "cores": None})["active"] = False

    def _on_streaming_event(self, event: own.Streaming) -> None:  # noqa: ARG002 - all handlers are called alike
        self.streaming = True

    def _on_sql_start(self, event: shared.SqlStart) -> None:
        query = Query(event.sql_id, event.root_id, event.description, event.time_ms or 0)
        self.queries[event.sql_id] = query
        self._set_plan(query, event.plan)

    def _on_sql_update(self, event: shared.SqlUpdate) -> None:
        if event.sql_id in self.queries:
            self._set_plan(self.queries[event.sql_id], event.plan)

    def _set_plan(self, query: Query, plan: Plan | None) -> None:
        if plan is not None:
            query.nodes = build_graph(plan)
            query.reads, query.hive_scans = list_plan_reads(plan)

    def _on_sql_metrics(self, event: shared.SqlMetrics) -> None:
        self.loose_metrics += [(event.sql_id, metric) for metric in event.metrics]

    def _on_sql_end(self, event: shared.SqlEnd) -> None:
        self.last_sql_end_ms = event.time_ms
        if event.sql_id in self.queries:
            self.queries[event.sql_id].end_ms = event.time_ms
        if event.sql_id in self.failures:
            self._reset_sql_times(event.sql_id)

    def _reset_sql_times(self, sql_id: int) -> None:
        if sql_id in self.sql_sums:
            self.sql_sums[sql_id].run_ms = self.sql_sums[sql_id].cpu_ms = 0

    def _on_driver_updates(self, event: shared.DriverUpdates) -> None:
        for update in event.updates:
            if len(update) == 2 and type(update[0]) is int and (value := parse_integer(update[1])) is not None:
                self.driver[update[0]].append((event.sql_id, value))

    def _on_job_start(self, event: own.JobStart) -> None:
        properties = event.properties or {}
        self.hive |= properties.get("spark.sql.catalogImplementation") == "hive"
        sql_id = parse_integer(properties.get("spark.sql.execution.id"))
        stage_ids = [stage.stage_id for stage in event.stages] if event.stages else event.stage_ids
        if sql_id is not None:
            for stage_id in stage_ids:
                self.sql_of_stage.setdefault(stage_id, sql_id)
        self.jobs[event.job_id] = Job(event.job_id, stage_ids, sql_id, event.time_ms)

    def _on_job_end(self, event: shared.JobEnd) -> None:
        self.last_job_end_ms = event.time_ms
        job = self.jobs.setdefault(event.job_id, Job(event.job_id, [], None, event.time_ms or 0))
        job.end_ms = event.time_ms
        if event.result.get("Result") == "JobFailed" and job.sql_id is not None:
            exception = event.result.get("Exception")
            message = str(exception.get("Message") or "") if isinstance(exception, dict) else ""
            if "cancelled" not in message.lower():
                self._reset_sql_times(job.sql_id)
                self.failures.setdefault(job.sql_id, []).append(f"Job{event.job_id}")

    def _on_stage_submission(self, event: own.StageSubmitted) -> None:
        self.stages[(event.info.stage_id, event.info.attempt_id)] = event.info

    def _on_stage_completion(self, event: own.StageCompleted) -> None:
        stage = event.info
        self.stages[(stage.stage_id, stage.attempt_id)] = stage
        for accumulable in stage.accumulables:
            if not (accumulable.name or "").startswith(INTERNAL):
                self.accumulators[accumulable.id].add_stage_value(stage.stage_id, parse_integer(accumulable.value))
        stage.accumulables = []
        sql_id = self.sql_of_stage.get(stage.stage_id)
        if stage.failure is not None and sql_id is not None and "cancelled" not in stage.failure.lower():
            self.failures.setdefault(sql_id, []).append(f"Stage{stage.stage_id}")

    def _on_task_end(self, event: own.TaskEnd) -> None:
        for accumulable in event.info.accumulables:
            if not (accumulable.name or "").startswith(INTERNAL):
                self.accumulators[accumulable.id].add_task_value(
                    event.stage_id,
                    event.info.task_id,
                    parse_integer(accumulable.value),
                    parse_integer(accumulable.update),
                )
        metrics = event.metrics or TaskMetrics()
        duration = event.info.finish_ms - event.info.launch_ms
        sums = [self.stage_sums.setdefault(event.stage_id, TaskSums())]
        if (sql_id := self.sql_of_stage.get(event.stage_id)) is not None:
            sums.append(self.sql_sums.setdefault(sql_id, TaskSums()))
        for task_sums in sums:
            task_sums.run_ms += metrics.run_ms
            task_sums.cpu_ms += metrics.cpu_ns // NS_PER_MS
            task_sums.duration_ms += duration
        if metrics.input:
            sums[0].read_bytes += metrics.input.bytes
        if read := metrics.shuffle_read:
            sums[0].read_bytes += read.remote_bytes + read.local_bytes
        if self.keep_tasks:
            self.tasks[(event.stage_id, event.attempt_id)].append(Task(duration, metrics))


def keep_usable(
    items: Iterable[Item],
    use: Callable[[Item], Result],
    name: Callable[[Item], str],
    unusable: dict[str, str] | None,
) -> list[Result]:
    """What `use` makes of each item.

    `unusable`: Gets the reason of each item that cannot be used, by its name. Without it, or where no item can be
    used, that is an error.
    """
    results: list[Result] = []
    errors: dict[str, InputError] = {}
    for item in items:
        try:
            results.append(use(item))
        except InputError as error:
            if unusable is None:
                raise
            errors[name(item)] = error
    if errors and not results:
        if len(errors) == 1:
            raise next(iter(errors.values()))
        reasons = [f"{place}: {explain_error(error)}" for place, error in errors.items()]
        raise InputError("no usable file", found="; ".join(reasons[:10]))
    if unusable is not None:
        unusable.update({place: explain_error(error) for place, error in errors.items()})
    return results


def explain_error(error: InputError) -> str:
    """What is wrong and what was found, in one line."""
    found = error.facts.get("found")
    return error.what + (f": {found}" if found else "")


def read_seed_logs(
    *paths: str | Path, keep_tasks: bool = False, need_sql: bool = True, unusable: dict[str, str] | None = None
) -> list[SeedLog]:
    """The event logs at these paths, each as the v24.08 tool holds it after its last event.

    `keep_tasks`: Keep every task's metrics: needed for the aggregated tables of a profile.
    `unusable`: Gets the reason of each log that cannot be used; an error without it, or where none can be used.
    """

    def read(source: LogSource) -> SeedLog:
        log = SeedLog(source, keep_tasks=keep_tasks)
        do: str | None = None
        if log.start is None:
            what, do = "no application starts in this log", "give a whole Spark event log"
        elif log.streaming:
            what, do = "structured streaming: the seed method does not know it", "give logs of batch work"
        elif not log.stage_sums:
            what, do = "no task ended in this log", "give the log of an application that worked"
        elif need_sql and not log.queries:
            what = "no SQL ran in this log, so there are no factors"
        elif log.duration_ms is None or log.duration_ms <= 0:
            what = "the log does not show how long the application ran"
        else:
            return log
        raise InputError(what, where=log.where, do=do)

    sources = [source for path in paths for source in list_logs(str(path))]
    return keep_usable(sources, read, lambda source: remove_secrets(source.path), unusable)
