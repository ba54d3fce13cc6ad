"""Blocks of bytes into lines."""

from __future__ import annotations

import random

from workbench.scaletest.cluster_api.connection import TOO_LONG, LineSplitter


def test_lines_are_the_same_however_the_bytes_come() -> None:
    draws = random.Random(8)
    lines = [draws.randbytes(draws.randrange(1, 200)).replace(b"\n", b"x") for _ in range(200)]
    text = b"".join(line + b"\n" for line in lines)
    for size in (1, 7, 64, len(text)):
        splitter, found = LineSplitter(), list[bytes]()
        for begin in range(0, len(text), size):
            found += splitter.split(text[begin : begin + size])
        assert found == lines


def test_what_has_no_end_is_no_line() -> None:
    splitter = LineSplitter()
    assert splitter.split(b"a\nhalf") == [b"a"]
    assert splitter.split(b" of it") == []
    assert splitter.split(b"\n\n\n") == [b"half of it"]


def test_a_line_that_is_too_long_is_said_and_not_kept() -> None:
    splitter = LineSplitter(10)
    assert splitter.split(b"0123456789\n") == [b"0123456789"]
    assert splitter.split(b"012345") == []
    assert splitter.split(b"6789a") == []
    assert splitter._parts == []
    found = splitter.split(b"bc\nnext\n")
    assert found[0] is TOO_LONG
    assert found[1:] == [b"next"]
