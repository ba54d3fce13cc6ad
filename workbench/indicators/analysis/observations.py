"""The archive of a session as tables: runs, observed values and checks; and the load of the machine during runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.indicators.contract.documents import is_framework_of, name_framework
from workbench.indicators.contract.indicator import USAGE
from workbench.indicators.store.archive import (
    PlannedCase,
    PlannedMetric,
    Result,
    RunDetails,
    Session,
    read_results,
    read_session,
)
from workbench.indicators.tables import CHECKS, OBSERVATIONS, RUNS

if TYPE_CHECKING:
    import polars as pl

Clock = Literal["wall", "cpu"]
CLOCK_NAMES: dict[str, str] = {"wall": "wall time", "cpu": "CPU time"}
MEASURED_PART = "measured part"
WHOLE_RUN = "whole run"
PER_S = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
_RATES = ("flops", "hz", "qps", "rps", "ops")
BUSY = 0.1
"""Share of the cores' time from which other processes are named as a cause of wide intervals."""
STOLEN = 0.01
CLOCK_SPREAD = 1.1
MAX_REPORTED = 10


def find_cpu_value(metric: PlannedMetric, result: Result) -> tuple[float | None, str | None]:
    """The CPU time that stands beside a metric, and what it is of; null for metrics that are no times or rates.

    Of the measured part where the script prints `@cpu`, in the metric's unit. Else of the whole run with the start of
    Python, in the metric's unit of time; for a rate its inverse, so that the same direction is better.
    """
    value = result.cpu_value(metric.field)
    if value is not None:
        return value, MEASURED_PART
    used_s = result.run_cpu_s
    if used_s is None or used_s <= 0 or result.workbench.status != "ok":
        return None, None
    if metric.unit in PER_S and metric.better == "lower":
        return used_s * PER_S[metric.unit], WHOLE_RUN
    unit = metric.unit.lower()
    if metric.better == "higher" and (unit.endswith(("/s", *_RATES))):
        return 1 / used_s, WHOLE_RUN
    return None, None


def select_clock(observed: Observations, clock: Clock) -> Observations:
    """Return the same session with its values by this clock; metrics without CPU time stay as they are.

    `select_clock(load_observations(folder), "cpu")` is what `--clock cpu` compares stacks by.
    """
    import polars as pl

    if "clock" not in observed.values.columns or not observed.values.height:
        return observed
    swap = (pl.col("clock") != clock) & pl.col("other_value").is_not_null()
    values = observed.values.with_columns(
        value=pl.when(swap).then("other_value").otherwise("value"),
        other_value=pl.when(swap).then("value").otherwise("other_value"),
        clock=pl.when(swap).then(pl.lit(clock)).otherwise("clock"),
    )
    session = observed.session.model_copy(update={"clock": clock})
    return replace(observed, session=session, values=values)


@dataclass(frozen=True)
class Observations:
    """A session with its raw tables: `runs` (RUNS), `values` (OBSERVATIONS), `checks` (CHECKS)."""

    session: Session
    runs: pl.DataFrame
    values: pl.DataFrame
    checks: pl.DataFrame


def load_observations(folder: Path) -> Observations:
    """Read the observations of the session in a folder."""
    session = read_session(folder)
    return build_observations(session, read_results(folder, session))


def build_observations(session: Session, results: Iterable[tuple[str, int, Result]]) -> Observations:
    """Build the tables from (inspection, number, document); failed runs have a row in `runs` only."""
    cases = {case.label: case for case in session.cases}
    runs: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    checks: list[dict[str, Any]] = []
    for inspection, number, result in results:
        measured = result.workbench
        case = cases[measured.case]
        identity = {
            "session_id": session.session_id,
            "inspection_id": inspection,
            "run": number,
            "round": measured.round,
            "arm": measured.arm,
            "case": measured.case,
        }
        # Cells of RUNS for a run, without its identity; those about its values are null unless it is `ok`.
        measured, arm = result.workbench, session.get_arm(result.workbench.arm)
        document = result.stdout if isinstance(result.stdout, dict) else {}
        ok = measured.status == "ok"
        score = document.get("overall_score") if ok else None
        told = document.get("component") or document.get("framework")
        run_row = {
            "position": measured.position,
            "stack": arm.stack,
            "stack_key": arm.stack_key,
            "indicator": measured.indicator,
            "indicator_version": measured.indicator_version,
            "component": name_framework(str(told), arm.packages) if ok and told else None,
            "status": measured.status,
            "reason": measured.reason,
            "passed": not measured.failed_checks if ok else None,
            "failed_checks": list(measured.failed_checks),
            "faults": _list_faults(measured) if ok else [],
            "overall_score": None if score is None else float(score),
            "exit_code": result.exit_code,
            "signal": measured.signal,
            "started_at": result.start_datetime,
            "duration_s": measured.duration_s,
            "threads": measured.threads,
            "hardware_key": measured.hardware_key,
            "network": measured.isolation.get("network", "not isolated"),
            "load_before": measured.before.load_1m,
            "load_after": measured.after.load_1m,
            "cpu_s": result.run_cpu_s,
            "waited_s": measured.waited_s,
            **build_load_cells(result, session.hardware.cores),
            **{name: None if (value := result.usage.get(name)) is None else float(value) for name in USAGE},
        }
        runs.append({**identity, **run_row})
        values += [{**identity, **row} for row in _build_value_rows(case, result)]
        checks += [{**identity, **row} for row in _build_check_rows(case, result)]
    return Observations(session, RUNS.frame(runs), OBSERVATIONS.frame(values), CHECKS.frame(checks))


def describe_reports(observed: Observations) -> list[str]:
    """Sentences on what scripts reported beside their results: overall scores, and frameworks that no stack has."""
    import polars as pl

    scored = observed.runs.drop_nulls("overall_score").group_by("case", "arm", maintain_order=True)
    rows = scored.agg(pl.col("overall_score").median(), pl.len().alias("n")).rows()
    scores = [f"{case} of {arm} {score:.4g} (median of {n})" for case, arm, score, n in rows[:MAX_REPORTED]]
    more = f", and {len(rows) - MAX_REPORTED} more" if len(rows) > MAX_REPORTED else ""
    sentences = [f"Overall score, as the scripts reported it: {', '.join(scores)}{more}."] if scores else []
    told = observed.runs.drop_nulls("component").select("arm", "component").unique(maintain_order=True).rows()
    strange = [
        f"{component} ({arm})"
        for arm, component in told
        if (packages := observed.session.get_arm(arm).packages) and not is_framework_of(component, packages)
    ]
    if strange:
        sentences.append(f"Reported as framework, but no package of the stack: {', '.join(strange[:MAX_REPORTED])}.")
    return sentences


def _list_faults(measured: RunDetails) -> list[str]:
    """Why the values of a run are not those of the work; older documents tell only what was left behind."""
    left = measured.isolation.get("left behind")
    return list(measured.faults) or ([f"left {left.partition(',')[0]} running when it ended"] if left else [])


def _build_value_rows(case: PlannedCase, result: Result) -> list[dict[str, Any]]:
    """Cells of OBSERVATIONS, one row per metric that has a value."""
    rows = []
    for metric in case.metrics:
        value = result.metric_value(metric.field)
        if value is not None:
            about = {"unit": metric.unit, "better": metric.better, "tolerance": metric.tolerance}
            cpu, part = find_cpu_value(metric, result)
            other = {"clock": "wall", "other_value": cpu, "cpu_part": part}
            rows.append({"metric": metric.name, "value": value, **about, **other})
    return rows


def _build_check_rows(case: PlannedCase, result: Result) -> list[dict[str, Any]]:
    """Cells of CHECKS, one row per check of the document, and per result that is no metric."""
    if not isinstance(result.stdout, dict) or result.workbench.status != "ok":
        return []
    metrics = {metric.field for metric in case.metrics}
    compared = {*case.compared_checks, *case.compared_results}
    values = {field: result.check_value(field) for field in result.stdout.get("@checks") or {}}
    kept = result.stdout.get("@result")
    values |= {
        field: value
        for field, value in (kept.items() if isinstance(kept, dict) else ())
        if field not in metrics and field not in values and isinstance(value, int | float | str | bool)
    }
    return [
        {"field": field, "value": None if value is None else str(value), "compared": field in compared}
        for field, value in values.items()
    ]


def build_load_cells(result: Result, cores: int | None) -> dict[str, Any]:
    """Columns of RUNS about the machine, which has this many cores, during a run; null where it did not tell."""
    measured, cpu_s = result.workbench, result.run_cpu_s
    before, after = measured.before, measured.after
    clocks = [mhz for mhz in (before.mhz, after.mhz) if mhz is not None]
    busy_s, throttles = _subtract(after.busy_s, before.busy_s), _subtract(after.throttles, before.throttles)
    all_busy_s = _subtract(after.all_busy_s, before.all_busy_s)
    disk_busy_s = _subtract(after.disk_busy_s, before.disk_busy_s)
    sectors = _subtract(after.disk_sectors, before.disk_sectors)
    other = elsewhere = disk = None
    if busy_s is not None and cpu_s is not None and measured.duration_s and measured.cpus:
        other = min(1.0, max(0.0, busy_s - cpu_s) / (measured.duration_s * len(measured.cpus)))
        if all_busy_s is not None and cores is not None:
            room_s = measured.duration_s * (cores - len(measured.cpus))
            elsewhere = min(1.0, max(0.0, all_busy_s - busy_s) / room_s) if room_s > 0 else 0.0
    if disk_busy_s is not None and sectors is not None and measured.duration_s:
        # A disk is in use by the run itself for its share of what was read and written.
        own = sum(float(result.usage.get(name) or 0) for name in ("ru_inblock", "ru_oublock"))
        disk = min(1.0, disk_busy_s / measured.duration_s) * max(0.0, 1 - own / sectors) if sectors else 0.0
    return {
        "steal_s": _round(_subtract(after.steal_s, before.steal_s)),
        "other_load": other,
        "elsewhere_load": elsewhere,
        "disk_load": disk,
        "mhz": sum(clocks) / len(clocks) if clocks else None,
        "throttles": None if throttles is None else int(throttles),
        "quota_s": _round(_subtract(after.quota_s, before.quota_s)),
    }


def summarize_load(runs: pl.DataFrame, case: str, arms: tuple[str, ...]) -> dict[str, Any]:
    """Columns of EFFECTS about the machine during the runs of two arms of a case; null where it did not tell.

    `runs` is RUNS. Loads are shares of the run's cores, `stolen` is a share of the time, `mhz_*` are clocks in MHz.
    """
    import polars as pl

    pair_runs = runs.filter((pl.col("case") == case) & pl.col("arm").is_in(arms))
    timed = pair_runs.filter(pl.col("duration_s") > 0)
    stolen_s = float(timed["steal_s"].sum()) if timed["steal_s"].count() else None
    whole_s = float(timed["duration_s"].sum())
    slowed = (pl.col("throttles").fill_null(0) > 0) | (pl.col("quota_s").fill_null(0) > 0)
    throttle_runs = pair_runs.filter(pl.col("throttles").is_not_null() | pl.col("quota_s").is_not_null())
    return {
        "other_load": timed["other_load"].median(),
        "waited": timed.select((pl.col("waited_s") / pl.col("duration_s")).clip(0, 1).median()).item(),
        "stolen": None if stolen_s is None or not whole_s else min(1.0, stolen_s / whole_s),
        "throttled": throttle_runs.filter(slowed).height if throttle_runs.height else None,
        "mhz_low": pair_runs["mhz"].min(),
        "mhz_high": pair_runs["mhz"].max(),
    }


def describe_load(cells: dict[str, Any]) -> list[str]:
    """Describe which parts of the load make intervals wide, in words; empty on a quiet machine."""
    causes = []
    if (cells["other_load"] or 0) >= BUSY:
        causes.append(f"other processes used {100 * cells['other_load']:.0f} % of the run's cores")
    elif (cells["waited"] or 0) >= BUSY:
        causes.append(f"runs waited {100 * cells['waited']:.0f} % of their time for a core")
    if (cells["stolen"] or 0) >= STOLEN:
        causes.append(f"the hypervisor took {100 * cells['stolen']:.0f} % of the time")
    if cells["throttled"]:
        causes.append(f"{cells['throttled']} run(s) were throttled")
    low, high = cells["mhz_low"], cells["mhz_high"]
    if low and high and high > CLOCK_SPREAD * low:
        causes.append(f"the cores' clock went from {low:.0f} to {high:.0f} MHz")
    return causes


def _subtract(after: float | None, before: float | None) -> float | None:
    """Increase of a counter, never below 0; null unless both readings are known."""
    return None if after is None or before is None else max(0.0, after - before)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
