"""The files that users keep beside the tables: their keys with types, as commands write them today and as samples hold.

Values are left out, but for the version of a format; names of folders that are times or ids are RUN and JOB.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from tests.contracts import documents, introspection
from tests.contracts.writing import flatten, name_type

SAMPLES = documents.ROOT / "data" / "samples"
# One of each sort.
OF_SAMPLES = (
    "speedup/tpch-sf1/recording.json",
    "speedup/tpch-sf1/executions.parquet",
    "speedup/tpch-sf1/answers.parquet",
    "indicators/numpy/session.json",
    "indicators/numpy/inspections/inspection-argsort-0b4a8b24/build/specification",
    "indicators/numpy/inspections/inspection-argsort-0b4a8b24/results/0/result",
    "scaletest/default-and-kai/sides.json",
    "scaletest/default-and-kai/scenario.yaml",
    "scaletest/default-and-kai/00-default-scheduler/test.json",
    "scaletest/scenarios/first-test.yaml",
    *(f"capacity/{area}/run.json" for area in ("indicators", "scaletest", "sizing", "speedup")),
)
LEFT_BY_COMMANDS = (
    "facts", "factors.json", "guidellm", "nat", "recorded", "imported", "session.json", "of-upstream", "exported",
    "reported",
)  # fmt: skip
VERSIONS = re.compile(r"format_version|\bversion$")
# In a run.json: what is in these is another on another machine.
OF_THE_MACHINE = re.compile(r"^(host|versions)\.")
IDS = ((r"\d{8}T\d{6}Z-[0-9a-f]{6}", "RUN"), (r"job_\d+", "JOB"), (r"inspection-[\w-]+", "INSPECTION"))
# Their content is no format of the workbench's own.
FOREIGN = {".png", ".html", ".db", ".zip", ".svg"}


def describe_file(path: Path) -> list[str]:
    """The lines that say what a file holds."""
    if path.suffix == ".parquet":
        return [f"{name}: {dtype}" for name, dtype in pl.read_parquet_schema(path).items()]
    if path.suffix in FOREIGN:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ["(binary)"]
    if path.suffix == ".csv":
        return [", ".join(next(csv.reader(text.splitlines())))]
    if path.suffix in (".yaml", ".yml"):
        return describe_keys(yaml.safe_load(text))
    try:
        return describe_keys(json.loads(text))
    except ValueError:
        return []


def describe_keys(document: Any) -> list[str]:
    """A line for each path of a document, with its types; a number that is a key is N."""
    found: dict[str, set[str]] = {}
    for path, value in flatten(document):
        if path.endswith("[#]"):
            continue
        if OF_THE_MACHINE.search(path):
            path, value = path.partition(".")[0], {}
        shown = re.sub(r"(?<![^.])\d+(?![^.\[])", "N", path)
        version = f" = {value}" if VERSIONS.search(shown) and type(value) is int else ""
        found.setdefault(shown, set()).add(name_type(value) + version)
    return [f"{path}  {'|'.join(sorted(types))}" for path, types in sorted(found.items())]


def describe_folder(folder: Path) -> str:
    """Each file below a folder (or the file), by name, with what it holds; files that get one name count as one."""
    found: dict[str, list[str]] = {}
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    for path in paths:
        if not path.is_file() or path.name.endswith(".lock"):
            continue
        name = path.relative_to(folder).as_posix() if path != folder else path.name
        for pattern, shown in IDS:
            name = re.sub(pattern, shown, name)
        lines = describe_file(path)
        found[name] = sorted({*found.get(name, []), *lines}) if name in found else lines
    return "".join(f"{name}\n" + "".join(f"  {line}\n" for line in lines) for name, lines in found.items())


def freeze_formats() -> dict[str, str]:
    """`formats/samples.txt`, and `formats/<what>.txt` of what the commands of the documents leave."""
    parts = [f"{name}\n" + "".join(f"  {line}\n" for line in describe_file(SAMPLES / name)) for name in OF_SAMPLES]
    folder = documents.ask(documents.QUICK)[0]
    return {"formats/samples.txt": "".join(parts)} | {
        f"formats/{name}.txt": describe_folder(folder / name) for name in LEFT_BY_COMMANDS
    }


def freeze_sweep() -> dict[str, str]:
    """`formats/sweep.txt`: the folder and journal of a sweep that was driven."""
    with tempfile.TemporaryDirectory() as made:
        introspection.drive_sweep(Path(made))
        return {"formats/sweep.txt": describe_folder(Path(made))}


def freeze_dumps() -> dict[str, str]:
    """`formats/dumps.txt`: what a dump of an operator is made of."""
    return {"formats/dumps.txt": describe_folder(documents.ask(documents.SPARK)[0] / "dumps")}
