"""Where runs hold forecasts and outcomes: the declared list, and the figures of a run.

A forecast's source is a table of predictions with an interval; an outcome's source is a table of measurements. Both
name what they are about in the same words, so that they meet: area, subject, quantity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench import stats
from workbench.core.errors import InputError
from workbench.core.tables import Table
from workbench.forecasts import tables
from workbench.runs.catalogue import StoredRun
from workbench.runs.run_folder import parse_time
from workbench.runs.run_stores import is_url

Row = Mapping[str, Any]
Rows = list[dict[str, Any]]
MAX_FIGURES = 20_000
# Engines of an application's log that are no candidate.
_NO_CANDIDATES = ("spark", "unknown")
_SESSION_TIME = re.compile(r"(\d{8}T\d{6}Z)-")


def _find_no_time(_rows: Rows, _folder: Path) -> None:
    """Nothing in the tables says when it was measured: the run may only read what was recorded long ago."""


def _read_session_time(rows: Rows, _folder: Path) -> datetime | None:
    """Start of the first session, which is in its id; null if one has another id, as an imported one."""
    matches = [_SESSION_TIME.match(row["session_id"]) for row in rows]
    times = [parse_time(match[1]) if match else None for match in matches]
    return _find_first(times)


def _read_sweep_time(_rows: Rows, folder: Path) -> datetime | None:
    """Start of the first step; null in virtual time, where the outcome is as old as the simulator."""
    if not tables.INPUT_STEPS.path(folder).is_file():
        return None
    return _find_first([parse_time(text) for text in tables.INPUT_STEPS.read(folder)["started_at"]])


def _find_first(times: list[datetime | None]) -> datetime | None:
    """The first of the times; null if one is not known."""
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


@dataclass(frozen=True)
class Source:
    """A table that holds forecasts or outcomes, and the columns to take.

    `area`: The area as the ledger calls it; `run_areas`: runs that have the table.
    `subject`, `quantity`, `unit`: Texts with {column} in them.
    `value`, `low`, `high`, `level`: Columns; without a level it is the run's setting, or 0.90.
    `select`: Rows that count, and what must be added to them.
    `read_time`: When the measurement began, by rows and the folder of tables; null if these do not say.
    `application`: Column with the id of the application that a row is about.
    """

    area: str
    subject: str
    quantity: str
    unit: str
    run_areas: tuple[str, ...]
    table: Table
    value: str
    low: str | None = None
    high: str | None = None
    level: str | None = None
    select: Callable[[Rows], Rows] = list
    read_time: Callable[[Rows, Path], datetime | None] = _find_no_time
    application: str | None = None


@dataclass(frozen=True)
class RunFigure:
    """A figure of a run: a prediction or a measurement; `key` is that of its row."""

    area: str
    subject: str
    quantity: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    level: float
    key: tuple[str, ...]
    reason: str | None = None
    measured_at: datetime | None = None
    application: str | None = None

    @property
    def matter(self) -> tuple[str, str, str]:
        """What it is about: area, subject and quantity."""
        return self.area, self.subject, self.quantity


def _keep(condition: Callable[[Row], bool]) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if condition(row)]


def _compare_stacks(*, predicted: bool) -> Callable[[Rows], Rows]:
    """Rows of stacks other than the baseline, each with the baseline's name."""

    def select(rows: Rows) -> Rows:
        names = {row["session_id"]: row["stack"] for row in rows if row["baseline"]}
        return [
            row | {"over": names.get(row["session_id"], "the baseline")}
            for row in rows
            if not row["baseline"] and row["predicted"] is predicted
        ]

    return select


def _select_estimates(*, is_beyond: bool) -> Callable[[Rows], Rows]:
    """Estimates of more GPUs than the sweep had, or of as many; `of` is the model on a GPU type, where it is known."""

    def select(rows: Rows) -> Rows:
        return [
            row | {"of": f", {row['served']}" if row["served"] else ""}
            for row in rows
            if row["gpus"] is not None and (row["gpus"] > row["test_gpus"]) is is_beyond
        ]

    return select


SPEEDUP, SIZING, INDICATORS, SCALETEST, CAPACITY = "speedup", "sizing", "indicators", "scaletest", "capacity"
_SPEEDUP_RUNS = ("speedup", "fleet")
_APPLICATION = (SPEEDUP, "application {app_name}", "time on the candidate", "s")
_QUERY_TIME = (SPEEDUP, "query {query}", "time on the candidate", "s")
_QUERY_RATIO = (SPEEDUP, "query {query}", "ratio", "times")
_GPUS = (SIZING, "{target}, {load:g} {load_unit}{of}", "GPUs", "GPUs")
_LATENCY = (SIZING, "{target}, {driven_load:.4g} {load_unit} on {gpus} GPUs", "latency", "s")
_MIX_RATIO = (INDICATORS, "{stack} over {over}", "ratio over the mix", "times")
_METRIC_RATIO = (INDICATORS, "{stack} over {baseline}", "ratio of {metric}", "times")
_RATE = (SCALETEST, "{side}", "sustained rate", "pods/s")
_DAY = (CAPACITY, "day", "{figure}", "{unit}")


FORECAST_SOURCES = (
    Source(
        *_APPLICATION, _SPEEDUP_RUNS, tables.INPUT_APPLICATIONS, "predicted_s", "predicted_low_s", "predicted_high_s",
        None, _keep(lambda row: row["app_name"] is not None), application="app_id",
    ),
    Source(*_QUERY_RATIO, _SPEEDUP_RUNS, tables.INPUT_PREDICTIONS, "ratio", "ratio_low", "ratio_high"),
    Source(
        *_QUERY_TIME, _SPEEDUP_RUNS, tables.INPUT_VALIDATION, "predicted_s", "predicted_low_s", "predicted_high_s",
        None, _keep(lambda row: row["predictor"] == "calibrated"),
    ),
    # Of more GPUs than were measured: within the measured ones it is no forecast.
    Source(
        *_GPUS, ("sizing",), tables.INPUT_ESTIMATES, "gpus", "gpus_low", "gpus_high",
        None, _select_estimates(is_beyond=True),
    ),
    Source(
        *_MIX_RATIO, ("indicators",), tables.INPUT_RECOMMENDATIONS, "ratio", "low", "high",
        "level", _compare_stacks(predicted=True),
    ),
    Source(*_DAY, ("capacity_plan",), tables.INPUT_DAY, "p50", "p5", "p95"),
)  # fmt: skip
OUTCOME_SOURCES = (
    Source(
        *_APPLICATION, ("speedup", "profile"), tables.INPUT_OVERVIEW, "wall_time_s", None, None, None,
        _keep(lambda row: row["app_name"] is not None and row["engine"] not in _NO_CANDIDATES
              and row["status"] == "complete"),
        application="app_id",
    ),
    Source(*_QUERY_RATIO, ("speedup",), tables.INPUT_PAIRS, "ratio", "ratio_low", "ratio_high"),
    Source(*_QUERY_TIME, ("speedup",), tables.INPUT_PAIRS, "candidate_s"),
    # The load was reached on the GPUs that were measured.
    Source(
        *_GPUS, ("sizing",), tables.INPUT_ESTIMATES, "gpus", "gpus_low", "gpus_high",
        None, _select_estimates(is_beyond=False), _read_sweep_time,
    ),
    Source(
        *_LATENCY, ("sizing",), tables.INPUT_VERIFICATION, "value_s", "low_s", "high_s", read_time=_read_sweep_time,
    ),
    Source(
        *_MIX_RATIO, ("indicators",), tables.INPUT_RECOMMENDATIONS, "ratio", "low", "high",
        "level", _compare_stacks(predicted=False), _read_session_time,
    ),
    Source(
        *_METRIC_RATIO, ("indicators",), tables.INPUT_EFFECTS, "ratio", "low", "high",
        None, _keep(lambda row: not row["control"]), _read_session_time,
    ),
    Source(
        *_RATE, ("scaletest",), tables.INPUT_SUSTAINED, "low_per_s", "low_per_s", "high_per_s", None,
        lambda rows: [row | {"side": row["side"] or "the cluster"} for row in rows],
    ),
)  # fmt: skip


def read_figures(run: StoredRun, sources: Sequence[Source], noun: str) -> list[RunFigure]:
    """The figures of a run in a folder, by the sources whose tables it has; `noun` says in an error what they are."""
    if is_url(run.place):
        do = f"copy it first: workbench runs copy {run.place} --to data/runs"
        raise InputError("the tables of a run at a URL are not read", where=run.place, do=do)
    folder = Path(run.root) / "tables"
    of_area = [source for source in sources if run.area in source.run_areas]
    present = [source for source in of_area if source.table.path(folder).is_file()]
    if not present:
        listed = dict.fromkeys(f"{name}: {source.table.name}" for source in sources for name in source.run_areas)
        raise InputError(
            f"no table with {noun} in the run",
            where=run.place,
            found=f"area {run.area}, tables {', '.join(run.list_table_names()) or 'none'}",
            allowed=list(listed),
            do=f"give the {noun} by hand: workbench forecast --help",
        )
    figures = [figure for source in present for figure in _read_source(run, source, folder)]
    if len(figures) > MAX_FIGURES:
        raise InputError(f"too many {noun} in the run", where=run.place, allowed=f"at most {MAX_FIGURES:,}")
    return figures


def _read_source(run: StoredRun, source: Source, folder: Path) -> list[RunFigure]:
    set_level = run.record["config"].get("level")
    is_level = isinstance(set_level, float) and 0 < set_level < 1
    level = set_level if is_level else stats.LEVEL
    rows = source.select(source.table.read(folder).to_dicts())
    measured_at = source.read_time(rows, folder)
    return [
        RunFigure(
            area=source.area,
            subject=_fill(source.subject, row),
            quantity=_fill(source.quantity, row),
            unit=_fill(source.unit, row),
            value=row[source.value],
            low=row[source.low] if source.low else None,
            high=row[source.high] if source.high else None,
            level=row[source.level] if source.level else level,
            key=(source.table.name, *(str(row[name]) for name in source.table.key), source.quantity),
            reason=row.get("reason"),
            measured_at=measured_at,
            application=row[source.application] if source.application else None,
        )
        for row in rows
    ]


def _fill(text: str, row: Row) -> str:
    return " ".join(text.format_map(row).split())
