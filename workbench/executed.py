"""The executed copy of a notebook, which every run leaves; of a failed one with the failing cell marked."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench import files, redaction

if TYPE_CHECKING:
    from workbench import runs
    from workbench.kernels import Session
    from workbench.notebooks import Plan

# Papermill's own tag and anchor, so that its tools find and remove what is put in for a failure.
FAILURE_TAG = "papermill-error-cell-tag"
FAILURE_ANCHOR = "papermill-error-cell"


def write_copy(
    item: Plan, run: runs.Run, session: Session, failure: dict[str, Any] | None, secrets: tuple[str, ...]
) -> None:
    """Write report.ipynb: the notebook as far as it was executed, cleaned of secrets, the failing cell marked."""
    import nbformat

    notebook = session.notebook if session.notebook is not None else item.notebook
    notebook = redaction.clean(notebook, secrets)
    notebook.cells = [cell for cell in notebook.cells if FAILURE_TAG not in cell.metadata.get("tags", [])]
    # Papermill notes where the input lay, here as the whole notebook; its name says enough.
    notebook.metadata.setdefault("papermill", {})
    notebook.metadata["papermill"] |= {"input_path": item.path.name, "output_path": "report.ipynb"}
    if failure and not session.cancelled:
        _mark(notebook, failure, session.cell_index)
    files.write_text(run.folder / "report.ipynb", nbformat.writes(notebook) + "\n")


def _mark(notebook: Any, failure: Mapping[str, Any], index: int | None) -> None:
    """Put a link to the failing cell on top, and its target before that cell."""
    from nbformat.v4 import new_markdown_cell

    what = html.escape(f"{failure['error_name']}: {failure['error']}".split("\n")[0][:300])
    number = failure["cell_number"]
    place = "before the first cell" if index is None else f'in <a href="#{FAILURE_ANCHOR}">cell [{number}]</a>'
    top = new_markdown_cell(f"<p><strong>This run stopped {place}.</strong> {what}</p>")
    anchor = new_markdown_cell(f'<p id="{FAILURE_ANCHOR}"><strong>The run stopped at the next cell.</strong></p>')
    for cell in (top, anchor):
        cell.metadata["tags"] = [FAILURE_TAG]
    if index is not None:
        notebook.cells.insert(index, anchor)
    notebook.cells.insert(0, top)
