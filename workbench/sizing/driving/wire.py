"""What the sweep and the client's processes say to each other: plain structures, each a frame of MessagePack."""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

from workbench.sizing.driving.prompts import Prompts

MAX_FRAME_BYTES = 1 << 30
_LENGTH = struct.Struct(">I")


class Target(msgspec.Struct, frozen=True):
    """What is driven: enough for a process to open it. Headers are names of environment variables, never values."""

    protocol: Literal["nat", "openai", "http", "function"]
    url: str = ""
    function: str = ""
    timeout_s: float = 300.0
    header_env: dict[str, str] = {}
    max_answer_bytes: int = 8 << 20
    model: str = ""
    output_tokens: int | None = None
    extra_body: bytes = b"{}"
    method: str = "POST"
    body: bytes | None = None
    answer_at: str | None = None
    input_tokens_at: str | None = None
    output_tokens_at: str | None = None


class Load(msgspec.Struct, frozen=True):
    """A step's load, the same for all processes that share it; `share` of `shares` is what a process takes of it."""

    step: int
    loop: Literal["closed", "open"]
    seed: int
    users: int = 0
    think_s: float = 0.0
    ramp_s: float = 0.0
    rate_per_s: float = 0.0
    arrivals: Literal["users", "poisson", "constant", "trace"] = "users"
    trace_s: list[float] = []
    max_in_flight: int = 4096
    retries: int = 0
    share: int = 0
    shares: int = 1


class Open(msgspec.Struct, tag=True):
    """First of all: what to drive, with what."""

    target: Target
    prompts: Prompts


class Begin(msgspec.Struct, tag=True):
    """Hold a load; times count from `base`, on the clock that all processes share. `allowance`: requests at most."""

    load: Load
    base: float
    allowance: int | None = None


class Tail(msgspec.Struct, tag=True):
    """What is sent from now on only keeps the load on."""


class Stop(msgspec.Struct, tag=True):
    """Send nothing more; say `Drained` once all that is in flight has ended. `now`: do not wait for it."""

    now: bool = False


class Ready(msgspec.Struct, tag=True):
    """The target is open."""


class Rows(msgspec.Struct, tag=True):
    """Requests that ended, in the order of their ends."""

    requests: list[Request]
    in_flight: int
    kept_open: int
    tail_begun: bool
    exhausted: bool


class Drained(msgspec.Struct, tag=True):
    """The step is over for this process: how late its loop was, how much of a core it used."""

    lags_s: list[float]
    cpu_share: float
    failures: list[tuple[str, int]]
    simulated: bool = False


class Broken(msgspec.Struct, tag=True):
    """The process cannot go on; nothing to do with the service."""

    what: str
    facts: dict[str, str | None] = {}


class Request(msgspec.Struct, array_like=True, gc=False):
    """A request that ended; times since the step's base, in s."""

    item: int
    intended_s: float
    sent_s: float
    ended_s: float
    outcome: str
    status: int | None
    retries: int
    first_token_s: float | None
    itl_s: float | None
    llm_s: list[float] | None
    server_runtime_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    tail: bool


Command = Open | Begin | Tail | Stop
Report = Ready | Rows | Drained | Broken
_encoder = msgspec.msgpack.Encoder()
_command = msgspec.msgpack.Decoder(Command)
_report = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """A message with its length before it."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def length(head: bytes) -> int:
    """How many bytes follow these four."""
    found: int = _LENGTH.unpack(head)[0]
    if found > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {found} bytes")
    return found


def command(body: bytes) -> Command:
    """A command in a frame's body."""
    found: Command = _command.decode(body)
    return found


def report(body: bytes) -> Report:
    """A report in a frame's body."""
    found: Report = _report.decode(body)
    return found
