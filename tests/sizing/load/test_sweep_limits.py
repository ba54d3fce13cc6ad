"""What a sweep has used up, and when it is enough."""

from __future__ import annotations

import pytest

from workbench.sizing.load.client_messages import RequestRow
from workbench.sizing.load.sweep_plan import Prices, SweepLimits, SweepUsage


def request(*, retries: int = 0, tokens: tuple[int | None, int | None] = (None, None)) -> RequestRow:
    return RequestRow(0, 0.0, 0.0, 1.0, "ok", 200, retries, None, None, None, None, *tokens, False)


def test_retries_and_tokens_count_and_unknown_tokens_do_not() -> None:
    spent = SweepUsage()
    spent.add_requests([request(retries=2, tokens=(10, 5)), request(), request(tokens=(1, None))])
    assert (spent.requests, spent.input_tokens, spent.output_tokens) == (5, 11, 5)


def test_cost_is_that_of_requests_and_of_tokens() -> None:
    spent = SweepUsage(requests=100, input_tokens=2_000_000, output_tokens=500_000)
    assert spent.total_cost(Prices(0.01, 1.5, 6.0)) == pytest.approx(1.0 + 3.0 + 3.0)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (SweepLimits(), None),
        (SweepLimits(max_requests=101), None),
        (SweepLimits(max_requests=100), "--max-requests 100"),
        (SweepLimits(max_duration_s=59.5), "--max-duration 59.5"),
        (SweepLimits(max_tokens=3000), "--max-tokens 3000"),
        (SweepLimits(max_tokens=3001), None),
        (SweepLimits(max_cost=1.0, prices=Prices(request=0.01)), "--max-cost 1"),
        (SweepLimits(max_cost=1.01, prices=Prices(request=0.01)), None),
    ],
)
def test_a_limit_is_reached_when_it_is_used_up(limits: SweepLimits, told: str | None) -> None:
    assert (
        limits.find_reached_limit(SweepUsage(requests=100, duration_s=60.0, input_tokens=1000, output_tokens=2000))
        == told
    )


def test_the_allowance_is_what_is_left() -> None:
    assert SweepLimits().remaining_requests(SweepUsage(requests=5)) is None
    assert SweepLimits(max_requests=8).remaining_requests(SweepUsage(requests=5)) == 3
    assert SweepLimits(max_requests=3).remaining_requests(SweepUsage(requests=5)) == 0


@pytest.mark.parametrize(
    ("limits", "tokens", "told"),
    [
        (SweepLimits(max_tokens=9), (None, None), "--max-tokens 9 cannot be kept: the service reports no tokens"),
        (SweepLimits(max_tokens=9), (None, 1), None),
        (SweepLimits(max_requests=9), (None, None), None),
        (SweepLimits(max_cost=9.0, prices=Prices(request=0.1)), (None, None), None),
        (
            SweepLimits(max_cost=9.0, prices=Prices(million_input_tokens=1.0, million_output_tokens=2.0)),
            (1, None),
            "--max-cost 9 cannot be kept: the service reports no tokens of answers",
        ),
    ],
)
def test_a_limit_on_tokens_that_nobody_tells_cannot_be_kept(
    limits: SweepLimits, tokens: tuple[int | None, int | None], told: str | None
) -> None:
    spent = SweepUsage()
    assert limits.find_reached_limit(spent) is None
    spent.add_requests([request(tokens=tokens)])
    assert limits.find_reached_limit(spent) == told
