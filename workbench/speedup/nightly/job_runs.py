"""The runs of one job among event logs, oldest first, each with what is compared over many nights."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from workbench.core.errors import InputError
from workbench.core.formats import format_items
from workbench.eventlog.completeness import describe_holes, select_harmful
from workbench.eventlog.reader import EventLogFacts, Progress, read_event_logs
from workbench.eventlog.sources import list_all_logs
from workbench.eventlog.task_slots import TaskSlots
from workbench.speedup.attribution.application_time import read_application_time, read_properties

# Dates, times and long counters in a job's name: "load 2026-11-30" and "load 2026-11-29" are one job.
_DATES = re.compile(r"\d[\d:._/T-]{2,}\d")
# Settings that name the run, not how it runs.
_OF_A_RUN = re.compile(
    r"spark\.(app\.|driver\.(host|port|appUIAddress|bindAddress)|eventLog\.|history\.|ui\.|submit\.|executor\.id|"
    r"jars$|files$|archives$|repl|yarn\.|org\.apache|hadoop|blockManager\.port|driver\.blockManager|"
    r"kubernetes\.(driver\.pod|executor\.pod|driver\.label|executor\.label|memoryOverhead|submission)|"
    r"sql\.warehouse\.dir|databricks\.(job|run|cluster|session|preemption)|metrics\.)"
)
MAX_LOGS = 5000


@dataclass(frozen=True)
class JobRun:
    """One run. `why_not`: Why its wall time does not count; null if it does. `settings`: Without those of one run."""

    log: str
    app_id: str
    name: str
    started_ms: int
    wall_s: float | None
    task_s: float
    read_rows: int
    n_executors: int | None
    n_failed_queries: int
    settings: Mapping[str, str]
    why_not: str | None

    @property
    def started(self) -> str:
        """Its start in UTC."""
        return datetime.fromtimestamp(self.started_ms / 1e3, UTC).strftime("%Y-%m-%d %H:%M")


def read_job_runs(place: str, job: str = "", *, progress: Progress | None = None) -> list[JobRun]:
    """Runs of one job, oldest first; of several attempts or copies of one application the last.

    `place`: Folder, URL or history server. `job`: Name of the application, dates in it left aside, with * for any
    text; may be empty where there is one job only.

    Raises
    ------
    InputError
        No log, or several jobs and none is named, or none of this name.
    """
    paths = [source.path for source in list_all_logs([place])][:MAX_LOGS]
    runs: dict[str, dict[str, JobRun]] = defaultdict(dict)
    unreadable = 0
    for number, path in enumerate(paths, 1):
        if progress is not None:
            progress(number, len(paths))
        try:
            facts = read_event_logs(path)
        except InputError:
            unreadable += 1
            continue
        run = summarize_run(facts, path)
        earlier = runs[simplify_name(run.name)].get(run.app_id)
        if earlier is None or (run.started_ms, run.why_not is None) > (earlier.started_ms, earlier.why_not is None):
            runs[simplify_name(run.name)][run.app_id] = run
    found = [name for name in runs if not job or fnmatchcase(name, simplify_name(job))]
    if not found or (len(found) > 1 and not job):
        shown = [f"{next(iter(of_job.values())).name} ({len(of_job)} runs)" for of_job in runs.values()]
        raise InputError(
            "several jobs, and none is named" if not job else "no such job",
            where=place,
            found=format_items(shown, 12) if shown else f"{unreadable} logs without events",
            do='name one: --job "NAME"',
        )
    return sorted((run for name in found for run in runs[name].values()), key=lambda run: run.started_ms)


def simplify_name(name: str) -> str:
    """A job's name without dates and long numbers, which change from run to run.

    >>> simplify_name("Nightly load 2026-11-30"), simplify_name("tpch-q72")
    ('nightly load #', 'tpch-q72')
    """
    return _DATES.sub("#", name.casefold())


def summarize_run(facts: EventLogFacts, path: str) -> JobRun:
    """What is compared over many nights of the one application of a log."""
    log_id = facts.logs["log_id"][0]
    application = facts.applications.row(0, named=True)
    time = read_application_time(facts)
    holes = describe_holes(select_harmful(facts.completeness))
    why_not = next(iter([*time.contradictions, *holes]), None)
    if application["start_time_ms"] is None or application["end_time_ms"] is None:
        why_not = why_not or "it has no start or no end: it still runs, or was killed"
    return JobRun(
        log=path,
        app_id=f"{application['app_id'] or path}",
        name=application["app_name"] or "(no name)",
        started_ms=application["start_time_ms"] or 0,
        wall_s=time.wall_s if why_not is None else None,
        task_s=float(facts.stage_tasks["task_duration_total_ms"].sum()) / 1e3,
        read_rows=int(facts.stage_tasks["input_records"].sum()),
        n_executors=TaskSlots(facts, log_id).find_peak()[0],
        n_failed_queries=facts.sql_executions.filter(status="failed").height
        + facts.jobs.filter(status="failed").height,
        settings=_read_settings(facts, application, log_id),
        why_not=why_not,
    )


def _read_settings(facts: EventLogFacts, application: Mapping[str, Any], log_id: int) -> dict[str, str]:
    """Settings of the driver and of its queries, with the versions; those that all queries have alike."""
    settings = {
        name: value for name, value in read_properties(facts, log_id, "spark").items() if not _OF_A_RUN.match(name)
    }
    told = [json.loads(text) for text in facts.sql_executions["modified_configs"].drop_nulls().unique()]
    names = {name for one in told for name in one}
    for name in sorted(names):
        values = {str(one.get(name)) for one in told}
        if len(values) == 1:
            settings[name] = values.pop()
    settings["Spark version"] = str(application["spark_version"])
    settings["Java version"] = read_properties(facts, log_id, "jvm").get("Java Version", "")
    return settings


def list_changed_settings(last: JobRun, earlier: Sequence[JobRun]) -> list[str]:
    """Settings of the last run that no earlier one had, as "name: old -> new"; not those that differ most nights."""
    names = sorted({*last.settings, *(name for run in earlier for name in run.settings)})
    changed = []
    for name in names:
        before = {run.settings.get(name) for run in earlier}
        now = last.settings.get(name)
        if now not in before and len(before) <= max(1, len(earlier) // 2):
            old = next(iter(before)) if len(before) == 1 else "several values"
            changed.append(f"{name}: {'not set' if old is None else old} -> {'not set' if now is None else now}")
    return changed


def build_night_rows(runs: Sequence[JobRun], roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of table NIGHTS. `roles`: By path of the log."""
    return [
        {
            "started": run.started,
            "log": run.log,
            "app_id": run.app_id,
            "role": roles.get(run.log, "earlier"),
            "wall_s": run.wall_s,
            "task_s": run.task_s,
            "read_rows": run.read_rows,
            "n_executors": run.n_executors,
            "n_failed_queries": run.n_failed_queries,
            "why_not": run.why_not,
        }
        for run in runs
    ]
