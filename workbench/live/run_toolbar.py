"""Run, progress and cancel in the notebook's own toolbar, for the run bar of its panel."""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path
from typing import Any

_STATIC = Path(__file__).parent / "static"
_MAX_TEXT_CHARS = 120


@functools.cache
def _create_widget_class() -> Any:
    """The widget class, created on first use, so that anywidget is not imported headless."""
    import anywidget
    import traitlets

    class RunToolbar(anywidget.AnyWidget):  # type: ignore[misc]
        _esm = (_STATIC / "toolbar.js").read_text(encoding="utf-8")
        can_run = traitlets.Bool(True).tag(sync=True)
        can_cancel = traitlets.Bool(False).tag(sync=True)
        is_running = traitlets.Bool(False).tag(sync=True)
        cell = traitlets.Int(0).tag(sync=True)
        cells = traitlets.Int(1).tag(sync=True)
        text = traitlets.Unicode("").tag(sync=True)

    return RunToolbar


def create_run_toolbar(run: Any, cancel: Any, progress: Any, sentence: Any) -> Any:
    """Widget that puts a run bar's controls into the toolbar of the notebook that shows it.

    It has no extension to install: its script finds the toolbar around its cell, and leaves it when the cell's output
    goes. Where there is none (another front end) nothing is shown; the run bar itself stays.
    """
    import traitlets

    toolbar = _create_widget_class()()
    traitlets.dlink((run, "disabled"), (toolbar, "can_run"), lambda off: not off)
    traitlets.dlink((cancel, "disabled"), (toolbar, "can_cancel"), lambda off: not off)
    traitlets.dlink((progress, "value"), (toolbar, "cell"))
    traitlets.dlink((progress, "max"), (toolbar, "cells"))
    traitlets.dlink((progress.layout, "display"), (toolbar, "is_running"), lambda display: display != "none")
    traitlets.dlink((sentence, "value"), (toolbar, "text"), extract_text)
    buttons = {"run": run, "cancel": cancel}
    toolbar.on_msg(lambda _, content, __: _click(buttons.get(str(content.get("do")))))
    return toolbar


def _click(button: Any) -> None:
    """Click a button, unless it is disabled or there is none."""
    if button is not None and not button.disabled:
        button.click()


def extract_text(markup: str) -> str:
    """The first line of the text of escaped HTML, cut to what a toolbar has room for.

    >>> extract_text('<span role="status">Done &amp; kept</span>')
    'Done & kept'
    """
    text = html.unescape(re.sub(r"<[^>]*>", " ", markup)).strip()
    return text.split("\n")[0].strip()[:_MAX_TEXT_CHARS]
