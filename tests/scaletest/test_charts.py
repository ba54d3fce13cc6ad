"""Charts of runs whose truth is known: what they draw, and that they draw it for runs of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis, ramp_of
from workbench.scaletest import charts
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.time_breakdown import STEP_NAMES
from workbench.scaletest.analysis.variants import compare_variants
from workbench.scaletest.charts import run_charts
from workbench.scaletest.tables import LEAGUE, PRESSURE
from workbench.scaletest.test_run import live_dashboard

DRAWN = {
    "steps": lambda one: charts.chart_steps(one.quantiles),
    "shares": lambda one: charts.chart_time_shares(one.shares),
    "flow": lambda one: charts.chart_flow(one.flow),
    "ramp": lambda one: charts.chart_ramp(one.ramp),
    "gpus": lambda one: charts.chart_gpus(one.gpus),
}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    due, steps = ramp_of([20, 40, 80], 15)
    plan = Plan(due, steps, scheduled_per_s=50, jitter=0.3, nodes=300)
    return analysis(plan, tmp_path_factory.mktemp("busy"))


@pytest.fixture
def lossy(tmp_path: Path) -> Analysis:
    """7 of 200 are lost: p95 has a value, and nothing bounds it above."""
    return analysis(Plan(np.arange(200) / 40, lost=tuple(range(0, 140, 20)), jitter=0.3), tmp_path)


def rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return max(spec["datasets"].values(), key=len)


@pytest.mark.parametrize("name", DRAWN)
def test_a_chart_says_in_words_what_it_draws(name: str, busy: Analysis) -> None:
    spec = json.loads(DRAWN[name](busy).to_json())
    assert spec["description"].startswith(spec["title"]["text"])
    assert 0 < len(rows(spec)) <= 5000


@pytest.mark.parametrize("name", DRAWN)
def test_a_run_of_nothing_is_drawn_empty(name: str, tmp_path: Path) -> None:
    DRAWN[name](analysis(Plan(np.arange(3) / 20, unseen=(0, 1, 2), gpus=0.0), tmp_path)).to_dict()


def test_the_parts_of_a_bar_add_up_to_all(busy: Analysis) -> None:
    found = rows(charts.chart_time_shares(busy.shares).to_dict())
    for which in ("all", "slowest 5 %"):
        own = [row for row in found if row["workloads"] == which]
        assert own[0]["begin"] == pytest.approx(0)
        assert own[-1]["end"] == pytest.approx(1)


def test_bars_of_several_runs_have_one_colour_for_a_segment_that_only_some_have(busy: Analysis) -> None:
    fewer = busy.shares.filter(pl.col("segment") != busy.shares["segment"][0])
    spec = charts.chart_time_shares({"a": fewer, "b": busy.shares}).to_dict()
    assert sorted(spec["layer"][0]["encoding"]["color"]["scale"]["domain"]) == sorted(busy.shares["segment"])
    assert {row["workloads"] for row in rows(spec)} == {
        f"{name}, {part}" for name in "ab" for part in ("all", "slowest 5 %")
    }


def test_the_gpus_of_a_moment_add_up_to_the_capacity(busy: Analysis) -> None:
    found = pl.DataFrame(rows(charts.chart_gpus(busy.gpus).to_dict()))
    tops = found.group_by("at_s").agg(pl.col("top").max())["top"]
    assert tops.min() == tops.max() == pytest.approx(2400)


def test_the_pressure_on_the_control_plane_is_drawn_with_what_took_most(tmp_path: Path) -> None:
    subjects = {f"hook-{number}": 0.01 * number for number in range(1, 9)} | {"quick": 0.0001}
    looked = [
        {"at_s": at, "over_s": 5.0, "component": "kube-apiserver", "measure": "admission webhook", "subject": subject}
        | {"n": 10, "mean_s": mean_s, "p99_s": None, "level": None}
        for at in (5.0, 10.0)
        for subject, mean_s in subjects.items()
    ]
    levels = [{**looked[0], "measure": "work queue", "n": None, "mean_s": None, "level": 3.0}]
    spec = json.loads(charts.chart_pressure(PRESSURE.frame([*looked, *levels])).to_json())
    drawn = {row["whose"] for row in rows(spec)}
    assert drawn == {f"kube-apiserver: admission webhook hook-{number}" for number in range(3, 9)}
    assert "3 more that took less are not drawn" in spec["title"]["subtitle"]
    charts.chart_pressure(PRESSURE.frame([])).to_dict()


def test_points_that_are_left_out_of_step_lines_change_no_line(busy: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_charts, "MAX_COURSE_POINTS", 1_000_000)
    flow = busy.flow
    drawn = pl.DataFrame(rows(json.loads(charts.chart_flow(flow).to_json())))
    assert drawn.height < flow.height * drawn["stage"].n_unique()
    for column, stage in (("acked", "workloads accepted"), ("pods_scheduled", "pods scheduled")):
        points = drawn.filter(drawn["stage"] == stage).sort("at_s").with_columns(pl.col("at_s") + 1e-9)
        whole = flow.select(pl.col("at_s").round(3) + 1e-6, column).join_asof(points, on="at_s")
        assert whole[column].to_list() == whole["count"].to_list()


def test_a_course_has_the_last_point_of_each_of_its_parts(busy: Analysis) -> None:
    drawn = pl.DataFrame(rows(json.loads(charts.chart_flow(busy.flow).to_json())))
    assert drawn.group_by("stage").len()["len"].max() <= run_charts.MAX_COURSE_POINTS + 2  # type: ignore[operator]
    ends = dict(drawn.sort("at_s").group_by("stage").last().select("stage", "count").iter_rows())
    assert ends["pods scheduled"] == busy.flow["pods_scheduled"][-1]


def test_steps_keep_their_order_whatever_their_intervals(lossy: Analysis) -> None:
    spec = charts.chart_steps(lossy.quantiles).to_dict()
    (order,) = {tuple(layer["encoding"]["y"]["sort"]) for layer in spec["layer"]}
    names = [name for name in STEP_NAMES if name in order]
    assert list(order) == names


def test_workloads_of_several_pods_are_drawn_as_pods_from_their_acceptance(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 20, pods=4), tmp_path)
    stages = {row["stage"] for row in rows(charts.chart_flow(found.flow).to_dict())}
    assert stages == {"pods accepted", "pods made", "pods scheduled", "pods started", "pods ended"}


def test_points_beyond_the_diagonal_are_never_drawn_as_sustained(busy: Analysis) -> None:
    found = [row for row in rows(charts.chart_ramp(busy.ramp).to_dict()) if "verdict" in row]
    assert [row["verdict"] for row in found] == ["SUSTAINED", "SUSTAINED", "NOT SUSTAINED"]


def test_steps_that_never_ended_are_counted_in_the_subtitle(tmp_path: Path) -> None:
    lossy = analysis(Plan(np.arange(100) / 20, lost=tuple(range(100))), tmp_path)
    spec = charts.chart_steps(lossy.quantiles).to_dict()
    assert "without a figure" in spec["title"]["subtitle"]
    assert "scheduling" not in {row["step"] for row in rows(spec)}


def test_an_interval_without_an_upper_end_is_drawn_dashed_to_the_longest(lossy: Analysis) -> None:
    spec = charts.chart_steps(lossy.quantiles).to_dict()
    assert "dashed: not bounded above" in spec["title"]["subtitle"]
    ends = [row for row in rows(spec) if row["step"] == "due to scheduled"]
    opened = [row for row in ends if row["high_s"] is None]
    assert opened
    table = lossy.quantiles.filter((pl.col("step") == "due to scheduled") & (pl.col("clock") == "client"))
    assert {row["to_s"] for row in opened} == {table["longest_s"][0]}
    dashed = [layer for layer in spec["layer"] if "strokeDash" in layer["mark"]]
    assert [layer["transform"][0]["filter"] for layer in dashed] == ["!isValid(datum.high_s)"]


def test_intervals_that_are_bounded_are_not_called_dashed(busy: Analysis) -> None:
    bounded = busy.quantiles.filter(pl.col("high_s").is_not_null())
    assert "dashed" not in charts.chart_steps(bounded).to_dict()["title"]["subtitle"]


def test_a_run_without_times_of_ours_is_drawn_by_the_clusters(busy: Analysis) -> None:
    spec = charts.chart_steps(busy.quantiles.filter(pl.col("clock") == "server")).to_dict()
    assert "by the cluster's clock" in spec["title"]["subtitle"]
    assert rows(spec)


def spread(*sides: tuple[str, list[float | None]]) -> dict[str, Any]:
    parts = [{"side": side, "run": 1, "duration_s": value} for side, values in sides for value in values]
    schema = {"side": pl.String, "run": pl.Int64, "duration_s": pl.Float64}
    found: dict[str, Any] = charts.chart_spread(pl.DataFrame(parts, schema=schema), "scheduling").to_dict()
    return found


def test_a_line_stays_below_the_share_that_got_there_and_marks_no_quantile_beyond() -> None:
    lost: list[float | None] = [float(second) for second in range(1, 71)] + [None] * 30
    spec = spread(("default", lost), ("kai", [float(second) for second in range(1, 101)]))
    everything = [row for data in spec["datasets"].values() for row in data]
    own = {row["quantile"]: row["duration_s"] for row in everything if row["side"] == "default" and "quantile" in row}
    assert own == {"p50": 50.0}  # of all 100, not of the 70 that are left
    assert max(row["share"] for row in everything if row["side"] == "default") == pytest.approx(0.7)
    assert max(row["share"] for row in everything if row["side"] == "kai") == pytest.approx(1)
    assert "stays below 100 %: 30 of 100 (default), 0 of 100 (kai)" in spec["title"]["subtitle"]


def test_a_step_that_nobody_began_or_ended_is_drawn_empty() -> None:
    assert spread()["title"]["subtitle"] == "no workload began this step"
    assert "3 of 3 (a)" in spread(("a", [None] * 3))["title"]["subtitle"]


def test_rows_without_a_ratio_are_counted(busy: Analysis, tmp_path: Path) -> None:
    lossy = analysis(Plan(np.arange(100) / 20, lost=tuple(range(60))), tmp_path)
    found = compare_variants([busy.quantiles] * 2, [busy.quantiles, lossy.quantiles], names=("default", "kai"))
    subtitle = charts.chart_comparison(found, "default", "kai").to_dict()["title"]["subtitle"]
    none = found.filter(pl.col("ratio").is_null()).height
    assert none
    assert f"not drawn: {none} rows without a ratio ({none} where kai never got there)" in subtitle
    assert "95 % intervals" in subtitle


def test_a_comparison_is_drawn_with_its_verdicts(busy: Analysis) -> None:
    found = compare_variants([busy.quantiles] * 2, [busy.quantiles] * 2)
    spec = charts.chart_comparison(found, "default", "kai").to_dict()
    assert spec["title"]["text"] == "In which steps is kai faster than default?"
    assert {row["ratio"] for row in rows(spec)} == {1.0}


def league_rows(**changes: Any) -> pl.DataFrame:
    """Three schedulers: the first deadlocks two gangs and never reaches p95."""
    base: dict[str, Any] = {one.name: None for one in LEAGUE.columns} | {
        "runs": 2, "invalid": 0, "gangs": 10, "held_gpu_s": 0.0, "evicted": 0, "p50_s": 0.1, "p95_s": 0.4
    }  # fmt: skip
    rows = [
        {"side": "stock", "complete": 7, "deadlocked": 2, "p95_s": None},
        {"side": "gang", "complete": 10, "deadlocked": 0},
        {"side": "queue", "complete": 8, "deadlocked": 0},
    ]
    return LEAGUE.frame([base | row | changes for row in rows])


def test_the_gangs_of_a_league_add_up_and_a_wait_without_an_end_is_named_and_not_drawn() -> None:
    spec = charts.chart_league(league_rows()).to_dict()
    gangs, view = spec["vconcat"]
    waits = [layer["data"]["name"] for layer in view["layer"]]
    bars = spec["datasets"][gangs["data"]["name"]]
    assert {(row["side"], row["outcome"], row["count"]) for row in bars} == {
        ("stock", "complete", 7), ("stock", "deadlocked", 2), ("stock", "not complete", 1),
        ("gang", "complete", 10), ("queue", "complete", 8), ("queue", "not complete", 2),
    }  # fmt: skip
    assert [len(spec["datasets"][name]) for name in waits] == [3, 2]
    assert "no p95 for stock: fewer than 95 % were scheduled in a run" in spec["title"]["subtitle"]


def test_a_league_without_gangs_is_drawn_by_its_waits() -> None:
    assert len(charts.chart_league(league_rows(gangs=0, complete=0, deadlocked=0)).to_dict()["vconcat"]) == 1


def test_variants_stand_side_by_side_on_shared_axes_with_their_names(busy: Analysis) -> None:
    both = charts.compare_variants({"default": busy, "kai": busy}, DRAWN["flow"]).to_dict()
    assert [view["title"]["text"] for view in both["concat"]] == ["default", "kai"]
    assert both["resolve"]["scale"] == {"x": "shared", "y": "shared", "color": "shared"}
    one = charts.compare_variants({"default": busy}, DRAWN["flow"]).to_dict()
    assert not one["title"]["text"].startswith("default")
    assert charts.compare_variants({}, DRAWN["flow"]) is None


def test_the_rates_of_variants_are_named_at_the_ends_of_their_lines(busy: Analysis) -> None:
    spec = charts.chart_rates({"default": busy, "kai": busy}).to_dict()
    told = {row["told"]: row["place"] for rows in spec["datasets"].values() for row in rows if "told" in row}
    assert set(told) == {f"{name}: {busy.sustainable.words}" for name in ("default", "kai")}
    assert len(set(told.values())) == 2
    assert charts.chart_rates({"": busy}).to_dict()["title"]["text"] == "Which rate is sustained?"


def test_the_live_chart_draws_the_course(tmp_path: Path) -> None:
    from workbench.scaletest.test_run.live_dashboard import COURSE

    row = {"at_s": 1.0, "accepted": 3, "refused": 0, "made": 2, "scheduled": 1, "running": 0}
    spec = live_dashboard.chart_course(
        COURSE.frame([row | {"scheduled_per_s": 1.0, "p50_s": None, "p95_s": None}])
    ).to_dict()
    assert {one["count"] for one in rows(spec)} == {0, 1, 2, 3}
