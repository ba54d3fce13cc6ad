"""Values of an answer as JSON that loses nothing: numbers as they are, decimals and dates as exact texts."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def encode(value: Any) -> Any:
    """A value that Spark gave, as JSON; the column's type says how to read it.

    Examples
    --------
    >>> import datetime
    >>> [encode(value) for value in (None, 1, 1.5, Decimal("1.20"), datetime.date(1995, 3, 15), b"a", {"k": [1]})]
    [None, 1, 1.5, '1.20', '1995-03-15', '61', [['k', [1]]]]
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        # "f", since 0E-10 and 0.0000000000 are one value.
        return format(value, "f")
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        pairs = [[encode(key), encode(item)] for key, item in value.items()]
        return sorted(pairs, key=lambda pair: json.dumps(pair[0]))
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return str(value)
