"""The machine that a document tells of: its processor; what it does not tell is unknown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from workbench.indicators.archive import Hardware

MOST_FLAGS = 1000


def hardware_of(document: Mapping[str, Any]) -> Hardware:
    """The hardware of a result, by what py-cpuinfo found and what the runtime environment says.

    Examples
    --------
    >>> found = hardware_of({"hwinfo": {"cpu_info": {"brand_raw": "Model X", "family": 6, "count": 64}}})
    >>> found.cpu_model, found.cpu_family, found.cores, found.memory_bytes
    ('Model X', 6, 64, None)
    """
    hwinfo = _part(document, "hwinfo")
    info, features = _part(hwinfo, "cpu_info"), _part(hwinfo, "cpu_features")
    told = _part(_part(document, "runtime_environment"), "hardware")
    flags = features.get("flags") or info.get("flags")
    return made(
        model=_text(info.get("brand_raw")) or _text(info.get("brand")) or "unknown",
        family=_whole(info.get("family"), told.get("cpu_family")),
        number=_whole(info.get("model"), told.get("cpu_model")),
        flags=tuple(sorted({flag for flag in flags if isinstance(flag, str)}))[:MOST_FLAGS]
        if isinstance(flags, list)
        else (),
        cores=_whole(info.get("count")),
    )


def made(
    *,
    model: str,
    family: int | None = None,
    number: int | None = None,
    flags: tuple[str, ...] = (),
    cores: int | None = None,
) -> Hardware:
    """Hardware with a key over all that was told; the memory never is."""
    text = json.dumps([model, family, number, flags, cores])
    return Hardware(
        key="imported-" + hashlib.sha256(text.encode()).hexdigest()[:12],
        cpu_model=model[:200],
        cpu_family=family,
        cpu_model_number=number,
        cpu_flags=flags,
        cores=cores or None,
    )


def _part(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _whole(*values: Any) -> int | None:
    """The first of these that is a whole number of a size that there is."""
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
            return value
    return None
