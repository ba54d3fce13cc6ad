"""Documents say what is: commands, files, links, modules, dependencies and pictures that they name are there."""

from __future__ import annotations

import ast
import builtins
import importlib
import keyword
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from docs import module_tables
from workbench.cli import app
from workbench.console.options import LazyGroup
from workbench.core.errors import ConfigError
from workbench.execution import discovery, parameters

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += [
    ROOT / "data" / "samples" / "eventlogs" / "README.md",
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
INSTRUCTIONS = [
    path
    for path in PAGES
    if path.name in ("README.md", "AGENTS.md", "CONTRIBUTING.md") or path.parent.name in ("guide", "tutorials")
]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TOP = {path.name for path in ROOT.iterdir()}
# Written while things are used, and so not there in a fresh checkout.
MADE = ("data/runs", "ci-output", ".venv", "uv.lock")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(path.read_text()) if found == language]


def spans(text: str) -> list[str]:
    return SPAN.findall(BLOCK.sub("", text))


def commands(path: Path) -> Iterator[list[str]]:
    """Every command of a page's shell blocks, and every code span that begins with one that we know."""
    lines = [line for text in blocks(path, "sh") for line in text.splitlines()]
    joined = re.sub(r"`([^`]+)`", lambda found: "`" + " ".join(found[1].split()) + "`", BLOCK.sub("", path.read_text()))
    mentioned = [span for span in SPAN.findall(joined) if re.match(r"(workbench|make|pip|python|conda) \S", span)]
    # In a sentence the bare name of a command is no whole command line: what it is called is checked.
    lines += [f"{span} --help" if re.fullmatch(r"workbench( [a-z]+)+", span) else span for span in mentioned]
    for line in lines:
        # "workbench AREA …" is the form of many commands and none of them.
        if (words := shlex.split(line, comments=True)) and "AREA" not in words[:2]:
            while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words = words[1:]
            yield words


ALL_COMMANDS = [(name_of(path), words) for path in INSTRUCTIONS for words in commands(path)]


def parse(words: list[str]) -> tuple[str, Any]:
    """The command that a `workbench` command line means, and its context with parsed options; runs nothing."""
    command: Any = typer.main.get_command(app.app)
    name, rest = "workbench", words[1:]
    while hasattr(command, "get_command"):
        if isinstance(command, LazyGroup):
            command = typer.main.get_group(importlib.import_module(command.area.module).app)
        assert rest, f"{name} lacks a command"
        assert rest[0] in command.list_commands(None) or rest[0].startswith("-"), f"{name} has no {rest[0]}"
        if rest[0].startswith("-"):
            known = {option for param in command.params for option in param.opts} | {"--help", "-h"}
            assert rest[0] in known
            return name, None
        name, command, rest = f"{name} {rest[0]}", command.get_command(None, rest[0]), rest[1:]
    if {"--help", "-h"} & set(rest):
        return name, None
    return name, command.make_context(name, list(rest))


@pytest.mark.parametrize(
    ("page", "words"),
    [(page, words) for page, words in ALL_COMMANDS if words[0] == "workbench"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[1:]),
)
def test_a_workbench_command_in_a_document_is_one(page: str, words: list[str]) -> None:
    words = [word for word in words if word != "…"]
    name, context = parse(words)
    if name == "workbench run" and context is not None and "NOTEBOOK" not in words:
        check_run(context.params)


def check_run(given: dict[str, Any]) -> None:
    """The notebooks exist and have the parameters that are given, unless the page only shows the form."""
    declared = {item.name for path in discovery.resolve_notebooks(given["notebooks"]) for item in parameters_of(path)}
    named = {text.partition("=")[0].rpartition(".")[2] for text in given["p"] or []}
    assert named <= declared


def parameters_of(path: Path) -> tuple[parameters.Parameter, ...]:
    return parameters.read_parameters(discovery.read_notebook(path), path.name)


def test_a_command_that_is_none_is_noticed() -> None:
    with pytest.raises(AssertionError):
        parse(["workbench", "fly"])
    with pytest.raises(AssertionError):
        parse(["workbench", "eventlog", "fly"])
    with pytest.raises(Exception, match="No such option"):
        parse(["workbench", "eventlog", "facts", "LOG", "--out", "DIR", "--fly"])
    with pytest.raises(ConfigError):
        check_run({"notebooks": ["fly"], "p": []})
    with pytest.raises(AssertionError):
        check_run({"notebooks": ["speedup"], "p": ["fly=1"]})


@pytest.mark.parametrize(
    ("page", "words"),
    [(page, words) for page, words in ALL_COMMANDS if words[0] != "workbench"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_any_other_command_names_targets_files_and_tools_that_there_are(page: str, words: list[str]) -> None:
    tool, rest = words[0], words[1:]
    assert tool in {"make", "pip", "conda", "pre-commit", "pytest", "python", "apt-get"}
    if tool == "make":
        # "-C", "OUT=DIR" and the like are make's own.
        assert {word for word in rest if re.fullmatch(r"[a-z-]+", word)} <= TARGETS
    if tool in ("pytest", "python"):
        assert [word for word in rest if word.endswith(".py") and not (ROOT / word).is_file()] == []
    assert [word for word in rest if re.search(r"\.(lock|yml|toml)$", word) and not (ROOT / word).is_file()] == []


MOST_WORDS = 3_000


def test_no_page_for_readers_is_too_long() -> None:
    """As `wc -w` counts."""
    pages = [path for path in PAGES if path.parent.name in ("guide", "tutorials")] + [ROOT / "README.md"]
    assert {name_of(path) for path in pages if len(path.read_text().split()) > MOST_WORDS} == set()


def python_blocks() -> list[tuple[str, str]]:
    # Those of the LORE guide need a Spark, those on units a session: tests/lore/test_guide.py and
    # tests/indicators/test_recommend_command.py run them.
    pages = [path for path in PAGES if path.name not in ("lore-how-to.md", "indicators-units.md")]
    return [(name_of(path), text) for path in pages for text in blocks(path, "python")]


@pytest.mark.parametrize(("page", "code"), python_blocks())
def test_python_in_a_document_runs(page: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(compile(code, page, "exec"), names)
    # A block that ends in no table says itself what must hold.
    assert names["times"].height > 0 if "times" in names else "\nassert " in code


def test_the_page_on_own_notebooks_shows_the_cells_limits_and_commands_that_there_are() -> None:
    page = ROOT / "docs" / "guide" / "own-notebook.md"
    notebook = discovery.read_notebook(page.with_name("nightly_sort.ipynb"))
    assert blocks(page, "py") == [f"{cell.source.rstrip()}\n" for cell in notebook.cells if cell.cell_type == "code"]
    rules, job = blocks(page, "yaml")
    assert page.with_name("nightly_sort.yaml").read_text().partition("\n")[2] == rules
    (line,) = re.findall(r"run: (workbench .*)", job)
    parse(shlex.split(line))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(BLOCK.sub("", path.read_text()))]
    assert [link for link in links if "://" not in link and link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_files_that_are_named_are_there(path: Path) -> None:
    named = [span for span in spans(path.read_text()) if re.fullmatch(r"[\w.-]+(/[\w.*-]+)*/?", span)]
    # A path is meant when it begins with something that lies at the root; patterns must match something.
    paths = [span.rstrip("/") for span in named if span.partition("/")[0] in TOP and not span.startswith(MADE)]
    assert [span for span in paths if not any(ROOT.glob(span))] == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_documents_name_no_machine_and_nothing_unfinished(path: Path) -> None:
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|mnt)/|localhost:\d|\bTODO\b|\bTBD\b", path.read_text()) == []


def test_every_page_of_the_documents_is_reached_from_the_readme() -> None:
    reached, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        reached.add(page)
        named = [link for link in LINK.findall(page.read_text()) if "://" not in link and not link.startswith("#")]
        links = (page.parent / link.partition("#")[0] for link in named)
        targets = (path / "README.md" if path.is_dir() else path for path in (link.resolve() for link in links))
        left += [path for path in targets if path.suffix == ".md" and path not in reached]
    assert [name_of(path) for path in PAGES if path not in reached] == []


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, up to the next heading of any level."""
    text = (ROOT / page).read_text()
    part = re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_notebook_is_in_the_readmes_table() -> None:
    told = {link for row in rows("README.md", "Five questions") for link in LINK.findall(row[0])}
    assert told == {name_of(path) for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def test_figures_of_the_readme_are_measured_ones() -> None:
    """Each figure of the README's claims is on the pages that scripts made, or in the words of their method."""
    claims = (ROOT / "README.md").read_text().split("## Why trust it\n", 1)[1].split("\n## ", 1)[0]
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("benchmarks.md", "accuracy.md"))
    others = r"\bp\d+\b|2026-\d\d-\d\d and \d\d|Python 3.11|tools [\d.]+"
    told = re.findall(r"\d+(?:\.\d+)?", re.sub(others, "", claims))
    assert len(told) > 15
    assert [figure for figure in told if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", pages)] == []


def find_definition(module: str, name: str) -> bool:
    """Is there a module-level name, or an attribute or method below a class, without importing the module?"""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return False
    body = ast.parse(path.read_text()).body
    for part in name.split("."):
        found = [node for node in body if part in names_defined_by(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def names_defined_by(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.AnnAssign):
        return {ast.unparse(node.target)}
    return {ast.unparse(target) for target in node.targets} if isinstance(node, ast.Assign) else set()


REFERENCE = re.compile(r"((?:workbench|tests)(?:\.\w+)*):(\w+(?:\.\w+)*)")


@pytest.mark.parametrize("page", ["docs/change-guide.md", "docs/architecture.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_functions_that_a_page_names_exist(page: str) -> None:
    named = [found for span in spans((ROOT / page).read_text()) if (found := REFERENCE.fullmatch(span))]
    assert [found[0] for found in named if not find_definition(found[1], found[2])] == []


def list_docstrings(tree: ast.Module) -> list[ast.Constant]:
    """Docstrings of a module, its classes and functions."""
    places = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    firsts = [place.body[0].value for place in places if place.body and isinstance(place.body[0], ast.Expr)]
    return [first for first in firsts if isinstance(first, ast.Constant) and isinstance(first.value, str)]


def list_words(tree: ast.Module) -> Iterator[str]:
    """Names that code defines or uses, and words of its texts; without docstrings."""
    docstrings = {id(docstring) for docstring in list_docstrings(tree)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        for field in ("id", "attr", "arg", "name", "asname", "value", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield from re.findall(r"[A-Za-z_]\w*", text)


# Names of other projects, and examples of names that a user gives.
FOREIGN = {"ruptures", "fft_size", "cluster_job_log", "request_latency", "psql", "job_UUID", "_rep1", "TRUE"}


def test_names_in_docstrings_exist() -> None:
    trees = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "workbench").rglob("*.py"))}
    words = (
        {word for tree in trees.values() for word in list_words(tree)}
        | set(dir(builtins))
        | set(keyword.kwlist)
        | FOREIGN
    )
    words |= {part for path in trees for part in path.relative_to(ROOT).with_suffix("").parts}
    named = [
        (name_of(path), name)
        for path, tree in trees.items()
        for docstring in list_docstrings(tree)
        for name in re.findall(r"`([A-Za-z_][\w.]*?)(?:\(\))?`", str(docstring.value))
        if not re.search(r"\.(json|py|csv|sql)$", name)
    ]
    assert len(named) > 500
    assert [(path, name) for path, name in named if set(name.split(".")) - words] == []


def test_layers_flows_and_module_tables_are_those_of_the_code() -> None:
    text = module_tables.PAGE.read_text()
    assert module_tables.update_page(text) == text, "run: python -m docs.module_tables"
