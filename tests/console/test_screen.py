"""What a command prints on a terminal and in a pipe: width, colour, whole words."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from workbench.console import screen, tables, terminal

Say = Callable[..., str]
PLAIN = re.compile(r"\x1b\[\d+m")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Print a table and sentences as a command does; returns what came."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(terminal.typer, "echo", lambda text, err: print(text))

    def call(*, on_terminal: bool, columns: int | None = None, is_wide: bool = False) -> str:
        monkeypatch.setattr(screen, "is_terminal", lambda stream: on_terminal)
        monkeypatch.setattr(terminal, "is_terminal", lambda stream: on_terminal)
        if columns is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", str(columns))
        with screen.open_screen(is_wide=is_wide):
            terminal.print_text("19 GPUs serve 400 users, and 90 % of them within the limit of 6 s " * 2)
            rows = [["sort", 1.5, "FASTER"], ["valid", 20.0, "UNDECIDED"]]
            terminal.print_block("\n".join(tables.format_table(rows, ["the name of it", "ratio", "verdict"])))
            terminal.print_text(
                "next: workbench sizing run --url http://127.0.0.1:8400 --goal 'p95<=0.3' --out runs/one"
            )
        return capsys.readouterr().out

    return call


def test_a_terminal_has_whole_words_bold_heads_and_coloured_verdicts(say: Say) -> None:
    out = say(on_terminal=True, columns=50)
    lines = PLAIN.sub("", out).splitlines()
    assert all(len(line) <= 50 for line in lines if not line.startswith("next: "))
    assert "\x1b[1mthe name of it  ratio  verdict\x1b[0m" in out.splitlines()
    assert "\x1b[32mFASTER\x1b[0m" in out
    assert "\x1b[33mUNDECIDED\x1b[0m" in out
    assert "" in lines
    assert not re.search(r"90$", "\n".join(lines), re.M)
    assert "http://127.0.0.1:8400 --goal 'p95<=0.3' --out runs/one" in lines[-1]


def test_a_pipe_has_neither_colour_nor_broken_sentences(say: Say) -> None:
    out = say(on_terminal=False)
    assert not PLAIN.search(out)
    assert out.startswith("19 GPUs serve 400 users, and 90 % of them within the limit of 6 s 19 GPUs")


def test_no_color_is_respected(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not PLAIN.search(say(on_terminal=True))


def test_width_is_that_of_columns_or_80_and_wide_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(screen.shutil, "get_terminal_size", lambda fallback: screen.os.terminal_size(fallback))
    assert screen.find_width() is None
    with screen.open_screen(is_wide=False):
        assert screen.find_width() == 80
    with screen.open_screen(is_wide=True):
        assert screen.find_width() is None
    assert screen.find_width() is None
