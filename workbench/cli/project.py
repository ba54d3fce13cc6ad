"""Layout of a project: copies of the shipped notebooks and samples, parameters, thresholds, Makefile and README."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from workbench import __version__
from workbench.core.errors import ConfigError
from workbench.core.files import PROJECT_FILE, SHIPPED

MAKEFILE = """\
# make report       run all notebooks with parameters.yaml, check thresholds.yaml; the last line is the gallery's path
# make lab          the same notebooks, live
report:
\tworkbench run all -f parameters.yaml --thresholds thresholds.yaml --jobs 2; \\
\tstatus=$$?; workbench gallery; exit $$status

lab:
\tworkbench lab

.PHONY: report lab
"""
README = """\
# Workbench

Questions about accelerated computing, answered with measured evidence: one notebook a question, in `notebooks`.

```sh
workbench run start_here
make report
make lab
```

- `parameters.yaml`: settings of each notebook. Uncomment a notebook's name and the settings to change.
- `thresholds.yaml`: limits that runs must keep: `workbench run all --thresholds thresholds.yaml`.
- `data/samples`: inputs of the defaults, recorded by the workbench's authors. `data/runs`: a folder for each run.
- `workbench.toml` marks this folder: here and below it, `workbench run NAME` runs these notebooks.
- `workbench init .` completes the folder after an update; it changes no file that is there.
"""
THRESHOLDS = """\
# Limits that runs must keep: workbench run all --thresholds thresholds.yaml
# Exit code 0: all kept; 1: one is broken, or a run is invalid; 2: one cannot be checked; 3: a notebook failed.
# Rules are listed under the name of their notebook, without its number. Uncomment what you want to hold.
start_here:
  - name: the log was read whole
    key: verdict
    equals: valid

# A fixed limit: on the duration of the run in seconds, on rows of a table, on a column in every row that matches.
# profile:
#   - key: duration_s
#     at_most: 600
#   - name: no query failed
#     rows: queries
#     where: {status: failed}
#     at_most: 0
#   - name: no query is slow
#     table: queries
#     where: {status: succeeded}
#     column: duration_s
#     at_most: 5

# No worse than in the runs of the last week. The first run has none before it: exit code 2.
# speedup:
#   - table: factors
#     column: factor
#     no_worse_than: {run: median of last 7, better: higher, tolerance: 0.1}
"""
GITIGNORE = "data/runs/\ndata/samples/\n.ipynb_checkpoints/\n__pycache__/\n"


def lay_out_project(folder: Path, *, with_samples: bool = True) -> Counter[str]:
    """Write what a project lacks; whatever is there stays."""
    root = folder.absolute()
    if root.resolve() == SHIPPED:
        raise ConfigError("this folder is the checkout itself", where="init", found=root, do="choose another one")
    counts: Counter[str] = Counter()
    try:
        for target, source in _list_files(root, with_samples=with_samples):
            if target.exists() or target.is_symlink():
                counts["kept"] += 1
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, target)
            else:
                target.write_text(source, encoding="utf-8")
            counts["written"] += 1
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        do = "choose a folder that you can write to"
        raise ConfigError("cannot write the project", where=error.filename, found=error.strerror, do=do) from error
    return counts


def _list_files(root: Path, *, with_samples: bool) -> Iterator[tuple[Path, Path | str]]:
    """Each file of a project with what goes into it: a file to copy, or a text. The mark comes last."""
    for path in sorted((SHIPPED / "notebooks").glob("*.ipynb")):
        yield root / "notebooks" / path.name, path
    if with_samples:
        samples = SHIPPED / "data" / "samples"
        for path in sorted(samples.rglob("*")):
            if path.is_file() and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts):
                yield root / "data" / "samples" / path.relative_to(samples), path
    texts = {
        "parameters.yaml": format_parameters_file(),
        "thresholds.yaml": THRESHOLDS,
        "Makefile": MAKEFILE,
        "README.md": README,
        ".gitignore": GITIGNORE,
        PROJECT_FILE: f'# A project of the workbench, laid out by `workbench init`.\nversion = "{__version__}"\n',
    }
    for name, text in texts.items():
        yield root / name, text


def format_parameters_file() -> str:
    """A parameters file with every setting of the shipped notebooks, each commented out at its default."""
    import yaml

    from workbench.execution import discovery, parameters

    lines = [
        "# Settings of the notebooks: workbench run all -f parameters.yaml",
        "# Uncomment a notebook's name and the settings to change. Paths are relative to the working directory.",
    ]
    for path in discovery.list_numbered_notebooks(SHIPPED / "notebooks"):
        lines += ["", f"# {discovery.area_from_path(path)}:"]
        for item in parameters.read_parameters(discovery.read_notebook(path), path.name):
            value = yaml.safe_dump(item.default, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
            lines.append(f"#   {item.name}: {value}" + (f"  # {item.comment}" if item.comment else ""))
    return "\n".join(lines) + "\n"


def format_layout(folder: Path, counts: Counter[str]) -> str:
    """Format the closing message of `workbench init`.

    >>> print(format_layout(Path("bench"), Counter(written=3, kept=1)))
    bench: 3 files written, 1 kept as they were
    next: cd bench, then workbench run start_here; limits are in thresholds.yaml, README.md explains the files
    """
    note = f", {counts['kept']} kept as they were" if counts["kept"] else ""
    there = "" if folder.resolve() == Path.cwd() else f"cd {folder}, then "
    return (
        f"{folder}: {counts['written']} files written{note}\n"
        f"next: {there}workbench run start_here; limits are in thresholds.yaml, README.md explains the files"
    )
