"""Two sides: told apart when they differ, hardly ever when they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from workbench.core.errors import InputError
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES
from workbench.scaletest.analysis.variants import ONE_RUN_NOTE, compare_variants
from workbench.scaletest.tables import QUANTILES


def run(random: np.random.Generator, factor: float = 1.0, spread: float = 0.15, steps: int = 3) -> pl.DataFrame:
    """Quantiles of a run: every step as slow as this run happens to be, and a little of its own."""
    whole = random.lognormal(0, spread)
    rows = []
    for number, step in enumerate(STEP_NAMES[:steps]):
        for share in (0.5, 0.95):
            own = 0.01 * (number + 1) * whole * random.lognormal(0, spread) * (1 + share) * factor
            row = dict.fromkeys(QUANTILES.schema()) | {"step": step, "clock": "client", "quantile": share}
            given = {"value_s": own, "level": 0.95, "n": 500, "missing": 0, "gaps": 0, "resolution_s": 0.0}
            rows.append(row | given)
    return QUANTILES.frame(rows)


def sides(seed: int, n: int, factor: float = 1.0) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
    random = np.random.default_rng(seed)
    return [run(random) for _ in range(n)], [run(random, factor) for _ in range(n)]


def test_runs_of_one_side_are_hardly_ever_told_apart() -> None:
    claims = rows = 0
    for seed in range(200):
        found = compare_variants(*sides(seed, 5))
        claims += found.filter(pl.col("verdict").is_in(["FASTER", "SLOWER"])).height
        rows += found.height
    assert rows == 200 * 6
    assert claims / rows <= 0.05


def test_a_side_that_is_three_times_faster_is_told_and_the_interval_holds_the_truth() -> None:
    found = pl.concat([compare_variants(*sides(seed, 10, factor=1 / 3)) for seed in range(150)])
    assert set(found["verdict"]) == {"FASTER"}
    covered = found.filter((pl.col("low") <= 3) & (pl.col("high") >= 3)).height
    # 95 % intervals, of 150 independent comparisons: their rows share the runs. Intervals of 90 % would fail.
    assert 0.92 <= covered / found.height <= 0.985


def test_the_sides_turned_round_give_the_opposite_verdict() -> None:
    a, b = sides(1, 10, factor=1 / 3)
    assert set(compare_variants(b, a)["verdict"]) == {"SLOWER"}


def test_one_run_each_gives_the_difference_and_no_verdict() -> None:
    found = compare_variants(*sides(1, 1, factor=1 / 10))
    assert set(found["verdict"]) == {"UNDECIDED"}
    assert set(found["reason"]) == {ONE_RUN_NOTE}
    assert found["ratio"].is_not_null().all()
    assert found["low"].is_null().all()


def spoilt(runs: list[pl.DataFrame], which: list[int], value: float | None, step: int = 0, share: float = 0.95) -> None:
    """The quantile of some runs is another one, or null: never reached."""
    own = (pl.col("step") == STEP_NAMES[step]) & (pl.col("quantile") == share)
    for number in which:
        changed = pl.when(own).then(pl.lit(value, dtype=pl.Float64)).otherwise("value_s").alias("value_s")
        runs[number] = runs[number].with_columns(changed)


def row(found: pl.DataFrame, step: int = 0, share: float = 0.95) -> dict[str, Any]:
    return found.filter((pl.col("step") == STEP_NAMES[step]) & (pl.col("quantile") == share)).row(0, named=True)


def test_a_side_that_never_got_there_in_some_runs_is_never_called_faster_for_the_others() -> None:
    # The runs of B that are left are three times faster, in each of ten pairs but three.
    a, b = sides(1, 10, factor=1 / 3)
    spoilt(b, [1, 4, 7], None)
    found = compare_variants(a, b, names=("default", "kai"))
    lost = row(found)
    assert (lost["verdict"], lost["ratio"], lost["low"], lost["b_s"]) == ("UNDECIDED", None, None, None)
    assert lost["reason"] == "more than 5 % of the workloads never completed it in 3 of 10 runs of kai"
    assert (lost["n"], lost["a_never"], lost["b_never"]) == (7, 0, 3)
    assert lost["a_s"] is not None
    assert row(found, share=0.5)["verdict"] == "FASTER"


def test_where_both_sides_lost_runs_the_ratio_is_information_without_an_interval() -> None:
    a, b = sides(1, 10, factor=1 / 3)
    spoilt(a, [0], None)
    spoilt(b, [1], None)
    lost = row(compare_variants(a, b))
    assert lost["verdict"] == "UNDECIDED"
    assert lost["ratio"] == pytest.approx(3, rel=0.5)
    assert (lost["low"], lost["high"], lost["adjusted_p_value"]) == (None, None, None)
    assert lost["reason"].endswith("never completed it in 1 of 10 runs of A and in 1 of 10 runs of B")


def test_no_time_is_told_apart_from_never_and_from_no_such_step() -> None:
    a, b = sides(1, 3)
    spoilt(a, [0], 0.0)
    b[2] = b[2].filter(pl.col("step") != STEP_NAMES[0])
    found = row(compare_variants(a, b, names=("default", "kai")))
    assert (found["verdict"], found["a_never"], found["b_never"]) == ("UNDECIDED", 0, 0)
    took, absent = found["reason"].split("; ")
    assert took == "its duration is below the resolution in 1 of 3 runs of default"
    assert absent == "the step does not exist in 1 of 3 runs of kai"


def test_a_lost_run_does_not_weigh_on_the_other_rows() -> None:
    a, b = sides(1, 10, factor=1 / 3)
    before = compare_variants(a, b)
    spoilt(b, [0], None)
    after = compare_variants(a, b)
    keep = ["step", "quantile", "ratio", "low", "high", "verdict"]
    same = ~((pl.col("step") == STEP_NAMES[0]) & (pl.col("quantile") == 0.95))
    assert after.filter(same).select(keep).equals(before.filter(same).select(keep))


def test_a_quantile_that_takes_no_time_on_either_side_is_no_row() -> None:
    a, b = sides(1, 3)
    for runs in (a, b):
        spoilt(runs, [0, 1, 2], 0.0, share=0.5)
    found = compare_variants(a, b).filter(pl.col("step") == STEP_NAMES[0])
    assert found["quantile"].to_list() == [0.95]


def test_a_row_that_only_the_family_keeps_undecided_says_so() -> None:
    found = pl.concat([compare_variants(*sides(seed, 3, factor=1 / 2)) for seed in range(20)])
    alone = found.filter(
        pl.col("reason").str.starts_with("significant alone, but not after correction for 6 rows; about")
    )
    assert alone.height
    assert set(alone["verdict"]) == {"UNDECIDED"}
    assert (alone["low"] > 1.05).all()


def test_an_undecided_row_says_how_many_runs_would_tell() -> None:
    found = compare_variants(*sides(3, 5, factor=1 / 1.2))
    undecided = found.filter(pl.col("verdict") == "UNDECIDED")
    assert undecided.height
    assert undecided["reason"].str.contains("runs per variant would decide it|too close").all()
    assert found.filter(pl.col("verdict") != "UNDECIDED")["reason"].is_null().all()


def test_intervals_are_of_95_percent() -> None:
    assert set(compare_variants(*sides(1, 5))["level"]) == {0.95}


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 2)])
def test_sides_without_pairs_are_refused(a: int, b: int) -> None:
    runs = sides(1, 2)[0]
    with pytest.raises(InputError, match="same number of runs"):
        compare_variants(runs[:a], runs[:b])
