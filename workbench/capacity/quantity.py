"""Quantities with intervals, and draws from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Quantity:
    """A positive value with an interval; without both ends it is a point.

    `low`, `high`: Ends of its interval; null: a point.
    `mirrored`: The end that `fill_missing_end` assumed, lower or upper; empty for none.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    level: float = 0.9
    mirrored: str = ""

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(math.isfinite(number) and number > 0 for number in (self.value, *ends)):
            self._raise_invalid("not a positive value with a positive interval")
        if not self.is_point and not (self.low or 0.0) <= self.value <= (self.high or 0.0):
            self._raise_invalid("a value outside its own interval")
        if not 0 < self.level < 1:
            raise InputError("not a confidence level", where=self.name, found=self.level, allowed="between 0 and 1")

    def _raise_invalid(self, message: str) -> None:
        raise InputError(message, where=self.name, found=f"{self.value} [{self.low}, {self.high}]")

    @property
    def is_point(self) -> bool:
        """Whether it has no interval."""
        return self.low is None or self.high is None

    def fill_missing_end(self) -> Quantity:
        """The same with an unknown end as far from the value as the known one, on the log scale.

        >>> found = Quantity("users per replica", 40.0, low=25.0).fill_missing_end()
        >>> found.low, found.high, found.mirrored
        (25.0, 64.0, 'upper')
        """
        if self.low is not None and self.high is None:
            return replace(self, high=self.value**2 / self.low, mirrored="upper")
        if self.high is not None and self.low is None:
            return replace(self, low=self.value**2 / self.high, mirrored="lower")
        return self

    def value_at(self, z: Floats) -> Floats:
        """The quantity at standard normal deviates: its value at 0, the interval's ends at those of its level.

        Lognormal on each side of the value: its logarithm is normal with one spread below and another above, which
        matches value, low and high (a split normal, John 1982, on the log scale). An interval that is symmetric on the
        log scale gives the plain lognormal. Draws fall into the interval as often as the level says.

        >>> one = Quantity("users per replica", 40.0, low=30.0, high=48.0, level=0.9)
        >>> z = 1.6448536269514722
        >>> one.value_at(np.array([-z, 0.0, z])).round(6).tolist()
        [30.0, 40.0, 48.0]
        """
        if self.low is None or self.high is None:
            return np.full(np.shape(z), self.value)
        from scipy.special import ndtri

        half = float(ndtri((1 + self.level) / 2))
        below, above = math.log(self.value / self.low) / half, math.log(self.high / self.value) / half
        return np.asarray(self.value * np.exp(np.where(z < 0, below, above) * z), dtype=np.float64)

    def quantile(self, share: float) -> float:
        """Quantile of the draws."""
        from scipy.special import ndtri

        return float(self.value_at(np.array([float(ndtri(share))]))[0])

    def scale_by(self, factor: float) -> Quantity:
        """The quantity multiplied by a factor."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, value=self.value * factor, low=low, high=high)


def build_spread(name: str, factor: float) -> Quantity:
    """A factor around 1, between 1/factor and factor in 9 of 10 cases; a point for a factor of 1."""
    return Quantity(name, 1.0) if factor == 1 else Quantity(name, 1.0, "", 1 / factor, factor, 0.9)


def draw_quantities(quantities: list[Quantity], draws: int, seed: int) -> dict[str, Floats]:
    """Independent draws of each quantity, by its name.

    The random numbers of each depend on the seed and its name only, so removing or widening one input does not change
    the draws of the others.
    """
    return {quantity.name: quantity.value_at(_draw_normal(quantity.name, draws, seed)) for quantity in quantities}


def _draw_normal(name: str, draws: int, seed: int) -> Floats:
    import zlib

    generator: Any = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.asarray(generator.standard_normal(draws), dtype=np.float64)
