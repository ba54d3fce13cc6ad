"""How commands end: exit codes, one JSON document, closing lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from pydantic import BaseModel

from workbench.console.finish import ExitCode, choose_exit_code, finish_command, print_json, to_json_value
from workbench.core import errors


class Model(BaseModel):
    path: Path


@dataclass
class Row:
    name: str
    ratio: float


def end(**options: Any) -> int:
    with pytest.raises(typer.Exit) as ended:
        finish_command("text\x1b", {"a": 1}, **options)
    return ended.value.exit_code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, ExitCode.GOOD),
        ({"is_valid": False}, ExitCode.INVALID),
        ({"is_cancelled": True}, ExitCode.CANCELLED),
        ({"is_valid": False, "is_cancelled": True}, ExitCode.CANCELLED),
    ],
)
def test_a_commands_end_says_how_its_result_is(options: dict[str, bool], code: ExitCode) -> None:
    assert end(as_json=True, **options) == code


def test_errors_carry_the_codes_of_the_same_enumeration() -> None:
    assert {errors.InvalidResultError.exit_code, errors.ConfigError.exit_code, errors.RunFailedError.exit_code} == {
        ExitCode.INVALID,
        ExitCode.WRONG_USE,
        ExitCode.FAILED,
    }


def test_json_is_one_document_on_stdout_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    end(as_json=True, written=["out"], next_commands=["workbench doctor"])
    told = capsys.readouterr()
    assert json.loads(told.out) == {"a": 1}
    assert told.err == ""


def test_people_read_the_text_then_what_was_written_then_what_is_next(capsys: pytest.CaptureFixture[str]) -> None:
    end(as_json=False, written=[Path("out")], next_commands=[("workbench", "doctor", "a b")])
    assert capsys.readouterr().out == "text�\nwritten: out\nnext: workbench doctor 'a b'\n"


def test_only_what_is_printed_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> object:
        raise AssertionError("made, and not printed")

    with pytest.raises(typer.Exit):
        finish_command(fail, lambda: {"a": 1}, as_json=True)
    with pytest.raises(typer.Exit):
        finish_command(lambda: print("printed itself"), fail, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == "printed itself"


def test_values_that_json_lacks_get_a_form() -> None:
    given = {
        "time": datetime(2026, 1, 2, tzinfo=UTC),
        "row": Row("a", float("inf")),
        "model": Model(path=Path("x")),
        "code": ExitCode.GOOD,
        "set": {2, 1},
        "numpy": [np.float64("nan"), np.int64(3), np.array([1.5])],
    }
    assert to_json_value(given) == {
        "time": "2026-01-02T00:00:00+00:00",
        "row": {"name": "a", "ratio": None},
        "model": {"path": "x"},
        "code": 0,
        "set": [1, 2],
        "numpy": [None, 3, [1.5]],
    }


def test_what_has_no_form_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="object"):
        to_json_value(object())


def test_a_json_text_is_printed_as_it_is_and_foreign_text_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_json('{"a": 1}\n')
    print_json({"name": "\x1b[31m"})
    assert capsys.readouterr().out == '{"a": 1}\n{\n "name": "\\u001b[31m"\n}\n'


def test_the_choice_is_the_enumeration() -> None:
    assert choose_exit_code(is_valid=True) is ExitCode.GOOD
