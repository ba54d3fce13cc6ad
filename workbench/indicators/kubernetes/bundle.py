"""All that a session's pods are given, as files in ConfigMaps: runner, plan, order of the runs, scripts, locks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench import formats
from workbench.errors import ConfigError
from workbench.indicators.archive import Session
from workbench.indicators.contract import Case
from workbench.indicators.kubernetes.options import ClusterOptions
from workbench.indicators.kubernetes.pod import ROUNDS_A_FILE
from workbench.indicators.running.process import clean_environment
from workbench.indicators.running.recording import Prepared
from workbench.indicators.running.schedule import order
from workbench.indicators.running.wire import STDERR_BYTES, STDOUT_BYTES, Limits
from workbench.indicators.stacks.model import Stack

MOST_BYTES = 1 << 20
"""Of a ConfigMap, keys and texts together: what Kubernetes takes."""
MOST_MAPS = 16
_SPARE_BYTES = 16 << 10
PARTS = ("pod.py", "pod_install.py")


def contents(
    session: Session,
    stacks: Sequence[Stack],
    cases: Sequence[Case],
    options: ClusterOptions,
    *,
    rounds: Sequence[int],
    processes: int = Limits().processes,
) -> dict[str, str]:
    """The files that a session's pods read: name to text.

    Parameters
    ----------
    session
        What is planned.
    stacks, cases
        Its stacks, by key, and its cases with their scripts.
    options
        What the cluster is asked for.
    rounds
        The rounds that are made, in the order of the pods' indexes.
    processes
        Processes and threads of a run at most.

    Raises
    ------
    ConfigError
        An arm's stack or a case is not given, or is not the one that was planned.
    """
    by_key = {stack.key: stack for stack in stacks}
    if missing := [arm.name for arm in session.arms if arm.stack_key not in by_key]:
        raise ConfigError("a stack of the session is not given", found=missing, allowed=[one.name for one in stacks])
    prepared = _prepared(session, cases)
    files = {name: (Path(__file__).parent / name).read_text(encoding="utf-8") for name in PARTS}
    texts = [(name, text) for case in prepared for name, text in case.sources.items()]
    files |= {_source_key(text): text for _, text in texts}
    locks = {arm.stack_key: f"lock-{by_key[arm.stack_key].lock_sha256[:16]}.txt" for arm in session.arms}
    files |= {name: by_key[key].lock for key, name in locks.items()}
    files |= _orders(session, [case.label for case in session.cases], [arm.name for arm in session.arms])
    limits = Limits(memory_bytes=None if options.gpus else session.memory_bytes, processes=processes)
    plan = {
        **_plan(session, options, limits),
        "rounds": list(rounds),
        "cases": [_case(session, case) for case in prepared],
        "environments": [
            {
                "stack": arm.name,
                "python": ".".join(arm.python.split(".")[:2]),
                "lock": locks[arm.stack_key],
                "packages": by_key[arm.stack_key].versions,
            }
            for arm in session.arms
        ],
    }
    files["plan.json"] = json.dumps(plan, indent=1, sort_keys=True) + "\n"
    return files


def _plan(session: Session, options: ClusterOptions, limits: Limits) -> dict[str, Any]:
    """What holds for all runs of all rounds."""
    return {
        "arms": [{"name": arm.name, "environment": number} for number, arm in enumerate(session.arms)],
        "threads": session.run_threads,
        "cpus": cores(session, options),
        "gpus": options.gpus,
        "timeout_s": session.run_timeout_s,
        "stdout_bytes": STDOUT_BYTES,
        "stderr_bytes": STDERR_BYTES,
        "isolation": _isolation(options, limits),
        "limits": {
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes,
            "file_bytes": limits.file_bytes,
            "open_files": limits.open_files,
            "cpu_s": int(session.run_timeout_s * session.run_threads) + 1,
        },
    }


def cores(session: Session, options: ClusterOptions) -> int:
    """Whole cores of a pod: one beside the threads, so that the runner never slows a run."""
    return options.cpus or session.run_threads + 1


def _prepared(session: Session, cases: Sequence[Case]) -> list[Prepared]:
    given = {case.label: case for case in cases}
    found = []
    for planned in session.cases:
        if planned.label not in given:
            raise ConfigError("a case of the session is not given", where=planned.label, allowed=list(given) or "none")
        one = Prepared.of(given[planned.label])
        if one.version != planned.indicator_version:
            raise ConfigError(
                "the indicator has changed since the session was planned",
                where=planned.label,
                found=f"version {one.version}",
                allowed=planned.indicator_version,
                do="begin a new session: values of two versions are not compared",
            )
        found.append(one)
    return found


def _case(session: Session, prepared: Prepared) -> dict[str, Any]:
    return {
        "label": prepared.case.label,
        "sources": {name: _source_key(text) for name, text in prepared.sources.items()},
        "environment": clean_environment(session.run_threads, prepared.environment),
    }


def _source_key(text: str) -> str:
    """One name for one text: indicators share files."""
    return f"source-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"


def _orders(session: Session, cases: list[str], arms: list[str]) -> dict[str, str]:
    """Each round's runs as (position, case, arm), by numbers; a file for so many rounds."""
    found: dict[str, dict[str, list[tuple[int, int, int]]]] = {}
    for slot in order(session):
        of_round = found.setdefault(f"order-{slot.round // ROUNDS_A_FILE}.json", {}).setdefault(str(slot.round), [])
        of_round.append((slot.position, cases.index(slot.case), arms.index(slot.arm)))
    return {name: json.dumps(rounds, separators=(",", ":")) + "\n" for name, rounds in found.items()}


def _isolation(options: ClusterOptions, limits: Limits) -> dict[str, str]:
    """What is in force for a run, in words; the pod says itself whether it could leave the network."""
    allowed = ", ".join(["DNS", *(f"TCP {text}" for text in options.egress)])
    memory = "no limit but the pod's"
    if limits.memory_bytes is not None:
        memory = f"at most {limits.memory_bytes / 2**30:.3g} GiB (data of each process)"
    return {
        "network": "not isolated",
        "network reason": f"a NetworkPolicy asks for {allowed} alone, for the whole pod",
        "memory": memory,
        "processes": f"at most {limits.processes} (of the user)",
        "user": "unprivileged, of its own",
        "container": f"{options.runtime_class or 'the default'} runtime, read-only root, no capabilities",
    }


def config_maps(files: Mapping[str, str]) -> list[dict[str, str]]:
    """The files spread over as few ConfigMaps as they fit into, in order of size.

    Raises
    ------
    ConfigError
        A file alone is too large, or all of them are; the message names the largest with their sizes.
    """
    sizes = {name: len(name) + len(text.encode()) for name, text in files.items()}
    most = MOST_BYTES - _SPARE_BYTES
    ordered = sorted(files, key=lambda name: (-sizes[name], name))
    told = [f"{name}: {formats.size(sizes[name])}" for name in ordered[:5]]
    if sizes[ordered[0]] > most:
        raise ConfigError("too large for a ConfigMap", found=told, allowed=f"up to {formats.size(most)} a file")
    maps: list[tuple[int, dict[str, str]]] = []
    for name in ordered:
        place = next((at for at, (used, _) in enumerate(maps) if used + sizes[name] <= most), None)
        if place is None:
            maps.append((0, {}))
            place = len(maps) - 1
        used, held = maps[place]
        maps[place] = (used + sizes[name], held | {name: files[name]})
    if len(maps) > MOST_MAPS:
        raise ConfigError(
            "a session too large for ConfigMaps",
            found=[f"{formats.size(sum(sizes.values()))} in all", *told],
            allowed=f"up to {MOST_MAPS} of 1 MiB",
            do="fewer stacks or indicators in one session, or smaller files beside the scripts",
        )
    return [held for _, held in maps]
