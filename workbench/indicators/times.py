"""Times as documents and users write them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def moment(text: Any) -> datetime | None:
    """A time in ISO form, UTC where it names no zone; null where it is none.

    Examples
    --------
    >>> moment("2026-01-31").isoformat(), moment("yesterday")
    ('2026-01-31T00:00:00+00:00', None)
    """
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
