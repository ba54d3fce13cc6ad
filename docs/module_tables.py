"""Write the flows of the areas and the module tables of docs/architecture.md from the docstrings of the package.

python -m docs.module_tables    one table a package; the first sentence of each module's docstring is its line, and the
                                paragraph "Flow: …" of an area's docstring is its data flow
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
PAGE = ROOT / "docs" / "architecture.md"
DOCSTRING = re.compile(r'\s*(r?""".*?""")', re.DOTALL)
BLOCKS = {
    name: re.compile(rf"(<!-- {name}: python -m docs\.module_tables -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
    for name in ("flows", "modules")
}


def read_docstring(path: Path) -> str:
    """Docstring of a module, which stands first in it; parsing all modules whole takes ten seconds."""
    found = DOCSTRING.match(path.read_text(encoding="utf-8"))
    return inspect.cleandoc(ast.literal_eval(found[1])) if found else ""


def read_summary(path: Path) -> str:
    """The first sentence of a module's docstring, on one line and safe in a cell."""
    paragraph = read_docstring(path).split("\n\n")[0]
    first, *rest = paragraph.split("\n") or [""]
    # A sentence that does not end on its line goes on to its full stop.
    if rest and not first.endswith((".", "?", "!")):
        first = re.split(r"(?<=[.?!])\s", " ".join([first, *rest]))[0]
    return first.replace("|", "\\|").strip()


def list_packages() -> list[Path]:
    """Folders of the packages, in the order of their paths; the package itself first."""
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def format_package(folder: Path) -> str:
    """Heading, line and table of one package; without a table where it has no module beside `__init__`."""
    modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    name = folder.relative_to(ROOT).as_posix()
    lines = [f"### {name}", "", read_summary(folder / "__init__.py"), ""]
    if modules:
        rows = [f"| `{path.stem}` | {read_summary(path)} |" for path in modules]
        lines += ["| module | what it is for |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def format_tables() -> str:
    """All tables, as they stand between the markers."""
    return "\n" + "\n".join(format_package(folder) for folder in list_packages()) + "\n"


def format_flows() -> str:
    """The data flow of each area, which is a package with a command."""
    rows = []
    for path in sorted(PACKAGE.glob("*/command.py")):
        paragraphs = read_docstring(path.parent / "__init__.py").split("\n\n")
        flows = [part.removeprefix("Flow: ") for part in paragraphs if part.startswith("Flow: ")]
        rows.append(f"| `workbench/{path.parent.name}/` | {' '.join(flows[0].split()) if flows else ''} |")
    return "\n".join(["| area | flow |", "|---|---|", *rows, ""])


def update_page(text: str) -> str:
    """The page with the tables of today."""
    for name, content in (("flows", format_flows()), ("modules", format_tables())):
        if not BLOCKS[name].search(text):
            raise SystemExit(f"{PAGE.name} has no markers for its {name}")
        text = BLOCKS[name].sub(lambda found, content=content: found[1] + content + found[3], text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
