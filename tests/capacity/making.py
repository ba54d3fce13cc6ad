"""Run folders of other areas, made small: what a plan reads of them, with figures that a test chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from workbench.capacity import tables as capacity_tables
from workbench.capacity.config import PlanConfig
from workbench.capacity.model import JobLoad, Model, Quantity, ServiceLoad, build_spread
from workbench.core.tables import Table

SAMPLES = Path(__file__).parents[2] / "data" / "samples" / "capacity"
ONE = build_spread("jobs of the day", 1.0)
USERS_ONE = build_spread("users of the day", 1.0)


def hours(**at: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """24 values, those of the named hours (h9=60.0) set."""
    values = np.zeros(24)
    for name, value in at.items():
        values[int(name.removeprefix("h"))] = value
    return values


def model(works: list[JobLoad] | None = None, serving: ServiceLoad | None = None, **more: Any) -> Model:
    """A model in which days do not differ."""
    more = {"stack": None, "jobs_factor": ONE, "users_factor": USERS_ONE} | more
    return Model(tuple(works or ()), serving, **more)


def work(name: str = "etl", seconds: float = 1800.0, gpus: int = 2, **more: Any) -> JobLoad:
    """Jobs that take half an hour, 7 of them arriving from 9:00 to 10:00."""
    given: dict[str, Any] = {"per_hour": hours(h9=7.0)} | more
    ends = given.pop("ends", (None, None))
    duration = Quantity(f"duration of {name}", seconds, "s", low=ends[0], high=ends[1])
    return JobLoad(name, given.pop("per_hour"), duration, gpus, **given)


def serving(carries: float = 40.0, gpus: int = 2, **more: Any) -> ServiceLoad:
    """A service with 100 users from 9:00 to 10:00."""
    given: dict[str, Any] = {"load": hours(h9=100.0)} | more
    ends = given.pop("ends", (None, None))
    return ServiceLoad(
        given.pop("load"), Quantity("load per replica", carries, "users", low=ends[0], high=ends[1]), gpus, **given
    )


def run_folder(place: Path, area: str, tables: dict[Table, list[dict[str, Any]]], **record: Any) -> Path:
    """A run that succeeded and is valid, unless the record is told otherwise."""
    folder = place / area
    (folder / "tables").mkdir(parents=True)
    for table, rows in tables.items():
        table.write(table.frame(rows), folder / "tables")
    whole = {"format_version": 1, "run_id": f"20261122T000000Z-{area}", "area": area, "title": area}
    whole |= {"status": "succeeded", "started_at": "2026-11-22T00:00:00.000+00:00", "config": {}, "inputs": []}
    whole |= {"tables": [], "verdict": "valid", "reasons": [], "answer": "made for a test"}
    (folder / "run.json").write_text(json.dumps(whole | record))
    return folder


def application(name: str = "etl 1", predicted_s: float | None = 1800.0, **more: Any) -> dict[str, Any]:
    """A row of a qualification without an interval."""
    row = dict.fromkeys(capacity_tables.INPUT_APPLICATIONS.schema()) | {"log": f"logs/{name}.zstd", "app_name": name}
    return row | {"baseline_s": 3600.0, "predicted_s": predicted_s} | more


def speedup_run(place: Path, *rows: dict[str, Any], **record: Any) -> Path:
    return run_folder(place, "speedup", {capacity_tables.INPUT_APPLICATIONS: list(rows) or [application()]}, **record)


def sizing_run(
    place: Path, *, steps: bool = True, record: dict[str, Any] | None = None, law: bool = False, **more: Any
) -> Path:
    """40 users on two GPUs, without an interval; with `law` a fifth of the work does not spread."""
    row = dict.fromkeys(capacity_tables.INPUT_ESTIMATES.schema()) | {
        "target": "runtime p95 <= 2 s",
        "load_unit": "users",
    }
    row |= {"test_gpus": 2, "capacity": 40.0, "binding": True} | more
    tables = {capacity_tables.INPUT_ESTIMATES: [row]} | (
        {capacity_tables.INPUT_STEPS: [{"step": 0, "simulated": True}]} if steps else {}
    )
    if law:
        one = {"target": row["target"], "model": "linear", "counts": [1, 2], "contention": 0.0, "coherency": 0.0}
        tables |= {capacity_tables.INPUT_SCALING: [one, one | {"model": "Amdahl", "contention": 0.2}]}
    return run_folder(place, "sizing", tables, **(record or {}))


def stack_run(place: Path, **more: Any) -> Path:
    """A stack that is twice as fast as the baseline at sorting."""
    base = {"stack": "old", "baseline": True, "recommended": False, "ratio": 1.0, "low": 1.0, "high": 1.0}
    new = base | {"stack": "new", "baseline": False, "recommended": True, "ratio": 2.0, "low": 1.8, "high": 2.2} | more
    rows = [one | {"level": 0.95, "predicted": False} for one in (base, new)]
    effects = [{"metric": "Sort", "arm": "new"}]
    return run_folder(
        place, "indicators", {capacity_tables.INPUT_RECOMMENDATIONS: rows, capacity_tables.INPUT_EFFECTS: effects}
    )


def scale_run(place: Path, low: float | None = 5.0, **more: Any) -> Path:
    row = {"low_per_s": low, "high_per_s": None, "level": 0.95, "simulated_nodes": True, "reason": "made"} | more
    return run_folder(place, "scaletest", {capacity_tables.INPUT_SUSTAINED_RATES: [row]})


def config(**more: Any) -> PlanConfig:
    """A plan on the samples, or on what is named; days do not differ."""
    given: dict[str, Any] = {name: str(SAMPLES / name) for name in ("speedup", "sizing", "indicators", "scaletest")}
    given |= {"jobs_spread": 1.0, "users_spread": 1.0, "draws": 500} | more
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    return PlanConfig.model_validate(plain)


def only(**runs_named: Path | str) -> dict[str, Any]:
    """Only these runs; the others are left out."""
    return dict.fromkeys(("speedup", "sizing", "indicators", "scaletest"), "") | runs_named


def names(frame: pl.DataFrame, column: str) -> list[str]:
    return [str(value) for value in frame[column].to_list()]
