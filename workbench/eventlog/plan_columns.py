"""Plans of a chunk by column: each text of a query once, since most versions of a plan repeat the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np

from workbench.core.tables import Coded
from workbench.eventlog.column_slices import Rows, Slice
from workbench.eventlog.listener_events import Plan
from workbench.eventlog.plan_graph import build_graph


@dataclass(frozen=True)
class PlanColumns:
    """The plans of a chunk, plan after plan.

    `nodes` has name, text, parents, accumulators, metadata (coded), depth and codegen_id (-1 without); `metrics` has
    kind (name and type, coded) and id of those that no earlier version in the chunk described.
    """

    nodes: Rows
    metrics: Rows
    n_nodes: list[int]  # by plan
    n_metrics: list[int]

    def list_plans(self) -> list[PlanSlice]:
        """Each plan by itself."""
        firsts = zip(accumulate(self.n_nodes, initial=0), accumulate(self.n_metrics, initial=0), strict=True)
        return [
            PlanSlice(Slice(self.nodes, first_node, n_nodes), Slice(self.metrics, first_metric, n_metrics))
            for (first_node, first_metric), n_nodes, n_metrics in zip(
                firsts, self.n_nodes, self.n_metrics, strict=False
            )
        ]


@dataclass(frozen=True)
class PlanSlice:
    """One plan."""

    nodes: Slice
    metrics: Slice

    def copy(self) -> PlanSlice:
        """The plan alone, so that the others of its chunk can be released."""
        return PlanSlice(self.nodes.copy(), self.metrics.copy())


@dataclass
class _CodedList:
    """Codes of values in the order in which they came; equal keys have one value."""

    codes: list[int] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)

    def extend(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            place = self.places.get(key)
            if place is None:
                place = self.places[key] = len(self.values)
                self.values.append(value)
            self.codes.append(place)

    def as_column(self) -> Coded:
        return Coded(np.array(self.codes, np.int32), self.values)


class PlanCollector:
    """Collects the plans of a chunk."""

    def __init__(self) -> None:
        self.values = {name: _CodedList() for name in ("name", "text", "parents", "accumulators", "metadata", "kind")}
        self.depths: list[int] = []
        self.codegen_ids: list[int] = []
        self.metric_ids: list[int] = []
        self.n_nodes: list[int] = []
        self.n_metrics: list[int] = []
        self.described: dict[int, set[int]] = {}  # metrics, by SQL execution

    def add_plan(self, sql_id: int, plan: Plan) -> int:
        """Add a plan; returns its place."""
        nodes = build_graph(plan)
        described = self.described.setdefault(sql_id, set())
        kinds = {
            metric.accumulator_id: (metric.name, metric.type)
            for node in nodes
            for metric in node.metrics
            if metric.accumulator_id not in described
        }
        parents = [tuple(node.parent_ids) for node in nodes]
        accumulators = [tuple([metric.accumulator_id for metric in node.metrics]) for node in nodes]
        names, texts = [node.name for node in nodes], [node.text for node in nodes]
        metadata = [msgspec.json.encode(node.metadata) if node.metadata else None for node in nodes]
        values = self.values
        values["name"].extend(names, names)
        values["text"].extend([(sql_id, text) for text in texts], texts)
        values["parents"].extend(parents, parents)
        values["accumulators"].extend(accumulators, accumulators)
        values["metadata"].extend(
            [content and (sql_id, content) for content in metadata], [node.metadata or None for node in nodes]
        )
        values["kind"].extend(list(kinds.values()), list(kinds.values()))
        self.depths += [node.depth for node in nodes]
        self.codegen_ids += [-1 if node.codegen_id is None else node.codegen_id for node in nodes]
        self.metric_ids += kinds
        described.update(kinds)
        self.n_nodes.append(len(nodes))
        self.n_metrics.append(len(kinds))
        return len(self.n_nodes) - 1

    def list_columns(self) -> PlanColumns:
        """All plans so far."""
        columns = {name: values.as_column() for name, values in self.values.items()}
        kinds = columns.pop("kind")
        numbers = {
            "depth": np.array(self.depths, np.int32),
            "codegen_id": np.array(self.codegen_ids, np.int32),
        }
        metrics = Rows({"id": np.array(self.metric_ids, np.int64)}, {"kind": kinds})
        return PlanColumns(Rows(numbers, columns), metrics, self.n_nodes, self.n_metrics)
