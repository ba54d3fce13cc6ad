"""Manifests of Kubernetes objects: patterns of their names, one builder of objects, and YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Object = dict[str, Any]
LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
RBAC = "rbac.authorization.k8s.io"


def build_object(
    api_version: str,
    kind: str,
    name: str,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> Object:
    """An object with its metadata, and these fields beside them.

    >>> build_object("v1", "ConfigMap", "a", "tests", data={"x": "1"})["metadata"]
    {'name': 'a', 'namespace': 'tests'}
    """
    metadata: Object = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata |= {"labels": dict(labels)} if labels else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def format_yaml(objects: Iterable[Object], comments: Sequence[str] = (), *, width: int = 120) -> str:
    """Objects as one YAML stream after comments; multi-line strings are blocks, and values are never anchors."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Plain.add_representer(str, represent_text)
    heads = "".join(f"# {line}\n" for comment in comments for line in comment.splitlines())
    return heads + "".join(
        "---\n" + yaml.dump(manifest, Dumper=Plain, sort_keys=False, default_flow_style=False, width=width)
        for manifest in objects
    )
