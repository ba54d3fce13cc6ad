"""Measure versions of a package against its oldest one until the version that changed an indicator is found."""

from __future__ import annotations

import json
import secrets
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field, StringConstraints, model_validator

from workbench.console.tables import format_table
from workbench.core import files, locks
from workbench.core.errors import ConfigError, InputError, RunFailedError
from workbench.core.files import default_out
from workbench.core.schema import FiniteModel, read_model_file
from workbench.indicators.analysis import effects, version_search
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.analysis.version_search import SearchResult, Step
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import SessionOutcome, count_more_rounds
from workbench.indicators.measurement.stack_variants import build_stack_set
from workbench.indicators.stacks import environments, stack_sets, version_ranges
from workbench.indicators.stacks.stack_sets import Stack, StackSet
from workbench.indicators.store import archive
from workbench.runs import run_folder
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
State = Literal["oldest", "measured", "skipped", "not probed"]
Watch = Callable[[], AbstractContextManager[SessionWatcher]]
_HEADERS = ("version", "", "times better", "low", "high", "verdict", "rounds", "session", "")
_MAX_REMARK_CHARS = 120


class BisectionPlan(FiniteModel):
    """Plan of a bisection: what is searched, and with which settings.

    `versions` are in their order, from the oldest; `yanked` ones are left out. `requirements` hold for every stack;
    `metric` is null where the indicator has only one. `config` are the settings of each session, without its stacks.
    """

    format_version: Literal[1] = FORMAT_VERSION
    package: Text
    versions: Annotated[tuple[Text, ...], Field(min_length=2, max_length=version_ranges.MAX_VERSIONS)]
    yanked: tuple[Text, ...] = ()
    requirements: tuple[Text, ...] = ()
    metric: Text | None = None
    max_probes: int | None = Field(None, ge=0, le=version_ranges.MAX_VERSIONS, description="Limit of versions to try.")
    config: SessionConfig
    created_at: Text

    @model_validator(mode="after")
    def _check_order(self) -> BisectionPlan:
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
    stacks: dict[int, Stack]
    unsolved: dict[int, str]
    solved: StackSet

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
    if len(targets := [*config.indicators, *config.script]) != 1:
        raise ConfigError(
            "exactly one indicator is needed",
            where="--indicator, --script",
            found=targets or "none",
            allowed="one, such as --indicator sort",
        )
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
    return _combine(_write_search(Path(out) if out is not None else default_out(), plan, solved), plan, solved)


def _write_search(out: Path, plan: BisectionPlan, solved: StackSet) -> Path:
    """Make the folder of a search with its stacks and its plan."""
    name = f"bisect-{plan.package}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    folder = out.absolute() / name
    try:
        solved.write(folder / STACKS)
        write_plan(folder, plan)
    except OSError as error:
        raise ConfigError(
            "cannot make the folder", where=folder, found=error.strerror, do="choose another with --out DIR"
        ) from error
    return folder


def write_plan(folder: Path, plan: BisectionPlan) -> Path:
    """Write the plan, atomically."""
    return files.write_text(folder / PLAN, json.dumps(plan.model_dump(mode="json"), indent=1) + "\n")


def load_bisection(folder: str | Path) -> Bisection:
    """Read the plan of a folder and its stacks."""
    folder = Path(folder).absolute()
    if not (folder / PLAN).is_file():
        raise InputError(
            "not the folder of a bisection", where=folder, found=f"no {PLAN}",
            do="name the folder that `workbench indicators bisect` printed",
        )  # fmt: skip
    plan = read_model_file(
        BisectionPlan, folder / PLAN, noun="plan of a bisection", max_bytes=MAX_PLAN_BYTES, max_version=FORMAT_VERSION
    )
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
    return Bisection(folder, plan, stacks, unsolved, solved)


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


@dataclass(frozen=True)
class BisectionOutcome:
    """A search as far as it got.

    `metric`, `margin`: The metric that is compared, and its practical margin as a share; null before the first session.
    `records`: The versions in their order, the oldest first.
    `result`: What the levels say; null if both ends are not told apart, or not yet measured.
    `direct`: The session of the two versions of the step against each other; null where none was needed.
    `n_probes`: Number of versions measured between the ends. `reasons`: Why the answer is not known, or not exactly.
    """

    bisection: Bisection
    metric: str | None
    margin: float | None
    records: tuple[VersionRecord, ...]
    result: SearchResult | None
    direct: VersionRecord | None
    n_probes: int
    reasons: tuple[str, ...]
    interrupted: bool = False

    @property
    def found(self) -> bool:
        """Whether the version that changed the indicator is known, or lies among versions that cannot be measured."""
        return self.result is not None and not self.reasons and not self.interrupted


class _StoppedError(Exception):
    """Ctrl-C ended a session."""


def measure_bisection(
    bisection: Bisection, *, watch: Watch | None = None, command: str | None = None
) -> BisectionOutcome:
    """Measure both ends, then one version after the other, and say which one made the change.

    Each session measures the oldest version, another one, and the control, in rounds. Sessions in the folder are read,
    and one that was stopped is resumed, so that a search goes on where it ended.
    """
    with locks.lock_exclusively(
        bisection.folder, "another process is measuring this bisection", do="wait for it, or stop it"
    ):
        search = _VersionSearch(bisection, watch or (lambda: nullcontext(SessionWatcher())), command)
        try:
            search.measure_versions()
        except _StoppedError:
            search.interrupted = True
        return search.build_outcome()


@dataclass
class _VersionSearch:
    """State of a search: records by position, filled in the same order again when it is resumed."""

    bisection: Bisection
    watch: Watch
    command: str | None
    records: dict[int, VersionRecord] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    metric: str | None = None
    margin: float | None = None
    result: SearchResult | None = None
    direct: VersionRecord | None = None
    n_probes: int = 0
    interrupted: bool = False
    conditions: tuple[str, str] | None = None

    def measure_versions(self) -> None:
        """Measure both ends, then the probes, then the step itself if its verdict is still open."""
        plan, last = self.bisection.plan, self.bisection.last
        for position, reason in self.bisection.unsolved.items():
            self.records[position] = VersionRecord(plan.versions[position], "skipped", f"no solution: {reason}")
        outcome = self._measure_pair(0, last)
        ends = self.records[last] = self._build_record(last, outcome)
        if problem := _find_end_problem(ends, outcome):
            self.reasons.append(problem)
            return
        while (probe := self._choose_probe()) is not None:
            self.n_probes += 1
            self.records[probe] = self._probe_version(probe)
        self._evaluate()

    def _choose_probe(self) -> int | None:
        """Position of the next version to measure; null if none is left, or the limit is reached."""
        limit = self.bisection.plan.max_probes
        if limit is not None and self.n_probes >= limit:
            return None
        return self._choose_open_version()

    def _choose_open_version(self) -> int | None:
        """Position of the next version to measure, whatever the limit; null if none is left."""
        logs = version_search.list_log_levels(self._list_levels())
        skipped = {position for position, record in self.records.items() if record.state == "skipped"}
        return version_search.choose_next_probe(logs, skipped)

    def _list_levels(self) -> dict[int, Interval]:
        """Ratio to the oldest version, by position."""
        return {place: record.ratio for place, record in self.records.items() if record.ratio is not None}

    def _probe_version(self, position: int) -> VersionRecord:
        """A version's level; skipped if it cannot be installed or run, or if its sessions are invalid twice."""
        version = self.bisection.plan.versions[position]
        if problem := self._find_install_problem(position):
            return VersionRecord(version, "skipped", problem)
        for attempt in range(MAX_ATTEMPTS):
            outcome = self._measure_pair(0, position, attempt=attempt)
            record = self._build_record(position, outcome)
            if record.state == "skipped":
                return record
            if outcome.compared.sound and record.ratio is not None:
                return record
        reason = f"{MAX_ATTEMPTS} invalid sessions: {_find_first_reason(outcome)}"
        return VersionRecord(version, "skipped", reason, folder=outcome.folder)

    def _find_install_problem(self, position: int) -> str | None:
        """Why a version cannot be installed; null if it can."""
        limit = self.bisection.plan.config.max_download_bytes
        try:
            environments.install_environments([(self.bisection.stacks[position], 0)], max_download_bytes=limit)
        except (ConfigError, RunFailedError) as error:
            return f"cannot be installed: {error.what}: {error.facts['found'] or error.facts['where']}"[:400]
        return None

    def _evaluate(self) -> None:
        """Find the step between versions, and measure it directly where its verdict is open."""
        assert self.margin is not None
        levels, n_compared = self._list_levels(), len(self.bisection.stacks) - 1
        result = version_search.evaluate_levels(levels, margin=self.margin, n_compared=n_compared)
        self.result = result
        if self._choose_open_version() is not None:
            n_open = sum(place not in self.records for place in result.between)
            self.reasons.append(f"{n_open} version(s) between are left: --max-probes {self.n_probes} was reached")
            return
        if result.step.verdict not in DIFFERENT:
            step = self._measure_step(result.step)
            self.result = version_search.evaluate_levels(
                levels, margin=self.margin, n_compared=n_compared, direct={(step.before, step.after): step}
            )
            if step.verdict not in DIFFERENT:
                self.reasons.append(self._explain_open_step(step))

    def _measure_step(self, step: Step) -> Step:
        """The step by a session of its two versions, beside which no other was chosen; undecided if it is invalid."""
        for attempt in range(MAX_ATTEMPTS):
            outcome = self._measure_pair(step.before, step.after, attempt=attempt, place=_DIRECT)
            self.direct = record = self._build_record(step.after, outcome)
            if outcome.compared.sound and record.ratio is not None and record.verdict is not None:
                return Step(step.before, step.after, record.ratio, record.verdict)
        return Step(step.before, step.after, step.ratio, UNDECIDED)

    def _explain_open_step(self, step: Step) -> str:
        before, after = (self.bisection.plan.versions[place] for place in (step.before, step.after))
        reason = "the change is spread over several versions" if step.verdict == SAME else "their session is undecided"
        return f"the largest step, from {before} to {after}, cannot be distinguished from the margin: {reason}"

    def _measure_pair(self, base: int, other: int, *, attempt: int = 0, place: str = "") -> SessionOutcome:
        """A session of two versions: read, resumed, or measured now."""
        before, after = self.bisection.stacks[base], self.bisection.stacks[other]
        root = self.bisection.folder / place
        folders = [folder for folder, keys in _list_sessions(root) if keys == (before.key, after.key)]
        with self.watch() as watcher:
            if attempt < len(folders):
                # A finished session as it is; one that was stopped is resumed.
                folder = folders[attempt]
                session = archive.read_session(folder)
                if run_folder.load_run(folder).status != "succeeded" or session.stop_reason in (None, "interrupted"):
                    outcome = sessions.resume_session(folder, watcher=watcher)
                else:
                    outcome = SessionOutcome(folder, effects.compare_session(load_observations(folder)))
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
        names = [metric.name for metric in case.metrics]
        wanted = self.bisection.plan.metric
        fitting = [name for name in names if wanted in (None, name)]
        if len(fitting) != 1:
            raise ConfigError(
                "exactly one metric is needed for the search" if names else "the indicator has no metric",
                where="--metric",
                found=wanted or (f"{len(names)} metrics" if names else "no result with a direction"),
                allowed=names[:20] or None,
                do=f"workbench indicators bisect --resume {self.bisection.folder} --metric NAME"
                if names
                else "say which is better, such as --better total=lower",
            )
        self.metric = fitting[0]
        self.margin = next(metric.tolerance for metric in case.metrics if metric.name == self.metric)

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

    def build_outcome(self) -> BisectionOutcome:
        """Build the outcome from what is known now."""
        versions = self.bisection.plan.versions
        unprobed = {place: VersionRecord(version, "not probed") for place, version in enumerate(versions)}
        records = {**unprobed, 0: VersionRecord(versions[0], "oldest"), **self.records}
        return BisectionOutcome(
            self.bisection,
            self.metric,
            self.margin,
            tuple(records[place] for place in range(len(versions))),
            self.result,
            self.direct,
            self.n_probes,
            tuple(self.reasons),
            self.interrupted,
        )


def _find_end_problem(ends: VersionRecord, outcome: SessionOutcome) -> str | None:
    """Why there is nothing to search for; null if both ends are told apart."""
    if ends.state == "skipped":
        return f"{ends.version} cannot be measured: {ends.reason}"
    if not outcome.compared.sound:
        return f"the session of both ends is invalid: {_find_first_reason(outcome)}"
    if ends.verdict == SAME:
        return "no change to look for"
    if ends.verdict not in DIFFERENT:
        return f"no clear difference between the two ends: {ends.reason}"
    return None


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


def _list_sessions(root: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The sessions below a folder with the stack keys of their two versions, oldest first."""
    for path in sorted((root / sessions.AREA).glob(f"*/{archive.SESSION_FILE}")):
        session = archive.read_session(path.parent)
        yield path.parent, (session.get_arm(session.baseline).stack_key, _find_candidate(session).stack_key)


def format_bisection_answer(outcome: BisectionOutcome) -> str:
    """The answer in a sentence, and further ones about what limits it."""
    if outcome.interrupted:
        return f"Stopped after {_count_probes(outcome)}: not known yet."
    if outcome.result is None:
        if outcome.records[-1].verdict == SAME:
            return f"{_format_ends(outcome)}: {outcome.reasons[0]}."
        advice = "; measure more rounds (--rounds), or on a quieter machine" if outcome.records[-1].folder else ""
        return f"Not known: {outcome.reasons[0]}{advice}. {_format_ends(outcome)}."
    if outcome.result.step.verdict not in DIFFERENT:
        return f"Not known which version: {'; '.join(outcome.reasons)}. {_format_ends(outcome)}."
    sentences = [_format_step_answer(outcome), *_format_share(outcome), *_format_dependencies(outcome)]
    return " ".join([*sentences, *(f"Not known more exactly: {reason}." for reason in outcome.reasons)])


def _format_step_answer(outcome: BisectionOutcome) -> str:
    """Sentence on the version, or the range of versions, that made the change."""
    assert outcome.result is not None
    step, between = outcome.result.step, outcome.result.between
    before, after = _name_versions(outcome, step)
    package, change, interval = outcome.bisection.plan.package, _format_change(step.ratio), _format_ends_of(step.ratio)
    tail = f"{_count_probes(outcome)} of {outcome.bisection.last - 1} versions between."
    if not between:
        return f"{package} {after} made {outcome.metric} {change} ({interval}) than {before}; {tail}"
    names = ", ".join(outcome.bisection.plan.versions[place] for place in between)
    return (
        f"{package} made {outcome.metric} {change} ({interval}) between {before} and {after}, by {after} or a version "
        f"that was not measured ({names}); {tail}"
    )


def _name_versions(outcome: BisectionOutcome, step: Step) -> tuple[str, str]:
    versions = outcome.bisection.plan.versions
    return versions[step.before], versions[step.after]


def _count_probes(outcome: BisectionOutcome) -> str:
    return f"{outcome.n_probes} probe{'' if outcome.n_probes == 1 else 's'}"


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


def _format_ends(outcome: BisectionOutcome) -> str:
    """The newest version against the oldest one."""
    plan, newest = outcome.bisection.plan, outcome.records[-1]
    names = f"{plan.package} {plan.versions[-1]} against {plan.versions[0]}"
    if newest.ratio is None:
        return names
    return f"{names}: {outcome.metric} is {_format_change(newest.ratio)} ({_format_ends_of(newest.ratio)})"


def _format_share(outcome: BisectionOutcome) -> list[str]:
    """Sentence on the step's part of the whole change; none unless there are other steps."""
    result, newest = outcome.result, outcome.records[-1].ratio
    if result is None or not result.others or result.share is None or newest is None:
        return []
    versions = outcome.bisection.plan.versions
    total_change = f"{versions[0]} to {versions[-1]}: {_format_change(newest)}"
    parts = [
        f"from {versions[step.before]} to {versions[step.after]} ({_format_change(step.ratio)})"
        for step in result.others
    ]
    share = f"This step is {100 * result.share:.0f} % of the whole change ({total_change})"
    return [f"{share}; there are other steps {' and '.join(parts)}."]


def list_changed_packages(outcome: BisectionOutcome) -> list[tuple[str, str | None, str | None]]:
    """Other packages that differ between the locks of the step's two versions: name, before, after; null: absent."""
    if outcome.result is None:
        return []
    step, stacks = outcome.result.step, outcome.bisection.stacks
    before, after = stacks[step.before].versions, stacks[step.after].versions
    names = sorted((before.keys() | after.keys()) - {outcome.bisection.plan.package})
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def _format_dependencies(outcome: BisectionOutcome) -> list[str]:
    """Sentence on other packages that changed in the same step; none unless there are any."""
    packages = list_changed_packages(outcome)
    if not packages:
        return []
    changes = ", ".join(f"{name} changed too: {old or 'none'} -> {new or 'none'}" for name, old, new in packages)
    fixed = next((f" --with {name}=={old}" for name, old, new in packages if old and new), " other requirements")
    return [f"{changes}; that may be the cause: fix it with{fixed}."]


def list_next_commands(outcome: BisectionOutcome) -> list[str]:
    """Commands that continue the search, after those that add rounds to an undecided session."""
    again = f"workbench indicators bisect --resume {shlex.quote(str(outcome.bisection.folder))}"
    if outcome.interrupted:
        return [again]
    open_ = outcome.direct or outcome.records[-1]
    is_open = not outcome.found and open_.verdict == UNDECIDED and open_.folder is not None
    if is_open and open_.folder is not None:
        more = count_more_rounds([(open_.rounds_needed, open_.rounds or 0)])
        return [f"workbench indicators run --resume {shlex.quote(str(open_.folder))} --more {more}", again]
    return []


def format_bisection(outcome: BisectionOutcome) -> str:
    """A search as text: the answer, the versions, the folder, what to do next."""
    folder, plan = outcome.bisection.folder, outcome.bisection.plan
    rows = [_format_record(record, folder) for record in outcome.records]
    if outcome.direct is not None and outcome.result is not None:
        before, after = _name_versions(outcome, outcome.result.step)
        rows.append(("", f"{after} against {before}", *_format_record(outcome.direct, folder)[2:]))
    lines = [format_bisection_answer(outcome), "", *format_table(rows, _HEADERS, right=_HEADERS[2:5]), ""]
    lines += [f"skipped, since they were yanked: {', '.join(plan.yanked)}"] if plan.yanked else []
    lines += [f"ratios are to {plan.versions[0]}, above 1 is better; times in {plan.config.clock} time"]
    lines += [f"written: {folder}", *(f"next: {command}" for command in list_next_commands(outcome))]
    return "\n".join(lines)


def _format_record(record: VersionRecord, folder: Path) -> tuple[str | int | None, ...]:
    ratio = record.ratio
    ends = (None, None, None) if ratio is None else (ratio.estimate, ratio.low, ratio.high)
    place = "" if record.folder is None else str(record.folder.relative_to(folder))
    cells = ["–" if end is None else f"{end:.3f}" for end in ends]
    remark = textwrap.shorten(record.reason or "", _MAX_REMARK_CHARS, placeholder=" …")
    rounds = "" if record.rounds is None else str(record.rounds)
    return record.version, record.state, *cells, record.verdict or "", rounds, place, remark


def build_bisection_document(outcome: BisectionOutcome) -> dict[str, Any]:
    """A search as one JSON document; folders of sessions are relative to its own."""
    plan, result = outcome.bisection.plan, outcome.result
    is_exact = outcome.found and result is not None and not result.between
    return {
        "package": plan.package,
        "folder": str(outcome.bisection.folder),
        "found": outcome.found,
        "version": plan.versions[result.step.after] if is_exact and result is not None else None,
        "answer": format_bisection_answer(outcome),
        "metric": outcome.metric,
        "margin": outcome.margin,
        "clock": plan.config.clock,
        "n_probes": outcome.n_probes,
        "interrupted": outcome.interrupted,
        "reasons": list(outcome.reasons),
        "step": None if result is None else _build_step_document(outcome, result.step),
        "possible_versions": []
        if result is None or result.step.verdict not in DIFFERENT
        else [plan.versions[place] for place in (*result.between, result.step.after)],
        "share_of_change": None if result is None else result.share,
        "other_steps": [] if result is None else [_build_step_document(outcome, step) for step in result.others],
        "changed_packages": [
            {"name": name, "before": old, "after": new} for name, old, new in list_changed_packages(outcome)
        ],
        "versions": [_build_record_document(record, outcome.bisection.folder) for record in outcome.records],
        "direct": None if outcome.direct is None else _build_record_document(outcome.direct, outcome.bisection.folder),
        "yanked": list(plan.yanked),
        "next": list_next_commands(outcome),
    }


def _build_step_document(outcome: BisectionOutcome, step: Step) -> dict[str, Any]:
    before, after = _name_versions(outcome, step)
    return {"before": before, "after": after, **_build_ratio_document(step.ratio), "verdict": step.verdict}


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
