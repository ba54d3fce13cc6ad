"""The notebook's study: in virtual time, over HTTP, of a function, of a sweep that is there; what it refuses."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.sizing.making import row_of
from workbench.core.errors import ConfigError
from workbench.runs import run_folder
from workbench.sizing.config import NotebookConfig
from workbench.sizing.estimation import sweep_store
from workbench.sizing.estimation.method_comparison import (
    OURS_LABEL,
    SAME_POINTS_LABEL,
    TOOLKIT_RUNS_LABEL,
    TRUE_NEED_LABEL,
)
from workbench.sizing.load import sweep_runner
from workbench.sizing.study import Study, build_study
from workbench.sizing.tables import CAPACITIES, COMPARISON, ESTIMATES, SCALING, VERIFICATION

# A tenth of the default service's times; small and quick.
SERVICE = ["slots=8", "output_tokens=20", "calls=1"]
QUICK = ["least_samples=60", "most_samples=120"]


def config(**changed: Any) -> NotebookConfig:
    given: dict[str, Any] = {"users": 60, "goals": ["p95<=0.25"], "gpu_counts": [1], "truth_runs": 1}
    return NotebookConfig(**(given | {"service": SERVICE, "settings": QUICK} | changed))


def studied(folder: Path, **changed: Any) -> Study:
    return build_study(config(**changed), run_folder.start_run("sizing", folder))


@pytest.fixture(autouse=True)
def _headless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBENCH_RUN_DIR", str(tmp_path))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    patch = pytest.MonkeyPatch()
    patch.setenv("WORKBENCH_RUN_DIR", "headless")
    found = studied(tmp_path_factory.mktemp("runs"))
    patch.undo()
    return found


def test_in_virtual_time_it_answers_verifies_and_says_that_it_is_simulated(made: Study) -> None:
    assert made.conditions == ["simulated service"]
    assert made.notes[0] == "Measured: simulated, virtual time."
    assert made.found.verification is not None
    assert made.found.verification["scope"].to_list() == ["whole load"]
    assert (made.verdict == "valid") == (not made.reasons)
    assert made.check()["holds"].all()


def test_the_same_seed_gives_the_same_figures_and_another_seed_others(made: Study, tmp_path: Path) -> None:
    again, other = studied(tmp_path), studied(tmp_path, seed=1)
    assert again.measured.requests.equals(made.measured.requests)
    assert again.answer == made.answer
    assert not other.measured.requests.equals(made.measured.requests)


def test_its_tables_are_in_the_run_folder(tmp_path: Path) -> None:
    run = run_folder.start_run("sizing", tmp_path)
    found = build_study(config(truth_runs=0), run)
    assert run.read_table(ESTIMATES).equals(found.found.estimates)
    assert run.read_table(COMPARISON)["answer"].to_list() == [OURS_LABEL, SAME_POINTS_LABEL]
    assert run.read_table(CAPACITIES)["limit_ms"].is_sorted()


def test_the_answers_stand_beside_the_true_need(made: Study) -> None:
    assert made.truth is not None
    need = made.truth.gpus
    assert need is not None
    assert made.truth.tried[need]
    assert made.truth.tried.get(need - 1, need == 1) in (False, need == 1)
    rows = {row["answer"]: row for row in made.comparison.iter_rows(named=True)}
    assert set(rows) == {OURS_LABEL, SAME_POINTS_LABEL, TOOLKIT_RUNS_LABEL, TRUE_NEED_LABEL}
    assert rows[OURS_LABEL]["off"] == made.found.recommended - need  # type: ignore[operator]
    assert rows[TOOLKIT_RUNS_LABEL]["deployed"] == math.ceil(rows[TOOLKIT_RUNS_LABEL]["gpus"])
    assert f"True need of this service: {need} GPUs" in made.notes[-1]


def test_the_grid_has_the_estimate_itself_at_the_limit_that_was_asked_for(made: Study) -> None:
    row = made.capacities.filter(limit_ms=250).row(0, named=True)
    estimate = made.found.estimates.row(0, named=True)
    names = ("capacity", "capacity_low", "capacity_high")
    assert [row[name] for name in names] == [estimate[name] for name in names]
    assert made.what_if is not None
    assert f"60 users at runtime p95 ≤ 0.25 s: {made.found.recommended} GPUs" in made.what_if.answer


def test_the_curve_passes_the_limit_at_the_capacity(made: Study) -> None:
    capacity = made.found.estimates["capacity"].item()
    inside = made.curve.filter(pl.col("load") <= capacity)
    beyond = made.curve.filter(pl.col("load") > capacity * 1.001)
    assert inside["value_s"].max() <= 0.25 + 1e-9  # type: ignore[operator]
    assert beyond["value_s"].min() >= 0.25 - 1e-9  # type: ignore[operator]


def test_a_limit_below_all_latencies_is_invalid_with_its_reason(tmp_path: Path) -> None:
    found = studied(tmp_path, goals=["p95<=0.01"], settings=[*QUICK, "users=[1,2,4]"])
    assert found.verdict == "invalid"
    assert "exceeds the limit" in found.reasons[0]
    assert (found.truth, found.found.verification) == (None, None)
    assert found.check()["holds"].all()
    assert found.key_numbers()[0][1] is None
    assert found.what_if is None
    assert "there is no estimate to vary" in found.no_what_if


def test_steps_that_are_left_out_are_told_with_their_reason(tmp_path: Path) -> None:
    found = studied(tmp_path, service=[*SERVICE, "admission=4"], settings=[*QUICK, "users=[1,2,4,8,16]"])
    told = [note for note in found.notes if "excluded" in note]
    assert len(told) == 1
    assert told[0].startswith("2 of 5 steps excluded as server-limited: at 8 users, server admits about 4")


def test_several_gpu_counts_show_how_it_scales(tmp_path: Path) -> None:
    found = studied(tmp_path, gpu_counts=[2, 1], truth_runs=0, users=20)
    assert found.found.scaling["model"].to_list() == ["linear", "Amdahl"]
    assert SCALING in [declared for declared, _ in found.tables()]
    assert (found.what_if, found.no_what_if.split(":")[0]) == (None, "The what-if needs a single GPU count")
    assert sorted(found.capacities["gpus"].unique().to_list()) == [1, 2]
    assert "gpus" in found.self_check.columns


def test_sessions_of_users_who_think_are_sized_in_virtual_time_beside_their_true_need(tmp_path: Path) -> None:
    """Virtual time ends a level with its samples, so that no step is too short for a session."""
    settings = ["max_step_s=5", "users=[80,120,160,200,240]"]
    found = studied(tmp_path, users=1200, turns=3, think_time_s=8.0, goals=["p95<=0.5"], settings=settings)
    assert found.verdict == "valid", found.reasons
    assert "in sessions of 3 turns" in " ".join(found.details)
    assert found.measured.steps["think_s"].unique().to_list() == [8.0]
    assert found.measured.requests["turn"].max() == 3
    assert found.truth is not None
    assert found.truth.gpus is not None
    assert found.found.recommended is not None
    assert 0 <= found.found.recommended - found.truth.gpus <= 1 + 0.2 * found.truth.gpus
    assert found.comparison.filter(answer=TOOLKIT_RUNS_LABEL)["gpus"].to_list() == [None]
    assert found.check()["holds"].all()


def test_sessions_an_hour_are_a_load_of_users_and_the_step_is_a_note(tmp_path: Path) -> None:
    asked = {"goals": ["p95<=0.3"], "truth_runs": 0}
    hourly = studied(tmp_path / "hourly", users=1, users_per_hour=3000, session_length_s=71.0, **asked)
    plain = studied(tmp_path / "plain", users=60, **asked)
    assert "3,000 sessions an hour x 71 s = 59.2 users at once (Little's law)." in hourly.notes
    assert hourly.question == plain.question
    assert hourly.answer == plain.answer


def test_the_length_of_a_session_is_that_of_turns_and_think_time() -> None:
    """By hand: 5 x (20 s + 300 tokens at 60 a second) = 125 s."""
    hourly = config(users_per_hour=3600, turns=5, think_time_s=20, settings=["output_tokens=300"])
    assert hourly.load == 125
    assert "x 125 s = 125 users" in hourly.load_step
    assert config(users=7.5).load == 7.5
    assert config().load_step == ""
    with pytest.raises(ConfigError, match="sessions of unknown length"):
        _ = config(users_per_hour=3600).load


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "http://127.0.0.1:9", "protocol": "openai", "settings": ["model=m", "max_step_s=90"]}, "too short"),
        ({"time_scale": 0.5, "settings": ["max_step_s=45"]}, "too short"),
        ({"service": ["calls=2"]}, "one call"),
    ],
)
def test_live_steps_too_short_for_a_first_session_are_refused_before_they_start(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        studied(tmp_path, live=True, turns=5, think_time_s=20, **given)


@pytest.mark.live
def test_sessions_with_the_live_simulator_have_think_time_of_its_scale_and_are_verified(tmp_path: Path) -> None:
    settings = ["least_samples=40", "most_samples=40", "min_step_s=0", "users=[8,16,24,32,40]", "max_step_s=8"]
    sessions = {"turns": 2, "think_time_s": 2.0, "goals": ["ttft p95<=0.2"], "settings": settings}
    found = studied(tmp_path, live=True, time_scale=0.2, users=40, **sessions)
    assert found.measured.steps["think_s"].unique().to_list() == pytest.approx([0.4])
    assert "limits and think time are as much shorter" in " ".join(found.notes)
    assert found.measured.requests["turn"].max() == 2
    assert found.check()["holds"].all()


def test_open_loops_ask_for_a_rate(tmp_path: Path) -> None:
    settings = [*QUICK, "arrivals=poisson", "rates=[5, 10, 20, 40]"]
    found = studied(tmp_path, users=100, settings=settings, goals=["p95<=0.2"])
    assert found.found.load_unit == "1/s"
    assert found.truth is None
    assert found.check()["holds"].all()


@pytest.mark.live
def test_live_the_simulator_is_driven_over_http_and_verified_at_its_share(tmp_path: Path) -> None:
    settings = ["least_samples=40", "most_samples=40", "min_step_s=0", "users=[1,2,4,8,12]"]
    found = studied(tmp_path, live=True, time_scale=0.1, goals=["p95<=0.5"], settings=settings, users=12)
    assert found.measured.how == "simulated, over HTTP in real time"
    assert found.measured.goals[0].limit_s == pytest.approx(0.05)
    assert "10 times as fast" in " ".join(found.notes)
    assert found.measured.steps["clock"].unique().to_list() == ["real"]
    assert found.measured.requests["server_runtime_s"].null_count() == 0
    assert found.check()["holds"].all()
    if found.found.recommended is not None:
        assert found.found.verification is not None
        assert found.found.verification["predicted_gpus"].to_list() == [found.found.recommended]


def test_a_function_of_the_users_own_is_driven_live(tmp_path: Path) -> None:
    async def workflow(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt.upper()

    settings = ["least_samples=40", "most_samples=40", "min_step_s=0", "users=[1,2]"]
    live = config(live=True, settings=settings, goals=["p95<=1"])
    found = build_study(live, run_folder.start_run("sizing", tmp_path), workflow)
    assert found.measured.how == "live, real time"
    assert not found.found.simulated
    assert set(found.measured.requests["outcome"].to_list()) == {"ok"}
    assert found.verdict == "invalid"  # so fast a function was not brought near its limit
    assert "measure" in found.reasons[0] or "add levels" in found.reasons[0]
    with pytest.raises(ConfigError, match="real time"):
        build_study(config(), run_folder.start_run("sizing", tmp_path), workflow)


def test_a_sweep_that_is_there_is_shown_with_its_verification(tmp_path: Path) -> None:
    async def workflow(prompt: str) -> str:
        return prompt

    swept = sweep_runner.run_sweep(
        workflow, out=tmp_path / "sweeps", users=[1, 2], least_samples=40, most_samples=40, min_step_s=0, seed=3
    )
    assert swept.folder is not None
    given = {"sweep": [str(swept.folder)], "users": 2, "goals": ["p95<=1"], "settings": []}
    found = studied(tmp_path, **given)
    assert found.measured.requests.equals(swept.requests)
    assert found.found.verification is None
    assert "concurrent requests" in " ".join(found.notes)
    with pytest.raises(ConfigError, match="another kind of load"):
        sweep_store.check_load_unit(swept.steps, sweep_store.TargetLoad(2, "1/s"))


def test_an_earlier_verification_counts_for_its_own_count_load_and_target_only(tmp_path: Path) -> None:
    from workbench.sizing.load.measurement_sources import _stored_verification

    run = run_folder.start_run("sizing", tmp_path)
    row = row_of(VERIFICATION, target="runtime p95 <= 0.25 s", predicted_gpus=4, load=60.0, load_unit="users")
    run.write_table(VERIFICATION, VERIFICATION.frame([row]))
    assert _stored_verification(run.folder, config())(4).height == 1
    assert _stored_verification(run.folder, config())(5).height == 0
    assert _stored_verification(run.folder, config(users=61))(4).height == 0
    assert _stored_verification(run.folder, config(goals=["p95<=0.3"]))(4).height == 0
    assert _stored_verification(tmp_path / "none", config())(4).height == 0


def test_a_trace_is_work_as_it_comes(tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    lines = [f"2026-01-01 00:00:{number / 20:09.6f},300,20" for number in range(400)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]) + "\n")
    run = run_folder.start_run("sizing", tmp_path / "run")
    found = build_study(config(trace=str(trace), users=20), run)
    assert found.found.load_unit == "1/s"
    assert found.measured.steps["arrivals"].unique().to_list() == ["trace"]
    assert "Of the trace only the arrival times are used" in " ".join(found.notes)
    assert run.record["inputs"][0]["path"] == str(trace)
    with pytest.raises(ConfigError, match="set by another parameter"):
        studied(tmp_path, trace=str(trace), settings=["arrivals=gamma"])
    trace.write_text("".join(_session_line(number) for number in range(4)))
    with pytest.raises(ConfigError, match="only a live run replays a trace of sessions"):
        studied(tmp_path, trace=str(trace))


def _session_line(number: int) -> str:
    row = {"session_id": str(number), "timestamp": 1000 * number, "input_length": 100, "output_length": 20}
    return json.dumps(row) + "\n"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": "http://127.0.0.1:1"}, "live=true"),
        ({"live": True, "sweep": ["x"]}, "one of them"),
        ({"live": True, "url": "http://127.0.0.1:1", "function": "a:b"}, "not both"),
        ({"live": True, "url": "http://127.0.0.1:1", "gpu_counts": [1, 2]}, "one GPU count"),
        ({"gpu_counts": [1, 1]}, "twice"),
        ({"users": 0}, "greater than 0"),
        ({"session_length_s": 20}, "users_per_hour"),
        ({"goals": []}, "at least 1"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"service": ["slot=8"]}, "not a field of the simulated service"),
        ({"service": ["gpus=8"]}, "not a field of the simulated service"),
        ({"service": ["slots=none"]}, "where: service, slots\n"),
        ({"settings": ["seed=1"]}, "set by another parameter"),
        ({"settings": ["sample=1"]}, "sample: there is no such field"),
        ({"settings": ["users"]}, "not a setting"),
        ({"goals": ["fast"]}, "not a goal"),
        ({"service": ["slots=1", "slots=2"]}, "twice"),
    ],
)
def test_a_wrong_setting_is_one_message(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        studied(tmp_path, **given)
