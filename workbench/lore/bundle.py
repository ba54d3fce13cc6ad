"""A dump as one zip that a colleague can replay with one command: made the same to the byte, and opened with distrust.

In it are the dump's folder, `SHA256SUMS`, `requirements.txt` and `README.md`. Files are stored, not packed: Parquet
is packed already, and packing again would give other bytes on another machine's zlib.
"""

from __future__ import annotations

import hashlib
import re
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench import files
from workbench.errors import ConfigError, InputError
from workbench.formats import size
from workbench.lore import trust
from workbench.lore.archive import BLOCK_BYTES, MAX_ENTRIES, name_fault, unpack
from workbench.lore.sidecar import FILE_NAME, Sidecar, Versions

MAX_BYTES = 512 << 20
TEXTS = frozenset({"README.md", "requirements.txt", "SHA256SUMS"})
_WANTED = re.compile(r"loreId-[0-9]{1,10}/[A-Za-z0-9._/-]+", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,60}", re.ASCII)
# The first that a zip can tell.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written.

    Attributes
    ----------
    path
        The zip.
    sidecar
        Of the dump in it.
    n_bytes
        Of all files of the dump, without the zip's own.
    """

    path: Path
    sidecar: Sidecar
    n_bytes: int


def write_bundle(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    trusted: bool = False,
    report: trust.Report | None = None,
) -> Bundle:
    """Put a dump into one zip, whole or not at all. The same dump gives the same bytes.

    Parameters
    ----------
    folder
        loreId-N; checked first, as if it were to be loaded.
    out
        The zip to write; `loreId-N.zip` in the working folder by default. Nothing is overwritten.
    max_bytes
        Most bytes of the dump's files together.
    trusted
        Bundle a dump of somebody else's; `report` is told what it holds.
    report
        As `trust.check`.

    Raises
    ------
    InputError
        The dump does not hold (`trust.check`), or is changed while it is read.
    ConfigError
        It is larger than the cap (the biggest files are named), or there is something at `out`.
    """
    folder = Path(folder)
    sidecar = trust.check(folder, trust=trusted, report=report)
    name = f"loreId-{sidecar.lore_id}"
    target = Path(out) if out is not None else Path(f"{name}.zip")
    _check_target(target, folder)
    n_bytes = _check_sizes(sidecar, folder, max_bytes)
    document = sidecar.model_dump_json(indent=1).encode()
    digests = {f"{name}/{one}": entry.sha256 for one, entry in sidecar.files.items()}
    digests[f"{name}/{FILE_NAME}"] = hashlib.sha256(document).hexdigest()
    small = {
        f"{name}/{FILE_NAME}": document,
        "README.md": readme(sidecar).encode(),
        "requirements.txt": requirements(sidecar.versions).encode(),
        "SHA256SUMS": "".join(f"{digest}  {one}\n" for one, digest in sorted(digests.items())).encode(),
    }
    with files.replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        _write_all(archive, folder, name, sidecar, small)
    return Bundle(target, sidecar, n_bytes)


def open_bundle(path: str | Path, folder: str | Path, *, max_bytes: int = MAX_BYTES) -> Path:
    """Unpack a bundle into a new private folder. Whether its dump may be loaded is then asked by `trust.check`.

    Parameters
    ----------
    path
        The zip, from anybody.
    folder
        Made here, for this user alone; or there and empty. It is left empty when the bundle is refused.
    max_bytes
        Most bytes of all files together, unpacked.

    Returns
    -------
    Path
        The folder loreId-N in it.

    Raises
    ------
    InputError
        As `archive.unpack`; or there is not exactly one dump in it.
    ConfigError
        There is something in the folder.
    """
    path, folder = Path(path), Path(folder)
    if not path.is_file():
        raise InputError("there is no bundle", where=path, do="name a file that workbench lore bundle wrote")
    names = unpack(path, folder, max_bytes=max_bytes, wanted=_WANTED, ignored=TEXTS)
    roots = sorted({name.partition("/")[0] for name in names})
    if len(roots) != 1:
        raise InputError("a bundle holds one dump", where=path, found=roots or "none", allowed="loreId-N")
    return folder / roots[0]


def requirements(versions: Versions) -> str:
    """requirements.txt: the packages a replay needs, exactly as they were at the dump.

    Raises
    ------
    InputError
        A version that is none: it would be a line of its own for the installer.
    """
    packages = {
        "numpy": versions.numpy,
        "pandas": versions.pandas,
        "pyarrow": versions.pyarrow,
        "pyspark": versions.spark,
    }
    told = {"Python": versions.python, "Java": versions.java, "Scala": versions.scala, "workbench": versions.workbench}
    for what, version in {**packages, **told}.items():
        if version is not None and not _VERSION.fullmatch(version):
            raise InputError("not a version", where=f"{FILE_NAME}, {what}", found=ascii(version)[:80])
    lines = [f"# Made with {', '.join(f'{what} {version}' for what, version in told.items())}."]
    lines += [f"{package}=={version}" for package, version in packages.items() if version is not None]
    return "\n".join(lines) + "\n"


def readme(sidecar: Sidecar) -> str:
    """README.md: what is in the bundle and the one command that replays it."""
    name = f"loreId-{sidecar.lore_id}"
    rows = [f"- `input-{one.index}`: {one.kind}, {one.n_rows:,} rows, {one.n_bytes:,} bytes" for one in sidecar.inputs]
    masked = f"Masked: {_line(sidecar.masked)}." if sidecar.masked else "The rows are as they were: nothing is masked."
    functions = (
        f"It has Python functions, which run when it is replayed: {_line(', '.join(sidecar.python_functions))}."
        if sidecar.python_functions
        else "It has no Python functions."
    )
    return f"""# {name}: one operator with its inputs

    {_line(sidecar.operator_text)}

{chr(10).join(rows)}

{masked} {functions}

Replay it, with the packages of `requirements.txt` and Python {sidecar.versions.python} beside the workbench:

    workbench lore replay {name}.zip

It says what the bundle holds and loads nothing, until `--trust` says that you know its maker.
"""


def _line(text: str) -> str:
    """One line that cannot be more than a text in Markdown."""
    plain = " ".join(text.split())
    cut = plain if len(plain) <= 500 else plain[:497] + "..."
    return "".join(sign if sign.isprintable() and sign not in "<>`" else "?" for sign in cut)


def _check_target(target: Path, folder: Path) -> None:
    if target.exists() or target.is_symlink():
        raise ConfigError("there is a file already", where=target, do="name another with --out")
    if folder.resolve() in target.absolute().resolve().parents:
        raise ConfigError("a bundle cannot lie in its own dump", where=target, do="name another folder with --out")


def _check_sizes(sidecar: Sidecar, folder: Path, max_bytes: int) -> int:
    total = sum(entry.n_bytes for entry in sidecar.files.values())
    if total > max_bytes:
        ranked = sorted(sidecar.files.items(), key=lambda item: (-item[1].n_bytes, item[0]))
        biggest = ", ".join(f"{name} {size(entry.n_bytes)}" for name, entry in ranked[:5])
        raise ConfigError(
            "the bundle would be too large",
            where=folder,
            found=f"{size(total)}; the biggest files: {biggest}",
            allowed=size(max_bytes),
            do="dump fewer partitions or columns, let workbench lore bisect shrink it, or raise --max-bytes",
        )
    if len(sidecar.files) + len(TEXTS) + 1 > MAX_ENTRIES:
        raise ConfigError("too many files for a bundle", where=folder, found=len(sidecar.files), allowed=MAX_ENTRIES)
    for name in sidecar.files:
        if fault := name_fault(f"loreId-{sidecar.lore_id}/{name}"):
            raise ConfigError(f"a file that may not be in a bundle: {fault}", where=folder, found=name)
    return total


def _write_all(archive: zipfile.ZipFile, folder: Path, name: str, sidecar: Sidecar, small: Mapping[str, bytes]) -> None:
    large = {f"{name}/{one}": one for one in sidecar.files}
    for entry in sorted({*small, *large}):
        info = zipfile.ZipInfo(entry, _TIME)
        # Else it would tell which system it was written on.
        info.create_system = 3
        info.external_attr = (stat.S_IFREG | 0o644) << 16
        if entry in small:
            archive.writestr(info, small[entry])
        else:
            _store(archive, info, folder / large[entry], sidecar.files[large[entry]].sha256)


def _store(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, sha256: str) -> None:
    info.file_size = path.stat().st_size
    digest = hashlib.sha256()
    with open(path, "rb") as source, archive.open(info, "w") as sink:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
            sink.write(block)
    if digest.hexdigest() != sha256:
        raise InputError("a file of the dump was changed while it was bundled", where=path)
