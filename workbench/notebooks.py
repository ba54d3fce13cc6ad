"""Notebooks before they run: found by name, read, and matched with the parameters given to them."""

from __future__ import annotations

import difflib
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import parameters, runs
from workbench.errors import ConfigError, InputError

NUMBERED = re.compile(r"\d\d_.+\.ipynb")


@dataclass(frozen=True)
class Plan:
    """One notebook, read and with its parameters checked."""

    path: Path
    notebook: Any
    resolved: parameters.Resolved

    @property
    def area(self) -> str:
        """The stem without its number."""
        return area_of(self.path)

    @property
    def title(self) -> str:
        """The first heading; the area where there is none."""
        headings = (heading(cell) for cell in self.notebook.cells)
        return next(filter(None, headings), self.area.replace("_", " ").capitalize())

    @property
    def command(self) -> str:
        """The command that runs it again with the same values."""
        given = [f"-p {shlex.quote(f'{name}={_spelled(value)}')}" for name, value in self.resolved.given.items()]
        return " ".join(["workbench run", name_of(self.path), *given])


def _spelled(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list):
        items = (f'"{item}"' if isinstance(item, str) and "," in item else _spelled(item) for item in value)
        return f"[{','.join(items)}]"
    return str(value)


def heading(cell: Any) -> str | None:
    """The first heading of a cell; null when it has none."""
    match = re.search(r"^#+ +(.+?)\s*#*$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
    return match.group(1) if match else None


def name_of(path: Path) -> str:
    """What a notebook is called on a command line: its stem where `find` looks for it, else its path, quoted."""
    try:
        is_found = path.parent.resolve() == folder().resolve()
    except ConfigError:
        is_found = False
    return shlex.quote(path.stem if is_found else str(path))


def area_of(notebook: str | Path) -> str:
    """The area of a notebook: its stem without the number before it.

    Examples
    --------
    >>> area_of("notebooks/01_speedup.ipynb")
    'speedup'
    """
    return re.sub(r"^\d+_", "", Path(notebook).stem)


def known_areas(more: Iterable[str] = ()) -> list[str]:
    """The areas of the notebooks that there are, and some more."""
    try:
        present = [area_of(path) for path in folder().glob("*.ipynb")]
    except ConfigError:
        present = []
    return sorted({*present, *more})


def folder() -> Path:
    """Where notebooks are looked for: `notebooks` here, else in the checkout that this package lies in.

    Raises
    ------
    ConfigError
        Neither is there.
    """
    places = dict.fromkeys((Path.cwd() / "notebooks", runs.CHECKOUT / "notebooks"))
    for place in places:
        if any(place.glob("*.ipynb")):
            return place
    raise ConfigError("no notebooks found", where=places, do="change to the checkout, or give a notebook's path")


def find(names: Sequence[str]) -> list[Path]:
    """The notebooks that names stand for, each once, in the order given.

    Parameters
    ----------
    names
        Paths, stems ("01_speedup"), areas ("speedup"), or "all" for every numbered notebook.

    Raises
    ------
    ConfigError
        No notebook of that name; says which there are.
    """
    found: list[Path] = []
    for name in names:
        if name == "all":
            found += _numbered()
        elif name.endswith(".ipynb") or (Path(name).is_file() and "/" in name):
            found.append(Path(name))
        else:
            found.append(_named(name))
    return list(dict.fromkeys(path.absolute() for path in found))


def _numbered() -> list[Path]:
    found = sorted(path for path in folder().glob("*.ipynb") if NUMBERED.fullmatch(path.name))
    if not found:
        raise ConfigError("no numbered notebooks", where=folder(), allowed="names such as 01_speedup.ipynb")
    return found


def _named(name: str) -> Path:
    present = sorted(folder().glob("*.ipynb"))
    matches = [path for path in present if name in (path.stem, area_of(path))]
    if len(matches) == 1:
        return matches[0]
    known = [path.stem for path in present if not path.stem.startswith("_")]
    close = difflib.get_close_matches(name, [*known, *map(area_of, present)], n=1)
    do = f"did you mean {close[0]}?" if close else "give one of these, a path, or all"
    raise ConfigError("no such notebook", where=folder(), found=name, allowed=known, do=do)


def read(path: str | Path) -> Any:
    """Read a notebook of any format version.

    Raises
    ------
    InputError
        It is not there, is no notebook, or is written in another language than Python.
    """
    import nbformat

    path = Path(path)
    try:
        with warnings.catch_warnings():
            # Cells without ids get them here; that is no news to whoever runs the notebook.
            warnings.simplefilter("ignore")
            notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))
            nbformat.validate(notebook)
    except OSError as error:
        raise InputError("cannot read the notebook", where=path, found=error.strerror) from error
    except Exception as error:
        raise InputError("not a notebook", where=path, found=str(error).split("\n")[0][:200]) from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise InputError("notebook of another language", where=path, found=language, allowed="python")
    return notebook


def plan(
    notebooks: Sequence[str | Path],
    values: Mapping[str, Any] | None = None,
    *,
    texts: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> list[Plan]:
    """Read notebooks and check what is given to them, before anything runs.

    Parameters
    ----------
    notebooks
        Paths of notebooks.
    values, texts
        Typed values, and texts of a command line, by parameter. A name goes to each notebook that has it;
        "area.name", or a mapping under the area's name, to that one only.
    base
        Where relative paths among the values start; the working directory without it.

    Raises
    ------
    InputError
        A notebook cannot be read.
    ConfigError
        No notebook has a parameter, or a value does not fit.
    """
    read_notebooks = [(Path(path).absolute(), read(path)) for path in notebooks]
    areas = [area_of(path) for path, _ in read_notebooks]
    declared = [_declared(path, notebook, bool(values or texts)) for path, notebook in read_notebooks]
    typed, typed_own = _split(values or {}, areas)
    spelled, spelled_own = _split(texts or {}, areas)
    nowhere = {*typed, *spelled} - {item.name for items in declared for item in items}
    plans = []
    for (path, notebook), area, items in zip(read_notebooks, areas, declared, strict=True):
        # One that no notebook has is left in, to be refused with the list of those that there are.
        wanted = nowhere | {item.name for item in items}
        own_values = {name: typed[name] for name in typed if name in wanted} | typed_own.get(area, {})
        own_texts = {name: spelled[name] for name in spelled if name in wanted} | spelled_own.get(area, {})
        resolved = parameters.resolve(items, own_texts, own_values, where=name_of(path))
        start = base or Path.cwd()
        resolved = parameters.absolute_paths(resolved, items, base=start, notebook_folder=path.parent)
        plans.append(Plan(path, notebook, resolved))
    return plans


def _declared(path: Path, notebook: Any, needed: bool) -> tuple[parameters.Parameter, ...]:
    try:
        return parameters.read(notebook, path.name)
    except InputError:
        # A cell that cannot be read only matters to whoever wants to set something.
        if needed:
            raise
        return ()


def _split(given: Mapping[str, Any], areas: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Part what is given to all from what is given to one area."""
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        area, dot, rest = name.partition(".")
        area = area_of(f"{area}.ipynb")
        if dot and area not in areas:
            raise ConfigError("no such notebook in this run", where=f"parameter {name}", found=area, allowed=areas)
        if dot:
            own.setdefault(area, {})[rest] = value
        elif area in areas and isinstance(value, Mapping):
            own.setdefault(area, {}).update(value)
        else:
            shared[name] = value
    return shared, own
