"""The API server's audit log, followed while it is written: bindings and creations by the server's own microseconds.

Only lines of requests that were answered count. A creation with generateName has no name in the log, so it is counted
and gives no row.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from workbench.errors import RunFailedError
from workbench.scaletest import records, tables
from workbench.scaletest.splitting import TOO_LONG, Splitter
from workbench.scaletest.times import NS, now_ns, stamp
from workbench.scaletest.watching.requests import Requests, merged

POLL_S = 0.2
BLOCK = 128 << 10  # about 150 lines: two milliseconds without the watches
END_LIMIT_S = 10.0
MOST_LINE_BYTES = 1 << 20
MOST_CLIENT = 120
MARGIN_NS = 5 * NS  # the clocks may be apart by that
CREATED = {("pods", ""), ("jobs", "")}
_CONTROLLER = re.compile(r"^([^/ ]+)(?:/[^ ]*)?(?: \([^)]*\))?(?: kubernetes/[^/ ]*)?(?:/(\S+))?")


class _User(msgspec.Struct):
    username: str = ""


class _Reference(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class Line(msgspec.Struct):
    """The fields of an audit event that are read."""

    stage: str = ""
    verb: str = ""
    auditID: str = ""  # noqa: N815
    user: _User | None = None
    userAgent: str = ""  # noqa: N815
    objectRef: _Reference | None = None  # noqa: N815
    responseStatus: _Answer | None = None  # noqa: N815
    requestReceivedTimestamp: str | None = None  # noqa: N815
    stageTimestamp: str | None = None  # noqa: N815


def client(user: str, agent: str) -> str:
    """Who asked: a controller by its own name where user or user agent tell it.

    Examples
    --------
    >>> client("admin", "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/1a2b3c/job-controller")
    'kube-controller-manager/job-controller'
    >>> client("system:serviceaccount:kube-system:job-controller", "kube-controller-manager/v1.36.3")
    'system:serviceaccount:kube-system:job-controller'
    >>> client("admin", "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/1a2b3c/scheduler")
    'kube-scheduler'
    >>> client("system:serviceaccount:tests:measure", "workbench-scaletest")
    'workbench-scaletest'
    """
    if user.startswith("system:serviceaccount:kube-system:"):
        return user[:MOST_CLIENT]
    found = _CONTROLLER.match(agent[:500])
    if found is None:
        return (user or "unknown")[:MOST_CLIENT]
    component, part = found.group(1), (found.group(2) or "").rsplit("/", 1)[-1]
    return (component if not part or part in component else f"{component}/{part}")[:MOST_CLIENT]


class Audit:
    """Follows the log from its end at the time of making, through rotations.

    Parameters
    ----------
    write
        Takes the rows.
    note
        Takes what a reader must know.
    """

    def __init__(
        self,
        path: Path,
        namespaces: tuple[str, ...],
        *,
        write: Callable[[records.Seen], None],
        note: Callable[[str], None],
    ) -> None:
        self._tail = Tail(path)
        self._namespaces, self._write, self._note = frozenset(namespaces), write, note
        self._decoder = msgspec.json.Decoder(Line)
        self._since_ns = now_ns() - MARGIN_NS
        self._odd, self._broken = 0, False
        self.requests = Requests()

    async def run(self) -> None:
        """Follow the log, for ever, or until it cannot be read any more: the run is good without."""
        while not self._broken:
            if not self._step():
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Read what is left, for some seconds at most."""
        end = now_ns() + int(END_LIMIT_S * NS)
        while self._step():
            if now_ns() > end:
                self._note("the audit log grows faster than it is read: its last part is left out")
                break
            await asyncio.sleep(0)
        self._tail.close()

    def keep(self, folder: Path, origin_ns: int) -> None:
        """Write tables.REQUESTS below the run folder, together with what an earlier sampler wrote.

        Raises
        ------
        RunFailedError
            It cannot be written.
        """
        frame, place = self.requests.frame(origin_ns), folder / "tables"
        if tables.REQUESTS.path(place).is_file():
            frame = merged(tables.REQUESTS.read(place), frame)
        try:
            tables.REQUESTS.write(frame, place)
        except OSError as error:
            raise RunFailedError(
                "the table of requests cannot be written", where=place, found=error.strerror or type(error).__name__
            ) from None
        if self._odd:
            self._note(f"{self._odd} lines of the audit log cannot be read")
        if self.requests.left_out:
            self._note(f"{self.requests.left_out} requests of the audit log are not in the table: it is full")

    def _step(self) -> bool:
        """Read a block; false where there is nothing new."""
        try:
            found = None if self._broken else self._tail.read()
        except OSError as error:
            self._broken = True
            self._note(f"the audit log cannot be read any more: {error.strerror or type(error).__name__}")
            return False
        arrived = now_ns()
        for line in found or ():
            self._take(line, arrived)
        return found is not None

    def _take(self, text: bytes, arrived: int) -> None:
        try:
            line = self._decoder.decode(text) if text is not TOO_LONG else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            line = None
        if line is None:
            self._odd += 1
            return
        begun, ended = stamp(line.requestReceivedTimestamp), stamp(line.stageTimestamp)
        if line.stage != "ResponseComplete" or ended is None or ended.ns < self._since_ns:
            return
        about, code = line.objectRef or _Reference(), line.responseStatus.code if line.responseStatus else 0
        who = client(line.user.username if line.user else "", line.userAgent)
        if begun is not None and line.verb != "watch":
            key = (who, line.verb[:40], about.resource[:80], about.subresource[:40], code)
            self.requests.add(ended.ns, key, max(0, ended.ns - begun.ns) / NS)
        if code == 201 and line.verb == "create" and about.name and about.namespace in self._namespaces:
            self._row(line, about, who, arrived)

    def _row(self, line: Line, about: _Reference, who: str, arrived: int) -> None:
        bound = (about.resource, about.subresource) == ("pods", "binding")
        if not bound and (about.resource, about.subresource) not in CREATED:
            return
        self._write(
            records.Seen(
                resource="audit",
                transition="bound" if bound else "created",
                uid=about.uid or line.auditID,
                name=about.name,
                namespace=about.namespace,
                arrival_ns=arrived,
                kind="Pod" if about.resource == "pods" else "Job",
                owner=about.uid or None,
                owner_name=about.name,
                server=line.stageTimestamp,
                reason=who,
            )
        )


class Tail:
    """New lines of a file that grows, and is now and then renamed or emptied and begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open()
        self._at = os.fstat(self._file).st_size
        self._splitter = Splitter(MOST_LINE_BYTES)
        # What stands before the first line break began before us.
        self._cut = self._at > 0 and os.pread(self._file, 1, self._at - 1) != b"\n"

    def read(self) -> list[bytes] | None:
        """The lines of the next block; null where there is nothing new."""
        block = os.pread(self._file, BLOCK, self._at)
        if not block and not self._turn():
            return None
        self._at += len(block)
        if self._cut and b"\n" in block:
            block, self._cut = block[block.index(b"\n") + 1 :], False
        return [] if self._cut else self._splitter.split(block)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)

    def _turn(self) -> bool:
        """At the end of the file: whether there is another one to go on with."""
        mine = os.fstat(self._file)
        try:
            other = self._path.stat()
        except OSError:
            return False  # between two
        if (mine.st_dev, mine.st_ino) == (other.st_dev, other.st_ino):
            if other.st_size >= self._at:
                return False
            self._at = 0  # emptied
            return True
        if os.pread(self._file, 1, self._at):
            return True  # written between our last reading and the renaming
        try:
            found = self._open()
        except OSError:
            return False
        os.close(self._file)
        self._file, self._at = found, 0
        self._splitter = Splitter(MOST_LINE_BYTES)
        return True


def readable(path: Path) -> str | None:
    """Why this log cannot be followed; null where it can."""
    if not path.is_file():
        return "no such file"
    return None if os.access(path, os.R_OK) else "it may not be read"


def origin_ns(folder: Path, otherwise: int) -> int:
    """When the run began, by the submitter's journal."""
    found: Any = None
    for found in records.read(folder / records.JOURNAL, records.JournalLine):
        if isinstance(found, records.Begun):
            return found.origin_ns
    return otherwise
