"""The old submitter's flags as a scenario of ours: bursts of so many processes, exactly so many workloads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from workbench.errors import ConfigError
from workbench.scaletest.scenario import Scenario
from workbench.scaletest.upstream import workloads

OUTPUT, DEFAULT_PROJECT, PROCESSES = "logs", "project-0", 8
RATE_PER_S = 20.0
_BURST_S, _LEAST_S, _MOST_S = 60.0, 1800.0, 7 * 86_400.0


@dataclass(frozen=True)
class Flags:
    """What was asked for, by the old tool's names.

    Attributes
    ----------
    gpus
        A text: a share of a GPU keeps its spelling.
    delay
        Seconds between bursts; after their end in a closed loop, between their begins in an open one.
    template
        One of its YAML templates; our own equivalent without.
    max_rate
        Workloads a second at most; with no delay, bursts follow one another at this rate.
    """

    workload_type: str | None
    num_workloads: int | None
    num_processes: int = PROCESSES
    num_gpus: str = "1"
    num_workers: int = 1
    delay: float = 0.0
    project: str = DEFAULT_PROJECT
    pvc: bool = False
    template: Path | None = None
    max_rate: float = RATE_PER_S
    allow_real_nodes: bool = False
    scheduler: str = "default"

    @property
    def namespace(self) -> str:
        """Run:ai's namespace of the project."""
        return f"runai-{self.project}"


def scenario(flags: Flags) -> Scenario:
    """The scenario that these flags ask for.

    Raises
    ------
    ConfigError
        A flag is missing, or its value is none; what is allowed is told.
    """
    workloads.checked(flags.workload_type, flags.project, flags.num_gpus, flags.num_workers)
    _check_numbers(flags)
    assert flags.workload_type is not None
    given = (flags.project, flags.num_gpus, flags.num_workers)
    if flags.template is None:
        template = workloads.built_in(flags.workload_type, *given, pvc=flags.pvc)
    else:
        template = workloads.of_file(flags.template, *given, pvc=flags.pvc)
    distributed = flags.workload_type == "distributed"
    entry = {
        "kind": "Template",
        "name": flags.workload_type,
        "template": template,
        "pods": flags.num_workers + 1 if distributed else 1,
        "gang": distributed,
        "cpus": workloads.CPUS,
        "memory": workloads.MEMORY_BYTES,
        "priority": None,
        **_gpus(flags.num_gpus),
    }
    every_s = flags.delay or flags.num_processes / flags.max_rate
    made = {
        "name": f"upstream-{flags.workload_type}",
        "schedulers": [flags.scheduler],
        "namespaces": [flags.namespace],
        "arrival": {"process": "burst", "size": flags.num_processes, "every_s": every_s, "n": flags.num_workloads},
        "workloads": [entry],
        "limits": _limits(flags, every_s),
        "allow_real_nodes": flags.allow_real_nodes,
    }
    try:
        return Scenario.model_validate(made)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        raise ConfigError("these flags cannot be", where="the template and the flags", found=found) from None


def _limits(flags: Flags, every_s: float) -> dict[str, float]:
    """What the submission may ask of the cluster; the bursts may take a minute each: a closed loop waits for them."""
    workloads = flags.num_workloads or 0
    longest_s = math.ceil(workloads / flags.num_processes) * (every_s + _BURST_S)
    return {
        "objects": max(1000, workloads),
        "rate_per_s": _peak(flags, every_s),
        "in_flight": max(64, flags.num_processes),
        "wall_clock_s": min(max(_LEAST_S, longest_s), _MOST_S),
    }


def _check_numbers(flags: Flags) -> None:
    if flags.num_workloads is None:
        raise ConfigError("how many workloads?", where="-n, --num-workloads", allowed="1 to 1000000")
    bounds = (
        ("-n, --num-workloads", flags.num_workloads, 1, 1_000_000),
        ("-p, --num-processes", flags.num_processes, 1, 1024),
        ("--delay", flags.delay, 0, 86_400),
        ("--max-rate", flags.max_rate, 0.001, 10_000),
    )
    for where, value, low, high in bounds:
        if not low <= value <= high:
            raise ConfigError("out of bounds", where=where, found=value, allowed=f"{low} to {high}")


def _peak(flags: Flags, every_s: float) -> float:
    """The limit of the plan: a burst goes out at once, so its size may be above the rate, over time it may not."""
    if flags.num_processes / every_s > flags.max_rate * (1 + 1e-9):
        raise ConfigError(
            "faster than is allowed",
            where="-p, --delay",
            found=f"{flags.num_processes / every_s:g} a second",
            allowed=f"{flags.max_rate:g} a second",
            do="a longer --delay, fewer -p, or a higher --max-rate where the cluster may be asked for it",
        )
    return flags.num_processes * max(1.0, 1 / every_s)


def _gpus(text: str) -> dict[str, float | int]:
    value = float(text)
    return {"fraction": value} if 0 < value < 1 else {"gpus": int(value)}
