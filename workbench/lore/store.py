"""Files of a dump on any file system that Hadoop knows (local, hdfs, s3a), through Spark's own classes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from workbench import files
from workbench.errors import ConfigError
from workbench.formats import size
from workbench.lore.bridge import Bridge
from workbench.lore.sidecar import FileEntry


class Store:
    """A folder on a Hadoop file system.

    Parameters
    ----------
    bridge
        Of the session whose Hadoop settings hold.
    root
        Path or URL; a local path may be relative to the working folder.
    """

    def __init__(self, bridge: Bridge, root: str) -> None:
        self.bridge = bridge
        self._path = bridge.jvm.org.apache.hadoop.fs.Path
        # From a text Hadoop takes a URL as it shows it, with blanks and all; a URI has them encoded.
        is_url = "://" in root or root.startswith("file:")
        plain = self._path(root if is_url else bridge.jvm.java.net.URI(Path(root).absolute().as_uri()))
        self.system: Any = plain.getFileSystem(bridge.session.sessionState().newHadoopConf())
        self.root: Any = self.system.makeQualified(plain)
        if str(self.system.getScheme()) == "file":
            # Without its .crc files: a dump holds what its sidecar lists and nothing else.
            self.system = self.system.getRawFileSystem()

    @property
    def url(self) -> str:
        """The folder as Spark spells it."""
        return str(self.root.toString())

    def local(self, relative: str = "") -> Path | None:
        """Where this lies on this machine; null on another file system."""
        uri = self.path(relative).toUri()
        return Path(uri.getPath()) if (uri.getScheme() or "file") == "file" else None

    def path(self, relative: str = "") -> Any:
        """A Hadoop Path below the folder."""
        return self._path(self.root, relative) if relative else self.root

    def below(self, relative: str) -> Store:
        """A folder of this one."""
        return Store(self.bridge, str(self.path(relative).toString()))

    def is_empty(self) -> bool:
        """Is it not there, or a folder with nothing in it but unfinished dumps?"""
        if not self.system.exists(self.root):
            return True
        return all(name.startswith(".") for name in self.names())

    def exists(self, relative: str = "") -> bool:
        """Is there such a file or folder?"""
        return bool(self.system.exists(self.path(relative)))

    def names(self, relative: str = "") -> list[str]:
        """Names in a folder, sorted; empty where there is none."""
        path = self.path(relative)
        if not self.system.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self.system.listStatus(path))

    def sizes(self, relative: str = "") -> dict[str, int]:
        """Sizes in bytes of all files below a folder, by path relative to the store."""
        if (local := self.local(relative)) and (root := self.local()):
            # Without its native library Hadoop starts a program for every file whose rights it lists or sets.
            files_below = (path for path in local.rglob("*") if path.is_file())
            return {path.relative_to(root).as_posix(): path.stat().st_size for path in files_below}
        found: dict[str, int] = {}
        entries = self.system.listFiles(self.path(relative), True)
        start = len(str(self.root.toUri().getPath()).rstrip("/")) + 1
        while entries.hasNext():
            status = entries.next()
            found[str(status.getPath().toUri().getPath())[start:]] = int(status.getLen())
        return found

    def make(self, relative: str = "") -> None:
        """Make a folder and those above it."""
        if local := self.local(relative):
            local.mkdir(parents=True, exist_ok=True)
            return
        self.system.mkdirs(self.path(relative))

    def move(self, source: str, target: str) -> None:
        """Rename within the store.

        Raises
        ------
        OSError
            The file system says that it did not.
        """
        if not self.system.rename(self.path(source), self.path(target)):
            raise OSError(f"cannot rename {source} to {target}")

    def remove(self, relative: str = "") -> None:
        """Remove a file or a folder with all in it."""
        self.system.delete(self.path(relative), True)

    def write(self, relative: str, data: bytes) -> None:
        """Write a small file."""
        if local := self.local(relative):
            local.parent.mkdir(parents=True, exist_ok=True)
            local.write_bytes(data)
            return
        stream = self.system.create(self.path(relative), True)
        stream.write(bytearray(data))
        stream.close()

    def bring(self, target: Path, *, max_bytes: int) -> None:
        """Copy the whole folder to this machine.

        Raises
        ------
        ConfigError
            It is larger than it may be.
        """
        sizes = self.sizes()
        if sum(sizes.values()) > max_bytes:
            raise ConfigError(
                "the dump is larger than it may be",
                where="--max-bytes",
                found=size(sum(sizes.values())),
                allowed=size(max_bytes),
            )
        for name in sizes:
            local = target / name
            local.parent.mkdir(parents=True, exist_ok=True)
            self.system.copyToLocalFile(False, self.path(name), self._path(local.as_uri()), True)

    def entries(self, *, known: dict[str, bytes]) -> dict[str, FileEntry]:
        """Sizes and digests of all files; `known` are those whose bytes were just written from here."""
        sizes = self.sizes()
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in known.items()}
        others = [name for name in sizes if name not in digests]
        digests |= self._local_digests(others) if self.local() else self._spark_digests(others)
        return {name: FileEntry(n_bytes=n_bytes, sha256=digests[name]) for name, n_bytes in sorted(sizes.items())}

    def _local_digests(self, names: list[str]) -> dict[str, str]:
        return {name: files.sha256(path) for name in names if (path := self.local(name))}

    def _spark_digests(self, names: list[str]) -> dict[str, str]:
        """Executors read and hash what only they can reach side by side."""
        if not names:
            return {}
        urls = {str(self.path(name).toString()): name for name in names}
        frame = self.bridge.spark.read.format("binaryFile").load(list(urls))
        rows = frame.selectExpr("path", "sha2(content, 256) AS digest").collect()
        return {urls[row["path"]]: row["digest"] for row in rows}
