"""Times and tokens of one stream: what its events and its text tell, held against the server's count."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from workbench.sizing.load.client_messages import (
    BUFFERED,
    BURSTS,
    CHOICES,
    FEWER,
    HIDDEN,
    SEVERAL,
    UNCLEAR,
    UNCOUNTED,
    UNSTREAMED,
    find_longest_gap_s,
)

# A server's count and the events differ by this share at most where each event is a token.
MAX_COUNT_GAP = 0.05
# More tokens than pieces of text may be parts of words, or tokens that were not streamed: where the server does not
# say, only a count that the pieces account for is taken, each of which is a token at least.
MAX_TOKENS_A_PIECE = 1.05
# Events of so many pieces of text, on average, may hold several tokens; those of one token hold about one piece.
MIN_SEVERAL_PIECES = 1.3
# The mean token of a text is shorter: 4 letters in English, 6 in words that are tokens each.
MAX_TOKEN_LETTERS = 8
# A token holds so many letters of a script without blanks at most, on average.
MAX_UNSPACED_LETTERS = 4
# A text with so many more pieces than a server counts tokens was not counted by tokens.
MIN_PIECES_A_TOKEN = 1.5
# Shares of the text by bytes and by words agree so far where they tell the tokens of the first read.
MAX_SHARE_GAP = 0.03
# Events that came with the first one may have been held back: by so much of the time to the first token at most.
MAX_HELD_SHARE = 0.05
# Speculative decoding gives so many tokens at one moment at most, and not equally many each time, as a buffer does.
MAX_BURST_EVENTS = 10

# Thai to Khmer, Chinese, Japanese, Korean, full-width signs, pictures: a sign is a piece, since no blank divides them.
_UNSPACED = (
    r"\u0e00-\u0fff\u1000-\u11ff\u1780-\u17ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef"
    r"\U0001f000-\U0003ffff"
)
_SIGNS = r"!-/:-@\[-`{-~"
_UNSPACED_PATTERN = re.compile(f"[{_UNSPACED}]")
# A word with at most one sign before it, or signs: tokens of byte-pair encodings do not reach beyond such a piece.
_PIECE_PATTERN = re.compile(rf"[{_SIGNS}]?[^\s{_SIGNS}{_UNSPACED}]+|[{_SIGNS}]+")


@dataclass(frozen=True)
class StreamTiming:
    """Times of one stream; null where it does not tell, with `note` of `STREAM_NOTES`."""

    first: float | None = None
    first_output: float | None = None
    longest_gap_s: float | None = None
    itl_s: float | None = None
    streamed_tokens: int | None = None
    later_tokens: float | None = None
    event_tokens: float | None = None
    note: str | None = None


class _Event(NamedTuple):
    """An event with tokens; `text` is null where it holds something else, such as audio."""

    text: str | None
    read: float
    choice: int
    is_output: bool


class EventTimes:
    """Events of one stream: how many, their text, and when they were read; events of one read share its time."""

    def __init__(self) -> None:
        self._events: list[_Event] = []

    @property
    def n_events(self) -> int:
        """Number of output events."""
        return len(self._events)

    def add_event(self, text: str | None, now: float, choice: int = 0, *, is_output: bool = True) -> None:
        """Add an event with tokens, read at this time; reasoning is no output.

        `choice`: The answer that it belongs to, of several.
        """
        self._events.append(_Event(text, now, choice, is_output))

    def measure(self, sent: float, counted: int | None = None, hidden: int | None = None) -> StreamTiming:
        """Times between tokens, and to the first one.

        Parameters
        ----------
        sent
            When the request was sent.
        counted
            Tokens by the server's count; null without one.
        hidden
            Those of them that it says it did not stream; null if it does not say.
        """
        if not self._events:
            return StreamTiming()
        texts = _EventTexts([event.text for event in self._events])
        streamed, note = texts.count_streamed(counted, hidden)
        told = None if counted is None else counted - (hidden or 0)
        shown = told if note in (HIDDEN, UNSTREAMED) else streamed or told
        n_tokens = max(texts.n_pieces, self.n_events) if note == UNCOUNTED else shown or 0
        timing = StreamTiming(streamed_tokens=streamed, event_tokens=n_tokens / self.n_events or None, note=note)
        return self._add_times(timing, sent)

    def _add_times(self, timing: StreamTiming, sent: float) -> StreamTiming:
        """Add what the times of reading tell."""
        reads = self._group_reads()
        n_choices, streamed = len(reads), timing.streamed_tokens
        span_s = sum(times[-1] - times[0] for times in reads.values())
        at_first = [event.read == reads[event.choice][0] for event in self._events]
        n_first, first = sum(at_first), min(times[0] for times in reads.values())
        first_output = next((event.read for event in self._events if event.is_output), None)
        if not span_s:
            if self.n_events == n_choices and (streamed or n_choices) <= n_choices:
                return replace(timing, first=first, first_output=first_output, later_tokens=0.0)
            return replace(timing, note=_join_buffered(timing))
        later = None if streamed is None else self._count_later_tokens(streamed, at_first)
        timing = replace(
            timing,
            longest_gap_s=max(filter(None, map(find_longest_gap_s, reads.values())), default=None),
            itl_s=span_s / later if later and later > 0 else None,
            later_tokens=None if later is None else later / n_choices,
        )
        held_s = (n_first / n_choices - 1) * span_s / (self.n_events - n_first)
        is_held = held_s > MAX_HELD_SHARE * (first - sent)
        if is_held and not self._comes_in_bursts():
            return replace(timing, note=_join_buffered(timing))
        several = CHOICES if n_choices > 1 else BURSTS if is_held else timing.note
        note = several if timing.note in (None, SEVERAL) else timing.note
        return replace(timing, first=first, first_output=first_output, note=note)

    def _group_reads(self) -> dict[int, list[float]]:
        """Times of the events by choice."""
        reads: dict[int, list[float]] = {}
        for event in self._events:
            reads.setdefault(event.choice, []).append(event.read)
        return reads

    def _comes_in_bursts(self) -> bool:
        """Whether a few events come at one moment, and not equally many each time."""
        sizes = list(Counter(event.read for event in self._events).values())
        return max(sizes) <= MAX_BURST_EVENTS and len(set(sizes[:-1])) > 1

    def _count_later_tokens(self, streamed: int, at_first: list[bool]) -> float | None:
        """Tokens after the first read: a token an event, or their share of the text; null where that is not sure."""
        if _agree(streamed, self.n_events):
            return float(streamed - sum(at_first))
        texts = [event.text or "" for event in self._events]
        first_texts = list(itertools.compress(texts, at_first))
        n_bytes, n_words = _count_bytes(texts), _count_words(texts)
        if not n_bytes or not n_words:
            return None
        by_bytes = streamed * (1 - _count_bytes(first_texts) / n_bytes)
        by_words = streamed * (1 - _count_words(first_texts) / n_words)
        return by_words if abs(by_bytes - by_words) <= MAX_SHARE_GAP * by_words else None


def _join_buffered(timing: StreamTiming) -> str:
    return UNCLEAR if timing.streamed_tokens is None else BUFFERED


class _EventTexts:
    """Texts of the events of one stream, which bound the tokens in them; null for those that hold no text."""

    def __init__(self, texts: list[str | None]) -> None:
        self._texts = [text for text in texts if text is not None]
        self._n_events = len(texts)
        self._is_text = len(self._texts) == len(texts)

    @cached_property
    def n_pieces(self) -> float:
        """Pieces of all events; no piece reaches from one event into the next."""
        return estimate_text_tokens("\n".join(self._texts))

    def count_streamed(self, counted: int | None, hidden: int | None) -> tuple[int | None, str | None]:
        """Number of tokens that were streamed, null if unknown, and a note where it differs from a token an event."""
        if counted is None:
            return self._count_by_text()
        streamed = counted - (hidden or 0)
        if _agree(counted, self._n_events) and not _agree(streamed, self._n_events):
            streamed = counted  # what it calls reasoning was streamed as text
        if self._is_text and streamed * MIN_PIECES_A_TOKEN < self._count_least():
            return None, FEWER
        if _agree(streamed, self._n_events):
            return streamed, None
        if streamed < self._n_events:
            return None, FEWER
        if self._is_text and streamed > _count_bytes(self._texts):
            by_text, _ = self._count_by_text()
            return (None, HIDDEN) if by_text is None else (by_text, UNSTREAMED)
        n_divided = len(_PIECE_PATTERN.findall("\n".join(self._texts)))
        is_likely = streamed <= MAX_TOKENS_A_PIECE * n_divided
        return (streamed, SEVERAL) if hidden is not None or is_likely else (None, HIDDEN)

    def _count_by_text(self) -> tuple[int | None, str | None]:
        """A token an event, where no event seems to hold several."""
        is_sure = self._is_text and self.n_pieces < MIN_SEVERAL_PIECES * self._n_events
        return (self._n_events, None) if is_sure else (None, UNCOUNTED)

    def _count_least(self) -> float:
        """Tokens that the whole text holds at least."""
        text = "".join(self._texts)
        return len(_PIECE_PATTERN.findall(text)) + len(_UNSPACED_PATTERN.findall(text)) / MAX_UNSPACED_LETTERS


def estimate_text_tokens(text: str) -> float:
    """Pieces of a text that are about a token each, or more: words, signs between them, letters of other scripts.

    >>> [estimate_text_tokens(text) for text in (" quick", " quick brown", "x[i]+=f(y);", "天地玄黄", "thirty-two", "")]
    [1.0, 2.0, 6.0, 4.0, 2.0, 0.0]
    """
    n_pieces = len(_PIECE_PATTERN.findall(text)) + len(_UNSPACED_PATTERN.findall(text))
    return float(max(n_pieces, len("".join(text.split())) / MAX_TOKEN_LETTERS))


def _agree(tokens: int, n_events: int) -> bool:
    return abs(tokens - n_events) <= max(1, MAX_COUNT_GAP * n_events)


def _count_bytes(texts: Iterable[str]) -> int:
    return sum(len(text.encode(errors="replace")) for text in texts)


def _count_words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)
