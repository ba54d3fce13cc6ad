"""Scheduler recipes: how a scheduler is found or started, and what its workloads need beside their pods.

A recipe is a file, `scheduler.yaml`. Those beside this module are shipped; a user's own is named by its path wherever a
scheduler is named, and becomes part of the scenario, so that a kept run needs nothing beside it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import FiniteModel
from workbench.kubernetes.resources import ApiResource
from workbench.scaletest.cluster_api.api_discovery import SCHEDULER_RESOURCES, parse_resource
from workbench.scaletest.scenario import manifest_rules
from workbench.scaletest.scenario.safe_yaml import read_yaml_file

Program = Literal["default", "kube-scheduler", "kai", "kueue", "cluster"]
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SHIPPED = Path(__file__).parent / "recipes"
MAX_OBJECTS = 5
_GATE = re.compile(r"[A-Z][A-Za-z0-9]{1,60}")
# What a recipe may add to a pod's specification: what tells its scheduler about the pod's group, and nothing else.
_POD_FIELDS = ("schedulingGroup", "schedulingGates")
_Text = Annotated[str, StringConstraints(max_length=400)]


class PodAdditions(FiniteModel):
    """Additions of a recipe to pods and their workloads."""

    labels: dict[str, _Text] = Field(default={}, max_length=10)
    annotations: dict[str, _Text] = Field(default={}, max_length=10)
    spec: dict[str, Any] = Field(default={}, max_length=5)

    @field_validator("spec")
    @classmethod
    def _check_spec(cls, spec: dict[str, Any]) -> dict[str, Any]:
        if wrong := sorted(set(spec) - set(_POD_FIELDS)):
            raise ValueError(f"a recipe adds {' and '.join(_POD_FIELDS)} to a pod, not {wrong[0][:60]}")
        return spec


class SchedulerRecipe(FiniteModel):
    """A scheduler.

    `program`: `default`: the control plane's own scheduler; `kube-scheduler`: a second one of these with `config`;
    `kai`: KAI beside it; `kueue`: Kueue over the default scheduler; `cluster`: it must be there.
    `feature_gates`, `api_arguments`, `scheduler_arguments`: Of a local cluster: gates of all its components,
    arguments of the API server and of this scheduler.
    `pods`, `workloads`, `gang_pods`: What all pods and workloads get; what workloads' own objects get and the pods of
    jobs do not; what the pods of gangs get in addition.
    `gang_objects`: Manifests of what a gang needs beside its pods, made before them; placeholders as in templates.
    `reads`: Objects that it makes and that are worth watching, as GROUP/VERSION/PLURAL.
    """

    name: str
    short: str | None = None
    about: _Text = ""
    program: Program = "default"
    scheduler_name: str | None = None
    feature_gates: dict[str, bool] = Field(default={}, max_length=20)
    api_arguments: dict[str, _Text] = Field(default={}, max_length=20)
    scheduler_arguments: dict[str, _Text] = Field(default={}, max_length=20)
    config: dict[str, Any] | None = None
    pods: PodAdditions = PodAdditions()
    workloads: PodAdditions = PodAdditions()
    gang_pods: PodAdditions = PodAdditions()
    gang_objects: tuple[dict[str, Any], ...] = Field(default=(), max_length=MAX_OBJECTS)
    reads: tuple[str, ...] = Field(default=(), max_length=10)
    steps: tuple[_Text, ...] = Field(default=(), max_length=10)

    @property
    def pods_scheduler(self) -> str:
        """schedulerName of the pods."""
        return self.scheduler_name or self.name

    @field_validator("name", "short", "scheduler_name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not LABEL.fullmatch(name):
            raise ValueError("must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
        return name

    @field_validator("feature_gates")
    @classmethod
    def _check_gates(cls, gates: dict[str, bool]) -> dict[str, bool]:
        if wrong := [name for name in gates if not _GATE.fullmatch(name)]:
            raise ValueError(f"no feature gate: {wrong[0][:60]!r}")
        return gates

    @field_validator("reads")
    @classmethod
    def _check_reads(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        patterns = [f"{group}/…/{plural}" for group, plural, _ in SCHEDULER_RESOURCES]
        for text in texts:
            try:
                resource = parse_resource(text)
            except ConfigError:
                raise ValueError(f"{text[:80]!r} is not GROUP/VERSION/PLURAL") from None
            if (resource.group, resource.plural) not in {pair[:2] for pair in SCHEDULER_RESOURCES}:
                raise ValueError(f"{text[:80]} is not watched; known are {', '.join(patterns)}")
        return texts

    @field_validator("gang_objects")
    @classmethod
    def _check_objects(cls, manifests: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for manifest in manifests:
            manifest_rules.check_manifest({key: value for key, value in manifest.items() if key != "plural"}, None, ())
            if set(manifest) - {"apiVersion", "kind", "plural", "spec"}:
                raise ValueError("a gang's object has apiVersion, kind, spec and perhaps plural; its head is ours")
        return manifests

    @model_validator(mode="after")
    def _check_program(self) -> Self:
        if (self.config is not None) != (self.program == "kube-scheduler"):
            raise ValueError("config belongs to program kube-scheduler, and to no other")
        if self.config is not None:
            if set(self.config) & {"clientConnection", "leaderElection", "apiVersion", "kind"}:
                raise ValueError(
                    "config: clientConnection, leaderElection, apiVersion and kind are the workbench's own"
                )
            names = [
                profile.get("schedulerName")
                for profile in self.config.get("profiles") or []
                if isinstance(profile, dict)
            ]
            if self.pods_scheduler not in names:
                raise ValueError(f"config.profiles: none has the schedulerName {self.pods_scheduler}")
        if self.program == "kube-scheduler" and self.pods_scheduler == "default-scheduler":
            raise ValueError("a second kube-scheduler needs its own schedulerName")
        return self

    @property
    def read_resources(self) -> tuple[ApiResource, ...]:
        """Resources that `reads` names."""
        return tuple(map(parse_resource, self.reads))


@functools.cache
def list_shipped_recipes() -> tuple[SchedulerRecipe, ...]:
    """The recipes beside this module."""
    return tuple(read_recipe(path) for path in sorted(SHIPPED.glob("*.yaml")))


def read_recipe(path: str | Path) -> SchedulerRecipe:
    """Read a recipe's file."""
    return validate_recipe(read_yaml_file(path).value, str(path))


def validate_recipe(value: Any, where: str) -> SchedulerRecipe:
    """A recipe from its parsed text."""
    try:
        return SchedulerRecipe.model_validate(value)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'recipe'}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()[:10]
        ]
        raise InputError(
            "not a scheduler recipe",
            where=where,
            found="".join(f"\n    {line}" for line in faults),
            do="compare it with those of workbench scaletest cluster recipes",
        ) from None


def find_recipe(name: str, recipes: Iterable[SchedulerRecipe] = ()) -> SchedulerRecipe:
    """The recipe of a scheduler: the user's, a shipped one, or one for a scheduler that needs nothing of its own."""
    for recipe in (*recipes, *list_shipped_recipes()):
        if name in (recipe.name, recipe.short):
            return recipe
    return SchedulerRecipe(name=name, program="cluster")


def read_recipe_text(name: str) -> str:
    """The file of a shipped recipe."""
    return next(
        path.read_text(encoding="utf-8").rstrip() for path in SHIPPED.glob("*.yaml") if read_recipe(path).name == name
    )


def format_recipes_json(recipes: Iterable[SchedulerRecipe]) -> str:
    """Recipes as a JSON list."""
    return json.dumps([recipe.model_dump(mode="json") for recipe in recipes])


def is_recipe_path(name: str) -> bool:
    """Is a scheduler named by the path of its recipe?

    >>> is_recipe_path("mine/scheduler.yaml"), is_recipe_path("kai")
    (True, False)
    """
    return name.endswith((".yaml", ".yml"))


def resolve_schedulers(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[SchedulerRecipe, ...]]:
    """Full names of schedulers, and the recipes that were named by their paths."""
    full_names, recipes = [], []
    shipped = {
        name for shipped_recipe in list_shipped_recipes() for name in (shipped_recipe.name, shipped_recipe.short)
    }
    for name in names:
        if is_recipe_path(name):
            recipe = read_recipe(name)
            if recipe.name in shipped:
                raise ConfigError("a shipped recipe has this name", where=name, found=recipe.name, do="give it another")
            recipes.append(recipe)
            full_names.append(recipe.name)
            continue
        if not LABEL.fullmatch(name):
            raise ConfigError("no name of a scheduler", where="--scheduler", found=name[:80])
        full_names.append(find_recipe(name).name)
    return tuple(full_names), tuple(recipes)
