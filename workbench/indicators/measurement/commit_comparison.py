"""Two commits of one project in one session, judged as a gate: is any metric of the later one slower?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError
from workbench.indicators.contract.script_declaration import ScriptDeclaration
from workbench.indicators.measurement import sessions
from workbench.indicators.measurement.instruction_counts import N_RUNS, compare_counts, count_instructions
from workbench.indicators.measurement.script_cases import read_declarations
from workbench.indicators.measurement.session_config import SessionConfig
from workbench.indicators.measurement.session_progress import SessionWatcher
from workbench.indicators.measurement.session_report import SessionOutcome
from workbench.indicators.measurement.stack_variants import build_stack_set
from workbench.indicators.stacks import environments
from workbench.indicators.stacks.commits import Commit, CommitBuilder, find_single_commit
from workbench.runs import run_folder
from workbench.runs.threshold_gate import Kind, RuleOutcome, build_gate_result
from workbench.stats import MARGIN, ratio_verdict
from workbench.stats.verdicts import SLOWER, UNDECIDED

STACKS_FOLDER = "commits"


@dataclass(frozen=True)
class CommitComparison:
    """A session of two commits. `rules`: One a metric."""

    outcome: SessionOutcome
    commits: tuple[Commit, Commit]
    rules: tuple[RuleOutcome, ...]

    @property
    def has_passed(self) -> bool:
        """Whether the session is sound, and no metric is slower, or not decided."""
        return self.outcome.compared.sound and all(rule.outcome == "passed" for rule in self.rules)


def compare_commits(
    names: tuple[str, str],
    config: SessionConfig,
    *,
    repository: Path,
    subfolder: str = ".",
    requirements: tuple[str, ...] = (),
    accept_undecided: bool = False,
    with_counts: bool = False,
    out: Path,
    watcher: SessionWatcher,
    command: str | None = None,
) -> CommitComparison:
    """Build two commits, measure both in rounds beside a control, and judge each metric.

    `names`: Of the commits. `with_counts`: Count the instructions of scripts, too.

    Raises
    ------
    ConfigError
        The two are one commit, or one of them is none.
    RunFailedError
        One cannot be built, or its requirements have no solution.
    """
    first, second = (find_single_commit(repository, name) for name in names)
    if first.sha == second.sha:
        raise ConfigError(
            "both are the same commit", where="BASE HEAD", found=f"{names[0]} and {names[1]}: {first.short}"
        )
    builder = CommitBuilder(repository, subfolder)
    with builder.offer_wheels():
        stacks = []
        for commit in (first, second):
            watcher.report_note(f"building {commit.short} {commit.subject}")
            limit = config.max_download_bytes
            stacks.append(builder.solve_commit(commit, requirements, max_download_bytes=limit))
        path = out / STACKS_FOLDER / f"{first.short}-{second.short}.json"
        build_stack_set(stacks, [stack.name for stack in stacks]).write(path)
        config = config.model_copy(update={"stacks": (str(path),), "baseline": first.short})
        outcome = sessions.start_session(config, out=out, watcher=watcher, command=command)
        pythons = [str(environments.ensure_environment(stack).python) for stack in stacks] if with_counts else []
    rules = judge_metrics(outcome, accept_undecided=accept_undecided)
    if with_counts:
        rules += tuple(_judge_counts(script, pythons, config) for script in read_declarations(outcome.folder))
    run = run_folder.load_run(outcome.folder)
    run.record["thresholds"] = build_gate_result(rules)
    changes = [f"{commit.short}: {commit.subject}" for commit in (first, second)]
    run.record["details"] = [*changes, *(run.record.get("details") or [])]
    run.save()
    return CommitComparison(outcome, (first, second), rules)


def _judge_counts(script: ScriptDeclaration, pythons: Sequence[str], config: SessionConfig) -> RuleOutcome:
    """A rule on the instructions of a script's whole process, on both sides."""
    base, head = ([count_instructions(python, script, config.threads) for _ in range(N_RUNS)] for python in pythons)
    found = compare_counts(base, head)
    margin = MARGIN if config.margin is None else config.margin
    verdict = ratio_verdict(found.estimate, found.low, found.high, margin=margin)
    kinds: dict[str, Kind] = {SLOWER: "broken", UNDECIDED: "refused"}
    told = f"{found.estimate:.4f} times as few [{found.low:.4f}, {found.high:.4f}], {verdict}, {N_RUNS} runs"
    rule = f"{script.name} takes no more instructions (not time: of its whole process)"
    return RuleOutcome(rule, kinds.get(verdict, "passed"), told, rows=N_RUNS)


def judge_metrics(outcome: SessionOutcome, *, accept_undecided: bool) -> tuple[RuleOutcome, ...]:
    """A rule for each metric: broken where it is slower, refused where that is not known."""
    effects = outcome.compared.effects
    rows = effects.filter(~effects["control"]).iter_rows(named=True)
    return tuple(_judge_metric(row, accept_undecided=accept_undecided) for row in rows)


def _judge_metric(row: Mapping[str, Any], *, accept_undecided: bool) -> RuleOutcome:
    verdict = row["verdict"]
    kinds: dict[str, Kind] = {SLOWER: "broken", UNDECIDED: "passed" if accept_undecided else "refused"}
    found = verdict if row["ratio"] is None else f"{row['ratio']:.3f} times as good"
    if row["low"] is not None:
        found += f" [{row['low']:.3f}, {row['high']:.3f}]"
    why = f": {row['undecided_because']}" if verdict == UNDECIDED and row.get("undecided_because") else ""
    found = f"{found}, {verdict}{why}, {row['n']} rounds"
    return RuleOutcome(f"{row['metric']} is not worse", kinds.get(verdict, "passed"), found, rows=row["n"])
