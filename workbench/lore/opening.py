"""Where a dump lies on this machine: found, unpacked or copied before anything of it is checked or loaded."""

from __future__ import annotations

import contextlib
import re
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import ConfigError, InputError
from workbench.lore.rebuild import is_one_to_one
from workbench.lore.sidecar import Sidecar
from workbench.lore.store import Store

MAX_BYTES = 64 << 30


def without_scheme(folder: str) -> str:
    """A local path of a file: URL, be it as Hadoop writes it or encoded; anything else as it is.

    >>> without_scheme("file:/data/loreId-3"), without_scheme("file:///no%20such/loreId-3"), without_scheme("s3a://b/q")
    ('/data/loreId-3', '/no such/loreId-3', 's3a://b/q')
    """
    plain = re.sub(r"^file:(?://)?(?=/)", "", folder)
    return plain if plain == folder or Path(plain).exists() else urllib.parse.unquote(plain)


@contextlib.contextmanager
def here(folder: str) -> Iterator[Path]:
    """The folder loreId-N of a dump on this machine; a bundle is unpacked for as long as the context lasts.

    Raises
    ------
    InputError
        There is none, or the bundle is none.
    ConfigError
        Several operators were dumped there.
    """
    path = Path(folder)
    if path.suffix == ".zip":
        from workbench.lore.bundle import open_bundle

        with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
            yield open_bundle(path, Path(scratch) / "bundle", max_bytes=MAX_BYTES)
        return
    if not path.is_dir():
        raise InputError("there is no dump", where=folder, do="name a folder loreId-N, or a bundle FILE.zip")
    inner = sorted(path.glob("loreId-*"))
    if not (path / "plan.json").is_file() and inner:
        if len(inner) > 1:
            raise ConfigError("several operators were dumped here", where=folder, allowed=[one.name for one in inner])
        path = inner[0]
    yield path


@contextlib.contextmanager
def copied(store: Store) -> Iterator[Path]:
    """A copy on this machine, to be checked; executors go on reading where it lies."""
    with tempfile.TemporaryDirectory(prefix="workbench-lore-") as scratch:
        store.bring(Path(scratch) / "dump", max_bytes=MAX_BYTES)
        yield Path(scratch) / "dump"


def chosen(sidecar: Sidecar, partition: int | None) -> Sidecar:
    """The dump as if only one partition had been dumped; all of it when that is null.

    Raises
    ------
    InputError
        It holds data only, which nothing can be run over.
    ConfigError
        The partition was not dumped, or says nothing of the output.
    """
    if not sidecar.has_plan:
        raise InputError(
            "this dump holds data only (skip.plan.dump), and cannot be replayed", do="workbench lore inspect shows it"
        )
    if partition is None:
        return sidecar
    by_rows = [entry for entry in sidecar.inputs if entry.kind in ("rows", "columnar")]
    there = sorted(set.intersection(*(set(entry.partitions) for entry in by_rows))) if by_rows else []
    if partition not in there:
        raise ConfigError("this partition was not dumped", where="--partition", found=partition, allowed=there[:50])
    if there == [partition]:
        return sidecar
    if not is_one_to_one(sidecar.operator, [entry.n_partitions for entry in by_rows], sidecar.output.n_partitions):
        raise ConfigError(
            "one partition of this operator says nothing of its output, which mixes partitions",
            where="--partition",
            found=sidecar.operator,
            do="replay all of them, or dump one partition alone",
        )
    name = str(partition)
    inputs = [
        entry.model_copy(update={"batches": {name: entry.batches[name]}}) if entry in by_rows else entry
        for entry in sidecar.inputs
    ]
    prints = {name: sidecar.output.fingerprint[name]} if name in sidecar.output.fingerprint else {}
    return sidecar.model_copy(
        update={"inputs": inputs, "output": sidecar.output.model_copy(update={"fingerprint": prints})}
    )
