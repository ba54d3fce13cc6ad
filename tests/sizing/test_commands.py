"""`workbench sizing estimate`, `verify` and `run --target-users`: answers beside their sweeps, exit codes, refusals."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import polars as pl
import pytest

from tests.sizing.conftest import Sizing
from tests.sizing.making import row_of
from workbench.runs import run_folder
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.load import sweep_journal
from workbench.sizing.load.sweep_runner import run_sweep as drive_sweep
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator
from workbench.sizing.tables import ESTIMATES, SCALING, STEPS, VERIFICATION

GOALS = [Goal(limit_s=1.5)]


def kept(out: Path, gpus: int, **settings: object) -> Path:
    """A sweep in virtual time, in a folder as `run` leaves it."""
    asked = {"url": "http://127.0.0.1:9", "simulated": True, "gpus": gpus, "goals": GOALS}
    config: SweepConfig = build_sweep_config(**asked | settings)
    requests, steps = virtual_time.simulate_sweep(Service(gpus=gpus), config)
    written = sweep_journal.create_sweep_journal(config, out=out, keep=True, prompts={}, command=None)
    for step in steps["step"].to_list():
        note = sweep_journal.StepNote(step=step)
        written.add_step(requests.filter(pl.col("step") == step), steps.filter(pl.col("step") == step), note)
    written.mark_complete()
    assert written.folder is not None
    return written.folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept(tmp_path_factory.mktemp("sweep"), 2)


def test_an_estimate_is_told_and_kept_beside_its_sweep(sizing: Sizing, sweep: Path) -> None:
    code, out, _ = sizing("estimate", sweep, "--target-users", 100, "--gpu-price", 2)
    assert code == 0
    run = run_folder.load_run(sweep)
    row = run.read_table(ESTIMATES).row(0, named=True)
    assert f"{row['recommended']} GPUs serve 100 users at runtime p95 <= 1.5 s" in out
    assert f"cost of the recommended GPUs: {2 * row['recommended']} an hour" in out
    assert (run.verdict, run.answer) == ("valid", out.splitlines()[0])


def test_json_is_one_document_and_nothing_else(sizing: Sizing, sweep: Path) -> None:
    code, out, err = sizing("estimate", sweep, "--target_users", 100, "--json")
    found = json.loads(out)
    assert (code, err, found["recommended"]) == (0, "", found["estimates"][0]["recommended"])
    assert found["simulated"] is True


def test_other_goals_can_be_asked_of_the_same_sweep(sizing: Sizing, sweep: Path) -> None:
    _, out, _ = sizing("estimate", sweep, "--target-users", 100, "--goal", "llm p95<=900ms", "--json")
    assert [row["target"] for row in json.loads(out)["estimates"]] == ["llm p95 <= 0.9 s"]


def test_a_goal_out_of_reach_is_no_answer_and_says_what_to_measure(sizing: Sizing, sweep: Path) -> None:
    code, out, _ = sizing("estimate", sweep, "--target-users", 100, "--goal", "p95<=60")
    assert code == 1
    assert "No GPU count for" in out
    assert "add levels, such as" in out


def test_sweeps_of_several_counts_are_put_together(sizing: Sizing, tmp_path: Path) -> None:
    folders = [kept(tmp_path, gpus) for gpus in (1, 2)]
    code, out, _ = sizing("estimate", *folders, "--target-users", 28)
    assert code == 0
    assert "Amdahl over 1, 2 GPUs" in out
    assert run_folder.load_run(folders[0]).read_table(SCALING)["model"].to_list() == ["linear", "Amdahl"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "how many users?"),
        (("--target-users", 5, "--target-rate", 5), "how many users?"),
        (("--target-rate", 5), "the sweep measured another kind of load"),
        (("--target-users", 5, "--goal", "p95"), "not a goal"),
        (("--target-users", 0), "nobody is to be served"),
    ],
)
def test_wrong_use_is_refused(sizing: Sizing, sweep: Path, arguments: tuple[object, ...], words: str) -> None:
    code, out, err = sizing("estimate", sweep, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_without_a_sweep_or_an_estimate_there_is_nothing_to_go_on_from(sizing: Sizing, tmp_path: Path) -> None:
    told = sizing("estimate", tmp_path, "--target-users", 5), sizing("verify", kept(tmp_path, 1))
    assert [said.code for said in told] == [2, 2]
    assert "no sweep here" in told[0].err
    assert "nothing was estimated yet" in told[1].err


@pytest.mark.live
def test_the_whole_load_is_driven_where_the_predicted_gpus_are(sizing: Sizing, tmp_path: Path) -> None:
    folder = kept(tmp_path, 1, users=[1, 4, 8], goals=[Goal(limit_s=1.2)], least_samples=50, most_samples=50)
    assert sizing("estimate", folder, "--target-users", 12)[0] == 0
    count = int(run_folder.load_run(folder).read_table(ESTIMATES)["recommended"][0])
    with run_simulator(Service(gpus=count), time_scale=0.2) as url:
        code, out, _ = sizing("verify", folder, "--url", url, "--gpus", count)
    row = run_folder.load_run(folder).read_table(VERIFICATION).row(0, named=True)
    assert (row["scope"], row["driven_load"], row["gpus"]) == ("whole load", 12.0, count)
    # How the machine fares while tests run side by side is not asked here, only that verdict and code agree.
    assert (code == 0) == (row["verdict"] == "held")
    assert row["verdict"].upper() in out


FUNCTION = """import asyncio, os, signal
seen = []
async def workflow(prompt):
    seen.append(prompt)
    if len(seen) == {interrupt_at}:
        os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep({takes_s})
"""


def driven(tmp_path: Path, name: str, interrupt_at: int = 0, takes_s: float = 0.01) -> dict[str, object]:
    """Settings that drive a function of this very process, which sends the n-th call's process Ctrl-C."""
    (tmp_path / f"{name}.py").write_text(FUNCTION.format(interrupt_at=interrupt_at, takes_s=takes_s))
    few = {"least_samples": 50, "most_samples": 50, "min_step_s": 0.0, "max_step_s": 20.0, "tight": 1e-9}
    return few | {"protocol": "function", "url": "", "function": f"{name}:workflow", "processes": 0}


# 1 + 4 + 8 users with 50 kept requests each have used up more than 150. A load of the verification takes 200, and what
# is sent until that is noticed: some 50 a second, so that a machine may take seconds and 380 still end the second one.
@pytest.mark.live
@pytest.mark.usefixtures("usual_ctrl_c")
@pytest.mark.parametrize(
    ("interrupt_at", "more", "code", "why"),
    [(0, 380, 1, "--max-requests {}"), (0, 0, 1, "--max-requests {}"), (20, 9000, 130, "interrupted")],
)
def test_a_verification_that_is_cut_short_is_invalid(
    sizing: Sizing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt_at: int, more: int, code: int, why: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    settings = driven(tmp_path, f"cut_{code}_{more}", interrupt_at, takes_s=0.1 if more == 380 else 0.01)
    settings |= {"users": [1, 4, 8], "goals": [Goal(limit_s=1.2)]}
    folder = kept(tmp_path, 1, **settings)
    assert sizing("estimate", folder, "--target-users", 31)[0] == 0
    spent = sweep_journal.load_sweep_journal(folder)[0].total_usage().requests
    assert spent > 150
    assert sizing("verify", folder, "--max-requests", spent + more)[0] == code
    table = run_folder.load_run(folder).read_table(VERIFICATION)
    assert table["verdict"].to_list() == ["invalid"]
    assert table["reason"].to_list() == [f"the run ended early: {why.format(spent + more)}"]
    assert run_folder.load_run(folder).verdict == "invalid"
    driven_ = run_folder.list_run_folders(folder / "verification")
    assert sum(sweep_journal.load_sweep_journal(one.folder)[0].total_usage().requests for one in driven_) <= more
    if more == 380:
        assert [one.read_table(STEPS).height for one in driven_] == [2], "it is the second step that was cut"


@pytest.mark.live
def test_nobody_there_verifies_nothing(sizing: Sizing, tmp_path: Path) -> None:
    folder = kept(tmp_path, 1, users=[1, 4, 8])
    assert sizing("estimate", folder, "--target-users", 12)[0] == 0
    before = run_folder.load_run(folder).record
    code, _, err = sizing("verify", folder, "--url", "http://127.0.0.1:9")
    assert (code, run_folder.load_run(folder).record) == (2, before)
    assert "no service listens" in err


@pytest.mark.live
def test_a_verification_concludes_the_answer_anew_if_it_is_of_its_count(
    sizing: Sizing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    # What the sweep measured in virtual time takes over a second; the function that is verified takes 10 ms.
    settings = driven(tmp_path, "of_its_count") | {"users": [1, 4, 8], "goals": [Goal(limit_s=1.2)]}
    folder = kept(tmp_path, 1, **settings)
    assert sizing("estimate", folder, "--target-users", 12)[0] == 0
    count = int(run_folder.load_run(folder).read_table(ESTIMATES)["recommended"][0])
    sizing("verify", folder)
    verified = run_folder.load_run(folder)
    said = verified.read_table(VERIFICATION)["verdict"][0]
    # The client may be late on a busy machine; only that all agree is asked here.
    assert (verified.verdict == "valid") == (said == "held")
    assert str(verified.answer).endswith(f"; verification {said} (per-GPU load)")
    # Another count says nothing of the answer.
    sizing("verify", folder, "--predicted", count + 1)
    assert run_folder.load_run(folder).record == verified.record
    path = ESTIMATES.path(verified.tables_folder)
    pl.read_parquet(path).with_columns(limit_s=pl.lit(0.001)).write_parquet(path)
    assert sizing("verify", folder)[0] == 1
    failed = run_folder.load_run(folder)
    assert failed.verdict == "invalid"
    assert str(failed.record["reasons"][0]).startswith("verification of runtime p95 <= 0.001 s: ")


@pytest.mark.live
@pytest.mark.parametrize("unique_prefix", [False, True])
def test_no_verification_sends_a_prompt_that_was_sent_before(
    sizing: Sizing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unique_prefix: bool
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"seen_{unique_prefix}"
    settings = driven(tmp_path, name) | {"users": [1, 2], "goals": GOALS, "unique_prefix": unique_prefix}
    swept = drive_sweep(out=tmp_path, **settings)
    assert swept.points["repeated_prompts"].to_list() == [0.0, 0.0]
    assert swept.folder is not None
    sizing("estimate", swept.folder, "--target-users", 4)
    for _ in range(2):
        sizing("verify", swept.folder, "--predicted", 4)
    seen = importlib.import_module(name).seen
    assert len(seen) > 150
    # Without their prefix, too: made prompts begin with their number, which comes again, and go on otherwise.
    assert len({prompt.split("] ")[-1] for prompt in seen}) == len(seen)


def test_an_answer_anew_leaves_nothing_of_the_earlier_one(sizing: Sizing, tmp_path: Path) -> None:
    folders = [kept(tmp_path, gpus) for gpus in (1, 2)]
    sizing("estimate", *folders, "--target-users", 28)
    run = run_folder.load_run(folders[0])
    run.write_table(VERIFICATION, VERIFICATION.frame([row_of(VERIFICATION)]))
    sizing("estimate", folders[0], "--target-users", 50)
    names = {entry["name"] for entry in run_folder.load_run(folders[0]).record["tables"]}
    assert not names & {SCALING.name, VERIFICATION.name}
    assert names == {path.stem for path in run.tables_folder.iterdir()}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--verify",), "--target-users N or --target-rate R"),
        (("--target-users", 5), "no goal"),
        (("--target-rate", 5, "--goal", "p95<=2"), "target and levels are of different kinds"),
    ],
)
def test_run_refuses_half_a_question_before_it_drives(
    sizing: Sizing, arguments: tuple[object, ...], words: str
) -> None:
    code, _, err = sizing("run", "--url", "http://127.0.0.1:9", "--users", "1,2", *arguments)
    assert code == 2
    assert words in err


@pytest.mark.live
@pytest.mark.smoke
def test_run_goes_on_to_the_answer(sizing: Sizing, tmp_path: Path) -> None:
    with run_simulator(Service(), time_scale=0.1) as url:
        code, out, _ = sizing(
            *("run", "--url", url, "--users", "1,4,24", "--goal", "p95<=0.15", "--target-users", 50, "--verify"),
            *("--samples", 40, "--most-samples", 40, "--max-step", 10, "--out", tmp_path, "--json"),
        )
    found = json.loads(out)
    assert found["simulated"] is True
    answer = found["answer"]
    assert answer["estimates"][0]["load"] == 50
    assert (code == 0) == (answer["reasons"] == [])
    if answer["recommended"] is not None:
        assert answer["verification"][0]["predicted_gpus"] == answer["recommended"]
