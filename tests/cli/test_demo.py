"""`workbench demo`: three answers, the gallery, and a command for one's own question in every area."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.test_documents import parse
from workbench.cli import app, demo
from workbench.core.files import SHIPPED

STEPS = [re.split(r"\s{2,}", line.strip())[0] for line in demo.NEXT_STEPS.splitlines()[1:]]


@pytest.mark.parametrize("step", STEPS)
def test_what_to_type_next_is_a_command(step: str) -> None:
    assert len(step) < 50
    parse(shlex.split(step))


def test_every_area_has_a_next_step_and_every_line_fits_a_terminal() -> None:
    areas = {words[2] if words[1] == "run" else words[1] for words in map(str.split, STEPS)}
    assert set(app.AREAS) - {"eventlog", "speedup"} <= areas
    assert max(map(len, demo.NEXT_STEPS.splitlines())) <= 80


def test_no_page_opens_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "is_terminal", lambda stream: True)
    monkeypatch.setattr(demo.sys, "platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    assert demo.has_browser()
    monkeypatch.delenv("DISPLAY")
    assert not demo.has_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(demo, "is_terminal", lambda stream: False)
    assert not demo.has_browser()


@pytest.mark.notebook
def test_a_demo_from_any_folder_answers_three_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        app.main(["demo", "--out", "runs"])
    assert not ended.value.code
    told = capsys.readouterr().out
    answers, _, rest = told.partition("\nreports: ")
    assert len(answers.strip().splitlines()) == 3 * len(demo.NOTEBOOKS)
    assert "simulated" in answers
    page = Path(rest.splitlines()[0])
    assert page.is_file()
    assert page.parent == tmp_path / "runs"
    assert {path.parent.parent.name for path in page.parent.rglob("report.html")} == {"speedup", "sizing", "indicators"}
    assert all((SHIPPED / "notebooks" / f"{name}.ipynb").is_file() for name in demo.NOTEBOOKS)
