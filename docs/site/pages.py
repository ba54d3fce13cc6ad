"""The pages of the site: those of the checkout at their places, and those made of commands, docstrings and headings."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from docs.site import command_reference, python_reference

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "docs" / "site" / "mkdocs.yml"
GUIDE = ROOT / "docs" / "guide"
# Where the reports of runs come to lie, beside the page that shows them.
REPORTS = "made/reports"
SOURCES = (
    "README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/README.md",
    "data/samples/eventlogs/README.md", "docs/*.md", "docs/guide/*.md", "docs/tutorials/*.md", "docs/decisions/*.md",
)  # fmt: skip
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
IMAGE = re.compile(r'<img src="([^"]+)"')
METHOD = re.compile(
    r"^## ((?:Method|Formulas|How it computes|How it was checked|Validity|What the line).*)$", re.MULTILINE
)

GALLERY = """# Gallery

Reports of `make report`, as they are: each is one file that loads nothing.

{body}
"""
FRAME = (
    '<iframe class="gallery-frame" title="Gallery of reports" src="reports/index.html"></iframe>\n\n'
    "[Open it alone](reports/index.html)"
)
NO_RUNS = """No runs were given to the build. `make docs RUNS=DIR` shows those of a folder.

![Gallery: one card per notebook with chart, answer, verdict and date](../docs/images/gallery.png)"""


def list_sources() -> list[Path]:
    """Pages of the checkout that the site has, in the order of their paths."""
    return sorted({path for pattern in SOURCES for path in ROOT.glob(pattern)})


def lay_out(target: Path, *, has_runs: bool) -> None:
    """Write all pages below the folder, with the files that they link to."""
    for path in list_sources():
        text = path.read_text(encoding="utf-8")
        for linked in find_linked_files(path, text):
            place = target / linked.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, place)
        write(target / path.relative_to(ROOT), name_pages_of_folders(path, text))
    made = target / "made"
    for name, text in build_made_pages(has_runs=has_runs).items():
        write(made / name, text)
    for name in ("site.css", "worker.js"):
        shutil.copyfile(SETTINGS.with_name(name), made / name)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def find_linked_files(page: Path, text: str) -> Iterator[Path]:
    """Files of the checkout that a page links to and that are no pages: pictures, notebooks, licences."""
    prose = BLOCK.sub("", text)
    for link in [*(link for _, link, _ in LINK.findall(prose)), *IMAGE.findall(prose)]:
        path = (page.parent / link).resolve()
        if "://" not in link and path.is_file() and path.is_relative_to(ROOT) and path not in list_sources():
            yield path


def name_pages_of_folders(page: Path, text: str) -> str:
    """The text with each link to a folder, which a forge shows by its README.md, as a link to that page."""

    def name_page(found: re.Match[str]) -> str:
        folder = page.parent / found[2]
        is_folder = "://" not in found[2] and (folder / "README.md").is_file()
        return f"{found[1]}{found[2].rstrip('/')}/README.md{found[3]}" if is_folder else found[0]

    return LINK.sub(name_page, text)


def build_made_pages(*, has_runs: bool) -> dict[str, str]:
    """Text of each page that is made, by its path below `made`."""
    commands = {f"commands/{name}.md": text for name, text in command_reference.build_pages().items()}
    python = {"python/index.md": python_reference.build_page(sorted(GUIDE.glob("*.md")))}
    gallery = GALLERY.format(body=FRAME if has_runs else NO_RUNS)
    return {**commands, **python, "methods.md": build_methods(), "gallery.md": gallery}


def build_methods() -> str:
    """A list of the guides' sections that say how a figure is computed."""
    lines = ["# Methods", "", "How each figure is computed, with its formulas, and what it does not show.", ""]
    for path in sorted(GUIDE.glob("*.md")):
        text = BLOCK.sub("", path.read_text(encoding="utf-8"))
        headings = METHOD.findall(text)
        if headings:
            title = text.partition("\n")[0].removeprefix("# ")
            links = [f"[{heading}](../docs/guide/{path.name}#{build_anchor(heading)})" for heading in headings]
            lines += [f"- **[{title}](../docs/guide/{path.name})**: {', '.join(links)}"]
    decisions = "Why it is done so: [decisions](../docs/decisions/README.md)."
    return "\n".join([*lines, "", decisions, ""])


def build_anchor(heading: str) -> str:
    """The anchor of a heading, as forges and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def format_settings(laid: Path, out: Path) -> str:
    """Settings of mkdocs for pages that are laid out in a folder: patterns of the menu become pages."""
    text = SETTINGS.read_text(encoding="utf-8")
    head, tail = text.split("\nnav:\n", 1)
    menu, rest = re.split(r"^(?=\w)", tail, maxsplit=1, flags=re.MULTILINE)
    named = set(re.findall(r"[\w./-]+\.md", menu))
    lines = [line for one in menu.splitlines() for line in expand_pattern(one, laid, named)]
    paths = {"docs_dir": str(laid), "site_dir": str(out), "search": [str(ROOT)]}
    own = f"docs_dir: {json.dumps(paths['docs_dir'])}\nsite_dir: {json.dumps(paths['site_dir'])}"
    rest = rest.replace("      python:\n", f"      python:\n        paths: {json.dumps(paths['search'])}\n")
    return "\n".join([head, own, "nav:", *lines, rest])


def expand_pattern(line: str, laid: Path, named: set[str]) -> Iterator[str]:
    """A line of the menu; for a pattern one line each page that matches and that no line above or by name has."""
    pattern = line.strip().removeprefix("- ")
    if "*" not in pattern:
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    for path in sorted(laid.glob(pattern)):
        name = path.relative_to(laid).as_posix()
        if name not in named:
            named.add(name)
            yield f"{indent}- {name}"
