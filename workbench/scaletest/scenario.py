"""What a scale test is to do, as a file that people write: all its mistakes are told at once, each with its line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from workbench import files
from workbench.errors import ConfigError, InputError
from workbench.scaletest import arrivals
from workbench.scaletest.bounds import Abort, Limits
from workbench.scaletest.templates.entries import Entry
from workbench.scaletest.templates.reading import Document, read_file, read_text

NAMESPACE = "workbench-scaletest"
DEFAULT_SCHEDULER = "default-scheduler"
KAI_SCHEDULER = "kai-scheduler"
_SHORT_SCHEDULERS = {"default": DEFAULT_SCHEDULER, "kai": KAI_SCHEDULER}
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_FORBIDDEN = re.compile(
    r"default|kube-.*|runai(-system|-backend|-reservation)?|gpu-operator|nvidia-.*|kai-.*|openshift.*|cert-manager|"
    r"istio-system|monitoring|ingress-nginx|kubeflow|calico-.*|cattle-.*|.*-system"
)
_MOST_TOLD = 20
__all__ = ["Abort", "Entry", "Limits", "Scenario", "canonical", "example", "forbidden", "load", "parse", "sha256"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _one_or_more(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


Some = BeforeValidator(_one_or_more)


class Scenario(_Strict):
    """A scale test's description.

    Attributes
    ----------
    schedulers
        schedulerName of the pods; `default` and `kai` are short for default-scheduler and kai-scheduler. With two, each
        is tested on the same plan.
    namespaces
        Where objects are made, in turns.
    allow_real_nodes
        Pods may go to nodes that exist. Without it they are fenced to nodes labelled workbench.local/sim=true.
    """

    name: str
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    schedulers: Annotated[tuple[str, ...], Some] = Field(default=(DEFAULT_SCHEDULER,), min_length=1, max_length=8)
    namespaces: Annotated[tuple[str, ...], Some] = Field(default=(NAMESPACE,), min_length=1, max_length=100)
    arrival: arrivals.Arrival
    workloads: tuple[Entry, ...] = Field(min_length=1, max_length=100)
    limits: Limits = Limits()
    abort: Abort = Abort()
    allow_real_nodes: bool = False

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
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
    def _named(cls, name: str) -> str:
        if not LABEL.fullmatch(name):
            raise ValueError("must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
        return name

    @field_validator("schedulers")
    @classmethod
    def _scheduled(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        made = tuple(_SHORT_SCHEDULERS.get(one, one) for one in given)
        if wrong := [one for one in made if not LABEL.fullmatch(one)]:
            raise ValueError(f"no name of a scheduler: {wrong[0][:80]!r}")
        if len(set(made)) < len(made):
            raise ValueError("a scheduler is named twice")
        return made

    @field_validator("namespaces")
    @classmethod
    def _guarded(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if not LABEL.fullmatch(one):
                raise ValueError(f"no name of a namespace (1 to 63 of a-z, 0-9 and '-'): {one[:80]!r}")
            if forbidden(one):
                raise ValueError(f"{one} is the cluster's own: give one for tests, such as {NAMESPACE}")
        if len(set(given)) < len(given):
            raise ValueError("a namespace is named twice")
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        told = []
        for index, entry in enumerate(self.workloads):
            place = f"workloads[{index}]"
            if entry.namespace is not None and (not LABEL.fullmatch(entry.namespace) or forbidden(entry.namespace)):
                told.append(f"{place}.namespace: {entry.namespace} is the cluster's own, or no name of a namespace")
            if entry.fraction is not None and DEFAULT_SCHEDULER in self.schedulers:
                told.append(f"{place}.fraction: {DEFAULT_SCHEDULER} knows whole GPUs only; use gpus, or scheduler kai")
            if self.allow_real_nodes and entry.kind != "Template" and not entry.image:
                told.append(f"{place}.image: on nodes that exist an image is needed (one that has `sleep`)")
        named = [entry.label(index) for index, entry in enumerate(self.workloads)]
        if len(set(named)) < len(named):
            told.append("workloads: two entries have one name; give each its own `name`")
        if told:
            raise ValueError("; ".join(told))
        return self


def scheduler_name(given: str | None) -> str | None:
    """`default` and `kai` are short for their full names.

    Raises
    ------
    ConfigError
        That can be no scheduler's name.

    Examples
    --------
    >>> scheduler_name("kai"), scheduler_name("volcano"), scheduler_name(None)
    ('kai-scheduler', 'volcano', None)
    """
    if given is None:
        return None
    if not LABEL.fullmatch(given):
        raise ConfigError("no name of a scheduler", where="--scheduler", found=given[:80])
    return _SHORT_SCHEDULERS.get(given, given)


def example() -> str:
    """A scenario with all fields explained."""
    return (Path(__file__).parent / "templates" / "example.yaml").read_text(encoding="utf-8")


def forbidden(namespace: str) -> bool:
    """Is a namespace one that no test may ever use, labelled or not?

    Examples
    --------
    >>> [forbidden(name) for name in ("default", "kube-system", "runai", "runai-team-a", "workbench-scaletest")]
    [True, True, True, False, False]
    """
    return _FORBIDDEN.fullmatch(namespace) is not None


def load(path: str | Path) -> Scenario:
    """Read a scenario's file; templates and traces that it names are looked up beside it and taken in.

    Raises
    ------
    InputError
        It is no scenario: every mistake with its field and line.
    """
    return _checked(read_file(path), Path(path).parent)


def parse(text: str | bytes, where: str = "scenario", folder: str | Path | None = None) -> Scenario:
    """The same for a text; `folder` is where files that it names lie (none may be named without).

    Examples
    --------
    >>> made = parse('''
    ... name: first-test
    ... arrival: {process: constant, rate_per_s: 10, n: 100}
    ... workloads:
    ... - {kind: Job, gpus: 1, lifetime: 30}
    ... ''')
    >>> made.workloads[0].kind, made.limits.objects
    ('Job', 1000)
    """
    return _checked(read_text(text, where), None if folder is None else Path(folder))


def canonical(scenario: Scenario) -> str:
    """The scenario as YAML, every default written out, in one spelling: what is hashed, kept and read again."""
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    made = scenario.model_dump(mode="json", exclude_none=False)
    return str(yaml.dump(made, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))


def sha256(scenario: Scenario) -> str:
    """Hash of the canonical text."""
    return hashlib.sha256(canonical(scenario).encode()).hexdigest()


def _checked(document: Document, folder: Path | None) -> Scenario:
    try:
        given = _taken_in(document, folder)
        return Scenario.model_validate(given)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        # Entries that are wrong are not counted: "too few" is no mistake of its own then.
        kept = [one for one in errors if not (one["type"] == "too_short" and _has_deeper(one["loc"], errors))]
        found = [_told(one, document) for one in kept]
        more = [f"and {len(found) - _MOST_TOLD} more"] if len(found) > _MOST_TOLD else []
        raise InputError(
            f"the scenario has {len(found)} mistake(s)",
            where=document.where,
            found="".join(f"\n    {one}" for one in [*found[:_MOST_TOLD], *more]),
            do="workbench scaletest plan --example prints one with all fields explained",
        ) from None


def _has_deeper(loc: tuple[Any, ...], errors: Sequence[Any]) -> bool:
    return any(len(one["loc"]) > len(loc) and one["loc"][: len(loc)] == loc for one in errors)


def _told(error: Any, document: Document) -> str:
    loc = error["loc"]
    # Pydantic puts the chosen variant's name behind the field of a union.
    place = tuple(part for at, part in enumerate(loc) if not (at and loc[at - 1] in _UNIONS and part in _VARIANTS))
    line = document.line(place)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        message = "there is no such field"
    elif error["type"] == "missing":
        message = "is missing"
    value = error.get("input")
    shown = f" (found: {str(value)[:60]!r})" if isinstance(value, str | int | float) else ""
    return f"{f'line {line}: ' if line else ''}{field + ': ' if field else ''}{message}{shown}"


_UNIONS = {"arrival", "lifetime"}
_VARIANTS = {"constant", "poisson", "ramp", "steps", "burst", "trace", "fixed", "uniform", "exponential", "lognormal"}


def _taken_in(document: Document, folder: Path | None) -> Any:
    """The value, with the files that it names read: what is kept of a run needs nothing beside it."""
    given = document.value
    if not isinstance(given, dict):
        return given
    arrival = given.get("arrival")
    if isinstance(arrival, dict) and isinstance(arrival.get("file"), str):
        kept = {key: value for key, value in arrival.items() if key != "file"}
        text = _beside(folder, arrival["file"], "arrival.file").decode(errors="replace")
        try:
            given = given | {"arrival": kept | arrivals.read_trace(text)}
        except ValueError as error:
            raise InputError("not a trace", where=f"{document.where}, arrival.file", found=str(error)) from None
    entries = given.get("workloads")
    if isinstance(entries, list):
        given = given | {"workloads": [_with_template(one, index, folder) for index, one in enumerate(entries)]}
    return given


def _with_template(entry: Any, index: int, folder: Path | None) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("template"), str):
        return entry
    where = f"workloads[{index}].template"
    text = _beside(folder, entry["template"], where)
    return entry | {"template": read_text(text, f"{where} {entry['template'][:200]}").value}


def _beside(folder: Path | None, name: str, where: str) -> bytes:
    """A file that a scenario names: below its own folder, so that a scenario from elsewhere reads nothing else."""
    if folder is None:
        raise InputError("a file cannot be named here", where=where, do="write its content into the scenario")
    try:
        path = (folder / name).resolve()
        if path.is_relative_to(folder.resolve()):
            return files.read_bounded(path, 64 << 20)
        raise InputError("a file outside the scenario's folder", where=where, found=name[:200], do="copy it beside")
    except InputError as error:
        raise InputError(error.what, where=where, found=name[:200], do=error.facts["do"]) from None  # type: ignore[arg-type]
    except (OSError, ValueError) as error:
        raise InputError("cannot read the file", where=where, found=f"{name[:200]}: {error}"[:300]) from None
