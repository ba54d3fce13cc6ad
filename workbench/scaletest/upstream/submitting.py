"""Submission by the old tool's flags: by our plan, safety rules and journal, with its submitted.json besides."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workbench import runs
from workbench.errors import ConfigError
from workbench.scaletest import facts, names, planning, records, safety, scenario
from workbench.scaletest.connection import Connection, Target
from workbench.scaletest.driving import Asked, Live, Outcome, submit
from workbench.scaletest.driving.by_api import Api
from workbench.scaletest.driving.by_command import Command
from workbench.scaletest.driving.by_kubectl import Kubectl
from workbench.scaletest.driving.reply import Submitter
from workbench.scaletest.planning import Plan
from workbench.scaletest.running.options import aborts
from workbench.scaletest.safety.setting_up import apply
from workbench.scaletest.upstream import pace, writing
from workbench.scaletest.upstream.flags import Flags
from workbench.scaletest.upstream.flags import scenario as scenario_of
from workbench.scaletest.upstream.pace import Pace
from workbench.scaletest.upstream.writing import Sent, project_of

WAYS = ("api", "kubectl", "command")
_SAVE_EVERY_S = 2.0
_GRANTED, _RIGHTS_LIMIT_S, _AGAIN_S = ("rights", "namespace"), 15.0, 0.25
UNWATCHED = (
    "nobody watches the cluster meanwhile: this ends by its own limits and when requests fail or are slow, but not "
    "when pods wait, pods of others are evicted or a node fails (workbench scaletest run does)"
)
UNLABELLED = "what the command makes has no label of ours: cleanup does not find it"


@dataclass(frozen=True)
class Way:
    """How objects are made.

    Attributes
    ----------
    with_
        api, kubectl or command.
    words
        Of the command, with `{name}`, `{namespace}`, `{gpus}` and `{file}` filled in; no shell sees them.
    """

    with_: str = "api"
    kubectl: Path | None = None
    words: tuple[str, ...] = ()
    kubeconfig: Path | None = None

    def submitter(self, api: Connection) -> Submitter:
        """The one that makes them.

        Raises
        ------
        ConfigError
            There is no such way.
        """
        if self.with_ not in WAYS:
            raise ConfigError("no such way", where="--submit-with", found=self.with_[:40], allowed=WAYS)
        if (self.with_ == "command") != bool(self.words):
            raise ConfigError("a command is for --submit-with command", where="--command", do="give both, or none")
        if self.with_ == "kubectl":
            return Kubectl(self.kubeconfig, api.target.context, self.kubectl)
        return Command(self.words) if self.with_ == "command" else Api(api)


@dataclass(frozen=True)
class Submitted:
    """What came of it, and where it is."""

    folder: Path
    file: Path
    outcome: Outcome
    sent: int


async def run(
    target: Target,
    flags: Flags,
    out: Path,
    *,
    way: Way | None = None,
    closed: bool = False,
    confirmed: str | None = None,
    resume: bool = False,
    admin: Target | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Submitted:
    """Submit exactly so many workloads, in bursts.

    Parameters
    ----------
    out
        The run folder: the journal, the plan, and submitted.json.
    closed
        The old tool's timing: a burst waits for the one before it, then for the delay.
    confirmed
        Fingerprint of the cluster, on first use.
    resume
        Go on with what was begun in `out`, on the same cluster and with the flags that it was begun with; those that
        are given now do not count.
    admin
        The administrator of a local cluster of our own: namespace and rights are made there, too.

    Raises
    ------
    ConfigError
        A flag, the cluster, its namespace, its nodes or its rights do not allow it; nothing was sent then.
    """
    chosen, out = way or Way(), out.absolute()
    plan = _plan(flags, out, resume=resume)
    closed = facts.read(out).closed if resume else closed
    speed = pace.kept(out) if resume else pace.of_flags(flags)
    async with Connection(target, most=64) as api:
        found = await safety.confirm(api, target, plan.scenario, confirmed)
        if resume:
            pace.refuse_other(out, found)
        submitter = chosen.submitter(api)
        if admin is not None:
            await _set_up(admin, plan)
        await _check(api, plan, found, by_command=not submitter.labelled, patient=admin is not None)
        tell(UNWATCHED if submitter.labelled else f"{UNWATCHED}; {UNLABELLED}")
        folder = out if resume else _folder(out, plan, found, submitter.mode, speed, closed=closed)
        await safety.record_run(api, plan)
        with _interruptible() as asked:
            outcome = await submit(
                api,
                plan.planned(),
                folder,
                run=plan.run,
                limits=speed.limits(plan),
                aborts=aborts(plan),
                submitter=submitter,
                bursts=speed.bursts(plan) if closed else None,
                asked=asked,
                watcher=Saving(folder, plan, tell),
            )
    sent = save(folder, plan)
    runs.load(folder).end("succeeded" if sent == len(plan) else "failed")
    return Submitted(folder, folder / "submitted.json", outcome, sent)


def check(flags: Flags, *, resume: bool) -> None:
    """Refuse flags that cannot be, before any cluster is looked for.

    Raises
    ------
    ConfigError
        A flag is missing, or its value is none.
    """
    if not resume:
        scenario_of(flags)


def save(folder: Path, plan: Plan) -> int:
    """Write submitted.json of the journal so far; how many it names."""
    at_us = {
        one.index: one.sent_ns // 1000
        for one in records.read(folder / records.JOURNAL, records.JournalLine)
        if isinstance(one, records.Acked)
    }
    places = plan.schedule.select("index", "name", "namespace").iter_rows()
    sent = [Sent(name, project_of(space), space, at_us[index]) for index, name, space in places if index in at_us]
    writing.write_submitted(folder, sent)
    return len(sent)


class Saving:
    """Tells how it goes and keeps submitted.json fresh: the old sampler and plotter can be run meanwhile."""

    def __init__(self, folder: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._folder, self._plan, self._tell = folder, plan, tell
        self._next_s = time.monotonic() + _SAVE_EVERY_S

    def going(self, live: Live) -> None:
        """Every two seconds, or less often where writing takes long."""
        begin_s = time.monotonic()
        if begin_s < self._next_s:
            return
        save(self._folder, self._plan)
        end_s = time.monotonic()
        self._next_s = end_s + max(_SAVE_EVERY_S, 20 * (end_s - begin_s))
        self._tell(f"{live.acked} of {live.planned} submitted, {live.failed} failed, {live.rate_per_s:.1f} a second")

    def say(self, line: str) -> None:
        """Something that a person should read."""
        self._tell(line)


def _plan(flags: Flags, out: Path, *, resume: bool) -> Plan:
    begun = (out / records.JOURNAL).exists() or (out / runs.RECORD).exists()
    if resume:
        if not begun:
            raise ConfigError("nothing to go on with", where=out, do="leave --resume away")
        return planning.read(out)
    if begun:
        raise ConfigError(
            "the folder holds a submission already",
            where=f"-o, --output-dir {out}",
            do="choose another folder, or go on with it by --resume",
        )
    return planning.plan(scenario_of(flags))


async def _check(api: Connection, plan: Plan, found: safety.TargetFacts, *, by_command: bool, patient: bool) -> None:
    """Refuse what must not begin; rights that were just granted are known to the API server a moment later."""
    end_s = time.monotonic() + (_RIGHTS_LIMIT_S if patient else 0)
    while True:
        findings = await safety.preflight(api, plan, found, by_command=by_command)
        if not any(one.level == "refused" and one.check in _GRANTED for one in findings) or time.monotonic() >= end_s:
            safety.refuse(findings)
            return
        await asyncio.sleep(_AGAIN_S)


async def _set_up(admin: Target, plan: Plan) -> None:
    """Namespace and rights, to look at what the workloads become too."""
    async with Connection(admin) as api:
        await safety.setup(api, plan, quota=False)
        for namespace in plan.namespaces:
            for one in _looking(namespace):
                await apply(api, one)


def _looking(namespace: str) -> list[dict[str, Any]]:
    from workbench.scaletest.localcluster import identity

    name, group = "workbench-upstream", "rbac.authorization.k8s.io"
    head = {"name": name, "namespace": namespace, "labels": {names.MANAGED_BY: names.MANAGER}}
    look = ["get", "list", "watch"]
    rules = [
        {"apiGroups": ["run.ai"], "resources": ["*"], "verbs": look},
        {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": look},
        {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups", "bindrequests"], "verbs": look},
    ]
    subject = {"kind": "ServiceAccount", "name": identity.ACCOUNT, "namespace": identity.NAMESPACE}
    bound = {"apiGroup": group, "kind": "Role", "name": name}
    version = f"{group}/v1"
    return [
        {"apiVersion": version, "kind": "Role", "metadata": head, "rules": rules},
        {"apiVersion": version, "kind": "RoleBinding", "metadata": head, "roleRef": bound, "subjects": [subject]},
    ]


def _folder(out: Path, plan: Plan, found: safety.TargetFacts, mode: str, speed: Pace, *, closed: bool) -> Path:
    title = "How long do workloads take? (flags of the older tool)"
    made = runs.start("scaletest", folder=out, title=title, config=speed.config())
    plan.write(made.folder)
    simulated = not plan.scenario.allow_real_nodes or found.real_nodes == 0
    facts.write(
        made.folder,
        facts.Test(
            run=plan.run,
            scenario_name=plan.scenario.name,
            scenario_sha256=scenario.sha256(plan.scenario),
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            context=found.context,
            fingerprint=found.fingerprint,
            server_sha256=found.server_sha256,
            server_version=found.server_version,
            identity=found.identity,
            identity_groups=found.groups,
            namespaces=plan.namespaces,
            schedulers=plan.scenario.schedulers,
            simulated_nodes=simulated,
            local_cluster=found.own,
            mode=mode,
            closed=closed,
        ),
    )
    return made.folder


@contextlib.contextmanager
def _interruptible() -> Iterator[Asked]:
    """Ctrl-C once stops and drains, twice breaks off."""
    asked, loop = Asked(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, asked.stop)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or Windows
        yield asked
        return
    try:
        yield asked
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
