"""Results that several queries of an application compute alike: the same operators over the same inputs."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass

import polars as pl

from workbench.eventlog.reader import EventLogFacts
from workbench.speedup.attribution.operator_explanation import measure_single_log
from workbench.speedup.attribution.plan_identity import fingerprint_plans, strip_passing_ids
from workbench.speedup.engines import strip_suffix

# Plans of more nodes are not looked at: a second and a half.
MAX_NODES = 100_000
# Files that are only read and filtered are no result: reading them again may be as quick as reading a cache.
_COSTLY = ("Exchange", "Join", "Aggregate", "Window", "Generate")


@dataclass(frozen=True)
class RepeatedResults:
    """Queries that compute a result which an earlier one had, and the wall time of those operators in them, in s."""

    n_queries: int
    wall_s: float


def measure_repeated_results(facts: EventLogFacts) -> RepeatedResults | None:
    """What later queries take to compute again; null if nothing is. `facts`: Of one log.

    Whole queries that run again, as the passes of a benchmark or retries, do not count: they are no part of a job.
    """
    final = facts.plan_nodes.filter("is_final")
    if final.height > MAX_NODES:
        return None
    queries = {sql_id: plan for (_, sql_id), plan in fingerprint_plans(facts.plan_nodes).items()}
    repeated: defaultdict[int, set[int]] = defaultdict(set)
    seen: set[str] = set()
    asked: set[str | None] = set()
    for (key,), plan in final.sort("sql_id").group_by("sql_id", maintain_order=True):
        sql_id = int(str(key))
        digests, below = _digest_subtrees(plan)
        query = queries.get(sql_id)
        if query is None or query not in asked:
            left = [node_id for node_id, digest in digests.items() if digest in seen]
            while left:
                node_id = left.pop()
                if node_id not in repeated[sql_id]:
                    repeated[sql_id].add(node_id)
                    left += below[node_id]
        asked.add(query)
        seen.update(digests.values())
    if not any(repeated.values()):
        return None
    pieces = measure_single_log(facts).pieces.select("sql_id", "node_ids", "wall_s").iter_rows()
    times = [(sql_id, wall_s) for sql_id, nodes, wall_s in pieces if nodes and repeated[sql_id].issuperset(nodes)]
    return RepeatedResults(len({sql_id for sql_id, _ in times}), sum(wall_s for _, wall_s in times))


def _digest_subtrees(plan: pl.DataFrame) -> tuple[dict[int, str], defaultdict[int, list[int]]]:
    """Digest of each subtree of a plan that does more than read and filter, and the inputs of each node."""
    subtrees: dict[int, tuple[str, bool]] = {}
    below: defaultdict[int, list[int]] = defaultdict(list)
    for row in plan.sort("depth", "node_id", descending=[True, False]).iter_rows(named=True):
        node_id, name = row["node_id"], row["node_name"]
        inputs = [subtrees[child] for child in sorted(below[node_id])]
        # A stage of adaptive execution has a number in place of a text.
        text = "" if name.endswith("QueryStage") else strip_passing_ids(row["simple_string"] or "")
        parts = "\0".join([strip_suffix(name), text, *(digest for digest, _ in inputs)])
        is_costly = any(part in name for part in _COSTLY) or any(costly for _, costly in inputs)
        subtrees[node_id] = (hashlib.sha256(parts.encode()).hexdigest(), is_costly)
        for parent in row["parent_ids"]:
            below[parent].append(node_id)
    return {node_id: digest for node_id, (digest, is_costly) in subtrees.items() if is_costly}, below
