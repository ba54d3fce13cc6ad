"""Decide from a dump's bytes whether it may be loaded: signature, classes, settings."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import (
    PLAN_FILE,
    SIDECAR_FILE,
    Sidecar,
    check_integrity,
    format_some_names,
    read_bounded_file,
    read_sidecar,
)
from workbench.lore.trust.allow_lists import ALLOWED_CLASSES as ALLOWED_CLASSES
from workbench.lore.trust.allow_lists import JDK_SERIAL_FILTER as JDK_SERIAL_FILTER
from workbench.lore.trust.allow_lists import PLAN_SERIAL_FILTER as PLAN_SERIAL_FILTER
from workbench.lore.trust.allow_lists import find_conf_fault as find_conf_fault
from workbench.lore.trust.allow_lists import list_refused_classes

KEY_BYTES = 32
# Not on Windows, where the folder determines who may read a file.
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)
MAX_PLAN_BYTES = 32 << 20
MAX_SHOWN_CHARS = 2_000
ReportLine = Callable[[str], None]
ClassNameReader = Callable[[bytes], set[str]]


def find_key_file() -> Path:
    """Path of the key: workbench/lore.key below $XDG_CONFIG_HOME, else ~/.config."""
    config_home = os.environ.get("XDG_CONFIG_HOME", "")
    # By its specification, a path that is not absolute counts as not set.
    if config_home and Path(config_home).is_absolute():
        return Path(config_home) / "workbench" / "lore.key"
    try:
        return Path.home() / ".config" / "workbench" / "lore.key"
    except RuntimeError as error:
        raise ConfigError(
            "no home directory for the key that signs dumps",
            do="set XDG_CONFIG_HOME to a private folder",
        ) from error


def read_existing_key() -> bytes | None:
    """The key of this user; null before its first use."""
    path = find_key_file()
    try:
        # Non-blocking, as it may be a pipe.
        handle = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT | _BINARY)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = "the key of dumps is a link" if path.is_symlink() else "cannot read the key of dumps"
        raise _build_unfit_key_error(message, path, error.strerror) from error
    try:
        if fault := _find_key_fault(os.fstat(handle)):
            raise _build_unfit_key_error(fault[0], path, fault[1])
        return os.read(handle, KEY_BYTES)
    finally:
        os.close(handle)


def read_or_create_key() -> bytes:
    """The key of this user; created if it does not exist."""
    key = read_existing_key()
    if key is None:
        _write_new_key(find_key_file())
        # Read again: another process may have been faster, and its key counts.
        key = read_existing_key()
    if key is None:
        raise _build_unfit_key_error("the key of dumps was removed while it was made", find_key_file(), None)
    return key


def _find_key_fault(facts: os.stat_result) -> tuple[str, str] | None:
    """Fault of the key file and what was found, null if it is sound: own file, closed to others, right size."""
    if not stat.S_ISREG(facts.st_mode):
        return "the key of dumps is no file", stat.filemode(facts.st_mode)
    if hasattr(os, "geteuid"):
        if facts.st_uid != os.geteuid():
            return "the key of dumps is another user's", f"user {facts.st_uid}"
        if facts.st_mode & 0o077:
            return "the key of dumps is open to other users", stat.filemode(facts.st_mode)
    if facts.st_size != KEY_BYTES:
        return "the key of dumps is damaged", f"{facts.st_size} bytes"
    return None


def _build_unfit_key_error(message: str, path: Path, detail: object) -> ConfigError:
    return ConfigError(
        message,
        where=path,
        found=detail,
        allowed=f"a file of yours, mode 600, {KEY_BYTES} bytes",
        do="remove it: a new one is made at the next dump, and earlier dumps then need --trust",
    )


def _write_new_key(path: Path) -> None:
    """Write the key to a temporary file, and link it to its name unless that exists."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY, 0o600)
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, this never replaces the key of another process.
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError:
            # A file system without hard links.
            temporary.rename(path)
    except OSError as error:
        raise _build_unfit_key_error("cannot make the key of dumps", path, error.strerror) from error
    finally:
        temporary.unlink(missing_ok=True)


def sign_sidecar(sidecar: Sidecar) -> Sidecar:
    """Sign a sidecar with this user's key, which is created on first use."""
    return sidecar.model_copy(update={"hmac": _compute_signature(read_or_create_key(), sidecar)})


def is_signed_by_user(sidecar: Sidecar) -> bool:
    """Is it signed with this user's key? False without a key; none is created."""
    key = read_existing_key()
    if key is None or sidecar.hmac is None:
        return False
    return hmac.compare_digest(_compute_signature(key, sidecar), sidecar.hmac)


def check_trust(
    folder: str | Path,
    *,
    trust: bool = False,
    report: ReportLine | None = None,
    class_names: ClassNameReader | None = None,
) -> Sidecar:
    """Check a dump before anything of it is loaded.

    `trust`: Accept a dump that this user did not sign, after `report` was called with its contents. Damaged dumps and
    forbidden contents are refused in any case.
    `report`: Called with each text on the contents of a dump that is not this user's; prints to stderr by default.
    `class_names`: Lists the class names of a Java stream; `java_stream.list_class_names` by default.
    """
    folder = Path(folder)
    sidecar = read_sidecar(folder)
    check_integrity(folder, sidecar)
    names = _check_plan_classes(folder, sidecar, class_names or _list_plan_classes)
    where = folder / SIDECAR_FILE
    for key, value in {**sidecar.confs, "spark.sql.session.timeZone": sidecar.time_zone}.items():
        if fault := find_conf_fault(key, value):
            raise InputError(
                f"a setting that a dump may not contain: {fault}",
                where=where,
                found=ascii(f"{key} = {value}")[1:200],
                allowed="settings of spark.sql.* that are numbers, words or the time zone",
                do="--trust does not permit it",
            )
    if is_signed_by_user(sidecar):
        return sidecar
    if not trust:
        raise InputError(
            "this dump is not signed by you" if sidecar.hmac else "this dump is not signed",
            where=folder / SIDECAR_FILE,
            found="a signature of another key" if sidecar.hmac else "no signature",
            do="loading it runs code of its author; --trust prints its contents and loads it",
        )
    tell = report or _print_line
    for text in format_contents(sidecar, names):
        tell(text)
    return sidecar


def format_contents(sidecar: Sidecar, names: set[str]) -> list[str]:
    """Contents of a dump as texts for the user, found without loading it."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        package, _, short = name.rpartition(".")
        packages[package].append(short)
    versions = sidecar.versions
    python = [name for name in names if name.endswith("PythonFunction")]
    texts = [
        f"not signed by you: loreId {sidecar.lore_id}, {sidecar.operator} ({sidecar.operator_class})",
        f"operator: {_cut_shown_text(sidecar.operator_text)}",
        f"made {sidecar.created_at} by Spark {versions.spark}, Python {versions.python}",
    ]
    if python or sidecar.python_functions:
        functions = ", ".join(map(_cut_shown_text, sidecar.python_functions)) or "not named"
        texts.append(f"Python functions, which will run: {functions}")
    else:
        texts.append("Python functions: none")
    if called := sorted(name.rpartition(".")[2] for name in names if ".expressions.objects." in name):
        texts.append(f"Java methods called by name: {', '.join(called)}")
    confs = [f"  {key} = {_cut_shown_text(value)}" for key, value in sorted(sidecar.confs.items())]
    texts.append("settings: " + ("\n" + "\n".join(confs) if confs else "none"))
    listed = [f"  {package}: {', '.join(shorts)}" for package, shorts in sorted(packages.items())]
    texts.append("classes in plan.meta: " + ("\n" + "\n".join(listed) if listed else "none"))
    return texts


def _compute_signature(key: bytes, sidecar: Sidecar) -> str:
    return hmac.new(key, sidecar.signed_bytes(), hashlib.sha256).hexdigest()


def _list_plan_classes(data: bytes) -> set[str]:
    from workbench.lore.dump_reader.java_stream import list_class_names

    return list_class_names(data, where=PLAN_FILE)


def _print_line(text: str) -> None:
    from workbench.console.terminal import print_text

    print_text(text, err=True)


def _cut_shown_text(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}... ({len(text):,} characters)"


def _check_plan_classes(folder: Path, sidecar: Sidecar, class_names: ClassNameReader) -> set[str]:
    if not sidecar.has_plan:
        return set()
    path = folder / PLAN_FILE
    data = read_bounded_file(path, MAX_PLAN_BYTES)
    # The digest of these bytes, since the file may have changed after the check.
    if hashlib.sha256(data).hexdigest() != sidecar.files[PLAN_FILE].sha256:
        raise InputError(
            "a file of the dump was changed", where=path, do="copy the dump again as a whole, or make it again"
        )
    names = class_names(data)
    if bad := list_refused_classes(names):
        raise InputError(
            "plan.meta names classes that are not allowed",
            where=path,
            found=format_some_names(bad),
            allowed="Spark's expressions and operators, and what they are made of",
            do="do not load this file with any tool; --trust does not permit it",
        )
    if sidecar.operator_class not in names:
        raise InputError(
            "plan.meta is of another operator", where=path, allowed=_cut_shown_text(sidecar.operator_class)
        )
    return names
