"""The cluster's nodes: what each offers, and whether it is ready."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from workbench.scaletest import names, records
from workbench.scaletest.watching.known import Scope, Sight
from workbench.scaletest.watching.objects import Node

SCOPE = Scope("node", "Node", "")
KWOK = "kwok.x-k8s.io/node"
# Labels that tell where a node stands and what it is; all others are nobody's business.
KEPT = re.compile(
    r"workbench\.local/.*|topology\.kubernetes\.io/.*|kubernetes\.io/arch|type|.*/(zone|rack|block)"
    r"|nvidia\.com/gpu\.(product|count|memory)|node\.kubernetes\.io/instance-type|run\.ai/.*node-?pool.*"
)
MOST_LABELS = 16
MOST_QUANTITY = 1e18
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kKMGTPE]i?)?")
_POWERS = {letter: power for power, letter in enumerate("kMGTPE", 1)}


def quantity(text: str | None) -> float:
    """A quantity as Kubernetes writes it, in its base unit; 0 where there is none.

    Examples
    --------
    >>> quantity("8"), quantity("250m"), quantity("2Ki"), quantity("1k"), quantity("1e3")
    (8.0, 0.25, 2048.0, 1000.0, 1000.0)
    """
    found = _QUANTITY.fullmatch(text or "")
    if found is None:
        try:
            value = float(text or 0)
        except ValueError:
            return 0.0
        return value if 0 < value < MOST_QUANTITY else 0.0
    value, unit = float(found.group(1)), found.group(2) or ""
    if unit == "m":
        return value / 1000
    if not unit:
        return min(value, MOST_QUANTITY)
    base = 1024 if unit.endswith("i") else 1000
    return min(float(value * base ** _POWERS[unit[0] if unit[0] != "K" else "k"]), MOST_QUANTITY)


class Nodes:
    """A sink that writes a node when it is first seen, and when its readiness or what it offers changed."""

    def __init__(self, write: Callable[[records.NodeSeen], None]) -> None:
        self._write = write
        self._last: dict[str, records.NodeSeen] = {}

    @property
    def not_ready(self) -> int:
        """How many nodes are not ready now."""
        return sum(not one.ready for one in self._last.values())

    def put(self, thing: Any, sight: Sight) -> int:
        """A node's state."""
        found = record(thing, sight.arrival_ns)
        before = self._last.get(found.name)
        # Its GPUs may come after it is ready: a device plugin tells them.
        if before is not None and _state(before) == _state(found):
            return 0
        self._last[found.name] = found
        self._write(found)
        return 1

    def gone(self, thing: Any, sight: Sight) -> int:
        """A node was deleted: it is not ready any more, and counts no longer."""
        before = self._last.pop(thing.metadata.name, None)
        if before is not None and before.ready:
            self._write(records.NodeSeen(thing.metadata.name, sight.arrival_ns, ready=False))
        return 1


def _state(one: records.NodeSeen) -> tuple[bool, int, float, int, int]:
    return one.ready, one.gpus, one.cpus, one.memory_bytes, one.pods


def record(node: Node, arrival_ns: int) -> records.NodeSeen:
    """What is kept of a node."""
    status, meta = node.status, node.metadata
    offers = (status.allocatable if status is not None else None) or {}
    conditions = (status.conditions if status is not None else None) or []
    labels = meta.labels or {}
    taints = (node.spec.taints if node.spec is not None else None) or []
    kept = {key: value[:100] for key, value in sorted(labels.items()) if KEPT.fullmatch(key)}
    gpus = sum(quantity(value) for key, value in offers.items() if key.endswith("/gpu"))
    return records.NodeSeen(
        name=meta.name,
        arrival_ns=arrival_ns,
        ready=any(one.type == "Ready" and one.status == "True" for one in conditions),
        gpus=int(gpus),
        cpus=quantity(offers.get("cpu")),
        memory_bytes=int(quantity(offers.get("memory"))),
        pods=int(quantity(offers.get("pods"))),
        simulated=labels.get(names.SIMULATED) == "true" or any(one.key == KWOK for one in taints),
        labels=dict(list(kept.items())[:MOST_LABELS]),
    )
