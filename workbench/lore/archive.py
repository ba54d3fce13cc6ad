"""A zip from outside, unpacked so that it cannot write elsewhere, fill the disk or pass something off as a file.

Names are held against what is allowed before anything is written; sizes against a cap before, and counted again while
reading, for what an archive says of itself may be a lie.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from workbench.errors import ConfigError, InputError

MAX_ENTRIES = 100_000
# Of the list of entries, which is read as a whole: names of 200 characters and room to spare.
MAX_DIRECTORY_BYTES = 32 << 20
# Deflate reaches 1,032. Parquet files shrink to a tenth at most, texts to a fiftieth.
MAX_RATIO = 200
# Below it a high ratio costs nothing.
FREE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20
_PART = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
# Names that are devices on Windows, whatever follows the first dot.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError, ValueError)


def unpack(
    archive: Path, folder: Path, *, max_bytes: int, wanted: re.Pattern[str], ignored: frozenset[str]
) -> list[str]:
    """Unpack the wanted files of a zip into a new private folder; all of them, or nothing.

    Parameters
    ----------
    archive
        A zip, from anybody.
    folder
        Made here, for this user alone; or there and empty.
    max_bytes
        Most bytes of all files together, unpacked.
    wanted
        What the whole of a name must match to be unpacked.
    ignored
        Names that may be there besides and are left in the archive.

    Returns
    -------
    list[str]
        Names of the files unpacked, sorted.

    Raises
    ------
    InputError
        No zip, damaged, too large, or an entry that is not allowed, which is named.
    ConfigError
        There is something in the folder.
    """
    _claim(folder)
    try:
        _check_directory(archive)
        with zipfile.ZipFile(archive) as opened:
            chosen = _chosen(opened.infolist(), archive, wanted, ignored)
            _check_sizes(chosen, archive, max_bytes)
            for parent in sorted({folder / part for info in chosen for part in Path(info.filename).parents}):
                # One by one: those above it would be made open to others.
                parent.mkdir(mode=0o700, exist_ok=True)
            left = max_bytes
            for info in chosen:
                left -= _extract(opened, info, archive, folder / info.filename, left)
    except _DAMAGE as error:
        _empty(folder)
        raise InputError("the archive is damaged", where=archive, found=ascii(str(error))[1:200]) from error
    except OSError as error:
        _empty(folder)
        raise InputError("cannot unpack the archive", where=archive, found=str(error)[:200]) from error
    except BaseException:
        _empty(folder)
        raise
    return sorted(info.filename for info in chosen)


def name_fault(name: str) -> str | None:
    """Why may no file be called so? Null when it may. Holds for every system, whichever this one is.

    Examples
    --------
    >>> name_fault("loreId-1/plan.json"), name_fault("a/../b"), name_fault("C:evil"), name_fault("a/NUL.txt")
    (None, 'it leaves the folder', 'it has a drive letter', 'it is the name of a device')
    """
    if name.startswith(("/", "\\")):
        return "it is an absolute path"
    if re.match(r"[A-Za-z]:", name):
        return "it has a drive letter"
    if "\\" in name:
        return "it has a backslash"
    parts = name.split("/")
    if ".." in parts:
        return "it leaves the folder"
    if len(name) > 250 or len(parts) > 8:
        return "it is too long"
    for part in parts:
        if not _PART.fullmatch(part) or part.startswith(".") or part.endswith("."):
            return "it is not made of letters, digits, dots and dashes"
        if _DEVICES.fullmatch(part):
            return "it is the name of a device"
    return None


def _claim(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError("there is something in the folder to unpack into", where=folder, do="name a new folder")
        # It may have been there before.
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError("cannot make the folder to unpack into", where=folder, found=error.strerror) from error


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _check_directory(archive: Path) -> None:
    """Bound the list of entries before it is read as a whole.

    Source: PKWARE's APPNOTE 6.3.10, sections 4.3.14 to 4.3.16; as Python's zipfile finds them.
    """
    with open(archive, "rb") as file:
        start = file.read(4)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 98))
        tail = file.read(98)
    # A program may stand before a zip, and a comment of any kind after it: neither is of our making.
    if start != b"PK\x03\x04" or tail[-22:-18] != b"PK\x05\x06" or tail[-2:] != b"\x00\x00":
        raise InputError("not a bundle: it is no zip, or there is something before or after it", where=archive)
    n_entries, directory_bytes = struct.unpack("<HL", tail[-12:-6])
    if tail[-42:-38] == b"PK\x06\x07":
        if tail[-98:-94] != b"PK\x06\x06":
            raise InputError("the archive is damaged", where=archive, found="its end")
        n_entries, directory_bytes = struct.unpack("<QQ", tail[-66:-50])
    if n_entries > MAX_ENTRIES or directory_bytes > MAX_DIRECTORY_BYTES:
        raise InputError(
            "the archive has too many files", where=archive, found=f"{n_entries:,}", allowed=f"{MAX_ENTRIES:,}"
        )


def _chosen(
    entries: list[zipfile.ZipInfo], archive: Path, wanted: re.Pattern[str], ignored: frozenset[str]
) -> list[zipfile.ZipInfo]:
    if len(entries) > MAX_ENTRIES:
        raise InputError("the archive has too many files", where=archive, allowed=f"{MAX_ENTRIES:,}")
    chosen: list[zipfile.ZipInfo] = []
    seen: set[str] = set()
    for info in entries:
        # Python cuts a name at its first NUL, and other readers may not.
        fault = "it has a NUL" if "\0" in info.orig_filename else name_fault(info.orig_filename.removesuffix("/"))
        fault = fault or _kind_fault(info)
        # Also on disks that do not tell a from A.
        if not fault and info.filename.lower() in seen:
            fault = "it is there twice"
        if not fault and not info.is_dir() and info.filename not in ignored and not wanted.fullmatch(info.filename):
            fault = "no bundle has it"
        if fault:
            raise InputError(
                f"a file that may not be in a bundle: {fault}", where=archive, found=ascii(info.orig_filename)[:200]
            )
        seen.add(info.filename.lower())
        if not info.is_dir() and info.filename not in ignored:
            chosen.append(info)
    return chosen


def _kind_fault(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
        return "it is a link" if kind == stat.S_IFLNK else "it is no file"
    if info.is_dir() and info.file_size:
        return "it is a folder with bytes"
    if info.flag_bits & 0x1:
        return "it is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "it is packed in a way that bundles are not"
    return None


def _check_sizes(chosen: list[zipfile.ZipInfo], archive: Path, max_bytes: int) -> None:
    for info in chosen:
        if info.file_size > FREE_BYTES and info.file_size > MAX_RATIO * info.compress_size:
            raise InputError(
                "a decompression bomb",
                where=archive,
                found=f"{info.filename}: {info.file_size:,} bytes from {info.compress_size:,}",
                allowed=f"{MAX_RATIO} times as much",
            )
    if (total := sum(info.file_size for info in chosen)) > max_bytes:
        raise InputError(
            "the archive is too large",
            where=archive,
            found=f"{total:,} bytes unpacked; {_biggest(chosen)}",
            allowed=f"{max_bytes:,} bytes",
            do="--max-bytes raises the cap",
        )


def _biggest(chosen: list[zipfile.ZipInfo]) -> str:
    ranked = sorted(chosen, key=lambda info: (-info.file_size, info.filename))
    return ", ".join(f"{info.filename} {info.file_size:,}" for info in ranked[:3])


def _extract(opened: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path, target: Path, left: int) -> int:
    """Write one file; how many bytes it had. Counted here, whatever was declared."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    count = 0
    try:
        with opened.open(info) as source, open(os.open(target, flags, 0o600), "wb") as sink:
            while block := source.read(BLOCK_BYTES):
                count += len(block)
                if count > left or count > info.file_size:
                    raise InputError("a decompression bomb", where=archive, found=info.filename)
                sink.write(block)
    except _DAMAGE as error:
        told = ascii(str(error))[1:200]
        raise InputError("a file of the archive is damaged", where=archive, found=f"{info.filename}: {told}") from error
    return count
