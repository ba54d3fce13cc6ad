"""Nodes that took no pods for a part of a run, cordoned or not ready, though nobody had planned it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from workbench.core.formats import format_items

MAX_NAMED = 3
# A list of all nodes arrives within so long; what changes later is a change.
FIRST_LIST_S = 1.0


@dataclass(frozen=True)
class NodeLosses:
    """Nodes that took no pods.

    `first_s`: When the first of them was lost, seconds after the start; 0 for one that never took pods.
    `from_the_start`: All of them took no pods from the beginning to the end: less room, which is the same all the
    time.
    `gpus`: Least and most GPUs to place pods on; null without GPUs.
    """

    names: tuple[str, ...]
    n_nodes: int
    first_s: float
    from_the_start: bool
    lost_fraction: float
    gpus: tuple[int, int] | None

    @property
    def sentence(self) -> str:
        """What was lost, when, and what was left."""
        when = "all the time" if self.from_the_start else f"from {self.first_s:.3g} s on, for a time at least"
        least, greatest = self.gpus or (0, 0)
        room = f"{least}" if least == greatest else f"{least} to {greatest}"
        remainder = f": there were {room} GPUs to place pods on" if self.gpus else ""
        lost = f"{len(self.names)} of {self.n_nodes} nodes took no pods {when}"
        return f"{lost} (cordoned, tainted or not ready: {format_items(self.names, MAX_NAMED)}){remainder}"


def find_node_losses(nodes: pl.DataFrame, changes: pl.DataFrame, end_s: float) -> NodeLosses | None:
    """Which nodes took no pods for a part of a run? Null where all did, or nothing was seen of them.

    A node that came during the run, and took pods from then on, is not lost. Knows nodes that were seen only.
    """
    if not changes.height or end_s <= 0:
        return None
    weights = dict(nodes.select("name", pl.col("gpus").cast(pl.Float64)).iter_rows())
    has_gpus = any(weights.values())
    node_changes = changes.filter(pl.col("name").is_in(list(weights))).sort("at_s")
    lost: dict[str, tuple[float, float]] = {}  # since when, and for how long
    for (name,), node_rows in node_changes.group_by("name", maintain_order=True):
        rows = node_rows.select("at_s", "ready").rows()
        spans = zip(rows, [*(at_s for at_s, _ in rows[1:]), max(end_s, rows[-1][0])], strict=True)
        away = [(max(0.0, at_s), max(0.0, until_s)) for (at_s, ready), until_s in spans if not ready]
        came_late = rows[0][0] > FIRST_LIST_S and rows[-1][1] and not any(begin > rows[0][0] for begin, _ in away)
        total_s = sum(until_s - begin for begin, until_s in away)
        if total_s > 0 and not came_late:
            lost[str(name)] = (away[0][0], total_s)
    if not lost:
        return None
    names = sorted(lost, key=lambda name: (lost[name][0], name))
    measure = {name: (weights[name] if has_gpus else 1.0) for name in weights}
    capacity_s = sum(measure.values()) * end_s
    return NodeLosses(
        tuple(names),
        len(weights),
        lost[names[0]][0],
        all(begin <= FIRST_LIST_S and total_s >= end_s - FIRST_LIST_S for begin, total_s in lost.values()),
        sum(measure[name] * min(total_s, end_s) for name, (_, total_s) in lost.items()) / capacity_s
        if capacity_s
        else 0.0,
        _count_usable_gpus(node_changes, end_s) if has_gpus else None,
    )


def _count_usable_gpus(changes: pl.DataFrame, end_s: float) -> tuple[int, int]:
    """Least and most GPUs of nodes that took pods, from the first list of all nodes on."""
    usable: dict[str, int] = {}
    seen: list[int] = []
    for at_s, name, ready, gpus in changes.select("at_s", "name", "ready", "gpus").iter_rows():
        usable[name] = gpus if ready else 0
        if at_s <= end_s:
            seen = [] if at_s <= FIRST_LIST_S else seen
            seen.append(sum(usable.values()))
    return min(seen, default=0), max(seen, default=0)
