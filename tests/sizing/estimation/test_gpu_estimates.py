"""Laws of scaling against capacities that follow one of them."""

from dataclasses import replace

import numpy as np
import pytest

from workbench.core.errors import InputError
from workbench.sizing.estimation.gpu_estimates import GpuCapacity, capacity_by_law, fit_scaling_laws

Law = tuple[float, ...]


def measured(law: Law, counts: list[int], error: float = 0.02, noise: float = 0.0, seed: int = 0) -> list[GpuCapacity]:
    found = []
    for count, slip in zip(counts, np.random.default_rng(seed).standard_normal(len(counts)), strict=True):
        value = capacity_by_law(law, count) * np.exp(noise * slip)
        found.append(GpuCapacity(count, value, value * (1 - error), value * (1 + error)))
    return found


def need(law: Law, load: float) -> int:
    return next(n for n in range(1, 10_000) if capacity_by_law(law, n) >= load)


def test_two_counts_give_a_line_and_amdahl() -> None:
    law = (10.0, 0.05, 0.0)
    table = fit_scaling_laws("p95", measured(law, [1, 4]), 50)
    assert table["model"].to_list() == ["linear", "Amdahl"]
    amdahl = table.row(1, named=True)
    assert amdahl["contention"] == pytest.approx(0.05, rel=1e-6)
    assert amdahl["gpus"] == need(law, 50) == 7
    assert table["gpus"][0] < 7
    assert amdahl["gpus_low"] <= 7 <= amdahl["gpus_high"]


def test_four_counts_give_the_universal_law() -> None:
    law = (10.0, 0.03, 0.0008)
    usl = fit_scaling_laws("p95", measured(law, [1, 2, 4, 8, 16]), 110).row(1, named=True)
    assert usl["model"] == "USL"
    assert (usl["contention"], usl["coherency"]) == (pytest.approx(0.03, rel=1e-4), pytest.approx(0.0008, rel=1e-4))
    assert usl["gpus"] == need(law, 110)


def test_hits_that_fall_with_the_gpus_give_the_law_of_missed_hits() -> None:
    law, shares = (10.0, 0.0, 0.0, 1.5, 0.4), {gpus: 0.8 / (1 + 0.4 * (gpus - 1)) for gpus in (1, 2, 4, 8)}
    known = [replace(one, cached_share=shares[one.gpus]) for one in measured(law, list(shares))]
    row = fit_scaling_laws("p95", known, 60).row(1, named=True)
    assert row["model"] == "falling hits"
    assert (row["miss_cost"], row["miss_rate"]) == (pytest.approx(1.5, rel=1e-4), pytest.approx(0.4, rel=1e-4))
    assert row["gpus"] == need(law, 60) > 8
    flat = [replace(one, cached_share=0.7) for one in known]
    assert fit_scaling_laws("p95", flat, 60)["model"][1] == "USL"
    unknown = [*known[:3], replace(known[3], cached_share=None)]
    assert fit_scaling_laws("p95", unknown, 60)["model"][1] == "USL"


def test_a_load_that_no_count_carries_is_refused_with_the_reason() -> None:
    usl = fit_scaling_laws("p95", measured((10.0, 0.05, 0.02), [1, 2, 4, 8]), 60).row(1, named=True)
    assert (usl["gpus"], usl["verdict"]) == (None, "no estimate")
    assert "no GPU count carries 60" in usl["reason"]


def test_nothing_is_said_beyond_twice_the_largest_count() -> None:
    table = fit_scaling_laws("p95", measured((10.0, 0.0, 0.0), [1, 2]), 45)
    assert table["gpus"].to_list() == [None, None]
    assert "more than 4 GPUs" in table["reason"][0]


def test_linear_scaling_is_found_where_it_holds() -> None:
    table = fit_scaling_laws("p95", measured((10.0, 0.0, 0.0), [1, 2, 4, 8]), 120)
    assert table["gpus"].to_list() == [12, 12]


def test_the_interval_holds_about_as_often_as_it_says() -> None:
    law, load = (10.0, 0.04, 0.0005), 95.0
    truth = need(law, load)
    held = []
    for seed in range(120):
        row = fit_scaling_laws("p95", measured(law, [1, 2, 4, 8, 16], 0.0823, 0.05, seed), load, draws=200).row(
            1, named=True
        )
        held.append(row["gpus_low"] <= truth and (row["gpus_high"] is None or truth <= row["gpus_high"]))
    assert 0.84 <= np.mean(held) <= 0.99


@pytest.mark.parametrize("counts", [[2], [2, 2]])
def test_one_count_is_no_scaling(counts: list[int]) -> None:
    with pytest.raises(InputError, match="two or more distinct GPU counts"):
        fit_scaling_laws("p95", measured((10.0, 0.0, 0.0), counts), 45)


def test_a_peak_that_may_be_noise_is_no_proof_that_nothing_suffices() -> None:
    row = fit_scaling_laws("p95", measured((10.0, 0.0, 0.0), [1, 2, 4, 8], 0.1, 0.06, seed=3), 170).row(1, named=True)
    assert (row["gpus"], row["coherency_low"]) == (None, 0.0)
    assert "more than 16 GPUs" in row["reason"]
