"""Custom resources of a local cluster's added components: made from their definitions, and waited for."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from workbench.core.errors import RunFailedError
from workbench.scaletest.cluster_api.connection import CONFLICT, Connection

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLL_S = 0.05


async def create_definitions(api: Connection, folder: Path, owner: str, *, timeout_s: float) -> None:
    """Make the definitions of a folder's files, and wait until they are taken up."""
    names = []
    for file in sorted(folder.glob("*.yaml")):
        answer = await api.request("POST", _DEFINITIONS, body=file.read_bytes(), content_type="application/yaml")
        if answer.status not in (201, CONFLICT):
            raise RunFailedError(f"a resource of {owner} was refused", where=file.name, found=answer.refusal)
        # File names are GROUP_PLURAL.yaml, resources are called PLURAL.GROUP.
        group, plural = file.stem.split("_", 1)
        names.append(f"{plural}.{group}")
    deadline = time.monotonic() + timeout_s
    for name in names:
        while True:
            status = (await api.json("GET", f"{_DEFINITIONS}/{name}")).get("status", {})
            conditions = status.get("conditions") or []
            if any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions):
                break
            if time.monotonic() > deadline:
                raise RunFailedError(f"a resource of {owner} was not taken up", where=name)
            await asyncio.sleep(_POLL_S)
