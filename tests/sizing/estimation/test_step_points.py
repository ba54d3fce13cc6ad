"""Points: what is counted, and when a point does not say what it seems to."""

import numpy as np
import polars as pl
import pytest

from tests.sizing.making import closed, requests, steps
from workbench.sizing.estimation import step_points
from workbench.sizing.estimation.step_points import PointLimits, assess_steps, select_kept_requests


def runtimes(n: int, mean: float = 1.0, seed: int = 0) -> list[float]:
    return list(mean * np.random.default_rng(seed).lognormal(sigma=0.2, size=n))


def one(frame: pl.DataFrame, **step: object) -> dict[str, object]:
    return assess_steps(frame, steps(step))[0].row(0, named=True)


def test_in_flight_and_rate_are_those_of_the_window() -> None:
    point = one(closed(8, runtimes(400)), users=8)
    assert point["in_flight"] == pytest.approx(8)
    assert point["rate_per_s"] == pytest.approx(8 / np.mean(runtimes(400)), rel=0.05)
    assert (point["verdict"], point["n_kept"], point["n_ok"]) == ("valid", 400 - point["n_warmup"], point["n_kept"])


def test_a_server_that_admits_few_is_named_by_its_own_clock() -> None:
    point = one(closed(32, runtimes(600), server=0.25), users=32)
    assert point["server_in_service"] == pytest.approx(8, rel=0.1)
    assert point["verdict"] == "server-limited"
    assert "server admits about 8" in str(point["reason"])


@pytest.mark.parametrize("share", [0.97, 1.0])
def test_what_the_network_takes_is_no_admission_cap(share: float) -> None:
    assert one(closed(32, runtimes(600), server=share), users=32)["verdict"] == "valid"


def test_failures_are_counted_by_kind_and_interrupt_the_point() -> None:
    rows = [{"intended_s": n / 10, "sent_s": n / 10, "ended_s": n / 10 + 1} for n in range(300)]
    for n, kind in enumerate(["timeout", "refused", "http_error", "malformed", "cut", "failed"] * 2):
        rows[100 + n] |= {"outcome": kind, "runtime_s": None}
    table, quantiles = assess_steps(requests(rows), steps({"users": 1}))
    point = table.row(0, named=True)
    assert [point[f"n_{kind}"] for kind in ("timeout", "refused", "http_error", "malformed", "cut", "failed")] == [
        2
    ] * 6
    assert point["verdict"] == "interrupted"
    assert "12" not in str(point["n_ok"])
    p99 = quantiles.filter((pl.col("metric") == "runtime") & (pl.col("q") == 0.99)).row(0, named=True)
    assert (p99["value_s"], p99["note"], p99["ok_only_s"]) == (None, "> timeout of 30 s", 1.0)
    assert quantiles.filter((pl.col("q") == 0.95) & (pl.col("metric") == "runtime"))["value_s"].to_list() == [1.0]


def test_more_requests_in_flight_than_users_are_another_level() -> None:
    rows = [{"intended_s": n / 10, "sent_s": n / 10, "ended_s": n / 10 + 1} for n in range(250)]
    point = one(requests(rows), users=5)
    assert point["verdict"] == "client-limited"
    assert "more than the 5 users" in point["reason"]


def test_one_failure_in_200_does_not_interrupt() -> None:
    rows = [{"intended_s": n / 10, "sent_s": n / 10, "ended_s": n / 10 + 1} for n in range(250)]
    rows[120] |= {"outcome": "cut", "runtime_s": None}
    assert one(requests(rows), users=10)["verdict"] == "valid"
    strict = assess_steps(requests(rows), steps({"users": 10}), limits=PointLimits(max_error_ratio=0.0))[0]
    assert strict["verdict"].to_list() == ["interrupted"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"loop_lag_p99_s": 0.2}, "client event loop lag"),
        ({"client_cpu_share": 0.99}, "99 % of a core"),
        ({"users": 8}, "of 8 users were in flight"),
    ],
)
def test_a_busy_client_is_no_service(step: dict[str, object], words: str) -> None:
    point = one(closed(4, runtimes(400)), **{"users": 4} | step)
    assert point["verdict"] == "client-limited"
    assert words in str(point["reason"])


def test_few_samples_are_said() -> None:
    point = one(closed(2, runtimes(90)), users=2)
    assert point["verdict"] == "few samples"
    assert "200 needed" in str(point["reason"])


def test_a_rate_that_stays_while_latency_grows_is_saturation() -> None:
    frames = [closed(users, runtimes(400, users / 8, users), step=n) for n, users in enumerate((8, 16, 32))]
    table, _ = assess_steps(pl.concat(frames), steps(*({"users": users} for users in (8, 16, 32))))
    assert table["verdict"].to_list() == ["saturated"] * 3
    assert "queueing or an admission limit" in table["reason"][1]


def test_with_a_servers_clock_it_is_not_guessed() -> None:
    frames = [closed(users, runtimes(400, users / 8), server=1.0, step=n) for n, users in enumerate((8, 16))]
    table, _ = assess_steps(pl.concat(frames), steps({"users": 8}, {"users": 16}))
    assert table["verdict"].to_list() == ["valid", "valid"]


def test_the_tail_is_never_kept() -> None:
    frame = closed(4, runtimes(300)).with_columns(tail=pl.col("request") >= 250)
    assert select_kept_requests(frame, 4)["request"].max() == 249


def test_repeated_prompts_are_shared_out() -> None:
    frame = closed(1, runtimes(300)).with_columns(item=pl.col("request") % 30)
    assert one(frame, users=1)["repeated_prompts"] == pytest.approx(1.0, abs=0.11)
    assert one(closed(1, runtimes(300)), users=1)["repeated_prompts"] == 0


def test_prompts_of_earlier_steps_count_as_repeated_on_the_same_gpus() -> None:
    frames = [closed(1, runtimes(300), step=step).with_columns(item=pl.col("request") + step * 150) for step in (0, 1)]
    both = pl.concat(frames)
    assert assess_steps(both, steps({}, {}))[0]["repeated_prompts"].to_list() == [0.0, pytest.approx(0.5, abs=0.13)]
    assert assess_steps(both, steps({}, {"gpus": 2}))[0]["repeated_prompts"].to_list() == [0.0, 0.0]


def test_a_metric_nobody_has_gets_no_rows() -> None:
    _, quantiles = assess_steps(closed(2, runtimes(300)), steps({"users": 2}))
    assert sorted(quantiles["metric"].unique().to_list()) == ["e2e", "runtime"]


def test_each_users_first_request_is_dropped() -> None:
    values = np.random.default_rng(0).lognormal(sigma=0.2, size=400)
    assert step_points.count_warmup_requests(values, 32) >= 32


def test_a_slow_beginning_is_dropped() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([5 * np.exp(-np.arange(60) / 20), np.zeros(340)]) + random.lognormal(sigma=0.2, size=400)
    assert 30 <= step_points.count_warmup_requests(values, 0) <= 120


def test_of_steady_values_little_is_dropped_on_average() -> None:
    random = np.random.default_rng(2)
    dropped = [step_points.count_warmup_requests(random.lognormal(sigma=0.5, size=300), 0) for _ in range(200)]
    assert np.mean(dropped) < 45
    assert max(dropped) <= 75


def test_failures_do_not_stop_it() -> None:
    assert step_points.count_warmup_requests(np.array([np.inf] * 50), 10) == 10
    assert step_points.count_warmup_requests(np.where(np.arange(300) % 4 == 0, np.inf, 1.0), 0) <= 75


def test_a_handful_of_requests_is_left_alone() -> None:
    assert step_points.count_warmup_requests(np.array([1.0, 2.0, 3.0]), 0) == 0
    assert step_points.count_warmup_requests(np.array([1.0, 2.0, 3.0]), 8) == 3
