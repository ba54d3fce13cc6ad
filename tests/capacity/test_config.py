"""Settings and plan files: all problems at once, defaults that a person can start from, runs found beside the file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.capacity.making import sizing_run
from workbench.capacity.config import (
    PlanConfig,
    build_plan_config,
    describe_sessions,
    format_example_plan,
    parse_job_class,
    parse_load_by_hour,
    read_plan_file,
)
from workbench.core.errors import ConfigError


def told(path: Path | None, **given: object) -> str:
    with pytest.raises(ConfigError) as error:
        read_plan_file(path, given)
    assert error.value.exit_code == 2
    return str(error.value)


def written(place: Path, text: str) -> Path:
    path = place / "plan.yaml"
    path.write_text(text)
    return path


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        build_plan_config({"gpus_per_node": 0, "utilisation": 1.5, "draws": 1}, where="plan.yaml")
    assert all(name in str(error.value) for name in ("gpus_per_node", "utilisation", "draws", "plan.yaml"))


def test_an_unknown_setting_is_named_with_those_that_there_are(tmp_path: Path) -> None:
    said = told(written(tmp_path, "gpu_per_node: 4\n"), sizing="x")
    assert all(name in said for name in ("gpu_per_node", "gpus_per_node"))


def test_two_prices_and_two_classes_of_one_name_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match=r"not a capacity plan[\s\S]*two prices"):
        build_plan_config({"price_per_gpu_h": 2.0}, where="here")
    with pytest.raises(ConfigError, match="two job classes"):
        _ = PlanConfig(jobs=["etl per_hour=1", "etl per_hour=2"]).job_classes


def test_nothing_to_plan_for_is_told_with_an_example() -> None:
    assert "workbench capacity plan --sizing" in told(None)


def test_a_file_is_read_and_what_is_given_by_hand_wins(tmp_path: Path) -> None:
    path = written(tmp_path, "sizing: sizing\ngpus_per_node: 4\nusers: ['7']\n")
    found = read_plan_file(path, {})
    # Runs of the file lie beside it.
    assert (found.sizing, found.gpus_per_node, found.users_by_hour) == (str(tmp_path / "sizing"), 4, [7.0] * 24)
    assert (found.speedup, found.indicators, found.scaletest) == ("", "", "")
    assert read_plan_file(path, {"sizing": "elsewhere"}).sizing == "elsewhere"


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "sizing: x\nsizing: y\n", "users: 5\n", "jobs: [1]\n"])
def test_a_file_that_is_no_plan_is_refused_in_words(tmp_path: Path, text: str) -> None:
    assert "Traceback" not in told(written(tmp_path, text), sizing="x")


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    assert "cannot read" in told(tmp_path / "none.yaml", sizing="x")
    assert "too large" in told(written(tmp_path, "#" * 1_000_001), sizing="x")


def test_the_example_is_a_plan_of_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, format_example_plan())
    assert set(yaml.safe_load(path.read_text())) == set(PlanConfig.model_fields)
    found = read_plan_file(path, {"sizing": str(sizing_run(tmp_path))})
    runs = {"speedup", "sizing", "indicators", "scaletest"}
    assert found.model_dump(exclude=runs) == PlanConfig().model_dump(exclude=runs)


def test_every_setting_says_what_it_is() -> None:
    assert [name for name, field in PlanConfig.model_fields.items() if not field.description] == []


def test_a_job_class_is_read_with_all_that_it_says() -> None:
    one = parse_job_class("etl applications='etl * v2' gpus=4 pods=5 per_hour=12.5 hours=6-8,22-1 stack_share=0.3")
    assert (one.name, one.applications, one.gpus, one.pods, one.stack_share) == ("etl", "etl * v2", 4, 5, 0.3)
    assert [hour for hour, jobs in enumerate(one.per_hour) if jobs] == [0, 6, 7, 22, 23]
    assert set(one.per_hour) == {0.0, 12.5}


def test_numbers_for_each_hour_stand_as_they_are() -> None:
    numbers = [float(value) for value in range(24)]
    assert parse_job_class("a per_hour=" + ",".join(map(str, numbers))).per_hour == numbers
    assert parse_job_class("a per_hour=3").per_hour == [3.0] * 24
    assert parse_load_by_hour([",".join(map(str, numbers)), "1"]) == [value + 1 for value in numbers]


def test_loads_of_texts_add_up() -> None:
    assert parse_load_by_hour(["20", "380 hours=9-11", "5 hours=10"])[8:12] == [20.0, 400.0, 405.0, 20.0]
    assert parse_load_by_hour(["5 hours=9, 11-13"]) == parse_load_by_hour(["5 hours = 9,11-13"])
    assert parse_load_by_hour([]) == [0.0] * 24


@pytest.mark.parametrize("text", ["3600/h session=125 hours=9-11", "3600/h hours=9-11 session=125s"])
def test_sessions_an_hour_are_users_at_once(text: str) -> None:
    assert parse_load_by_hour(["20", text])[8:12] == [20.0, 145.0, 145.0, 20.0]
    step = "3,600 sessions an hour x 125 s = 125 users at once (Little's law), hours 9-11"
    assert describe_sessions(["20", text]) == [step]
    by_hour = ",".join(["360"] * 23 + ["7200"]) + "/h session=10"
    assert parse_load_by_hour([by_hour]) == [1.0] * 23 + [20.0]
    assert describe_sessions([by_hour])[0].startswith("7,200 sessions an hour x 10 s = 20 users")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a job class"),
        ("etl 'per_hour=1", "not a job class"),
        ("per_hour=5", "no name"),
        ("etl gpus=1", "no per_hour"),
        ("etl per_hour=1 cpus=4", "cpus=4"),
        ("etl per_hour=1 per_hour=2", "set twice"),
        ("etl per_hour=many", "not a number"),
        ("etl per_hour=nan", "not a number"),
        ("etl per_hour=1,2,3", "one number per hour"),
        ("etl per_hour=1 hours=9-9", "hours of a day"),
        ("etl per_hour=1 hours=9-30", "hours of a day"),
        ("etl per_hour=-1", "per_hour"),
        ("etl per_hour=1 gpus=0", "gpus"),
        ("etl per_hour=1 gpus=1.5", "gpus"),
        ("etl per_hour=1 stack_share=2", "stack_share"),
    ],
)
def test_a_job_class_that_is_none_is_told_in_words(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_job_class(text)


@pytest.mark.parametrize(
    "text",
    [
        *("some", "5 from=9", "5 hours=x", "-3", "1e12", "", "5 hours", "5 hours=9 hours=9", "5 session=10"),
        *("5/h", "5/h session=0", "5/h session=long", "5/h session=inf", "5/m session=3", "-5/h session=3"),
    ],
)
def test_a_load_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_load_by_hour([text])
