"""One test a folder at a time: a second one would write over what the first observes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from workbench import holding


def alone(folder: Path) -> AbstractContextManager[None]:
    """Within, this is the only test of the folder; see `workbench.holding.alone`."""
    return holding.alone(folder, "another process is running the test of this folder")
