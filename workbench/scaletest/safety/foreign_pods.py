"""Pods that are not of this run: what they hold of the nodes that the test uses, and other tests among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
import orjson

from workbench.core.formats import format_items
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.cluster_api.list_watch import iterate_items
from workbench.scaletest.observation.object_ledger import Pod, read_asks
from workbench.scaletest.safety.cluster_facts import Finding, Level

_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_BESIDE = "wait until it is free, or accept less room with --beside-others"


@dataclass
class ForeignPods:
    """What others hold and wait for.

    `held`: Amounts by resource on the nodes that the test uses, places for pods included.
    `waiting`: Pods that wait for a node, by the resources that they ask for.
    `runs`: Pods of other tests in this test's namespaces, by run id.
    """

    held: dict[str, float] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod, nodes: frozenset[str], namespaces: Iterable[str]) -> None:
        """Count one pod that has not ended."""
        node = pod.spec.nodeName if pod.spec is not None else None
        asks = {**read_asks(pod), "pods": 1.0}
        if node is None:
            self.waiting.update(dict.fromkeys(asks, 1))
        elif node in nodes:
            for name, amount in asks.items():
                self.held[name] = self.held.get(name, 0.0) + amount
        run = (pod.metadata.labels or {}).get(api_discovery.RUN)
        if run is not None and pod.metadata.namespace in namespaces:
            self.runs[run] += 1


async def list_foreign_pods(
    api: Connection, run: str, nodes: frozenset[str], namespaces: tuple[str, ...]
) -> ForeignPods:
    """Count the pods of the whole cluster that have not ended and are not of this run."""
    found = ForeignPods()
    query = {"fieldSelector": _ENDED, "labelSelector": f"{api_discovery.RUN}!={run}"}
    async for item in iterate_items(api, "/api/v1/pods", **query):
        found.add(msgspec.json.decode(orjson.dumps(item), type=Pod), nodes, namespaces)
    return found


def check_foreign_pods(
    found: ForeignPods, wanted: Iterable[str], offered: Mapping[str, float], *, beside_others: bool
) -> list[Finding]:
    """Refuse a test beside others that hold or wait for the devices that its pods ask for, unless that is accepted.

    `wanted`: Extended resources that the test's pods ask for. `offered`: What the nodes offer of each resource.

    >>> others = ForeignPods(held={"nvidia.com/gpu": 12})
    >>> (finding,) = check_foreign_pods(others, ["nvidia.com/gpu"], {"nvidia.com/gpu": 16}, beside_others=False)
    >>> finding.level, finding.text
    ('refused', 'others hold 12 of 16 nvidia.com/gpu, and 0 of their pods wait for it: 4 are free')
    """
    level: Level = "warning" if beside_others else "refused"
    findings = []
    if found.runs:
        tests = format_items([f"{run} ({count:,} pods)" for run, count in sorted(found.runs.items())], 3)
        do = f"wait for its end, or `workbench scaletest cleanup {min(found.runs)}`; --beside-others runs beside it"
        findings.append(Finding(level, "other tests", f"pods of other tests are in this namespace: {tests}", do))
    for name in sorted(wanted):
        held, waiting, whole = found.held.get(name, 0.0), found.waiting[name], offered.get(name, 0.0)
        if held or waiting:
            text = f"others hold {held:g} of {whole:g} {name}, and {waiting:,} of their pods wait for it"
            free = max(0.0, whole - held)
            findings.append(Finding(level, "others", f"{text}: {free:g} are free", _BESIDE))
    return findings
