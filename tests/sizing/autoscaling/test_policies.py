"""What each autoscaler wants: Kubernetes' rules, fixed counts, schedules, own functions."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.errors import ConfigError, RunFailedError
from workbench.sizing.autoscaling.policies import (
    STABILIZATION_S,
    SYNC_S,
    HorizontalPodAutoscaler,
    ReplicaSchedule,
    Sample,
    read_policy,
)


def sample(at_s: float = 0.0, ready: int = 2, in_flight: int = 0, **changed: Any) -> Sample:
    fields = {"starting": 0, "waiting": 0, "busy": 0.0, "rate": 0.0} | changed
    return Sample(at_s=at_s, ready=ready, in_flight=in_flight, **fields)


def own_policy(state: dict[str, Any]) -> int:
    return state["in_flight"] // 4


def broken_policy(state: dict[str, Any]) -> Any:
    return "three" if state["ready"] == 1 else 1 / 0


def hpa(target: float = 8, metric: str = "in_flight") -> HorizontalPodAutoscaler:
    return HorizontalPodAutoscaler("hpa", metric, target)


@pytest.mark.parametrize(
    ("in_flight", "wanted"),
    [(16, 2), (17, 2), (18, 3), (33, 5), (200, 6)],
)
def test_an_hpa_wants_the_sum_over_the_target_within_tolerance_and_growth(in_flight: int, wanted: int) -> None:
    # 17 is 6 % above two times 8: within the tolerance. 200 would be 25, and four more than two are six.
    assert hpa().decide(sample(in_flight=in_flight)) == wanted


def test_replicas_on_order_count_as_idle_ones() -> None:
    assert hpa().decide(sample(ready=2, starting=2, in_flight=33)) == 4
    assert hpa().decide(sample(ready=2, starting=2, in_flight=40)) == 5


def test_a_share_is_a_mean_and_not_a_sum() -> None:
    assert hpa(0.5, "busy").decide(sample(ready=4, busy=0.9)) == 8


def test_replicas_go_only_after_the_window() -> None:
    autoscaler = hpa()
    assert autoscaler.decide(sample(0, ready=5, in_flight=40)) == 5
    at_s = SYNC_S
    while at_s <= STABILIZATION_S:
        assert autoscaler.decide(sample(at_s, ready=5, in_flight=8)) == 5
        at_s += SYNC_S
    assert autoscaler.decide(sample(at_s, ready=5, in_flight=8)) == 1
    autoscaler.restart()
    assert autoscaler.decide(sample(at_s, ready=5, in_flight=8)) == 1


def test_a_schedule_orders_what_starts_slowly_before_it_is_needed() -> None:
    schedule = ReplicaSchedule("foresight", [1, 1, 4, 1], 60.0, 60.0)
    assert [schedule.decide(sample(at_s)) for at_s in (0, 45, 75, 120, 150, 200)] == [1, 4, 4, 4, 4, 1]
    assert (schedule.peak, schedule.count_at_start(7)) == (4, 1)


def test_an_own_function_decides_and_its_faults_are_told() -> None:
    own = read_policy(f"function:{__name__}:own_policy")
    assert own is not None
    assert own.decide(sample(in_flight=12)) == 3
    broken = read_policy(f"function:{__name__}:broken_policy")
    assert broken is not None
    with pytest.raises(RunFailedError, match="no whole number"):
        broken.decide(sample(ready=1))
    with pytest.raises(RunFailedError, match="ZeroDivisionError"):
        broken.decide(sample(ready=2))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hpa",
        "hpa:cpu=0.7",
        "hpa:busy=0",
        "keda:3",
        "fixed:0",
        "fixed:busy=1",
        "function:nobody:nothing",
        "vpa:busy=1",
    ],
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        read_policy(text)
