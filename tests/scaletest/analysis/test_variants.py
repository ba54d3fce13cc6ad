"""Runs by side on disk, and what the notebook and `compare` make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from tests.scaletest.making_scenarios import scenario
from workbench.cli import app
from workbench.core.errors import BrokenInvariantError, InputError
from workbench.scaletest import invariants
from workbench.scaletest import scenario as scaletest_scenario
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.variants import Session, VariantRun
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.tables import NODES
from workbench.scaletest.test_run.run_and_resume import replace_schedulers


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


def told(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app.main(["scaletest", "compare", *map(str, words)])
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_the_slower_scheduler_is_told_with_its_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, session(tmp_path))
    assert code == 0
    assert "b against a: 3 run(s) each" in out
    assert "intervals of 95 %" in out
    (line,) = [line for line in out.splitlines() if line.startswith("  scheduling") and "p50" in line]
    assert line.endswith("SLOWER")
    assert "admission" not in out  # not told apart: left out without --all
    code, out, _ = told(capsys, tmp_path, "--all")
    assert "admission" in out


def test_one_run_each_claims_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, session(tmp_path, repeat=1))
    assert code == 0
    assert "No verdict: one run each" in out
    assert "SLOWER" not in out


def test_two_folders_are_two_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(tmp_path)
    code, out, _ = told(capsys, tmp_path / "run-0", tmp_path / "run-1", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["sides"] == ["A", "B"]
    assert {row["verdict"] for row in document["comparison"]} == {"UNDECIDED"}


def test_an_invalid_run_makes_the_comparison_end_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(tmp_path)
    analysis(Plan(np.arange(300) / 60, unseen=(1,)), tmp_path / "run-0")
    code, out, _ = told(capsys, tmp_path)
    assert code == 1
    assert "invalid: a, run 1: 1 of 300 accepted workloads were never seen" in out


def test_runs_of_different_plans_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analysis(Plan(np.arange(30) / 10), tmp_path / "one")
    analysis(Plan(np.arange(30) / 10), tmp_path / "two", scenario_sha256="1" * 64)
    code, out, err = told(capsys, tmp_path / "one", tmp_path / "two")
    assert (code, out) == (2, "")
    assert "these runs had different plans" in err


@pytest.mark.parametrize(("of_second", "code"), [({}, 0), ({"queue": "other"}, 2)])
def test_runs_of_one_scenario_that_were_each_told_their_scheduler_are_compared(
    of_second: dict[str, Any], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, more in (("default-scheduler", {}), ("kai-scheduler", of_second)):
        made = replace_schedulers(scenario({"kind": "Job", **more}), (name,))
        scaletest_scenario.draw_plan(made).write(tmp_path / name)
        analysis(
            Plan(np.arange(30) / 10), tmp_path / name, scenario_sha256=scenarios.hash_scenario(made), schedulers=(name,)
        )
    found, _, err = told(capsys, tmp_path / "default-scheduler", tmp_path / "kai-scheduler")
    assert found == code
    assert ("these runs had different plans" in err) == (code == 2)


@pytest.mark.parametrize(("words", "named"), [(("NONE",), "not a scale test"), (("run-0",), "name a second folder")])
def test_folders_that_cannot_be_compared_are_named(
    words: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session(tmp_path, repeat=1)
    code, out, err = told(capsys, *(tmp_path / word for word in words))
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


def test_a_side_that_lost_more_than_half_is_named_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session(tmp_path)
    analysis(Plan(np.arange(300) / 60, lost=tuple(range(200)), nodes=50), tmp_path / "run-1")
    _, out, _ = told(capsys, tmp_path)
    (line,) = [line for line in out.splitlines() if line.startswith("  due to scheduled") and "p50" in line]
    assert "UNDECIDED: more than 50 % of the workloads never completed it in 1 of 3 runs of b" in line
    assert "–" in line


def test_turns_without_a_pair_are_told_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session(tmp_path, repeat=2)
    for gone in ("run-0", "run-2"):
        (tmp_path / gone / "tables" / "submissions.parquet").unlink()
    code, out, err = told(capsys, tmp_path)
    assert (code, out) == (2, "")
    assert "no turn has a run of both variants" in err
    assert "run --resume" in err


def test_a_clock_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, session(tmp_path, repeat=1), "--clock", "wall")
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
    assert "more GPUs allocated than there are" in str(error.value)
