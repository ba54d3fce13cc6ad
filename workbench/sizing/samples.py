"""A metric's values out of the columns of `requests`: one row per request, failures infinite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def values(columns: Mapping[str, Sequence[Any]], metric: str) -> Floats:
    """The values of a metric.

    Parameters
    ----------
    columns
        Columns of the table `requests`, as sequences; without `outcome` all are ok.
    metric
        runtime, llm, ttft or itl.

    Returns
    -------
    array
        A row per request; one value, or for llm one per call and NaN up to the longest. A failed request is infinite,
        a success of which the metric is unknown NaN.

    Examples
    --------
    >>> values({"runtime_s": [1.0, None], "outcome": ["ok", "timeout"]}, "runtime").tolist()
    [[1.0], [inf]]
    """
    cells = columns[f"{metric}_s"]
    failed = np.array([outcome != "ok" for outcome in columns.get("outcome", ())], dtype=bool)
    if metric == "llm":
        found = _padded(cells)
    else:
        found = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)[:, None]
    if len(failed):
        found[failed] = np.nan
        found[failed, 0] = np.inf
    return found


def _padded(cells: Sequence[Sequence[float] | None]) -> Floats:
    lists = [() if cell is None else cell for cell in cells]
    width = max([1, *map(len, lists)])
    found = np.full((len(lists), width), np.nan)
    for place, items in enumerate(lists):
        found[place, : len(items)] = items
    return found
