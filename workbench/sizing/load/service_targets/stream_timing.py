"""What the arrival of a stream's events tells: time to first token, time between tokens, and what it does not tell.

Tokens are not seen, only events in reads of the connection. A proxy may hold events back and let them go together, a
server may put several tokens into an event, or count tokens that it never streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.sizing.load.client_messages import BUFFERED, HIDDEN, SEVERAL, UNCOUNTED

# A server's count and the events differ by this share at most where each event is a token.
MAX_COUNT_GAP = 0.05
# An event of so many words holds several tokens. More tokens than words may be pieces of words, or tokens that were not
# streamed: where the server does not say, only a count that its words account for is taken.
MIN_SEVERAL_WORDS, MAX_TOKENS_PER_WORD = 1.5, 1.05
# Shares of the text by bytes and by words agree so far where they tell the tokens of the first read.
MAX_SHARE_GAP = 0.03
# Events that came with the first one may have been held back: by so much of the time to the first token at most.
MAX_HELD_SHARE = 0.05


@dataclass(frozen=True)
class StreamTiming:
    """Times of one stream; null where it does not tell, with `note` of `STREAM_NOTES`."""

    first: float | None = None
    itl_s: float | None = None
    streamed_tokens: int | None = None
    later_tokens: float | None = None
    event_tokens: float | None = None
    note: str | None = None


class EventTimes:
    """Events of one stream: how many, how much text, and when they were read; events of one read share its time."""

    def __init__(self) -> None:
        self.n_events = self.n_bytes = self.n_words = 0
        self.first: float | None = None
        self.last: float | None = None
        self._first_events = self._first_bytes = self._first_words = 0

    def add_event(self, text: str, now: float) -> None:
        """An event with tokens, read at this time."""
        size = len(text.encode(errors="replace"))
        self.n_events += 1
        self.n_bytes += size
        self.n_words += len(text.split())
        self.first = now if self.first is None else self.first
        self.last = now
        if now == self.first:
            self._first_events += 1
            self._first_bytes += size
            self._first_words += len(text.split())

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
        if self.first is None or self.last is None:
            return StreamTiming()
        streamed, note = self._count_streamed(counted, hidden)
        per_event = (self.n_words if note == UNCOUNTED else streamed or counted or 0) / self.n_events or None
        if self.last == self.first:
            is_one_token = self.n_events == 1 and (streamed or 1) < 2
            if is_one_token:
                return StreamTiming(self.first, None, streamed, 0.0, per_event, note)
            return StreamTiming(streamed_tokens=streamed, event_tokens=per_event, note=BUFFERED)
        later = None if streamed is None else self._count_later_tokens(streamed)
        itl_s = (self.last - self.first) / later if later and later > 0 else None
        held_s = (self._first_events - 1) * (self.last - self.first) / (self.n_events - self._first_events)
        if held_s > MAX_HELD_SHARE * (self.first - sent):
            return StreamTiming(None, itl_s, streamed, later, per_event, BUFFERED)
        return StreamTiming(self.first, itl_s, streamed, later, per_event, note)

    def _count_streamed(self, counted: int | None, hidden: int | None) -> tuple[int | None, str | None]:
        """Tokens that were streamed, and a note where that is not one an event."""
        words = self.n_words / self.n_events
        if counted is None:
            return (None, UNCOUNTED) if words >= MIN_SEVERAL_WORDS else (self.n_events, None)
        streamed = counted - (hidden or 0)
        if abs(streamed - self.n_events) <= max(1, MAX_COUNT_GAP * self.n_events):
            return streamed, None
        if streamed < self.n_events:
            return (streamed, None) if streamed > 0 else (None, HIDDEN)
        is_told = hidden is not None
        is_likely = words >= MIN_SEVERAL_WORDS and streamed <= MAX_TOKENS_PER_WORD * self.n_words
        return (streamed, SEVERAL) if is_told or is_likely else (None, HIDDEN)

    def _count_later_tokens(self, streamed: int) -> float | None:
        """Tokens after the first read: a token an event, or their share of the text; null where that is not sure."""
        if abs(streamed - self.n_events) <= max(1, MAX_COUNT_GAP * self.n_events):
            return float(streamed - self._first_events)
        if not self.n_bytes or not self.n_words:
            return None
        by_bytes = streamed * (1 - self._first_bytes / self.n_bytes)
        by_words = streamed * (1 - self._first_words / self.n_words)
        return by_words if abs(by_bytes - by_words) <= MAX_SHARE_GAP * by_words else None
