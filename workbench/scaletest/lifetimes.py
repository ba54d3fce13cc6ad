"""How long a pod runs before it ends by itself: fixed, uniform, exponential or lognormal, in seconds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    import numpy as np

LEAST_S = 0.001
Seconds = Annotated[float, Field(ge=LEAST_S, le=7 * 86_400)]


class _Lifetime(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Fixed(_Lifetime):
    """All the same."""

    distribution: Literal["fixed"]
    s: Seconds

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """So many lifetimes, in seconds."""
        import numpy as np

        return np.full(count, self.s)

    @property
    def mean_s(self) -> float:
        """Expected value."""
        return self.s


class Uniform(_Lifetime):
    """Anything between two bounds."""

    distribution: Literal["uniform"]
    least_s: Seconds
    most_s: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.most_s < self.least_s:
            raise ValueError("most_s is below least_s")
        return self

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """So many lifetimes, in seconds."""
        return random.uniform(self.least_s, self.most_s, count)

    @property
    def mean_s(self) -> float:
        """Expected value."""
        return (self.least_s + self.most_s) / 2


class Exponential(_Lifetime):
    """Ends at any moment with the same probability; cut at `most_s` where given."""

    distribution: Literal["exponential"]
    mean_s: Seconds
    most_s: Seconds | None = None

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """So many lifetimes, in seconds."""
        return _within(random.exponential(self.mean_s, count), self.most_s)


class Lognormal(_Lifetime):
    """Many short ones and a few very long ones, as jobs of people are; cut at `most_s` where given."""

    distribution: Literal["lognormal"]
    median_s: Seconds
    sigma: float = Field(gt=0, le=5)
    most_s: Seconds | None = None

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """So many lifetimes, in seconds."""
        return _within(random.lognormal(math.log(self.median_s), self.sigma, count), self.most_s)

    @property
    def mean_s(self) -> float:
        """Expected value, before the cut."""
        return self.median_s * math.exp(self.sigma**2 / 2)


def _within(drawn: np.ndarray, most_s: float | None) -> np.ndarray:
    import numpy as np

    return np.asarray(np.clip(drawn, LEAST_S, 7 * 86_400.0 if most_s is None else most_s))


def _short(given: Any) -> Any:
    """`lifetime: 30` for 30 seconds."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return {"distribution": "fixed", "s": given}
    return given


Lifetime = Annotated[
    Annotated[Fixed | Uniform | Exponential | Lognormal, Field(discriminator="distribution")], BeforeValidator(_short)
]
