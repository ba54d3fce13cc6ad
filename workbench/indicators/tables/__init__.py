"""Declared tables of the area: sessions, recommendations, the database, and histories."""

from __future__ import annotations

from workbench.indicators.tables.history_tables import CHANGES, POINTS, SERIES
from workbench.indicators.tables.session_tables import (
    CHECKS,
    DIMENSIONS,
    DRIFT,
    EFFECTS,
    EXCLUDED,
    FAILURES,
    INDICATORS,
    JUDGEMENTS,
    JUSTIFICATIONS,
    OBSERVATIONS,
    PACKAGES,
    PROPOSALS,
    RECOMMENDATIONS,
    RUNS,
    SESSIONS,
    STACK_PACKAGES,
    STACKS,
    TRIED,
)

__all__ = [
    "CHANGES",
    "CHECKS",
    "DIMENSIONS",
    "DRIFT",
    "EFFECTS",
    "EXCLUDED",
    "FAILURES",
    "INDICATORS",
    "JUDGEMENTS",
    "JUSTIFICATIONS",
    "OBSERVATIONS",
    "PACKAGES",
    "POINTS",
    "PROPOSALS",
    "RECOMMENDATIONS",
    "RUNS",
    "SERIES",
    "SESSIONS",
    "STACKS",
    "STACK_PACKAGES",
    "TRIED",
]
