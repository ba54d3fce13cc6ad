"""Output of `workbench samples`: names of the shipped inputs, and what each holds."""

from __future__ import annotations

import json
import sys

from workbench.console import terminal
from workbench.console.tables import format_table
from workbench.core import samples


def print_samples(*, as_json: bool) -> None:
    """Print each sample's name with what it holds."""
    listed = [
        {"name": samples.PREFIX + samples.name_sample(path), "path": str(samples.FOLDER / path), "holds": holds}
        for path, holds in samples.list_samples().items()
    ]
    if as_json:
        sys.stdout.write(json.dumps({"samples": listed}, indent=1) + "\n")
        return
    terminal.print_block(
        "\n".join(format_table([(one["name"], one["holds"]) for one in listed], ("name", "what it holds")))
    )
    terminal.print_text(f"They are in {samples.FOLDER}.")
