"""The commands of `workbench indicators`, one file each; options that several of them have stand here."""

from __future__ import annotations

from typing import Any

from workbench.console.options import FieldOption, parse_numbers


def parse_size_option(value: Any, flag: str) -> int:
    """Parse a size such as 2GB; the parser is imported when a command needs it."""
    from workbench.indicators.stacks.stack_request import parse_size

    return parse_size(value, flag)


ROUND_OPTIONS = {
    "rounds": FieldOption(parse=parse_numbers, metavar="N,N,…", show_default="10,20,30"),
    "memory_bytes": FieldOption(
        "memory", parse=parse_size_option, metavar="SIZE", show_default="8GiB, or 3/4 of the machine's"
    ),
    "max_download_bytes": FieldOption("max_download", parse=parse_size_option, metavar="SIZE", show_default="2GB"),
}
"""How any session is measured."""
SESSION_OPTIONS = {
    **ROUND_OPTIONS,
    "stacks": FieldOption(metavar="FILE"),
    "stack": FieldOption(metavar="REQUIREMENTS"),
    "python": FieldOption(metavar="NAME=PATH"),
    "revision": FieldOption(metavar="COMMIT"),
    "seed": FieldOption(show_default="random, and printed"),
}
"""One session: the stacks, the indicators and the method."""
