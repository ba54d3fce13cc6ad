"""Lines of a stream, whatever chunks it comes in, within a bound."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.sizing.load.client_messages import MalformedAnswerError
from workbench.sizing.load.service_targets.http_target import LineSplitter


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def fed(lines: LineSplitter, chunks: list[bytes]) -> list[bytes]:
    return [line for chunk in chunks for line in lines.add_chunk(chunk)]


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b and b"\r" not in b)), st.lists(st.integers(0)))
def test_lines_are_the_same_however_the_stream_is_cut(wanted: list[bytes], places: list[int]) -> None:
    lines = LineSplitter(21)
    text = b"".join(line + b"\r\n" for line in wanted) + b"rest"
    assert [line for chunk in cut(text, places) for line in lines.add_chunk(chunk)] == wanted
    assert lines.take_rest() == b"rest"


def test_a_line_of_five_megabytes_is_read_in_small_chunks() -> None:
    lines = LineSplitter(8 << 20)
    text = b"x" * 5_000_000 + b"\n"
    found = [line for at in range(0, len(text), 65_536) for line in lines.add_chunk(text[at : at + 65_536])]
    assert [len(line) for line in found] == [5_000_000]


@pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x" * 10, b"x"], [b"a\n" + b"x" * 11 + b"\nb"]])
def test_a_longer_line_is_refused_as_soon_as_it_is_too_long(chunks: list[bytes]) -> None:
    with pytest.raises(MalformedAnswerError, match="a line of more than 10 bytes"):
        fed(LineSplitter(10), chunks)


def test_what_is_held_never_exceeds_the_bound() -> None:
    lines = LineSplitter(100)
    with pytest.raises(MalformedAnswerError):
        fed(lines, [b"12345"] * 1000)
    assert lines._held_bytes <= 105
