"""Room on nodes: what is free, where a pod or a gang fits, which node the default scheduler would choose.

The score is that of the default profile: half for the least allocated, half for a balanced use, of CPU and memory, each
a whole number up to 100; equal scores are decided by chance. GPUs are not scored, unless `packs_gpus` says that the
cluster's scheduler fills nodes up.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workbench.scaletest.scenario.template_pods import GPU
from workbench.scaletest.start_times.cluster_state import ClusterState, NodeRules, PodState

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_ROUNDING = 1e-6
# What the score counts for a pod that requests nothing.
_LEAST_CPU, _LEAST_MEMORY = 0.1, 200 * 2**20
_MAX_SCORE = 100


@dataclass(frozen=True)
class Shape:
    """What a pod needs: of each resource, for its score, and the number of the mask of nodes that its rules allow."""

    needs: Floats
    score_needs: Floats
    mask: int


class NodeTable:
    """Nodes as arrays, shared by all futures; pods of equal needs and rules have one shape."""

    def __init__(self, state: ClusterState, pods: Iterable[PodState], *, packs_gpus: bool = False) -> None:
        self.nodes, self.packs_gpus = state.nodes, packs_gpus
        asked = {name for pod in pods for name, amount in pod.requests.items() if amount}
        self.resources = [*sorted(asked - {"pods"}), "pods"]
        self.index = {node.name: at for at, node in enumerate(state.nodes)}
        self.offers = self._read_offers(self.resources)
        self.score_offers = self._read_offers(["cpu", "memory"])
        self.masks: list[Bools] = []
        self.shapes: list[Shape] = []
        self._mask_numbers: dict[str, int] = {}
        self._known_rules: dict[int, tuple[NodeRules, int]] = {}
        self._shape_numbers: dict[tuple[object, ...], int] = {}

    def _read_offers(self, resources: Sequence[str]) -> Floats:
        rows = [[node.offers.get(name, 0.0) for name in resources] for node in self.nodes]
        return np.array(rows, dtype=float).reshape(len(self.nodes), len(resources))

    def find_shape(self, requests: dict[str, float], rules: NodeRules) -> int:
        """Number of the shape of a pod."""
        mask = self._find_mask(rules)
        key = (mask, *(requests.get(name, 0.0) for name in (*self.resources, "cpu", "memory")))
        if key not in self._shape_numbers:
            needs = np.array([requests.get(name, 0.0) for name in self.resources])
            needs[-1] = 1.0
            score_needs = np.array([requests.get("cpu") or _LEAST_CPU, requests.get("memory") or _LEAST_MEMORY])
            self._shape_numbers[key] = len(self.shapes)
            self.shapes.append(Shape(needs, score_needs, mask))
        return self._shape_numbers[key]

    def _find_mask(self, rules: NodeRules) -> int:
        # Workloads that come again share their rules; the object is kept, so that its number stays its own.
        if id(rules) in self._known_rules:
            return self._known_rules[id(rules)][1]
        key = rules.model_dump_json()
        if key not in self._mask_numbers:
            self._mask_numbers[key] = len(self.masks)
            self.masks.append(np.array([rules.allow(node) for node in self.nodes], dtype=bool))
        self._known_rules[id(rules)] = rules, self._mask_numbers[key]
        return self._mask_numbers[key]


class NodeRoom:
    """What is free on each node in one future."""

    def __init__(self, table: NodeTable, random: np.random.Generator) -> None:
        self.table, self._random = table, random
        self.free = table.offers.copy()
        self._score_used = np.zeros_like(table.score_offers)
        self._gpu = table.resources.index(GPU) if GPU in table.resources else None

    def occupy(self, node: int, shape: int, sign: int = 1) -> None:
        """Put a pod on a node, or take it off with sign -1."""
        self.free[node] -= sign * self.table.shapes[shape].needs
        self._score_used[node] += sign * self.table.shapes[shape].score_needs

    def fits_on(self, node: int, shape: int, extra: Floats | float = 0.0) -> bool:
        """Does a pod fit on this node, with `extra` room there?"""
        found = self.table.shapes[shape]
        return bool(self.table.masks[found.mask][node] and (self.free[node] + extra >= found.needs - _ROUNDING).all())

    def count_fits(self, shape: int, *, ignored: int | None = None, anywhere: bool = False) -> Floats:
        """How many pods of a shape fit on each node; as if there were enough of a resource, or no rules."""
        found = self.table.shapes[shape]
        needed = found.needs > 0
        if ignored is not None:
            needed = needed & (np.arange(len(needed)) != ignored)
        if needed.any():
            counts = np.floor((self.free[:, needed] + _ROUNDING) / found.needs[needed]).min(axis=1)
        else:
            counts = np.full(len(self.free), np.inf)
        return np.maximum(counts if anywhere else np.where(self.table.masks[found.mask], counts, 0.0), 0.0)

    def find_places(self, shapes: Sequence[int], wished: Sequence[int | None] = ()) -> list[int] | None:
        """Nodes for pods that are placed at once; null where not all of them fit. `wished`: Nodes taken if they fit."""
        if len(shapes) > 1 and any(self.count_fits(shape).sum() < n for shape, n in Counter(shapes).items()):
            return None
        nodes: list[int] = []
        for shape, wish in itertools.zip_longest(shapes, wished):
            node = wish if wish is not None and self.fits_on(wish, shape) else self._choose_node(shape)
            if node is None:
                break
            self.occupy(node, shape)
            nodes.append(node)
        for node, shape in zip(nodes, shapes, strict=False):
            self.occupy(node, shape, -1)
        return nodes if len(nodes) == len(shapes) else None

    def _choose_node(self, shape: int) -> int | None:
        found = self.table.shapes[shape]
        fitting = np.flatnonzero(self.table.masks[found.mask] & (self.free >= found.needs - _ROUNDING).all(axis=1))
        if len(fitting) < 2:
            return int(fitting[0]) if len(fitting) else None
        scores = self._score_nodes(fitting, found)
        best = fitting[scores >= scores.max() - 1e-9]
        return int(best[self._random.integers(len(best))])

    def _score_nodes(self, nodes: npt.NDArray[np.intp], shape: Shape) -> Floats:
        if self.table.packs_gpus and self._gpu is not None:
            offers = np.maximum(self.table.offers[nodes, self._gpu], 1e-9)
            free: Floats = self.free[nodes, self._gpu] - shape.needs[self._gpu]
            return np.asarray(np.floor(_MAX_SCORE * (1 - free / offers)))
        offers = np.maximum(self.table.score_offers[nodes], 1e-9)
        shares = np.minimum((self._score_used[nodes] + shape.score_needs) / offers, 1.0)
        least = np.floor(_MAX_SCORE * (1 - shares)).mean(axis=1)
        # The standard deviation of two shares is half of their distance.
        balanced = np.floor(_MAX_SCORE * (1 - np.abs(shares[:, 0] - shares[:, 1]) / 2))
        return np.asarray(np.floor(least) + balanced)
