"""The form's plan: every notebook's settings become lines that give back what they were given."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.conftest import ROOT
from workbench.core.samples import find_sample
from workbench.execution import parameters
from workbench.live import choose_mode
from workbench.live import form as live_form
from workbench.live.file_picker import Pick
from workbench.live.form import Form, check_values

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ASKING = re.compile(r"= configure_notebook\(\"\w+\", (\w+), globals\(\)\)")


def settings_of(path: Path) -> tuple[Any, tuple[parameters.Parameter, ...]]:
    """The model that a notebook asks with, and its parameters."""
    notebook = json.loads(path.read_text())
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    asking, name = next((source, found[1]) for source in sources if (found := ASKING.search(source)))
    module = re.search(rf"^from (workbench\.\S+) import .*\b{name}\b", asking, re.MULTILINE)
    assert module
    return getattr(importlib.import_module(module[1]), name), parameters.read_parameters(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_becomes_a_form_that_gives_its_own_values_back(path: Path) -> None:
    model, declared = settings_of(path)
    defaults = choose_mode(model, {item.name: item.default for item in declared})
    assert set(model.model_fields) == set(defaults)
    form = Form(live_form.list_fields(model, declared), defaults, path.parent)
    assert form.read_values() == defaults
    config, problems = check_values(model, form.read_values())
    assert (config is not None, problems) == (True, {})
    assert all(field.help for field in form.plan.values())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_that_holds_a_path_has_a_picker(path: Path) -> None:
    model, declared = settings_of(path)
    plan = {field.name: field for field in live_form.list_fields(model, declared)}
    paths = [item.name for item in declared if item.default and "../data" in str(item.default)]
    assert [name for name in paths if plan[name].pick is None] == []


class Settings(BaseModel):
    """One of each kind."""

    mode: Literal["a", "b"] = Field("a", description="Which way.")
    fast: bool = False
    rows: int = Field(10, ge=1, le=100)
    level: float = Field(0.9, gt=0.5, lt=1)
    price: float | None = Field(None, ge=0)
    names: list[str] = []
    counts: list[Annotated[int, Field(ge=1)]] = []
    log: Annotated[str, Pick("log", files=("*.log",))] = ""
    logs: Annotated[list[str], Pick("log", files=("*.log",))] = []


PLAN = {field.name: field for field in live_form.list_fields(Settings)}


def test_each_kind_is_told_from_the_model() -> None:
    kinds = {name: field.kind for name, field in PLAN.items()}
    assert list(kinds.values()) == ["choice", "truth", "whole", "number", "number", "list", "list", "text", "list"]
    assert PLAN["mode"].choices == ("a", "b")
    assert (PLAN["rows"].low, PLAN["rows"].high) == (1, 100)
    assert (PLAN["level"].low, PLAN["level"].high) == (0.5, 1)
    assert PLAN["price"].optional
    assert PLAN["counts"].item is int
    assert PLAN["log"].pick == PLAN["logs"].pick == Pick("log", files=("*.log",))
    assert PLAN["mode"].help == "Which way."


def test_empty_means_null_only_where_null_may_be() -> None:
    assert live_form.parse_field_value(PLAN["price"], "  ") is None
    assert live_form.parse_field_value(PLAN["log"], "") == ""
    assert live_form.parse_field_value(PLAN["rows"], "") == ""  # no number: the model says so


def test_a_text_of_a_list_is_one_entry_a_line() -> None:
    assert live_form.parse_field_value(PLAN["names"], "x, y\n\n 3.10 \n") == ["x, y", "3.10"]
    assert live_form.parse_field_value(PLAN["counts"], "1\n2\nmany") == [1, 2, "many"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "c"),
        ("fast", "no"),
        ("rows", 500),
        ("rows", 2.5),
        ("rows", True),
        ("level", 1.5),
        ("names", 5),
    ],
)
def test_a_value_that_an_input_cannot_hold_is_refused_and_not_replaced(name: str, value: Any) -> None:
    defaults = Settings.model_validate({}).model_dump()
    form = Form(list(PLAN.values()), defaults | {name: value}, ROOT)
    held = form.read_values()[name]
    assert str(held[0] if isinstance(held, list) else held) == str(value)
    config, problems = check_values(Settings, form.read_values())
    # A list of one entry is what a single value was meant as, and "no" is as good a truth as any.
    assert (config is None) == (name not in ("names", "fast"))
    assert not problems or list(problems) == [name]


def test_what_an_old_run_had_and_cannot_be_set_is_named() -> None:
    form = Form(list(PLAN.values()), Settings.model_validate({}).model_dump(), ROOT)
    assert form.set_values({"mode": "gone", "rows": 500, "names": {"a": 1}, "level": 0.8, "none": 1}) == [
        "mode",
        "rows",
        "names",
    ]
    assert form.read_values()["level"] == 0.8


class NestedSettings(BaseModel):
    rates: dict[str, list[float]] = {"eu": [0.5]}
    stacks: list[dict[str, int]] = []
    anything: dict[str, Any] | None = None
    mixed: list[Any] = [1, "a"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rates", '{"eu": [1, 0.25]}', {"eu": [1.0, 0.25]}),
        ("stacks", '[{"numpy": 2}]', [{"numpy": 2}]),
        ("anything", "", None),
        ("mixed", '[{"a": null}]', [{"a": None}]),
    ],
)
def test_nested_values_are_one_line_of_json(name: str, text: str, value: object) -> None:
    field = next(field for field in live_form.list_fields(NestedSettings) if field.name == name)
    config, problems = live_form.check_values(NestedSettings, {name: live_form.parse_field_value(field, text)})
    assert (problems, getattr(config, name)) == ({}, value)
    assert live_form.parse_field_value(field, live_form.format_field_value(field, value)) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rates", "{eu: 1}", "not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("anything", "[1]", 'write a dict such as {"name": [1, 2]}'),
        ("mixed", "1, 2", "not JSON: Extra data at line 1, column 2; write a list such as"),
        ("rates", '{"eu": [1, "x"]}', "entry 'eu', entry 2"),
    ],
)
def test_what_is_no_json_of_its_type_is_told_below_the_field(name: str, text: str, said: str) -> None:
    field = next(field for field in live_form.list_fields(NestedSettings) if field.name == name)
    _, problems = live_form.check_values(NestedSettings, {name: live_form.parse_field_value(field, text)})
    assert said in problems[name]


def test_a_panel_takes_samples_by_name_and_tells_a_wrong_one_below_the_field() -> None:
    class Logs(BaseModel):
        logs: Annotated[list[str], Pick("log", files=("*.zstd",))] = []

    config, problems = check_values(Logs, {"logs": ["sample:failing", "own.zstd"]})
    assert config
    assert config.logs == [find_sample("sample:failing"), "own.zstd"]
    config, problems = check_values(Logs, {"logs": ["sample:faling"]})
    assert "did you mean sample:failing?" in problems["logs"]
