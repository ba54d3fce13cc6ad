"""What a sweep may use up at most: requests, time, tokens, money."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.sizing.driving.wire import Request


@dataclass(frozen=True)
class Prices:
    """What the service charges, in one currency; 0 for nothing."""

    request: float = 0.0
    million_input_tokens: float = 0.0
    million_output_tokens: float = 0.0


@dataclass
class Spent:
    """What a sweep has used up so far."""

    requests: int = 0
    duration_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, rows: list[Request]) -> None:
        """Count requests that ended, each of their retries too."""
        for row in rows:
            self.requests += 1 + row.retries
            self.input_tokens += row.input_tokens or 0
            self.output_tokens += row.output_tokens or 0

    def cost(self, prices: Prices) -> float:
        """In the currency of the prices.

        Examples
        --------
        >>> Spent(requests=10, output_tokens=500_000).cost(Prices(request=0.1, million_output_tokens=4.0))
        3.0
        """
        tokens = self.input_tokens * prices.million_input_tokens + self.output_tokens * prices.million_output_tokens
        return self.requests * prices.request + tokens / 1e6


@dataclass(frozen=True)
class Limits:
    """Null for no limit; tokens are those of prompts and answers that the service reports."""

    max_requests: int | None = None
    max_duration_s: float | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    prices: Prices = Prices()

    def reached(self, spent: Spent) -> str | None:
        """Which limit is reached, in words; null when none is.

        Does not show what is in flight: tokens and cost of those requests come on top.

        Examples
        --------
        >>> Limits(max_requests=10).reached(Spent(requests=10))
        '--max-requests 10'
        """
        tokens = spent.input_tokens + spent.output_tokens
        pairs = (
            ("--max-requests", self.max_requests, spent.requests),
            ("--max-duration", self.max_duration_s, spent.duration_s),
            ("--max-tokens", self.max_tokens, tokens),
            ("--max-cost", self.max_cost, spent.cost(self.prices)),
        )
        return next((f"{name} {most:g}" for name, most, used in pairs if most is not None and used >= most), None)

    def allowance(self, spent: Spent) -> int | None:
        """How many requests may still be sent; null for any number."""
        return None if self.max_requests is None else max(0, self.max_requests - spent.requests)
