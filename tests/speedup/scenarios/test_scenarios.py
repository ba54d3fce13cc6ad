"""What-ifs of SIMULATED applications that really run otherwise: the estimate is the time that they take."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.conftest import SAMPLES
from tests.worlds.spark_run import World
from tests.worlds.spark_weeks import draw_night
from workbench.core.errors import ConfigError
from workbench.eventlog.reader import read_event_logs
from workbench.speedup.command import app
from workbench.speedup.config import ScenarioConfig
from workbench.speedup.scenarios.estimate import (
    FASTER,
    NO_DIFFERENCE,
    Replayer,
    estimate_scenarios,
    find_interval,
    study_scenarios,
)
from workbench.speedup.scenarios.scenario import (
    ENDLESS,
    Scenario,
    drop_stragglers,
    even_out,
    list_scenarios,
    split_anew,
)
from workbench.speedup.scenarios.spared_work import find_broadcast_work
from workbench.speedup.scenarios.task_graph import StageTasks, TaskGraph, build_task_graph

RUNNER = CliRunner()
LOG = str(SAMPLES / "eventlogs" / "tpch_sf0.1.zstd")


def build_graph(world: World, folder: Path) -> TaskGraph:
    return build_task_graph(read_event_logs(world.write(folder)))


def estimate_s(graph: TaskGraph, scenario: Scenario) -> float:
    result = estimate_scenarios(Replayer(graph), [scenario])
    assert result.reasons == ()
    return float(result.scenarios["wall_s"][1])


@pytest.mark.parametrize("seed", range(10))
def test_another_cluster_takes_as_long_as_was_estimated(seed: int, tmp_path: Path) -> None:
    graph = build_graph(draw_night(seed, 0, 0.0), tmp_path / "as it is")
    for count in (1, 2, 3, 4, 8):
        truth_s = draw_night(seed, 0, 0.0, executors=count).truth.wall_s
        estimated_s = estimate_s(graph, Scenario("", executors=count))
        assert estimated_s == pytest.approx(truth_s, rel=0.03)
    for cores in (1, 2, 8):
        truth_s = draw_night(seed, 0, 0.0, cores=cores).truth.wall_s
        assert estimate_s(graph, Scenario("", cores=cores)) == pytest.approx(truth_s, rel=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_without_the_stragglers_it_takes_what_it_takes_without_them(seed: int, tmp_path: Path) -> None:
    graph = build_graph(draw_night(seed, 0, 0.0, "stragglers"), tmp_path)
    truth_s = draw_night(seed, 0, 0.0).truth.wall_s
    estimated_s = estimate_s(graph, Scenario("", no_stragglers=True))
    assert estimated_s == pytest.approx(truth_s, rel=0.1)
    assert estimated_s < 0.9 * graph.wall_ms / 1e3


def tasks(*times: float, rows: tuple[int, ...] = ()) -> StageTasks:
    return StageTasks(0, 0, 0, times, rows or (-1,) * len(times))


def test_long_tasks_with_more_rows_are_skew_and_others_stragglers() -> None:
    skewed = tasks(10, 10, 10, 10, 60, rows=(5, 5, 5, 5, 30))
    assert even_out(skewed) == (20,) * 5
    assert drop_stragglers(skewed) == skewed.times_ms
    late = tasks(10, 10, 10, 10, 60, rows=(5, 5, 5, 5, 5))
    assert drop_stragglers(late) == (10,) * 5
    assert even_out(late) == late.times_ms
    assert drop_stragglers(tasks(10, 12, 60, 70, rows=(5, 5, 5, 5))) == (10, 12, 11, 11)
    # Where rows are not known, either may be: the sure change is none, the other is both.
    unknown = tasks(10, 10, 10, 10, 60)
    assert drop_stragglers(unknown) == even_out(unknown) == unknown.times_ms
    assert drop_stragglers(unknown, is_sure=False) == (10,) * 5
    assert even_out(unknown, is_sure=False) == (20,) * 5


def test_the_same_work_in_other_partitions_keeps_what_one_key_has_beyond_the_others() -> None:
    assert split_anew(tasks(10, 10, 10, 10), 8) == (5,) * 8
    skewed = split_anew(tasks(10, 10, 10, 10, 60, rows=(5, 5, 5, 5, 30)), 10)
    assert sum(skewed) == 100
    assert max(skewed) == 55


def test_by_default_shapes_around_the_recorded_one_are_shown() -> None:
    graph = build_task_graph(read_event_logs(LOG))
    names = [scenario.name for scenario in list_scenarios(graph)]
    assert names == ["2 executors", "4 executors", "no skew", "no stragglers", ENDLESS]
    asked = [scenario.name for scenario in list_scenarios(graph, executors=[3], cores=[1, 8])]
    assert asked == ["3 executors of 1 core", "3 executors of 8 cores", ENDLESS]


def test_hours_and_costs_are_those_of_the_executors() -> None:
    graph = build_task_graph(read_event_logs(LOG))
    scenarios = [Scenario("twice", executors=2 * graph.n_executors), Scenario("half the cores", cores=1)]
    result = estimate_scenarios(Replayer(graph), scenarios, price_per_executor_h=10.0)
    recorded, twice, half = result.scenarios.to_dicts()
    assert recorded["core_h"] == pytest.approx(recorded["executor_h"] * graph.executor_cores)
    came_ms = graph.executors[0].added_ms
    assert twice["executor_h"] == pytest.approx(2 * (twice["wall_s"] - came_ms / 1e3) / 3600)
    assert twice["cost"] == pytest.approx(10 * twice["executor_h"])
    # An executor of half the cores costs half as much.
    assert half["cost"] == pytest.approx(5 * half["executor_h"])


def test_a_verdict_needs_the_recorded_time_outside_of_the_interval() -> None:
    low, high = find_interval(100.0, [95.0, 60.0])
    assert (round(low, 1), round(high, 1)) == (49.8, 102.4)
    graph = build_task_graph(read_event_logs(LOG))
    result = estimate_scenarios(Replayer(graph), list_scenarios(graph))
    verdicts = dict(result.scenarios.select("scenario", "verdict").iter_rows())
    assert (verdicts["2 executors"], verdicts["no skew"]) == (FASTER, NO_DIFFERENCE)


def test_the_critical_path_adds_up_to_the_replay() -> None:
    graph = build_task_graph(read_event_logs(LOG))
    result = estimate_scenarios(Replayer(graph), [])
    parts = result.critical_path.select("driver_s", "longest_task_s", "slots_s").sum().row(0)
    assert result.own_error is not None
    assert sum(parts) == pytest.approx(graph.wall_ms * (1 + result.own_error) / 1e3, rel=0.01)


def test_the_command_writes_its_tables_and_refuses_settings_without_effect(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = RUNNER.invoke(app, ["what-if", LOG, "--executors", "2", "--json", "--out", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["answer"].startswith("With 2 executors it would take ")
    assert {path.stem for path in (out / "tables").iterdir()} == {"scenarios", "critical_path"}
    refused = RUNNER.invoke(app, ["what-if", LOG, "--partitions", "8"])
    assert refused.exception is not None
    assert "adaptive execution chooses the partitions" in str(refused.exception)


def test_broadcast_spares_at_least_sorts_and_exchanges_and_at_most_the_join_too() -> None:
    facts = read_event_logs(LOG)
    work = find_broadcast_work(facts)
    assert work
    assert all(0 <= one.least <= one.likely <= one.most <= 1 for one in work)
    joins = facts.plan_nodes.filter("is_final", node_name="SortMergeJoin")["sql_id"].unique()
    stages = facts.stages.filter(pl.col("sql_id").is_in(joins.implode()))["stage_id"].to_list()
    assert {one.stage_id for one in work} <= set(stages)
    result = estimate_scenarios(Replayer(build_task_graph(facts)), [Scenario("broadcast", spared=work)])
    row = result.scenarios.row(1, named=True)
    assert row["low_s"] < row["wall_s"] < result.scenarios["wall_s"][0]


def test_a_log_without_such_joins_has_nothing_to_broadcast() -> None:
    log = str(SAMPLES / "eventlogs" / "failing.zstd")
    with pytest.raises(ConfigError, match="no shuffled join has a side that can be broadcast"):
        study_scenarios(read_event_logs(log), ScenarioConfig(event_log=log, broadcast=True))
