"""A plan as a YAML file: the settings by their names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench import parameters
from workbench.capacity.config import PlanConfig, plan_config
from workbench.errors import ConfigError

LARGEST_BYTES = 1_000_000
RUNS = ("speedup", "sizing", "indicators", "scaletest")


def read_plan(path: Path | None, given: Mapping[str, Any]) -> PlanConfig:
    """Settings of a file (none: the defaults), with what is given by hand; runs that nobody names are left out.

    Runs that the file names are sought from the folder of the file.

    Raises
    ------
    ConfigError
        The file is no plan, or the settings cannot be like that.
    """
    values: dict[str, Any] = dict.fromkeys(RUNS, "")
    if path is not None:
        values |= _values(path)
    if not any(values.get(name) or given.get(name) for name in ("speedup", "sizing")):
        raise ConfigError(
            "nothing to plan for",
            where="--speedup, --sizing",
            found="neither",
            allowed="a run folder of each, or of one of them",
            do="for an example: workbench capacity plan --sizing data/samples/capacity/sizing",
        )
    return plan_config(values | dict(given), where="the plan" if path is None else str(path))


def _values(path: Path) -> dict[str, Any]:
    try:
        size_bytes = path.stat().st_size
    except OSError as error:
        raise ConfigError("cannot read the plan", where=path, found=error.strerror) from error
    if size_bytes > LARGEST_BYTES:
        raise ConfigError("too large for a plan", where=path, found=f"{size_bytes:,} bytes", allowed="up to 1 MB")
    values = parameters.read_file(path)
    for name in RUNS:
        if isinstance(values.get(name), str) and values[name]:
            values[name] = str(path.parent / values[name])
    return values


def example() -> str:
    """A plan file with all settings at their defaults, each with what it means; runs are left out.

    Examples
    --------
    >>> "# GPUs of a node." in example()
    True
    """
    lines = []
    for name, field in PlanConfig.model_fields.items():
        value = "" if name in RUNS else field.get_default()
        lines += [f"# {field.description}", f"{name}: {json.dumps(value)}"]
    return "\n".join(lines)
