"""Printed text as JupyterLab shows it, bounded, and in time linear in its length (counted by what is copied)."""

from __future__ import annotations

import random

import pytest

from tests.worlds.notebooks import draw_screen
from workbench.execution import stream_text
from workbench.execution.stream_text import StreamText, apply_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\r\r\nc", "a\nb\nc"),
        ("10 %\r20 %\r100 %\n", "100 %\n"),
        ("long line\rab\n", "abng line\n"),
        ("abc\b\bX", "aX"),
        ("\b\ba", "a"),
        ("one\ntwo\r", "one\ntwo"),
        ("", ""),
    ],
)
def test_a_text_is_shown_as_a_terminal_shows_it(text: str, shown: str) -> None:
    whole = StreamText(text)
    assert whole.join() == shown
    pieces = StreamText()
    for sign in text:
        pieces.append(sign)
    assert pieces.join() == shown


def test_overwriting_is_what_a_screen_of_cells_does() -> None:
    draw = random.Random(5)
    for _ in range(300):
        text = "".join(draw.choice("ab\r\n") for _ in range(30))
        assert apply_controls(text).replace("\r", "") == draw_screen(text), repr(text)


def test_a_text_without_end_keeps_its_begin_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_text, "MAX_CHARS", 1000)
    text = StreamText()
    for number in range(5000):
        text.append(f"{number:05}\n")
    shown = text.join()
    assert shown.startswith("00000\n00001\n")
    assert shown.endswith("04998\n04999\n")
    assert "29,000 characters were dropped here" in shown
    assert len(shown) < 1100


def test_a_progress_bar_loses_nothing_however_long_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_text, "MAX_CHARS", 1000)
    text = StreamText("begin\n")
    for number in range(5000):
        text.append(f"\r{number} of 5000")
    text.append("\nend\n")
    assert text.join() == "begin\n4999 of 5000\nend\n"
