"""What was recorded: ten runs of the same that are hardly ever told apart, and two schedulers that are."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import polars as pl
import pytest

from workbench.scaletest import invariants
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.variants import compare_variants
from workbench.scaletest.config import NotebookConfig
from workbench.scaletest.study import Study
from workbench.scaletest.tables import QUANTILES

SAMPLES = Path(__file__).parents[2] / "data" / "samples" / "scaletest"
DEFAULT, KAI = "default-scheduler", "kai-scheduler"


@pytest.fixture(scope="module")
def recorded() -> variants.Variants:
    return variants.read_variants(SAMPLES / "default-and-kai")


@pytest.fixture(scope="module")
def study(recorded: variants.Variants) -> Study:
    return Study(NotebookConfig(), recorded)


@pytest.mark.slow
def test_ten_runs_of_the_same_are_told_apart_in_at_most_one_step_of_twenty() -> None:
    runs = [QUANTILES.check(pl.read_parquet(path)) for path in sorted((SAMPLES / "copies").glob("*.parquet"))]
    assert len(runs) == 10
    claims = rows = 0
    for picked in combinations(range(10), 5):
        # Each half once, not also the other way round.
        if 0 not in picked:
            continue
        rest = [number for number in range(10) if number not in picked]
        found = compare_variants([runs[number] for number in picked], [runs[number] for number in rest])
        claims += found.filter(pl.col("verdict").is_in(["FASTER", "SLOWER"])).height
        rows += found.height
    assert rows > 126 * 10
    assert claims / rows <= 0.05


def test_the_runs_are_valid_and_seen_as_a_whole(recorded: variants.Variants) -> None:
    assert recorded.names == (DEFAULT, KAI)
    assert [len(recorded.runs[name]) for name in recorded.names] == [4, 4]
    assert recorded.reasons == ()
    for _, run in recorded.everything:
        assert run.submissions["status"].to_list() == ["created"] * 650
        assert run.pods["index"].n_unique() == 650


def test_both_sides_had_the_same_plan_but_for_the_scheduler(recorded: variants.Variants) -> None:
    plans = [run.schedule.drop("name", "spec_sha256", "object_bytes") for _, run in recorded.everything]
    assert all(plan.equals(plans[0]) for plan in plans)
    assert {run.conditions.schedulers for _, run in recorded.everything} == {(DEFAULT,), (KAI,)}


def test_the_deadlock_of_the_stock_scheduler_and_its_absence_with_kai(recorded: variants.Variants) -> None:
    for run in recorded.runs[DEFAULT]:
        partial = run.gangs.filter(~pl.col("complete") & (pl.col("scheduled") > 0))
        assert partial.height >= 2
        assert partial["held_gpu_s"].sum() > 0
    for run in recorded.runs[KAI]:
        assert run.gangs.filter(~pl.col("complete") & (pl.col("scheduled") > 0)).is_empty()
        # 192 GPUs are 24 gangs of 8.
        assert run.gangs["complete"].sum() == 24


def test_the_comparison_says_which_one_is_slower_and_where(study: Study) -> None:
    verdicts = {(row["step"], row["quantile"]): row["verdict"] for row in study.comparison.iter_rows(named=True)}
    assert verdicts["due to scheduled", 0.5] == "SLOWER"
    assert verdicts["scheduling", 0.5] == "SLOWER"
    assert verdicts["lateness", 0.5] not in ("FASTER", "SLOWER")


def test_the_invariants_of_the_sample_hold(recorded: variants.Variants, study: Study) -> None:
    assert invariants.check_variants(recorded, study.comparison)["holds"].all()


def test_nothing_of_the_machine_is_in_it(recorded: variants.Variants) -> None:
    texts = [path.read_text() for path in (SAMPLES / "default-and-kai").rglob("*.json")]
    texts += [(SAMPLES / "default-and-kai" / "scenario.yaml").read_text()]
    for text in texts:
        assert not [word for word in ("/tmp", "/root", "/work", "/home", "127.0.0.1", "localhost") if word in text]
    for path in (SAMPLES / "default-and-kai").rglob("*.parquet"):
        for column in pl.read_parquet(path).select(pl.selectors.string()).iter_columns():
            assert not column.str.contains(r"/tmp/|/root/|/work/|127\.0\.0\.1").any()


def test_the_sample_is_small() -> None:
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 4 << 20
