"""What came of one attempt to make one object, and what it means."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from workbench.scaletest import names
from workbench.scaletest.planned import Request
from workbench.scaletest.times import NS

Meaning = Literal["made", "exists", "throttled", "again", "refused"]
MOST_REASON = 300
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Metadata(msgspec.Struct):
    """What is read of an object."""

    name: str = ""
    uid: str | None = None
    creationTimestamp: str | None = None  # noqa: N815 - Kubernetes' word
    deletionTimestamp: str | None = None  # noqa: N815
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def run(self) -> str | None:
        """The run that it says to belong to."""
        return (self.labels or {}).get(names.RUN)

    @property
    def spec_hash(self) -> str | None:
        """The hash that it was made with."""
        return (self.annotations or {}).get(names.SPEC_HASH)


class Object(msgspec.Struct):
    """An object as far as it is read."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


OBJECT = msgspec.json.Decoder(Object)


@dataclass(frozen=True, slots=True)
class Reply:
    """An attempt's end.

    Attributes
    ----------
    sent_ns, done_ns
        Client's times of begin and end.
    status
        HTTP status; 0 where a program did it and says no more than that it went well; null without any.
    reason
        Kubernetes' word, such as AlreadyExists.
    message
        What the server or program said, cleaned and cut.
    retry_after_s
        What the server asks us to wait.
    verdict
        What is to be done where the status does not say it.
    """

    sent_ns: int
    done_ns: int
    status: int | None
    found: Metadata = field(default_factory=Metadata)
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None
    verdict: Meaning | None = None

    @property
    def duration_s(self) -> float:
        """From begin to end."""
        return (self.done_ns - self.sent_ns) / NS

    @property
    def meaning(self) -> Meaning:
        """What is to be done about it."""
        return self.verdict or meaning(self.status, self.reason)


class Submitter(Protocol):
    """A way of making objects.

    Attributes
    ----------
    mode
        How journal and record name it.
    labelled
        Whether the objects are made as planned, with our labels; a program of others makes its own.
    """

    mode: str
    labelled: bool

    async def make(self, request: Request, *, timeout_s: float) -> Reply:
        """Make one object; never raises for what the server or the program does."""


def meaning(status: int | None, reason: str) -> Meaning:
    """What an answer to a POST means.

    A 409 is either the object's name being taken, or two writers of the same quota: the latter is tried again. A 401
    is tried again, since tokens are renewed before each request.

    Examples
    --------
    >>> [meaning(201, ""), meaning(409, "AlreadyExists"), meaning(409, "Conflict"), meaning(422, "Invalid")]
    ['made', 'exists', 'again', 'refused']
    >>> [meaning(429, "TooManyRequests"), meaning(503, ""), meaning(None, "")]
    ['throttled', 'again', 'again']
    """
    if status is None or status >= 500 or status in (401, 408):
        return "again"
    if status == 0 or 200 <= status < 300:
        return "made"
    if status == 429:
        return "throttled"
    if status == 409:
        return "exists" if reason == "AlreadyExists" else "again"
    return "refused"


def pause_s(attempt: int, draw: random.Random) -> float:
    """How long to wait after the n-th failure (from 1): doubling up to 5 s, half of it by chance.

    Examples
    --------
    >>> 0.05 <= pause_s(1, random.Random(1)) <= 0.1, 2.5 <= pause_s(30, random.Random(1)) <= 5
    (True, True)
    """
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return longest * (0.5 + draw.random() / 2)


def retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header; null where there is none (a date, which Kubernetes never sends, is none).

    Examples
    --------
    >>> [retry_after("1"), retry_after("2.5"), retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), retry_after("-1")]
    [1.0, 2.5, None, None]
    """
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < float("inf") else None


def shown(text: str) -> str:
    """A foreign text on one line, cut."""
    return " ".join(text.split())[:MOST_REASON]
