"""Find notebooks by name, read them, and plan their runs with checked parameters."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.core.files import SHIPPED, find_project_folder
from workbench.core.samples import spell_sample
from workbench.execution import parameters

if TYPE_CHECKING:
    import polars as pl

NUMBERED_NOTEBOOK = re.compile(r"\d\d_.+\.ipynb")


@dataclass(frozen=True)
class RunPlan:
    """One notebook with its checked parameters."""

    path: Path
    notebook: Any
    resolved: parameters.ResolvedValues

    @property
    def area(self) -> str:
        """Stem of the notebook without its number."""
        return area_from_path(self.path)

    @property
    def title(self) -> str:
        """The first heading; the area where there is none."""
        headings = (find_heading(cell) for cell in self.notebook.cells)
        return next(filter(None, headings), self.area.replace("_", " ").capitalize())

    @property
    def expected_s(self) -> float:
        """How long a run takes by the notebook's metadata (`workbench.takes_s`); 0 where it does not say."""
        metadata = self.notebook.metadata.get("workbench")
        takes_s = metadata.get("takes_s") if isinstance(metadata, dict) else None
        return float(takes_s) if isinstance(takes_s, int | float) else 0.0

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        options = [f"-p {shlex.quote(f'{name}={_format_value(value)}')}" for name, value in self.resolved.given.items()]
        return " ".join(["workbench run", quote_notebook_argument(self.path), *options])


def _format_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(_spell_samples(value), ensure_ascii=False, separators=(",", ":"))
    return str(_spell_samples(value))


def _spell_samples(value: Any) -> Any:
    """A value with the names of shipped samples, which hold on any machine, in place of their paths."""
    if isinstance(value, list):
        return [_spell_samples(item) for item in value]
    if isinstance(value, dict):
        return {key: _spell_samples(item) for key, item in value.items()}
    return spell_sample(value) if isinstance(value, str) else value


def find_heading(cell: Any) -> str | None:
    """The first heading of a cell; null when it has none."""
    match = re.search(r"^#+ +(.+?)\s*#*$", cell.source, re.MULTILINE) if cell.cell_type == "markdown" else None
    return match.group(1) if match else None


def find_work(cell: Any) -> str | None:
    """What a code cell says about its call, behind the code; null for other cells, and for parameters."""
    if cell.cell_type != "code" or parameters.PARAMETERS_TAG in cell.metadata.get("tags", ()):
        return None
    match = re.search(r"^[^#\n]*\)  # (.+)$", cell.source, re.MULTILINE)
    return match.group(1) if match else None


def quote_notebook_argument(path: Path) -> str:
    """Name of a notebook on a command line: its stem in the notebook folder, else its path, quoted."""
    try:
        is_found = path.parent.resolve() == find_notebook_folder().resolve()
    except ConfigError:
        is_found = False
    return shlex.quote(path.stem if is_found else str(path))


def area_from_path(notebook: str | Path) -> str:
    """The area of a notebook: its stem without the number before it.

    >>> area_from_path("notebooks/01_speedup.ipynb")
    'speedup'
    """
    return re.sub(r"^\d+_", "", Path(notebook).stem)


def list_known_areas(more: Iterable[str] = ()) -> list[str]:
    """Areas of the notebooks, and `more`."""
    try:
        present = [area_from_path(path) for path in find_notebook_folder().glob("*.ipynb")]
    except ConfigError:
        present = []
    return sorted({*present, *more})


def find_notebook_folder() -> Path:
    """The folder of the notebooks: that of the project around the working directory, else the shipped one.

    A folder is a project when `workbench init` marked it, so that no notebook runs by name only because it lies there.
    """
    folder = (find_project_folder() or SHIPPED) / "notebooks"
    if any(folder.glob("*.ipynb")):
        return folder
    raise ConfigError(
        "no notebooks found", where=folder, do="workbench init DIR lays them out; or give a notebook's path"
    )


def list_questions(folder: str | Path | None = None) -> pl.DataFrame:
    """List the question that each numbered notebook of a folder answers, and what it needs.

    Parameters
    ----------
    folder
        By default that of `find_notebook_folder`.

    Returns
    -------
    polars.DataFrame
        Columns `notebook` (stem), `question` (its heading) and `needs` (first sentence of its "In:"; null without one).
    """
    import polars as pl

    rows = []
    for path in list_numbered_notebooks(find_notebook_folder() if folder is None else folder):
        first = next(iter(read_notebook(path).cells))
        needs = re.search(r"^- \*\*In:\*\* (.+?)(?:[.:;] |\.?$)", first.source, re.MULTILINE)
        rows.append((path.stem, find_heading(first), needs.group(1).replace("`", "") if needs else None))
    return pl.DataFrame(rows, schema={"notebook": pl.String, "question": pl.String, "needs": pl.String}, orient="row")


def resolve_notebooks(names: Sequence[str]) -> list[Path]:
    """Paths of the named notebooks, each once, in the given order.

    `names`: Paths, stems ("01_speedup"), areas ("speedup"), or "all" for every numbered notebook.
    """
    paths: list[Path] = []
    for name in names:
        if name == "all":
            paths += _list_all_notebooks()
        elif name.endswith(".ipynb") or (Path(name).is_file() and "/" in name):
            paths.append(Path(name))
        else:
            paths.append(_resolve_name(name))
    return list(dict.fromkeys(path.absolute() for path in paths))


def list_numbered_notebooks(folder: str | Path) -> list[Path]:
    """The notebooks of a folder that answer a question, such as 01_speedup.ipynb, by number; may be none."""
    return sorted(path for path in Path(folder).glob("*.ipynb") if NUMBERED_NOTEBOOK.fullmatch(path.name))


def _list_all_notebooks() -> list[Path]:
    folder = find_notebook_folder()
    if paths := list_numbered_notebooks(folder):
        return paths
    raise ConfigError("no numbered notebooks", where=folder, allowed="names such as 01_speedup.ipynb")


def _resolve_name(name: str) -> Path:
    present, matches = _match_name(find_notebook_folder(), name)
    if len(matches) == 1:
        return matches[0]
    stems = [path.stem for path in present if not path.stem.startswith("_")]
    close = difflib.get_close_matches(name, [*stems, *map(area_from_path, present)], n=1)
    do = f"did you mean {close[0]}?" if close else "give one of these, a path, or all"
    if local_matches := _match_name(Path("notebooks"), name)[1]:
        do = f"give its path, {local_matches[0]}; or mark this folder as a project: workbench init ."
    raise ConfigError("no such notebook", where=find_notebook_folder(), found=name, allowed=stems, do=do)


def _match_name(folder: Path, name: str) -> tuple[list[Path], list[Path]]:
    """The notebooks of a folder, and those of them whose stem or area is the name."""
    present = sorted(folder.glob("*.ipynb"))
    return present, [path for path in present if name in (path.stem, area_from_path(path))]


def read_notebook(path: str | Path) -> Any:
    """Read a notebook of any format version."""
    import nbformat

    path = Path(path)
    try:
        with warnings.catch_warnings():
            # nbformat warns of cells without ids, which get them here.
            warnings.simplefilter("ignore")
            text = path.read_text(encoding="utf-8-sig")
            notebook = nbformat.v4.upgrade(nbformat.reads(text, as_version=4))
            # A converted one is made of older classes, which the others do not know.
            notebook = nbformat.from_dict(json.loads(json.dumps(notebook)))
            for cell in notebook.cells:
                if cell.metadata.get("tags", ()) is None:
                    del cell.metadata["tags"]
            nbformat.validate(notebook)
    except OSError as error:
        raise InputError("cannot read the notebook", where=path, found=error.strerror) from error
    except Exception as error:
        raise InputError("not a notebook", where=path, found=str(error).split("\n")[0][:200]) from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise InputError("notebook of another language", where=path, found=language, allowed="python")
    return notebook


def plan_runs(
    notebooks: Sequence[str | Path],
    values: Mapping[str, Any] | None = None,
    *,
    texts: Mapping[str, str] | None = None,
    base: Path | None = None,
) -> list[RunPlan]:
    """Read notebooks and check their parameters, before anything runs.

    `values`, `texts`: Typed values, and text from a command line, by parameter. A name applies to each notebook that
    has it; "area.name", or a mapping under the area's name, to that notebook only.
    `base`: Base of relative paths among the values; by default the working directory.
    """
    values, texts = values or {}, texts or {}
    read_notebooks = [(Path(path).absolute(), read_notebook(path)) for path in notebooks]
    areas = [area_from_path(path) for path, _ in read_notebooks]
    declared = [_read_declared_parameters(path, notebook, bool(values or texts)) for path, notebook in read_notebooks]
    # A dict that is called as its notebook is that parameter.
    mapped = _list_nested_names(declared)
    typed, typed_own = _split_by_area(values, areas, mapped)
    spelled, spelled_own = _split_by_area(texts, areas, mapped)
    nowhere = {*typed, *spelled} - {item.name for items in declared for item in items}
    plans = []
    for (path, notebook), area, items in zip(read_notebooks, areas, declared, strict=True):
        # A name that no notebook has stays in, so that it is refused with a list of the known ones.
        wanted = nowhere | {item.name for item in items}
        own_values = {name: typed[name] for name in typed if name in wanted} | typed_own.get(area, {})
        own_texts = {name: spelled[name] for name in spelled if name in wanted} | spelled_own.get(area, {})
        resolved = parameters.resolve_values(items, own_texts, own_values, where=quote_notebook_argument(path))
        start = base or Path.cwd()
        resolved = parameters.make_paths_absolute(resolved, items, base=start, notebook_folder=path.parent)
        plans.append(RunPlan(path, notebook, resolved))
    return plans


def list_nested_names(notebooks: Iterable[str | Path]) -> set[str]:
    """Names of the nested parameters of notebooks."""
    read = [(Path(path), read_notebook(path)) for path in notebooks]
    return _list_nested_names(_read_declared_parameters(path, notebook, False) for path, notebook in read)


def _list_nested_names(declared: Iterable[Iterable[parameters.Parameter]]) -> set[str]:
    return {item.name for items in declared for item in items if parameters.is_nested(item.type)}


def _read_declared_parameters(path: Path, notebook: Any, needed: bool) -> tuple[parameters.Parameter, ...]:
    # More than one cell is refused, whether any is set: the values of the last would win over those that are given.
    parameters.check_one_cell(notebook, path.name)
    try:
        return parameters.read_parameters(notebook, path.name)
    except InputError:
        # An unreadable parameters cell only matters when parameters are set.
        if needed:
            raise
        return ()


def _split_by_area(
    values: Mapping[str, Any], areas: Sequence[str], mapped: Collection[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split values for all notebooks from values for one area; those of `mapped` are parameters that hold mappings."""
    shared: dict[str, Any] = {}
    by_area: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        area, dot, parameter = name.partition(".")
        area = area_from_path(f"{area}.ipynb")
        if dot and area not in areas:
            raise ConfigError("no such notebook in this run", where=f"parameter {name}", found=area, allowed=areas)
        if dot:
            by_area.setdefault(area, {})[parameter] = value
        elif area in areas and isinstance(value, Mapping) and name not in mapped:
            by_area.setdefault(area, {}).update(value)
        else:
            shared[name] = value
    return shared, by_area
