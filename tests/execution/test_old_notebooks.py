"""Notebooks as people bring them: old formats, a byte order mark, a cell that writes much and fast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.execution import discovery, runner

CODE: dict[str, Any] = {"cell_type": "code", "collapsed": False, "language": "python", "outputs": []}
OLD = {
    "nbformat": 3,
    "nbformat_minor": 0,
    "metadata": {"name": "old"},
    "worksheets": [
        {
            "metadata": {},
            "cells": [
                {**CODE, "metadata": {"tags": ["parameters"]}, "input": "x: int = 1"},
                {"cell_type": "heading", "level": 1, "metadata": {}, "source": "Title"},
                {**CODE, "metadata": {}, "input": ["print(x)\n"]},
            ],
        }
    ],
}


@pytest.mark.parametrize("version", [2, 3])
def test_an_old_format_is_upgraded(version: int, tmp_path: Path) -> None:
    path = tmp_path / "old.ipynb"
    path.write_text(json.dumps(OLD | {"nbformat": version}))
    notebook = discovery.read_notebook(path)
    assert (notebook.nbformat, [cell.cell_type for cell in notebook.cells]) == (4, ["code", "markdown", "code"])
    (plan,) = discovery.plan_runs([path], texts={"x": "5"})
    assert plan.resolved.given == {"x": 5}


def test_a_byte_order_mark_and_empty_tags_are_no_faults(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {"tags": None}, "source": "1", "outputs": []}
    cell |= {"execution_count": None}
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    path = tmp_path / "marked.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    assert [one.source for one in discovery.read_notebook(path).cells] == ["1"]


@pytest.mark.notebook
def test_outputs_never_end_a_cell(tmp_path: Path) -> None:
    """More messages than a socket holds by default; the last one tells that the cell has ended."""
    source = (
        "import sys\nfor i in range(20000):\n    sys.stderr.write(f'\\r{i}'); sys.stderr.flush()\nprint('all of it')"
    )
    old = {**CODE, "metadata": {}, "input": source}
    path = tmp_path / "chatty.ipynb"
    path.write_text(json.dumps(OLD | {"worksheets": [{"metadata": {}, "cells": [old]}]}))
    (result,) = runner.run_notebooks([path], out=tmp_path / "out")
    assert result.run.record["status"] == "succeeded"
    assert "all of it" in (result.run.folder / "report.ipynb").read_text()
