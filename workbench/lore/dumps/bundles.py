"""Bundles: a dump as one reproducible zip; and dumps located, unpacked or copied to this machine."""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
import tempfile
import urllib.parse
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.core import files
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_bytes
from workbench.lore.dumps.dump_folder import SIDECAR_FILE, Sidecar, Versions
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.spark_bridge.operator_isolation import is_one_to_one
from workbench.lore.trust import trust_check
from workbench.lore.trust.safe_archive import BLOCK_BYTES, MAX_ENTRIES, find_name_fault, unpack_archive

MAX_BUNDLE_BYTES = 512 << 20
TEXT_FILES = frozenset({"README.md", "requirements.txt", "SHA256SUMS"})
_WANTED = re.compile(r"loreId-[0-9]{1,10}/[A-Za-z0-9._/-]+", re.ASCII)
_VERSION_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,60}", re.ASCII)
# The earliest time that a zip can store.
_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
MAX_UNPACKED_BYTES = 64 << 30


@dataclass(frozen=True)
class Bundle:
    """A written bundle."""

    path: Path
    sidecar: Sidecar
    n_bytes: int


def write_bundle(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    max_bytes: int = MAX_BUNDLE_BYTES,
    trusted: bool = False,
    report: trust_check.ReportLine | None = None,
) -> Bundle:
    """Write a dump as one zip, atomically. The same dump gives the same bytes.

    `out`: The zip to write; `loreId-N.zip` in the working directory by default. It must not exist.
    `trusted`: Bundle a dump that this user did not sign; `report` gets its contents.
    """
    folder = Path(folder)
    sidecar = trust_check.check_trust(folder, trust=trusted, report=report)
    name = f"loreId-{sidecar.lore_id}"
    target = Path(out) if out is not None else Path(f"{name}.zip")
    if target.exists() or target.is_symlink():
        raise ConfigError("the file exists", where=target, do="choose another one with --out")
    if folder.resolve() in target.absolute().resolve().parents:
        raise ConfigError("a bundle cannot be in its own dump", where=target, do="choose another folder with --out")
    n_bytes = _check_bundle_size(sidecar, folder, max_bytes)
    document = sidecar.model_dump_json(indent=1).encode()
    digests = {f"{name}/{path}": entry.sha256 for path, entry in sidecar.files.items()}
    digests[f"{name}/{SIDECAR_FILE}"] = hashlib.sha256(document).hexdigest()
    small = {
        f"{name}/{SIDECAR_FILE}": document,
        "README.md": format_readme(sidecar).encode(),
        "requirements.txt": format_requirements(sidecar.versions).encode(),
        "SHA256SUMS": "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items())).encode(),
    }
    with files.replace_atomically(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        # Write a dump's files into an archive under folder `name`, in sorted order; `small` has contents by entry name.
        large = {f"{name}/{path}": path for path in sidecar.files}
        for entry in sorted({*small, *large}):
            info = zipfile.ZipInfo(entry, _ENTRY_TIME)
            # The same on every system.
            info.create_system = 3
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            if entry in small:
                archive.writestr(info, small[entry])
            else:
                path = folder / large[entry]
                sha256 = sidecar.files[large[entry]].sha256
                info.file_size = path.stat().st_size
                digest = hashlib.sha256()
                with open(path, "rb") as source, archive.open(info, "w") as sink:
                    while block := source.read(BLOCK_BYTES):
                        digest.update(block)
                        sink.write(block)
                if digest.hexdigest() != sha256:
                    raise InputError(
                        "a file of the dump was changed while it was bundled",
                        where=path,
                        do="bundle it again when no process writes to it",
                    )
    return Bundle(target, sidecar, n_bytes)


def open_bundle(path: str | Path, folder: str | Path, *, max_bytes: int = MAX_BUNDLE_BYTES) -> Path:
    """Unpack a bundle into a new private folder; call `trust_check.check_trust` before loading its dump.

    `folder`: Created for this user only; or existing and empty. It is left empty when the bundle is refused.
    """
    path, folder = Path(path), Path(folder)
    if not path.is_file():
        raise InputError("no such bundle", where=path, do="choose a file of workbench lore bundle")
    names = unpack_archive(path, folder, max_bytes=max_bytes, wanted=_WANTED, ignored=TEXT_FILES)
    roots = sorted({name.partition("/")[0] for name in names})
    if len(roots) != 1:
        raise InputError("a bundle holds one dump", where=path, found=roots or "none", allowed="loreId-N")
    return folder / roots[0]


def format_requirements(versions: Versions) -> str:
    """requirements.txt: the packages of a replay, in the versions of the dump."""
    packages = {
        "numpy": versions.numpy,
        "pandas": versions.pandas,
        "pyarrow": versions.pyarrow,
        "pyspark": versions.spark,
    }
    runtimes = {
        "Python": versions.python,
        "Java": versions.java,
        "Scala": versions.scala,
        "workbench": versions.workbench,
    }
    for name, version in {**packages, **runtimes}.items():
        if version is not None and not _VERSION_PATTERN.fullmatch(version):
            raise InputError(
                "not a version",
                where=f"{SIDECAR_FILE}, {name}",
                found=ascii(version)[:80],
                do="copy the dump again as a whole, or make it again",
            )
    lines = [f"# Made with {', '.join(f'{runtime} {version}' for runtime, version in runtimes.items())}."]
    lines += [f"{package}=={version}" for package, version in packages.items() if version is not None]
    return "\n".join(lines) + "\n"


def format_readme(sidecar: Sidecar) -> str:
    """README.md: contents of the bundle, and the command that replays it."""
    name = f"loreId-{sidecar.lore_id}"
    rows = [
        f"- `input-{entry.index}`: {entry.kind}, {entry.n_rows:,} rows, {entry.n_bytes:,} bytes"
        for entry in sidecar.inputs
    ]
    masked = (
        f"Masked: {_escape_markdown_line(sidecar.masked)}."
        if sidecar.masked
        else "The rows are the original ones: nothing is masked."
    )
    names = _escape_markdown_line(", ".join(sidecar.python_functions))
    functions = (
        f"It has Python functions, which run when it is replayed: {names}."
        if sidecar.python_functions
        else "It has no Python functions."
    )
    return f"""# {name}: one operator with its inputs

    {_escape_markdown_line(sidecar.operator_text)}

{chr(10).join(rows)}

{masked} {functions}

Replay it, with the packages of `requirements.txt` and Python {sidecar.versions.python} beside the workbench:

    workbench lore replay {name}.zip

It prints the contents and loads nothing, unless you pass `--trust`.
"""


def _escape_markdown_line(text: str) -> str:
    """One line of plain text for Markdown."""
    plain = " ".join(text.split())
    cut = plain if len(plain) <= 500 else plain[:497] + "..."
    return "".join(sign if sign.isprintable() and sign not in "<>`" else "?" for sign in cut)


def _check_bundle_size(sidecar: Sidecar, folder: Path, max_bytes: int) -> int:
    total = sum(entry.n_bytes for entry in sidecar.files.values())
    if total > max_bytes:
        ranked = sorted(sidecar.files.items(), key=lambda item: (-item[1].n_bytes, item[0]))
        biggest = ", ".join(f"{name} {format_bytes(entry.n_bytes)}" for name, entry in ranked[:5])
        raise ConfigError(
            "the bundle would be too large",
            where=folder,
            found=f"{format_bytes(total)}; the biggest files: {biggest}",
            allowed=format_bytes(max_bytes),
            do="dump fewer partitions or columns, shrink it with workbench lore bisect, or raise --max-bytes",
        )
    if len(sidecar.files) + len(TEXT_FILES) + 1 > MAX_ENTRIES:
        raise ConfigError("too many files for a bundle", where=folder, found=len(sidecar.files), allowed=MAX_ENTRIES)
    for name in sidecar.files:
        if fault := find_name_fault(f"loreId-{sidecar.lore_id}/{name}"):
            raise ConfigError(f"a file that may not be in a bundle: {fault}", where=folder, found=name)
    return total


def strip_file_scheme(folder: str) -> str:
    """The local path of a file: URL, as written by Hadoop or encoded; other texts unchanged.

    >>> list(map(strip_file_scheme, ["file:/data/loreId-3", "file:///no%20such/loreId-3", "s3a://b/q"]))
    ['/data/loreId-3', '/no such/loreId-3', 's3a://b/q']
    """
    plain = re.sub(r"^file:(?://)?(?=/)", "", folder)
    return plain if plain == folder or Path(plain).exists() else urllib.parse.unquote(plain)


@contextlib.contextmanager
def open_local_dump(folder: str) -> Iterator[Path]:
    """The folder loreId-N of a dump on this machine; a bundle is unpacked inside the context."""
    path = Path(folder)
    if path.suffix == ".zip":
        with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
            yield open_bundle(path, Path(scratch) / "bundle", max_bytes=MAX_UNPACKED_BYTES)
        return
    if not path.is_dir():
        raise InputError("there is no dump", where=folder, do="choose a folder loreId-N, or a bundle FILE.zip")
    inner = sorted(path.glob("loreId-*"))
    if not (path / "plan.json").is_file() and inner:
        if len(inner) > 1:
            raise ConfigError(
                "several operators were dumped here", where=folder, allowed=[child.name for child in inner]
            )
        path = inner[0]
    yield path


@contextlib.contextmanager
def copy_dump(store: DumpStore) -> Iterator[Path]:
    """Copy a dump to this machine for the check; executors read the original."""
    with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
        store.copy_to_local(Path(scratch) / "dump", max_bytes=MAX_UNPACKED_BYTES)
        yield Path(scratch) / "dump"


def restrict_to_partition(sidecar: Sidecar, partition: int | None) -> Sidecar:
    """Restrict a dump to one partition; null keeps all."""
    if not sidecar.has_plan:
        raise InputError(
            "this dump has data only (skip.plan.dump) and cannot be replayed", do="workbench lore inspect shows it"
        )
    if partition is None:
        return sidecar
    by_rows = [entry for entry in sidecar.inputs if entry.kind in ("rows", "columnar")]
    there = sorted(set.intersection(*(set(entry.partitions) for entry in by_rows))) if by_rows else []
    if partition not in there:
        raise ConfigError("this partition was not dumped", where="--partition", found=partition, allowed=there[:50])
    if there == [partition]:
        return sidecar
    if not is_one_to_one(sidecar.operator, [entry.n_partitions for entry in by_rows], sidecar.output.n_partitions):
        raise ConfigError(
            "this operator mixes partitions, so one input partition does not determine its output",
            where="--partition",
            found=sidecar.operator,
            do="replay all of them, or dump one partition alone",
        )
    name = str(partition)
    inputs = [
        entry.model_copy(update={"batches": {name: entry.batches[name]}}) if entry in by_rows else entry
        for entry in sidecar.inputs
    ]
    prints = {name: sidecar.output.fingerprint[name]} if name in sidecar.output.fingerprint else {}
    return sidecar.model_copy(
        update={"inputs": inputs, "output": sidecar.output.model_copy(update={"fingerprint": prints})}
    )
