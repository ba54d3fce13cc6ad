"""What a run says, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.fakes.scale_runs import Plan, analysis
from tests.scaletest.analysis.test_variants import session
from tests.scaletest.compat_runai import making
from tests.scaletest.conftest import Scaletest
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.command import app


def test_a_run_is_told_with_its_steps_and_what_held_it_up(tmp_path: Path, scaletest: Scaletest) -> None:
    analysis(Plan(np.arange(900) / 60, scheduled_per_s=40, lost=(3,)), tmp_path)
    code, out, _ = scaletest("show", tmp_path)
    assert code == 0
    (line,) = [line for line in out.splitlines() if line.startswith("scheduling")]
    assert line.split()[-2:] == ["900", "1"]  # n, and one that never was
    assert "pods scheduled at 40/s" in out
    assert "The cluster sustains" in out
    (head,) = [line for line in out.splitlines() if line.startswith("step")]
    assert head.endswith("not yet")
    assert "not yet: not completed by the end of the run" in out


def test_a_run_in_which_all_got_there_has_no_legend(tmp_path: Path, scaletest: Scaletest) -> None:
    analysis(Plan(np.arange(100) / 20), tmp_path)
    _, out, _ = scaletest("show", tmp_path)
    assert "not yet:" not in out


def test_runs_by_side_are_not_one_run(tmp_path: Path, scaletest: Scaletest) -> None:
    code, out, err = scaletest("show", session(tmp_path, repeat=1))
    assert (code, out) == (2, "")
    assert f"workbench scaletest compare {tmp_path}" in err


def test_the_report_of_a_run_says_what_it_says_and_where_all_charts_are(tmp_path: Path) -> None:
    chains = [one for index in range(20) for one in making.chain(index, 0.4 + index)]
    folder = making.run(tmp_path, 20, chains)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert "20 of 20 workloads drawn" in done.stdout
    assert analyse_run(folder).answer in done.stdout
    assert f"workbench run scaletest -p runs={folder}" in done.stdout
    document = json.loads(CliRunner().invoke(app, ["report", str(folder), "--json"]).stdout)
    assert document["answer"] == analyse_run(folder).answer
    assert Path(document["times"]).is_file()


def test_a_program_gets_the_same_figures(tmp_path: Path, scaletest: Scaletest) -> None:
    found = analysis(Plan(np.arange(200) / 20), tmp_path)
    code, out, _ = scaletest("show", tmp_path, "--json")
    document = json.loads(out)
    assert (code, document["verdict"], document["run"]) == (0, "valid", found.conditions.run)
    rows = {(row["step"], row["clock"], row["quantile"]): row["value_s"] for row in document["quantiles"]}
    assert rows["due to running", "client", 0.5] == pytest.approx(0.0155)


def test_an_invalid_run_ends_with_one_and_says_why(tmp_path: Path, scaletest: Scaletest) -> None:
    analysis(Plan(np.arange(100) / 20, unseen=(7,)), tmp_path)
    code, out, _ = scaletest("show", tmp_path)
    assert code == 1
    assert "invalid: 1 of 100 accepted workloads were never seen" in out


def test_a_folder_of_something_else_is_refused(tmp_path: Path, scaletest: Scaletest) -> None:
    code, out, err = scaletest("show", tmp_path)
    assert (code, out) == (2, "")
    assert "not a folder of a scale test" in err
