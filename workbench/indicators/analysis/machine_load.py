"""Load of the machine during runs: other processes, the hypervisor, heat, quotas, clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.indicators.store.archive import RunDetails

if TYPE_CHECKING:
    import polars as pl

BUSY = 0.1
"""Share of the cores' time from which other processes are named as a cause of wide intervals."""
STOLEN = 0.01
CLOCK_SPREAD = 1.1


def build_load_cells(measured: RunDetails, cpu_s: float | None) -> dict[str, Any]:
    """Columns of RUNS about the machine during a run; null where it did not tell."""
    before, after = measured.before, measured.after
    clocks = [mhz for mhz in (before.mhz, after.mhz) if mhz is not None]
    busy_s, throttles = _subtract(after.busy_s, before.busy_s), _subtract(after.throttles, before.throttles)
    other = None
    if busy_s is not None and cpu_s is not None and measured.duration_s and measured.cpus:
        room_s = measured.duration_s * len(measured.cpus)
        other = min(1.0, max(0.0, busy_s - cpu_s) / room_s)
    return {
        "steal_s": _round(_subtract(after.steal_s, before.steal_s)),
        "other_load": other,
        "mhz": sum(clocks) / len(clocks) if clocks else None,
        "throttles": None if throttles is None else int(throttles),
        "quota_s": _round(_subtract(after.quota_s, before.quota_s)),
    }


def summarize_load(runs: pl.DataFrame, case: str, arms: tuple[str, ...]) -> dict[str, Any]:
    """Columns of EFFECTS about the machine during the runs of two arms of a case; null where it did not tell."""
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
    return None if after is None or before is None else max(0.0, after - before)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
