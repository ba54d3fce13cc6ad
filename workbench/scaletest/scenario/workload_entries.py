"""Workload entries of a scenario: kind, size, lifetime and weight; Kubernetes quantities."""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from workbench.core.schema import FiniteModel
from workbench.scaletest.scenario import manifest_rules, template_pods
from workbench.scaletest.scenario.quantities import parse_quantity
from workbench.scaletest.scenario.template_pods import GPU, GPU_FRACTION, TemplateDemand, select_devices

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PRIORITY_CLASS", "WORKBENCH_MARKS", "Lifetime", "WorkloadEntry", "parse_quantity"]
# Context of a validation: a scenario that an earlier run kept is not held against its templates again.
KEPT = {"kept": True}
MIN_LIFETIME_S = 0.001
LifetimeSeconds = Annotated[float, Field(ge=MIN_LIFETIME_S, le=7 * 86_400)]
PRIORITY_CLASS = "workbench-scaletest"
# Its pods take the place of others of the same test.
HIGH_PRIORITY_CLASS = "workbench-scaletest-high"
WORKBENCH_MARKS = ("workbench.local/", "app.kubernetes.io/managed-by")
WorkloadKind = Literal["Pod", "Job", "Gang", "PyTorchJob", "Template"]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_ENTRY = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
# Fields of a pod's requests, and their resources.
_REQUESTS = {"gpus": GPU, "cpus": "cpu", "memory": "memory"}
# Fields that mean something for some kinds only.
_ONLY = {
    "pods": ("Gang", "PyTorchJob", "Template"),
    "parallelism": ("Job",),
    "completions": ("Job",),
    "pod_group": ("Gang",),
    "template": ("Template",),
    "plural": ("Template",),
    "pods_at": ("Template",),
    "gang": ("Template",),
}


class Fixed(FiniteModel):
    """Lifetimes that are all the same."""

    distribution: Literal["fixed"]
    s: LifetimeSeconds

    def draw_lifetimes(self, count: int, random: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """Draw lifetimes, in seconds."""
        import numpy as np

        return np.full(count, self.s)

    @property
    def mean_s(self) -> float:
        """Expected value."""
        return self.s


class Uniform(FiniteModel):
    """Anything between two bounds."""

    distribution: Literal["uniform"]
    least_s: LifetimeSeconds
    most_s: LifetimeSeconds

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.most_s < self.least_s:
            raise ValueError("most_s is below least_s")
        return self

    def draw_lifetimes(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw lifetimes, in seconds."""
        return random.uniform(self.least_s, self.most_s, count)

    @property
    def mean_s(self) -> float:
        """Expected value."""
        return (self.least_s + self.most_s) / 2


class Exponential(FiniteModel):
    """Ends at any moment with the same probability; cut at `most_s` where given."""

    distribution: Literal["exponential"]
    mean_s: LifetimeSeconds
    most_s: LifetimeSeconds | None = None

    def draw_lifetimes(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw lifetimes, in seconds."""
        return _clip_lifetimes(random.exponential(self.mean_s, count), self.most_s)


class Lognormal(FiniteModel):
    """Many short ones and a few very long ones, as jobs of people are; cut at `most_s` where given."""

    distribution: Literal["lognormal"]
    median_s: LifetimeSeconds
    sigma: float = Field(gt=0, le=5)
    most_s: LifetimeSeconds | None = None

    def draw_lifetimes(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw lifetimes, in seconds."""
        return _clip_lifetimes(random.lognormal(math.log(self.median_s), self.sigma, count), self.most_s)

    @property
    def mean_s(self) -> float:
        """Expected value, before the cut."""
        return self.median_s * math.exp(self.sigma**2 / 2)


def _clip_lifetimes(drawn: np.ndarray, most_s: float | None) -> np.ndarray:
    """Limit drawn lifetimes, in seconds, to between MIN_LIFETIME_S and `most_s`, or else a week."""
    import numpy as np

    return np.asarray(np.clip(drawn, MIN_LIFETIME_S, 7 * 86_400.0 if most_s is None else most_s))


def _expand_number(value: Any) -> Any:
    """`lifetime: 30` for 30 seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"distribution": "fixed", "s": value}
    return value


Lifetime = Annotated[
    Annotated[Fixed | Uniform | Exponential | Lognormal, Field(discriminator="distribution")],
    BeforeValidator(_expand_number),
]


def _parse_bytes(quantity: Any) -> Any:
    return int(parse_quantity(quantity)) if isinstance(quantity, str) else quantity


class WorkloadEntry(FiniteModel):
    """One of the scenario's workloads.

    `pods`: Pods of a gang, or master and workers of a PyTorchJob, or what a template of an unknown kind makes.
    `gpus`, `cpus`, `memory`: Of each pod. A template's own requests count; a field that says otherwise is refused.
    `pod_group`: With KAI, a gang gets a PodGroup with minMember, so that all its pods are placed or none.
    `priority`: PriorityClass of all its pods, whatever a template says; null for the cluster's default. The default
    one is made by `workbench scaletest setup`.
    `node_labels`: Labels that a node must have for its pods, such as `nvidia.com/gpu.product` or
    `topology.kubernetes.io/rack`.
    `lifetime`: Seconds until a pod ends by itself, or a distribution; null: it runs until it is deleted.
    `template`, `plural`, `pods_at`, `gang`: A manifest of any kind with placeholders; its plural name in the API
    where it is not the kind's with an s; where more pod templates lie in it than are known of its kind, such as
    `spec.template`; whether all its pods are to be placed or none.
    `owned`: More objects of each workload, made after it and owned by it, so that they go with it: manifests with
    placeholders, such as a ConfigMap or a claim.
    """

    kind: WorkloadKind
    name: str | None = None
    weight: float = Field(1.0, gt=0, le=1e6)
    namespace: str | None = None
    gpus: int = Field(1, ge=0, le=64)
    fraction: float | None = Field(None, gt=0, lt=1)
    cpus: float = Field(0.1, ge=0.001, le=1024)
    memory: Annotated[int, BeforeValidator(_parse_bytes)] = Field(64 << 20, ge=1 << 20, le=64 << 40)
    pods: int = Field(1, ge=1, le=5000)
    parallelism: int = Field(1, ge=1, le=5000)
    completions: int | None = Field(None, ge=1, le=5000)
    pod_group: bool = True
    priority: str | None = PRIORITY_CLASS
    queue: str = "default"
    labels: dict[str, str] = Field({}, max_length=20)
    node_labels: dict[str, str] = Field({}, max_length=20)
    lifetime: Lifetime | None = None
    delete_after_s: float | None = Field(None, gt=0, le=7 * 86_400)
    image: str | None = None
    template: dict[str, Any] | None = None
    plural: str | None = None
    pods_at: tuple[str, ...] | None = Field(None, max_length=10)
    gang: bool = False
    owned: tuple[dict[str, Any], ...] = Field((), max_length=10)

    @field_validator("name")
    @classmethod
    def _entry_name(cls, name: str | None) -> str | None:
        if name is not None and not _ENTRY.fullmatch(name):
            raise ValueError("must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
        return name

    @field_validator("priority", "queue", "namespace")
    @classmethod
    def _object_name(cls, name: str | None) -> str | None:
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError("no name of an object: a-z, 0-9, '-' and '.'")
        return name

    @field_validator("image")
    @classmethod
    def _image_name(cls, image: str | None) -> str | None:
        if image is not None and not _IMAGE.fullmatch(image):
            raise ValueError("no name of an image, such as registry.example.org/team/sleeper:1.0")
        return image

    @field_validator("labels", "node_labels")
    @classmethod
    def _check_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        for key, value in labels.items():
            if not re.fullmatch(r"([a-z0-9.-]{1,200}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", key):
                raise ValueError(f"no key of a label: {key[:80]!r}")
            if not _LABEL_VALUE.fullmatch(value):
                raise ValueError(f"no value of a label: {value[:80]!r}")
            if key.startswith(WORKBENCH_MARKS):
                raise ValueError(f"{key} is the workbench's own")
        return labels

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        for field, kinds in _ONLY.items():
            if field in self.model_fields_set and self.kind not in kinds:
                unset = getattr(self, field) in (None, type(self).model_fields[field].default)
                if not unset:
                    raise ValueError(f"{field} is for {' and '.join(kinds)} only, not for {self.kind}")
        if self.kind == "Gang" and self.pods < 2:
            raise ValueError("a Gang has two pods or more: set pods")
        if self.fraction is not None and "gpus" in self.model_fields_set and self.gpus != 1:
            raise ValueError("give gpus or fraction, not both")
        if (self.completions or self.parallelism) < self.parallelism:
            raise ValueError("completions is below parallelism")
        if self.kind == "Template":
            if self.template is None:
                raise ValueError("a Template needs `template`: a manifest, or the name of its file")
            manifest_rules.check_manifest(self.template, self.plural, self.pods_at)
        if self.owned and self.kind == "Gang":
            raise ValueError("owned: a Gang is pods without an object that could own anything; use a Template")
        for number, manifest in enumerate(self.owned):
            try:
                manifest_rules.check_manifest(manifest, None, None)
            except ValueError as error:
                raise ValueError(f"owned[{number}]: {error}") from None
        return self

    @model_validator(mode="after")
    def _check_template(self, info: ValidationInfo) -> Self:
        """Refuse fields that say something else than the template: one of the two would be without effect."""
        if self.template is not None and not (info.context or {}).get("kept"):
            for check in (self._check_pod_count, self._check_requests, self._check_fraction, self._check_placement):
                check()
        return self

    def _check_pod_count(self) -> None:
        counts = self._demand.counts
        if counts is None:
            return
        if not counts[0]:
            raise ValueError("template: it makes no pod")
        if "pods" in self.model_fields_set and self.pods != counts[0] and not self._uses("pods", "workers"):
            raise ValueError(
                f"pods: {self.pods}, but the template makes {counts[0]}; write ${{pods}} there, or drop pods"
            )

    def _check_requests(self) -> None:
        if not self._demand.groups:
            return
        requests = self._demand.largest_requests
        for field, resource in _REQUESTS.items():
            given, asked = getattr(self, field), requests.get(resource, 0.0)
            unset = field not in self.model_fields_set or self._uses(field)
            if unset or math.isclose(given, asked) or (field == "gpus" and self._has_idle_gpus):
                continue
            raise ValueError(
                f"{field}: {given:g}, but a pod of the template requests {asked:g} of {resource}; write ${{{field}}} "
                f"into its resources, or drop {field}"
            )

    def _check_fraction(self) -> None:
        own = self._demand.fraction
        if (fraction := self.fraction) is None:
            return
        if self._demand.largest_requests.get(GPU):
            raise ValueError(f"fraction: {fraction:g}, but the template requests {GPU}; take one of them out")
        if own not in (None, fraction):
            raise ValueError(f"fraction: {fraction:g}, but the template's annotation {GPU_FRACTION} is {own:g}")

    def _check_placement(self) -> None:
        if self.image is not None:
            raise ValueError("image: write it into the template; the field is for the other kinds")
        if len(names := self._demand.scheduler_names) > 1:
            raise ValueError(f"template: its pods name two schedulers: {names[0]} and {names[1]}")
        for group in self._demand.groups:
            own = group.pod["spec"].get("nodeSelector") or {}
            for key in sorted(own.keys() & self.node_labels.keys()):
                if own[key] != self.node_labels[key]:
                    said = f"and the template's nodeSelector says {own[key]}"
                    raise ValueError(f"node_labels: {key} is {self.node_labels[key]}, {said}")

    def _uses(self, *placeholders: str) -> bool:
        return not manifest_rules.list_used_placeholders(self.template).isdisjoint(placeholders)

    @property
    def _has_idle_gpus(self) -> bool:
        """The template requests other devices and no whole GPU, so that the field `gpus` says nothing."""
        requests = self._demand.largest_requests
        return not requests.get(GPU) and bool(select_devices(requests))

    @functools.cached_property
    def _demand(self) -> TemplateDemand:
        """Pods and requests of the template; none of a kind whose pods are not known."""
        values = {field: getattr(self, field) for field in ("cpus", "memory", "pods")}
        whole = {"gpus": 0 if self.fraction else self.gpus, "fraction": self.fraction or 0}
        more = {"workers": max(self.pods - 1, 0)}
        return template_pods.read_demand(self.template or {}, self.pods_at, self.owned, values | whole | more)

    def display_name(self, index: int) -> str:
        """Its name in the tables: the given one, or the kind with its place."""
        return self.name or f"{self.kind.lower()}-{index}"

    @property
    def api_kind(self) -> str:
        """Kind of the object that stands for the workload."""
        if self.kind == "Template":
            return str((self.template or {}).get("kind"))
        return "Pod" if self.kind == "Gang" else self.kind

    @property
    def all_pods(self) -> int:
        """Pods that a workload has in all."""
        if self.kind == "Job":
            return self.completions or self.parallelism
        if self.kind == "Template" and (counts := self._demand.counts) is not None:
            return counts[0]
        return 1 if self.kind == "Pod" else self.pods

    @property
    def pods_at_once(self) -> int:
        """Pods that it has at one time."""
        if self.kind == "Template" and (counts := self._demand.counts) is not None:
            return counts[1]
        return min(self.parallelism, self.all_pods) if self.kind == "Job" else self.all_pods

    @property
    def in_turn(self) -> bool:
        """Some of its pods are made only when others have ended: its Job has completions above parallelism."""
        if self.kind != "Template":
            return self.pods_at_once < self.all_pods
        return self.all_pods > 1 and manifest_rules.has_sequential_pods(self.template or {})

    @property
    def is_gang(self) -> bool:
        """Whether either all its pods or none are to be placed."""
        return self.kind in ("Gang", "PyTorchJob") or self.gang

    @property
    def requests_per_pod(self) -> dict[str, float]:
        """Requests of each pod by resource: `cpu`, `memory`, GPUs and other devices; of a template's on average."""
        if self.kind == "Template" and self._demand.groups:
            return self._demand.mean_requests
        return {"cpu": self.cpus, "memory": float(self.memory), GPU: self.gpus_per_pod}

    @property
    def largest_requests(self) -> dict[str, float]:
        """Most of each resource that one of its pods requests."""
        if self.kind == "Template" and self._demand.groups:
            return self._demand.largest_requests
        return self.requests_per_pod

    @property
    def gpus_per_pod(self) -> float:
        """GPUs of each pod, a share of one included."""
        if (fraction := self.fraction) is None and self.kind == "Template" and self._demand.groups:
            fraction = self._demand.fraction
            return self._demand.mean_requests.get(GPU, 0.0) if fraction is None else fraction
        return float(self.gpus) if fraction is None else fraction

    @property
    def scheduler_name(self) -> str | None:
        """schedulerName that a template's pods name themselves; null where the scenario's is theirs."""
        return next(iter(self._demand.scheduler_names), None) if self.kind == "Template" else None

    @property
    def unused_fields(self) -> list[str]:
        """What the entry or its template says and the other one replaces, as sentences."""
        if self.kind != "Template":
            return []
        notes = []
        if "gpus" in self.model_fields_set and self._has_idle_gpus and not self._uses("gpus"):
            notes.append(f"gpus: {self.gpus} has no effect, since the template requests no {GPU}")
        for group in self._demand.groups:
            spec, place = group.pod["spec"], f"{group.place}.spec".lstrip(".")
            own = spec.get("priorityClassName")
            if own not in (None, "${priority}", self.priority):
                notes.append(f"{place}.priorityClassName: {own} is replaced by {self.priority} (field priority)")
        return notes
