"""What is run strictly is what people open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STRICT = sorted(path.name for path in HERE.glob("*.ipynb"))


def read_sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


@pytest.mark.parametrize("name", STRICT)
def test_the_cells_are_those_of_the_notebook(name: str) -> None:
    told = "make them anew: python -m tests.notebooks"
    assert read_sources(HERE / name) == read_sources(HERE.parents[1] / "notebooks" / name), told
