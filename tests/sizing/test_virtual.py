"""Sweeps in virtual time: exact loads, the same tables from the same seed, no slow request left out."""

import numpy as np
import polars as pl
import pytest

from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service

SERVICE = Service(gpus=2, slots=8, output_tokens=40)


def swept(service: Service = SERVICE, **settings: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    return virtual_time.simulate_sweep(service, build_sweep_config(protocol="function", simulated=True, **settings))


def test_the_same_seed_gives_the_same_tables_and_another_seed_others() -> None:
    one, again, other = (swept(users=[4, 9], seed=seed)[0] for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)


def test_exactly_so_many_are_in_flight() -> None:
    requests, steps = swept(users=[1, 7, 24])
    table, _ = assess_steps(requests, steps)
    assert table["in_flight"].to_list() == pytest.approx([1, 7, 24], rel=1e-6)
    assert table["server_in_service"].to_list() == pytest.approx([1, 7, 24], rel=1e-6)
    assert table["verdict"].to_list() == ["valid"] * 3


def test_the_load_is_kept_on_until_the_last_kept_request_has_ended() -> None:
    requests, _ = swept(Service(output_cv=3.0), users=[16])
    kept, tail = requests.filter(~pl.col("tail")), requests.filter(pl.col("tail"))
    assert kept["request"].to_list() == list(range(kept.height))
    assert kept["ended_s"].max() <= requests["ended_s"].max()
    assert tail.height > 0
    # At the moment the last kept one ends, users still hold the load.
    last = kept["ended_s"].max()
    assert requests.filter((pl.col("sent_s") <= last) & (pl.col("ended_s") >= last)).height >= 1


def test_think_time_thins_what_is_in_flight() -> None:
    requests, steps = swept(users=[40], think_time_s=2.0)
    table, _ = assess_steps(requests, steps)
    busy, runtime = table["in_flight"][0], requests["runtime_s"].mean()
    assert busy == pytest.approx(40 * runtime / (runtime + 2.0), rel=0.15)


def test_arrivals_come_at_the_rate_that_was_asked_for() -> None:
    requests, steps = swept(Service(gpus=8, slots=64), rates=[20.0], arrivals="poisson", least_samples=1000)
    table, _ = assess_steps(requests, steps)
    assert table["rate_per_s"][0] == pytest.approx(20, rel=0.1)
    assert table["load_unit"].to_list() == ["1/s"]
    gaps = np.diff(requests["sent_s"].to_numpy())
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.12)


def test_an_admission_cap_is_detected_and_named() -> None:
    requests, steps = swept(Service(slots=64, admission=8), users=[4, 32])
    table, _ = assess_steps(requests, steps)
    assert table["verdict"].to_list() == ["valid", "server-limited"]
    assert "server admits about 8" in table["reason"][1]


def test_the_ladder_ends_around_the_goal() -> None:
    requests, steps = swept(goals=[Goal(limit_s=1.5)])
    table, quantiles = assess_steps(requests, steps)
    p95 = quantiles.filter((pl.col("metric") == "runtime") & (pl.col("q") == 0.95)).sort("load")
    below = p95.filter(pl.col("value_s") <= 1.5)["load"].max()
    assert p95.filter(pl.col("value_s") > 1.5)["load"].min() / below <= 1.5
    assert table["n_kept"].min() >= 200


def test_first_tokens_are_timed_when_a_goal_asks_for_them() -> None:
    requests, _ = swept(users=[2], goals=[Goal(metric="ttft", limit_s=1.0)])
    assert requests["ttft_s"].null_count() == 0
    assert (requests["ttft_s"] < requests["runtime_s"]).all()
    assert swept(users=[2])[0]["ttft_s"].null_count() == swept(users=[2])[0].height
