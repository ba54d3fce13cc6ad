"""What came of one request, by the client's clock; and how failures are told from each other."""

from __future__ import annotations

import time

import msgspec

clock = time.perf_counter
"""The one clock of the client: monotonic, and the same in all processes of a machine."""

MAX_DETAIL = 200


class Reply(msgspec.Struct):
    """How one request ended.

    Attributes
    ----------
    outcome
        One of `OUTCOMES` in `workbench/sizing/tables.py`.
    ended
        When its last byte came or it failed, on `clock`.
    status
        HTTP status; null where there is none.
    first_token
        When the first token of the answer came, on `clock`; null where answers come whole.
    itl_s
        Mean time between output tokens; null with fewer than two.
    llm_s
        Duration of each model call in it; null if unknown.
    server_runtime_s
        Runtime by the server's own clock; null where it tells none.
    detail
        The failure in a few words, as the server or the system put them.
    """

    outcome: str
    ended: float
    status: int | None = None
    first_token: float | None = None
    itl_s: float | None = None
    llm_s: list[float] | None = None
    server_runtime_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    detail: str | None = None


class MalformedAnswerError(Exception):
    """The answer does not parse, or is larger than what is read of one."""


class CutAnswerError(Exception):
    """The answer ended before its end."""


class FailedAnswerError(Exception):
    """The service says itself that it failed."""


def brief(text: object) -> str:
    """A detail short enough to be kept: one line, no controls."""
    words = " ".join(str(text)[: 4 * MAX_DETAIL].split())
    return "".join(sign for sign in words if sign.isprintable())[:MAX_DETAIL]


def token_gap_s(first: float | None, last: float | None, tokens: int | None) -> float | None:
    """Mean time between tokens, from the arrival of the first and of the last one.

    Examples
    --------
    >>> token_gap_s(10.0, 11.0, 5), token_gap_s(10.0, 10.0, 1)
    (0.25, None)
    """
    if first is None or last is None or tokens is None or tokens < 2:
        return None
    return (last - first) / (tokens - 1)
