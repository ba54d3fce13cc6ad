"""The rules of the house: who may import whom, and what a notebook may hold. The sets are read from the folders."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from workbench import parameters, redaction

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
MODULES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# An area is a folder with a command of its own; eventlog is one that others may use.
SHARED_AREAS = {"eventlog"}
AREAS = {path.parent.name for path in PACKAGE.glob("*/command.py")}
CODE_LINES = 100
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:home|root|Users|tmp|work|mnt|var|opt|private)/|[A-Z]:\\\\")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def area_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 and parts[0] in AREAS else None


def imported(path: Path) -> set[str]:
    """The workbench's modules that a file imports, lazily or not; names that may be modules count too."""
    found: set[str] = set()
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "workbench"}


def areas_in(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if "." in name} & AREAS


def test_the_areas_are_seen() -> None:
    assert "eventlog" in AREAS


@pytest.mark.parametrize("path", [path for path in MODULES if area_of(path) is None], ids=name_of)
def test_the_shared_floor_imports_no_area(path: Path) -> None:
    assert areas_in(imported(path)) == set()


@pytest.mark.parametrize("path", [path for path in MODULES if area_of(path)], ids=name_of)
def test_an_area_imports_no_other_area(path: Path) -> None:
    assert areas_in(imported(path)) - {area_of(path)} - SHARED_AREAS == set()


@pytest.mark.parametrize("path", [path for path in MODULES if area_of(path)], ids=name_of)
def test_no_area_imports_the_command_line_or_the_runner(path: Path) -> None:
    assert imported(path) & {"workbench.cli", "workbench.batch", "workbench.runner"} == set()


@pytest.mark.parametrize(
    "path", [path for path in MODULES if area_of(path) is None and path.name != "cli.py"], ids=name_of
)
def test_only_the_command_line_names_an_areas_module(path: Path) -> None:
    texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    named = {f"workbench.{area}" for area in AREAS}
    assert not [text for text in texts if isinstance(text, str) and text.split(":")[0].startswith(tuple(named))]


def test_the_command_line_knows_every_area() -> None:
    from workbench.cli import AREAS as KNOWN

    assert {name for name, area in KNOWN.items() if area.present} == AREAS


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_one_parameters_cell_of_annotated_literals_with_comments(path: Path) -> None:
    tagged = [cell for cell in cells(path) if parameters.TAG in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    declared = parameters.parse(source(tagged[0]))
    assert [item.name for item in declared if not item.comment] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_no_parameter_named_like_a_secret(path: Path) -> None:
    assert [
        item.name for item in parameters.read(json.loads(path.read_text())) if redaction.names_a_secret(item.name)
    ] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    assert [cell for cell in cells(path) if cell["outputs"] or cell["execution_count"] is not None] == []
    assert "papermill" not in json.loads(path.read_text())["metadata"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_is_thin_and_defines_no_function(path: Path) -> None:
    lines = [
        line for cell in cells(path) for line in source(cell).splitlines() if line.strip() and line.lstrip()[0] != "#"
    ]
    assert len(lines) <= CODE_LINES
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    trees = [ast.parse(source(cell)) for cell in cells(path)]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, defined)]
    assert [node.name for node in found if not is_an_indicator(node)] == []


def is_an_indicator(node: ast.AST) -> bool:
    """A declaration of what a script measures: an input of the notebook, as its parameters are."""
    return isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["Indicator"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_asks_its_question_first(path: Path) -> None:
    first = json.loads(path.read_text())["cells"][0]
    assert first["cell_type"] == "markdown"
    assert re.match(r"# .+\?", source(first))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_names_no_path_of_a_machine(path: Path) -> None:
    assert (
        MACHINE_PATHS.findall("".join(source(cell) for kind in ("code", "markdown") for cell in cells(path, kind)))
        == []
    )
