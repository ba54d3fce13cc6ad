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
# The first two were looked at; nothing was chosen on the last one.
CASES = [
    ("tpch", 1.0, list(SIDES)),
    ("tpcds", 1.0, ["ample", "comet200", "comet800", "heap100"]),
    ("tpcds", 2.0, ["ample", "comet400", "heap100"]),
]
# A need within this factor of 1 tells little: engines hold rows in other forms, and pages are larger than rows.
UNSURE = 3.0


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
@pytest.mark.parametrize(("suite", "scale", "labels"), CASES)
def test_needs_tell_which_queries_spill(suite: str, scale: float, labels: list[str], tmp_path: Path) -> None:
    kept = Path(os.environ.get("KEPT_CASES", tmp_path)) / f"spills-{suite}-{scale:g}"
    config = RecordConfig(
        out=kept,
        queries=suite,
        scale=scale,
        master=f"local[{N_SLOTS}]",
        sides=[SIDES[label] for label in labels],
        sessions=1,
        passes=1,
    )
    recording = recorder.record_suite(config, say=print).recording
    facts = {label: read_event_logs(log) for label, _, log in recording.iterate_logs()}
    prepared = recording_plan.prepare_recording(config, say=print)
    rows = []
    for side in prepared.sides[1:]:
        memory_bytes = find_task_memory(prepared.shared | side.settings, N_SLOTS)
        assert memory_bytes is not None
        needs = measure_memory_needs(facts["ample"], memory_bytes)
        rows += [
            {"side": side.label, "query": query, "need": needs.get(query, 0.0), "spilled": spilled}
            for query, spilled in list_spills(facts[side.label]).items()
        ]
    table = pl.DataFrame(rows)
    (kept / "needs.json").write_text(json.dumps(rows, indent=1))
    spilled = table.filter(pl.col("spilled") > 0)
    told = spilled.filter(pl.col("need") > 1)
    sure = table.filter((pl.col("need") > UNSURE) | (pl.col("need") < 1 / UNSURE))
    right = sure.filter((pl.col("need") > 1) == (pl.col("spilled") > 0))
    n_alarms = table.filter(pl.col("need") > 1).height
    print(f"{table.height} queries, {spilled.height} spilled, {told.height} of them told, {n_alarms} alarms")
    print(f"{right.height} of {sure.height} sure ones right; missed:", spilled.filter(pl.col("need") <= 1).to_dicts())
    assert spilled.height >= 10
    assert told.height >= 0.7 * spilled.height
    assert right.height >= 0.95 * sure.height
