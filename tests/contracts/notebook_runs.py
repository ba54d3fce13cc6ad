"""The tables and records that the notebooks write which measure nothing live, on the samples, with their defaults.

One start of `workbench run` serves every test that needs these runs: the notebooks of the checkout, and those of
`kept/notebooks` that are no longer the same.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from tests.contracts.writing import round_number, write_json

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "kept" / "notebooks"
# Not 02_lore: it times replays in a Spark, and none of its numbers is steady.
NOTEBOOKS = tuple(sorted({path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")} - {"02_lore"}))
JOBS = 2
MOST_ROWS_SHOWN = 50
# Samples that a notebook reads by default since it was kept: both are held against each other on the same one.
MOVED_SAMPLES = {"samples/scaletest/default-and-kai": "samples/scaletest/league"}
LIMIT_S = 840

# Columns without their values, by area and table ("*": any): sentences, which may be put better.
PROSE = {
    ("capacity_plan", "constraints"): {"relief"},
    ("capacity_plan", "sources"): {"note"},
    ("indicators", "effects"): {"reason"},
    ("indicators", "excluded"): {"reason"},
    ("indicators", "justifications"): {"message"},
    ("scaletest", "comparison"): {"reason"},
    ("scaletest", "limits"): {"sentence"},
    ("scaletest", "ramp"): {"reason"},
    ("scaletest", "sustained"): {"reason"},
    ("scaletest", "validity"): {"reason"},
    ("sizing", "comparison"): {"basis"},
    ("sizing", "estimates"): {"verdict", "reason"},
    ("sizing", "points"): {"reason"},
    ("sizing", "verification"): {"reason"},
    ("speedup", "comparability"): {"baseline", "candidate", "why"},
    ("speedup", "factors"): {"note"},
    ("speedup", "steps"): {"what"},
}
# Columns without their values: another every time, or on another machine. Found by running twice.
VOLATILE: dict[tuple[str, str], set[str]] = {}
# Keys of run.json whose values are another every time, on another machine, or somebody's sentence.
VOLATILE_KEYS = {
    "answer", "command", "duration_s", "ended_at", "git_commit", "host", "package_version", "reasons", "run_id",
    "started_at", "title", "versions",
}  # fmt: skip


@functools.cache
def run_notebooks() -> tuple[Path, Path]:
    """The folders of the runs: of today's notebooks, and of the kept ones (for those that are the same, the same)."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run([ROOT / "notebooks" / f"{name}.ipynb" for name in NOTEBOOKS], folder / "today")
    changed = [name for name in NOTEBOOKS if (KEPT / f"{name}.ipynb").is_file() and not is_as_kept(name)]
    # Kept runs of those that are the same need no second start.
    shutil.copytree(folder / "today", folder / "kept")
    for name in changed:
        shutil.rmtree(folder / "kept" / name.partition("_")[2])
    if changed:
        run(place_kept(changed, folder), folder / "kept")
    return folder / "today", folder / "kept"


def place_kept(names: list[str], folder: Path) -> list[Path]:
    """Kept notebooks where users have them: in a folder beside the samples."""
    place = folder / "checkout" / "notebooks"
    place.mkdir(parents=True)
    (place.parent / "data").mkdir()
    (place.parent / "data" / "samples").symlink_to(ROOT / "data" / "samples")
    for name in names:
        text = (KEPT / f"{name}.ipynb").read_text(encoding="utf-8")
        for old, new in MOVED_SAMPLES.items():
            text = text.replace(old, new)
        (place / f"{name}.ipynb").write_text(text, encoding="utf-8")
    return [place / f"{name}.ipynb" for name in names]


def is_as_kept(name: str) -> bool:
    """Is the checkout's notebook the kept one, cell by cell?"""
    return _sources(ROOT / "notebooks" / f"{name}.ipynb") == _sources(KEPT / f"{name}.ipynb")


def _sources(path: Path) -> list[tuple[str, str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
    return [(cell["cell_type"], "".join(cell["source"]), cell["metadata"]) for cell in cells]


def run(paths: list[Path], out: Path) -> None:
    """Run notebooks as a user would, in a process of its own; every one must succeed."""
    words = [sys.executable, "-m", "workbench", "run", *map(str, paths), "--jobs", str(JOBS), "--out", str(out)]
    # Old names may warn while they are deprecated; they must not fail.
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"{' '.join(words[2:])}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def find_runs(folder: Path) -> Iterator[tuple[str, Path]]:
    """The area of each run, and its folder."""
    for record in sorted(folder.glob("*/*/run.json")):
        yield record.parent.parent.name, record.parent


def describe_table(area: str, path: Path, key: list[str]) -> tuple[dict[str, Any], str | None]:
    """Columns, rows and digest of a written table, and its values as CSV where it is small."""
    frame = pl.read_parquet(path)
    left_out = {
        kind: sorted(names.get((area, path.stem), set()) & set(frame.columns))
        for kind, names in (("prose", PROSE), ("volatile", VOLATILE))
    }
    kept = [name for name in frame.columns if name not in {one for names in left_out.values() for one in names}]
    assert set(key) <= set(kept), f"{area}/{path.stem}: the key {key} cannot be left out"
    lines = [",".join(kept), *(",".join(map(_cell, row)) for row in frame.sort(key).select(kept).iter_rows())]
    text = ("\n".join(lines) + "\n").replace(f"{ROOT}/", "")
    found = {
        "rows": frame.height,
        "key": key,
        "columns": [f"{name}: {dtype}" for name, dtype in frame.schema.items()],
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        **{f"without_values_{kind}": names for kind, names in left_out.items() if names},
    }
    return found, text if frame.height <= MOST_ROWS_SHOWN else None


def _cell(value: Any) -> str:
    """A value of a table in a line of CSV."""
    if value is None:
        return ""
    if isinstance(value, list):
        return _quoted("[" + "; ".join(map(_cell, value)) + "]")
    return round_number(value) if type(value) is float else _quoted(str(value))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""').replace("\n", "\\n") + '"' if set('",\n') & set(text) or not text else text


def freeze_notebook_tables() -> dict[str, str]:
    """`runs/<area>/tables.json`, and `runs/<area>/<table>.csv` for tables of few rows."""
    return describe_runs(run_notebooks()[0])


def describe_runs(folder: Path) -> dict[str, str]:
    """The frozen files of the tables of these runs."""
    found: dict[str, str] = {}
    for area, at in find_runs(folder):
        record = json.loads((at / "run.json").read_text(encoding="utf-8"))
        described = {}
        for table in sorted(record["tables"], key=lambda table: table["name"]):
            name = table["name"]
            described[name], values = describe_table(area, at / "tables" / f"{name}.parquet", table["key"])
            if values is not None:
                found[f"runs/{area}/{name}.csv"] = values
        found[f"runs/{area}/tables.json"] = write_json(described) + "\n"
    return found


def freeze_notebook_records() -> dict[str, str]:
    """`runs/<area>/record.json`: the keys of run.json with their types, and the values that are steady."""
    return describe_records(run_notebooks()[0])


def describe_records(folder: Path) -> dict[str, str]:
    """The frozen files of the records of these runs."""
    found = {}
    for area, at in find_runs(folder):
        text = (at / "run.json").read_text(encoding="utf-8").replace(str(ROOT), "CHECKOUT")
        found[f"runs/{area}/record.json"] = write_json(simplify(json.loads(text))) + "\n"
    return found


def simplify(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the type in place of each value that is not steady."""
    return {key: _types(value) if key in VOLATILE_KEYS else value for key, value in record.items()}


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        # What is inside a part of it hangs on the machine.
        return {key: "dict" if isinstance(one, dict) else _types(one) for key, one in value.items()}
    if isinstance(value, list):
        return "list"
    return type(value).__name__
