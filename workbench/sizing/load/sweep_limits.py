"""Limits of a sweep on requests, time, tokens and cost, and what it has used."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from workbench.sizing.load.client_messages import RequestRow

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Prices:
    """What the service charges, in one currency; 0 for nothing."""

    request: float = 0.0
    million_input_tokens: float = 0.0
    million_output_tokens: float = 0.0


@dataclass
class SweepUsage:
    """What a sweep has used up so far; of its successes, how many had their tokens told."""

    requests: int = 0
    duration_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    answered: int = 0
    input_told: int = 0
    output_told: int = 0

    def add_requests(self, rows: list[RequestRow]) -> None:
        """Count requests that ended, each of their retries too."""
        for row in rows:
            self.requests += 1 + row.retries
            self.input_tokens += row.input_tokens or 0
            self.output_tokens += row.output_tokens or 0
            if row.outcome == "ok":
                self.answered += 1
                self.input_told += row.input_tokens is not None
                self.output_told += row.output_tokens is not None

    def combine_with(self, other: SweepUsage) -> SweepUsage:
        """Both together."""
        return SweepUsage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(SweepUsage)))

    def total_cost(self, prices: Prices) -> float:
        """In the currency of the prices.

        >>> SweepUsage(requests=10, output_tokens=500_000).total_cost(Prices(request=0.1, million_output_tokens=4.0))
        3.0
        """
        tokens = self.input_tokens * prices.million_input_tokens + self.output_tokens * prices.million_output_tokens
        return self.requests * prices.request + tokens / 1e6


def usage_from_tables(requests: pl.DataFrame, steps: pl.DataFrame) -> SweepUsage:
    """What the raw tables of a sweep have used up."""
    successes = requests.filter(requests["outcome"] == "ok")
    return SweepUsage(
        requests=requests.height + int(requests["retries"].sum()),
        duration_s=float(steps["duration_s"].sum()),
        input_tokens=int(requests["input_tokens"].sum()),
        output_tokens=int(requests["output_tokens"].sum()),
        answered=successes.height,
        input_told=successes["input_tokens"].count(),
        output_told=successes["output_tokens"].count(),
    )


@dataclass(frozen=True)
class SweepLimits:
    """Null for no limit; tokens are those of prompts and answers that the service reports."""

    max_requests: int | None = None
    max_duration_s: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Prices = Prices()

    def find_reached_limit(self, spent: SweepUsage) -> str | None:
        """Which limit is reached, or cannot be kept since no success had its tokens told; null when none is.

        Does not show what is in flight: tokens and cost of those requests come on top.

        >>> SweepLimits(max_requests=10).find_reached_limit(SweepUsage(requests=10))
        '--max-requests 10'
        >>> SweepLimits(max_tokens=900).find_reached_limit(SweepUsage(requests=1, answered=1))
        '--max-tokens 900 cannot be kept: the service reports no tokens'
        """
        tokens = spent.input_tokens + spent.output_tokens
        pairs = (
            ("--max-requests", self.max_requests, spent.requests),
            ("--max-duration", self.max_duration_s, spent.duration_s),
            ("--max-tokens", self.max_tokens, tokens),
            ("--max-cost", self.max_cost, spent.total_cost(self.prices)),
        )
        reached = (f"{name} {limit:g}" for name, limit, used in pairs if limit is not None and used >= limit)
        return next(reached, self._find_unreported_tokens(spent))

    def _find_unreported_tokens(self, spent: SweepUsage) -> str | None:
        """The limit on tokens of which the service does not say how many they are."""
        if not spent.answered:
            return None
        if self.max_tokens is not None and not spent.input_told and not spent.output_told:
            return f"--max-tokens {self.max_tokens:g} cannot be kept: the service reports no tokens"
        priced = (
            (self.prices.million_input_tokens, spent.input_told, "of prompts"),
            (self.prices.million_output_tokens, spent.output_told, "of answers"),
        )
        unknown = [which for price, n_reported, which in priced if price and not n_reported]
        if self.max_cost is not None and unknown:
            return f"--max-cost {self.max_cost:g} cannot be kept: the service reports no tokens {' and '.join(unknown)}"
        return None

    def remaining_requests(self, spent: SweepUsage) -> int | None:
        """How many requests may still be sent; null for any number."""
        return None if self.max_requests is None else max(0, self.max_requests - spent.requests)
