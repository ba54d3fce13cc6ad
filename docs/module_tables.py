"""Write the module tables of docs/architecture.md from the docstrings of the package.

python -m docs.module_tables    one table a package; the first sentence of each module's docstring is its line
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "workbench"
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- modules: python -m docs\.module_tables -->\n)(.*?)(<!-- end of modules -->)", re.DOTALL)


def read_summary(path: Path) -> str:
    """The first sentence of a module's docstring, on one line and safe in a cell."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
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


def update_page(text: str) -> str:
    """The page with the tables of today."""
    if not BLOCK.search(text):
        raise SystemExit(f"{PAGE.name} has no markers for the module tables")
    return BLOCK.sub(lambda found: found[1] + format_tables() + found[3], text)


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
