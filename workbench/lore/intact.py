"""Is a dump whole? Its folder holds exactly the files that plan.json lists, each byte of them as it was written.

Says nothing of who wrote it: see `trust`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from workbench.errors import InputError
from workbench.lore.sidecar import FILE_NAME, FORMAT, RelativePath, Sidecar

PLAN = "plan.meta"
MAX_SIDECAR_BYTES = 16 << 20
# Of each input: a replay makes an object for each partition.
MAX_PARTITIONS = 1_000_000


def read_sidecar(folder: Path) -> Sidecar:
    """plan.json, bounded and checked for its form; whether it is true of the files is asked by `check_whole`.

    Raises
    ------
    InputError
        It is not there, a link, too large, no JSON, of another format or version, or has another form.
    """
    path = folder / FILE_NAME
    raw = read_bounded(path, MAX_SIDECAR_BYTES)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError("plan.json is no JSON", where=path, found=str(error)[:200]) from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise InputError(
            "a dump of another format or version",
            where=path,
            found=str(found)[:60],
            allowed=FORMAT,
            do="replay it with the version of the workbench that made it",
        )
    try:
        return Sidecar.model_validate_json(raw, strict=True)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}"[:120] for one in error.errors()[:5]]
        raise InputError("plan.json has another form", where=path, found=faults) from None


def check_whole(folder: Path, sidecar: Sidecar) -> None:
    """Do plan.json and the folder agree? All files are read once.

    Raises
    ------
    InputError
        Names that no dump has, counts that do not fit, a file too many, missing, of another size or changed (with its
        name), a link or something else that is no file.
    """
    _check_layout(folder, sidecar)
    _check_files(folder, sidecar)


def _expected(sidecar: Sidecar) -> Iterator[str]:
    """Files that a replay opens."""
    if sidecar.has_plan:
        yield PLAN
    for entry in sidecar.inputs:
        yield f"input-{entry.index}/rdd.meta"
        for number, count in entry.batches.items():
            yield f"input-{entry.index}/partition-{number}/partition.meta"
            yield from (f"input-{entry.index}/partition-{number}/batch-{batch}.parquet" for batch in range(count))


def _check_layout(folder: Path, sidecar: Sidecar) -> None:
    """Do the parts of plan.json fit together? All that a replay counts or opens is in the list of files."""
    where = folder / FILE_NAME
    for name in sidecar.files:
        if name == FILE_NAME or not re.fullmatch(RelativePath, name):
            raise InputError("a file name that no dump has", where=where, found=ascii(name)[:200])
    if [entry.index for entry in sidecar.inputs] != list(range(len(sidecar.inputs))):
        raise InputError("the inputs are not numbered from 0", where=where)
    for entry in sidecar.inputs:
        numbers = entry.partitions
        fits = entry.n_partitions <= MAX_PARTITIONS and len(set(numbers)) == len(numbers) <= entry.n_partitions
        fits = fits and all(0 <= number < entry.n_partitions for number in numbers)
        if not fits or {str(number) for number in numbers} != set(entry.batches):
            raise InputError("partitions that do not fit together", where=where, found=f"input-{entry.index}")
        if not all(0 <= count <= len(sidecar.files) for count in entry.batches.values()):
            raise InputError("more batches than files", where=where, found=f"input-{entry.index}")
    if sidecar.output.n_partitions > MAX_PARTITIONS:
        raise InputError("too many partitions", where=where, found="output", allowed=f"{MAX_PARTITIONS:,}")
    for name in _expected(sidecar):
        # One at a time: counts that lie would else make a list of billions.
        if name not in sidecar.files:
            raise InputError("plan.json counts on a file that it does not list", where=where, found=name)


def _check_files(folder: Path, sidecar: Sidecar) -> None:
    """Are there exactly the files of the list, each with its size and digest?"""
    sizes = dict(_walk(folder))
    sizes.pop(FILE_NAME, None)
    if extra := sorted(set(sizes) - set(sidecar.files)):
        raise InputError(
            "a file that the dump does not list",
            where=folder,
            found=some(extra),
            do="a dump's folder holds nothing else",
        )
    if missing := sorted(set(sidecar.files) - set(sizes)):
        raise InputError("a file of the dump is missing", where=folder, found=some(missing))
    for name, entry in sidecar.files.items():
        if sizes[name] != entry.n_bytes:
            raise InputError(
                "a file of the dump has another size",
                where=folder / name,
                found=f"{sizes[name]:,} bytes",
                allowed=f"{entry.n_bytes:,} bytes",
            )
    for name, entry in sidecar.files.items():
        digest = _sha256(folder / name)
        if digest != entry.sha256:
            raise InputError(
                "a file of the dump was changed",
                where=folder / name,
                found=f"sha256 {digest[:16]}...",
                allowed=f"{entry.sha256[:16]}...",
            )


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Each file below the folder with its size in bytes; links and other things that are no files are refused."""
    pending = [folder]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            raise InputError("cannot list a folder of the dump", where=here, found=error.strerror) from error
        for entry in found:
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                pending.append(Path(entry.path))
            elif stat.S_ISREG(facts.st_mode):
                yield Path(entry.path).relative_to(folder).as_posix(), facts.st_size
            else:
                kind = "a link" if stat.S_ISLNK(facts.st_mode) else stat.filemode(facts.st_mode)
                raise InputError("not a file", where=entry.path, found=kind, allowed="files and folders")


def _open(path: Path) -> int:
    try:
        # Without waiting: it might have become a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags)
    except FileNotFoundError:
        do = "name the folder loreId-N of a dump" if path.name == FILE_NAME else None
        raise InputError("a file of the dump is missing", where=path, do=do) from None
    except (OSError, ValueError) as error:
        what = "not a file" if path.is_symlink() else "cannot read a file of the dump"
        found = "a link" if path.is_symlink() else str(error)
        raise InputError(what, where=path, found=found) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError("not a file", where=path)
    return handle


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file of a dump.

    Raises
    ------
    InputError
        It is missing, a link or no file, or has more than `most` bytes.
    """
    with open(_open(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError("a file of the dump is too large", where=path, allowed=f"{most:,} bytes")
    return data


def _sha256(path: Path) -> str:
    with open(_open(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def some(names: Iterable[str], most: int = 8) -> list[str]:
    """The first of names from outside, harmless for a terminal, and how many more there are."""
    listed = list(names)
    shown = [ascii(name)[1:-1][:200] for name in listed[:most]]
    return [*shown, f"and {len(listed) - most} more"] if len(listed) > most else shown
