"""Runs by side on disk, and what the notebook and `compare` make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from tests.scaletest.conftest import Scaletest
from tests.scaletest.making_scenarios import scenario
from workbench.core.errors import BrokenInvariantError, InputError
from workbench.scaletest import invariants
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES
from workbench.scaletest.analysis.variants import ONE_RUN_NOTE, Session, VariantRun, compare_variants
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.workload_plan import draw_plan
from workbench.scaletest.tables import NODES, QUANTILES
from workbench.scaletest.test_run.run_lifecycle import replace_schedulers


def session(folder: Path, slower: float = 40.0, repeat: int = 3) -> Path:
    """Two sides, in turn A B B A A B; the second one's scheduler is as slow as said."""
    order = ["a", "b", "b", "a", "a", "b", "b", "a", "a", "b"][: 2 * repeat]
    runs = [VariantRun(side=side, position=place, folder=f"run-{place}") for place, side in enumerate(order)]
    for one in runs:
        speed = 200.0 if one.side == "a" else slower
        plan = Plan(np.arange(300) / 60, scheduled_per_s=speed, jitter=0.4, seed=one.position, nodes=50)
        analysis(plan, folder / one.folder)
    variants.write_session(
        folder,
        Session(scenario_sha256="0" * 64, created_at="2026-11-22", sides=("a", "b"), repeat=repeat, runs=tuple(runs)),
    )
    return folder


def test_the_slower_scheduler_is_told_with_its_ratio(tmp_path: Path, scaletest: Scaletest) -> None:
    code, out, _ = scaletest("compare", session(tmp_path))
    assert code == 0
    assert "b against a: 3 run(s) each" in out
    assert "intervals of 95 %" in out
    (line,) = [line for line in out.splitlines() if line.startswith("scheduling") and "p50" in line]
    assert line.endswith("SLOWER")
    assert "admission" not in out  # not told apart: left out without --all
    code, out, _ = scaletest("compare", tmp_path, "--all")
    assert "admission" in out


def test_one_run_each_claims_nothing(tmp_path: Path, scaletest: Scaletest) -> None:
    code, out, _ = scaletest("compare", session(tmp_path, repeat=1))
    assert code == 0
    assert "No verdict: one run each" in out
    assert "SLOWER" not in out


def test_two_folders_are_two_sides(tmp_path: Path, scaletest: Scaletest) -> None:
    session(tmp_path)
    code, out, _ = scaletest("compare", tmp_path / "run-0", tmp_path / "run-1", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["sides"] == ["A", "B"]
    assert {row["verdict"] for row in document["comparison"]} == {"UNDECIDED"}


def test_an_invalid_run_makes_the_comparison_end_with_one(tmp_path: Path, scaletest: Scaletest) -> None:
    session(tmp_path)
    analysis(Plan(np.arange(300) / 60, unseen=(1,)), tmp_path / "run-0")
    code, out, _ = scaletest("compare", tmp_path)
    assert code == 1
    assert "invalid: a, run 1: 1 of 300 accepted workloads were never seen" in out


def test_runs_of_different_plans_are_not_compared(tmp_path: Path, scaletest: Scaletest) -> None:
    analysis(Plan(np.arange(30) / 10), tmp_path / "one")
    analysis(Plan(np.arange(30) / 10), tmp_path / "two", scenario_sha256="1" * 64)
    code, out, err = scaletest("compare", tmp_path / "one", tmp_path / "two")
    assert (code, out) == (2, "")
    assert "these runs had different plans" in err


@pytest.mark.parametrize(("of_second", "code"), [({}, 0), ({"queue": "other"}, 2)])
def test_runs_of_one_scenario_that_were_each_told_their_scheduler_are_compared(
    of_second: dict[str, Any], code: int, tmp_path: Path, scaletest: Scaletest
) -> None:
    for name, more in (("default-scheduler", {}), ("kai-scheduler", of_second)):
        made = replace_schedulers(scenario({"kind": "Job", **more}), (name,))
        draw_plan(made).write(tmp_path / name)
        analysis(
            Plan(np.arange(30) / 10), tmp_path / name, scenario_sha256=scenarios.hash_scenario(made), schedulers=(name,)
        )
    found, _, err = scaletest("compare", tmp_path / "default-scheduler", tmp_path / "kai-scheduler")
    assert found == code
    assert ("these runs had different plans" in err) == (code == 2)


@pytest.mark.parametrize(("words", "named"), [(("NONE",), "not a scale test"), (("run-0",), "name a second folder")])
def test_folders_that_cannot_be_compared_are_named(
    words: tuple[str, ...], named: str, tmp_path: Path, scaletest: Scaletest
) -> None:
    session(tmp_path, repeat=1)
    code, out, err = scaletest("compare", *(tmp_path / word for word in words))
    assert (code, out) == (2, "")
    assert named in err


def test_a_session_that_was_broken_off_compares_what_is_there(tmp_path: Path) -> None:
    session(tmp_path)
    (tmp_path / "run-5" / "tables" / "submissions.parquet").unlink()
    found = variants.read_variants(tmp_path)
    assert [len(found.runs[name]) for name in found.names] == [3, 2]
    assert set(found.comparison()["n"]) == {2}


def test_runs_are_paired_by_turn_also_when_one_is_missing(tmp_path: Path) -> None:
    session(tmp_path)
    # A B B A A B: the second run of A is gone, so that its third is paired with the third of B.
    (tmp_path / "run-3" / "tables" / "submissions.parquet").unlink()
    found = variants.read_variants(tmp_path)
    assert found.turns == {"a": (0, 2), "b": (0, 1, 2)}
    pairs = [(first.folder.name, second.folder.name) for first, second in found.pairs]
    assert pairs == [("run-0", "run-1"), ("run-4", "run-5")]
    assert set(found.comparison()["n"]) == {2}


def test_a_side_that_lost_more_than_half_is_named_in_the_table(tmp_path: Path, scaletest: Scaletest) -> None:
    session(tmp_path)
    analysis(Plan(np.arange(300) / 60, lost=tuple(range(200)), nodes=50), tmp_path / "run-1")
    _, out, _ = scaletest("compare", tmp_path, "--wide")
    (line,) = [line for line in out.splitlines() if line.startswith("due to scheduled") and "p50" in line]
    assert "UNDECIDED  more than 50 % of the workloads never completed it in 1 of 3 runs of b" in line
    assert "–" in line


def test_turns_without_a_pair_are_told_with_what_to_do(tmp_path: Path, scaletest: Scaletest) -> None:
    session(tmp_path, repeat=2)
    for gone in ("run-0", "run-2"):
        (tmp_path / gone / "tables" / "submissions.parquet").unlink()
    code, out, err = scaletest("compare", tmp_path)
    assert (code, out) == (2, "")
    assert "no turn has a run of both variants" in err
    assert "run --resume" in err


def test_a_clock_that_does_not_exist_is_refused(tmp_path: Path, scaletest: Scaletest) -> None:
    code, _, err = scaletest("compare", session(tmp_path, repeat=1), "--clock", "wall")
    assert code == 2
    assert "client, server, mixed" in err


def test_a_path_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    session(tmp_path, repeat=1)
    text = (tmp_path / variants.SESSION_FILE).read_text().replace("run-0", "../run-0")
    (tmp_path / variants.SESSION_FILE).write_text(text)
    with pytest.raises(InputError, match="not a list of runs by variant"):
        variants.read_variants(tmp_path)


def test_the_invariants_hold_and_a_broken_one_is_named(tmp_path: Path) -> None:
    found = variants.read_variants(session(tmp_path))
    assert invariants.check_variants(found, found.comparison())["holds"].all()
    own = tmp_path / "run-0" / "tables"
    NODES.write(NODES.read(own).with_columns(gpus=pl.lit(1, dtype=pl.Int64)), own)
    broken = variants.read_variants(tmp_path)
    with pytest.raises(BrokenInvariantError, match="an invariant does not hold") as error:
        invariants.check_variants(broken, broken.comparison())
    assert "more GPUs in use than exist" in str(error.value)


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


@pytest.mark.parametrize("n", [2, 10])
@pytest.mark.parametrize(
    ("values_s", "verdict", "low", "high"),
    [
        ((1.0, 2.0), "UNDECIDED", None, None),
        ((3.0, 2.0), "UNDECIDED", 0.5, 4.5),
        ((20.0, 20.0), "UNDECIDED", (19 / 20) ** 2, (20 / 19) ** 2),
        ((10.0, 40.0), "SLOWER", 1 / 4 * 9 / 10 * 39 / 40, 1 / 4 * 10 / 9 * 40 / 39),
    ],
)
def test_equal_times_by_a_clock_of_whole_seconds_are_known_to_the_second(
    values_s: tuple[float, float], verdict: str, low: float | None, high: float | None, n: int
) -> None:
    def equal_runs(value_s: float) -> list[pl.DataFrame]:
        whole = [pl.lit(value_s).alias("value_s"), pl.lit(1.0).alias("resolution_s")]
        return [run(np.random.default_rng(number)).with_columns(*whole) for number in range(n)]

    found = row(compare_variants(*map(equal_runs, values_s)))
    assert (found["verdict"], found["ratio"]) == (verdict, pytest.approx(values_s[0] / values_s[1]))
    assert (found["low"], found["high"]) == (low and pytest.approx(low), high and pytest.approx(high))
    assert low or found["reason"] == "a value of 1 is not above the clock's resolution of 1"


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
    assert compare_variants(a, b).filter(pl.col("step") == STEP_NAMES[0])["quantile"].to_list() == [0.95]


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
