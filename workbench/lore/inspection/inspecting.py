"""A dump looked into: whose it is, whether it is whole, which operator, inputs and values. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.errors import ConfigError, InputError
from workbench.lore import trust
from workbench.lore.confs import conf_fault
from workbench.lore.inspection import inputs, layout, metas, planmeta, scala, tables
from workbench.lore.inspection.inputs import InputFound, Rows
from workbench.lore.intact import PLAN, check_whole, read_sidecar, some
from workbench.lore.javaclasses import refused
from workbench.lore.sidecar import FILE_NAME, Sidecar

if TYPE_CHECKING:
    import polars as pl

Origin = Literal["workbench", "gpu", "unknown"]
Signature = Literal["yours", "another's", "none"]


@dataclass
class DumpFound:
    """loreId-N: `faults` say what is damaged or never loaded, `notes` what else should be known.

    `whole` says whether the checksums hold; null where there are none to hold it against.
    """

    lore_id: int
    folder: Path
    origin: Origin = "unknown"
    sidecar: Sidecar | None = None
    plan: planmeta.PlanMeta | None = None
    whole: bool | None = None
    signature: Signature | None = None
    inputs: list[InputFound] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def operator(self) -> str | None:
        """Spark's name of the operator; null where nothing tells."""
        if self.sidecar is not None:
            return self.sidecar.operator
        return self.plan.operator if self.plan is not None else None


@dataclass
class Inspection:
    """What was found at a path, and the tables of all its dumps."""

    dumps: list[DumpFound]
    batches: pl.DataFrame
    partitions: pl.DataFrame
    columns: pl.DataFrame

    @property
    def faults(self) -> list[str]:
        """What is damaged or never loaded, with the folder."""
        return [f"loreId-{dump.lore_id}: {fault}" for dump in self.dumps for fault in dump.faults]

    @property
    def answer(self) -> str:
        """How many dumps, and how many of them have faults."""
        faulty = sum(bool(dump.faults) for dump in self.dumps)
        many = "1 dump" if len(self.dumps) == 1 else f"{len(self.dumps)} dumps"
        return f"{many}, {faulty or 'none'} with faults."


def inspect(path: str | Path, *, most_rows: int = 1_000_000) -> Inspection:
    """What is in a dump, or in a folder of dumps, of the workbench or of the GPU plugin?

    Parameters
    ----------
    path
        loreId-N, or a folder of such folders, on this machine.
    most_rows
        Rows of each input whose values are looked at; 0 for none. Rows are counted for all.

    Returns
    -------
    Inspection
        Its frames are `tables.BATCHES`, `tables.PARTITIONS` and `tables.COLUMNS`.

    Raises
    ------
    InputError
        There is no dump.
    MissingToolError
        pyarrow is not installed.

    Notes
    -----
    No JVM is started and nothing is unpickled. Does not show whether the operator still gives the same: see verify.
    """
    rows: dict[str, Rows] = {declared.name: [] for declared in tables.ALL}
    found = [_inspect(folder, rows, most_rows) for folder in layout.dumps(Path(path))]
    frames = {declared.name: declared.frame(rows[declared.name]) for declared in tables.ALL}
    order = ["lore_id", "input", "n_rows", "partition"]
    most_first = frames["partitions"].sort(order, descending=[False, False, True, False], nulls_last=True)
    return Inspection(found, frames["batches"], most_first, frames["columns"])


def _inspect(folder: Path, rows: dict[str, Rows], most_rows: int) -> DumpFound:
    place = layout.layout(folder)
    found = DumpFound(place.lore_id, folder)
    _sidecar(found)
    if (folder / PLAN).is_file():
        _plan(found)
    elif found.sidecar is None or found.sidecar.has_plan:
        found.notes.append("no plan.meta: the operator is not known, and cannot be replayed")
    for one in place.inputs:
        rdd, path = None, one.meta
        if path is not None:
            rdd = _tried(partial(metas.rdd_meta, path), f"{one.name}/rdd.meta", found)
        read, faults = inputs.read_input(one, rdd, found.sidecar, most_rows=most_rows)
        found.faults += faults
        found.inputs.append(read)
        for declared in tables.ALL:
            rows[declared.name] += [{"lore_id": found.lore_id} | row for row in read.rows[declared.name]]
    if not place.inputs:
        found.notes.append("no inputs")
    if found.origin == "unknown" and any(each.meta and each.meta.origin == "gpu" for each in found.inputs):
        found.origin = "gpu"
    return found


def _sidecar(found: DumpFound) -> None:
    """Ours have plan.json: is it true of the files, and who signed it?"""
    if not (found.folder / FILE_NAME).exists():
        return
    found.origin = "workbench"
    sidecar = _tried(lambda: read_sidecar(found.folder), FILE_NAME, found)
    if sidecar is None:
        return
    found.sidecar = sidecar
    if layout.is_numbered(found.folder) and found.lore_id != sidecar.lore_id:
        found.faults.append(f"{FILE_NAME}: it is of loreId {sidecar.lore_id}")
    elif not layout.is_numbered(found.folder):
        found.lore_id = sidecar.lore_id
    n_faults = len(found.faults)
    _tried(lambda: check_whole(found.folder, sidecar), "", found)
    found.whole = len(found.faults) == n_faults
    for key, value in {**sidecar.confs, "spark.sql.session.timeZone": sidecar.time_zone}.items():
        if fault := conf_fault(key, value):
            found.faults.append(f"{FILE_NAME}: a setting that no dump may make: {scala.text_of(key)}: {fault}")
    try:
        found.signature = "yours" if trust.is_own(sidecar) else "another's" if sidecar.hmac else "none"
    except ConfigError as error:
        found.notes.append(f"signature not checked: {error.what}")


def _plan(found: DumpFound) -> None:
    path = found.folder / PLAN
    found.plan = _tried(lambda: planmeta.plan_meta(path), PLAN, found)
    # A plan of the plugin is not for loading here, and names classes of its own.
    if found.plan is None or found.sidecar is None:
        return
    if bad := refused(found.plan.names):
        found.faults.append(f"{PLAN}: never loaded, for it names {', '.join(some(bad))}")
    if found.sidecar.operator_class != found.plan.operator_class:
        found.faults.append(f"{PLAN}: of another operator than {FILE_NAME} says")


def _tried(read: Callable[[], Any], what: str, found: DumpFound) -> Any:
    """What `read` gives; null where it cannot, and why: as a fault, or as a note where another program can read it."""
    try:
        return read()
    except InputError as error:
        given = error.facts["found"]
        parts = [str(part) for part in given] if isinstance(given, list | tuple) else [str(given)]
        told = error.what if given is None else f"{error.what} (found: {', '.join(parts)[:200]})"
        where = what or _below(error.facts["where"], found.folder)
        if error.what == metas.NOT_JAVA and found.origin != "workbench":
            found.notes.append(f"{where}: {told}; {error.facts['do']}")
        else:
            found.faults.append(f"{where}: {told}")
        return None


def _below(where: object, folder: Path) -> str:
    path = str(where)
    return path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else path.rpartition("/")[2] or path
