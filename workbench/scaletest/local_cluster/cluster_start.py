"""Start of a local cluster from nothing, and its removal in any state."""

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

from workbench.core import signals
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.scaletest.cluster_api.connection import Connection, load_target
from workbench.scaletest.local_cluster import (
    cluster_record,
    component_processes,
    control_plane,
    identities,
    kai_scheduler,
    kueue_queues,
    program_providers,
    second_schedulers,
    simulated_nodes,
)
from workbench.scaletest.local_cluster.cluster_record import (
    ClusterPart,
    ClusterRecord,
    ClusterSettings,
)

KUBECONFIG, MEASURE_KUBECONFIG = "kubeconfig", "measure.kubeconfig"
_MARKER = ".workbench-cluster"


def start_from_nothing(
    name: str,
    settings: ClusterSettings,
    binaries: program_providers.Binaries,
    folder: Path | None,
    owner: tuple[int, float],
    timeout_s: float,
    tell: Callable[[str], None],
) -> ClusterRecord:
    """Start a new cluster; after a failure or an interrupt everything is removed."""
    place = _make_data_folder(name, folder)
    begun = ClusterRecord(
        name=name,
        state="starting",
        folder=place,
        settings=settings,
        provider=binaries.provider,
        kubectl=binaries.kubectl,
        owner_pid=owner[0],
        owner_started=owner[1],
    )
    cluster_record.write_record(begun)
    try:
        with signals.interrupt_on_termination():
            record = _start_parts(begun, binaries, timeout_s, tell)
            cluster_record.write_record(record)
    except BaseException:  # also on Ctrl-C
        with signals.ignore_signals():
            remove_cluster(name)
        raise
    return record


def _make_data_folder(name: str, folder: Path | None) -> Path:
    """Create the data folder of a cluster, private, with a marker that allows its removal."""
    place = (cluster_record.find_cluster_folder(name) if folder is None else folder.expanduser()).absolute()
    if place.exists() and any(place.iterdir()):
        raise ConfigError("the folder is not empty", where=place, do="give an empty or new folder")
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.chmod(0o700)
    (place / _MARKER).write_text(name, encoding="utf-8")
    return place


def _start_parts(
    begun: ClusterRecord, binaries: program_providers.Binaries, timeout_s: float, tell: Callable[[str], None]
) -> ClusterRecord:
    folder, name, since = begun.folder, begun.name, time.monotonic()
    # Imports take a second; the wait hides that.
    threading.Thread(target=importlib.import_module, args=("kubernetes.config",), daemon=True).start()
    parts = control_plane.create_control_plane(folder, name, begun.settings, binaries, timeout_s=timeout_s)
    tell(f"control plane is up after {time.monotonic() - since:.1f} s")
    server = _write_admin_kubeconfig(folder, name, parts)
    with_kai = begun.settings.scheduler == "kai"
    kai, kueue = binaries.kai if with_kai else None, binaries.require_kueue() if begun.settings.kueue else None
    server_version = run_coroutine(_furnish_cluster(begun, server, kai, kueue, timeout_s, tell))
    versions = control_plane.read_versions(folder, name)
    if with_kai:
        added = kai_scheduler.start_kai(folder, begun.settings, binaries.require_kai(), folder / KUBECONFIG)
        control_plane.wait_until_healthy(folder, added, timeout_s=timeout_s)
        versions |= dict.fromkeys(kai_scheduler.KAI_PROCESSES, binaries.kai_version)
        parts += added
    more = tuple(
        second_schedulers.start_second_scheduler(folder, begun.settings, recipe, binaries.require_scheduler())
        for recipe in begun.settings.recipes
    )
    if begun.settings.kueue:
        more += (kueue_queues.start_kueue(folder, name, begun.settings, binaries.require_kueue()),)
    control_plane.wait_until_healthy(folder, more, timeout_s=timeout_s)
    if begun.settings.kueue:
        run_coroutine(_register_kueue(begun, binaries.require_kueue(), timeout_s))
    versions |= dict.fromkeys([recipe.name for recipe in begun.settings.recipes], versions.get("kube-scheduler"))
    versions |= {kueue_queues.NAME: binaries.kueue_version} if begun.settings.kueue else {}
    parts += more
    own_limit = cluster_record.DEFAULT_LIMITS["kube-scheduler"]
    limits = {part.name: begun.settings.client_limits.get(part.name, own_limit) for part in more}
    tell(f"ready after {time.monotonic() - since:.1f} s")
    return begun.model_copy(
        update={
            "state": "up",
            "server": server,
            "kubernetes_version": server_version,
            "audited": True,
            "parts": parts,
            "components": tuple(
                control_plane.describe_component(part, folder, versions.get(part.name), limits.get(part.name))
                for part in parts
            ),
        }
    )


def _write_admin_kubeconfig(folder: Path, name: str, parts: tuple[ClusterPart, ...]) -> str:
    server = next(part.health for part in parts if part.name == "kube-apiserver").removesuffix("/readyz")
    keys = control_plane.find_workdir(folder, name) / "pki"
    identities.write_kubeconfig(
        folder / KUBECONFIG,
        server=server,
        authority=keys / "ca.crt",
        context=identities.admin_context(name),
        user={"client-certificate": str(keys / "admin.crt"), "client-key": str(keys / "admin.key")},
    )
    return server


async def _furnish_cluster(
    begun: ClusterRecord,
    server: str,
    kai_programs: Path | None,
    kueue_programs: Path | None,
    timeout_s: float,
    tell: Callable[[str], None],
) -> str:
    """Create nodes, identities, and KAI's and Kueue's objects; returns the server version."""
    folder, name = begun.folder, begun.name
    async with Connection(load_target(folder / KUBECONFIG, identities.admin_context(name))) as api:
        since = time.monotonic()
        count = await simulated_nodes.create_nodes(api, begun.settings.pools)
        tell(f"{count} simulated nodes created in {time.monotonic() - since:.1f} s")
        token = await identities.create_measuring_identity(api)
        identities.write_kubeconfig(
            folder / MEASURE_KUBECONFIG,
            server=server,
            authority=control_plane.find_workdir(folder, name) / "pki" / "ca.crt",
            context=identities.measure_context(name),
            user={"token": token},
        )
        names = [recipe.name for recipe in begun.settings.recipes]
        if kueue_programs is not None:
            names.append(kueue_queues.NAME)
            await kueue_queues.create_resources(api, kueue_programs, timeout_s=timeout_s)
        authority = control_plane.find_workdir(folder, name) / "pki" / "ca.crt"
        await second_schedulers.create_accounts(api, folder, server, authority, names)
        await kai_scheduler.create_kai_objects(api, kai_programs, timeout_s=timeout_s)
        await simulated_nodes.wait_for_nodes(api, count, timeout_s=timeout_s)
        return str((await api.json("GET", "/version"))["gitVersion"])


async def _register_kueue(begun: ClusterRecord, programs: Path, timeout_s: float) -> str:
    folder, name = begun.folder, begun.name
    async with Connection(load_target(folder / KUBECONFIG, identities.admin_context(name))) as api:
        await kueue_queues.register(api, folder, name, begun.settings, programs, timeout_s=timeout_s)
    return ""


def remove_cluster(name: str) -> bool:
    """Stop all processes of a cluster and remove its folders, in any state; whether there was anything."""
    home = cluster_record.find_cluster_folder(name).absolute()
    try:
        record = cluster_record.read_record(name)
    except ConfigError:
        record = None
    places = {home, record.folder if record else home}
    has_remains = False
    for place in places:
        # A second pass: kwokctl may have started a process meanwhile.
        while alive := [process for many in component_processes.find_processes(place).values() for process in many]:
            has_remains = True
            component_processes.end_processes(alive)
        if place == home or (place / _MARKER).is_file():
            has_remains = has_remains or place.exists()
            shutil.rmtree(place, ignore_errors=True)
            if place.exists():
                shutil.rmtree(place)
    return has_remains


def run_coroutine(work: Coroutine[Any, Any, str]) -> str:
    """Run a coroutine; in a thread if an event loop is already running, as in a notebook.

    Raises the first error of an exception group.
    """
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()
    except BaseExceptionGroup as group:
        first = next((error for error in group.exceptions if isinstance(error, WorkbenchError)), group.exceptions[0])
        raise first from None
