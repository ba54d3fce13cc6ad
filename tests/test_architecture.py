"""Rules of the house: who imports whom, where modules stand, what a notebook holds; sets are read from the folders."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.core import redaction
from workbench.execution import parameters

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


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def area_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 and parts[0] in AREAS else None


def list_imports(path: Path) -> tuple[set[str], set[str]]:
    """The modules of the workbench that a file imports, lazily or not; and those it imports not for types alone."""
    package = list(path.relative_to(ROOT).with_suffix("").parts[:-1])
    found: tuple[set[str], set[str]] = (set(), set())
    left: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
    while left:
        node, for_types = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = set(list_names(node, package))
            found[0].update(names)
            found[1].update(() if for_types else names)
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            for_types |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            left += [(child, for_types) for child in ast.iter_child_nodes(node)]
    return found[0] & NAMES, found[1] & NAMES


def list_names(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = package[: len(package) - node.level + 1] if node.level else []
    module = ".".join([*base, *([node.module] if node.module else [])])
    for alias in node.names:
        name = f"{module}.{alias.name}"
        yield name if name in NAMES else module


NAMES = {module_name(path) for path in MODULES}
IMPORTED = {path: list_imports(path) for path in MODULES}
IMPORTS = {path: found for path, (found, _) in IMPORTED.items()}
# Without what is imported for types alone.
GRAPH = {module_name(path): found - {module_name(path)} for path, (_, found) in IMPORTED.items()}
OF_AREAS = [path for path in MODULES if area_of(path)]
OF_NO_AREA = [path for path in MODULES if not area_of(path)]


def areas_in(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if "." in name} & AREAS


def test_the_areas_are_seen() -> None:
    assert "eventlog" in AREAS


def test_the_shared_floor_imports_no_area() -> None:
    assert {name_of(path): found for path in OF_NO_AREA if (found := areas_in(IMPORTS[path]))} == {}


def test_an_area_imports_no_other_area() -> None:
    others = {path: areas_in(IMPORTS[path]) - {area_of(path)} - SHARED_AREAS for path in OF_AREAS}
    assert {name_of(path): found for path, found in others.items() if found} == {}


def test_no_area_imports_the_command_line_or_the_runner() -> None:
    wrong = {name for name in NAMES if name.startswith("workbench.cli") or name == "workbench.execution.runner"}
    assert {name_of(path): found for path in OF_AREAS if (found := IMPORTS[path] & wrong)} == {}


def test_only_the_command_line_names_an_areas_module() -> None:
    named = tuple(f"workbench.{area}" for area in AREAS)
    for path in OF_NO_AREA:
        if path.parent.name != "cli":
            texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
            found = [text for text in texts if isinstance(text, str) and text.split(":")[0].startswith(named)]
            assert not found, name_of(path)


def test_the_command_line_knows_every_area() -> None:
    from workbench.cli.app import AREAS as KNOWN

    assert {name for name, area in KNOWN.items() if area.is_installed} == AREAS


def test_a_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_core_imports_nothing_but_itself() -> None:
    core = {name: found for name, found in GRAPH.items() if name.startswith("workbench.core")}
    assert {
        name: others for name, found in core.items() if (others := {item for item in found if item not in core})
    } == {}


def test_no_imports_go_in_a_circle_by_types_neither() -> None:
    left = {module_name(path): found - {module_name(path)} for path, found in IMPORTS.items()}
    # What imports nothing that is left is in no circle, and neither is what only it imports.
    while free := {name for name, found in left.items() if not found & left.keys()}:
        left = {name: found for name, found in left.items() if name not in free}
    while loose := left.keys() - {item for found in left.values() for item in found}:
        left = {name: found for name, found in left.items() if name not in loose}
    assert sorted(left) == []


@pytest.mark.parametrize("area", sorted(AREAS))
def test_an_area_opens_with_a_map_of_its_flow_and_says_what_is_public(area: str) -> None:
    package = importlib.import_module(f"workbench.{area}")
    _, found, steps = inspect.cleandoc(str(package.__doc__)).partition("Map, from what goes in to what comes out:\n\n")
    assert found
    assert package.__all__
    lines = [line.strip() for line in steps.split("\n\n")[0].splitlines()]
    assert 3 <= len(lines) <= 10
    for line in lines:
        place, _, types = line.partition("(")
        module, _, name = place.rpartition(".")
        function = getattr(importlib.import_module(f"workbench.{module}"), name)
        annotations = " ".join(map(str, inspect.get_annotations(function).values()))
        # Types are passed as the map says, so that it cannot grow old.
        for word in re.findall(r"\b[A-Z][a-z]+\w*", types):
            assert word in annotations, f"{place}: {word} is not among {annotations}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_uses_what_an_area_says_is_public(path: Path) -> None:
    text = "".join(source(cell) for cell in cells(path))
    for area, module, names in re.findall(r"from workbench\.(\w+)(?:\.(\w+))?[\w.]* import ([\w, ]+)", text):
        if area in AREAS:
            public = set(importlib.import_module(f"workbench.{area}").__all__)
            used = {module} if module else {name.split(" as ")[0].strip() for name in names.split(",")}
            assert used <= public


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_one_parameters_cell_of_annotated_literals_with_comments(path: Path) -> None:
    tagged = [cell for cell in cells(path) if parameters.PARAMETERS_TAG in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    declared = parameters.parse_parameters(source(tagged[0]))
    assert [item.name for item in declared if not item.comment] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_has_no_parameter_named_like_a_secret(path: Path) -> None:
    assert [
        item.name
        for item in parameters.read_parameters(json.loads(path.read_text()))
        if redaction.is_secret_name(item.name)
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


@pytest.mark.parametrize("path", sorted((ROOT / "bench").glob("*.py")), ids=name_of)
def test_what_a_benchmark_imports_is_there(path: Path) -> None:
    """Nothing runs them in the gate, and a name that has moved is found an hour into a measurement."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ("workbench", "tests", "bench"):
            module = importlib.import_module(str(node.module))
            folder = Path(str(module.__file__)).parent
            for alias in node.names:
                is_there = hasattr(module, alias.name) or (folder / f"{alias.name}.py").is_file()
                assert is_there or (folder / alias.name).is_dir(), f"{node.module} has no {alias.name}"
