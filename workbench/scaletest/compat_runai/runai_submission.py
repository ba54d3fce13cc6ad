"""Submission by the flags of Run:ai's submitter, with its submitted.json beside our journal."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.scaletest import safety, scenario
from workbench.scaletest.cluster_api import object_names
from workbench.scaletest.cluster_api.connection import Connection, Target
from workbench.scaletest.compat_runai import runai_files
from workbench.scaletest.compat_runai.runai_files import SentWorkload, find_project
from workbench.scaletest.compat_runai.submit_flags import SubmitFlags, build_scenario
from workbench.scaletest.observation import run_conditions, run_records
from workbench.scaletest.safety import ClusterFacts
from workbench.scaletest.safety.cluster_setup import apply_object
from workbench.scaletest.scenario import Plan, scenario_file
from workbench.scaletest.scenario.arrival_processes import Burst
from workbench.scaletest.submission import (
    Bursts,
    StopRequest,
    SubmissionLimits,
    SubmissionOutcome,
    SubmissionStatus,
    submit_plan,
)
from workbench.scaletest.submission.command_submitters import CommandSubmitter, KubectlSubmitter
from workbench.scaletest.submission.object_creation import ApiSubmitter, Submitter
from workbench.scaletest.test_run.run_options import build_abort_limits

_KEY = "pace"
_ANEW = "start a new submission in another folder"


MODES = ("api", "kubectl", "command")
_SAVE_EVERY_S = 2.0
UNWATCHED = (
    "the cluster is not watched: submission stops at its limits and when requests fail or are slow, but not "
    "when pods wait, pods of others are evicted or a node fails (workbench scaletest run does)"
)
UNLABELLED = "what the command makes has no label of ours: cleanup does not find it"


_GRANTED, _RIGHTS_LIMIT_S, _AGAIN_S = ("rights", "namespace"), 15.0, 0.25


@dataclass(frozen=True)
class SubmissionPace:
    """What a scenario has no place for."""

    delay: float
    max_rate: float
    num_processes: int

    def to_config(self) -> dict[str, Any]:
        """For run.json."""
        return {_KEY: dataclasses.asdict(self)}

    def build_limits(self, plan: Plan) -> SubmissionLimits:
        """The plan's limits at this rate; pods are not watched, so there is no limit on pending ones."""
        limits = plan.scenario.limits
        return SubmissionLimits(
            objects=limits.objects,
            rate_per_s=self.max_rate,
            in_flight=limits.in_flight,
            wall_clock_s=limits.wall_clock_s,
        )

    def build_bursts(self, plan: Plan) -> Bursts:
        """The closed loop."""
        arrival = plan.scenario.arrival
        return Bursts(arrival.size if isinstance(arrival, Burst) else self.num_processes, self.delay)


def build_pace(flags: SubmitFlags) -> SubmissionPace:
    """The pace that the flags ask for."""
    return SubmissionPace(flags.delay, flags.max_rate, flags.num_processes)


def read_pace(folder: Path) -> SubmissionPace:
    """The pace that the submission in this folder was begun with."""
    try:
        return SubmissionPace(**run_folder.load_run(folder).record["config"][_KEY])
    except (KeyError, TypeError) as error:
        raise InputError(
            "not a submission that can be resumed", where=folder, found=str(error)[:120], do=_ANEW
        ) from None


def check_same_cluster(folder: Path, facts: ClusterFacts) -> None:
    """Go on only on the cluster that the submission in this folder began on.

    What was accepted there would not be missed here, and the rest would be made here.
    """
    test = run_conditions.read_conditions(folder)
    if facts.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is another cluster than the one that the submission began on",
            where=f"context {facts.context}",
            found=facts.fingerprint,
            allowed=f"{test.fingerprint} (context {test.context})",
            do=f"name that one, or {_ANEW}",
        )


@dataclass(frozen=True)
class SubmitWay:
    """How objects are made.

    `words`: Of the command, with `{name}`, `{namespace}`, `{gpus}` and `{file}` filled in; no shell sees them.
    """

    with_: str = "api"
    kubectl: Path | None = None
    words: tuple[str, ...] = ()
    kubeconfig: Path | None = None

    def build_submitter(self, api: Connection) -> Submitter:
        """The one that makes them."""
        if self.with_ not in MODES:
            raise ConfigError("no such way", where="--submit-with", found=self.with_[:40], allowed=MODES)
        if (self.with_ == "command") != bool(self.words):
            raise ConfigError("a command is for --submit-with command", where="--command", do="give both, or none")
        if self.with_ == "kubectl":
            return KubectlSubmitter(self.kubeconfig, api.target.context, self.kubectl)
        return CommandSubmitter(self.words) if self.with_ == "command" else ApiSubmitter(api)


@dataclass(frozen=True)
class SubmissionResult:
    """What came of it, and where it is."""

    folder: Path
    file: Path
    outcome: SubmissionOutcome
    sent: int

    def to_dict(self) -> dict[str, Any]:
        """Document of `submit --json`."""
        outcome = self.outcome
        return {
            "folder": str(self.folder),
            "file": str(self.file),
            "planned": outcome.planned,
            "submitted": self.sent,
            "failed": outcome.failed,
            "rate_per_s": None if outcome.rate_per_s is None else round(outcome.rate_per_s, 3),
            "reason": outcome.reason,
            "first_failure": outcome.first_failure,
        }

    def format_text(self) -> str:
        """Lines for a terminal."""
        outcome = self.outcome
        lines = [f"{self.sent} of {outcome.planned} submitted, {outcome.failed} failed: {outcome.reason}"]
        if outcome.rate_per_s is not None:
            lines.append(f"  {round(outcome.rate_per_s, 3):g} per second")
        if outcome.first_failure:
            lines.append(f"  first failure: {outcome.first_failure}")
        return "\n".join([*lines, f"  {self.file}"])


async def run_submission(
    target: Target,
    flags: SubmitFlags,
    out: Path,
    *,
    way: SubmitWay | None = None,
    closed: bool = False,
    confirmed: str | None = None,
    resume: bool = False,
    admin: Target | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> SubmissionResult:
    """Submit exactly so many workloads, in bursts.

    `closed`: Run:ai's timing: each burst waits for the one before it, then for the delay.
    `resume`: Continue the submission in `out`, on the same cluster and with its own flags.
    `admin`: Administrator of a local cluster; namespace and rights are created there too.
    """
    chosen, out = way or SubmitWay(), out.absolute()
    plan = _load_or_draw_plan(flags, out, resume=resume)
    closed = run_conditions.read_conditions(out).closed if resume else closed
    speed = read_pace(out) if resume else build_pace(flags)
    async with Connection(target, max_connections=64) as api:
        facts = await safety.confirm_cluster(api, target, plan.scenario, confirmed)
        if resume:
            check_same_cluster(out, facts)
        submitter = chosen.build_submitter(api)
        if admin is not None:
            await _set_up_namespace(admin, plan)
        await _check_cluster(api, plan, facts, by_command=not submitter.labelled, patient=admin is not None)
        tell(UNWATCHED if submitter.labelled else f"{UNWATCHED}; {UNLABELLED}")
        folder = out if resume else _create_run_folder(out, plan, facts, submitter.mode, speed, closed=closed)
        await safety.write_run_record(api, plan)
        with _stop_on_signals() as stop_request:
            outcome = await submit_plan(
                api,
                plan.iterate_workloads(),
                folder,
                run=plan.run,
                limits=speed.build_limits(plan),
                aborts=build_abort_limits(plan),
                submitter=submitter,
                bursts=speed.build_bursts(plan) if closed else None,
                asked=stop_request,
                watcher=SavingWatcher(folder, plan, tell),
            )
    sent = write_submitted_file(folder, plan)
    run_folder.load_run(folder).end("succeeded" if sent == len(plan) else "failed")
    return SubmissionResult(folder, folder / "submitted.json", outcome, sent)


def check_flags(flags: SubmitFlags, *, resume: bool) -> None:
    """Refuse flags that cannot be, before any cluster is looked for."""
    if not resume:
        build_scenario(flags)


def write_submitted_file(folder: Path, plan: Plan) -> int:
    """Write submitted.json of the journal so far; how many it names."""
    at_us = {
        line.index: line.sent_ns // 1000
        for line in run_records.read_lines(folder / run_records.JOURNAL, run_records.JournalLine)
        if isinstance(line, run_records.Acked)
    }
    places = plan.schedule.select("index", "name", "namespace").iter_rows()
    sent = [
        SentWorkload(name, find_project(space), space, at_us[index]) for index, name, space in places if index in at_us
    ]
    runai_files.write_submitted_json(folder, sent)
    return len(sent)


class SavingWatcher:
    """Tells how it goes and keeps submitted.json fresh: the old sampler and plotter can be run meanwhile."""

    def __init__(self, folder: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._folder, self._plan, self._tell = folder, plan, tell
        self._next_s = time.monotonic() + _SAVE_EVERY_S

    def show_status(self, live: SubmissionStatus) -> None:
        """Every two seconds, or less often where writing takes long."""
        begin_s = time.monotonic()
        if begin_s < self._next_s:
            return
        write_submitted_file(self._folder, self._plan)
        end_s = time.monotonic()
        self._next_s = end_s + max(_SAVE_EVERY_S, 20 * (end_s - begin_s))
        self._tell(f"{live.acked} of {live.planned} submitted, {live.failed} failed, {live.rate_per_s:.1f} a second")

    def say(self, line: str) -> None:
        """Something that a person should read."""
        self._tell(line)


def _load_or_draw_plan(flags: SubmitFlags, out: Path, *, resume: bool) -> Plan:
    begun = (out / run_records.JOURNAL).exists() or (out / run_folder.RECORD_FILE).exists()
    if resume:
        if not begun:
            raise ConfigError("no submission to resume", where=out, do="remove --resume")
        return scenario.read_plan(out)
    if begun:
        raise ConfigError(
            "the folder holds a submission already",
            where=f"-o, --output-dir {out}",
            do="choose another folder, or add --resume",
        )
    return scenario.draw_plan(build_scenario(flags))


async def _check_cluster(
    api: Connection, plan: Plan, facts: safety.ClusterFacts, *, by_command: bool, patient: bool
) -> None:
    """Refuse what must not begin; rights that were just granted are known to the API server a moment later."""
    end_s = time.monotonic() + (_RIGHTS_LIMIT_S if patient else 0)
    while True:
        findings = await safety.run_preflight(api, plan, facts, by_command=by_command)
        if (
            not any(finding.level == "refused" and finding.check in _GRANTED for finding in findings)
            or time.monotonic() >= end_s
        ):
            safety.raise_refusals(findings)
            return
        await asyncio.sleep(_AGAIN_S)


async def _set_up_namespace(admin: Target, plan: Plan) -> None:
    """Namespace and rights, to look at what the workloads become too."""
    async with Connection(admin) as api:
        await safety.set_up_cluster(api, plan, quota=False)
        for namespace in plan.namespaces:
            for manifest in _build_read_rights(namespace):
                await apply_object(api, manifest)


def _build_read_rights(namespace: str) -> list[dict[str, Any]]:
    from workbench.scaletest.local_cluster import identities

    name, group = "workbench-upstream", "rbac.authorization.k8s.io"
    head = {"name": name, "namespace": namespace, "labels": {object_names.MANAGED_BY: object_names.MANAGER}}
    look = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["run.ai"], "resources": ["*"], "verbs": look},
        {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": look},
        {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups", "bindrequests"], "verbs": look},
    ]
    subject = {"kind": "ServiceAccount", "name": identities.ACCOUNT, "namespace": identities.NAMESPACE}
    bound = {"apiGroup": group, "kind": "Role", "name": name}
    version = f"{group}/v1"
    return [
        {"apiVersion": version, "kind": "Role", "metadata": head, "rules": rules},
        {"apiVersion": version, "kind": "RoleBinding", "metadata": head, "roleRef": bound, "subjects": [subject]},
    ]


def _create_run_folder(
    out: Path, plan: Plan, facts: safety.ClusterFacts, mode: str, speed: SubmissionPace, *, closed: bool
) -> Path:
    title = "How long do workloads take? (flags of the older tool)"
    run = run_folder.start_run("scaletest", folder=out, title=title, config=speed.to_config())
    plan.write(run.folder)
    simulated = not plan.scenario.allow_real_nodes or facts.real_nodes == 0
    run_conditions.write_conditions(
        run.folder,
        run_conditions.RunConditions(
            run=plan.run,
            scenario_name=plan.scenario.name,
            scenario_sha256=scenario_file.hash_scenario(plan.scenario),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            context=facts.context,
            fingerprint=facts.fingerprint,
            server_sha256=facts.server_sha256,
            server_version=facts.server_version,
            identity=facts.identity,
            identity_groups=facts.groups,
            namespaces=plan.namespaces,
            schedulers=plan.scenario.schedulers,
            simulated_nodes=simulated,
            local_cluster=facts.own,
            mode=mode,
            closed=closed,
        ),
    )
    return run.folder


@contextlib.contextmanager
def _stop_on_signals() -> Iterator[StopRequest]:
    """Ctrl-C once stops and drains, twice breaks off."""
    stop_request, loop = StopRequest(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop_request.request_stop)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or Windows
        yield stop_request
        return
    try:
        yield stop_request
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
