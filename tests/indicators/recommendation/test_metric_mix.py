"""Mixes: weights by name, and the score of each round."""

from __future__ import annotations

import math

import polars as pl
import pytest

from tests.indicators.recommendation import making
from workbench.core.errors import ConfigError, InputError, InvalidResultError
from workbench.indicators.recommendation.metric_mix import Mix, score_rounds
from workbench.indicators.tables import OBSERVATIONS

METRICS = ["Sort", "Sort[n=5,kind=stable]", "Matmul", "MatrixRead.rows", "matmul_legacy"]


def observation(round_: int, arm: str, metric: str, value: float, better: str = "lower") -> dict[str, object]:
    return {
        "session_id": "s", "inspection_id": f"{arm}-{metric}", "run": round_, "round": round_, "arm": arm,
        "case": metric, "metric": metric, "value": value, "unit": "ms", "better": better, "tolerance": 0.02,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("sort=3, matr=1", {"Sort": 0.75, "MatrixRead.rows": 0.25}),
        ("SORT=1", {"Sort": 1.0}),
        ("matmul=1", {"Matmul": 1.0}),
        ("Sort[n=5,kind=stable]=1,Sort=1", {"Sort[n=5,kind=stable]": 0.5, "Sort": 0.5}),
        *(
            (f"{name}=1", {"Sort[n=5,kind=stable]": 1.0})
            for name in ("stable", "kind=stable", "KIND=Stable", "n=5", "5")
        ),
    ],
)
def test_weights_are_normalised_and_names_found_in_any_case_by_their_beginning_or_a_parameter(
    text: str, weights: dict[str, float]
) -> None:
    assert Mix.from_text(text, METRICS).weights == weights


def test_an_unknown_or_ambiguous_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match="an ambiguous name of a metric") as caught:
        Mix.from_text("f=sin=1", ["Ufunc[f=sin,n=1]", "Ufunc[f=sin,n=2]", "Sort"])
    assert "allowed: Ufunc[f=sin,n=1], Ufunc[f=sin,n=2]" in str(caught.value)
    with pytest.raises(ConfigError, match="no such metric in this session") as caught:
        Mix.from_text("fft=1", METRICS)
    assert all(name in str(caught.value) for name in METRICS)


def test_without_a_mix_all_metrics_weigh_the_same_and_are_told_in_words() -> None:
    assert str(Mix.equal_weights(["Sort", "Sin"])) == "equal weights of Sort, Sin"
    assert str(Mix.equal_weights([f"m{number}" for number in range(5)])) == "equal weights of 5 metrics"
    assert str(Mix.equal_weights(["Sort"])) == "1 Sort"
    assert Mix.equal_weights(["a", "b", "c", "d"]).weights == dict.fromkeys("abcd", 0.25)
    with pytest.raises(InvalidResultError, match="no metric to compare"):
        Mix.equal_weights([])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("=1", "an empty name"),
        ("sort", "a metric without a weight"),
        ("sort=0", "a number above 0"),
        ("sort=nan", "a number above 0"),
        ("sort=inf", "a number above 0"),
        ("sort=much", "a number above 0"),
        ("sort=1,SORT=2", "a metric is repeated"),
        ("", "a metric without a weight"),
    ],
)
def test_what_is_no_mix_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Mix.from_text(text, METRICS)


def test_the_margin_of_a_mix_averages_those_of_its_metrics_as_ratios() -> None:
    mix = Mix({"a": 0.5, "b": 0.5})
    assert mix.practical_margin({"a": 0.02, "b": 0.02}) == pytest.approx(0.02)
    assert mix.practical_margin({"a": 0.0, "b": 0.21}) == pytest.approx(0.1)


def test_the_score_of_a_round_is_the_weighted_mean_of_logs_above_is_better() -> None:
    rows = [
        observation(0, "a", "x", math.e), observation(0, "a", "y", math.e**2, "higher"),
        observation(0, "b", "x", 1.0), observation(0, "b", "y", 1.0, "higher"),
    ]  # fmt: skip
    made = score_rounds(OBSERVATIONS.frame(rows), Mix({"x": 0.25, "y": 0.75}))
    assert made.arms == ("a", "b")
    assert made.values[0] == pytest.approx([-0.25 + 1.5, 0.0])


def test_a_round_without_all_values_of_the_mix_is_missing_not_zero() -> None:
    rows = [observation(n, "a", metric, 1.0) for n in (0, 1) for metric in "xy"]
    rows += [observation(0, "b", "x", 2.0), observation(1, "b", "x", 2.0), observation(1, "b", "y", 2.0)]
    made = score_rounds(OBSERVATIONS.frame(rows), Mix({"x": 0.5, "y": 0.5}))
    assert math.isnan(made.arm_scores("b")[0])
    assert made.arm_scores("b")[1] == pytest.approx(-math.log(2))
    assert all(math.isnan(value) for value in made.arm_scores("not there"))
    # A value of zero has no logarithm.
    rows = [observation(0, "a", "x", 0.0), observation(0, "b", "x", 1.0)]
    assert score_rounds(OBSERVATIONS.frame(rows), Mix({"x": 1.0})).arms == ("b",)


def test_scaling_all_times_of_a_round_leaves_the_ratios_alone() -> None:
    values = making.numpy_session().observed.values
    factor = pl.when(pl.col("round") == 3).then(7.5).otherwise(1.0)
    scaled = values.with_columns(value=pl.col("value") * factor)
    mix = Mix({"Sort": 0.5, "Sin": 0.5})
    first, second = score_rounds(values, mix), score_rounds(scaled, mix)
    base = making.NAMES["2.2.6"]
    for arm in first.arms:
        one, other = (scores.arm_scores(arm) - scores.arm_scores(base) for scores in (first, second))
        assert other == pytest.approx(one, abs=1e-9)


def test_two_sessions_are_refused() -> None:
    rows = [observation(0, "a", "x", 1.0), {**observation(1, "a", "x", 1.0), "session_id": "t"}]
    with pytest.raises(InputError, match="never compared"):
        score_rounds(OBSERVATIONS.frame(rows), Mix({"x": 1.0}))
