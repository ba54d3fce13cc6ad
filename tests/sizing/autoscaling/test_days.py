"""Days of traffic in virtual time: what is counted, who holds the goals, and that HTTP says the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sizing.conftest import Sizing
from workbench.core.errors import InputError
from workbench.sizing.autoscaling.comparison import (
    BLOCK_S,
    ORACLE,
    Outcome,
    build_foresight,
    compare_policies,
    find_capacity_per_s,
)
from workbench.sizing.autoscaling.day_simulation import DayResult, ScalingLimits, simulate_day
from workbench.sizing.autoscaling.day_traffic import DayTraffic, read_day_traffic
from workbench.sizing.autoscaling.http_replay import replay_over_http
from workbench.sizing.autoscaling.policies import FixedCount, read_policy
from workbench.sizing.config import Goal
from workbench.sizing.simulation.cluster_model import Service

# Ten seconds a request alone, four at once on a replica.
SLOW = Service(
    slots=4, calls=1, input_tokens=10, input_cv=0, output_tokens=100, output_cv=0.3, decode_base_s=0.1,
    decode_per_sequence_s=0, prefill_tokens_per_s=10_000,
)  # fmt: skip
GOAL = Goal.read("p95<=20")
T_99_OF_20 = 2.861
LIMITS = ScalingLimits(start_s=60, min_replicas=1, max_replicas=12)
WAVE = DayTraffic((0.1, 0.2, 0.8, 0.8, 0.2, 0.1))


def test_arrivals_follow_the_rate() -> None:
    times = np.array(WAVE.draw_arrivals(3))
    assert (np.diff(times) >= 0).all()
    counts = np.histogram(times, bins=6, range=(0, WAVE.duration_s))[0]
    wanted = [np.mean([WAVE.rate_at(3600 * hour + second) for second in range(3600)]) * 3600 for hour in range(6)]
    assert (abs(counts - wanted) < 5 * np.sqrt(wanted)).all()
    assert WAVE.draw_arrivals(3) == WAVE.draw_arrivals(3)
    assert WAVE.draw_arrivals(3) != WAVE.draw_arrivals(4)


def test_a_fixed_count_has_its_hours_and_its_requests() -> None:
    day = simulate_day(SLOW, WAVE, FixedCount(5), [GOAL], LIMITS, seed=1, start_replicas=5)
    assert day.gpu_hours == pytest.approx(30.0, rel=1e-3)
    assert len(day.sent_s) == len(WAVE.draw_arrivals(1))
    assert sum(count for count, _ in day.count_by_block(3600)) == len(day.sent_s)
    assert day.timeline == [(0.0, 5, 0)]


def test_more_replicas_are_late_less_often() -> None:
    shares = [
        simulate_day(SLOW, WAVE, FixedCount(count), [GOAL], LIMITS, seed=1, start_replicas=count).late_share
        for count in (1, 2, 3, 6)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] < 0.05


def test_a_replica_serves_only_after_its_start_and_counts_from_its_order() -> None:
    policy = read_policy("hpa:in_flight=3")
    assert policy is not None
    day = simulate_day(SLOW, WAVE, policy, [GOAL], LIMITS, seed=1, start_replicas=1)
    ordered = [
        at_s
        for (_, _, before), (at_s, _, starting) in zip(day.timeline, day.timeline[1:], strict=False)
        if starting > before
    ]
    served = [
        at_s for (_, before, _), (at_s, ready, _) in zip(day.timeline, day.timeline[1:], strict=False) if ready > before
    ]
    assert served
    assert ordered
    assert all(any(at_s - start == pytest.approx(60.0, abs=1e-6) for start in ordered) for at_s in served)
    assert 6.0 < day.gpu_hours < 72.0


def test_foresight_beats_what_reacts_and_a_fixed_count_pays_for_the_peak() -> None:
    policies = [None, read_policy("hpa:in_flight=3"), read_policy("keda:waiting=1")]
    answer = compare_policies(SLOW, WAVE, policies, [GOAL], LIMITS, days=2, seed=0, on_progress=lambda _: None)
    rows = {row["policy"]: row for row in answer.table.iter_rows(named=True)}
    fixed = next(row for name, row in rows.items() if name.startswith("fixed:"))
    assert rows[ORACLE]["over_foresight"] == 1.0
    assert rows[ORACLE]["late_share"] <= 0.05
    assert fixed["verdict"] == "holds"
    assert fixed["gpu_hours"] > rows[ORACLE]["gpu_hours"]
    assert len({row["requests"] for row in rows.values()}) == 1
    # A queue is seen when it is there, and a replica takes a minute.
    assert rows["keda:waiting=1"]["late_share"] > rows["hpa:in_flight=3"]["late_share"]
    assert answer.chosen is not None
    assert answer.sentence.startswith(answer.chosen["policy"])


def test_days_in_which_nothing_could_be_told_are_refused() -> None:
    with pytest.raises(InputError, match="too little traffic to tell that at most 1 % are late") as refused:
        compare_policies(SLOW, WAVE, [None], [Goal.read("p99<=20")], LIMITS, days=2, seed=0, on_progress=lambda _: None)
    assert refused.value.facts["do"] == "--days 9"


def test_a_policy_that_is_named_twice_is_replayed_once() -> None:
    policies = [read_policy(name) for name in ("fixed:6", "hpa:in_flight=3", "hpa:in_flight=3", "fixed:6")]
    answer = compare_policies(SLOW, WAVE, policies, [GOAL], LIMITS, days=2, seed=0, on_progress=lambda _: None)
    assert answer.table["policy"].to_list() == [ORACLE, "fixed:6", "hpa:in_flight=3"]


def test_the_capacity_is_what_one_replica_serves() -> None:
    capacity = find_capacity_per_s(SLOW, [GOAL], 0)
    # Four at once, ten seconds each: 0.4 a second, and less where 95 % wait no more than ten.
    assert 0.2 < capacity < 0.4
    foresight = build_foresight(WAVE, capacity, LIMITS)
    assert foresight.peak == int(np.ceil(0.8 / capacity))
    with pytest.raises(InputError, match="at no rate"):
        find_capacity_per_s(SLOW, [Goal.read("p95<=1")], 0)


def test_the_interval_of_late_requests_covers_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for trial in range(200):
        rates = random.beta(1, 19, size=72)  # a share of each stretch; 5 % on average
        late = (random.random((72, 40)) < rates[:, None]).astype(np.float64).ravel()
        sent_s = np.repeat(np.arange(72) * BLOCK_S, 40) + 1.0
        low, high = Outcome(FixedCount(1), [DayResult(sent_s, late, 1.0, [])]).late_interval(trial)
        covered += low <= 0.05 <= high
    assert 168 <= covered <= 192


def test_no_late_request_leaves_an_upper_end() -> None:
    day = DayResult(np.arange(24) * BLOCK_S, np.zeros(24), 1.0, [])
    low, high = Outcome(FixedCount(1), [day]).late_interval(0)
    assert (low, high) == (0.0, pytest.approx(1 - 0.05 ** (1 / 24)))


def test_hours_and_traces_are_read_and_refused(tmp_path: Path) -> None:
    hours = tmp_path / "day.csv"
    hours.write_text("hour,rate_per_s\n0,0.5\n1,1.5\n")
    assert read_day_traffic(hours).rates_per_s == (0.5, 1.5)
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(str(10 * number) for number in range(600)))
    read = read_day_traffic(trace)
    assert len(read.times_s) == 600
    assert len(read.rates_per_s) == 2
    for text, told in (
        ("0,0.5\n2,1\n", "not in order"),
        ("0,-1\n", "not a rate"),
        ("0,x\n", "not an hour"),
        ("", "no hours"),
    ):
        hours.write_text("hour,rate_per_s\n" + text)
        with pytest.raises(InputError, match=told):
            read_day_traffic(hours)


def test_the_command_compares_and_keeps_a_run(sizing: Sizing, tmp_path: Path) -> None:
    traffic = tmp_path / "day.csv"
    traffic.write_text("hour,rate_per_s\n0,0.1\n1,0.6\n2,0.1\n")
    words = ["autoscale", "--traffic", traffic, "--goal", "p95<=20", "--calls", 1, "--slots", 4, "--output-tokens", 100]
    code, _, err = sizing(*words, "--policy", "fixed")
    assert (code, "--days 4" in err) == (2, True)
    words += ["--decode-base-s", 0.1, "--decode-per-sequence-s", 0, "--input-tokens", 10, "--start", 60]
    code, out, _ = sizing(
        *words, "--policy", "fixed", "--policy", "hpa:in_flight=3", "--days", 4, "--out", tmp_path, "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert next(row["policy"] for row in found["autoscalers"]) == ORACLE
    assert found["answer"].endswith("foresight.")
    assert (Path(found["folder"]) / "tables" / "replica_times.parquet").is_file()
    code, _, err = sizing(*words, "--policy", "vpa")
    assert (code, "not a policy" in err) == (2, True)


@pytest.mark.live
@pytest.mark.parametrize("name", ["hpa:in_flight=3", "fixed:1", "fixed:2"])
def test_http_says_the_same_at_small_scale(name: str) -> None:
    """Four minutes with a step in the rate, 20 times as fast: where 20 days in virtual time say that a day lies."""
    service = SLOW.model_copy(update={"decode_base_s": 0.02})
    traffic = DayTraffic((0.0,), tuple(np.concatenate([np.arange(0, 60, 2.0), np.arange(60, 240, 0.5)]).tolist()))
    goal, limits, policy = Goal.read("p95<=3"), ScalingLimits(start_s=20, max_replicas=6), read_policy(name)
    assert policy is not None
    days = [simulate_day(service, traffic, policy, [goal], limits, seed=seed, start_replicas=1) for seed in range(20)]
    real = replay_over_http(service, traffic, policy, goal, limits, seed=0, start_replicas=1, time_scale=0.05)
    assert len(real.sent_s) == len(days[0].sent_s)
    for measure, least in (("late_share", 0.01), ("gpu_hours", 0.002)):
        values = np.array([getattr(day, measure) for day in days])
        # Of a further day, 99 %; the controller counts whole seconds.
        half = T_99_OF_20 * values.std(ddof=1) * np.sqrt(1 + 1 / len(values)) + least
        assert getattr(real, measure) == pytest.approx(values.mean(), abs=half), measure
