"""What reports say to do next is a command that exists, and stands where a reader looks for it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from tests import test_documents
from workbench.core.errors import ConfigError
from workbench.report.display import headline

ROOT = Path(__file__).parents[1]
SOURCES = [*sorted((ROOT / "workbench").glob("*/summary.py")), ROOT / "notebooks" / "00_start_here.ipynb"]


def texts(path: Path) -> list[str]:
    """The texts of a module, or of a notebook; what is filled in is a 1."""
    if path.suffix == ".ipynb":
        return [path.read_text().replace('\\"', '"')]
    tree = ast.parse(path.read_text())
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in node.values}
    plain = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in parts]
    filled = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in one.values) for one in joined
    ]
    return [*filled, *(node.value for node in plain if isinstance(node.value, str))]


COMMANDS = sorted(
    {
        (path.relative_to(ROOT).as_posix(), command)
        for path in SOURCES
        for text in texts(path)
        for command in re.findall(r"`(workbench [^`]+)`", text)
    }
)


def test_every_area_with_a_notebook_says_what_to_do_next() -> None:
    areas = {path.parent.name for path in SOURCES if path.suffix == ".py"}
    assert areas == {"speedup", "lore", "sizing", "indicators", "scaletest", "capacity"}
    assert areas == {page.split("/")[1] for page, _ in COMMANDS if page.startswith("workbench/")}


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_command_that_a_report_names_is_one(page: str, command: str) -> None:
    words = shlex.split(command)
    bare = re.fullmatch(r"workbench( [a-z]+)+", command)
    name, context = test_documents.parse([*words, "--help"] if bare else words)
    if name == "workbench run" and context is not None:
        test_documents.check_run(context.params)


def test_steps_stand_below_the_numbers_and_what_is_typed_is_set_apart() -> None:
    shown = headline(answer="Twice.", key_numbers=[("n", 1)], next_steps=["Try `workbench <doctor>` & <b>rest</b>."])
    data = shown._repr_mimebundle_()
    assert data["text/plain"].splitlines()[-1] == "Next: Try `workbench <doctor>` & <b>rest</b>."
    assert "<li>Try <code>workbench &lt;doctor&gt;</code> &amp; &lt;b&gt;rest&lt;/b&gt;.</li>" in data["text/html"]
    assert data["text/html"].index("wb-keys") < data["text/html"].rindex("wb-next")


def test_more_than_three_steps_are_none() -> None:
    with pytest.raises(ConfigError, match="too many next steps"):
        headline(answer="Twice.", next_steps=["one", "two", "three", "four"])
