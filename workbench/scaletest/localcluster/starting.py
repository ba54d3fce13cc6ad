"""A cluster from nothing to ready, step by step, and back to nothing."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, WorkbenchError
from workbench.scaletest.connection import Connection, target
from workbench.scaletest.localcluster import binaries, control_plane, identity, kai, nodes, processes, record
from workbench.scaletest.localcluster.record import Part, Record
from workbench.scaletest.localcluster.settings import Settings

KUBECONFIG, MEASURE = "kubeconfig", "measure.kubeconfig"
_MARKER = ".workbench-cluster"


def started(
    name: str,
    settings: Settings,
    found: binaries.Binaries,
    folder: Path | None,
    owner: tuple[int, float],
    timeout_s: float,
    tell: Callable[[str], None],
) -> Record:
    """Start a cluster from nothing; nothing of it is left when that fails, or is interrupted.

    Raises
    ------
    ConfigError
        The folder for its data is not empty.
    RunFailedError
        It did not start: the end of a log is told.
    """
    place = _place(name, folder)
    begun = Record(
        name=name,
        state="starting",
        folder=place,
        settings=settings,
        provider=found.provider,
        kubectl=found.kubectl,
        owner_pid=owner[0],
        owner_started=owner[1],
    )
    record.write(begun)
    try:
        made = _made(begun, found, timeout_s, tell)
        record.write(made)
    except BaseException:  # Ctrl-C too: nothing of it is left
        remove(name)
        raise
    return made


def _place(name: str, folder: Path | None) -> Path:
    """The folder of a cluster's data, made empty and private, and marked as ours to remove."""
    place = (record.home(name) if folder is None else folder.expanduser()).absolute()
    if place.exists() and any(place.iterdir()):
        raise ConfigError("the folder is not empty", where=place, do="name one that is empty, or not there yet")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.chmod(0o700)
    (place / _MARKER).write_text(name, encoding="utf-8")
    return place


def _made(begun: Record, found: binaries.Binaries, timeout_s: float, tell: Callable[[str], None]) -> Record:
    folder, name, since = begun.folder, begun.name, time.monotonic()
    # A second of imports, while we would only wait.
    threading.Thread(target=importlib.import_module, args=("kubernetes.config",), daemon=True).start()
    parts = control_plane.create(folder, name, begun.settings, found, timeout_s=timeout_s)
    tell(f"control plane is up after {time.monotonic() - since:.1f} s")
    server = _kubeconfig(folder, name, parts)
    with_kai = begun.settings.scheduler == "kai"
    server_version = complete(_furnish(begun, server, found.kai if with_kai else None, timeout_s, tell))
    versions = control_plane.versions(folder, name)
    if with_kai:
        added = kai.start(folder, begun.settings, found.need_kai(), folder / KUBECONFIG)
        control_plane.wait_healthy(folder, added, timeout_s=timeout_s)
        versions |= dict.fromkeys(kai.NAMES, found.kai_version)
        parts += added
    tell(f"ready after {time.monotonic() - since:.1f} s")
    return begun.model_copy(
        update={
            "state": "up",
            "server": server,
            "kubernetes_version": server_version,
            "audited": True,
            "parts": parts,
            "components": tuple(control_plane.component(one, folder, versions.get(one.name)) for one in parts),
        }
    )


def _kubeconfig(folder: Path, name: str, parts: tuple[Part, ...]) -> str:
    server = next(part.health for part in parts if part.name == "kube-apiserver").removesuffix("/readyz")
    keys = control_plane.workdir(folder, name) / "pki"
    identity.write_kubeconfig(
        folder / KUBECONFIG,
        server=server,
        authority=keys / "ca.crt",
        context=identity.context(name),
        user={"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")},
    )
    return server


async def _furnish(
    begun: Record, server: str, kai_programs: Path | None, timeout_s: float, tell: Callable[[str], None]
) -> str:
    """Nodes, identities, what KAI needs; the server's version."""
    folder, name = begun.folder, begun.name
    async with Connection(target(folder / KUBECONFIG, identity.context(name))) as api:
        since = time.monotonic()
        count = await nodes.create(api, begun.settings.pools)
        tell(f"{count} simulated nodes made in {time.monotonic() - since:.1f} s")
        token = await identity.make_measuring(api)
        identity.write_kubeconfig(
            folder / MEASURE,
            server=server,
            authority=control_plane.workdir(folder, name) / "pki" / "ca.crt",
            context=identity.measure_context(name),
            user={"token": token},
        )
        await kai.furnish(api, kai_programs, timeout_s=timeout_s)
        await nodes.wait_ready(api, count, timeout_s=timeout_s)
        return str((await api.json("GET", "/version"))["gitVersion"])


def remove(name: str) -> bool:
    """End what runs of a cluster and remove its folders, whatever state it is in. Was there anything of it?"""
    home = record.home(name).absolute()
    try:
        known = record.read(name)
    except ConfigError:
        known = None
    places = {home, known.folder if known else home}
    found = False
    for place in places:
        # A second look: kwokctl may have been starting one while the others were ended.
        while alive := [one for many in processes.running(place).values() for one in many]:
            found = True
            processes.end(alive)
        if place == home or (place / _MARKER).is_file():
            found = found or place.exists()
            shutil.rmtree(place, ignore_errors=True)
            if place.exists():
                shutil.rmtree(place)
    return found


def complete(work: Coroutine[Any, Any, str]) -> str:
    """Run to the end; in a thread where an event loop runs already, as it does in a notebook.

    An error out of a group of tasks is raised as itself: the first tells what is wrong.
    """
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()
    except BaseExceptionGroup as group:
        first = next((one for one in group.exceptions if isinstance(one, WorkbenchError)), group.exceptions[0])
        raise first from None
