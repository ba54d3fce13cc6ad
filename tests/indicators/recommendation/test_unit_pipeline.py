"""A user's own units: found by module or file, and told by name when they cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.recommendation import unit_pipeline
from workbench.indicators.recommendation.scoring_steps import Versions
from workbench.indicators.recommendation.unit_pipeline import Step

GOOD = """
from dataclasses import dataclass
from workbench.indicators.recommendation.unit_pipeline import Step

@dataclass
class Mine(Step):
    factor: float = 0.5
    def run(self, stack):
        return self.factor, []

class Needs(Step):
    def __init__(self, what):
        self.what = what

class Plain:
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return path


def test_a_class_of_a_file_or_of_a_module(file: Path) -> None:
    unit = unit_pipeline.load_unit(f"{file}:Mine")
    assert isinstance(unit, Step)
    assert unit.label == "Mine"
    assert isinstance(unit_pipeline.load_unit("workbench.indicators.recommendation.scoring_steps:Versions"), Versions)


def test_a_module_of_the_folder_that_the_command_is_called_in(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    before = list(sys.path)
    assert unit_pipeline.load_unit("mine:Mine").label == "Mine"
    assert sys.path == before
    del sys.modules["mine"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":Nope", r"no such class[\s\S]*units there: Mine, Needs"),
        (":Plain", "not a unit"),
        (":Step", "not a unit"),
        (":Needs", "the unit cannot be created"),
        ("", "not a unit"),
        (":a b", "not a unit"),
    ],
)
def test_what_is_no_unit_is_refused(file: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        unit_pipeline.load_unit(f"{file}{name}")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("def (", "SyntaxError"),
        ("import no", "no"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(tmp_path: Path, source: str, said: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(source)
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        unit_pipeline.load_unit(f"{path}:Mine")
    assert said in str(caught.value)


def test_a_file_or_module_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        unit_pipeline.load_unit(f"{tmp_path}/nothing.py:Mine")
    with pytest.raises(ConfigError, match="cannot be imported"):
        unit_pipeline.load_unit("no_such_module_anywhere:Mine")
