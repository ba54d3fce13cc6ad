"""Checks manifests against the API's own schemas: Kubernetes' by kubernetes-validate, others by their CRDs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.core import data_files
from workbench.core.errors import ConfigError, InputError, MissingToolError

MAX_CRD_BYTES = 16 << 20
MAX_SCHEMA_DEPTH = 60
VERSION_PATTERN = re.compile(r"v?(1\.\d{1,3})(\.\d+)?")
OWN_GROUPS = ("apps/v1", "v1", "policy/v1", "autoscaling/v2")
Schemas = dict[tuple[str, str], dict[str, Any]]
"""JSON schema by API version and kind."""


def check_manifests(objects: Sequence[dict[str, Any]], version: str | None, schemas: Schemas) -> list[str]:
    """What is wrong with each object, by the schema of its kind; empty where nothing is.

    `version`: Kubernetes version such as 1.31; null for the newest that is known.

    Returns: One line a finding: kind, name, path, and what is allowed. An object of an API without a schema is one,
    too.

    Does not show what only a cluster knows: admission webhooks, quotas, whether an image or a Secret exists.
    """
    validator = _load_validator()
    chosen = choose_kubernetes_version(version)
    faults = []
    for manifest in objects:
        name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if manifest["apiVersion"] in OWN_GROUPS:
            try:
                validator.validate(manifest, chosen, strict=True)
            except validator.ValidationError as error:
                faults.append(f"{name}: {_describe(error)}")
            except validator.SchemaNotFoundError:
                faults.append(f"{name}: Kubernetes {chosen} has no {manifest['apiVersion']}")
        elif (schema := schemas.get((manifest["apiVersion"], manifest["kind"]))) is None:
            faults.append(f"{name}: no schema of {manifest['apiVersion']}; give its CRD with --crd")
        else:
            faults += [f"{name}: {text}" for text in _find_schema_faults(manifest, schema)]
    return faults


def choose_kubernetes_version(version: str | None) -> str:
    """The version of the schemas: the given one, or the newest."""
    validator = _load_validator()
    versions = [_major_minor(release) for release in validator.utils.all_versions()]
    if version is None:
        return versions[-1]
    match = VERSION_PATTERN.fullmatch(version)
    if match is None or match[1] not in versions:
        raise ConfigError(
            "no schemas of this Kubernetes",
            where="--kubernetes",
            found=version[:40],
            allowed=f"{versions[0]} to {versions[-1]}",
        )
    return match[1]


def _major_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _load_validator() -> Any:
    try:
        import kubernetes_validate
    except ModuleNotFoundError:
        raise MissingToolError(
            "kubernetes-validate is not installed",
            where="--validate",
            do="pip install 'accelerated-workbench[manifests]'",
        ) from None
    return kubernetes_validate


def _describe(error: Any) -> str:
    path = ".".join(str(part) for part in error.absolute_path) or "the object"
    return f"{path}: {str(error.message)[:200]}"


def read_crd_schemas(paths: Sequence[Path]) -> Schemas:
    """Schemas of CustomResourceDefinitions, as `kubectl get crd NAME… -o yaml` prints them."""
    schemas: Schemas = {}
    for path in paths:
        document = data_files.read_yaml_file(
            path, noun="CRD", max_bytes=MAX_CRD_BYTES, do="kubectl get crd NAME -o yaml"
        )
        items = document.get("items") if isinstance(document, dict) and document.get("kind") == "List" else [document]
        for item in items if isinstance(items, list) else [None]:
            schemas |= _read_definition(item, path)
    return schemas


def _read_definition(item: Any, path: Path) -> Schemas:
    try:
        if item["kind"] != "CustomResourceDefinition":
            raise ValueError
        spec = item["spec"]
        group, kind = str(spec["group"]), str(spec["names"]["kind"])
        versions = [version for version in spec["versions"] if version["served"]]
        schemas = {(f"{group}/{version['name']}", kind): version["schema"]["openAPIV3Schema"] for version in versions}
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "not a CustomResourceDefinition",
            where=path,
            allowed="apiextensions.k8s.io/v1",
            do="kubectl get crd NAME -o yaml",
        ) from None
    if not all(isinstance(schema, dict) for schema in schemas.values()):
        raise InputError("a schema of the CRD is no object", where=path)
    return schemas


def _find_schema_faults(manifest: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    import jsonschema

    try:
        closed = _close_schema(schema)
        jsonschema.Draft202012Validator.check_schema(closed)
        validator = jsonschema.Draft202012Validator(closed)
        return [
            _describe(error)
            for error in sorted(validator.iter_errors(manifest), key=lambda error: list(map(str, error.path)))
        ]
    except (jsonschema.SchemaError, jsonschema.exceptions.UnknownType, re.error, RecursionError) as error:
        return [f"the CRD's schema cannot be used: {type(error).__name__}"]
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        return [f"the CRD's schema cannot be used: {type(error).__name__}"]


def _close_schema(schema: Any, depth: int = 0, *, is_root: bool = True) -> Any:
    """The schema without fields that it does not name: the API server drops those and says nothing."""
    if not isinstance(schema, dict) or depth > MAX_SCHEMA_DEPTH:
        return schema
    closed = dict(schema)
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    # No reference leads out of the file.
    for name in ("$ref", "$dynamicRef", "$schema", "$id"):
        closed.pop(name, None)
    properties = closed.get("properties")
    if isinstance(properties, dict):
        closed["properties"] = {
            name: {} if is_root and name == "metadata" else _close_schema(subschema, depth + 1, is_root=False)
            for name, subschema in properties.items()
        }
        if "additionalProperties" not in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    for name in ("items", "additionalProperties"):
        closed[name] = _close_schema(closed[name], depth + 1, is_root=False) if name in closed else None
        if closed[name] is None:
            del closed[name]
    return closed
