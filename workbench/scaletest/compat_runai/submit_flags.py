"""Flags and workload templates of Run:ai's submitter, as a scenario."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from pydantic import Field

from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import StrictModel, validate_model
from workbench.scaletest.scenario.safe_yaml import parse_yaml, read_yaml_file
from workbench.scaletest.scenario.scenario_file import Scenario

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


RATE_PER_S = 20.0


OUTPUT, DEFAULT_PROJECT, PROCESSES = "logs", "project-0", 8
_BURST_S, _LEAST_S, _MOST_S = 60.0, 1800.0, 7 * 86_400.0


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
    num_processes: int = Field(default=PROCESSES, description="Workloads per burst.")
    num_gpus: str = Field(default="1", description="GPUs of each pod; 0.5 for a share of one.")
    num_workers: int = Field(default=1, description="Workers of a distributed workload, besides its master.")
    delay: float = Field(
        default=0.0, description="Seconds between bursts: their starts, or with --closed end to start."
    )
    project: str = Field(default=DEFAULT_PROJECT, description="Project; its namespace is runai-PROJECT.")
    pvc: bool = Field(default=False, description="Add a small volume to each workload.")
    template: Path | None = Field(default=None, description="One of that tool's YAML templates, or one like it.")
    max_rate: float = Field(
        default=RATE_PER_S, description="Maximum workloads per second; the rate of bursts without delay."
    )
    allow_real_nodes: bool = Field(default=False, description="Pods may run on real nodes.")
    scheduler: str = Field(default="default", description="Scheduler of the pods: default or kai.")

    @property
    def namespace(self) -> str:
        """Run:ai's namespace of the project."""
        return f"runai-{self.project}"


def build_scenario(flags: SubmitFlags) -> Scenario:
    """The scenario that these flags ask for."""
    check_workload(flags.workload_type, flags.project, flags.num_gpus, flags.num_workers)
    _check_numbers(flags)
    assert flags.workload_type is not None
    arguments = (flags.project, flags.num_gpus, flags.num_workers)
    if flags.template is None:
        template = build_workload(flags.workload_type, *arguments, pvc=flags.pvc)
    else:
        template = read_template(flags.template, *arguments, pvc=flags.pvc)
    distributed = flags.workload_type == "distributed"
    entry = {
        "kind": "Template",
        "name": flags.workload_type,
        "template": template,
        "pods": flags.num_workers + 1 if distributed else 1,
        "gang": distributed,
        "cpus": CPUS,
        "memory": MEMORY_BYTES,
        "priority": None,
        **_parse_gpus(flags.num_gpus),
    }
    every_s = flags.delay or flags.num_processes / flags.max_rate
    fields = {
        "name": f"upstream-{flags.workload_type}",
        "schedulers": [flags.scheduler],
        "namespaces": [flags.namespace],
        "arrival": {"process": "burst", "size": flags.num_processes, "every_s": every_s, "n": flags.num_workloads},
        "workloads": [entry],
        "limits": _build_limits(flags, every_s),
        "allow_real_nodes": flags.allow_real_nodes,
    }
    return validate_model(Scenario, fields, noun="scenario", where="the template and the flags", error_type=ConfigError)


def _build_limits(flags: SubmitFlags, every_s: float) -> dict[str, float]:
    """What the submission may ask of the cluster; the bursts may take a minute each: a closed loop waits for them."""
    workloads = flags.num_workloads or 0
    longest_s = math.ceil(workloads / flags.num_processes) * (every_s + _BURST_S)
    return {
        "objects": max(1000, workloads),
        "rate_per_s": _peak_rate(flags, every_s),
        "in_flight": max(64, flags.num_processes),
        "wall_clock_s": min(max(_LEAST_S, longest_s), _MOST_S),
    }


def _check_numbers(flags: SubmitFlags) -> None:
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


def _peak_rate(flags: SubmitFlags, every_s: float) -> float:
    """The rate limit of the plan: a burst may exceed the rate, the average over time may not."""
    if flags.num_processes / every_s > flags.max_rate * (1 + 1e-9):
        raise ConfigError(
            "faster than is allowed",
            where="-p, --delay",
            found=f"{flags.num_processes / every_s:g} a second",
            allowed=f"{flags.max_rate:g} a second",
            do="a longer --delay, fewer -p, or a higher --max-rate where the cluster may be asked for it",
        )
    return flags.num_processes * max(1.0, 1 / every_s)


def _parse_gpus(text: str) -> dict[str, float | int]:
    value = float(text)
    return {"fraction": value} if 0 < value < 1 else {"gpus": int(value)}
