"""Settings and plan files: all problems at once, defaults that a person can start from, runs found beside the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.capacity.making import sizing_run
from workbench.capacity.config import PlanConfig, plan_config
from workbench.capacity.planfile import example, read_plan
from workbench.errors import ConfigError


def told(path: Path | None, **given: object) -> str:
    with pytest.raises(ConfigError) as error:
        read_plan(path, given)
    assert error.value.exit_code == 2
    return str(error.value)


def written(place: Path, text: str) -> Path:
    path = place / "plan.yaml"
    path.write_text(text)
    return path


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        plan_config({"gpus_per_node": 0, "utilisation": 1.5, "draws": 1}, where="plan.yaml")
    assert all(name in str(error.value) for name in ("gpus_per_node", "utilisation", "draws", "plan.yaml"))


def test_an_unknown_setting_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    said = told(written(tmp_path, "gpu_per_node: 4\n"), sizing="x")
    assert "gpu_per_node" in said
    assert "gpus_per_node" in said


def test_two_prices_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="cannot be like that") as error:
        plan_config({"price_per_gpu_h": 2.0}, where="here")
    assert "two prices" in str(error.value)


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="one name"):
        _ = PlanConfig(jobs=["etl per_hour=1", "etl per_hour=2"]).job_classes


def test_nothing_to_plan_for_is_told_with_an_example() -> None:
    assert "workbench capacity plan --sizing" in told(None)


def test_a_file_is_read_and_what_is_given_by_hand_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "sizing: sizing\ngpus_per_node: 4\nusers: ['7']\n")
    found = read_plan(path, {})
    # Runs of the file lie beside it.
    assert (found.sizing, found.gpus_per_node, found.users_by_hour) == (str(tmp_path / "sizing"), 4, [7.0] * 24)
    assert (found.speedup, found.indicators, found.scaletest) == ("", "", "")
    assert read_plan(path, {"sizing": "elsewhere"}).sizing == "elsewhere"


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "sizing: x\nsizing: y\n", "users: 5\n", "jobs: [1]\n"])
def test_a_file_that_is_no_plan_is_refused_in_words(tmp_path: Path, text: str) -> None:
    assert "Traceback" not in told(written(tmp_path, text), sizing="x")


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in told(tmp_path / "none.yaml", sizing="x")
    assert "too large" in told(written(tmp_path, "#" * 1_000_001), sizing="x")


def test_the_example_is_a_plan_of_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, example())
    assert set(yaml.safe_load(path.read_text())) == set(PlanConfig.model_fields)
    found = read_plan(path, {"sizing": str(sizing_run(tmp_path))})
    runs = {"speedup", "sizing", "indicators", "scaletest"}
    assert found.model_dump(exclude=runs) == PlanConfig().model_dump(exclude=runs)


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in PlanConfig.model_fields.items() if not field.description] == []
