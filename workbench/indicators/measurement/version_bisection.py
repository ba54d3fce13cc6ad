"""Measure versions of a package against its oldest one until the version that changed an indicator is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from workbench.core import locks
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.analysis import effects, version_search
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.analysis.version_search import SearchResult, Step
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.bisection_plan import Bisection
from workbench.indicators.measurement.session_progress import SessionWatcher, SilentWatcher
from workbench.indicators.measurement.sessions import SessionOutcome
from workbench.indicators.measurement.stack_variants import build_stack_set
from workbench.indicators.stacks import environments
from workbench.indicators.store import archive
from workbench.runs import run_folder
from workbench.stats import Interval, Verdict
from workbench.stats.verdicts import DIFFERENT, SAME, UNDECIDED

MAX_ATTEMPTS = 2
"""Sessions of a pair of versions, if the first one is invalid."""
_DIRECT = "direct"
State = Literal["oldest", "measured", "skipped", "not probed"]
Watch = Callable[[], AbstractContextManager[SessionWatcher]]


@dataclass(frozen=True)
class VersionRecord:
    """What is known of a version: its ratio to the oldest one, or why it has none."""

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

    `metric`, `margin`: What was compared, and its practical margin; null before the first session.
    `result`: What the levels say; null if both ends are not told apart, or not yet measured.
    `direct`: The session of the two versions of the step against each other; null where none was needed.
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
        search = _VersionSearch(bisection, watch or (lambda: nullcontext(SilentWatcher())), command)
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
        """Both ends, the probes, and the step itself if it is still open."""
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
        limit = self.bisection.plan.max_probes
        if limit is not None and self.n_probes >= limit:
            return None
        return self._choose_open_version()

    def _choose_open_version(self) -> int | None:
        logs = version_search.list_log_levels(self._list_levels())
        skipped = {position for position, record in self.records.items() if record.state == "skipped"}
        return version_search.choose_next_probe(logs, skipped)

    def _list_levels(self) -> dict[int, Interval]:
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
        limit = self.bisection.plan.config.max_download_bytes
        try:
            environments.install_environments([(self.bisection.stacks[position], 0)], max_download_bytes=limit)
        except (ConfigError, RunFailedError) as error:
            return f"cannot be installed: {error.what}: {error.facts['found'] or error.facts['where']}"[:400]
        return None

    def _evaluate(self) -> None:
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
        return f"the largest step, from {before} to {after}, is not told apart from the margin: {reason}"

    def _measure_pair(self, base: int, other: int, *, attempt: int = 0, place: str = "") -> SessionOutcome:
        """A session of two versions: read, resumed, or measured now."""
        before, after = self.bisection.stacks[base], self.bisection.stacks[other]
        root = self.bisection.folder / place
        folders = [folder for folder, keys in _list_sessions(root) if keys == (before.key, after.key)]
        with self.watch() as watcher:
            if attempt < len(folders):
                outcome = _load_session(folders[attempt], watcher)
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
                "not one metric to search by" if names else "the indicator has no metric",
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
        """What is known now."""
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
        return f"both ends are not told apart: {ends.reason}"
    return None


def _find_first_reason(outcome: SessionOutcome) -> str:
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
    return next(arm for arm in session.arms if arm.name != session.baseline and not arm.copy_number)


def _list_sessions(root: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The sessions below a folder with the stack keys of their two versions, oldest first."""
    for path in sorted((root / sessions.AREA).glob(f"*/{archive.SESSION_FILE}")):
        session = archive.read_session(path.parent)
        yield path.parent, (session.get_arm(session.baseline).stack_key, _find_candidate(session).stack_key)


def _load_session(folder: Path, watcher: SessionWatcher) -> SessionOutcome:
    """A finished session as it is; one that was stopped is resumed."""
    session = archive.read_session(folder)
    if run_folder.load_run(folder).status != "succeeded" or session.stop_reason in (None, "interrupted"):
        return sessions.resume_session(folder, watcher=watcher)
    return SessionOutcome(folder, session, effects.compare_session(load_observations(folder)))
