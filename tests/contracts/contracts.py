"""Every contract: what it is called, what it needs, and the function that makes its files anew."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.contracts import commands, documents, formats, notebook_runs, tables

FROZEN = Path(__file__).parent / "frozen"


@dataclass(frozen=True)
class Contract:
    """Files below `frozen/` that `make` makes anew; `tier` is the marker of its test, none for a quick one."""

    name: str
    make: Callable[[], dict[str, str]]
    tier: str | None = None


CONTRACTS = (
    Contract("commands", commands.freeze_commands),
    Contract("exit-codes", commands.freeze_exit_codes),
    Contract("tables", tables.freeze_tables),
    Contract("database", tables.freeze_database),
    Contract("documents", documents.freeze_documents),
    Contract("parameters", documents.freeze_parameters),
    Contract("formats", formats.freeze_formats),
    Contract("sweep", formats.freeze_sweep),
    Contract("notebook-tables", notebook_runs.freeze_notebook_tables, "notebook"),
    Contract("notebook-records", notebook_runs.freeze_notebook_records, "notebook"),
    Contract("lore-documents", documents.freeze_lore_documents, "spark"),
    Contract("dumps", formats.freeze_dumps, "spark"),
)


def find_differences(made: dict[str, str]) -> dict[str, str]:
    """By file, what differs from what is frozen, as a unified diff."""
    found = {}
    for name, text in sorted(made.items()):
        path = FROZEN / name
        before = path.read_text(encoding="utf-8") if path.is_file() else ""
        if before != text:
            lines = difflib.unified_diff(
                before.splitlines(), text.splitlines(), f"frozen/{name}", "now", lineterm="", n=1
            )
            found[name] = "\n".join(lines)
    return found


def write(made: dict[str, str]) -> None:
    """Freeze these files."""
    for name, text in made.items():
        path = FROZEN / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
