"""The tables that the queries read: the user's Parquet files, or TPC-H made by tpchgen-cli into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from workbench import runs
from workbench.errors import ConfigError, InputError, MissingToolError, RunFailedError
from workbench.redaction import without_user_info
from workbench.speedup.recording import tpch

GENERATOR = "tpchgen-cli"
# 1,000 is about 350 GB.
MAX_SCALE = 1000.0


@dataclass(frozen=True)
class Data:
    """Where the tables lie, and what may be written down about them.

    Attributes
    ----------
    place
        Folder or URL that Spark reads.
    source
        What it is, without a path of this machine.
    scale
        TPC-H scale factor; null for the user's own.
    views
        Name to path of each table; empty for a URL, which Spark lists itself.
    fingerprint
        Digest of names and sizes of the files; null for a URL.
    """

    place: str
    source: str
    scale: float | None
    views: dict[str, str]
    fingerprint: str | None


def generated(scale: float, *, say: Callable[[str], None]) -> Data:
    """TPC-H at this scale from the cache, made first when it is not there (about 350 MB for 1).

    Raises
    ------
    ConfigError
        The scale is not above 0 and at most 1,000.
    MissingToolError
        tpchgen-cli is not installed.
    RunFailedError
        It failed.
    """
    if not 0 < scale <= MAX_SCALE:
        raise ConfigError("no such scale factor", where="--scale", found=scale, allowed=f"above 0, to {MAX_SCALE:g}")
    version = generator_version()
    folder = runs.cache_folder() / "tpch" / f"sf{scale:g}-{version}"
    if not folder.is_dir():
        say(f"making TPC-H data at scale {scale:g} (once; kept in the cache)")
        _generate(scale, folder)
    return local(folder, source=f"{GENERATOR} {version}", scale=scale)


def generator_version() -> str:
    """Version of tpchgen-cli.

    Raises
    ------
    MissingToolError
        It is not installed.
    """
    try:
        return metadata.version(GENERATOR)
    except metadata.PackageNotFoundError as error:
        do = "pip install -r requirements.lock, or name Parquet files of your own with --data DIR"
        raise MissingToolError(f"{GENERATOR} is not installed", do=do) from error


def _generate(scale: float, folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    tool = shutil.which(GENERATOR, path=path)
    if tool is None:
        raise MissingToolError(f"the command {GENERATOR} is missing", do=f"pip install --force-reinstall {GENERATOR}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that two recordings at once each make a whole one and the second finds it there.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as fresh:
        command = [tool, "parquet", "-s", f"{scale:g}", "--output-dir", str(Path(fresh) / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
        if done.returncode:
            raise RunFailedError(f"{GENERATOR} failed", found=done.stderr.strip()[-500:])
        try:
            (Path(fresh) / "data").rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def given(place: str, *, scale: float | None = None) -> Data:
    """The user's Parquet files and folders; each name, without .parquet, is a view.

    Raises
    ------
    InputError
        There is no such folder, or nothing of Parquet in it.
    """
    if "://" in place and not place.startswith("file:"):
        return Data(place, without_user_info(place), scale, {}, None)
    folder = Path(place.removeprefix("file://")).absolute()
    return local(folder, source="folder", scale=scale)


def local(folder: Path, *, source: str, scale: float | None) -> Data:
    """A folder of this machine."""
    if not folder.is_dir():
        raise InputError("no such folder of tables", where="--data", found=str(folder))
    views: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or not (path.is_dir() or path.suffix == ".parquet"):
            continue
        name = path.name.removesuffix(".parquet")
        if name in views:
            raise InputError("two tables of one name", where=folder, found=name)
        views[name] = str(path)
    if not views:
        allowed = "NAME.parquet files, or folders NAME of Parquet files"
        raise InputError("no tables in the folder", where="--data", found=str(folder), allowed=allowed)
    return Data(str(folder), source, scale, views, _fingerprint(folder))


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\n".encode())
    return digest.hexdigest()


def lacks_tpch(data: Data) -> list[str]:
    """Tables of TPC-H that are not there; none for a URL, which only Spark can list."""
    return [table for table in tpch.TABLES if table not in data.views] if data.views else []
