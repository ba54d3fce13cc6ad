"""What the commands print: texts of logs made harmless for a terminal."""

from __future__ import annotations

import re

import typer

# What would steer the terminal or turn the direction of writing.
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def say(text: str, *, err: bool = False) -> None:
    """Print what may hold texts of a log."""
    # Half of a pair of code units, which JSON can hold, cannot be written.
    whole = text.encode("utf-8", "replace").decode()
    typer.echo(CONTROLS.sub("\N{REPLACEMENT CHARACTER}", whole), err=err)
