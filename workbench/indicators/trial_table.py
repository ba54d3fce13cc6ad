"""An indicator tried once, as a table: the fields of its document beside what the class declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.indicators.contract import Indicator, Value, extra_of, role_of
from workbench.indicators.trial import tried
from workbench.tables import Column, Table

if TYPE_CHECKING:
    import polars as pl

TRIED = Table(
    "tried",
    "One row per field of the document of a single run.",
    ("field",),
    (
        Column("field", "str", "Name of the field."),
        Column("role", "str", "parameter, result or check."),
        Column("value", "str", "Its value.", nullable=True),
        Column("unit", "str", "Its unit."),
        Column("about", "str", "What the declaration says of it."),
    ),
)


def tried_table(indicator: type[Indicator], parameters: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Does the script print what the class declares? Table TRIED of one run on this Python: no measurement.

    Raises
    ------
    WorkbenchError
        As `trial.tried`: the script failed, or printed something else.
    """
    document = tried(indicator, parameters)
    values = {**document.parameters, **document.results, **document.checks}
    return TRIED.frame(
        [
            {
                "field": name,
                "role": role_of(field),
                "value": _text(values[name]),
                "unit": extra_of(field).get("unit") or "",
                "about": field.description or "",
            }
            for name, field in indicator.model_fields.items()
        ]
    )


def _text(value: Value) -> str | None:
    if value is None:
        return None
    return f"{value:.4g}" if isinstance(value, float) else str(value)
