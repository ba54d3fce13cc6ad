"""Strict models, and the one wording of what is wrong with what was given for them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import (
    FieldProblem,
    FiniteModel,
    StrictModel,
    check_format_version,
    list_problems,
    read_model_file,
    validate_model,
)


class Fixed(StrictModel):
    kind: Literal["fixed"]
    s: float = Field(gt=0)


class Drawn(StrictModel):
    kind: Literal["drawn"]


class Entry(StrictModel):
    name: str = Field(min_length=2)
    lives: Annotated[Fixed | Drawn, Field(discriminator="kind")] | None = None


class Plan(StrictModel):
    n_gpus: int = Field(ge=1)
    entries: list[Entry] = Field([], min_length=1)
    api_token: str = ""
    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _fits(self) -> Plan:
        if self.high < self.low:
            raise ValueError("high is less than low")
        return self


def refuse(values: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as refused:
        validate_model(Plan, values, noun="plan", where="plan.yaml", **options)
    return refused.value


def test_a_single_problem_is_told_by_its_field_with_what_was_found_and_what_is_allowed() -> None:
    error = refuse({"n_gpus": 0})
    assert (error.what, error.facts) == (
        "not a plan",
        {"where": "plan.yaml, n_gpus", "found": "0", "allowed": "greater than or equal to 1", "do": None},
    )


def test_all_problems_are_told_at_once_each_by_its_path() -> None:
    error = refuse({"n_gpus": "x", "entries": [{"name": "a"}, {"name": "ab", "old": 1}]})
    assert error.facts["where"] == "plan.yaml"
    assert error.facts["found"] == (
        "n_gpus: must be a valid integer, unable to parse string as an integer (found 'x'); "
        "entries[0].name: must have at least 2 characters (found 'a'); entries[1].old: there is no such field"
    )


def test_an_unknown_field_is_told_with_those_there_are_and_a_missing_one_by_name() -> None:
    assert refuse({"n_gpus": 1, "gpus": 1}).facts["allowed"] == list(Plan.model_fields)
    assert refuse({}).facts["found"] == "n_gpus is missing"


def test_what_concerns_several_fields_is_told_of_the_whole() -> None:
    error = refuse({"n_gpus": 1, "low": 3})
    assert (error.facts["where"], error.facts["found"]) == ("plan.yaml", "high is less than low")


def test_flags_stand_for_fields_and_the_error_is_of_the_wanted_kind() -> None:
    with pytest.raises(ConfigError) as refused:
        validate_model(Plan, {"n_gpus": 0}, noun="plan", flags={"n_gpus": "--gpus"}, error_type=ConfigError, do="help")
    assert (refused.value.facts["where"], refused.value.facts["do"]) == ("--gpus", "help")


def test_a_secret_is_not_repeated_nor_any_value_where_none_may_be() -> None:
    assert refuse({"n_gpus": 1, "api_token": 12345}).facts["found"] is None
    assert "4711" not in str(refuse({"n_gpus": -4711}, show_values=False))


def test_a_long_value_is_cut_and_a_container_told_by_its_type() -> None:
    assert len(str(refuse({"n_gpus": "x" * 5000}))) < 300
    assert refuse({"n_gpus": [1] * 5000}).facts["found"] == "a list"


def test_a_list_that_is_too_short_because_its_entries_are_wrong_is_no_problem_of_its_own() -> None:
    with pytest.raises(ValidationError) as refused:
        Plan.model_validate({"n_gpus": 1, "entries": []})
    assert list_problems(refused.value) == [
        FieldProblem(("entries",), "must have at least 1 item after validation, not 0", "a list")
    ]


def test_many_problems_are_counted_after_the_first_ones() -> None:
    found = str(refuse({"n_gpus": 1, "entries": [{"name": "a"}] * 30}).facts["found"])
    assert found.endswith("; and 20 more")


def test_strict_models_do_not_change_and_finite_ones_hold_no_infinity() -> None:
    class Limits(FiniteModel):
        s: float

    with pytest.raises(ValidationError):
        Limits(s=1.0).s = 2.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Limits(s=math.inf)


@pytest.mark.parametrize(("name", "text"), [("plan.json", '{"n_gpus": 2}'), ("plan.yaml", "n_gpus: 2")])
def test_a_file_becomes_its_model(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_model_file(Plan, tmp_path / name, noun="plan") == Plan(n_gpus=2)


@pytest.mark.parametrize(("version", "is_refused"), [(3, True), (2, False), (None, False), (True, False)])
def test_what_a_newer_workbench_wrote_is_refused(tmp_path: Path, version: object, is_refused: bool) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"format_version": version}))
    with pytest.raises(InputError) as refused:
        read_model_file(Plan, path, noun="plan", max_version=2)
    assert (refused.value.what == "plan of a newer workbench") == is_refused


def test_a_version_may_be_required() -> None:
    with pytest.raises(InputError) as refused:
        check_format_version([], 2, noun="plan", is_required=True)
    assert refused.value.facts["found"] == "no format_version"
