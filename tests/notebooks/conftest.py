"""Of what a strict notebook shows, nbval compares the text."""

from __future__ import annotations

import pytest

OTHER_FORMS = ("text/html", "application/vnd.vegalite.v6+json", "application/vnd.workbench.headline+json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for notebook in {item.parent for item in items}:
        if hasattr(notebook, "skip_compare"):
            notebook.skip_compare = (*notebook.skip_compare, *OTHER_FORMS)
