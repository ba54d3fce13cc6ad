"""Scenario files: YAML that describes a test, its limits and abort criteria, with all mistakes reported by line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from workbench.core import files
from workbench.core.errors import InputError
from workbench.core.schema import FiniteModel
from workbench.scaletest.scenario import arrival_processes
from workbench.scaletest.scenario.safe_yaml import Document, parse_yaml, read_yaml_file
from workbench.scaletest.scenario.scheduler_recipes import (
    LABEL,
    SchedulerRecipe,
    find_recipe,
    is_recipe_path,
    resolve_schedulers,
    validate_recipe,
)
from workbench.scaletest.scenario.workload_entries import KEPT, WorkloadEntry

NAMESPACE = "workbench-scaletest"
DEFAULT_SCHEDULER = "default-scheduler"
# Kubernetes' own gang scheduling: the default scheduler with its gates on, and a PodGroup for each gang.
GANG_SCHEDULING = "gang-scheduling"
_FORBIDDEN = re.compile(
    r"default|kube-.*|runai(-system|-backend|-reservation)?|gpu-operator|nvidia-.*|kai-.*|openshift.*|cert-manager|"
    r"istio-system|monitoring|ingress-nginx|kubeflow|calico-.*|cattle-.*|.*-system"
)
_MAX_ERRORS = 20
__all__ = [
    "LABEL",
    "AbortCriteria",
    "NodeChange",
    "Scenario",
    "ScenarioLimits",
    "WorkloadEntry",
    "format_canonical",
    "hash_scenario",
    "is_forbidden_namespace",
    "load_scenario",
    "parse_scenario",
    "read_example",
]
_UNIONS = {"arrival", "lifetime"}
_VARIANTS = {"constant", "poisson", "ramp", "steps", "burst", "trace", "fixed", "uniform", "exponential", "lognormal"}


class ScenarioLimits(FiniteModel):
    """Limits of a run; a plan beyond them is refused before anything is sent.

    `objects`: Objects that are made (a gang: its pods and its PodGroup), in all.
    """

    objects: int = Field(default=1000, ge=1, le=2_000_000)
    rate_per_s: float = Field(default=20.0, gt=0, le=10_000)
    in_flight: int = Field(default=64, ge=1, le=1024)
    pending_pods: int = Field(default=1000, ge=1, le=1_000_000)
    wall_clock_s: float = Field(default=1800.0, ge=10, le=7 * 86_400)


class AbortCriteria(FiniteModel):
    """Criteria for stopping submission immediately; null switches one off. The run is kept and marked invalid.

    `api_p99_s`, `api_p99_for_s`: The 99th percentile of our requests' times is above the first for as long as the
    second.
    `errors_share`, `errors_window_s`: More than this share of our requests ended with a status of 500 or above within
    the window.
    `node_not_ready`: A node that was ready is not; off where `node_changes` are planned.
    """

    no_create_s: float | None = Field(default=30.0, gt=0, le=86_400)
    api_p99_s: float | None = Field(default=5.0, gt=0, le=600)
    api_p99_for_s: float = Field(default=30.0, gt=0, le=3600)
    errors_share: float | None = Field(default=0.05, gt=0, lt=1)
    errors_window_s: float = Field(default=60.0, gt=0, le=3600)
    others_evicted: bool = True
    others_pending_growth: int | None = Field(default=10, ge=1)
    node_not_ready: bool = True
    watch_lag_s: float | None = Field(default=5.0, gt=0, le=600)
    keep_sampling_s: float = Field(default=60.0, ge=0, le=3600)
    cleanup: bool = False


class NodeChange(FiniteModel):
    """Simulated nodes of a local cluster that fail, are drained, or come back while the test runs.

    `do`: `fail`: the node is gone from one moment to the next, as when a cloud takes its machine away; its pods are
    deleted by the cluster's garbage collector. `drain`: no pod is placed on it any more, and its pods are evicted.
    `return`: the nodes that went first are back.
    `nodes`: How many: the last ones of the cluster that are up; for `return` the ones that failed or were drained
    first.
    """

    at_s: float = Field(ge=0, le=7 * 86_400)
    do: Literal["fail", "drain", "return"]
    nodes: int = Field(ge=1, le=20_000)

    def __str__(self) -> str:
        words = {"fail": "failed", "drain": "were drained", "return": "came back"}
        return f"{self.nodes:,} nodes {words[self.do]} at {self.at_s:g} s"


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


OneOrMore = BeforeValidator(_as_tuple)


class Scenario(FiniteModel):
    """A scale test's description.

    `schedulers`: Names of recipes (`default`, `gang`, `kai`, `second`, …), paths of recipes of your own
    (`scheduler.yaml`), or any schedulerName. With several, each is tested on the same plan.
    `node_changes`: What happens to the nodes during the test, on a local cluster only.
    `allow_real_nodes`: Pods may go to nodes that exist. Without it they are fenced to nodes labelled
    workbench.local/sim=true.
    """

    name: str
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    schedulers: Annotated[tuple[str, ...], OneOrMore] = Field(default=(DEFAULT_SCHEDULER,), min_length=1, max_length=8)
    namespaces: Annotated[tuple[str, ...], OneOrMore] = Field(default=(NAMESPACE,), min_length=1, max_length=100)
    arrival: arrival_processes.Arrival
    workloads: tuple[WorkloadEntry, ...] = Field(min_length=1, max_length=100)
    limits: ScenarioLimits = ScenarioLimits()
    abort: AbortCriteria = AbortCriteria()
    allow_real_nodes: bool = False
    recipes: tuple[SchedulerRecipe, ...] = Field(default=(), max_length=8)
    node_changes: tuple[NodeChange, ...] = Field(default=(), max_length=100)

    @model_validator(mode="before")
    @classmethod
    def _expand_short_forms(cls, raw_fields: Any) -> Any:
        """Turn `scheduler` and `namespace` into lists of one."""
        if not isinstance(raw_fields, dict):
            raise ValueError("a scenario is a mapping: name, arrival, workloads, …")
        fields = dict(raw_fields)
        for single, many in (("scheduler", "schedulers"), ("namespace", "namespaces")):
            if single in fields and many not in fields:
                fields[many] = fields.pop(single)
        return fields

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not LABEL.fullmatch(name):
            raise ValueError("must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
        return name

    @field_validator("schedulers")
    @classmethod
    def _check_schedulers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        full_names = tuple(find_recipe(name).name if LABEL.fullmatch(name) else name for name in names)
        if wrong := [name for name in full_names if not LABEL.fullmatch(name)]:
            raise ValueError(f"no name of a scheduler: {wrong[0][:80]!r}")
        if len(set(full_names)) < len(full_names):
            raise ValueError("a scheduler is named twice")
        return full_names

    @field_validator("namespaces")
    @classmethod
    def _check_namespaces(cls, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        for namespace in namespaces:
            if not LABEL.fullmatch(namespace):
                raise ValueError(f"no name of a namespace (1 to 63 of a-z, 0-9 and '-'): {namespace[:80]!r}")
            if is_forbidden_namespace(namespace):
                raise ValueError(f"{namespace} is the cluster's own: give one for tests, such as {NAMESPACE}")
        if len(set(namespaces)) < len(namespaces):
            raise ValueError("a namespace is named twice")
        return namespaces

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        faults = []
        for index, entry in enumerate(self.workloads):
            place = f"workloads[{index}]"
            if entry.namespace is not None and (
                not LABEL.fullmatch(entry.namespace) or is_forbidden_namespace(entry.namespace)
            ):
                faults.append(f"{place}.namespace: {entry.namespace} is the cluster's own, or no name of a namespace")
            if entry.fraction is not None and DEFAULT_SCHEDULER in self.schedulers:
                faults.append(
                    f"{place}.fraction: {DEFAULT_SCHEDULER} knows whole GPUs only; use gpus, or scheduler kai"
                )
            if self.allow_real_nodes and entry.kind != "Template" and not entry.image:
                faults.append(f"{place}.image: on nodes that exist an image is needed (one that has `sleep`)")
        named = [entry.display_name(index) for index, entry in enumerate(self.workloads)]
        if len(set(named)) < len(named):
            faults.append("workloads: two entries have one name; give each its own `name`")
        gone = 0
        for index, change in enumerate(self.node_changes):
            if index and change.at_s < self.node_changes[index - 1].at_s:
                faults.append(f"node_changes[{index}].at_s: earlier than the previous one")
            gone += -change.nodes if change.do == "return" else change.nodes
            if gone < 0:
                faults.append(f"node_changes[{index}].nodes: more come back than are gone")
                break
        faults += _check_trace(self.arrival, dict(zip(named, self.workloads, strict=True)))
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @model_validator(mode="after")
    def _check_template_schedulers(self, info: ValidationInfo) -> Self:
        """A template's own schedulerName is used, and refused beside another one that the scenario names."""
        if "schedulers" in self.model_fields_set and not (info.context or {}).get("kept"):
            names = {find_recipe(name, self.recipes).pods_scheduler for name in self.schedulers}
            for index, entry in enumerate(self.workloads):
                if entry.scheduler_name is not None and names != {entry.scheduler_name}:
                    raise ValueError(
                        f"workloads[{index}].template: its pods name the scheduler {entry.scheduler_name}, and the "
                        f"scenario names {', '.join(sorted(names))}; write ${{scheduler}} into the template, or leave "
                        "one of the two out"
                    )
        return self


def _check_trace(arrival: arrival_processes.Arrival, entries: dict[str, WorkloadEntry]) -> list[str]:
    """List the faults of a trace's arrivals: entries that do not exist, or that have no lifetime to be replaced."""
    if not isinstance(arrival, arrival_processes.Trace):
        return []
    faults = []
    used = set(entries if arrival.entries is None else arrival.entries)
    if unknown := sorted(used - entries.keys()):
        faults.append(
            f"arrival.entries: no workload is named {unknown[0][:80]!r}; there are {', '.join(entries)[:300]}"
        )
    if arrival.lifetimes_s is not None:
        endless = [name for name in entries if name in used and entries[name].lifetime is None]
        # The place of a lifetime is in an object only where its entry has one.
        faults += [f"workloads: {name} has no lifetime; with those of a trace, set any, such as 1" for name in endless]
    return faults


def expand_scheduler_name(name: str | None) -> str | None:
    """`default` and `kai` are short for their full names.

    >>> expand_scheduler_name("kai"), expand_scheduler_name("volcano"), expand_scheduler_name(None)
    ('kai-scheduler', 'volcano', None)
    """
    return None if name is None else resolve_schedulers([name])[0][0]


def read_example() -> str:
    """A scenario with all fields explained."""
    return (Path(__file__).parent / "example.yaml").read_text(encoding="utf-8")


def is_forbidden_namespace(namespace: str) -> bool:
    """Is a namespace one that no test may ever use, labelled or not?

    >>> [is_forbidden_namespace(name) for name in ("default", "kube-system", "runai", "workbench-scaletest")]
    [True, True, True, False]
    """
    return _FORBIDDEN.fullmatch(namespace) is not None


def load_scenario(path: str | Path, *, kept: bool = False) -> Scenario:
    """Read a scenario's file; templates and traces that it names are looked up beside it and taken in.

    `kept`: A run wrote it, perhaps one of an earlier version: it is not held against its templates again.
    """
    return _validate_document(read_yaml_file(path), Path(path).parent, kept=kept)


def parse_scenario(text: str | bytes, where: str = "scenario", folder: str | Path | None = None) -> Scenario:
    """Parse a scenario from text; `folder` is where files that it names are (without it, none may be named).

    >>> made = parse_scenario('''
    ... name: first-test
    ... arrival: {process: constant, rate_per_s: 10, n: 100}
    ... workloads:
    ... - {kind: Job, gpus: 1, lifetime: 30}
    ... ''')
    >>> made.workloads[0].kind, made.limits.objects
    ('Job', 1000)
    """
    return _validate_document(parse_yaml(text, where), None if folder is None else Path(folder))


def format_canonical(scenario: Scenario) -> str:
    """The scenario as YAML, every default written out, in one spelling: what is hashed, kept and read again."""
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = scenario.model_dump(mode="json", exclude_none=False)
    # Scenarios of earlier versions keep their hash.
    for name in ("recipes", "node_changes"):
        if not document[name]:
            del document[name]
    for entry, model in zip(document["workloads"], scenario.workloads, strict=True):
        for name in ("node_labels", "owned"):
            if not entry[name]:
                del entry[name]
        # A default is not what was given: the template alone says it.
        for name in ("gpus", "cpus", "memory", "pods") if model.kind == "Template" else ():
            if name not in model.model_fields_set:
                del entry[name]
    if "schedulers" not in scenario.model_fields_set and any(model.scheduler_name for model in scenario.workloads):
        del document["schedulers"]
    for name in ("entries", "lifetimes_s"):
        if document["arrival"].get(name, "") is None:
            del document["arrival"][name]
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))


def hash_scenario(scenario: Scenario) -> str:
    """Hash of the canonical text."""
    return hashlib.sha256(format_canonical(scenario).encode()).hexdigest()


def _validate_document(document: Document, folder: Path | None, *, kept: bool = False) -> Scenario:
    try:
        fields = _include_files(document, folder)
        return Scenario.model_validate(fields, context=KEPT if kept else None)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        # Entries that are wrong are not counted: "too few" is no mistake of its own then.
        mistakes = [
            mistake
            for mistake in errors
            if not (mistake["type"] == "too_short" and _has_deeper_error(mistake["loc"], errors))
        ]
        texts = [_format_error(mistake, document) for mistake in mistakes]
        more = [f"and {len(texts) - _MAX_ERRORS} more"] if len(texts) > _MAX_ERRORS else []
        raise InputError(
            f"the scenario has {len(texts)} mistake(s)",
            where=document.where,
            found="".join(f"\n    {text}" for text in [*texts[:_MAX_ERRORS], *more]),
            do="workbench scaletest plan --example prints one with all fields explained",
        ) from None


def _has_deeper_error(loc: tuple[Any, ...], errors: Sequence[Any]) -> bool:
    return any(len(error["loc"]) > len(loc) and error["loc"][: len(loc)] == loc for error in errors)


def _format_error(error: Any, document: Document) -> str:
    """Write a validation error of Pydantic as one line: line of the file, field, message, value found."""
    loc = error["loc"]
    # Pydantic puts the chosen variant's name behind the field of a union.
    place = tuple(part for at, part in enumerate(loc) if not (at and loc[at - 1] in _UNIONS and part in _VARIANTS))
    line = document.find_line(place)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "there is no such field"
    elif error["type"] == "missing":
        message = "is missing"
    value = error.get("input")
    shown = f" (found: {str(value)[:60]!r})" if isinstance(value, str | int | float) else ""
    return f"{f'line {line}: ' if line else ''}{field + ': ' if field else ''}{message}{shown}"


def _include_files(document: Document, folder: Path | None) -> Any:
    """Copy the files that a scenario names into its value, so that a stored run needs no other file."""
    fields = document.value
    if not isinstance(fields, dict):
        return fields
    arrival = fields.get("arrival")
    if isinstance(arrival, dict) and isinstance(arrival.get("file"), str):
        arrival_fields = {key: value for key, value in arrival.items() if key != "file"}
        text = _read_beside(folder, arrival["file"], "arrival.file").decode(errors="replace")
        try:
            fields = fields | {"arrival": arrival_fields | arrival_processes.parse_trace(text)}
        except ValueError as error:
            raise InputError("not a trace", where=f"{document.where}, arrival.file", found=str(error)) from None
    fields = _include_recipes(fields, document, folder)
    entries = fields.get("workloads")
    if isinstance(entries, list):
        fields = fields | {
            "workloads": [_include_manifests(entry, index, folder) for index, entry in enumerate(entries)]
        }
    return fields


def _include_recipes(fields: dict[str, Any], document: Document, folder: Path | None) -> dict[str, Any]:
    """Copy the recipe files that schedulers name into the scenario, and name the recipes in their place."""
    field = "scheduler" if "scheduler" in fields else "schedulers"
    named = fields.get(field)
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    paths = [name for name in names if isinstance(name, str) and is_recipe_path(name)]
    if not paths:
        return fields
    read = {}
    for path in paths:
        value = parse_yaml(_read_beside(folder, path, field), f"{field} {path[:200]}").value
        read[path] = validate_recipe(value, f"{document.where}, {field}: {path[:200]}")
    other_fields = {key: value for key, value in fields.items() if key != field}
    recipes = [*(fields.get("recipes") or []), *(recipe.model_dump(mode="json") for recipe in read.values())]
    return other_fields | {
        "schedulers": [read[name].name if name in read else name for name in names],
        "recipes": recipes,
    }


def _include_manifests(entry: Any, index: int, folder: Path | None) -> Any:
    """Copy the manifest files that a workload entry names into the entry."""
    if not isinstance(entry, dict):
        return entry

    def read(source: Any, where: str) -> Any:
        if not isinstance(source, str):
            return source
        return parse_yaml(_read_beside(folder, source, where), f"{where} {source[:200]}").value

    place, fields = f"workloads[{index}]", dict(entry)
    if "template" in fields:
        fields["template"] = read(fields["template"], f"{place}.template")
    if isinstance(owned := fields.get("owned"), list):
        fields["owned"] = [read(manifest, f"{place}.owned[{number}]") for number, manifest in enumerate(owned)]
    return fields


def _read_beside(folder: Path | None, name: str, where: str) -> bytes:
    """A file that a scenario names: below its own folder, so that a scenario from elsewhere reads nothing else."""
    if folder is None:
        raise InputError("a file cannot be named here", where=where, do="write its content into the scenario")
    try:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()):
            return files.read_up_to(path, 64 << 20)
        raise InputError("a file outside the scenario's folder", where=where, found=name[:200], do="copy it beside")
    except InputError as error:
        raise InputError(error.what, where=where, found=name[:200], do=error.facts["do"]) from None  # type: ignore[arg-type]
    except (OSError, ValueError) as error:
        raise InputError("cannot read the file", where=where, found=f"{name[:200]}: {error}"[:300]) from None
