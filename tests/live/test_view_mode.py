"""Shipped notebooks open as something to read: code is folded, except a cell that a person fills."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_is_folded_and_the_panel_is_found(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    own = [cell for cell in code if "skip-execution" in cell["metadata"].get("tags", [])]
    assert len(own) == 3
    unfolded = [
        "".join(cell["source"])
        for cell in code
        if not cell["metadata"].get("jupyter", {}).get("source_hidden") and cell not in own
    ]
    assert [source for source in unfolded if "workflow = None" not in source] == []
    # By both, the extension of `workbench lab` finds the cells to run when the notebook opens.
    assert "workbench" in notebook["metadata"]
    assert sum("configure_notebook(" in "".join(cell["source"]) for cell in code) == 1
