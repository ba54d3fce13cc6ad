"""Atomic file writes, bounded reads, SHA-256 of files, and stores at URLs (fsspec)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.core.errors import InputError, WorkbenchError
from workbench.core.redaction import strip_user_info

# Packages that fsspec needs, by URL scheme.
DRIVERS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "hdfs": "pyarrow",
}
OUT_VARIABLE = "WORKBENCH_OUT"
# The folder that holds the package: the checkout, or site-packages.
CHECKOUT = Path(__file__).resolve().parents[2]
# The folder with the shipped `notebooks` and `data/samples`: a wheel carries copies in the package.
_PACKAGED = CHECKOUT / "workbench" / "packaged"
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else CHECKOUT
# Marks a folder whose notebooks are run by name; `workbench init` writes it.
PROJECT_FILE = "workbench.toml"
# Answers that another request does not change.
_FINAL_ERRORS = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)


class UnwritableError(OSError):
    """A file cannot be written at the place that was asked for."""


@contextlib.contextmanager
def replace_atomically(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, else remove it.

    A crash never leaves a half-written file under the real name.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with replace_atomically(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("whole")
    >>> (folder / "a.txt").read_text(), len(list(folder.iterdir()))
    ('whole', 1)
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except _FINAL_ERRORS as error:
        raise UnwritableError(error.errno, error.strerror, str(path)) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; results are for colleagues, too.
        temporary.chmod(0o666 & ~_UMASK)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# Read once: reading it means setting it, and several threads write.
_UMASK = _read_umask()


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` to `path`, atomically."""
    with replace_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def read_up_to(path: str | Path, max_bytes: int) -> bytes:
    """The bytes of an untrusted file: a regular one of at most `max_bytes`.

    Never blocks (as a FIFO without a writer would), and never reads more, even if the file grows.

    >>> import tempfile
    >>> path = write_text(Path(tempfile.mkdtemp()) / "a.txt", "whole")
    >>> read_up_to(path, 5)
    b'whole'
    """
    # O_NONBLOCK: opening a FIFO would wait for its writer. O_NOCTTY: a terminal must not become the controlling one.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError("not a regular file", where=path)
        with open(handle, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    finally:
        os.close(handle)
    if len(content) > max_bytes:
        allowed = f"at most {max_bytes >> 20} MiB" if max_bytes >> 20 else f"at most {max_bytes} bytes"
        raise InputError("file is too large", where=path, allowed=allowed)
    return content


def read_unpacked(path: str | Path, max_bytes: int) -> bytes:
    """The bytes of an untrusted file as of `read_up_to`; of a gzip file, those that are packed in it.

    >>> import gzip, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a"
    >>> path.write_bytes(gzip.compress(b"whole")), read_unpacked(path, 50)
    (25, b'whole')
    """
    raw = read_up_to(path, max_bytes)
    if raw[:2] != b"\x1f\x8b":
        return raw
    import gzip
    import io
    import zlib

    try:
        with gzip.open(io.BytesIO(raw)) as file:
            raw = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError("a damaged gzip file", where=path, found=str(error)[:200]) from None
    if len(raw) > max_bytes:
        allowed = f"at most {max_bytes >> 20} MiB" if max_bytes >> 20 else f"at most {max_bytes} bytes"
        raise InputError("file is too large", where=path, allowed=f"{allowed} unpacked")
    return raw


def hash_file(path: str | Path) -> str:
    """SHA-256 of a file, as hex digits."""
    # Large blocks: after each the thread waits for the GIL, up to 5 ms while another thread computes.
    digest = hashlib.sha256()
    block = memoryview(bytearray(8 << 20))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()


def open_store(url: str, *, format_url: Callable[[str], str] = strip_user_info) -> tuple[Any, str]:
    """The store of a URL and the path in it; makes no request yet.

    >>> store, root = open_store("memory://logs/a.zstd")
    >>> store.protocol, root
    ('memory', '/logs/a.zstd')
    """
    # Loading it takes 70 ms.
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        scheme = url.partition("://")[0]
        package = DRIVERS.get(scheme)
        raise InputError(
            "this kind of URL cannot be opened here",
            where=format_url(url),
            found=format_url(str(error))[:300],
            do=f"pip install {package}"
            if package
            else "install the fsspec package for it (for example: pip install s3fs)",
        ) from error
    return store, str(root)


@contextlib.contextmanager
def raise_as_os_errors() -> Iterator[None]:
    """Turn exceptions of a driver's libraries, as aiohttp's ClientResponseError for a 403, into OSError."""
    try:
        yield
    except (WorkbenchError, OSError):
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error


def is_permanent_error(error: OSError) -> bool:
    """Whether another request would get the same answer.

    >>> is_permanent_error(FileNotFoundError("no key")), is_permanent_error(ConnectionResetError())
    (True, False)
    """
    if isinstance(error, _FINAL_ERRORS):
        return True
    status = getattr(error.__cause__, "status", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429)


def is_store_failure(error: BaseException) -> bool:
    """Whether a store did not answer, so that what it has there is unknown."""
    return isinstance(error.__cause__, OSError) and not is_permanent_error(error.__cause__)


def find_project_folder() -> Path | None:
    """The folder, here or above, that `workbench init` marked as a project; null outside of one."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / PROJECT_FILE).is_file()), None)


def default_place() -> str | Path:
    """Return where runs are kept: the URL in $WORKBENCH_OUT, such as s3://bucket/runs, else `default_out()`."""
    setting = os.environ.get(OUT_VARIABLE, "")
    return setting if "://" in setting else default_out()


def default_out() -> Path:
    """Folder for runs: $WORKBENCH_OUT, else `data/runs` in a writable project or checkout, else in the user's cache.

    A URL in $WORKBENCH_OUT is no folder: what is made live stays on this machine.
    """
    if (setting := os.environ.get(OUT_VARIABLE)) and "://" not in setting:
        return Path(setting).absolute()
    project = find_project_folder()
    if project is not None and os.access(project, os.W_OK):
        return project / "data" / "runs"
    checkout = CHECKOUT / "data" / "runs"
    nearest = next(folder for folder in (checkout, *checkout.parents) if folder.exists())
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and nearest.is_relative_to(CHECKOUT)
    if in_checkout and nearest.is_dir() and os.access(nearest, os.W_OK):
        return checkout
    return cache_folder() / "runs"


def cache_folder() -> Path:
    """Cache folder of the workbench: in $XDG_CACHE_HOME, else in the platform's cache folder, else a temporary one."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        candidates = [Path(root)]
    elif sys.platform == "darwin":
        candidates = _list_home_folder("Library", "Caches")
    elif sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        candidates = [Path(local)] if local else _list_home_folder("AppData", "Local")
    else:
        candidates = _list_home_folder(".cache")
    for root_folder in candidates:
        nearest = next((folder for folder in (root_folder, *root_folder.parents) if folder.exists()), None)
        if nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK):
            return root_folder / "workbench"
    # Service users may have no home.
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"workbench-{user}"


def _list_home_folder(*names: str) -> list[Path]:
    """A folder in the user's home, as a list; empty without a home, which must not be created."""
    try:
        home = Path.home()
    except RuntimeError:
        return []
    return [home.joinpath(*names)] if home.is_dir() else []
