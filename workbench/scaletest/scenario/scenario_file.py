"""Scenario files: YAML that describes a test, its limits and abort criteria, with all mistakes reported by line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

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
from workbench.scaletest.scenario.workload_entries import WorkloadEntry

NAMESPACE = "workbench-scaletest"
DEFAULT_SCHEDULER = "default-scheduler"
KAI_SCHEDULER = "kai-scheduler"
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
    """What a run may ask of a cluster; a plan beyond them is refused before anything is sent.

    `objects`: Objects that are made (a gang: its pods and its PodGroup), in all.
    """

    objects: int = Field(default=1000, ge=1, le=2_000_000)
    rate_per_s: float = Field(default=20.0, gt=0, le=10_000)
    in_flight: int = Field(default=64, ge=1, le=1024)
    pending_pods: int = Field(default=1000, ge=1, le=1_000_000)
    wall_clock_s: float = Field(default=1800.0, ge=10, le=7 * 86_400)


class AbortCriteria(FiniteModel):
    """When submission stops immediately; null switches a criterion off. The run is kept and marked invalid.

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


def _as_tuple(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


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
    def _expand_short_forms(cls, given: Any) -> Any:
        """`scheduler` and `namespace` for one of them."""
        if not isinstance(given, dict):
            raise ValueError("a scenario is a mapping: name, arrival, workloads, …")
        made = dict(given)
        for one, many in (("scheduler", "schedulers"), ("namespace", "namespaces")):
            if one in made and many not in made:
                made[many] = made.pop(one)
        return made

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not LABEL.fullmatch(name):
            raise ValueError("must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
        return name

    @field_validator("schedulers")
    @classmethod
    def _check_schedulers(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        made = tuple(find_recipe(one).name if LABEL.fullmatch(one) else one for one in given)
        if wrong := [one for one in made if not LABEL.fullmatch(one)]:
            raise ValueError(f"no name of a scheduler: {wrong[0][:80]!r}")
        if len(set(made)) < len(made):
            raise ValueError("a scheduler is named twice")
        return made

    @field_validator("namespaces")
    @classmethod
    def _check_namespaces(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if not LABEL.fullmatch(one):
                raise ValueError(f"no name of a namespace (1 to 63 of a-z, 0-9 and '-'): {one[:80]!r}")
            if is_forbidden_namespace(one):
                raise ValueError(f"{one} is the cluster's own: give one for tests, such as {NAMESPACE}")
        if len(set(given)) < len(given):
            raise ValueError("a namespace is named twice")
        return given

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        told = []
        for index, entry in enumerate(self.workloads):
            place = f"workloads[{index}]"
            if entry.namespace is not None and (
                not LABEL.fullmatch(entry.namespace) or is_forbidden_namespace(entry.namespace)
            ):
                told.append(f"{place}.namespace: {entry.namespace} is the cluster's own, or no name of a namespace")
            if entry.fraction is not None and DEFAULT_SCHEDULER in self.schedulers:
                told.append(f"{place}.fraction: {DEFAULT_SCHEDULER} knows whole GPUs only; use gpus, or scheduler kai")
            if self.allow_real_nodes and entry.kind != "Template" and not entry.image:
                told.append(f"{place}.image: on nodes that exist an image is needed (one that has `sleep`)")
        named = [entry.display_name(index) for index, entry in enumerate(self.workloads)]
        if len(set(named)) < len(named):
            told.append("workloads: two entries have one name; give each its own `name`")
        gone = 0
        for index, change in enumerate(self.node_changes):
            if index and change.at_s < self.node_changes[index - 1].at_s:
                told.append(f"node_changes[{index}].at_s: earlier than the one before it")
            gone += -change.nodes if change.do == "return" else change.nodes
            if gone < 0:
                told.append(f"node_changes[{index}].nodes: more come back than are gone")
                break
        told += _check_trace(self.arrival, dict(zip(named, self.workloads, strict=True)))
        if told:
            raise ValueError("; ".join(told))
        return self


def _check_trace(arrival: arrival_processes.Arrival, entries: dict[str, WorkloadEntry]) -> list[str]:
    if not isinstance(arrival, arrival_processes.Trace):
        return []
    told = []
    used = set(entries if arrival.entries is None else arrival.entries)
    if unknown := sorted(used - entries.keys()):
        told.append(f"arrival.entries: no workload is named {unknown[0][:80]!r}; there are {', '.join(entries)[:300]}")
    if arrival.lifetimes_s is not None:
        endless = [name for name in entries if name in used and entries[name].lifetime is None]
        # The place of a lifetime is in an object only where its entry has one.
        told += [f"workloads: {name} has no lifetime; with those of a trace, set any, such as 1" for name in endless]
    return told


def expand_scheduler_name(given: str | None) -> str | None:
    """`default` and `kai` are short for their full names.

    >>> expand_scheduler_name("kai"), expand_scheduler_name("volcano"), expand_scheduler_name(None)
    ('kai-scheduler', 'volcano', None)
    """
    return None if given is None else resolve_schedulers([given])[0][0]


def read_example() -> str:
    """A scenario with all fields explained."""
    return (Path(__file__).parent / "example.yaml").read_text(encoding="utf-8")


def is_forbidden_namespace(namespace: str) -> bool:
    """Is a namespace one that no test may ever use, labelled or not?

    >>> [is_forbidden_namespace(name) for name in ("default", "kube-system", "runai", "workbench-scaletest")]
    [True, True, True, False]
    """
    return _FORBIDDEN.fullmatch(namespace) is not None


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario's file; templates and traces that it names are looked up beside it and taken in."""
    return _validate_document(read_yaml_file(path), Path(path).parent)


def parse_scenario(text: str | bytes, where: str = "scenario", folder: str | Path | None = None) -> Scenario:
    """The same for a text; `folder` is where files that it names lie (none may be named without).

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
    made = scenario.model_dump(mode="json", exclude_none=False)
    # Scenarios of earlier versions keep their hash.
    for name in ("recipes", "node_changes"):
        if not made[name]:
            del made[name]
    for entry in made["workloads"]:
        for name in ("node_labels", "owned"):
            if not entry[name]:
                del entry[name]
    for name in ("entries", "lifetimes_s"):
        if made["arrival"].get(name, "") is None:
            del made["arrival"][name]
    return str(yaml.dump(made, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))


def hash_scenario(scenario: Scenario) -> str:
    """Hash of the canonical text."""
    return hashlib.sha256(format_canonical(scenario).encode()).hexdigest()


def _validate_document(document: Document, folder: Path | None) -> Scenario:
    try:
        given = _include_files(document, folder)
        return Scenario.model_validate(given)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        # Entries that are wrong are not counted: "too few" is no mistake of its own then.
        kept = [one for one in errors if not (one["type"] == "too_short" and _has_deeper_error(one["loc"], errors))]
        found = [_format_error(one, document) for one in kept]
        more = [f"and {len(found) - _MAX_ERRORS} more"] if len(found) > _MAX_ERRORS else []
        raise InputError(
            f"the scenario has {len(found)} mistake(s)",
            where=document.where,
            found="".join(f"\n    {one}" for one in [*found[:_MAX_ERRORS], *more]),
            do="workbench scaletest plan --example prints one with all fields explained",
        ) from None


def _has_deeper_error(loc: tuple[Any, ...], errors: Sequence[Any]) -> bool:
    return any(len(one["loc"]) > len(loc) and one["loc"][: len(loc)] == loc for one in errors)


def _format_error(error: Any, document: Document) -> str:
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
    """The value, with the files that it names read: what is kept of a run needs nothing beside it."""
    given = document.value
    if not isinstance(given, dict):
        return given
    arrival = given.get("arrival")
    if isinstance(arrival, dict) and isinstance(arrival.get("file"), str):
        kept = {key: value for key, value in arrival.items() if key != "file"}
        text = _read_beside(folder, arrival["file"], "arrival.file").decode(errors="replace")
        try:
            given = given | {"arrival": kept | arrival_processes.parse_trace(text)}
        except ValueError as error:
            raise InputError("not a trace", where=f"{document.where}, arrival.file", found=str(error)) from None
    given = _include_recipes(given, document, folder)
    entries = given.get("workloads")
    if isinstance(entries, list):
        given = given | {"workloads": [_include_manifests(one, index, folder) for index, one in enumerate(entries)]}
    return given


def _include_recipes(given: dict[str, Any], document: Document, folder: Path | None) -> dict[str, Any]:
    """Recipes that schedulers are named by, taken in; their places hold the recipes' names then."""
    field = "scheduler" if "scheduler" in given else "schedulers"
    named = given.get(field)
    names = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    paths = [one for one in names if isinstance(one, str) and is_recipe_path(one)]
    if not paths:
        return given
    read = {}
    for path in paths:
        value = parse_yaml(_read_beside(folder, path, field), f"{field} {path[:200]}").value
        read[path] = validate_recipe(value, f"{document.where}, {field}: {path[:200]}")
    kept = {key: value for key, value in given.items() if key != field}
    recipes = [*(given.get("recipes") or []), *(one.model_dump(mode="json") for one in read.values())]
    return kept | {"schedulers": [read[one].name if one in read else one for one in names], "recipes": recipes}


def _include_manifests(entry: Any, index: int, folder: Path | None) -> Any:
    """An entry whose manifests are not named by files any more."""
    if not isinstance(entry, dict):
        return entry

    def read(given: Any, where: str) -> Any:
        if not isinstance(given, str):
            return given
        return parse_yaml(_read_beside(folder, given, where), f"{where} {given[:200]}").value

    place, made = f"workloads[{index}]", dict(entry)
    if "template" in made:
        made["template"] = read(made["template"], f"{place}.template")
    if isinstance(owned := made.get("owned"), list):
        made["owned"] = [read(one, f"{place}.owned[{number}]") for number, one in enumerate(owned)]
    return made


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
