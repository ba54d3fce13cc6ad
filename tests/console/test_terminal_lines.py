"""Lines about long work: on stderr alone, harmless, and no more often than wanted."""

from __future__ import annotations

import pytest

from workbench.console.terminal import ChangingStatusLine, StatusLines


@pytest.mark.parametrize("kind", [StatusLines, ChangingStatusLine])
def test_what_stays_is_on_stderr_without_what_steers_a_terminal(
    kind: type[StatusLines], capsys: pytest.CaptureFixture[str]
) -> None:
    with kind() as told:
        told.say("a \x1b]0;title\x07 [red]b[/red]")
    said = capsys.readouterr()
    assert said.out == ""
    assert "a \N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER} [red]b[/red]" in said.err


def test_how_it_stands_is_said_again_only_after_a_while(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    told = StatusLines()
    for step in range(25):
        now = 100.0 + step
        told.show_when_due(f"{step} done")
    assert capsys.readouterr().err.splitlines() == ["0 done", "10 done", "20 done"]
