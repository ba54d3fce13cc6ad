"""Runs with forecasts and outcomes, and entries of ledgers, made in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from workbench.core.tables import Table
from workbench.forecasts.ledger import Entry, Forecast, Outcome
from workbench.runs import run_folder

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def make_forecast(
    number: int, value: float = 10.0, low: float | None = 8.0, high: float | None = 12.5, **more: Any
) -> Forecast:
    """Forecast of a number, kept on that day's morning."""
    fields: dict[str, Any] = {
        "id": f"{number:012x}", "area": "speedup", "subject": f"query q{number}", "quantity": "time", "unit": "s",
        "value": value, "low": low, "high": high, "level": 0.9, "made_at": DAY, "kept_at": DAY,
    }  # fmt: skip
    return Forecast(**(fields | more))


def make_outcome(number: int, value: float | None = 10.0, **more: Any) -> Outcome:
    """Outcome of a forecast, kept a day later."""
    later = DAY + timedelta(days=1)
    fields: dict[str, Any] = {
        "forecast": f"{number:012x}", "value": value, "unit": "s",
        "observed_at": later, "kept_at": later, "measured_at": later,
    }  # fmt: skip
    return Outcome(**(fields | more))


def format_line(entry: Entry) -> str:
    return entry.model_dump_json() + "\n"


def write_run(
    folder: Path,
    area: str,
    tables: Mapping[Table, Sequence[Mapping[str, Any]]],
    *,
    day: int = 0,
    verdict: str | None = "valid",
    **record: Any,
) -> run_folder.Run:
    """A run of an hour on a day, with these tables."""
    run = run_folder.start_run(area, folder=folder)
    for table, rows in tables.items():
        run.write_table(table, table.frame(rows))
    run.conclude("invalid" if verdict == "invalid" else "valid", ["it was noisy"] if verdict == "invalid" else [])
    begun = DAY + timedelta(days=day)
    times = {
        "started_at": begun.isoformat(),
        "ended_at": (begun + timedelta(hours=1)).isoformat(),
        "duration_s": 3600.0,
    }
    run.record |= times | {"run_id": folder.name, "verdict": verdict} | record
    (folder / "run.json").write_text(json.dumps(run.record))
    return run
