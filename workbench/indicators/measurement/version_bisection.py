"""Measure versions of a package against its oldest one until the version that changed an indicator is found."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, model_validator

from workbench.console.tables import format_table
from workbench.core import files, locks
from workbench.core.errors import ConfigError, InputError, RunFailedError, refuse_os_errors
from workbench.core.schema import FiniteModel, read_model_file
from workbench.indicators.analysis import version_search
from workbench.indicators.analysis.version_search import SearchResult, Step
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import (
    SessionOutcome,
    check_single_indicator,
    choose_metric,
    count_more_rounds,
)
from workbench.indicators.measurement.stack_variants import build_stack_set
from workbench.indicators.stacks import environments, stack_sets, version_ranges
from workbench.indicators.stacks.commits import MAX_COMMITS, Commit, CommitBuilder, list_commits
from workbench.indicators.stacks.stack_sets import Stack, StackSet
from workbench.indicators.store import archive
from workbench.stats import Interval, Verdict
from workbench.stats.verdicts import DIFFERENT, SAME, UNDECIDED

FORMAT_VERSION: Literal[1] = 1
PLAN = "bisection.json"
STACKS = "stacks.json"
MAX_PLAN_BYTES = 4 << 20
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
MAX_ATTEMPTS = 2
"""Sessions of a pair of versions, if the first one is invalid."""
_DIRECT = "direct"
# Of a series' time; the rest is for sessions of two neighbours.
_PROBE_SHARE = 0.7
State = Literal["oldest", "measured", "skipped", "not probed"]
Watch = Callable[[], AbstractContextManager[SessionWatcher]]
_HEADERS = ("version", "", "times better", "low", "high", "verdict", "rounds", "session", "")
_MAX_REMARK_CHARS = 120


class BisectionPlan(FiniteModel):
    """Plan of a bisection: what is searched, and with which settings.

    `versions` are in their order, from the oldest; `yanked` ones are left out. `requirements` hold for every stack;
    `metric` is null where the indicator has only one. `config` are the settings of each session, without its stacks.
    Of commits, `versions` are the starts of their ids; `repository` and `subfolder` say where the project is.
    """

    format_version: Literal[1] = FORMAT_VERSION
    package: Text
    versions: Annotated[tuple[Text, ...], Field(min_length=2, max_length=MAX_COMMITS)]
    yanked: tuple[Text, ...] = ()
    requirements: tuple[Text, ...] = ()
    metric: Text | None = None
    max_probes: int | None = Field(None, ge=0, le=version_ranges.MAX_VERSIONS, description="Limit of versions to try.")
    config: SessionConfig
    created_at: Text
    commits: Annotated[tuple[Commit, ...], Field(max_length=MAX_COMMITS)] = ()
    repository: Text | None = None
    subfolder: Text = "."

    @property
    def noun(self) -> str:
        """What is searched among."""
        return "commit" if self.commits else "version"

    def describe(self, position: int) -> str:
        """A version, or a commit with its subject."""
        subject = f' "{self.commits[position].subject}"' if self.commits else ""
        return f"{self.versions[position]}{subject}"

    @model_validator(mode="after")
    def _check_order(self) -> BisectionPlan:
        if self.commits:
            if self.repository is None or tuple(commit.short for commit in self.commits) != self.versions:
                raise ValueError("commits: not those of versions, or without a repository")
            return self
        try:
            order = [Version(text) for text in self.versions]
        except InvalidVersion as error:
            raise ValueError(f"versions: {str(error)[:100]}") from None
        if order != sorted(set(order)):
            raise ValueError("versions: not in their order, or one occurs twice")
        return self


@dataclass(frozen=True)
class Bisection:
    """A search with its folder, its plan and the solved stacks.

    `stacks` are by position, `unsolved` the reasons of versions that have none.
    """

    folder: Path
    plan: BisectionPlan
    stacks: Mapping[int, Stack]
    unsolved: dict[int, str]

    @property
    def last(self) -> int:
        """Position of the newest version."""
        return len(self.plan.versions) - 1


def start_bisection(
    package: str,
    versions: str,
    config: SessionConfig,
    *,
    named: Sequence[str] = (),
    requirements: Sequence[str] = (),
    metric: str | None = None,
    max_probes: int | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Bisection:
    """Find the versions, solve a stack for each, and write the plan.

    `metric`, `max_probes`: Metric to search by, needed if the indicator has several, and limit of versions to try
    beside both ends.
    """
    check_single_indicator(config)
    ends = version_ranges.parse_range(versions)
    fixed = version_ranges.parse_fixed_requirements(requirements, version_ranges.parse_package(package).name)
    version_range = version_ranges.find_version_range(
        package, ends, [version_ranges.parse_version(text.strip(), "--versions") for text in named]
    )
    plan = BisectionPlan(
        package=version_range.package,
        versions=version_range.versions,
        yanked=version_range.yanked,
        requirements=fixed,
        metric=metric,
        max_probes=max_probes,
        # The script's whole path: the search may be resumed from another folder.
        config=config.model_copy(update={"script": tuple(str(Path(text).absolute()) for text in config.script)}),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    limit = config.max_download_bytes
    solved = version_ranges.solve_version_range(version_range, fixed, max_download_bytes=limit, progress=progress)
    # Refuse a range with an end that has no solution.
    bisection = _combine(Path("-"), plan, solved)
    for position in (0, bisection.last):
        if position not in bisection.stacks:
            raise ConfigError(
                "an end of the range has no solution",
                where=f"{bisection.plan.package} {bisection.plan.versions[position]}",
                found=bisection.unsolved[position][:400],
                do="choose another end, or change --with",
            )
    folder = sessions.name_search_folder(f"bisect-{plan.package}", out)
    with refuse_os_errors("cannot make the folder", folder, do="choose another with --out DIR", error_type=ConfigError):
        solved.write(folder / STACKS)
        write_plan(folder, plan)
    return replace(bisection, folder=folder)


def start_commit_bisection(
    ends: str,
    config: SessionConfig,
    *,
    repository: Path,
    subfolder: str = ".",
    requirements: Sequence[str] = (),
    metric: str | None = None,
    max_probes: int | None = None,
    out: str | Path | None = None,
) -> Bisection:
    """Find the commits, build and solve both ends, and write the plan. `ends`: OLD..NEW."""
    check_single_indicator(config)
    commits = list_commits(repository, ends)
    builder = CommitBuilder(repository, subfolder)
    name, _, _, _ = parse_wheel_filename(builder.build_wheel(commits[0]).name)
    plan = BisectionPlan(
        package=name,
        versions=tuple(commit.short for commit in commits),
        requirements=version_ranges.parse_fixed_requirements(requirements, name),
        metric=metric,
        max_probes=max_probes,
        config=config.model_copy(update={"script": tuple(str(Path(text).absolute()) for text in config.script)}),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commits=tuple(commits),
        repository=str(repository.absolute()),
        subfolder=subfolder,
    )
    folder = sessions.name_search_folder(f"bisect-{plan.package}", out)
    with refuse_os_errors("cannot make the folder", folder, do="choose another with --out DIR", error_type=ConfigError):
        write_plan(folder, plan)
    bisection = Bisection(folder, plan, CommitStacks(folder, plan), {})
    for position in (0, bisection.last):
        bisection.stacks[position]
    return bisection


class CommitStacks(Mapping[int, Stack]):
    """Stacks of a plan's commits by position; each is built and solved when it is first asked for, and kept."""

    def __init__(self, folder: Path, plan: BisectionPlan) -> None:
        self._folder, self._plan = folder, plan
        self.builder = CommitBuilder(Path(plan.repository or "."), plan.subfolder)

    def __getitem__(self, position: int) -> Stack:
        commit = self._plan.commits[position]
        path = self._folder / "commits" / f"{commit.short}.json"
        if path.is_file():
            return read_model_file(Stack, path, noun="stack of a commit")
        limit = self._plan.config.max_download_bytes
        stack = self.builder.solve_commit(commit, self._plan.requirements, max_download_bytes=limit)
        files.write_text(path, stack.model_dump_json(indent=1) + "\n")
        return stack

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._plan.commits)


def write_plan(folder: Path, plan: BisectionPlan) -> Path:
    """Write the plan, atomically."""
    return files.write_text(folder / PLAN, json.dumps(plan.model_dump(mode="json"), indent=1) + "\n")


def load_bisection(folder: str | Path, *, metric: str | None = None, max_probes: int | None = None) -> Bisection:
    """Read the plan of a folder and its stacks; what else is given takes the place of the plan's, from now on."""
    folder = Path(folder).absolute()
    if not (folder / PLAN).is_file():
        raise InputError(
            "not the folder of a bisection", where=folder, found=f"no {PLAN}",
            do="name the folder that `workbench indicators bisect` printed",
        )  # fmt: skip
    plan = read_model_file(
        BisectionPlan, folder / PLAN, noun="plan of a bisection", max_bytes=MAX_PLAN_BYTES, max_version=FORMAT_VERSION
    )
    given = {"metric": metric, "max_probes": max_probes}
    if changes := {name: value for name, value in given.items() if value is not None}:
        plan = plan.model_copy(update=changes)
        write_plan(folder, plan)
    if plan.commits:
        return Bisection(folder, plan, CommitStacks(folder, plan), {})
    bisection = _combine(folder, plan, stack_sets.read_stack_set(folder / STACKS))
    if not {0, bisection.last} <= bisection.stacks.keys():
        raise InputError("the stacks are not those of the plan", where=folder / STACKS)
    return bisection


def _combine(folder: Path, plan: BisectionPlan, solved: StackSet) -> Bisection:
    """A search by its plan and its stacks; versions without a stack have the reason."""
    by_name = {stack.name: stack for stack in solved.stacks}
    reasons = {rejection.point: rejection.reason for rejection in solved.rejected}
    names = {place: version_ranges.name_version(plan.package, text) for place, text in enumerate(plan.versions)}
    stacks = {place: by_name[name] for place, name in names.items() if name in by_name}
    unsolved = {place: reasons.get(name, "no stack") for place, name in names.items() if name not in by_name}
    return Bisection(folder, plan, stacks, unsolved)


@dataclass(frozen=True)
class VersionRecord:
    """Known facts about a version: its ratio to the oldest one, or why it has none."""

    version: str
    state: State
    reason: str | None = None
    ratio: Interval | None = None
    verdict: Verdict | None = None
    rounds: int | None = None
    rounds_needed: int | None = None
    folder: Path | None = None


class _StoppedError(Exception):
    """Ctrl-C ended a session."""


def measure_bisection(
    bisection: Bisection,
    *,
    watch: Watch | None = None,
    command: str | None = None,
    series_budget_s: float | None = None,
) -> VersionSearch:
    """Measure both ends, then one version after the other, and say which one made the change.

    `series_budget_s`: Measure the whole range for so long, where most is unknown, in place of searching one change.

    Each session measures the oldest version, another one, and the control, in rounds. Sessions in the folder are read,
    and one that was stopped is resumed, so that a search goes on where it ended.
    """
    stacks = bisection.stacks
    with (
        locks.lock_exclusively(
            bisection.folder, "another process is measuring this bisection", do="wait for it, or stop it"
        ),
        stacks.builder.offer_wheels() if isinstance(stacks, CommitStacks) else nullcontext(),
    ):
        search = VersionSearch(bisection, watch or (lambda: nullcontext(SessionWatcher())), command)
        try:
            if series_budget_s is None:
                search.measure_versions()
            else:
                search.measure_series(series_budget_s)
        except _StoppedError:
            search.interrupted = True
        return search


@dataclass
class VersionSearch:
    """A search as far as it got.

    `metric`, `margin`: The metric that is compared, and its practical margin as a share; null before the first session.
    `records`: The versions in their order, the oldest first.
    `result`: What the levels say; null if both ends are not told apart, or not yet measured.
    `direct`: The session of the two versions of the step against each other; null where none was needed.
    `n_probes`: Number of versions measured between the ends. `reasons`: Why the answer is not known, or not exactly.
    `conditions`: Machine and version of the indicator of its sessions. `steps`: Of a series, all that are decided.
    """

    bisection: Bisection
    watch: Watch
    command: str | None
    records: list[VersionRecord] = field(init=False)
    reasons: list[str] = field(default_factory=list)
    metric: str | None = None
    margin: float | None = None
    result: SearchResult | None = None
    direct: VersionRecord | None = None
    n_probes: int = 0
    interrupted: bool = False
    steps: list[Step] = field(default_factory=list)
    conditions: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        self.records = [VersionRecord(version, "not probed") for version in self.bisection.plan.versions]
        self.records[0] = replace(self.records[0], state="oldest")
        for place, reason in self.bisection.unsolved.items():
            self.records[place] = replace(self.records[place], state="skipped", reason=f"no solution: {reason}")

    @property
    def found(self) -> bool:
        """Whether the version that changed the indicator is known, or lies among versions that cannot be measured."""
        return self.result is not None and not self.reasons and not self.interrupted

    def measure_series(self, budget_s: float) -> None:
        """Measure both ends, then one after the other where most is unknown, until the time has passed."""
        started = time.monotonic()
        if (problem := self._measure_ends()) is not None:
            self.reasons.append(problem)
            return
        assert self.margin is not None
        while True:
            levels = {place: record.ratio for place, record in enumerate(self.records) if record.ratio is not None}
            skipped = {place for place, record in enumerate(self.records) if record.state == "skipped"}
            logs = version_search.list_log_levels(levels)
            probe = version_search.choose_series_probe(logs, skipped, margin=self.margin)
            if probe is None or time.monotonic() - started > _PROBE_SHARE * budget_s:
                break
            self.n_probes += 1
            self.records[probe] = self._probe_version(probe)
        n_compared = len(self.bisection.stacks) - 1
        direct: dict[tuple[int, int], Step] = {}
        # What two ratios to the first one leave open, a session of both may tell.
        for step in version_search.list_steps(levels, margin=self.margin, n_compared=n_compared):
            is_small = abs(math.log(step.ratio.estimate or 1.0)) <= math.log1p(self.margin)
            if step.verdict in DIFFERENT or is_small or time.monotonic() - started > budget_s:
                continue
            outcome = self._measure_pair(step.before, step.after, place=_DIRECT)
            record = self._build_record(step.after, outcome)
            if outcome.compared.sound and record.ratio is not None and record.verdict is not None:
                direct[step.before, step.after] = replace(step, ratio=record.ratio, verdict=record.verdict)
        steps = version_search.list_steps(levels, margin=self.margin, n_compared=n_compared, direct=direct)
        self.steps = sorted((step for step in steps if step.verdict in DIFFERENT), key=lambda step: step.before)

    def _measure_ends(self) -> str | None:
        """Measure the newest version against the oldest; why nothing can be learned from it, null if it can."""
        last = self.bisection.last
        outcome = self._measure_pair(0, last)
        ends = self.records[last] = self._build_record(last, outcome)
        if ends.state == "skipped":
            return f"{ends.version} cannot be measured: {ends.reason}"
        if not outcome.compared.sound:
            return f"the session of both ends is invalid: {_find_first_reason(outcome)}"
        return None

    def measure_versions(self) -> None:
        """Measure both ends, then the probes, then the step itself if its verdict is still open."""
        plan, last = self.bisection.plan, self.bisection.last
        # Without ends that are told apart there is nothing to search for.
        problem = self._measure_ends()
        ends = self.records[last]
        if problem is not None:
            pass
        elif ends.verdict == SAME:
            problem = "no change to look for"
        elif ends.verdict not in DIFFERENT:
            problem = f"no clear difference between the two ends: {ends.reason}"
        if problem is not None:
            self.reasons.append(problem)
            return
        while True:
            levels = {place: record.ratio for place, record in enumerate(self.records) if record.ratio is not None}
            skipped = {place for place, record in enumerate(self.records) if record.state == "skipped"}
            probe = version_search.choose_next_probe(version_search.list_log_levels(levels), skipped)
            if probe is None or self.n_probes == plan.max_probes:
                break
            self.n_probes += 1
            self.records[probe] = self._probe_version(probe)
        assert self.margin is not None
        n_compared = len(self.bisection.stacks) - 1
        self.result = version_search.evaluate_levels(levels, margin=self.margin, n_compared=n_compared)
        if probe is not None:
            n_open = sum(self.records[place].state == "not probed" for place in self.result.between)
            self.reasons.append(f"{n_open} {plan.noun}(s) between are left: --max-probes {self.n_probes} was reached")
            return
        if (step := self.result.step).verdict in DIFFERENT:
            return
        # The step by a session of its two versions, beside which no other was chosen; undecided if it is invalid.
        direct = replace(step, verdict=UNDECIDED)
        for attempt in range(MAX_ATTEMPTS):
            outcome = self._measure_pair(step.before, step.after, attempt=attempt, place=_DIRECT)
            self.direct = record = self._build_record(step.after, outcome)
            if outcome.compared.sound and record.ratio is not None and record.verdict is not None:
                direct = replace(step, ratio=record.ratio, verdict=record.verdict)
                break
        self.result = version_search.evaluate_levels(
            levels, margin=self.margin, n_compared=n_compared, direct={(step.before, step.after): direct}
        )
        if direct.verdict not in DIFFERENT:
            largest = f"the largest step, from {plan.versions[step.before]} to {plan.versions[step.after]}"
            is_spread = direct.verdict == SAME
            reason = f"the change is spread over several {plan.noun}s" if is_spread else "their session is undecided"
            self.reasons.append(f"{largest}, cannot be distinguished from the margin: {reason}")

    def _probe_version(self, position: int) -> VersionRecord:
        """A version's level; skipped if it cannot be installed or run, or if its sessions are invalid twice."""
        version = self.bisection.plan.versions[position]
        limit = self.bisection.plan.config.max_download_bytes
        try:
            environments.install_environments([(self.bisection.stacks[position], 0)], max_download_bytes=limit)
        except (ConfigError, RunFailedError) as error:
            problem = f"cannot be installed: {error.what}: {error.facts['found'] or error.facts['where']}"
            return VersionRecord(version, "skipped", problem[:400])
        for attempt in range(MAX_ATTEMPTS):
            outcome = self._measure_pair(0, position, attempt=attempt)
            record = self._build_record(position, outcome)
            if record.state == "skipped" or (outcome.compared.sound and record.ratio is not None):
                return record
        reason = f"{MAX_ATTEMPTS} invalid sessions: {_find_first_reason(outcome)}"
        return VersionRecord(version, "skipped", reason, folder=outcome.folder)

    def _measure_pair(self, base: int, other: int, *, attempt: int = 0, place: str = "") -> SessionOutcome:
        """A session of two versions: read, resumed, or measured now."""
        before, after = self.bisection.stacks[base], self.bisection.stacks[other]
        root = self.bisection.folder / place
        folders = []
        for path in sorted((root / sessions.AREA).glob(f"*/{archive.SESSION_FILE}")):
            session = archive.read_session(path.parent)
            arms = session.get_arm(session.baseline), _find_candidate(session)
            if [arm.stack_key for arm in arms] == [before.key, after.key]:
                folders.append(path.parent)
        with self.watch() as watcher:
            if attempt < len(folders):
                outcome = sessions.read_or_resume_session(folders[attempt], watcher=watcher)
            else:
                watcher.report_note(f"measuring {after.name} against {self.bisection.plan.versions[base]}")
                name = "-".join(self.bisection.plan.versions[position] for position in (base, other))
                path = self.bisection.folder / "pairs" / f"{name}.json"
                build_stack_set([before, after], [before.name, after.name]).write(path)
                config = self.bisection.plan.config.model_copy(update={"stacks": (str(path),)})
                outcome = sessions.start_session(config, out=root, watcher=watcher, command=self.command)
        if outcome.interrupted:
            raise _StoppedError
        self._check_conditions(outcome)
        return outcome

    def _check_conditions(self, outcome: SessionOutcome) -> None:
        """Refuse levels that cannot be compared: of another machine, or another version of the indicator."""
        case = outcome.session.cases[0]
        conditions = (outcome.session.hardware.key, case.indicator_version)
        self.conditions = self.conditions or conditions
        for condition, first, subject in zip(
            conditions, self.conditions, ("the machine", "the indicator"), strict=True
        ):
            if condition != first:
                raise ConfigError(
                    f"{subject} has changed since the bisection started",
                    where=outcome.folder,
                    do="start a new bisection: levels of different ones are not compared",
                )
        resume = f"workbench indicators bisect --resume {self.bisection.folder}"
        metric = choose_metric(outcome, self.bisection.plan.metric, resume=resume)
        self.metric, self.margin = metric.name, metric.tolerance

    def _build_record(self, position: int, outcome: SessionOutcome) -> VersionRecord:
        """The ratio of the session's second version to its first; skipped where none of its runs has a value."""
        version = self.bisection.plan.versions[position]
        table = outcome.compared.effects
        rows = table.filter(~table["control"] & (table["metric"] == self.metric)).to_dicts()
        if reason := _find_run_problem(outcome):
            return VersionRecord(version, "skipped", reason, folder=outcome.folder)
        row: dict[str, Any] = rows[0] if rows else {}
        is_sequence = outcome.session.method == "sequence"
        has_ratio, sound = row.get("ratio") is not None, outcome.compared.sound
        return VersionRecord(
            version,
            "measured",
            row.get("reason") or (row.get("undecided_because") if sound else _find_first_reason(outcome)),
            version_search.build_level(row, is_sequence=is_sequence) if has_ratio else None,
            row.get("verdict", UNDECIDED) if sound else UNDECIDED,
            outcome.session.rounds_done,
            row.get("rounds_needed"),
            outcome.folder,
        )


def _find_first_reason(outcome: SessionOutcome) -> str:
    """The first reason of a session's judgement."""
    reasons = outcome.compared.judgement["reasons"][0]
    return str(reasons[0]) if len(reasons) else "no values"


def _find_run_problem(outcome: SessionOutcome) -> str | None:
    """Why a session's second version has no values although its first one has; null if it has, or neither."""
    session, runs = outcome.session, outcome.compared.observed.runs
    name, case = _find_candidate(session).name, session.cases[0]
    if name in case.skipped:
        return case.skipped[name]
    ok_arms = runs.filter(runs["status"] == "ok")["arm"].to_list()
    if name in ok_arms or session.baseline not in ok_arms:
        return None
    candidate_runs = runs.filter(runs["arm"] == name).sort("round").to_dicts()
    first = candidate_runs[0] if candidate_runs else {"status": "no runs", "reason": None}
    return f"{len(candidate_runs)} run(s) without values: {first['status']}: {first['reason'] or ''}".rstrip(": ")[:400]


def _find_candidate(session: archive.Session) -> archive.Arm:
    """The arm of a session's second version."""
    return next(arm for arm in session.arms if arm.name != session.baseline and not arm.is_control)


def format_bisection_answer(search: VersionSearch) -> str:
    """The answer in a sentence, and further ones about what limits it."""
    plan, result, newest = search.bisection.plan, search.result, search.records[-1]
    versions, package = plan.versions, plan.package
    probes = f"{search.n_probes} probe{'' if search.n_probes == 1 else 's'}"
    if search.interrupted:
        return f"Stopped after {probes}: not known yet."
    ends = f"{package} {versions[-1]} against {versions[0]}"
    if newest.ratio is not None:
        ends += f": {search.metric} is {_format_change(newest.ratio)} ({_format_ends_of(newest.ratio)})"
    if result is None:
        if newest.verdict == SAME:
            return f"{ends}: {search.reasons[0]}."
        advice = "; measure more rounds (--rounds), or on a quieter machine" if newest.folder else ""
        return f"Not known: {search.reasons[0]}{advice}. {ends}."
    step = result.step
    if step.verdict not in DIFFERENT:
        return f"Not known which {plan.noun}: {'; '.join(search.reasons)}. {ends}."
    before, after = versions[step.before], versions[step.after]
    made = f"made {search.metric} {_format_change(step.ratio)} ({_format_ends_of(step.ratio)})"
    if result.between:
        unmeasured = ", ".join(versions[place] for place in result.between)
        answer = f"{package} {made} between {before} and {after}, by {after} or a {plan.noun} that was not measured"
        answer += f" ({unmeasured})"
    else:
        answer = f"{package} {plan.describe(step.after)} {made} than {before}"
    sentences = [f"{answer}; {probes} of {search.bisection.last - 1} {plan.noun}s between."]
    # The step's part of the whole change.
    if result.others and result.share is not None and newest.ratio is not None:
        others = " and ".join(
            f"from {versions[other.before]} to {versions[other.after]} ({_format_change(other.ratio)})"
            for other in result.others
        )
        total = f"{versions[0]} to {versions[-1]}: {_format_change(newest.ratio)}"
        share = f"This step is {100 * result.share:.0f} % of the whole change ({total})"
        sentences.append(f"{share}; there are other steps {others}.")
    if packages := list_changed_packages(search):
        changes = ", ".join(f"{name} changed too: {old or 'none'} -> {new or 'none'}" for name, old, new in packages)
        fixed = next((f" --with {name}=={old}" for name, old, new in packages if old and new), " other requirements")
        sentences.append(f"{changes}; that may be the cause: fix it with{fixed}.")
    return " ".join([*sentences, *(f"Not known more exactly: {reason}." for reason in search.reasons)])


def format_series_answer(search: VersionSearch) -> str:
    """The decided changes of a series in a few sentences."""
    plan = search.bisection.plan
    n_measured = sum(record.ratio is not None for record in search.records) + 1
    measured = f"{n_measured} of {len(plan.versions)} {plan.noun}s measured"
    if search.interrupted:
        return f"Stopped: {measured}."
    if search.reasons:
        return f"Not known: {search.reasons[0]}."
    if not search.steps:
        return f"No change of {search.metric} beyond {100 * (search.margin or 0):.2g} % is shown; {measured}."
    steps = []
    for step in search.steps:
        before, after = plan.versions[step.before], plan.describe(step.after)
        place = f"by {after}" if step.after == step.before + 1 else f"between {before} and {after}"
        steps.append(f"{place}, {_format_change(step.ratio)} ({_format_ends_of(step.ratio)})")
    times = "once" if len(steps) == 1 else f"{len(steps)} times"
    return f"{search.metric} changed {times}: {'; '.join(steps)}. {measured}."


def _format_change(ratio: Interval) -> str:
    """A ratio as a change, such as 1.42x slower."""
    estimate = ratio.estimate or 1.0
    return f"{format_factor(max(estimate, 1 / estimate))}x {'faster' if estimate > 1 else 'slower'}"


def format_factor(value: float) -> str:
    """A factor with three digits, more where it is near 1.

    >>> format_factor(1.4231), format_factor(1.0312), format_factor(22.04)
    ('1.42', '1.031', '22.0')
    """
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}" if value < 1.1 else f"{value:.2f}"


def _format_ends_of(ratio: Interval) -> str:
    """The interval of a ratio, turned like the change that `_format_change` gives."""
    if ratio.low is None or ratio.high is None:
        return "no interval"
    faster = (ratio.estimate or 1.0) > 1
    low, high = (ratio.low, ratio.high) if faster else (1 / ratio.high, 1 / ratio.low)
    return f"{100 * ratio.level:.3g} % interval {format_factor(low)} to {format_factor(high)}"


def list_changed_packages(search: VersionSearch) -> list[tuple[str, str | None, str | None]]:
    """Other packages that differ between the locks of the step's two versions: name, before, after; null: absent."""
    if search.result is None:
        return []
    step, stacks = search.result.step, search.bisection.stacks
    before, after = stacks[step.before].versions, stacks[step.after].versions
    names = sorted((before.keys() | after.keys()) - {search.bisection.plan.package})
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def list_next_commands(search: VersionSearch) -> list[str]:
    """Commands that continue the search, after those that add rounds to an undecided session."""
    again = f"workbench indicators bisect --resume {shlex.quote(str(search.bisection.folder))}"
    if search.interrupted:
        return [again]
    open_ = search.direct or search.records[-1]
    is_open = not search.found and open_.verdict == UNDECIDED and open_.folder is not None
    if is_open and open_.folder is not None:
        more = count_more_rounds([(open_.rounds_needed, open_.rounds or 0)])
        return [f"workbench indicators run --resume {shlex.quote(str(open_.folder))} --more {more}", again]
    return []


def format_bisection(search: VersionSearch, answer: str | None = None) -> str:
    """A search as text: the answer, the measured versions, the folder, what to do next."""
    folder, plan = search.bisection.folder, search.bisection.plan
    shown = [record for record in search.records if record.state != "not probed" or not plan.commits]
    rows = [_format_record(record, folder) for record in shown]
    if search.direct is not None and search.result is not None:
        before, after = plan.versions[search.result.step.before], plan.versions[search.result.step.after]
        rows.append(("", f"{after} against {before}", *_format_record(search.direct, folder)[2:]))
    lines = [answer or format_bisection_answer(search), "", *format_table(rows, _HEADERS, right=_HEADERS[2:5]), ""]
    lines += [f"skipped, since they were yanked: {', '.join(plan.yanked)}"] if plan.yanked else []
    lines += [f"ratios are to {plan.versions[0]}, above 1 is better; times in {plan.config.clock} time"]
    lines += [f"written: {folder}", *(f"next: {command}" for command in list_next_commands(search))]
    return "\n".join(lines)


def _format_record(record: VersionRecord, folder: Path) -> tuple[str | int | None, ...]:
    ratio = record.ratio
    ends = (None, None, None) if ratio is None else (ratio.estimate, ratio.low, ratio.high)
    place = "" if record.folder is None else str(record.folder.relative_to(folder))
    cells = ["–" if end is None else f"{end:.3f}" for end in ends]
    remark = textwrap.shorten(record.reason or "", _MAX_REMARK_CHARS, placeholder=" …")
    rounds = "" if record.rounds is None else str(record.rounds)
    return record.version, record.state, *cells, record.verdict or "", rounds, place, remark


def build_bisection_document(search: VersionSearch) -> dict[str, Any]:
    """A search as one JSON document; folders of sessions are relative to its own."""
    plan, result = search.bisection.plan, search.result
    is_exact = search.found and result is not None and not result.between
    return {
        "package": plan.package,
        "folder": str(search.bisection.folder),
        "found": search.found,
        "version": plan.versions[result.step.after] if is_exact and result is not None else None,
        "answer": format_bisection_answer(search),
        "metric": search.metric,
        "margin": search.margin,
        "clock": plan.config.clock,
        "n_probes": search.n_probes,
        "interrupted": search.interrupted,
        "reasons": list(search.reasons),
        "step": None if result is None else _build_step_document(search, result.step),
        "possible_versions": []
        if result is None or result.step.verdict not in DIFFERENT
        else [plan.versions[place] for place in (*result.between, result.step.after)],
        "share_of_change": None if result is None else result.share,
        "steps": [_build_step_document(search, step) for step in search.steps],
        "other_steps": [] if result is None else [_build_step_document(search, step) for step in result.others],
        "changed_packages": [
            {"name": name, "before": old, "after": new} for name, old, new in list_changed_packages(search)
        ],
        "versions": [_build_record_document(record, search.bisection.folder) for record in search.records],
        "direct": None if search.direct is None else _build_record_document(search.direct, search.bisection.folder),
        "yanked": list(plan.yanked),
        "next": list_next_commands(search),
    }


def _build_step_document(search: VersionSearch, step: Step) -> dict[str, Any]:
    versions = search.bisection.plan.versions
    ends = {"before": versions[step.before], "after": versions[step.after]}
    return {**ends, **_build_ratio_document(step.ratio), "verdict": step.verdict}


def _build_ratio_document(ratio: Interval | None) -> dict[str, Any]:
    values = {name: None if ratio is None else getattr(ratio, name) for name in ("low", "high", "level")}
    return {"ratio": None if ratio is None else ratio.estimate, **values}


def _build_record_document(record: VersionRecord, folder: Path) -> dict[str, Any]:
    return {
        "version": record.version,
        "state": record.state,
        "reason": record.reason,
        **_build_ratio_document(record.ratio),
        "verdict": record.verdict,
        "rounds": record.rounds,
        "session": None if record.folder is None else str(record.folder.relative_to(folder)),
    }
