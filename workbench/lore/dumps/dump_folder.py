"""Folder of a dump: its layout, and whether its files are those that plan.json lists."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.core.errors import InputError, refuse_os_errors

SIDECAR_FORMAT = "workbench-lore/1"
SIDECAR_FILE = "plan.json"
# Column of files of rows without columns, which Parquet cannot store.
ZERO_COLUMN = "__rows"
# Begins the name of a dump that has several operators: those of a subtree of the plan.
SUBTREE_PREFIX = "Subtree of "
RECOMPUTED = "the operator recomputed at dump time"
ORIGINAL_RUN = "the original run"
Sha256 = r"^[0-9a-f]{64}$"
# Relative, with forward slashes, without . and .. parts.
RelativePath = r"^(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._/-]{1,200}$"
PLAN_FILE = "plan.meta"
MEND_BY_COPY = "copy the dump again as a whole, or make it again"
MAX_SIDECAR_BYTES = 16 << 20
# Per input: a replay creates an object per partition.
MAX_SIDECAR_PARTITIONS = 1_000_000
MAX_FILES = 500_000
_NUMBERED = re.compile(r"(loreId|input|partition|batch)-(\d{1,9})(\.parquet)?")
OUTPUT_FOLDER = "output"
_PATH_HINT = "choose a folder loreId-N, or one with such folders in it"


class _SidecarModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Versions(_SidecarModel):
    """Versions at the dump; only the same Spark can load plan.meta."""

    workbench: str
    spark: str
    scala: str
    java: str
    python: str
    pyarrow: str | None = None
    pandas: str | None = None
    numpy: str | None = None


class InputColumn(_SidecarModel):
    """A column of an input for the operator, and its name in the Parquet files."""

    name: str
    stored_as: str
    type: Any = Field(description="Spark's JSON of the type.")
    nullable: bool
    expr_id: int
    masked: Literal["hash", "null", "dropped"] | None = None


class InputEntry(_SidecarModel):
    """One input of the operator: input-K."""

    index: int = Field(ge=0)
    kind: Literal["rows", "columnar", "broadcast", "subquery"]
    n_partitions: int = Field(ge=0, description="Partitions of the original.")
    partitions: list[int] = Field(description="Dumped partitions.")
    batches: dict[str, int] = Field(description="Batches by dumped partition.")
    n_rows: int = Field(ge=0)
    n_bytes: int = Field(ge=0)
    zero_columns: bool = False
    columns: list[InputColumn]


class PartitionPrint(_SidecarModel):
    """Fingerprint of an output partition: sums independent of the order of rows, and one that depends on it."""

    n_rows: int
    hash_sum: int
    hash_xor: int
    ordered_sum: int


class ExpectedError(_SidecarModel):
    """Error of the operator in the original."""

    error_class: str
    message: str
    partition: int | None = None


class Output(_SidecarModel):
    """Expected output of the operator for these inputs."""

    compared_with: Literal["the operator recomputed at dump time", "the original run"] = (
        "the operator recomputed at dump time"
    )
    columns: list[InputColumn]
    n_partitions: int = Field(ge=0)
    fingerprint: dict[str, PartitionPrint] = Field(description="By dumped partition.")
    kept: bool = Field(default=False, description="Whether output/ has the rows.")
    error: ExpectedError | None = None


class FileEntry(_SidecarModel):
    """A file of the dump."""

    n_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=Sha256)


class Sidecar(_SidecarModel):
    """Model of plan.json."""

    format: Literal["workbench-lore/1"] = "workbench-lore/1"
    created_at: str
    versions: Versions
    lore_id: int = Field(ge=0)
    operator: str = Field(description="Spark's name of the node.")
    operator_class: str
    operator_text: str
    tree: str = Field(description="The whole plan with ids, without literals of paths.")
    plan_hash: str = Field(pattern=Sha256, description="Of the plan's shape.")
    time_zone: str
    ansi: bool
    confs: dict[str, str] = Field(description="Settings that affect the result.")
    inputs: list[InputEntry]
    output: Output
    masked: str | None = None
    python_functions: list[str] = []
    has_plan: bool = True
    files: dict[str, FileEntry] = Field(description="By path below the folder; all files but plan.json itself.")
    hmac: str | None = Field(default=None, pattern=Sha256)

    def signed_bytes(self) -> bytes:
        """Canonical bytes for the HMAC: everything but the HMAC itself."""
        import json

        document = self.model_dump(mode="json", exclude={"hmac"})
        return json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def read_sidecar(folder: Path) -> Sidecar:
    """Read plan.json, with limits and validation; `check_integrity` compares it with the files."""
    path = folder / SIDECAR_FILE
    raw = read_bounded_file(path, MAX_SIDECAR_BYTES)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(
            "plan.json is not JSON",
            where=path,
            found=str(error)[:200],
            do=MEND_BY_COPY,
        ) from None
    sidecar_format = document.get("format") if isinstance(document, dict) else None
    if sidecar_format != SIDECAR_FORMAT:
        raise InputError(
            "a dump of another format or version",
            where=path,
            found=str(sidecar_format)[:60],
            allowed=SIDECAR_FORMAT,
            do="replay it with the version of the workbench that made it",
        )
    try:
        return Sidecar.model_validate_json(raw, strict=True)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"[:120] for fault in error.errors()[:5]]
        raise InputError("plan.json is invalid", where=path, found=faults, do=MEND_BY_COPY) from None


def check_integrity(folder: Path, sidecar: Sidecar) -> None:
    """Check that plan.json and the folder agree; reads every file once."""
    # Check that plan.json is consistent and lists every file that a replay opens.
    where = folder / SIDECAR_FILE
    for name in sidecar.files:
        if name == SIDECAR_FILE or not re.fullmatch(RelativePath, name):
            raise InputError(
                "a file name that no dump has",
                where=where,
                found=ascii(name)[:200],
                do=MEND_BY_COPY,
            )
    if [entry.index for entry in sidecar.inputs] != list(range(len(sidecar.inputs))):
        raise InputError("the inputs are not numbered from 0", where=where, do=MEND_BY_COPY)
    for entry in sidecar.inputs:
        numbers = entry.partitions
        fits = entry.n_partitions <= MAX_SIDECAR_PARTITIONS and len(set(numbers)) == len(numbers) <= entry.n_partitions
        fits = fits and all(0 <= number < entry.n_partitions for number in numbers)
        if not fits or {str(number) for number in numbers} != set(entry.batches):
            raise InputError(
                "inconsistent partitions",
                where=where,
                found=f"input-{entry.index}",
                do=MEND_BY_COPY,
            )
        if not all(0 <= count <= len(sidecar.files) for count in entry.batches.values()):
            raise InputError(
                "more batches than files",
                where=where,
                found=f"input-{entry.index}",
                do=MEND_BY_COPY,
            )
    if sidecar.output.n_partitions > MAX_SIDECAR_PARTITIONS:
        raise InputError("too many partitions", where=where, found="output", allowed=f"{MAX_SIDECAR_PARTITIONS:,}")
    for name in _list_expected_files(sidecar):
        # One at a time, since wrong counts could make a list of billions.
        if name not in sidecar.files:
            raise InputError(
                "plan.json needs a file that it does not list",
                where=where,
                found=name,
                do=MEND_BY_COPY,
            )
    _check_files(folder, sidecar)


def _list_expected_files(sidecar: Sidecar) -> Iterator[str]:
    """Files that a replay opens."""
    if sidecar.has_plan:
        yield PLAN_FILE
    for entry in sidecar.inputs:
        yield f"input-{entry.index}/rdd.meta"
        for number, count in entry.batches.items():
            yield f"input-{entry.index}/partition-{number}/partition.meta"
            yield from (f"input-{entry.index}/partition-{number}/batch-{batch}.parquet" for batch in range(count))


def _check_files(folder: Path, sidecar: Sidecar) -> None:
    """Check that exactly the listed files exist, each with its size and digest."""
    sizes = dict(_iter_files(folder))
    sizes.pop(SIDECAR_FILE, None)
    if extra := sorted(set(sizes) - set(sidecar.files)):
        raise InputError(
            "a file that the dump does not list",
            where=folder,
            found=format_some_names(extra),
            do="the folder of a dump may have no other files",
        )
    if missing := sorted(set(sidecar.files) - set(sizes)):
        raise InputError(
            "a file of the dump is missing",
            where=folder,
            found=format_some_names(missing),
            do=MEND_BY_COPY,
        )
    for name, entry in sidecar.files.items():
        if sizes[name] != entry.n_bytes:
            raise InputError(
                "a file of the dump has another size",
                where=folder / name,
                found=f"{sizes[name]:,} bytes",
                allowed=f"{entry.n_bytes:,} bytes",
            )
    for name, entry in sidecar.files.items():
        with open(_open_regular_file(folder / name), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != entry.sha256:
            raise InputError(
                "a file of the dump was changed",
                where=folder / name,
                found=f"sha256 {digest[:16]}...",
                allowed=f"{entry.sha256[:16]}...",
            )


def _iter_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the files below a folder, with their sizes in bytes; links and special files are refused."""
    pending = [folder]
    while pending:
        here = pending.pop()
        with (
            refuse_os_errors("cannot list a folder of the dump", here, do="look at its permissions"),
            os.scandir(here) as entries,
        ):
            children = sorted(entries, key=lambda entry: entry.name)
        for entry in children:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                pending.append(Path(entry.path))
            elif stat.S_ISREG(facts.st_mode):
                yield Path(entry.path).relative_to(folder).as_posix(), facts.st_size
            else:
                kind = "a link" if stat.S_ISLNK(facts.st_mode) else stat.filemode(facts.st_mode)
                raise InputError("not a file", where=entry.path, found=kind, allowed="files and folders")


def _open_regular_file(path: Path) -> int:
    try:
        # Non-blocking, as it may be a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags)
    except FileNotFoundError:
        do = "choose the folder loreId-N of a dump" if path.name == SIDECAR_FILE else None
        raise InputError("a file of the dump is missing", where=path, do=do) from None
    except (OSError, ValueError) as error:
        message = "not a file" if path.is_symlink() else "cannot read a file of the dump"
        detail = "a link" if path.is_symlink() else str(error)
        raise InputError(message, where=path, found=detail) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError("not a file", where=path)
    return handle


def read_bounded_file(path: Path, max_bytes: int) -> bytes:
    """Read a file of a dump."""
    with open(_open_regular_file(path), "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError("a file of the dump is too large", where=path, allowed=f"{max_bytes:,} bytes")
    return data


def format_some_names(names: Iterable[str], max_names: int = 8) -> list[str]:
    """The first names, escaped for a terminal, and the number of the others."""
    listed = list(names)
    shown = [ascii(name)[1:-1][:200] for name in listed[:max_names]]
    return [*shown, f"and {len(listed) - max_names} more"] if len(listed) > max_names else shown


@dataclass
class PartitionFolder:
    """Batches of a partition by number; `strange` are unexpected names."""

    number: int
    folder: Path
    batches: dict[int, Path] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)

    @property
    def meta(self) -> Path | None:
        """partition.meta, if it exists."""
        path = self.folder / "partition.meta"
        return path if os.path.lexists(path) else None


@dataclass
class InputFolder:
    """Partitions of an input by number."""

    name: str
    folder: Path
    partitions: dict[int, PartitionFolder] = field(default_factory=dict)

    @property
    def meta(self) -> Path | None:
        """rdd.meta, if it exists."""
        path = self.folder / "rdd.meta"
        return path if os.path.lexists(path) else None


@dataclass
class DumpFolder:
    """loreId-N with its inputs, the kept output last."""

    lore_id: int
    folder: Path
    inputs: list[InputFolder] = field(default_factory=list)


def list_dump_folders(path: Path) -> list[Path]:
    """Folders loreId-N at a path, by number: the path itself, or those in it. Unfinished ones are skipped."""
    if "://" in str(path) or re.match(r"[a-z0-9]+:/", str(path)):
        raise InputError("inspection reads folders of this machine", found=path, do="copy the dump here first")
    if not path.is_dir():
        raise InputError("no such folder" if not path.exists() else "not a folder", where=path, do=_PATH_HINT)
    if is_dump_folder_name(path) or ((path / "plan.meta").is_file() or (path / "input-0").is_dir()):
        return [path]
    candidates = {
        number: each for each in _list_entries(path) if (number := _parse_number(each.name, "loreId")) is not None
    }
    folders = [candidates[number] for number in sorted(candidates) if candidates[number].is_dir()]
    if not folders:
        names = sorted(each.name for each in _list_entries(path))
        raise InputError(
            "no dump here",
            where=path,
            found=[ascii(name)[1:-1][:80] for name in names[:8]] or "an empty folder",
            allowed="a folder loreId-N, or one with such folders in it",
        )
    return folders


def is_dump_folder_name(folder: Path) -> bool:
    """Is the folder called loreId-N?"""
    return _parse_number(folder.absolute().name, "loreId") is not None


def read_layout(folder: Path) -> DumpFolder:
    """Read the layout of loreId-N."""
    layout = DumpFolder(_parse_number(folder.absolute().name, "loreId") or 0, folder)
    numbered = {
        number: each for each in _list_entries(folder) if (number := _parse_number(each.name, "input")) is not None
    }
    files_left = MAX_FILES
    for path in [*(numbered[number] for number in sorted(numbered)), folder / OUTPUT_FOLDER]:
        if path.is_symlink() or not path.is_dir():
            continue
        input_folder = InputFolder(path.name, path)
        for each in _list_entries(path):
            number = _parse_number(each.name, "partition")
            if number is None or each.is_symlink() or not each.is_dir():
                continue
            input_folder.partitions[number] = _read_partition_folder(number, each)
            files_left -= 1 + len(input_folder.partitions[number].batches)
            if files_left < 0:
                raise InputError("more files than can be inspected", where=folder, allowed=f"at most {MAX_FILES:,}")
        layout.inputs.append(input_folder)
    return layout


def _read_partition_folder(number: int, folder: Path) -> PartitionFolder:
    partition = PartitionFolder(number, folder)
    for each in _list_entries(folder):
        batch = _parse_number(each.name, "batch", ".parquet")
        # Not pipes, which block, nor links.
        if batch is not None and stat.S_ISREG(each.lstat().st_mode):
            partition.batches[batch] = each
        elif each.name != "partition.meta":
            partition.strange.append(each.name)
    return partition


def _parse_number(name: str, kind: str, suffix: str | None = None) -> int | None:
    match = _NUMBERED.fullmatch(name)
    return int(match[2]) if match and match[1] == kind and match[3] == suffix else None


def _list_entries(folder: Path) -> list[Path]:
    with (
        refuse_os_errors("cannot list a folder", folder, do="look at its permissions"),
        os.scandir(folder) as entries,
    ):
        paths = [Path(entry.path) for _, entry in zip(range(MAX_FILES + 1), entries, strict=False)]
    if len(paths) > MAX_FILES:
        raise InputError("more files than can be inspected", where=folder, allowed=f"at most {MAX_FILES:,}")
    return sorted(paths)
