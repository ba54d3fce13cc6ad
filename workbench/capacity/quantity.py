"""A figure with its interval, and what is drawn from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.errors import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Quantity:
    """A positive figure; without both ends of its interval it is a point.

    Attributes
    ----------
    name, unit
        What it is.
    value
        The estimate; half of all draws lie below it.
    low, high
        Ends of its interval; null: a point.
    level
        Confidence of the interval, in (0, 1).
    mirrored
        The end that `whole` put in place of one that is not known, lower or upper; empty for none.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    level: float = 0.9
    mirrored: str = ""

    def __post_init__(self) -> None:
        ends = [one for one in (self.low, self.high) if one is not None]
        if not all(math.isfinite(one) and one > 0 for one in (self.value, *ends)):
            self._refuse("not a positive figure with a positive interval")
        if not self.is_point and not (self.low or 0.0) <= self.value <= (self.high or 0.0):
            self._refuse("a figure outside of its own interval")
        if not 0 < self.level < 1:
            raise InputError("not a confidence", where=self.name, found=self.level, allowed="between 0 and 1")

    def _refuse(self, what: str) -> None:
        raise InputError(what, where=self.name, found=f"{self.value} [{self.low}, {self.high}]")

    @property
    def is_point(self) -> bool:
        """It has no interval."""
        return self.low is None or self.high is None

    def whole(self) -> Quantity:
        """With both ends where one is known: the other lies as far from the value, on logarithms.

        Left out, the end that is known would go with it, and nothing would vary.

        Examples
        --------
        >>> found = Quantity("users per replica", 40.0, low=25.0).whole()
        >>> found.low, found.high, found.mirrored
        (25.0, 64.0, 'upper')
        """
        if self.low is not None and self.high is None:
            return replace(self, high=self.value**2 / self.low, mirrored="upper")
        if self.high is not None and self.low is None:
            return replace(self, low=self.value**2 / self.high, mirrored="lower")
        return self

    def at(self, z: Floats) -> Floats:
        """The figure at standard normal deviates: the value at 0, the ends of the interval at those of its level.

        Notes
        -----
        Lognormal on each side of the value: its logarithm is normal with one spread below and another above, so that
        value, low and high are matched all three (a split normal, John 1982, on logarithms). An interval that is
        symmetric on logarithms gives the plain lognormal. Draws fall into the interval as often as the level says.

        Examples
        --------
        >>> one = Quantity("users per replica", 40.0, low=30.0, high=48.0, level=0.9)
        >>> [round(float(figure), 6) for figure in one.at(np.array([-1.6448536269514722, 0.0, 1.6448536269514722]))]
        [30.0, 40.0, 48.0]
        """
        if self.low is None or self.high is None:
            return np.full(np.shape(z), self.value)
        from scipy.special import ndtri

        half = float(ndtri((1 + self.level) / 2))
        below, above = math.log(self.value / self.low) / half, math.log(self.high / self.value) / half
        return np.asarray(self.value * np.exp(np.where(z < 0, below, above) * z), dtype=np.float64)

    def quantile(self, share: float) -> float:
        """The quantile of what is drawn."""
        from scipy.special import ndtri

        return float(self.at(np.array([float(ndtri(share))]))[0])

    def times(self, factor: float) -> Quantity:
        """The same quantity, so many times as large."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return replace(self, value=self.value * factor, low=low, high=high)


def spread(name: str, factor: float) -> Quantity:
    """A factor around 1 that lies within 1/factor and factor in 9 of 10 cases; a point at 1 for a factor of 1."""
    return Quantity(name, 1.0) if factor == 1 else Quantity(name, 1.0, "", 1 / factor, factor, 0.9)


def drawn(quantities: list[Quantity], draws: int, seed: int) -> dict[str, Floats]:
    """Independent draws of each quantity, by its name.

    Each has random numbers of its own, which hang on the seed and its name alone: leaving one input out, or widening
    it, leaves the draws of the others as they were.
    """
    return {one.name: one.at(_normal(one.name, draws, seed)) for one in quantities}


def _normal(name: str, draws: int, seed: int) -> Floats:
    import zlib

    generator: Any = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return np.asarray(generator.standard_normal(draws), dtype=np.float64)
