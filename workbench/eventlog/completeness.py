"""What a log shows to be missing from it: files of a roll, events that Spark's queue dropped, ids that nothing uses.

Assemblers note what they meet in a `Ledger`; at the end of the log `list_holes` compares it with what Spark always
writes. Rows are `tables.COMPLETENESS`, and `describe_holes` says them in sentences, largest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.core.formats import format_items

if TYPE_CHECKING:
    import polars as pl

    from workbench.eventlog.stage_statistics import StageKey, StageTasks

# Spark numbers tasks, jobs, stages and executions without gaps. Where most numbers up to the largest are not there, the
# numbers are somebody else's.
MIN_NUMBERED_SHARE = 0.5
# Engines keep metrics of their own beside those of plans (up to 44 % in whole logs); a log without its updates of plans
# has nine tenths of the metrics in no plan.
MAX_HOMELESS_SHARE = 0.6
SHUTDOWN_MS = 10_000
MAX_NAMED = 8
COMPACTION, CLOCK = "compaction", "clock"
# Threads that start queries at one moment may be numbered in another order.
MAX_STEP_BACK_MS = 5_000
# Fields of a task that a figure rests on.
TASK_FIELDS = ("Task Metrics", "Task Info.Finish Time", "Task Info.Failed", "Task Info.Killed")
# Kinds whose subjects are names that the log gives.
NAMED_KINDS = ("executors", "engine", "foreign part", "applications")
# Kinds that make no figure wrong, or that are said in words of their own.
HARMLESS_KINDS = (
    "application start",
    "application end",
    "environment",
    "engine",
    "repeated lines",
    "odd fields",
    "open end",
)
# Kinds that are told, and that change nothing.
OPEN_END = "open end"
NOTED_KINDS = ("repeated lines", "odd fields", OPEN_END)
TASK_FIGURES = "task time, shares, idle time and predictions"
EVENT_FIGURES = "times and status of what it names"
ALL_FIGURES = "all figures of the application"

# How the holes of a kind are said together: {subjects} are their names, {s} is empty for one.
_SENTENCES: Mapping[str, str] = {
    "part": "{subjects} {verb} not in the log: {evidence}",
    "task ends": "{missing:,} of {expected:,} planned tasks have no end in the log ({subjects})",
    "tasks": "{missing:,} of {expected:,} tasks are not in the log: their numbers are missing",
    "queries": "{subjects} not in the log: {evidence}",
    "query start": "the start of {subjects} is not in the log: {evidence}",
    "query end": "the end of {subjects} is not in the log",
    "root query": "{subjects} is not in the log: {evidence}",
    "job start": "the start of {n:,} job{s} is not in the log ({subjects})",
    "job of a stage": "{subjects} ran, and no job in the log lists {pronoun}",
    "job end": "the end of {n:,} job{s} is not in the log ({subjects})",
    "stage events": "{n:,} stage{s} ran and left no event of their own in the log ({subjects})",
    "stage end": "the end of {n:,} stage{s} is not in the log ({subjects})",
    "plans": "{subjects} are in no plan of the log: updates of plans are missing, and times of operators",
    "engine": "unknown engine: {subjects} are plan nodes of an unknown engine",
    "executors": "tasks ran on {subjects}, whose start is not in the log: the number of task slots is not known",
    "environment": "the log lacks the application's properties",
    "application start": "the log lacks the application's start",
    "log start": "the log does not begin with Spark's first event",
    "applications": "the log holds {subjects}: {evidence}",
    CLOCK: "the driver's clock was set back by {subjects}: {evidence}",
    "double tasks": "{subjects} are in the log twice, far apart, and count twice",
    "lost fields": "fields of tasks are unreadable: {subjects}",
    "repeated lines": "{subjects} are in the log twice; each counts once",
    OPEN_END: "the log has no end of the application, as is usual for its kind; nothing was running when it ended",
    "odd fields": "fields of another type than Spark's are skipped: {subjects}",
}
# Told by the application's times: of work that goes on, and of clusters, no log has an end.
_TOLD_ELSEWHERE = ("application end",)


@dataclass(frozen=True)
class Hole:
    """One thing that is missing; `touches` says which figures it makes wrong."""

    kind: str
    subject: str
    evidence: str
    touches: str = TASK_FIGURES
    n_expected: int | None = None
    n_found: int | None = None
    sql_id: int | None = None
    job_id: int | None = None
    stage_id: int | None = None
    stage_attempt_id: int | None = None


@dataclass
class StageNote:
    """Facts that the log holds about a stage attempt."""

    sql_id: int | None
    planned: int | None
    started: int
    ended: int
    succeeded: int
    submitted: bool
    completed: bool
    completed_ms: int | None
    failed: bool


@dataclass
class NumberedTimes:
    """Starts of queries: a larger number never starts earlier, however long its plan took before it was written."""

    last: tuple[int, int] | None = None  # number and time of the largest so far
    step_back_ms: int = 0

    def note_start(self, number: int, time_ms: int | None) -> None:
        """The next start in the log."""
        if time_ms is None:
            return
        if self.last is not None and number > self.last[0]:
            self.step_back_ms = max(self.step_back_ms, self.last[1] - time_ms)
        if self.last is None or number > self.last[0]:
            self.last = number, max(time_ms, self.last[1] if self.last else time_ms)


@dataclass
class Ledger:
    """Ids that a log's events name, by what they say of them."""

    log_started: bool = False
    applications: set[tuple[str | None, str | None, int | None]] = field(default_factory=set)
    n_repeated_lines: int = 0
    n_double_tasks: int = 0
    step_back_ms: int = 0  # of the clock, between stamps that are written at once
    sql_starts: NumberedTimes = field(default_factory=NumberedTimes)
    odd_fields: Counter[str] = field(default_factory=Counter)
    application_started: bool = False
    application_ended: bool = False
    application_end_ms: int | None = None
    has_environment: bool = False
    is_compacted: bool = False
    n_task_ends: int = 0
    max_task_id: int = -1
    executors_used: set[str] = field(default_factory=set)
    executors_added: set[str] = field(default_factory=set)
    jobs_started: dict[int, list[int]] = field(default_factory=dict)  # with their stages
    jobs_ended: dict[int, bool] = field(default_factory=dict)  # whether they succeeded
    sql_started: set[int] = field(default_factory=set)
    sql_ended: set[int] = field(default_factory=set)
    sql_named: dict[int, str] = field(default_factory=dict)  # and what names it first
    roots_named: dict[int, int] = field(default_factory=dict)  # and an execution that names it
    metrics_updated: set[int] = field(default_factory=set)  # accumulators of plans, by tasks
    metrics_planned: set[int] = field(default_factory=set)  # and by plans
    unknown_nodes: Counter[str] = field(default_factory=Counter)  # plan nodes at work of no known engine
    stages: dict[StageKey, StageNote] = field(default_factory=dict)
    parts: list[tuple[int, str]] = field(default_factory=list)  # number and context of each Databricks part

    def note_tasks(self, ends: int, max_task_id: int, executors: set[str]) -> None:
        """Ends of tasks in a chunk."""
        self.n_task_ends += ends
        self.max_task_id = max(self.max_task_id, max_task_id)
        self.executors_used |= executors

    def note_stage(self, tasks: StageTasks, sql_id: int | None, completed_ms: int | None) -> None:
        """A stage attempt was closed."""
        self.stages[tasks.key] = StageNote(
            sql_id,
            tasks.planned_tasks,
            tasks.started,
            tasks.ended,
            tasks.succeeded,
            tasks.submitted,
            tasks.completed,
            completed_ms,
            tasks.stage_failed,
        )
        self.metrics_updated |= tasks.of_plans
        self.step_back_ms = max(self.step_back_ms, tasks.step_back_ms)

    def name_sql(self, sql_id: int | None, by: str) -> None:
        """A job or a stage names its execution."""
        if sql_id is not None:
            self.sql_named.setdefault(sql_id, by)


def list_holes(ledger: Ledger) -> list[Hole]:
    """List what the events of a log show to be missing, except for its files."""
    if ledger.is_compacted:
        # Compaction drops all of what had finished: only what is left can be compared.
        return [*_list_content_holes(ledger), *_list_task_holes(ledger), *_list_part_holes(ledger)]
    holes = [
        *_list_content_holes(ledger),
        *_list_application_holes(ledger),
        *_list_part_holes(ledger),
        *_list_task_holes(ledger),
        *_list_stage_holes(ledger),
        *_list_job_holes(ledger),
        *_list_sql_holes(ledger),
        *_list_number_holes(ledger),
    ]
    if ledger.unknown_nodes:
        names = [name for name, _ in ledger.unknown_nodes.most_common()]
        evidence = "active plan nodes of an unknown engine"
        holes.append(Hole("engine", format_items(names, MAX_NAMED), evidence, "engine, predictions", None, len(names)))
    homeless = ledger.metrics_updated - ledger.metrics_planned
    if len(homeless) > MAX_HOMELESS_SHARE * len(ledger.metrics_updated):
        evidence = "tasks updated metrics that no plan in the log has: updates of plans are missing"
        numbers = len(ledger.metrics_updated), len(ledger.metrics_updated) - len(homeless)
        holes.append(Hole("plans", f"{len(homeless):,} metrics of plans", evidence, "operator times", *numbers))
    if unknown := sorted(ledger.executors_used - ledger.executors_added - {""}):
        named = f"executors {format_items(unknown, MAX_NAMED)}"
        numbers = len(ledger.executors_used | ledger.executors_added), len(ledger.executors_added)
        holes.append(
            Hole("executors", named, "tasks ran on executors that were never added", "task slots, idle time", *numbers)
        )
    return holes


def _list_content_holes(ledger: Ledger) -> Iterator[Hole]:
    """What is in the log twice, is another application's, or cannot be read."""
    if len(ledger.applications) > 1:
        names = [f"{app_id or '?'} ({time_ms})" for app_id, _, time_ms in sorted(ledger.applications, key=str)]
        evidence = format_items(names, MAX_NAMED)
        yield Hole("applications", f"{len(names)} applications", evidence, ALL_FIGURES, 1, len(names))
    if (step_ms := max(ledger.step_back_ms, ledger.sql_starts.step_back_ms)) > MAX_STEP_BACK_MS:
        yield Hole(CLOCK, f"{step_ms / 1e3:,.1f} s", "what is written later has earlier times", "all times")
    if ledger.n_double_tasks:
        yield Hole("double tasks", f"{ledger.n_double_tasks:,} tasks", "two ends of each in different chunks")
    lost = {name: n for name, n in ledger.odd_fields.items() if name.startswith(TASK_FIELDS)}
    for kind, fields, touches in (
        ("lost fields", lost, TASK_FIGURES),
        ("odd fields", ledger.odd_fields - Counter(lost), "the fields that it names"),
    ):
        if fields:
            named = format_items([f"{name} ({n:,})" for name, n in sorted(fields.items())], MAX_NAMED)
            yield Hole(kind, named, "another type than Spark writes", touches)
    if ledger.n_repeated_lines:
        yield Hole(
            "repeated lines", f"{ledger.n_repeated_lines:,} lines", "equal lines, or ends of one task", "nothing"
        )


def _list_application_holes(ledger: Ledger) -> Iterator[Hole]:
    if not ledger.application_started:
        yield Hole("application start", "application", "no event of its start", "wall time, idle time")
    if not ledger.application_ended:
        yield Hole("application end", "application", "no event of its end", "wall time, idle time")
        # Clusters of Databricks end without an event, and their logs roll over.
        is_at_work = (
            ledger.jobs_started.keys() - ledger.jobs_ended.keys()
            or ledger.sql_started - ledger.sql_ended
            or not all(stage.completed for stage in ledger.stages.values())
        )
        if ledger.parts and not is_at_work:
            yield Hole(OPEN_END, "application", "parts of a rollover, and no work without an end", "nothing")
    if not ledger.has_environment:
        yield Hole("environment", "application", "no event of its properties", "settings, engine, task slots")
    if not ledger.log_started and not ledger.parts:
        yield Hole("log start", "log", "its first event is not the one with which every log begins", ALL_FIGURES)


def _list_part_holes(ledger: Ledger) -> Iterator[Hole]:
    """Parts of a Databricks rollover that are not there, by the numbers in the first lines of those that are."""
    by_context: dict[str, set[int]] = {}
    for number, context in ledger.parts:
        by_context.setdefault(context, set()).add(number)
    for context, numbers in by_context.items():
        if missing := sorted(set(range(max(numbers) + 1)) - numbers):
            yield Hole(
                "part",
                f"part{'s' * (len(missing) > 1)} {format_items(missing, MAX_NAMED)} of the rollover",
                f"there are parts up to number {max(numbers)}",
                ALL_FIGURES,
                max(numbers) + 1,
                len(numbers),
            )
        if len(by_context) > 1:
            yield Hole("foreign part", f"context {context}", "parts of several applications are mixed", ALL_FIGURES)


def _list_task_holes(ledger: Ledger) -> Iterator[Hole]:
    """Stage attempts that succeeded with fewer tasks than planned, or whose tasks began and have no end."""
    attempts = Counter(stage_id for stage_id, _ in ledger.stages)
    for (stage_id, attempt_id), stage in sorted(ledger.stages.items()):
        # Tasks of an earlier attempt may end the partitions of a later one.
        if stage.completed and not stage.failed and attempts[stage_id] == 1 and stage.succeeded < (stage.planned or 0):
            evidence = "the stage succeeded with fewer ends of tasks than it planned"
            name, ids = _name_attempt(stage_id, attempt_id, stage)
            yield Hole("task ends", name, evidence, TASK_FIGURES, stage.planned, stage.succeeded, **ids)


def _name_attempt(stage_id: int, attempt_id: int, stage: StageNote) -> tuple[str, dict[str, int | None]]:
    """Name of a stage attempt, and the ids of its holes."""
    ids = {"sql_id": stage.sql_id, "stage_id": stage_id, "stage_attempt_id": attempt_id}
    return f"stage {stage_id}" + (f" (attempt {attempt_id})" if attempt_id else ""), ids


def _list_stage_holes(ledger: Ledger) -> Iterator[Hole]:
    listed = {stage_id for stage_ids in ledger.jobs_started.values() for stage_id in stage_ids}
    there = {stage_id for stage_id, _ in ledger.stages}
    for (stage_id, attempt_id), stage in sorted(ledger.stages.items()):
        name, ids = _name_attempt(stage_id, attempt_id, stage)
        if stage_id not in listed:
            yield Hole("job of a stage", name, "no job that started lists this stage", TASK_FIGURES, **ids)
        if not stage.completed and not stage.submitted:
            yield Hole("stage events", name, "tasks of a stage that neither began nor ended", EVENT_FIGURES, **ids)
        elif not stage.completed and ledger.application_ended:
            yield Hole(
                "stage end", name, "the stage began and has no end, the application has one", EVENT_FIGURES, **ids
            )
    for job_id, stage_ids in sorted(ledger.jobs_started.items()):
        # The last stage of a job gives its result, so it cannot be skipped.
        if stage_ids and ledger.jobs_ended.get(job_id) and max(stage_ids) not in there:
            evidence = f"job {job_id} succeeded, and its last stage is not there"
            yield Hole("stage events", f"stage {max(stage_ids)}", evidence, job_id=job_id, stage_id=max(stage_ids))


def _list_job_holes(ledger: Ledger) -> Iterator[Hole]:
    for job_id in sorted(ledger.jobs_ended.keys() - ledger.jobs_started.keys()):
        yield Hole("job start", f"job {job_id}", "the job ended and has no start", job_id=job_id)
    if ledger.application_ended:
        for job_id in sorted(ledger.jobs_started.keys() - ledger.jobs_ended.keys()):
            yield Hole(
                "job end", f"job {job_id}", "the job has no end, the application has one", EVENT_FIGURES, job_id=job_id
            )


def _list_sql_holes(ledger: Ledger) -> Iterator[Hole]:
    for sql_id in sorted(ledger.sql_ended - ledger.sql_started):
        yield Hole("query start", f"query {sql_id}", "the query ended and has no start", sql_id=sql_id)
    for sql_id in sorted(ledger.sql_named.keys() - ledger.sql_started - ledger.sql_ended):
        by = ledger.sql_named[sql_id]
        yield Hole("query start", f"query {sql_id}", f"{by} ran for a query that has no start", sql_id=sql_id)
    for root in sorted(ledger.roots_named.keys() - ledger.sql_started - ledger.sql_ended - ledger.sql_named.keys()):
        by = f"query {ledger.roots_named[root]} was started by a query that has no start"
        yield Hole("root query", f"query {root}", by, EVENT_FIGURES, sql_id=root)
    if ledger.application_ended:
        for sql_id in sorted(ledger.sql_started - ledger.sql_ended):
            yield Hole(
                "query end",
                f"query {sql_id}",
                "the query has no end, the application has one",
                EVENT_FIGURES,
                sql_id=sql_id,
            )


def _list_number_holes(ledger: Ledger) -> Iterator[Hole]:
    """Numbers that nothing in the log has, below the largest one."""
    # Tasks of a stage that failed, and late copies, may still run when the application ends.
    running = sum(
        max(0, stage.started - stage.ended)
        for stage in ledger.stages.values()
        if stage.completed_ms is None or stage.completed_ms > (ledger.application_end_ms or 0) - SHUTDOWN_MS
    )
    n_found, expected = ledger.n_task_ends + running, ledger.max_task_id + 1
    if expected * MIN_NUMBERED_SHARE <= n_found < expected:
        yield Hole("tasks", "tasks", f"tasks have numbers up to {expected - 1}", TASK_FIGURES, expected, n_found)
    # Jobs and stages that fail at submission take a number and leave no event, so gaps in theirs tell nothing.
    queries = ledger.sql_started | ledger.sql_ended | ledger.sql_named.keys() | ledger.roots_named.keys()
    if missing := list_missing_numbers(queries):
        yield Hole(
            "queries",
            f"{'query' if len(missing) == 1 else 'queries'} {format_items(missing, MAX_NAMED)}",
            f"the log has numbers from {min(queries)} to {max(queries)}",
            TASK_FIGURES,
            len(queries) + len(missing),
            len(queries),
        )


def list_missing_numbers(numbers: Collection[int]) -> list[int]:
    """Numbers between the smallest and the largest that are not there; none where fewer than half of them are.

    >>> list_missing_numbers({0, 1, 3}), list_missing_numbers({0, 100})
    ([2], [])
    """
    if not numbers or len(numbers) < MIN_NUMBERED_SHARE * (max(numbers) - min(numbers) + 1):
        return []
    return sorted(set(range(min(numbers), max(numbers) + 1)) - set(numbers))


def describe_holes(completeness: pl.DataFrame) -> list[str]:
    """Sentences on the rows of `tables.COMPLETENESS` of one log, one a kind; empty without holes.

    >>> from workbench.eventlog import tables
    >>> describe_holes(tables.COMPLETENESS.frame([]))
    []
    """
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in completeness.iter_rows(named=True):
        if row["kind"] not in _TOLD_ELSEWHERE:
            by_kind.setdefault(row["kind"], []).append(row)
    order = list(_SENTENCES)
    sentences = []
    for kind, rows in sorted(by_kind.items(), key=lambda item: order.index(item[0]) if item[0] in order else -1):
        expected, n_found = (sum(row[name] or 0 for row in rows) for name in ("n_expected", "n_found"))
        subjects, evidence = (
            format_items(dict.fromkeys(row[name] for row in rows), MAX_NAMED) for name in ("subject", "evidence")
        )
        pattern = _SENTENCES.get(kind, "{subjects}: {evidence}")
        sentences.append(
            pattern.format(
                n=len(rows),
                s="s" * (len(rows) > 1),
                pronoun="them" if len(rows) > 1 else "it",
                verb="are" if subjects.startswith("parts") else "is",
                missing=expected - n_found,
                expected=expected,
                subjects=subjects,
                evidence=evidence,
            )
        )
    return sentences


def select_touching(completeness: pl.DataFrame) -> pl.DataFrame:
    """The holes that make task times wrong: no share, idle time or prediction can be made of such a log.

    >>> import polars as pl
    >>> holes = pl.DataFrame({"kind": ["lost tasks", "lost metrics"], "touches": [TASK_FIGURES, "node metrics"]})
    >>> select_touching(holes)["kind"].to_list()
    ['lost tasks']
    """
    import polars as pl

    return completeness.filter(pl.col("touches").is_in([TASK_FIGURES, ALL_FIGURES]))


def select_harmful(completeness: pl.DataFrame) -> pl.DataFrame:
    """The rows that say that a log is not whole."""
    import polars as pl

    return completeness.filter(~pl.col("kind").is_in(HARMLESS_KINDS))
