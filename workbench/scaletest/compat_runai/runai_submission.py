"""Submission by the flags of Run:ai's submitter, with its submitted.json beside our journal."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import StrictModel, validate_model
from workbench.kubernetes.client import Target
from workbench.runs import run_folder
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.compat_runai import runai_files
from workbench.scaletest.compat_runai.delta_chain import find_project
from workbench.scaletest.compat_runai.runai_files import SubmittedJob
from workbench.scaletest.observation import run_records
from workbench.scaletest.safety.cluster_facts import ClusterFacts
from workbench.scaletest.safety.cluster_setup import apply_object, build_role_objects, set_up_cluster
from workbench.scaletest.safety.confirmation import confirm_cluster
from workbench.scaletest.safety.run_cleanup import write_run_record
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.arrival_processes import Burst
from workbench.scaletest.scenario.safe_yaml import parse_yaml, read_yaml_file
from workbench.scaletest.scenario.scenario_file import Scenario, ScenarioLimits
from workbench.scaletest.scenario.workload_plan import Plan, draw_plan, read_plan
from workbench.scaletest.submission.plan_submission import PlanSubmission, SubmissionOutcome, SubmissionStatus
from workbench.scaletest.test_run.run_console import NotBegunError, SilentRunWatcher, run_in_thread, run_until_stop
from workbench.scaletest.test_run.run_lifecycle import RunContext, build_run_conditions, check_cluster
from workbench.scaletest.test_run.run_options import RunOptions, build_options

Json = dict[str, Any]
TYPES = ("training", "distributed", "interactive")
NAME, PROJECT, WORKERS, GPUS = "JOB_NAME_PLACEHOLDER", "PROJECT_PLACEHOLDER", "NUM_WORKERS_PLACEHOLDER", "NUM_GPUS"
_KINDS = {"training": "TrainingWorkload", "distributed": "DistributedWorkload", "interactive": "InteractiveWorkload"}
_PROJECT = re.compile(r"[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?")
_GPUS = re.compile(r"\d{1,2}|0\.\d{1,3}")
CPUS, MEMORY_BYTES = 0.05, 1 << 20
# Cannot be pulled: these workloads are for simulated nodes.
_IMAGE = "simulated.invalid/nothing:none"
STORAGE_CLASS = "openebs-lvmpv"
_BURST_S, _LEAST_S, _MOST_S = 60.0, 1800.0, 7 * 86_400.0
_KEY = "pace"
_ANEW = "start a new submission in another folder"
MODES = ("api", "kubectl", "command")
_SAVE_EVERY_S = 2.0
UNWATCHED = (
    "the cluster is not watched: submission stops at its limits and when requests fail or are slow, but not "
    "when pods wait, pods of others are evicted or a node fails (workbench scaletest run does)"
)
UNLABELLED = "objects that the command creates lack our label: cleanup does not find them"


def check_workload(workload_type: str | None, project: str, gpus: str, workers: int) -> None:
    """Refuse what the old tool would run into."""
    if workload_type not in TYPES:
        raise ConfigError(
            "which type of workload?",
            where="-t, --workload-type",
            found=(workload_type or "")[:40] or None,
            allowed=TYPES,
        )
    if not _PROJECT.fullmatch(project):
        raise ConfigError("not a project", where="--project", found=project[:80], allowed="1 to 57 of a-z, 0-9 and '-'")
    if not _GPUS.fullmatch(gpus):
        raise ConfigError("not a number of GPUs", where="-g, --num-gpus", found=gpus[:20], allowed="0 to 99, or 0.1")
    if not 1 <= workers <= 512:
        raise ConfigError("not a number of workers", where="--num-workers", found=workers, allowed="1 to 512")


def build_workload(workload_type: str, project: str, gpus: str, workers: int, *, pvc: bool = False) -> Json:
    """A workload of this type with the fields that the chain needs; `${name}` stands for its name."""
    fields: Json = {
        "name": "${name}",
        "gpu": gpus,
        "cpu": f"{CPUS:g}",
        "memory": "1Mi",
        "image": _IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": "sleep infinity",
    }
    spec: Json = {field: {"value": value} for field, value in fields.items()}
    if workload_type == "distributed":
        spec |= {"jobType": "PyTorchJob", "workers": {"value": workers}}
    if pvc:
        spec["pvcs"] = build_volume()
    return {
        "apiVersion": "run.ai/v2alpha1",
        "kind": _KINDS[workload_type],
        "metadata": {"name": "${name}", "namespace": f"runai-{project}"},
        "spec": spec,
    }


def build_volume() -> Json:
    """`spec.pvcs` with one small volume that goes with its workload."""
    value = {
        "claimName": "",
        "ephemeral": True,
        "existingPvc": False,
        "path": "/path-new",
        "readOnly": False,
        "readWriteOnce": True,
        "size": "1Mi",
        "storageClass": STORAGE_CLASS,
    }
    return {"items": {"pvc-new-0": {"value": value}}}


def read_template(path: str | Path, project: str, gpus: str, workers: int, *, pvc: bool = False) -> Json:
    """Read a template of Run:ai's tool, including additional fields.

    Its placeholders for numbers and the project are filled in as text, for there they may stand for a number or within
    a text; the name is filled in later, workload by workload.
    """
    where = Path(path)
    # Validates size and YAML aliases.
    read_yaml_file(where)
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the template", where=where, found=str(error)[:120]) from None
    if "${" in text:
        raise InputError("a placeholder that is not the old tool's", where=where, found="${", do="use plan and run")
    for placeholder, value in ((PROJECT, project), (WORKERS, str(workers)), (GPUS, gpus)):
        text = text.replace(placeholder, value)
    template = _replace_name(parse_yaml(text, str(where)).value)
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise InputError("not a template of a workload", where=where, allowed="one YAML document with a spec")
    if (template.get("metadata") or {}).get("name") != "${name}":
        raise InputError("all workloads would have one name", where=where, do=f"metadata.name: {NAME}")
    template.pop("status", None)
    if pvc and "pvcs" not in template["spec"]:
        template["spec"]["pvcs"] = build_volume()
    return template


def _replace_name(value: Any) -> Any:
    if isinstance(value, dict):
        return {_replace_name(key): _replace_name(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_name(item) for item in value]
    return value.replace(NAME, "${name}") if isinstance(value, str) else value


class SubmitFlags(StrictModel):
    """A submission by the names of Run:ai's flags; `check_workload` and `build_scenario` check the values."""

    workload_type: str | None = Field(default=None, description="training, distributed or interactive.")
    num_workloads: int | None = Field(default=None, description="Number of workloads, exactly.")
    num_processes: int = Field(default=8, description="Workloads per burst.")
    num_gpus: str = Field(default="1", description="GPUs of each pod; 0.5 for a share of one.")
    num_workers: int = Field(default=1, description="Workers of a distributed workload, besides its master.")
    delay: float = Field(
        default=0.0, description="Seconds between bursts: their starts, or with --closed end to start."
    )
    project: str = Field(default="project-0", description="Project; its namespace is runai-PROJECT.")
    pvc: bool = Field(default=False, description="Add a small volume to each workload.")
    template: Path | None = Field(default=None, description="One of that tool's YAML templates, or one like it.")
    max_rate: float = Field(default=20.0, description="Maximum workloads per second; the rate of bursts without delay.")
    allow_real_nodes: bool = Field(default=False, description="Pods may run on real nodes.")
    scheduler: str = Field(default="default", description="Scheduler of the pods: default or kai.")


def build_scenario(flags: SubmitFlags) -> Scenario:
    """Build the scenario that these flags ask for."""
    check_workload(flags.workload_type, flags.project, flags.num_gpus, flags.num_workers)
    if flags.num_workloads is None:
        raise ConfigError("how many workloads?", where="-n, --num-workloads", allowed="1 to 1000000")
    bounds = (
        ("-n, --num-workloads", flags.num_workloads, 1, 1_000_000),
        ("-p, --num-processes", flags.num_processes, 1, 1024),
        ("--delay", flags.delay, 0, 86_400),
        ("--max-rate", flags.max_rate, 0.001, 10_000),
    )
    for where, value, low, high in bounds:
        if not low <= value <= high:
            raise ConfigError("out of bounds", where=where, found=value, allowed=f"{low} to {high}")
    assert flags.workload_type is not None
    arguments = (flags.project, flags.num_gpus, flags.num_workers)
    if flags.template is None:
        template = build_workload(flags.workload_type, *arguments, pvc=flags.pvc)
    else:
        template = read_template(flags.template, *arguments, pvc=flags.pvc)
    distributed, gpus = flags.workload_type == "distributed", float(flags.num_gpus)
    entry: Json = {"kind": "Template", "name": flags.workload_type, "template": template}
    entry |= {"gang": distributed, "priority": None} | ({"fraction": gpus} if 0 < gpus < 1 else {})
    # A kind whose pods are known says itself what they request, once the flags' values are in it.
    if template.get("kind") not in manifest_rules.POD_TEMPLATE_PATHS:
        entry |= {"pods": flags.num_workers + 1 if distributed else 1, "cpus": CPUS, "memory": MEMORY_BYTES}
        entry |= {} if 0 < gpus < 1 else {"gpus": int(gpus)}
    every_s = flags.delay or flags.num_processes / flags.max_rate
    rate_per_s = flags.num_processes / every_s
    # A burst may exceed the rate, the average over time may not.
    if rate_per_s > flags.max_rate * (1 + 1e-9):
        raise ConfigError(
            "faster than is allowed",
            where="-p, --delay",
            found=f"{rate_per_s:g} a second",
            allowed=f"{flags.max_rate:g} a second",
            do="a longer --delay, fewer -p, or a higher --max-rate where the cluster may be asked for it",
        )
    # Its bursts may take a minute each, since a closed loop waits for them.
    longest_s = math.ceil(flags.num_workloads / flags.num_processes) * (every_s + _BURST_S)
    limits = {
        "objects": max(1000, flags.num_workloads),
        "rate_per_s": flags.num_processes * max(1.0, 1 / every_s),
        "in_flight": max(64, flags.num_processes),
        "wall_clock_s": min(max(_LEAST_S, longest_s), _MOST_S),
    }
    fields = {
        "name": f"upstream-{flags.workload_type}",
        "schedulers": [flags.scheduler],
        "namespaces": [f"runai-{flags.project}"],
        "arrival": {"process": "burst", "size": flags.num_processes, "every_s": every_s, "n": flags.num_workloads},
        "workloads": [entry],
        "limits": limits,
        "allow_real_nodes": flags.allow_real_nodes,
    }
    return validate_model(Scenario, fields, noun="scenario", where="the template and the flags", error_type=ConfigError)


@dataclass(frozen=True)
class SubmissionPace:
    """Pace of a submission, which a scenario cannot express."""

    delay: float
    max_rate: float
    num_processes: int

    def build_limits(self, plan: Plan) -> ScenarioLimits:
        """The plan's limits at this rate."""
        return plan.scenario.limits.model_copy(update={"rate_per_s": self.max_rate})

    def get_burst_size(self, plan: Plan) -> int:
        """Workloads of a burst of the closed loop."""
        arrival = plan.scenario.arrival
        return arrival.size if isinstance(arrival, Burst) else self.num_processes


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
    test = run_records.read_conditions(folder)
    if facts.fingerprint != test.fingerprint:
        raise ConfigError(
            "this is not the cluster on which the submission began",
            where=f"context {facts.context}",
            found=facts.fingerprint,
            allowed=f"{test.fingerprint} (context {test.context})",
            do=f"name that one, or {_ANEW}",
        )


def build_run_options(submit_with: str, kubectl: Path | None, command: tuple[str, ...], *, closed: bool) -> RunOptions:
    """Build the run options that say how objects are created.

    `command`: Words, with `{name}`, `{namespace}`, `{gpus}` and `{file}` filled in; no shell sees them.
    """
    if submit_with not in MODES:
        raise ConfigError("no such way", where="--submit-with", found=submit_with[:40], allowed=MODES)
    if (submit_with == "command") != bool(command):
        raise ConfigError("a command is for --submit-with command", where="--command", do="give both, or none")
    program = shutil.which("kubectl") if kubectl is None else str(kubectl)
    return build_options(submit_with=submit_with, submit_command=command, kubectl=program, closed=closed)


@dataclass(frozen=True)
class SubmissionResult:
    """Result of a submission, and where it is."""

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


def run_submission(
    context: RunContext, flags: SubmitFlags, out: Path, *, resume: bool = False, tell: Callable[[str], None]
) -> SubmissionResult:
    """Submit the workloads of the flags, in bursts.

    `resume`: Continue the submission in `out`, on the same cluster and with its own flags.
    """
    out = out.absolute()
    plan = _load_or_draw_plan(flags, out, resume=resume)
    closed = run_records.read_conditions(out).closed if resume else context.options.closed
    pace, place = read_pace(out) if resume else build_pace(flags), context.place
    watcher = SavingWatcher(out, plan, tell)

    async def prepare(api: Connection) -> ClusterFacts:
        facts = await confirm_cluster(api, plan.scenario, context.confirmed)
        if resume:
            check_same_cluster(out, facts)
        if place.admin is not None:
            await _set_up_namespace(place.admin, plan)
        by_command = context.options.submit_with == "command"
        # As the tool that it stands in for, it submits beside whatever is there.
        await check_cluster(
            api, plan, facts, patient=place.admin is not None, by_command=by_command, beside_others=True
        )
        return facts

    async def body() -> SubmissionOutcome:
        async with Connection(place.target, max_connections=64) as api:
            submitter = context.options.build_submitter(api, place)
            facts = await run_until_stop(context.asked, prepare(api))
            if facts is None or context.asked.times:
                raise NotBegunError
            tell(UNWATCHED if submitter.labelled else f"{UNWATCHED}; {UNLABELLED}")
            if not resume:
                _create_run_folder(out, plan, facts, context, pace)
            await write_run_record(api, plan)
            submission = PlanSubmission(
                api,
                out,
                run=plan.run,
                limits=pace.build_limits(plan),
                aborts=plan.scenario.abort,
                submitter=submitter,
                burst_size=pace.get_burst_size(plan) if closed else None,
                burst_delay_s=pace.delay,
                asked=context.asked,
                watcher=watcher,
            )
            return await submission.submit(plan.iterate_workloads())

    outcome = run_in_thread(body, context.asked, watcher)
    sent = write_submitted_file(out, plan)
    run_folder.load_run(out).end("succeeded" if sent == len(plan) else "failed")
    return SubmissionResult(out, out / "submitted.json", outcome, sent)


def write_submitted_file(folder: Path, plan: Plan) -> int:
    """Write submitted.json of the journal so far; how many it names."""
    at_ns = {
        line.index: line.sent_ns
        for line in run_records.read_lines(folder / run_records.JOURNAL, run_records.JournalLine)
        if isinstance(line, run_records.Acked)
    }
    places = plan.schedule.select("index", "name", "namespace").iter_rows()
    sent = [
        SubmittedJob(name, find_project(space), space, at_ns[index]) for index, name, space in places if index in at_ns
    ]
    runai_files.write_submitted_json(folder, sent)
    return len(sent)


class SavingWatcher(SilentRunWatcher):
    """Tells how it goes and keeps submitted.json fresh: the old sampler and plotter can be run meanwhile."""

    def __init__(self, folder: Path, plan: Plan, tell: Callable[[str], None]) -> None:
        self._folder, self._plan, self._tell = folder, plan, tell
        self._next_s = time.monotonic() + _SAVE_EVERY_S

    def show_status(self, live: SubmissionStatus) -> None:
        """Write submitted.json every two seconds, or less often where writing takes long."""
        begin_s = time.monotonic()
        if begin_s < self._next_s:
            return
        write_submitted_file(self._folder, self._plan)
        end_s = time.monotonic()
        self._next_s = end_s + max(_SAVE_EVERY_S, 20 * (end_s - begin_s))
        self._tell(f"{live.acked} of {live.planned} submitted, {live.failed} failed, {live.rate_per_s:.1f} a second")

    def say(self, line: str) -> None:
        """Show a message that a person should read."""
        self._tell(line)


def _load_or_draw_plan(flags: SubmitFlags, out: Path, *, resume: bool) -> Plan:
    begun = (out / run_records.JOURNAL).exists() or (out / run_folder.RECORD_FILE).exists()
    if resume:
        if not begun:
            raise ConfigError("no submission to resume", where=out, do="remove --resume")
        return read_plan(out)
    if begun:
        raise ConfigError(
            "the folder holds a submission already",
            where=f"-o, --output-dir {out}",
            do="choose another folder, or add --resume",
        )
    return draw_plan(build_scenario(flags))


async def _set_up_namespace(admin: Target, plan: Plan) -> None:
    """Namespace and rights, to look at what the workloads become too."""
    async with Connection(admin) as api:
        await set_up_cluster(api, plan, quota=False)
        look = ["get", "list", "watch"]
        rules = [
            {"apiGroups": ["run.ai"], "resources": ["*"], "verbs": look},
            {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": look},
            {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups", "bindrequests"], "verbs": look},
        ]
        for namespace in plan.namespaces:
            for manifest in build_role_objects("workbench-upstream", rules, namespace):
                await apply_object(api, manifest)


def _create_run_folder(out: Path, plan: Plan, facts: ClusterFacts, context: RunContext, pace: SubmissionPace) -> None:
    title = "How long do workloads take? (flags of the older tool)"
    run_folder.start_run("scaletest", folder=out, title=title, config={_KEY: dataclasses.asdict(pace)})
    plan.write(out)
    test = build_run_conditions(plan, facts, context, ())
    # No sampler runs beside it.
    unwatched = {"watches_pods_of_others": False, "reads_audit_log": False, "local_cluster": facts.own, "notes": ()}
    run_records.write_conditions(out, test.model_copy(update=unwatched))
