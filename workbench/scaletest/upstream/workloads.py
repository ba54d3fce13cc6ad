"""Workloads of Run:ai as the old tool submits them: our equivalents of its templates, and its templates as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, InputError
from workbench.scaletest.templates.reading import read_file, read_text

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


def checked(workload_type: str | None, project: str, gpus: str, workers: int) -> None:
    """Refuse what the old tool would run into.

    Raises
    ------
    ConfigError
        A value that is missing or none, with those that are allowed.
    """
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


def built_in(workload_type: str, project: str, gpus: str, workers: int, *, pvc: bool = False) -> Json:
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
        spec["pvcs"] = volume()
    return {
        "apiVersion": "run.ai/v2alpha1",
        "kind": _KINDS[workload_type],
        "metadata": {"name": "${name}", "namespace": f"runai-{project}"},
        "spec": spec,
    }


def volume() -> Json:
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


def of_file(path: str | Path, project: str, gpus: str, workers: int, *, pvc: bool = False) -> Json:
    """A template of the old tool, as it is; any field may have been added.

    Its placeholders for numbers and the project are filled in as text, for there they may stand for a number or within
    a text; the name is filled in later, workload by workload.

    Raises
    ------
    InputError
        It cannot be read, or is no template with a name's placeholder.
    """
    where = Path(path)
    # Read once as it is: bounded, and no YAML that grows.
    read_file(where)
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the template", where=where, found=str(error)[:120]) from None
    if "${" in text:
        raise InputError("a placeholder that is not the old tool's", where=where, found="${", do="use plan and run")
    for placeholder, value in ((PROJECT, project), (WORKERS, str(workers)), (GPUS, gpus)):
        text = text.replace(placeholder, value)
    found = _named(read_text(text, str(where)).value)
    if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
        raise InputError("not a template of a workload", where=where, allowed="one YAML document with a spec")
    if (found.get("metadata") or {}).get("name") != "${name}":
        raise InputError("all workloads would have one name", where=where, do=f"metadata.name: {NAME}")
    found.pop("status", None)
    if pvc and "pvcs" not in found["spec"]:
        found["spec"]["pvcs"] = volume()
    return found


def _named(value: Any) -> Any:
    if isinstance(value, dict):
        return {_named(key): _named(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item) for item in value]
    return value.replace(NAME, "${name}") if isinstance(value, str) else value
