"""The commands of `workbench indicators`, one file each; parsers of options that several of them have stand here."""

from __future__ import annotations

from typing import Any


def parse_size_option(value: Any, flag: str) -> int:
    """Parse a size such as 2GB; the parser is imported when a command needs it."""
    from workbench.indicators.stacks.stack_request import parse_size

    return parse_size(value, flag)
