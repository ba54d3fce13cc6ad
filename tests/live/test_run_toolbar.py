"""The run bar's controls in the notebook's toolbar: same state, same clicks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.live.run_control import RunBar


@pytest.fixture
def bar(tmp_path: Path) -> RunBar:
    return RunBar(tmp_path / "90_adds.ipynb", ("adds",), tmp_path, lambda run: None)


def send(bar: RunBar, content: dict[str, Any]) -> None:
    """A message, as the page sends it."""
    bar.toolbar._handle_custom_msg(content, [])


def test_the_toolbar_has_the_state_of_the_run_bar(bar: RunBar) -> None:
    shown = bar.toolbar
    assert (shown.can_run, shown.can_cancel, shown.is_running) == (True, False, False)
    bar.enable_start(False)
    bar.cancel.disabled = False
    bar.bar.max, bar.bar.value, bar.bar.layout.display = 9, 4, ""
    bar.sentence.value = '<span role="status">The answer &amp; more · cell 5 of 9</span>'
    assert (shown.can_run, shown.can_cancel, shown.is_running) == (False, True, True)
    assert (shown.cell, shown.cells, shown.text) == (4, 9, "The answer & more · cell 5 of 9")


def test_a_click_there_is_a_click_here_and_disabled_buttons_do_nothing(bar: RunBar) -> None:
    clicked: list[str] = []
    bar.run.on_click(lambda _: clicked.append("run"))
    bar.cancel.on_click(lambda _: clicked.append("cancel"))
    send(bar, {"do": "run"})
    send(bar, {"do": "cancel"})  # nothing runs
    bar.enable_start(False)
    send(bar, {"do": "run"})
    send(bar, {"do": "delete"})
    send(bar, {})
    assert clicked == ["run"]


def test_output_of_a_run_that_did_not_start_is_cut_to_its_first_line(bar: RunBar) -> None:
    bar._show_problem("The run did not start.", "line\n" * 500)
    assert bar.toolbar.text == "The run did not start. line"
