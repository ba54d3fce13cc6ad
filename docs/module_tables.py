"""Write the flows of the areas and the module tables of docs/architecture.md from the docstrings of the package.

python -m docs.module_tables    one table a package; the first sentence of each module's docstring is its line, the
                                paragraph "Flow: …" of an area's docstring is its data flow, and the drawing of the
                                layers is made from the imports of the code
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
IMPORT = re.compile(r"^ *(?:from workbench\.|from workbench import |import workbench\.)(\w+)", re.MULTILINE)
TEXT = re.compile(r'""".*?"""|\'\'\'.*?\'\'\'', re.DOTALL)
BLOCKS = {
    name: re.compile(rf"(<!-- {name}: python -m docs\.module_tables -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
    for name in ("layers", "flows", "modules")
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


def list_package_imports() -> dict[str, set[str]]:
    """Packages below workbench/, and those that each imports, lazily and for types included."""
    imports = {}
    for folder in sorted(path.parent for path in PACKAGE.glob("*/__init__.py")):
        code = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
        # Without docstrings and texts of programs, whose examples import other packages.
        imports[folder.name] = set(IMPORT.findall(TEXT.sub("", code))) - {folder.name}
    return {name: found & imports.keys() for name, found in imports.items()}


def draw_layers() -> str:
    """Layers of packages, the lowest last; packages that need one another share a line, arrows skip what follows."""
    imports = list_package_imports()
    reached = {name: set(found) for name, found in imports.items()}
    for _ in imports:
        reached = {name: found.union(*(reached[other] for other in found)) for name, found in reached.items()}
    groups = {frozenset({name, *(other for other in reached[name] if name in reached[other])}) for name in imports}
    below = {group: set().union(*(reached[name] for name in group)) - group for group in groups}
    lines = ["```"]
    for group in sorted(groups, key=lambda group: (-len(below[group]), sorted(group))):
        next_ = below[group] - {further for other in groups if other & below[group] for further in below[other]}
        lines.append(" ".join(sorted(group)) + (f" -> {' '.join(sorted(next_))}" if next_ else ""))
    return "\n".join([*lines, "```", ""])


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
    for name, content in (("layers", draw_layers()), ("flows", format_flows()), ("modules", format_tables())):
        if not BLOCKS[name].search(text):
            raise SystemExit(f"{PAGE.name} has no markers for its {name}")
        text = BLOCKS[name].sub(lambda found, content=content: found[1] + content + found[3], text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
