"""Every invariant holds for good runs, also for odd ones, and each fails when its tables are broken."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.core.errors import BrokenInvariantError
from workbench.scaletest import invariants
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.variants import Variants
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import COMPARISON, GAPS, GPUS

DUE = np.arange(100) / 20


def run(folder: Path, **more: Any) -> Analysis:
    given: dict[str, Any] = {"pods": 2, "gang": True, "nodes": 50, "scheduled_per_s": 100.0}
    return analysis(Plan(DUE, **(given | more)), folder)


def check(*found: Analysis, comparison: pl.DataFrame | None = None) -> pl.DataFrame:
    sides = Variants(Path(), ("a",), {"a": found})
    return invariants.check_variants(sides, COMPARISON.frame([]) if comparison is None else comparison)


def test_invariants_hold_for_good_and_for_odd_runs(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"lost": (1, 2, 3)},
        {"unseen": tuple(range(100))},
        {"lifetime_s": 0.5},
        {"away_s": (1.0, 3.0), "lifetime_s": 0.1},
        {"skew_s": -3.0, "pods": 1, "gang": False},
    ]
    assert check(*[run(tmp_path / str(place), **more) for place, more in enumerate(odd)])["holds"].all()


def changed(column: str, value: pl.Expr, table: str) -> Callable[[Analysis], dict[str, pl.DataFrame]]:
    return lambda found: {table: getattr(found, table).with_columns(value.alias(column))}


def dropped(table: str, rows: pl.Expr) -> Callable[[Analysis], dict[str, pl.DataFrame]]:
    return lambda found: {table: getattr(found, table).filter(rows)}


FIRST = pl.int_range(pl.len()) == 0
BROKEN: dict[str, tuple[Callable[[Analysis], dict[str, pl.DataFrame]], ...]] = {
    "workloads that are counted twice or not at all": (
        changed("n", pl.col("n") - 1, "quantiles"),
        changed("n", pl.col("n") * 2, "quantiles"),
        dropped("quantiles", pl.col("step") != invariants.TOTAL),
    ),
    "steps that end before they begin, by one clock": (
        changed("duration_s", pl.when(pl.col("step") == "scheduling").then(-0.01).otherwise("duration_s"), "steps"),
    ),
    "pods that run before they are scheduled": (
        changed("running_s", pl.col("scheduled_s") - 0.001, "pods"),
        changed("created_s", pl.col("scheduled_s") + 0.001, "pods"),
    ),
    "more pods bound at the end than the plan has": (
        changed("pods", pl.when(FIRST).then(pl.lit(1, dtype=pl.Int64)).otherwise("pods"), "schedule"),
    ),
    "moments with more GPUs in use than exist": (changed("capacity", pl.lit(50.0), "gpus"),),
    "gangs that count as complete and never were": (
        changed("complete_s", pl.when(FIRST).then(0.0).otherwise("complete_s"), "gangs"),
        changed("complete_s", pl.lit(None, dtype=pl.Float64), "gangs"),
        changed("scheduled", pl.col("scheduled") + 1, "gangs"),
        # As it was counted once: pods that were bound one after the other.
        changed("ended_s", pl.col("scheduled_s") + 1e-6, "pods"),
    ),
    "segments that do not add up to the time from due to the end": (
        changed("mean_s", pl.when(FIRST).then(pl.col("mean_s") + 0.001).otherwise("mean_s"), "shares"),
        dropped("shares", pl.col("segment") != "started"),
    ),
    "shares that do not add up to one": (
        changed("share", pl.col("share") * 1.01, "shares"),
        changed("tail_share", pl.col("tail_share") * 0.99, "shares"),
    ),
}


@pytest.mark.parametrize(("name", "breaking"), [(name, breaking) for name, ways in BROKEN.items() for breaking in ways])
def test_a_broken_table_is_named(
    name: str, breaking: Callable[[Analysis], dict[str, pl.DataFrame]], tmp_path: Path
) -> None:
    found = run(tmp_path)
    assert check(found)["holds"].all()
    found.__dict__.update(breaking(found))
    with pytest.raises(BrokenInvariantError, match="an invariant does not hold") as error:
        check(found)
    assert name in str(error.value)


def test_an_imported_run_counts_only_what_its_files_tell(tmp_path: Path) -> None:
    found = run(tmp_path)
    found.__dict__["quantiles"] = found.quantiles.filter(pl.col("step") != invariants.TOTAL)
    imported = Analysis(found.folder, found.conditions.model_copy(update={"provider": run_records.IMPORTED}))
    imported.__dict__.update(found.__dict__ | {"conditions": imported.conditions})
    assert check(imported)["holds"].all()


def over(folder: Path, every_s: float, moments: int, gaps: list[dict[str, Any]] | None = None) -> Analysis:
    """More GPUs allocated than there are, for so many moments."""
    found = run(folder)
    at = np.arange(20) * every_s
    rows: list[dict[str, Any]] = [
        {"at_s": float(one), "capacity": 8.0, "allocated": 9.0 if 5 <= place < 5 + moments else 8.0}
        | {"waiting": 0.0, "in_partial_gangs": 0.0, "stranded": 0.0, "fragmentation": None}
        for place, one in enumerate(at)
    ]
    GAPS.write(GAPS.frame(gaps or []), folder / "tables")
    found.__dict__["gpus"] = GPUS.frame(rows)
    return found


@pytest.mark.parametrize(
    ("every_s", "moments", "holds"),
    [(0.1, 10, True), (0.1, 12, False), (6.0, 2, True), (6.0, 3, False), (0.6, 2, True), (0.6, 3, False)],
)
def test_streams_that_are_out_of_order_may_exceed_the_capacity_for_less_than_a_second(
    every_s: float, moments: int, holds: bool, tmp_path: Path
) -> None:
    found = over(tmp_path, every_s, moments)
    with nullcontext() if holds else pytest.raises(BrokenInvariantError, match="more GPUs in use than exist"):
        assert check(found)["holds"].all()


def test_while_the_pods_watch_is_away_ends_are_not_seen(tmp_path: Path) -> None:
    gap = {"resource": "pod", "from_s": 4.0, "to_s": 20.0, "reason": "expired", "relisted": True, "recovered": 0}
    assert check(over(tmp_path / "one", 1.0, 10, [gap]))["holds"].all()
    with pytest.raises(BrokenInvariantError):
        check(over(tmp_path / "two", 1.0, 10, [gap | {"resource": "job"}]))


def claim(verdict: str, low: float | None, high: float | None, n: int = 5) -> pl.DataFrame:
    row = dict.fromkeys(COMPARISON.schema()) | {"step": "scheduling", "clock": "client", "quantile": 0.5}
    return COMPARISON.frame([row | {"level": 0.95, "n": n, "verdict": verdict, "low": low, "high": high}])


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [
        (claim("FASTER", 1.1, 2.0), True),
        (claim("SLOWER", 0.5, 0.9), True),
        (claim("UNDECIDED", None, None, 1), True),
        (claim("FASTER", 0.9, 2.0), False),
        (claim("SLOWER", 0.5, 1.1), False),
        (claim("FASTER", None, None), False),
        (claim("SLOWER", None, None), False),
        (claim("FASTER", 1.1, 2.0, 1), False),
    ],
)
def test_a_claim_needs_an_interval_and_more_than_one_run(comparison: pl.DataFrame, holds: bool, tmp_path: Path) -> None:
    found = run(tmp_path)
    with nullcontext() if holds else pytest.raises(BrokenInvariantError, match="claims"):
        assert check(found, comparison=comparison)["holds"].all()
