"""Fields of a form in groups: basic ones open, others folded, those of a mode open while it is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from tests.conftest import ROOT
from tests.live.test_form import NOTEBOOKS, settings_of
from workbench.live.form import FieldGroup, Form, list_fields, list_groups

MAX_BASIC = 10


class Settings(BaseModel):
    """A mode, and what is set in it."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Live measurement", ("url",), when="live"),
        FieldGroup("Recorded", ("folder",), unless="live"),
        FieldGroup("More settings", ("seed",)),
    )
    live: bool = False
    url: str = ""
    folder: str = "f"
    seed: int = Field(0, ge=0)


CELL = {"live": False, "url": "", "folder": "f", "seed": 0}


def made() -> Form:
    return Form(list_fields(Settings), CELL, ROOT, list_groups(Settings))


def opened(form: Form) -> list[bool]:
    return [fold.is_open for fold in form.folds]


def test_groups_of_the_chosen_mode_are_open_and_follow_it() -> None:
    form = made()
    assert opened(form) == [False, True, False]
    form.inputs["live"].value = True
    assert opened(form) == [True, False, False]
    form.set_values(CELL)
    assert opened(form) == [False, True, False]


def test_a_group_that_was_opened_stays_open_while_other_values_change() -> None:
    form = made()
    form.folds[2].heading.click()
    form.folds[1].heading.click()
    form.inputs["seed"].value = "3"
    assert opened(form) == [False, False, True]


def test_a_heading_says_how_many_settings_are_changed_and_when_they_count() -> None:
    form = made()
    assert form.folds[0].heading.description == "▸ Live measurement (1)"
    assert "used with live" in form.folds[0].note.value
    assert "used without live" in form.folds[1].note.value
    form.inputs["seed"].value = "3"
    assert form.folds[2].heading.description == "▸ More settings (1, 1 changed)"


def test_a_problem_opens_its_group() -> None:
    form = made()
    form.show_problems({"seed": "must be a number"})
    assert opened(form) == [False, True, True]


def test_values_of_folded_fields_count_as_those_of_others() -> None:
    form = made()
    assert form.set_values({"url": "http://a", "seed": 7}) == []
    assert form.read_values() == CELL | {"url": "http://a", "seed": 7}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_groups_of_every_notebook_name_its_fields_once_and_leave_few(path: Path) -> None:
    model, _ = settings_of(path)
    groups: tuple[Any, ...] = list_groups(model)
    named = [name for group in groups for name in group.fields]
    assert len(named) == len(set(named))
    assert set(named) <= set(model.model_fields)
    assert len(model.model_fields) - len(named) <= MAX_BASIC
    modes = {name for group in groups for name in (group.when, group.unless) if name}
    assert modes <= set(model.model_fields) - set(named)
