"""A dump and its replay made by hand, without a JVM: every part may be changed."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import polars as pl

from tests.lore.small_dump import FILTER, sidecar_of
from workbench.lore import tables as inspected
from workbench.lore.dump_reader.dump_inspection import InspectedDump, Inspection
from workbench.lore.dumps.dump_folder import InputEntry, Output, PartitionPrint, Sidecar
from workbench.lore.replays.operator_replay import ReplayResult
from workbench.lore.replays.replay_outcome import ReplayOutcome
from workbench.lore.tables import PLAN_TREE

ROWS = {0: 30, 2: 10}


def sidecar(**changed: Any) -> Sidecar:
    """plan.json of a filter over two partitions of 30 and 10 rows, which lets 7 through."""
    entry = InputEntry(
        index=0, kind="rows", n_partitions=3, partitions=[0, 2], batches={"0": 1, "2": 1}, n_rows=40, n_bytes=2000,
        columns=[],
    )  # fmt: skip
    one = PartitionPrint(n_rows=7, hash_sum=1, hash_xor=1, ordered_sum=1)
    output = Output(columns=[], n_partitions=3, fingerprint={"0": one})
    return sidecar_of({}, **({"inputs": [entry], "output": output} | changed))


def inspection(found: Sidecar | None, rows: dict[int, int] | None = None, *, whole: bool | None = True) -> Inspection:
    """What lies in it."""
    rows = ROWS if rows is None else rows
    common = {"lore_id": 3, "input": "input-0"}
    batches = [
        {**common, "partition": number, "batch": 0, "n_rows": count, "n_bytes": 1000, "unpacked_bytes": 1000,
         "n_columns": 1, "fault": None}
        for number, count in rows.items()
    ]  # fmt: skip
    partitions = [
        {**common, "partition": number, "n_batches": 1, "promised_batches": 1, "n_rows": count, "n_bytes": 1000,
         "rows_share": count / 40, "skew_ratio": count / 20, "note": ""}
        for number, count in rows.items()
    ]  # fmt: skip
    dump = InspectedDump(3, Path("loreId-3"), origin="workbench", sidecar=found, whole=whole)
    return Inspection(
        [dump], inspected.BATCHES.frame(batches), inspected.PARTITIONS.frame(partitions), inspected.COLUMNS.frame([])
    )


def timings(seconds: dict[str, tuple[float, ...]], scan_s: float = 0.1) -> list[dict[str, Any]]:
    """Runs of sides whose operator took so long."""
    return [
        {"side": side, "repeat": number, "scan_s": scan_s, "total_s": time_s + scan_s, "operator_s": time_s}
        for side, times in seconds.items()
        for number, time_s in enumerate(times, 1)
    ]


def replayed(seconds: dict[str, tuple[float, ...]] | None = None, **changed: Any) -> ReplayResult:
    """A replay that passed; with sides A and B, or one called replay."""
    seconds = {"A": (0.4, 0.42, 0.41), "B": (0.8, 0.81, 0.84)} if seconds is None else seconds
    sides = [
        {"side": side, "settings": f"key={side}", "accelerated": None, "n": len(times),
         "operator_s": statistics.median(times), "low_s": None, "high_s": None, "scan_s": 0.1,
         "total_s": 0.1 + statistics.median(times)}
        for side, times in seconds.items()
    ]  # fmt: skip
    verification = {
        "passed": True, "row_for_row": True, "compared_with": "the operator recomputed at dump time",
        "n_expected": 7, "n_found": 7, "differing": (), "missing": (), "extra": (), "note": (),
    }  # fmt: skip
    values: dict[str, Any] = {
        "folder": "loreId-3",
        "lore_id": 3,
        "operator": "Filter",
        "operator_text": "Filter (a#7L > 2)",
        "passed": True,
        "answer": "PASS: 7 rows, row for row",
        "verification": verification | changed.pop("verification", {}),
        "sides": sides,
        "timings": timings(seconds),
        "comparison": {"equal": True, "n_a": 7, "n_b": 7, "only_a": [], "only_b": []} if len(sides) == 2 else None,
        "plans": {"A": "Filter (a#7L > 2)"},
    }
    return ReplayResult(**(values | changed))


def outcome(replay: ReplayResult | None = None, *, refused: str | None = None, **changed: Any) -> ReplayOutcome:
    """All of it; without a replay one that passed, unless it was refused."""
    found = sidecar()
    replay = replayed() if replay is None and refused is None else replay
    values: dict[str, Any] = {"inspection": inspection(found), "sidecar": found} | changed
    return ReplayOutcome(Path("loreId-3"), values["inspection"], values["sidecar"], replay, refused)


def plan(*operators: tuple[str, int, int | None, int | None, str | None], fused: int | None = None) -> pl.DataFrame:
    """Table `TREE` of a chain, root first: name, id, rows in, rows out, and why it is refused."""
    return PLAN_TREE.frame(
        [
            {"position": place, "lore_id": lore_id, "parent": place - 1 if place else None, "depth": place,
             "operator": name, "text": f"[loreId={lore_id}] {name} [a#{lore_id}L]", "n_rows": n_rows, "time_ms": None,
             "refused": refused, "rows_in": rows_in, "span": fused, "span_ms": 5.0 if fused and not place else None}
            for place, (name, lore_id, rows_in, n_rows, refused) in enumerate(operators)
        ]
    )  # fmt: skip


CHAIN = plan(
    ("HashAggregate", 4, 7, 2, None),
    ("Filter", 3, 40, 7, None),
    ("SortMergeJoin", 2, 50, 40, None),
    ("Exchange", 1, 50, None, None),
    ("FileScan parquet", 0, None, 50, "it is a leaf: its only input is its source"),
)

__all__ = ["CHAIN", "FILTER", "inspection", "outcome", "plan", "replayed", "sidecar", "timings"]
