"""The graph of a run explains its own time, whatever the log is of; where it does not, the verdict says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLES, SHARED
from tests.fakes import eventlogs as made
from tests.worlds.spark import draw_world
from workbench.core.errors import InputError
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup.scenarios.estimate import MAX_OWN_ERROR, Replayer, estimate_scenarios
from workbench.speedup.scenarios.scenario import Scenario
from workbench.speedup.scenarios.task_graph import build_task_graph
from workbench.speedup.scenarios.virtual_schedule import replay_steps

LOGS = [
    SAMPLES / "eventlogs" / name for name in ("tpch_sf0.1.zstd", "failing.zstd", "rolled", "small/three_queries.zstd")
]
# Traits of worlds whose tasks run as Spark's scheduler would run them.
TRAITS = (
    "skew_join",
    "queue_wait",
    "driver_time",
    "client_fetch",
    "commit",
    "subquery",
    "ctas",
    "failed_query",
    "number_gaps",
    "rdd_jobs",
    "gaps_between",
    "task_cpus",
    "fetch_failed",
)


def measure_own_error(facts: EventLogFacts) -> float:
    graph = build_task_graph(facts)
    schedule = replay_steps(graph.steps, graph.executors)
    assert schedule is not None
    return schedule.wall_ms / graph.wall_ms - 1


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_the_replay_of_a_sample_takes_its_own_time(log: Path) -> None:
    facts = read_event_logs(log)
    for log_id in facts.logs["log_id"]:
        assert abs(measure_own_error(facts.select_log(log_id))) <= MAX_OWN_ERROR


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")
@pytest.mark.parametrize(
    "name",
    [
        "nds_q72_dataproc_2_2.zstd",
        "eventlog-gpu-dsv1.zstd",
        "eventlog-gpu-dsv2.zstd",
        "eventlog_dsv1.zstd",
        "eventlog_dsv2.zstd",
        "jdbc_eventlog.zstd",
        "pandas_execs_eventlog.zstd",
        "aqeshuffle_eventlog.zstd",
        "rdd_only_eventlog",
    ],
)
def test_the_replay_of_a_log_of_a_cluster_takes_its_own_time(name: str) -> None:
    assert abs(measure_own_error(read_event_logs(SHARED / "data" / "eventlogs" / name))) <= MAX_OWN_ERROR


@pytest.mark.parametrize("trait", TRAITS)
def test_simulated_applications_explain_their_own_time(trait: str, tmp_path: Path) -> None:
    for seed in range(3):
        log = draw_world(seed, [trait]).write(tmp_path / str(seed))
        assert abs(measure_own_error(read_event_logs(log))) <= MAX_OWN_ERROR


def test_what_the_graph_does_not_know_is_a_reason_and_no_figure(tmp_path: Path) -> None:
    for trait, told in (("stage_profile", "several resource profiles"), ("cut_tail", "lacks the application's end")):
        facts = read_event_logs(draw_world(9, [trait]).write(tmp_path / trait))
        result = estimate_scenarios(Replayer(build_task_graph(facts)), [Scenario("4 executors", executors=4)])
        assert result.verdict == "invalid"
        assert told in " ".join(result.reasons)
        assert result.answer.startswith("What another run would take is not known")


def test_a_log_without_executors_or_tasks_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(made.dump(made.log_start(), made.application_start(), made.environment(), made.application_end()))
    with pytest.raises(InputError, match="nothing to replay"):
        build_task_graph(read_event_logs(log))
