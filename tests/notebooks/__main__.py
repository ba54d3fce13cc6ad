"""python -m tests.notebooks: run these notebooks and write down what they show anew; `git diff` shows what changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parents[1] / "notebooks"


def keep_text(output: Any) -> Any:
    """The output with nothing but its text: pages and charts are the page check's."""
    if "data" in output:
        output["data"] = {"text/plain": output["data"]["text/plain"]}
    output["metadata"] = {}
    return output


if __name__ == "__main__":
    for path in sorted(HERE.glob("*.ipynb")):
        notebook = nbformat.read(NOTEBOOKS / path.name, as_version=4)
        resources = {"metadata": {"path": str(NOTEBOOKS)}}
        NotebookClient(notebook, resources=resources, skip_cells_with_tag="none is skipped").execute()
        for cell in notebook.cells:
            cell["metadata"].pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [keep_text(output) for output in cell.outputs]
        notebook.metadata.pop("widgets", None)
        nbformat.write(notebook, path)
