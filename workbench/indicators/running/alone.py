"""One process a session: two that measured into one folder would disturb each other's runs and files."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from workbench import holding


def alone_in(folder: Path) -> AbstractContextManager[None]:
    """Within, nobody else measures this session; see `workbench.holding.alone`."""
    return holding.alone(
        folder,
        "another process is measuring this session",
        do="let it end, or end it; then go on: workbench indicators run --resume, with this folder",
    )
