"""JSON-line files of a run (journal, observations, health): their records, which are written and read here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.core import files, journal
from workbench.core.errors import InputError
from workbench.core.journal import Journal, LineTail
from workbench.scaletest.cluster_api.connection import now_ns

JOURNAL = "journal.jsonl"
OBSERVED = "observed.jsonl"
HEALTH = "health.jsonl"
_ENCODER = msgspec.json.Encoder()
MAX_NOTES = 1000
CONDITIONS_FILE = "test.json"
SCENARIO_FILE = "scenario.yaml"
# `provider` of an imported run, which has its own milestones and no observations.
IMPORTED = "imported"
_MAX_BYTES = 4 << 20
_ON_FULL_DISK = "free some space and resume in the same folder: earlier lines are intact"


class Begun(msgspec.Struct, tag_field="type", tag="begun", omit_defaults=True):
    """Start or resumption of a submission. `origin_ns` is the start of the run, to which due times are relative."""

    run: str
    at_ns: int
    origin_ns: int
    resumed: bool = False
    mode: str = "api"  # api, kubectl or command


class Intent(msgspec.Struct, tag_field="type", tag="intent", omit_defaults=True):
    """Intent to send a workload; on disk before the request is sent."""

    index: int
    at_ns: int


class Acked(msgspec.Struct, tag_field="type", tag="acked", omit_defaults=True):
    """Accepted by the API server. `status` 201, or 409 with the run's own hash: created before a crash (`known`)."""

    index: int
    sent_ns: int  # first attempt
    at_ns: int
    status: int
    uid: str | None = None
    created: str | None = None  # creationTimestamp, unparsed
    attempts: int = 1
    throttled: int = 0  # 429 responses before it
    throttled_ns: int = 0  # wait time because of them
    known: bool = False


class Failed(msgspec.Struct, tag_field="type", tag="failed", omit_defaults=True):
    """Failed: refused permanently, or retries exhausted. `status` null without a response."""

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
    """First occurrence of a transition of one incarnation (uid) of an object.

    resource
        workload, job, pod, podgroup, bindrequest, pvc, event, audit, node.
    transition
        created, scheduled, unschedulable, bound, running, ready, succeeded, failed, deleted, evicted, admitted,
        suspended, pvc-requested, pvc-bound, … (the state's name in lower case).
    server
        Server timestamp, unparsed; null if the object has none.
    workload
        Name of its workload, by label; null if only the owner reference identifies it.
    owner
        uid of its controller; of an event or a BindRequest the uid (or, with `owner_name`, the name) of its subject.
    gap
        The watch was disconnected: the transition happened between the last event before and `arrival_ns`.
    asks
        Of a pod's creation: what it asks a node for, as `format_amounts` writes it.
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
    asks: str | None = None


class Held(msgspec.Struct, tag_field="type", tag="held", omit_defaults=True):
    """What a pod that is not of this run asks for, when it changes: waiting, bound or gone.

    run
        Run id, where it is of another test; null for all others.
    """

    uid: str
    namespace: str
    arrival_ns: int
    state: str
    asks: str = ""
    node: str | None = None
    run: str | None = None


class Gap(msgspec.Struct, tag_field="type", tag="gap", omit_defaults=True):
    """A watch was disconnected between these times: end of stream, expired (410), or server unreachable."""

    resource: str
    from_ns: int
    to_ns: int
    reason: str
    relisted: bool = False
    recovered: int = 0  # transitions found after the reconnect


class Beat(msgspec.Struct, tag_field="type", tag="beat", omit_defaults=True):
    """An update of the heartbeat: sent, acknowledged, and observed by the watch (null: not within the timeout)."""

    sent_ns: int
    acked_ns: int
    seen_ns: int | None = None


class Skew(msgspec.Struct, tag_field="type", tag="skew", omit_defaults=True):
    """Bounds of the clock offset (server minus client) from `probes` Date headers; low > high: servers disagree."""

    at_ns: int
    low_ns: int
    high_ns: int
    probes: int


class Load(msgspec.Struct, tag_field="type", tag="load", omit_defaults=True):
    """CPU and memory use of the sampler, and CPU use of the machine, since the previous line."""

    at_ns: int
    sampler_cpu_s: float
    sampler_rss_bytes: int
    # Shares of all cores: in use, and by whom; null where it is not known.
    host_busy: float | None = None
    client: float | None = None  # submitter and sampler
    side: float | None = None  # components of a local cluster
    others: float | None = None


class Pressure(msgspec.Struct, tag_field="type", tag="pressure", omit_defaults=True):
    """A component's own figure since the look before.

    measure
        See `component_metrics.MEASURES`.
    count, value, p99
        Of a histogram: how many, their mean, and an upper bound of their p99 (null beyond the last bucket). Of a
        counter: how many. Of a gauge: its value.
    """

    at_ns: int
    over_s: float
    component: str
    measure: str
    subject: str = ""
    count: int | None = None
    value: float | None = None
    p99: float | None = None


class NodeSeen(msgspec.Struct, tag_field="type", tag="node", omit_defaults=True):
    """State of a node: at the start, and when its readiness, cordon or allocatable resources change."""

    name: str
    arrival_ns: int
    ready: bool
    gpus: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    pods: int = 0
    simulated: bool = False
    cordoned: bool = False
    labels: dict[str, str] = {}
    offers: str = ""  # all allocatable resources, as `format_amounts` writes them


class Note(msgspec.Struct, tag_field="type", tag="note", omit_defaults=True):
    """Note for the report; `spoils` makes the run invalid."""

    at_ns: int
    text: str
    spoils: bool = False


JournalLine = Begun | Intent | Acked | Failed | Stopped | Note
ObservedLine = Seen | NodeSeen | Held
HealthLine = Gap | Beat | Skew | Load | Pressure | Note


def format_amounts(amounts: dict[str, float]) -> str:
    """Write amounts of resources as one text, so that equal ones are equal.

    >>> format_amounts({"nvidia.com/gpu": 1.0, "cpu": 0.5})
    'cpu=0.5,nvidia.com/gpu=1'
    """
    return ",".join(f"{name}={amount:.12g}" for name, amount in sorted(amounts.items()) if amount)


def parse_amounts(text: str) -> dict[str, float]:
    """Read what `format_amounts` wrote.

    >>> parse_amounts("cpu=0.5,nvidia.com/gpu=1")
    {'cpu': 0.5, 'nvidia.com/gpu': 1.0}
    """
    return {name: float(amount) for name, amount in (part.rsplit("=", 1) for part in text.split(",") if part)}


def encode_line(record: msgspec.Struct) -> bytes:
    """Encode a record as a line."""
    return _ENCODER.encode(record) + b"\n"


def read_lines(path: Path, kind: Any) -> Iterator[Any]:
    """Read the records of a file, in order; none if the file does not exist."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in journal.read_lines(path):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            where = f"{path}, line {number}"
            raise InputError("not a record of a scale test", where=where, found=str(error)[:200]) from None


def follow_lines(path: Path, kind: Any) -> LineTail[Any]:
    """The records of a file that grows, as they are added."""
    return LineTail(path, msgspec.json.Decoder(kind).decode)


def open_observations(path: Path) -> Journal[msgspec.Struct]:
    """Open a file of a sampler for more lines."""
    return Journal(path, encode_line, noun="observations", do=_ON_FULL_DISK)


class RunFiles:
    """Observation and health files of a run."""

    def __init__(self, folder: Path) -> None:
        self.observed = open_observations(folder / OBSERVED)
        self.health = open_observations(folder / HEALTH)
        self._notes = 0

    def note(self, text: str, *, spoils: bool = False) -> None:
        """Write a note; the number of notes is limited, and the last one says so."""
        self._notes += 1
        if self._notes > MAX_NOTES:
            return
        if self._notes == MAX_NOTES:
            text = f"more than {MAX_NOTES} notes: the rest is not recorded"
        self.health.put(Note(at_ns=now_ns(), text=text[:1000], spoils=spoils))

    def flush(self) -> None:
        """Write both files to disk."""
        self.observed.flush()
        self.health.flush()

    def close(self) -> None:
        """Write the rest and close both files."""
        try:
            self.observed.close()
        finally:
            self.health.close()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Component(_Strict):
    """A component of the control plane, as far as its configuration is known.

    `client_qps`, `client_burst`: Client-side rate limit; None if unknown. Defaults of Kubernetes: controller-manager
    20/30, scheduler 50/100.
    """

    name: str
    version: str | None = None
    client_qps: float | None = None
    client_burst: int | None = None
    arguments: dict[str, str] = {}


class RunConditions(_Strict):
    """Identity and conditions of a scale test.

    `identity_groups`: Groups of the measuring identity (priority and fairness exempts system:masters).
    `in_turn`: Some pods are created only when others of their workload end (Jobs with completions above parallelism).
    `node_changes`: Nodes that were to fail, to be drained and to come back, each in words.
    `replay_speed`: Seconds of a trace in a second of the test, where jobs of a trace are replayed.
    `beside_others`: Room that others hold is accepted: it is told, and does not make the run invalid.
    """

    run: str
    scenario_name: str
    scenario_sha256: str
    created_at: str
    context: str
    fingerprint: str
    server_sha256: str
    server_version: str
    identity: str = ""
    identity_groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...]
    schedulers: tuple[str, ...]
    simulated_nodes: bool
    local_cluster: str | None = None
    provider: str | None = None
    components: tuple[Component, ...] = ()
    mode: str = Field("api", pattern="^(api|kubectl|command)$")
    closed: bool = False
    watches_pods_of_others: bool = False
    reads_audit_log: bool = False
    in_turn: bool = False
    replay_speed: float | None = Field(default=None, gt=0)
    queue_quotas: dict[str, int] = Field(default={})
    node_changes: tuple[str, ...] = ()
    beside_others: bool = False
    notes: tuple[str, ...] = ()


def write_conditions(folder: str | Path, test: RunConditions) -> Path:
    """Write `test.json` atomically."""
    return files.write_text(Path(folder) / CONDITIONS_FILE, test.model_dump_json(indent=1) + "\n")


def read_conditions(folder: str | Path) -> RunConditions:
    """Read `test.json` of a run folder."""
    path = Path(folder) / CONDITIONS_FILE
    if not path.is_file():
        raise InputError(
            "not a folder of a scale test",
            where=folder,
            found=f"no {CONDITIONS_FILE}",
            do="name the folder that `workbench scaletest run` wrote",
        )
    try:
        return RunConditions.model_validate_json(files.read_up_to(path, _MAX_BYTES))
    except ValidationError as error:
        faults: list[Any] = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]]
        raise InputError("not a record of a scale test", where=path, found=faults) from None
