"""What the notebook shows: from a session's folder to an answer with tables, numbers and a mix that may be moved."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from tests.indicators.worlds import of_values, on_disk, session
from workbench.core.errors import BrokenInvariantError, ConfigError, InputError
from workbench.indicators.analysis.effects import Comparison, compare_session
from workbench.indicators.command import app
from workbench.indicators.config import NotebookConfig
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.contract.new_indicator import build_trial_table
from workbench.indicators.invariants import check_study
from workbench.indicators.measurement import sessions
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.indicators.recommendation.recommender import recommend
from workbench.indicators.stacks import found_environments
from workbench.indicators.stacks.stack_matrix import read_stack_matrix
from workbench.indicators.store.archive import CONTROL
from workbench.indicators.study import LiveMix, MixControls, Study, build_study
from workbench.runs import run_folder

CASES = ("Sort", "Sin")
LOGS = {"fast": (-0.4, 0.3), "slow": (0.5, -0.05)}


def values(seed: int = 0, *, control: float = 0.0) -> dict[tuple[str, str], list[float | None]]:
    rng = np.random.default_rng(seed)
    made: dict[tuple[str, str], list[float | None]] = {}
    for arm in ("base", "fast", "slow", CONTROL):
        shifts = LOGS.get(arm, (control, control) if arm == CONTROL else (0.0, 0.0))
        for case, shift in zip(CASES, shifts, strict=True):
            made[arm, case] = list(5 * np.exp(shift + rng.normal(0, 0.01, 10)))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan = session(("base", "fast", "slow"), CASES)
    locked = tuple(arm.model_copy(update={"lock_sha256": "a" * 64}) for arm in plan.arms)
    return on_disk(tmp_path / "session", plan.model_copy(update={"arms": locked}), values())


def compared() -> Comparison:
    return compare_session(of_values(session(("base", "fast", "slow"), CASES), values()))


def made(folder: Path, tmp_path: Path, **settings: object) -> Study:
    config = NotebookConfig(session=str(folder), **settings)
    return build_study(config, run_folder.start_run("indicators", tmp_path / "out", config=config.model_dump()))


def test_a_session_becomes_an_answer_with_its_tables_in_the_run_folder(folder: Path, tmp_path: Path) -> None:
    config = NotebookConfig(session=str(folder), mix="Sort=1")
    run = run_folder.start_run("indicators", tmp_path / "out", config=config.model_dump())
    found = build_study(config, run)
    assert found.verdict == "valid"
    assert found.answer.startswith("Use fast: 4")
    assert found.details[-1] == "Mix: 1 Sort."
    names = {entry["name"]: entry["rows"] for entry in run.record["tables"]}
    assert names["runs"] == names["observations"] == 80
    assert {"effects", "drift", "judgements", "recommendations", "excluded", "justifications"} <= set(names)
    assert found.check()["holds"].all()
    labels = [number[0] for number in found.key_numbers()]
    assert labels[0] == "fast"
    assert "control off by at most" in labels


def test_what_scripts_reported_is_told(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("inspections/*/results/*/result"):
        document = json.loads(path.read_text())
        document["stdout"] |= {"overall_score": 2.5, "framework": "My Own"}
        path.write_text(json.dumps(document))
    (score, framework) = made(folder, tmp_path).notes[1:3]
    assert score.startswith("Overall score, as the scripts reported it: Sort of base 2.5 (median of 10)")
    assert "my own (base)" in framework


def test_another_mix_gives_another_stack(folder: Path, tmp_path: Path) -> None:
    by_sort = made(folder, tmp_path, mix="Sort=1")
    assert by_sort.recommendation.answer.stack == "fast"
    install, own = by_sort.next_steps()
    assert install.startswith("Install fast; pinned, with hashes: `workbench indicators recommend SESSION ")
    assert "on your hardware" in own
    assert made(folder, tmp_path, mix="Sin=1").recommendation.answer.stack == "slow"
    even = made(folder, tmp_path)
    assert even.details[-1] == "Mix: equal weights of Sort, Sin."
    assert any(step.startswith("Weigh the metrics as your work does") for step in even.next_steps())


def test_an_environment_that_is_there_needs_no_installation(tmp_path: Path) -> None:
    folder = on_disk(tmp_path / "found", session(("base", "fast", "slow"), CASES), values())
    assert made(folder, tmp_path, mix="Sort=1").next_steps()[0] == "Use fast, which is already installed."


def test_the_command_that_pins_gives_the_stack_that_was_recommended(folder: Path, tmp_path: Path) -> None:
    found = made(folder, tmp_path, mix="Sin=1", seed=3)
    words = shlex.split(found.next_steps()[0].split("`")[1])
    assert words[-2:] == ["--requirements", "requirements.txt"]
    asked = [str(folder) if word == "SESSION" else word for word in words[2:-2]]
    told = json.loads(CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "tables"), "--json"]).output)
    assert told["recommended"] == found.recommendation.answer.stack == "slow"
    # It has all that the notebook asked for.
    wanted = build_request(mix="Sort=1", type="stable", require=("numpy<2", "numpy>=1.26"))
    other = replace(found, recommendation=replace(found.recommendation, request=wanted))
    words = shlex.split(other.next_steps()[0].split("`")[1])
    assert words[4:-2] == ["--mix", "Sort=1", "--type", "stable", "--require", "numpy<2", "--require", "numpy>=1.26"]


def test_a_session_whose_control_is_told_apart_recommends_nothing(tmp_path: Path) -> None:
    plan = session(("base", "fast", "slow"), CASES)
    found = made(on_disk(tmp_path / "s", plan, values(control=0.2)), tmp_path)
    assert found.verdict == "invalid"
    assert found.recommendation.answer.stack is None
    assert any("control" in reason for reason in found.reasons)
    assert found.answer.startswith("Nothing is recommended")
    assert found.next_steps()[0].startswith("Do not choose by this session")
    assert found.check()["holds"].all()


def test_an_invariant_that_is_broken_stops_and_is_named() -> None:
    found = compared()
    said = recommend(found, build_request())
    ratio = pl.when(pl.col("arm") == "fast").then(pl.col("low") * 1.0001).otherwise(pl.col("ratio"))
    broken = replace(found, effects=found.effects.with_columns(ratio=ratio))
    with pytest.raises(BrokenInvariantError, match="ratios that do not follow from their rounds"):
        check_study(broken, said)


def test_moved_weights_move_the_recommendation_and_the_sentence() -> None:
    mixing = LiveMix(compared(), build_request(mix="Sort=1"))
    assert mixing.weights == {"Sin": 0.0, "Sort": 1.0}
    assert mixing.recommendation.answer.stack == "fast"
    controls = MixControls(mixing)
    assert "fast" in controls.sentence.value
    controls.sliders["Sin"].value = 1.0
    controls.sliders["Sort"].value = 0.0
    assert mixing.recommendation.answer.stack == "slow"
    assert "slow" in controls.sentence.value
    controls.sliders["Sin"].value = 0.0
    assert mixing.weights["Sin"] == 1.0


def test_a_mix_may_name_a_metric_without_values(tmp_path: Path) -> None:
    made_of = {key: series for key, series in values().items() if key[1] == "Sort"}
    lost = {(arm, "Sin"): [None] * 2 for arm in ("base", "fast", "slow", CONTROL)}
    folder = on_disk(tmp_path / "s", session(("base", "fast", "slow"), CASES), made_of | lost)
    found = made(folder, tmp_path, mix="Sin=1")
    assert found.recommendation.answer.stack is None
    assert found.mixing.weights == {"Sin": 1.0, "Sort": 0.0}
    assert found.mixing.chart().to_dict()["params"]


def test_a_session_too_large_to_be_moved_in_the_page_is_drawn_for_a_small_mix_and_told_otherwise() -> None:
    cases = tuple(f"case-{number:02d}" for number in range(17))
    stacks = tuple(f"stack-{number}" for number in range(10))
    rng = np.random.default_rng(1)
    runs_of = {(arm, case): list(5 * np.exp(rng.normal(0, 0.01, 30))) for arm in (*stacks, CONTROL) for case in cases}
    found = compare_session(of_values(session(stacks, cases), runs_of))
    small = LiveMix(found, build_request(mix="case-01=0.7,case-16=0.3"))
    told = small.chart().to_dict()
    assert "15 metrics of weight 0 not drawn" in told["title"]["subtitle"]
    assert [one["value"] for one in told["params"] if one["name"].startswith("weight_")] == [0.7, 0.3]
    whole = LiveMix(found, build_request())
    assert "more than 5,000 measurements" in str(whole.chart())
    # What is moved in the page is drawn as soon as it has room.
    whole.set_weights(dict.fromkeys(cases[1:], 0.0))
    assert "16 metrics of weight 0 not drawn" in whole.chart(sliders=False).to_dict()["title"]["subtitle"]


def test_live_controls_show_sliders_and_the_chart(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda thing, **_: shown.append(thing))
    MixControls(made(folder, tmp_path).mixing).show()
    assert [type(thing).__name__ for thing in shown] == ["VBox", "LayerChart"]


def test_a_name_of_a_metric_is_escaped_in_the_sentence() -> None:
    name = "<script>alert(1)</script>"
    plan = session(("base", name), CASES)
    series = {(name if arm == "fast" else arm, case): v for (arm, case), v in values().items() if arm != "slow"}
    controls = MixControls(LiveMix(compare_session(of_values(plan, series)), build_request(mix="Sort=1")))
    assert "<script>" not in controls.sentence.value


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"session": ""}, "must name a folder"), ({"speed": 1}, "Extra inputs")],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        NotebookConfig(**settings)


def test_scripts_are_measured_beside_the_indicators_of_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants))
    script = tmp_path / "mine.py"
    script.write_text('print(\'{"name": "Mine", "@parameters": {}, "@result": {"elapsed_ms": 2.0}}\')\n')
    config = NotebookConfig(
        live=True, environments=[f"here={sys.prefix}"], script=[str(script)], indicators=[], rounds=[2], seed=1
    )
    found = build_study(config, run_folder.start_run("indicators", tmp_path / "out"), Square)
    assert found.comparison.observed.values["metric"].unique().sort().to_list() == ["Mine", "Square"]
    assert found.verdict == "invalid"


def test_without_stacks_those_environments_are_compared_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "other"
    packages = prefix / "lib" / "site-packages"
    for name in ("numpy", "polars"):
        (packages / name / "__pycache__").mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {prefix}\necho {packages}\n")
    python.chmod(0o700)
    listed = [("same", sys.executable), ("missing", str(tmp_path / "none")), ("other", str(python))]
    monkeypatch.setattr(found_environments, "_list_pythons", lambda: listed)
    found_environments.find_environments.cache_clear()
    wanted = NotebookConfig(live=True).build_session_config(tmp_path)
    (matrix,) = wanted.stacks
    assert read_stack_matrix(matrix).environments == {found_environments.THIS: sys.prefix, "other": str(prefix)}
    assert wanted.rounds[-1] == 10
    # One whose packages are not compiled takes minutes to begin with; alone, this one is measured by threads.
    shutil.rmtree(packages / "polars" / "__pycache__")
    found_environments.find_environments.cache_clear()
    (matrix,) = NotebookConfig(live=True).build_session_config(tmp_path).stacks
    assert read_stack_matrix(matrix).threads == (1, 2)
    assert NotebookConfig(live=True, stacks=["numpy==2.2.6"]).build_session_config(tmp_path).rounds == (10, 20, 30)


class Square(Indicator):
    """Square a number."""

    n: int = parameter(3)
    elapsed_ms: float = result(unit="ms", better="lower", about="No time at all.")
    script: ClassVar[str] = (
        "import json, os\nn = int(os.environ['PI_N'])\n"
        "print(json.dumps({'name': 'Square', '@parameters': {'n': n}, '@result': {'elapsed_ms': float(n * n)}}))\n"
    )


def test_an_indicator_is_tried_in_a_process_of_its_own() -> None:
    assert build_trial_table(Square, {"n": 5}).select("field", "role", "value", "unit").rows() == [
        ("n", "parameter", "5", ""),
        ("elapsed_ms", "result", "25", "ms"),
    ]

    class Broken(Square):
        script: ClassVar[str] = "print('{}')\n"

    with pytest.raises(InputError, match="no document of this indicator"):
        build_trial_table(Broken)
    with pytest.raises(ConfigError, match="unknown parameter"):
        build_trial_table(Square, {"m": 1})
