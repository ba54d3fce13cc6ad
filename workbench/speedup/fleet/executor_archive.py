"""An archive for Spark executors that have no workbench: this package, and what it imports there, as installed here."""

from __future__ import annotations

import importlib.metadata
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import workbench
from workbench.core.errors import ConfigError, MissingToolError
from workbench.core.files import replace_atomically
from workbench.speedup.fleet.fleet_logs import hash_reader_code

# What a task imports; polars and numpy are native, so the executors' Python must be of this minor version and system.
TASK_DISTRIBUTIONS = ("cramjam", "fsspec", "msgspec", "numpy", "orjson", "polars", "psutil", "xxhash", "zstandard")
# What the command imports besides, for a driver that runs inside the cluster, too.
DRIVER_DISTRIBUTIONS = ("packaging", "pydantic", "pyyaml", "rich", "scipy", "typer")
ALIAS = "fleet"
MAIN_FILE = "workbench_fleet.py"
MAIN = '''"""Main of a spark-submit: `workbench speedup qualify` on the cluster's Spark."""

import sys

from workbench.cli.app import main

main(["speedup", "qualify", "--backend", "spark", *sys.argv[1:]])
'''
_LEFT_OUT = ("__pycache__", "tests")


@dataclass(frozen=True)
class ExecutorArchive:
    """The archive, and the versions in it: workbench, its reader's digest, and the distributions."""

    path: Path
    main: Path | None
    size_bytes: int
    reader_code: str
    distributions: dict[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """The two Spark settings that bring it to the executors."""
        return {"spark.archives": f"{self.path.absolute()}#{ALIAS}", "spark.executorEnv.PYTHONPATH": ALIAS}


def write_executor_archive(path: Path, *, extra: Sequence[str] = (), with_driver: bool = False) -> ExecutorArchive:
    """Write a .tar.gz that `spark.archives` unpacks, for executors with this Python's minor version and system.

    `extra`: Further installed distributions that tasks need, such as s3fs for logs in S3.
    `with_driver`: Also what the command itself imports, and a main file beside it for spark-submit in cluster mode.
    """
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError("not a name that Spark unpacks", where="--out", found=path.name, allowed="*.tar.gz or *.tgz")
    distributions = collect_distributions([*TASK_DISTRIBUTIONS, *extra, *(DRIVER_DISTRIBUTIONS if with_driver else ())])
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as temporary, open_archive(temporary) as archive:
        for source, name in list_files(distributions.values()):
            archive.add(source, name, recursive=False)
    main = None
    if with_driver:
        main = path.with_name(MAIN_FILE)
        with replace_atomically(main) as temporary:
            temporary.write_text(MAIN, encoding="utf-8")
    versions = {name: distribution.version for name, distribution in sorted(distributions.items())}
    return ExecutorArchive(path, main, path.stat().st_size, hash_reader_code(), versions)


def open_archive(path: Path) -> tarfile.TarFile:
    """The archive to write; links become files, since what they lead to is not on other machines."""
    return tarfile.open(path, "w:gz", compresslevel=6, dereference=True)


def collect_distributions(names: Sequence[str]) -> dict[str, importlib.metadata.Distribution]:
    """The named distributions and what they require, without extras."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    collected: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in collected:
            continue
        try:
            collected[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise MissingToolError(f"{name} is not installed here", do=f"pip install {name}") from None
        requirements = map(Requirement, collected[name].requires or [])
        waiting += [
            requirement.name
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
    return collected


def list_files(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    """Each file of the archive and its name in it: this package, then the files that each distribution has installed.

    Left out: byte code, tests, and scripts, which lie outside of the packages' folder.
    """
    package = Path(workbench.__file__).parent
    for path in sorted(package.rglob("*")):
        inner = path.relative_to(package)
        if path.is_file() and not set(inner.parts) & set(_LEFT_OUT):
            yield path, f"workbench/{inner.as_posix()}"
    for distribution in distributions:
        if not distribution.files:
            raise MissingToolError(
                f"{distribution.name} does not say which files it has",
                do="install it with pip or uv, which write its RECORD",
            )
        for file in distribution.files:
            name, path = PurePosixPath(file), Path(str(file.locate()))
            if ".." not in name.parts and not set(name.parts) & set(_LEFT_OUT) and path.is_file():
                yield path, name.as_posix()
