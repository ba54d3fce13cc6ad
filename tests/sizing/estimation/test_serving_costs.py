"""Costs of what is served: by hand from the requests of three recorded sweeps, and null where they are not known."""

from __future__ import annotations

from statistics import stdev
from typing import Any

import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.sizing.making import closed, steps
from workbench.sizing.config import Goal
from workbench.sizing.estimation.serving_costs import COST_COLUMNS, compute_costs
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.load import sweep_journal
from workbench.sizing.other_tools import sweep_import
from workbench.sizing.other_tools.imported_sweep import build_raw_tables

PRICE = 2.5
T_OF_NINE = 1.8331129  # 95th percentile of the t distribution with 9 degrees of freedom


def read_guidellm() -> tuple[pl.DataFrame, pl.DataFrame]:
    return build_raw_tables(sweep_import.read_tool_result(SAMPLES / "sizing" / "guidellm" / "users.json.gz"), 2)


def read_aiperf() -> tuple[pl.DataFrame, pl.DataFrame]:
    return build_raw_tables(sweep_import.read_tool_result(SAMPLES / "sizing" / "aiperf" / "users"), 4)


def read_transformers() -> tuple[pl.DataFrame, pl.DataFrame]:
    sweep, _ = sweep_journal.load_sweep_journal(SAMPLES / "gpu" / "sizing")
    return sweep.requests, sweep.steps


def price_by_hand(rows: list[dict[str, Any]], n_warmup: int, gpus: int, limit_s: float) -> dict[str, float | None]:
    """Plain arithmetic over the requests of one step, in the order of sending."""
    kept = [row for row in sorted(rows, key=lambda row: row["request"]) if not row["tail"]][n_warmup:]
    begin, end = min(row["sent_s"] for row in kept), max(row["sent_s"] for row in kept)
    ended = [row for row in rows if begin <= row["ended_s"] < end]

    def good(row: dict[str, Any]) -> bool:
        return row["outcome"] == "ok" and row["runtime_s"] <= limit_s

    def tokens(row: dict[str, Any]) -> int:
        return int(row["output_tokens"] or 0)

    prices: dict[str, float | None] = {}
    for name, n_sold, amount in (("cost_per_1000", 1_000, lambda _: 1), ("cost_per_million_tokens", 1e6, tokens)):
        share = sum(amount(row) for row in kept if good(row)) / sum(amount(row) for row in kept)
        rate = share * sum(amount(row) for row in ended) / (end - begin)
        length = (end - begin) / 10
        parts = [
            sum(amount(row) for row in ended if good(row) and min(9, int((row["ended_s"] - begin) / length)) == part)
            / length
            for part in range(10)
        ]
        half = T_OF_NINE * stdev(parts) / 10**0.5
        seconds_price = gpus * PRICE / 60 / 60 * n_sold
        prices |= {name: seconds_price / rate, f"{name}_low": seconds_price / (rate + half)}
        prices[f"{name}_high"] = seconds_price / (rate - half) if rate > half else None
    return prices


@pytest.mark.parametrize("read", [read_guidellm, read_aiperf, read_transformers])
def test_costs_are_those_by_hand_for_a_recorded_sweep(read: Any) -> None:
    requests, measured = read()
    limit = float(requests["runtime_s"].quantile(0.8))
    found = compute_answer(requests, measured, [Goal(limit_s=limit)], 100, gpu_price_per_hour=PRICE, draws=10)
    assert found.goodput.height >= 2
    n_null = 0
    for row in found.goodput.iter_rows(named=True):
        point = found.points.row(by_predicate=pl.col("step") == row["step"], named=True)
        rows, by_hand = requests.filter(step=row["step"]).to_dicts(), dict.fromkeys(COST_COLUMNS)
        if row["within_share"]:
            by_hand = price_by_hand(rows, point["n_warmup"], point["gpus"], limit)
        n_null += sum(value is None for value in by_hand.values())
        assert {name for name in COST_COLUMNS if row[name] is None} == {
            name for name in by_hand if by_hand[name] is None
        }
        assert [row[name] or 0 for name in COST_COLUMNS] == pytest.approx([by_hand[name] or 0 for name in COST_COLUMNS])
    assert n_null < 3 * found.goodput.height


def answer(frame: pl.DataFrame, price: float | None = PRICE, limit_s: float = 2.0) -> SizingAnswer:
    return compute_answer(frame, steps({"users": 4}), [Goal(limit_s=limit_s)], 10, gpu_price_per_hour=price, draws=10)


def test_costs_are_null_without_a_price_where_nothing_is_within_and_where_tokens_are_not_counted() -> None:
    frame = closed(4, [1.0] * 300).with_columns(output_tokens=pl.lit(7))
    known = answer(frame).goodput.row(0, named=True)
    assert known["cost_per_million_tokens"] == pytest.approx(known["cost_per_1000"] * 1_000 / 7)
    assert known["cost_per_1000_low"] <= known["cost_per_1000"] <= known["cost_per_1000_high"]
    assert known["joules_per_token"] is None
    for found in (answer(frame, price=None), answer(frame, limit_s=0.5)):
        assert [found.goodput[name][0] for name in COST_COLUMNS] == [None] * 6
    one_unknown = frame.with_columns(output_tokens=pl.when(pl.col("request") != 100).then(7))
    row = answer(one_unknown).goodput.row(0, named=True)
    assert row["cost_per_1000"] == known["cost_per_1000"]
    assert row["cost_per_million_tokens"] == pytest.approx(known["cost_per_million_tokens"])
    many_unknown = frame.with_columns(output_tokens=pl.when(pl.col("request") % 5 > 0).then(7))
    row = answer(many_unknown).goodput.row(0, named=True)
    assert row["cost_per_1000"] == known["cost_per_1000"]
    assert [row[name] for name in COST_COLUMNS[3:]] == [None] * 3


@pytest.mark.parametrize(("every", "share"), [(20, 0.75), (5, None)])
def test_what_was_within_rests_on_the_requests_that_are_known(every: int, share: float | None) -> None:
    sent = closed(4, [1.0] * 300).with_columns(output_tokens=pl.lit(7))
    late = (pl.col("request") % 4) == 1
    known = sent.with_columns(ttft_s=pl.when(late).then(0.9).otherwise(0.1))
    missing = known.with_columns(ttft_s=pl.when((pl.col("request") % every) != 0).then("ttft_s"))
    goals = [Goal(metric="ttft", limit_s=0.5)]
    row = compute_answer(missing, steps({"users": 4}), goals, 10, draws=10).goodput.row(0, named=True)
    assert row["within_share"] == (None if share is None else pytest.approx(share, abs=0.03))
    assert row["unknown_share"] == pytest.approx(1 / every, abs=0.01)


def test_an_upper_end_is_null_where_the_rate_may_be_zero() -> None:
    frame = closed(1, [1.0] * 40).with_columns(output_tokens=pl.lit(7))
    within = (frame["request"] == 20).cast(float).to_numpy()
    point = {"gpus": 1, "rate_per_s": 1.0, "tokens_per_s": 7.0}
    found = compute_costs(frame, frame, within, point, PRICE)
    assert found["cost_per_1000"] is not None
    assert found["cost_per_1000_low"] is not None
    assert found["cost_per_1000_high"] is None
