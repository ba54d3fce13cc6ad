"""What a run writes while it goes on, line by line: the journal of the submitter, the observations of the sampler.

One JSON object a line, told apart by `type`; all times in nanoseconds, the client's by `times.now_ns`, the servers' as
texts as they came. A cut last line is what a kill leaves: readers drop it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from workbench.errors import InputError

JOURNAL = "journal.jsonl"
OBSERVED = "observed.jsonl"
HEALTH = "health.jsonl"
MOST_LINE_BYTES = 1 << 20


class Begun(msgspec.Struct, tag_field="type", tag="begun", omit_defaults=True):
    """A process began (or went on) submitting. `origin_ns` is the run's start: due times count from it."""

    run: str
    at_ns: int
    origin_ns: int
    resumed: bool = False
    mode: str = "api"  # api, kubectl or command


class Intent(msgspec.Struct, tag_field="type", tag="intent", omit_defaults=True):
    """This workload is about to be sent: on disk before the first byte goes out."""

    index: int
    at_ns: int


class Acked(msgspec.Struct, tag_field="type", tag="acked", omit_defaults=True):
    """The server has it. `status` 201, or 409 with our own hash: made before a crash, `known` then."""

    index: int
    sent_ns: int  # first attempt
    at_ns: int
    status: int
    uid: str | None = None
    created: str | None = None  # creationTimestamp, as it came
    attempts: int = 1
    throttled: int = 0  # answers of 429 before it
    throttled_ns: int = 0  # spent waiting because of them
    known: bool = False


class Failed(msgspec.Struct, tag_field="type", tag="failed", omit_defaults=True):
    """Given up: refused for good, or out of attempts. `status` null where there was no answer."""

    index: int
    sent_ns: int
    at_ns: int
    reason: str
    status: int | None = None
    attempts: int = 1
    throttled: int = 0
    throttled_ns: int = 0


class Stopped(msgspec.Struct, tag_field="type", tag="stopped", omit_defaults=True):
    """Submission ended: `finished`, `interrupted`, `limit: …` or `aborted: …`."""

    at_ns: int
    reason: str
    in_flight_most: int = 0


class Seen(msgspec.Struct, tag_field="type", tag="seen", omit_defaults=True):
    """A transition of one incarnation (uid) of an object: only its first is kept.

    resource
        workload, job, pod, podgroup, bindrequest, pvc, event, audit, node.
    transition
        created, scheduled, unschedulable, bound, running, ready, succeeded, failed, deleted, evicted, admitted,
        suspended, pvc-requested, pvc-bound, … (a state's name in lower case).
    server
        The server's time of it as it came; null where the object does not say.
    workload
        Name of the workload that it belongs to, by its labels; null where only its owner tells.
    owner
        uid of its controller; of an event or a bindrequest the uid (or, with `owner_name`, the name) it is about.
    gap
        The watch was away: it happened at some time before `arrival_ns`, after the last thing seen.
    """

    resource: str
    transition: str
    uid: str
    name: str
    namespace: str
    arrival_ns: int
    kind: str | None = None
    workload: str | None = None
    owner: str | None = None
    owner_name: str | None = None
    server: str | None = None
    resource_version: str | None = None
    session: int = 0
    gap: bool = False
    node: str | None = None
    reason: str | None = None


class Gap(msgspec.Struct, tag_field="type", tag="gap", omit_defaults=True):
    """A watch was away between these times: end of stream, expired (410), or the server gone."""

    resource: str
    from_ns: int
    to_ns: int
    reason: str
    relisted: bool = False
    recovered: int = 0  # transitions that were found on the way back


class Beat(msgspec.Struct, tag_field="type", tag="beat", omit_defaults=True):
    """A heartbeat object's change: sent, acknowledged, and seen by our own watch (null: not within the timeout)."""

    sent_ns: int
    acked_ns: int
    seen_ns: int | None = None


class Skew(msgspec.Struct, tag_field="type", tag="skew", omit_defaults=True):
    """Bounds of server clock minus ours, from `probes` answers' Date; low > high: servers disagree."""

    at_ns: int
    low_ns: int
    high_ns: int
    probes: int


class Load(msgspec.Struct, tag_field="type", tag="load", omit_defaults=True):
    """What measuring costs: the sampler's CPU and memory, the machine's business, since the line before."""

    at_ns: int
    sampler_cpu_s: float
    sampler_rss_bytes: int
    host_busy: float | None = None  # share of all cores


class NodeSeen(msgspec.Struct, tag_field="type", tag="node", omit_defaults=True):
    """A node at the start, or when its readiness or what it offers changed."""

    name: str
    arrival_ns: int
    ready: bool
    gpus: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    pods: int = 0
    simulated: bool = False
    labels: dict[str, str] = {}


class Note(msgspec.Struct, tag_field="type", tag="note", omit_defaults=True):
    """Something a reader of the report must know; `spoils` makes the run invalid."""

    at_ns: int
    text: str
    spoils: bool = False


JournalLine = Begun | Intent | Acked | Failed | Stopped | Note
ObservedLine = Seen | NodeSeen
HealthLine = Gap | Beat | Skew | Load | Note
_ENCODER = msgspec.json.Encoder()


def line(record: msgspec.Struct) -> bytes:
    """One line of a file."""
    return _ENCODER.encode(record) + b"\n"


def read(path: Path, kind: Any) -> Iterator[Any]:
    """The lines of a file, in order; none when it is not there.

    Parameters
    ----------
    kind
        `JournalLine`, `ObservedLine` or `HealthLine`.

    Raises
    ------
    InputError
        A line that is not the last one is no such record.
    """
    if not path.is_file():
        return
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        yield from _records(file, decoder, path)


def _records(file: IO[bytes], decoder: Any, path: Path) -> Iterator[Any]:
    number = 0
    while text := file.readline(MOST_LINE_BYTES):
        number += 1
        if not text.endswith(b"\n"):
            if file.read(1):
                raise InputError(
                    "a line is too long", where=f"{path}, line {number}", allowed=f"{MOST_LINE_BYTES} bytes"
                )
            return  # cut by a kill
        try:
            yield decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                "not a record of a scale test", where=f"{path}, line {number}", found=str(error)[:200]
            ) from None
