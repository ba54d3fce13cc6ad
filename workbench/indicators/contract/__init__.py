"""The contract of an indicator: a declared class, its fields, the document it prints, and a way to write one."""

from workbench.indicators.contract.indicator import (
    BASE_COLUMNS,
    USAGE,
    Better,
    Case,
    Indicator,
    Metric,
    Role,
    Value,
    check,
    describe_field,
    field_metadata,
    field_role,
    list_scalar_types,
    parameter,
    result,
)

__all__ = [
    "BASE_COLUMNS",
    "USAGE",
    "Better",
    "Case",
    "Indicator",
    "Metric",
    "Role",
    "Value",
    "check",
    "describe_field",
    "field_metadata",
    "field_role",
    "list_scalar_types",
    "parameter",
    "result",
]
