"""What is wrong with settings is told by field, in words, and refused the same way headless."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import BaseModel, Field, model_validator

from workbench import live
from workbench.core.errors import ConfigError
from workbench.live.form import WHOLE_MODEL, added_field, check_values


class Settings(BaseModel):
    rows: int = Field(10, ge=1, le=100)
    counts: list[int] = []
    name: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.name == "bad":
            raise ValueError("no such name; there are good and better")
        return self


def test_a_problem_stands_at_its_field_and_says_what_was_found() -> None:
    _, problems = check_values(Settings, {"rows": 1000, "counts": [1, "x"]})
    assert problems["rows"] == "must be less than or equal to 100; found 1000"
    assert problems["counts"].endswith("found 'x', entry 2")


def test_a_problem_of_several_fields_stands_below_all() -> None:
    assert check_values(Settings, {"name": "bad"}) == (None, {WHOLE_MODEL: "no such name; there are good and better"})


def test_a_long_value_is_not_repeated_whole() -> None:
    _, problems = check_values(Settings, {"rows": "9" * 10_000})
    assert len(problems["rows"]) < 300


def test_without_a_front_end_the_parameters_are_checked_and_given_back() -> None:
    config = live.configure_notebook("x", Settings, {"rows": 5, "counts": [1], "name": "a", "other": 1})
    assert config == Settings(rows=5, counts=[1], name="a")


def test_a_value_that_the_model_refuses_is_a_mistake_of_the_user() -> None:
    with pytest.raises(ConfigError, match="rows: must be greater than or equal to 1; found 0"):
        live.configure_notebook("x", Settings, {"rows": 0, "counts": [], "name": ""})


def test_a_parameter_that_the_notebook_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="lacks parameters") as told:
        live.configure_notebook("x", Settings, {"rows": 0})
    assert "counts, name" in str(told.value)


def test_a_parameter_that_came_later_has_its_default_in_a_notebook_that_was_kept() -> None:
    class Later(Settings):
        added: int = added_field(7, "Came later.")

    given = {"rows": 1, "counts": [1], "name": "x"}
    assert live.configure_notebook("x", Later, given).added == 7
    assert live.configure_notebook("x", Later, {**given, "added": 3}).added == 3
    with pytest.raises(ConfigError, match="lacks parameters"):
        live.configure_notebook("x", Later, {name: given[name] for name in list(given)[1:]})


def test_headless_no_widget_is_imported() -> None:
    code = (
        "import sys\nfrom pydantic import BaseModel\nfrom workbench.live import configure_notebook\n"
        "class S(BaseModel):\n    a: int = 1\n"
        "configure_notebook('x', S, {'a': 2})\nfrom workbench.eventlog.config import NotebookConfig\n"
        "assert not {'ipywidgets', 'anywidget', 'altair', 'polars'} & set(sys.modules), 'widgets were imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
