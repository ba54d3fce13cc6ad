"""The command `workbench`."""

from typing import Any


def __getattr__(name: str) -> Any:
    # Entry points of earlier installations call `workbench.cli:main`.
    if name == "main":
        from workbench.cli.app import main

        return main
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
