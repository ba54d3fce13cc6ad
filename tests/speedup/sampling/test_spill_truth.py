"""Needs of memory, told by a log of Spark with ample memory, beside real spills of queries that have little."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import recorder, recording_plan
from workbench.speedup.sampling.memory_needs import find_task_memory, measure_memory_needs

N_SLOTS = 2
SIDES = {
    "ample": "ample:spark",
    **{f"comet{mib}": f"comet{mib}:comet,spark.memory.offHeap.size={mib}m" for mib in (200, 400, 800, 1600)},
    "heap100": "heap100:spark,spark.memory.fraction=0.05",
}
# A need within this factor of 1 is told by chance: partitions are not even, and engines keep rows in other forms.
UNSURE = 1.5


def list_spills(facts: EventLogFacts) -> dict[str, int]:
    """Bytes that each query spilled, by Spark's tasks or by operators of the engine."""
    named = pl.col("metric_name").str.contains("(?i)spill")
    of_nodes = facts.node_metrics.filter(named).group_by("sql_id").agg(spilled=pl.col("total").sum())
    both = facts.sql_executions.select("sql_id", "description").join(of_nodes, on="sql_id", how="left")
    return {name: int(spilled or 0) for name, spilled in both.select("description", "spilled").iter_rows() if name}


@pytest.mark.spark
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("suite", "scale"), [("tpch", 1.0)])
def test_needs_tell_which_queries_spill(suite: str, scale: float, tmp_path: Path) -> None:
    kept = Path(os.environ.get("KEPT_CASES", tmp_path)) / f"spills-{suite}-{scale:g}"
    config = RecordConfig(
        out=kept,
        queries=suite,
        scale=scale,
        master=f"local[{N_SLOTS}]",
        sides=list(SIDES.values()),
        sessions=1,
        passes=1,
    )
    recording = recorder.record_suite(config, say=print).recording
    facts = {log.parent.name: read_event_logs(log) for log in recording.iterate_logs()}
    sides = {label: next(one for name, one in facts.items() if name.startswith(label)) for label in SIDES}
    prepared = recording_plan.prepare_recording(config, say=print)
    rows = []
    for side in prepared.sides[1:]:
        memory_bytes = find_task_memory(prepared.shared | side.settings, N_SLOTS)
        assert memory_bytes is not None
        needs = measure_memory_needs(sides["ample"], memory_bytes)
        rows += [
            {"side": side.label, "query": query, "need": needs.get(query, 0.0), "spilled": spilled}
            for query, spilled in list_spills(sides[side.label]).items()
        ]
    table = pl.DataFrame(rows)
    (kept / "needs.json").write_text(json.dumps(rows, indent=1))
    sure = table.filter((pl.col("need") > UNSURE) | (pl.col("need") < 1 / UNSURE))
    right = sure.filter((pl.col("need") > 1) == (pl.col("spilled") > 0))
    print(table.group_by("side", pl.col("need") > 1, pl.col("spilled") > 0).len().sort("side"))
    print(f"{right.height} of {sure.height} sure ones are right, {table.height} in all")
    assert table.filter(pl.col("spilled") > 0).height >= 10
    assert right.height >= 0.9 * sure.height
