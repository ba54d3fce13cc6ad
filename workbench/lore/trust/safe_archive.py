"""Unpack an untrusted zip: bounded size, safe names, regular files only.

Names and declared sizes are checked before anything is written; sizes are counted again while reading, since declared
ones may be wrong.
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

from workbench.core.errors import ConfigError, InputError, refuse_os_errors

MAX_ENTRIES = 100_000
# Limit of the central directory, which is read as a whole.
MAX_DIRECTORY_BYTES = 32 << 20
# Deflate reaches 1,032; Parquet files shrink to a tenth, texts to a fiftieth.
MAX_RATIO = 200
# Below this size a high ratio is harmless.
FREE_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20
_NAME_PART = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
# Device names on Windows, with any extension.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError, ValueError)


def unpack_archive(
    archive: Path, folder: Path, *, max_bytes: int, wanted: re.Pattern[str], ignored: frozenset[str]
) -> list[str]:
    """Unpack the wanted files of a zip into a new private folder; all of them, or nothing."""
    with refuse_os_errors("cannot create the folder to unpack into", folder, error_type=ConfigError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError("the folder to unpack into is not empty", where=folder, do="choose a new folder")
        folder.chmod(0o700)
    try:
        _check_directory(archive)
        with zipfile.ZipFile(archive) as opened:
            chosen = _choose_entries(opened.infolist(), archive, wanted, ignored)
            for info in chosen:
                if info.file_size > FREE_BYTES and info.file_size > MAX_RATIO * info.compress_size:
                    raise InputError(
                        "a decompression bomb",
                        where=archive,
                        found=f"{info.filename}: {info.file_size:,} bytes from {info.compress_size:,}",
                        allowed=f"{MAX_RATIO} times as much",
                    )
            if (total := sum(info.file_size for info in chosen)) > max_bytes:
                ranked = sorted(chosen, key=lambda info: (-info.file_size, info.filename))
                biggest = ", ".join(f"{info.filename} {info.file_size:,}" for info in ranked[:3])
                raise InputError(
                    "the archive is too large",
                    where=archive,
                    found=f"{total:,} bytes unpacked; {biggest}",
                    allowed=f"{max_bytes:,} bytes",
                    do="--max-bytes raises the cap",
                )
            for parent in sorted({folder / part for info in chosen for part in Path(info.filename).parents}):
                # One by one, since `parents` would create them with the default mode.
                parent.mkdir(mode=0o700, exist_ok=True)
            bytes_left = max_bytes
            for info in chosen:
                bytes_left -= _extract_file(opened, info, archive, folder / info.filename, bytes_left)
    except _DAMAGE_ERRORS as error:
        _empty_folder(folder)
        raise InputError(
            "the archive is damaged",
            where=archive,
            found=ascii(str(error))[1:200],
            do="get the bundle again, or make it again with workbench lore bundle",
        ) from error
    except OSError as error:
        _empty_folder(folder)
        raise InputError("cannot unpack the archive", where=archive, found=str(error)[:200]) from error
    except BaseException:
        _empty_folder(folder)
        raise
    return sorted(info.filename for info in chosen)


def find_name_fault(name: str) -> str | None:
    """Reason why a file name is not allowed on some system; null when it is allowed.

    >>> tuple(map(find_name_fault, ["loreId-1/plan.json", "a/../b", "C:evil", "a/NUL.txt"]))
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
        if not _NAME_PART.fullmatch(part) or part.startswith(".") or part.endswith("."):
            return "it is not made of letters, digits, dots and dashes"
        if _DEVICES.fullmatch(part):
            return "it is the name of a device"
    return None


def _empty_folder(folder: Path) -> None:
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
    # Bundles have no data before the zip and no comment after it.
    if start != b"PK\x03\x04" or tail[-22:-18] != b"PK\x05\x06" or tail[-2:] != b"\x00\x00":
        raise InputError(
            "not a bundle: it is no zip, or there is something before or after it",
            where=archive,
            do="get the bundle again, or make it again with workbench lore bundle",
        )
    n_entries, directory_bytes = struct.unpack("<HL", tail[-12:-6])
    if tail[-42:-38] == b"PK\x06\x07":
        if tail[-98:-94] != b"PK\x06\x06":
            raise InputError(
                "the archive is damaged",
                where=archive,
                found="its end",
                do="get the bundle again, or make it again with workbench lore bundle",
            )
        n_entries, directory_bytes = struct.unpack("<QQ", tail[-66:-50])
    if n_entries > MAX_ENTRIES or directory_bytes > MAX_DIRECTORY_BYTES:
        raise InputError(
            "the archive has too many files", where=archive, found=f"{n_entries:,}", allowed=f"{MAX_ENTRIES:,}"
        )


def _choose_entries(
    entries: list[zipfile.ZipInfo], archive: Path, wanted: re.Pattern[str], ignored: frozenset[str]
) -> list[zipfile.ZipInfo]:
    """Choose the files to unpack; refuse an archive with a name, kind or file that a bundle may not have."""
    if len(entries) > MAX_ENTRIES:
        raise InputError("the archive has too many files", where=archive, allowed=f"{MAX_ENTRIES:,}")
    chosen: list[zipfile.ZipInfo] = []
    seen: set[str] = set()
    for info in entries:
        # Python cuts a name at its first NUL; other readers may not.
        fault = "it has a NUL" if "\0" in info.orig_filename else find_name_fault(info.orig_filename.removesuffix("/"))
        fault = fault or _find_kind_fault(info)
        # Case-insensitive, as some file systems.
        if not fault and info.filename.lower() in seen:
            fault = "it is in the archive twice"
        if not fault and not info.is_dir() and info.filename not in ignored and not wanted.fullmatch(info.filename):
            fault = "it does not belong in a bundle"
        if fault:
            raise InputError(
                f"a file that may not be in a bundle: {fault}", where=archive, found=ascii(info.orig_filename)[:200]
            )
        seen.add(info.filename.lower())
        if not info.is_dir() and info.filename not in ignored:
            chosen.append(info)
    return chosen


def _find_kind_fault(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
        return "it is a link" if kind == stat.S_IFLNK else "it is no file"
    if info.is_dir() and info.file_size:
        return "it is a folder with bytes"
    if info.flag_bits & 0x1:
        return "it is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "it has another compression than bundles"
    return None


def _extract_file(opened: zipfile.ZipFile, info: zipfile.ZipInfo, archive: Path, target: Path, bytes_left: int) -> int:
    """Write one file and return its size, counted while it is read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    count = 0
    try:
        with opened.open(info) as source, open(os.open(target, flags, 0o600), "wb") as sink:
            while block := source.read(BLOCK_BYTES):
                count += len(block)
                if count > bytes_left or count > info.file_size:
                    raise InputError("a decompression bomb", where=archive, found=info.filename)
                sink.write(block)
    except _DAMAGE_ERRORS as error:
        detail = ascii(str(error))[1:200]
        raise InputError(
            "a file of the archive is damaged",
            where=archive,
            found=f"{info.filename}: {detail}",
            do="get the bundle again, or make it again with workbench lore bundle",
        ) from error
    return count
