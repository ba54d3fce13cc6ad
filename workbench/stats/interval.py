"""An estimate with its interval; what estimators are given, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.errors import ConfigError, InputError

LEVEL = 0.90
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Parameters
    ----------
    estimate
        The figure, in the unit of the input; null where the data cannot give one.
    low, high
        Ends of the interval; null where the data cannot bound that side.
    level
        Confidence that was asked for, as a share (0.90).
    n
        Independent observations behind it: pairs, values, clusters or runs, as `method` says.
    method
        How it was made, for tables and captions.
    p_value
        Two-sided, against a ratio of 1; only where the method tests that.
    achieved_level
        Confidence that the ends given really have, where it can be computed exactly.
    reason
        Why a value is null.
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    n: int
    method: str
    p_value: float | None = None
    achieved_level: float | None = None
    reason: str | None = None


def finite(value: float) -> float | None:
    """A figure for a table: null where it is infinite or none."""
    return float(value) if np.isfinite(value) else None


def numbers(values: Iterable[float], name: str, *, positive: bool = False) -> Floats:
    """Observations as an array; what is missing, infinite or (where asked) not above 0 is refused by its place."""
    given = list(values)
    numbers = np.array([np.nan if value is None else value for value in given], dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers) | ((numbers <= 0) if positive else False))
    if len(wrong):
        raise InputError(
            "values that cannot be used",
            where=f"{name}, position(s) {listed(wrong)}",
            found=listed(given[position] for position in wrong),
            allowed="finite numbers above 0" if positive else "finite numbers",
            do="leave failed and missing observations out, and count them beside the figure",
        )
    return numbers


def check_level(value: float, *, name: str = "level") -> None:
    """Refuse what is no share between 0 and 1."""
    if not 0 < value < 1:
        raise ConfigError("not a share", where=name, found=value, allowed="above 0 and below 1")


def listed(items: Iterable[Any], most: int = 5) -> str:
    """The first few, and how many more."""
    texts = [str(item) for item in items]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def t_interval(values: Floats, level: float) -> tuple[float | None, float | None, float | None]:
    """Mean, half width of its t interval and two-sided p value against 0; null from fewer than two values."""
    n = len(values)
    if n < 2:
        return (float(values[0]) if n else None), None, None
    from scipy.special import stdtr, stdtrit

    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
    if not error:
        return mean, 0.0, 0.0 if mean else 1.0
    return mean, float(stdtrit(n - 1, (1 + level) / 2) * error), float(2 * stdtr(n - 1, -abs(mean) / error))
