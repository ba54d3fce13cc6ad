"""The key that says which dumps are of this user's making: a private file, made on first use, shown to nobody.

It stays on the machine and signs nothing for others: a dump that was signed with it was written by a process of this
user's, and a bundle of a colleague's never is.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from workbench.errors import ConfigError

KEY_BYTES = 32
# Windows knows neither; who may read a file there is set by its folder.
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_BINARY: int = getattr(os, "O_BINARY", 0)


def key_file() -> Path:
    """Where the key is: $XDG_CONFIG_HOME, else ~/.config, then workbench/lore.key.

    Raises
    ------
    ConfigError
        There is neither such a variable nor a home.
    """
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # By its specification, a path that is not absolute counts as not set.
    if given and Path(given).is_absolute():
        return Path(given) / "workbench" / "lore.key"
    try:
        return Path.home() / ".config" / "workbench" / "lore.key"
    except RuntimeError as error:
        raise ConfigError(
            "this user has no home, so there is no place for the key of dumps",
            do="set XDG_CONFIG_HOME to a private folder",
        ) from error


def existing_key() -> bytes | None:
    """The key; null where none was made yet.

    Raises
    ------
    ConfigError
        It is a link, another user's, open to others, or damaged: whoever else knows it could sign in this user's name.
    """
    path = key_file()
    try:
        # Without waiting: it might be a pipe.
        handle = os.open(path, os.O_RDONLY | _NO_LINK | _NO_WAIT | _BINARY)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "the key of dumps is a link" if path.is_symlink() else "cannot read the key of dumps"
        raise _unfit(what, path, error.strerror) from error
    try:
        if fault := _fault(os.fstat(handle)):
            raise _unfit(fault[0], path, fault[1])
        return os.read(handle, KEY_BYTES)
    finally:
        os.close(handle)


def own_key() -> bytes:
    """The key; made now where there is none.

    Raises
    ------
    ConfigError
        As `existing_key`; or it cannot be written.
    """
    key = existing_key()
    if key is None:
        _make(key_file())
        # Also where another process was faster: that one's key counts.
        key = existing_key()
    if key is None:
        raise _unfit("the key of dumps was removed while it was made", key_file(), None)
    return key


def _fault(facts: os.stat_result) -> tuple[str, str] | None:
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


def _unfit(what: str, path: Path, found: object) -> ConfigError:
    return ConfigError(
        what,
        where=path,
        found=found,
        allowed=f"a file of yours, mode 600, {KEY_BYTES} bytes",
        do="remove it: a new one is made at the next dump, and earlier dumps then need --trust",
    )


def _make(path: Path) -> None:
    """Write a whole key under another name and give it its own only if there is none."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY, 0o600)
        with open(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, this never replaces a key that another process made meanwhile.
            os.link(temporary, path)
        except FileExistsError:
            return
        except OSError:
            # A file system without hard links.
            temporary.rename(path)
    except OSError as error:
        raise _unfit("cannot make the key of dumps", path, error.strerror) from error
    finally:
        temporary.unlink(missing_ok=True)
