"""When something is wrong enough to stop, on times that the test makes up."""

from __future__ import annotations

from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.scenario.scenario_file import AbortCriteria
from workbench.scaletest.submission.abort_criteria import ClusterHealth, Watchdog
from workbench.scaletest.submission.object_creation import Reply


def at(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def answered(dog: Watchdog, when_s: float, status: int | None, *, took_s: float = 0.01, token: int = 1) -> None:
    dog.record_request(token, at(when_s - took_s))
    dog.record_reply(token, Reply(at(when_s - took_s), at(when_s), status))


def steady(dog: Watchdog, begin_s: int, end_s: int, status: int, per_s: int = 10, took_s: float = 0.01) -> None:
    for second in range(begin_s, end_s):
        for part in range(per_s):
            answered(dog, second + part / per_s, status, took_s=took_s)


def test_a_healthy_cluster_gives_no_reason() -> None:
    dog = Watchdog(AbortCriteria())
    steady(dog, 1, 200, 201)
    assert dog.find_reason(at(200), ClusterHealth(pending_pods=9, watch_lag_s=0.1)) is None


def test_nothing_created_for_half_a_minute() -> None:
    dog = Watchdog(AbortCriteria())
    answered(dog, 1, 201)
    steady(dog, 2, 33, 500, per_s=1)
    assert dog.find_reason(at(31.9)) is None
    assert dog.find_reason(at(32.1)) == "no object was created for 30 s"


def test_a_plan_that_rests_is_not_a_cluster_that_creates_nothing() -> None:
    dog = Watchdog(AbortCriteria())
    answered(dog, 1, 422)
    assert dog.find_reason(at(300)) is None


def test_a_request_that_is_never_answered_counts_as_nothing_created() -> None:
    dog = Watchdog(AbortCriteria())
    dog.record_request(1, at(1))
    assert dog.find_reason(at(32)) == "no object was created for 30 s"


def test_429s_are_signs_of_life_and_no_errors() -> None:
    dog = Watchdog(AbortCriteria())
    steady(dog, 1, 600, 429)
    assert dog.find_reason(at(600)) is None


def test_slow_for_half_a_minute_but_not_for_one_bad_second() -> None:
    dog = Watchdog(AbortCriteria())
    steady(dog, 1, 60, 201)
    steady(dog, 60, 62, 201, took_s=8)
    steady(dog, 62, 80, 201)
    assert dog.find_reason(at(80)) is None
    steady(dog, 80, 120, 201, per_s=50, took_s=8)
    assert dog.find_reason(at(120)) == "p99 of requests above 5 s for 30 s"


def test_server_errors_above_a_twentieth_within_a_minute() -> None:
    dog = Watchdog(AbortCriteria())
    for second in range(1, 70):
        answered(dog, second, 503)
        steady(dog, second, second + 1, 201, per_s=19)
    assert dog.find_reason(at(70)) is None
    for second in range(70, 130):
        answered(dog, second, 503)
        steady(dog, second, second + 1, 201, per_s=9)
    assert dog.find_reason(at(130)) == "60 of 600 answers within 60 s were server errors (5xx)"


def test_errors_while_the_server_comes_back_do_not_count() -> None:
    dog = Watchdog(AbortCriteria())
    steady(dog, 1, 60, 201)
    answered(dog, 60, None)
    steady(dog, 61, 70, 503, per_s=100)
    steady(dog, 70, 75, 201)
    assert dog.find_reason(at(75)) is None


def test_a_plan_that_is_refused_as_a_whole() -> None:
    dog = Watchdog(AbortCriteria())
    steady(dog, 1, 3, 422)
    assert str(dog.find_reason(at(3))).startswith("the first 20 workloads were all refused")
    other = Watchdog(AbortCriteria())
    answered(other, 1, 201)
    steady(other, 2, 9, 422)
    assert other.find_reason(at(9)) is None


def test_criteria_that_are_off_give_no_reason() -> None:
    dog = Watchdog(AbortCriteria(no_create_s=None, api_p99_s=None, errors_share=None, watch_lag_s=None))
    answered(dog, 1, 201)
    steady(dog, 2, 200, 500, took_s=9)
    assert dog.find_reason(at(200), ClusterHealth(watch_lag_s=60)) is None


def test_after_a_long_rest_the_next_request_is_measured_from_its_own_begin() -> None:
    dog = Watchdog(AbortCriteria())
    answered(dog, 1, 422)
    dog.record_request(2, at(60))
    assert dog.find_reason(at(60.05)) is None
    assert dog.find_reason(at(90.1)) == "no object was created for 30 s"


def test_a_workload_that_is_tried_again_does_not_rest_between_two_tries() -> None:
    dog = Watchdog(AbortCriteria(no_create_s=2))
    answered(dog, 1, 500, token=7)
    dog.record_request(7, at(6))
    assert dog.find_reason(at(6.05)) == "no object was created for 2 s"
    dog.forget_request(7)
    dog.record_request(8, at(60))
    assert dog.find_reason(at(60.05)) is None
