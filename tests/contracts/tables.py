"""The declared tables of every area, and the tables of the database of indicators."""

from __future__ import annotations

from tests.contracts import introspection
from tests.contracts.writing import write_json


def freeze_tables() -> dict[str, str]:
    """`tables/<area>.json`: key and columns of each table by name, of two under one name both."""
    found = {}
    for area, tables in introspection.find_tables().items():
        described = {
            name: sorted(map(introspection.describe_table, same), key=str) for name, same in sorted(tables.items())
        }
        text = write_json({name: same if len(same) > 1 else same[0] for name, same in described.items()})
        found[f"tables/{area}.json"] = text + "\n"
    return found


def freeze_database() -> dict[str, str]:
    """`formats/indicators-database.json`: what SQL that users keep may name."""
    return {"formats/indicators-database.json": write_json(introspection.describe_database()) + "\n"}
