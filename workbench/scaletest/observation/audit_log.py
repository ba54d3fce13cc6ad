"""Follower of the API server's audit log: bindings, creations, and request counts per second."""

from __future__ import annotations

import asyncio
import os
import random
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from workbench.core.errors import RunFailedError
from workbench.scaletest import tables
from workbench.scaletest.cluster_api import api_discovery
from workbench.scaletest.cluster_api.connection import NS_PER_S, TOO_LONG, LineSplitter, now_ns, parse_timestamp
from workbench.scaletest.observation import run_records

if TYPE_CHECKING:
    import polars as pl

SETTLED_S = 5  # maximum delay of a line after its second
MAX_DURATIONS = 500  # kept per second and key; a random sample above that
MAX_KEYS = 20_000
MAX_ROWS = 2_000_000
OTHER = "other"
Key = tuple[str, str, str, str, int]  # client, verb, resource, subresource, code
POLL_S = 0.2
BLOCK = 128 << 10  # about 150 lines: blocks the watches for about 2 ms
END_LIMIT_S = 10.0
MAX_LINE_BYTES = 1 << 20
MAX_CLIENT_CHARS = 120
MARGIN_NS = 5 * NS_PER_S  # tolerated clock offset
CREATED_RESOURCES = {("pods", ""), ("jobs", "")}
_CONTROLLER = re.compile(r"^([^/ ]+)(?:/[^ ]*)?(?: \([^)]*\))?(?: kubernetes/[^/ ]*)?(?:/(\S+))?")
_OWN_ACCOUNTS = f"system:serviceaccount:{api_discovery.SYSTEM_NAMESPACE}:"


@dataclass
class _Second:
    """Requests of one key in one second."""

    count: int = 0
    durations_s: list[float] = field(default_factory=list)


class RequestCounts:
    """Request counts and duration quantiles per second and key; a closed second takes 30 bytes per key."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, _Second]] = {}
        self._keys: dict[Key, int] = {}
        self._newest = 0
        self._draws = random.Random(0)  # noqa: S311 -- a sample of durations
        self._at, self._key, self._count = array("q"), array("i"), array("q")
        self._p50, self._p99 = array("d"), array("d")
        self.left_out = 0

    def add(self, at_ns: int, key: Key, duration_s: float) -> None:
        """Count one completed request and its duration."""
        second = at_ns // NS_PER_S
        number = self._key_number(key)
        bucket = self._open.setdefault(second, {}).setdefault(number, _Second())
        bucket.count += 1
        if len(bucket.durations_s) < MAX_DURATIONS:
            bucket.durations_s.append(duration_s)
        elif (place := self._draws.randrange(bucket.count)) < MAX_DURATIONS:
            bucket.durations_s[place] = duration_s
        if second > self._newest:
            self._newest = second
            self._close_seconds(second - SETTLED_S)

    def _key_number(self, key: Key) -> int:
        number = self._keys.get(key)
        if number is None:
            if len(self._keys) >= MAX_KEYS:
                key = (OTHER, OTHER, OTHER, "", key[4])
            number = self._keys.setdefault(key, len(self._keys))
        return number

    def _close_seconds(self, before: int) -> None:
        for second in sorted(open_second for open_second in self._open if open_second < before):
            for number, bucket in self._open.pop(second).items():
                self._add_row(second, number, bucket)

    def _add_row(self, second: int, number: int, bucket: _Second) -> None:
        if len(self._at) >= MAX_ROWS:
            self.left_out += bucket.count
            return
        ordered = sorted(bucket.durations_s)
        self._at.append(second)
        self._key.append(number)
        self._count.append(bucket.count)
        self._p50.append(_upper_quantile(ordered, 0.5))
        self._p99.append(_upper_quantile(ordered, 0.99))

    def to_frame(self, origin_ns: int) -> pl.DataFrame:
        """Build table REQUESTS, in seconds since the start of the run."""
        import polars as pl

        self._close_seconds(self._newest + 1)
        frame = pl.DataFrame(list(self._iterate_rows(origin_ns)), schema=tables.REQUESTS.schema(), orient="row")
        # Late lines produce a second row for a second: counts are summed, quantiles come from the larger row.
        return _sum_duplicates(frame)

    def _iterate_rows(self, origin_ns: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of table REQUESTS: second since the origin, key columns, requests, p50, p99."""
        keys = list(self._keys)
        columns = (self._at, self._key, self._count, self._p50, self._p99)
        for second, number, count, p50, p99 in zip(*columns, strict=True):
            yield (second - origin_ns / NS_PER_S, *keys[number], count, p50, p99)


def merge_counts(older: pl.DataFrame, newer: pl.DataFrame) -> pl.DataFrame:
    """Merge the rows of two samplers of one run, each of table REQUESTS."""
    import polars as pl

    return _sum_duplicates(pl.concat([older, newer]))


def _sum_duplicates(frame: pl.DataFrame) -> pl.DataFrame:
    """Merge rows of table REQUESTS with the same key: requests are added, quantiles are those of the larger row."""
    import polars as pl

    key, count = list(tables.REQUESTS.key), pl.col("requests")
    largest = pl.col("duration_p50_s", "duration_p99_s").sort_by("requests").last()
    return (
        frame.group_by(key, maintain_order=True)
        .agg(count.sum(), largest)
        .sort(key)
        .select(list(tables.REQUESTS.schema()))
    )


def _upper_quantile(ordered: list[float], q: float) -> float:
    """Smallest value that a share of at least q of the values does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-q * len(ordered) // 1) - 1))]


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


def find_client_name(user: str, agent: str) -> str:
    """Name of the client: the controller where user or user agent identify it, else the component or the user.

    >>> find_client_name("admin", "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/1a2b3c/job-controller")
    'kube-controller-manager/job-controller'
    >>> find_client_name("system:serviceaccount:kube-system:job-controller", "kube-controller-manager/v1.36.3")
    'system:serviceaccount:kube-system:job-controller'
    >>> find_client_name("admin", "kube-scheduler/v1.36.3 (linux/amd64) kubernetes/1a2b3c/scheduler")
    'kube-scheduler'
    >>> find_client_name("system:serviceaccount:tests:measure", "workbench-scaletest")
    'workbench-scaletest'
    >>> find_client_name("system:serviceaccount:workbench-system:second-scheduler", "kube-scheduler/v1.36.3 (linux)")
    'second-scheduler'
    """
    # Two schedulers are one program: of those that a local cluster added, the account is the name.
    if (account := user.removeprefix(_OWN_ACCOUNTS)) not in (user, api_discovery.MEASURING_ACCOUNT):
        return account[:MAX_CLIENT_CHARS]
    if user.startswith("system:serviceaccount:kube-system:"):
        return user[:MAX_CLIENT_CHARS]
    match = _CONTROLLER.match(agent[:500])
    if match is None:
        return (user or "unknown")[:MAX_CLIENT_CHARS]
    component, part = match.group(1), (match.group(2) or "").rsplit("/", 1)[-1]
    return (component if not part or part in component else f"{component}/{part}")[:MAX_CLIENT_CHARS]


class AuditFollower:
    """Follows the log from its current end, across rotations."""

    def __init__(
        self,
        path: Path,
        namespaces: tuple[str, ...],
        *,
        write: Callable[[run_records.Seen], None],
        note: Callable[[str], None],
    ) -> None:
        self._tail = RotatingTail(path)
        self._namespaces, self._write, self._note = frozenset(namespaces), write, note
        self._decoder = msgspec.json.Decoder(Line)
        self._since_ns = now_ns() - MARGIN_NS
        self._odd, self._broken = 0, False
        self.requests = RequestCounts()

    async def run(self) -> None:
        """Follow the log until cancelled, or until a read error: the log is optional."""
        while not self._broken:
            if not self._read_block():
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Read the rest of the log, up to a time limit."""
        end = now_ns() + int(END_LIMIT_S * NS_PER_S)
        while self._read_block():
            if now_ns() > end:
                self._note(
                    f"the end of the audit log was not read within {END_LIMIT_S:g} s; the last requests are missing"
                )
                break
            await asyncio.sleep(0)
        self._tail.close()

    def write_requests(self, folder: Path, origin_ns: int) -> None:
        """Write table REQUESTS to the run folder, merged with the table of an earlier sampler."""
        frame, place = self.requests.to_frame(origin_ns), folder / "tables"
        if tables.REQUESTS.path(place).is_file():
            frame = merge_counts(tables.REQUESTS.read(place), frame)
        try:
            tables.REQUESTS.write(frame, place)
        except OSError as error:
            raise RunFailedError(
                "cannot write the table of requests", where=place, found=error.strerror or type(error).__name__
            ) from None
        if self._odd:
            self._note(f"{self._odd} lines of the audit log are not valid audit events and were skipped")
        if self.requests.left_out:
            self._note(f"{self.requests.left_out} requests of the audit log are not counted (limit {MAX_ROWS} rows)")

    def _read_block(self) -> bool:
        """Read a block; False if there is no new data."""
        try:
            lines = None if self._broken else self._tail.read()
        except OSError as error:
            self._broken = True
            self._note(
                f"reading the audit log failed: {error.strerror or type(error).__name__}; later requests are missing"
            )
            return False
        arrived = now_ns()
        for line in lines or ():
            self._apply_line(line, arrived)
        return lines is not None

    def _apply_line(self, text: bytes, arrived: int) -> None:
        try:
            line = self._decoder.decode(text) if text is not TOO_LONG else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            line = None
        if line is None:
            self._odd += 1
            return
        begun, ended = parse_timestamp(line.requestReceivedTimestamp), parse_timestamp(line.stageTimestamp)
        if line.stage != "ResponseComplete" or ended is None or ended.ns < self._since_ns:
            return
        about, code = line.objectRef or _Reference(), line.responseStatus.code if line.responseStatus else 0
        client = find_client_name(line.user.username if line.user else "", line.userAgent)
        if begun is not None and line.verb != "watch":
            key = (client, line.verb[:40], about.resource[:80], about.subresource[:40], code)
            self.requests.add(ended.ns, key, max(0, ended.ns - begun.ns) / NS_PER_S)
        if code == 201 and line.verb == "create" and about.name and about.namespace in self._namespaces:
            self._write_observation(line, about, client, arrived)

    def _write_observation(self, line: Line, about: _Reference, client: str, arrived: int) -> None:
        bound = (about.resource, about.subresource) == ("pods", "binding")
        if not bound and (about.resource, about.subresource) not in CREATED_RESOURCES:
            return
        self._write(
            run_records.Seen(
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
                reason=client,
            )
        )


class RotatingTail:
    """New lines of a growing file that may be rotated or truncated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._open_file()
        self._at = os.fstat(self._file).st_size
        self._splitter = LineSplitter(MAX_LINE_BYTES)
        # Skip a partial first line.
        self._cut = self._at > 0 and os.pread(self._file, 1, self._at - 1) != b"\n"

    def read(self) -> list[bytes] | None:
        """Lines of the next block; None if there is no new data."""
        block = os.pread(self._file, BLOCK, self._at)
        if not block and not self._switch_file():
            return None
        self._at += len(block)
        if self._cut and b"\n" in block:
            block, self._cut = block[block.index(b"\n") + 1 :], False
        return [] if self._cut else self._splitter.split(block)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _open_file(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)

    def _switch_file(self) -> bool:
        """Switch to the new file after a rotation; whether there may be new data."""
        current = os.fstat(self._file)
        try:
            other = self._path.stat()
        except OSError:
            return False  # during a rotation
        if (current.st_dev, current.st_ino) == (other.st_dev, other.st_ino):
            if other.st_size >= self._at:
                return False
            self._at = 0  # truncated
            return True
        if os.pread(self._file, 1, self._at):
            return True  # written after the last read and before the rename
        try:
            handle = self._open_file()
        except OSError:
            return False
        os.close(self._file)
        self._file, self._at = handle, 0
        self._splitter = LineSplitter(MAX_LINE_BYTES)
        return True


def find_read_problem(path: Path) -> str | None:
    """Reason why this log cannot be followed; None if it can."""
    if not path.is_file():
        return "no such file"
    return None if os.access(path, os.R_OK) else "permission denied"


def read_origin_ns(folder: Path, otherwise: int) -> int:
    """Start of the run from the submitter's journal; `otherwise` without one."""
    line: Any = None
    for line in run_records.read_lines(folder / run_records.JOURNAL, run_records.JournalLine):
        if isinstance(line, run_records.Begun):
            return line.origin_ns
    return otherwise
