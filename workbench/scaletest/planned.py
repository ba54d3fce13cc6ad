"""A workload as it will be sent: what the plan gives to the submitter, and nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One object to be made: `POST path` with this JSON body."""

    path: str  # such as /apis/batch/v1/namespaces/ns/jobs
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Planned:
    """One workload: due so long after the start, made by one or more requests in order (a gang: PodGroup, then pods).

    The last request is the one whose answer counts as the workload's acknowledgement. `requests` makes the bodies when
    they are needed: 100,000 of them at once would not fit.
    """

    index: int
    name: str
    namespace: str
    due_s: float
    spec_sha256: str
    requests: Callable[[], tuple[Request, ...]]
