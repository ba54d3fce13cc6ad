"""May this dump be loaded? Asked, and answered from its bytes alone, before a JVM or a pickle sees any of it.

plan.meta is Java serialization and Python functions are pickles: loading either runs what its writer wanted. So a dump
is loaded when it is whole, names allowed classes and settings only, and is signed with this user's own key; or when the
user says `--trust` after being shown what it holds. See `javaclasses` for what is allowed and why.

Does not show: what the operator does with the data once it runs, nor what a trusted Python function does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from workbench.errors import InputError
from workbench.lore import keys
from workbench.lore.confs import conf_fault as conf_fault
from workbench.lore.javaclasses import ALLOWED_CLASSES as ALLOWED_CLASSES
from workbench.lore.javaclasses import JDK_SERIAL_FILTER as JDK_SERIAL_FILTER
from workbench.lore.javaclasses import PLAN_SERIAL_FILTER as PLAN_SERIAL_FILTER
from workbench.lore.javaclasses import refused
from workbench.lore.sidecar import FILE_NAME, FORMAT, RelativePath, Sidecar

PLAN = "plan.meta"
MAX_SIDECAR_BYTES = 16 << 20
MAX_PLAN_BYTES = 64 << 20
# Of each input: a replay makes an object for each partition.
MAX_PARTITIONS = 1_000_000
MAX_SHOWN_CHARS = 2_000
Report = Callable[[str], None]
ClassNames = Callable[[bytes], set[str]]


def sign(sidecar: Sidecar) -> Sidecar:
    """The sidecar with the signature of this user; the key is made on first use.

    Raises
    ------
    ConfigError
        The key is not fit: see `keys`.
    """
    return sidecar.model_copy(update={"hmac": _signature(keys.own_key(), sidecar)})


def is_own(sidecar: Sidecar) -> bool:
    """Was it signed with this user's key? Without a key nothing was, and none is made.

    Raises
    ------
    ConfigError
        The key is not fit: see `keys`.
    """
    key = keys.existing_key()
    if key is None or sidecar.hmac is None:
        return False
    return hmac.compare_digest(_signature(key, sidecar), sidecar.hmac)


def check(
    folder: str | Path, *, trust: bool = False, report: Report | None = None, class_names: ClassNames | None = None
) -> Sidecar:
    """Let a dump through, or say why not. Nothing of it is loaded.

    Parameters
    ----------
    folder
        loreId-N on this machine, holding a dump and nothing else.
    trust
        Let through what somebody else made, once `report` was told what it holds. What is damaged or not allowed is
        refused all the same.
    report
        Told, text by text, what was found in a dump that is not this user's; printed on stderr by default.
    class_names
        Which classes are named in a Java stream; the reader of `inspection.javastream` by default.

    Returns
    -------
    Sidecar
        What plan.json says, which holds for the files as they are now.

    Raises
    ------
    InputError
        It is damaged (naming the file), of another format, holds what is not allowed, or is somebody else's.
    ConfigError
        This user's key is not fit: see `keys`.
    """
    folder = Path(folder)
    sidecar = read_sidecar(folder)
    _check_layout(folder, sidecar)
    _check_files(folder, sidecar)
    names = _check_plan(folder, sidecar, class_names or _class_names)
    _check_confs(folder, sidecar)
    if is_own(sidecar):
        return sidecar
    if not trust:
        raise InputError(
            "this dump is not of your making" if sidecar.hmac else "this dump is not signed",
            where=folder / FILE_NAME,
            found="another signature than your key gives" if sidecar.hmac else "no signature",
            do="loading it runs code that its maker chose; to see what it holds and load it all the same: --trust",
        )
    tell = report or _print
    for text in found_texts(sidecar, names):
        tell(text)
    return sidecar


def read_sidecar(folder: Path) -> Sidecar:
    """plan.json, bounded and checked for its form; whether it is true of the files is asked by `check`.

    Raises
    ------
    InputError
        It is not there, a link, too large, no JSON, of another format or version, or has another form.
    """
    path = folder / FILE_NAME
    raw = _read(path, MAX_SIDECAR_BYTES)
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


def found_texts(sidecar: Sidecar, names: set[str]) -> list[str]:
    """What a dump of somebody else holds, in texts for people; as far as it can be found without loading."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        package, _, short = name.rpartition(".")
        packages[package].append(short)
    versions = sidecar.versions
    python = [name for name in names if name.endswith("PythonFunction")]
    texts = [
        f"not of your making: loreId {sidecar.lore_id}, {sidecar.operator} ({sidecar.operator_class})",
        f"it says: {_cut(sidecar.operator_text)}",
        f"made {sidecar.created_at} by Spark {versions.spark}, Python {versions.python}",
    ]
    if python or sidecar.python_functions:
        told = ", ".join(map(_cut, sidecar.python_functions)) or "not named"
        texts.append(f"Python functions, code of its maker that will run: {told}")
    else:
        texts.append("Python functions: none")
    if called := sorted(name.rpartition(".")[2] for name in names if ".expressions.objects." in name):
        texts.append(f"calls of Java by name: {', '.join(called)}")
    confs = [f"  {key} = {_cut(value)}" for key, value in sorted(sidecar.confs.items())]
    texts.append("settings that it asks for: " + ("\n" + "\n".join(confs) if confs else "none"))
    listed = [f"  {package}: {', '.join(shorts)}" for package, shorts in sorted(packages.items())]
    texts.append("classes in plan.meta: " + ("\n" + "\n".join(listed) if listed else "none"))
    return texts


def _signature(key: bytes, sidecar: Sidecar) -> str:
    return hmac.new(key, sidecar.signed_bytes(), hashlib.sha256).hexdigest()


def _class_names(data: bytes) -> set[str]:
    from workbench.lore.inspection.javastream import class_names

    return class_names(data, where=PLAN)


def _print(text: str) -> None:
    from workbench.terminal import say

    say(text, err=True)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text):,} characters)"


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
            found=_some(extra),
            do="a dump's folder holds nothing else",
        )
    if missing := sorted(set(sidecar.files) - set(sizes)):
        raise InputError("a file of the dump is missing", where=folder, found=_some(missing))
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


def _check_plan(folder: Path, sidecar: Sidecar, class_names: ClassNames) -> set[str]:
    if not sidecar.has_plan:
        return set()
    path = folder / PLAN
    data = _read(path, MAX_PLAN_BYTES)
    # Of what is looked into, for the file might have been changed since it was checked.
    if hashlib.sha256(data).hexdigest() != sidecar.files[PLAN].sha256:
        raise InputError("a file of the dump was changed", where=path)
    names = class_names(data)
    if bad := refused(names):
        raise InputError(
            "plan.meta names classes that are not allowed",
            where=path,
            found=_some(bad),
            allowed="Spark's expressions and operators, and what they are made of",
            do="do not load this file with any tool; --trust does not change this",
        )
    if sidecar.operator_class not in names:
        raise InputError("plan.meta is of another operator", where=path, allowed=_cut(sidecar.operator_class))
    return names


def _check_confs(folder: Path, sidecar: Sidecar) -> None:
    where = folder / FILE_NAME
    for key, value in {**sidecar.confs, "spark.sql.session.timeZone": sidecar.time_zone}.items():
        if fault := conf_fault(key, value):
            raise InputError(
                f"a setting that no dump may make: {fault}",
                where=where,
                found=ascii(f"{key} = {value}")[1:200],
                allowed="settings of spark.sql.* that are numbers, words or the time zone",
                do="--trust does not change this",
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


def _read(path: Path, most: int) -> bytes:
    with open(_open(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError("a file of the dump is too large", where=path, allowed=f"{most:,} bytes")
    return data


def _sha256(path: Path) -> str:
    with open(_open(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _some(names: Iterable[str], most: int = 8) -> list[str]:
    listed = list(names)
    shown = [ascii(name)[1:-1][:200] for name in listed[:most]]
    return [*shown, f"and {len(listed) - most} more"] if len(listed) > most else shown
