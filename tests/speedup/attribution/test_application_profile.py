"""A profile says what was put into the log: an application made by hand, all figures known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fakes import codecs
from tests.fakes import eventlogs as made
from tests.speedup.applications import application, tasks
from workbench.core.books import BOOKS
from workbench.core.errors import BrokenInvariantError, InputError
from workbench.eventlog.reader import EventLogFacts, read_event_logs
from workbench.speedup import tables
from workbench.speedup.attribution.application_profile import (
    CODEGEN_PART,
    NO_SQL_PART,
    OUTSIDE,
    TIMED_PART,
    UNTIMED_PART,
    Profile,
    build_profile,
    check_profile,
    sum_covered_time,
)
from workbench.speedup.attribution.operator_explanation import explain_operator, measure_single_log, read_single_log

LOGS = SAMPLES / "eventlogs"
Make = Callable[..., EventLogFacts]


@pytest.fixture
def facts(tmp_path: Path) -> Make:
    def make(content: bytes) -> EventLogFacts:
        path = tmp_path / "log"
        path.write_bytes(content)
        return read_event_logs(path)

    return make


@pytest.fixture
def result(facts: Make) -> Profile:
    return build_profile(facts(application()))


def test_parts_of_the_coverage_are_those_put_in(result: Profile) -> None:
    parts = {row[0]: row[1:] for row in result.coverage.select("part", "task_time_s", "n_stages").iter_rows()}
    assert parts == {CODEGEN_PART: (2.0, 1), TIMED_PART: (4.0, 1), UNTIMED_PART: (0.5, 1), NO_SQL_PART: (1.0, 1)}
    assert result.coverage["task_time_share"].sum() == pytest.approx(1)


def test_the_overview_counts_wall_busy_and_task_time(result: Profile) -> None:
    row = result.overview.row(0, named=True)
    assert (row["wall_time_s"], row["busy_time_s"], row["stage_time_s"], row["overlap_ratio"]) == (8.0, 4.0, 12.0, 3.0)
    assert (row["task_time_s"], row["n_task_slots"]) == (7.5, 4)
    assert row["slot_use_share"] == pytest.approx(7.5 / (4 * 7.9)), "the executor came 0.1 s after the start"
    assert (row["n_queries"], row["n_failed_queries"], row["n_stages"], row["n_tasks"]) == (2, 1, 3, 6)


def test_queries_are_named_ordered_and_shared(result: Profile) -> None:
    first, second = result.queries.iter_rows(named=True)
    assert (first["query"], first["task_time_s"], first["n_stages"], first["n_tasks"]) == ("first query (0)", 6.5, 2, 5)
    assert (second["query"], second["status"], second["task_time_s"]) == ("query 1", "failed", 0.0)
    assert (first["task_time_share"], second["task_time_share"]) == (1.0, 0.0)
    assert first["end_s"] - first["start_s"] == pytest.approx(5.7) == first["duration_s"]


def test_skew_is_the_longest_over_the_median_task_where_there_are_enough(result: Profile) -> None:
    rows = {row["stage_id"]: row for row in result.stage_spans.iter_rows(named=True)}
    assert (rows[0]["skew_ratio"], rows[0]["skew_cost_s"]) == (3.0, 2.0)
    assert (rows[1]["skew_ratio"], rows[1]["skew_cost_s"]) == (None, None)
    assert (rows[2]["query"], rows[2]["sql_id"]) == (OUTSIDE, None)


def test_skew_is_unknown_when_the_median_task_took_no_time(facts: Make) -> None:
    content = made.small(made.stage_submitted(), *tasks(0, 0, 0, 0, 900), made.stage_completed())
    row = build_profile(facts(content)).stage_spans.row(0, named=True)
    assert (row["task_median_s"], row["skew_ratio"]) == (0.0, None)


def test_operator_times_are_in_seconds_and_the_drivers_apart(result: Profile) -> None:
    rows = {(row["operator"], row["where"]): row for row in result.operator_times.iter_rows(named=True)}
    assert set(rows) == {("WholeStageCodegen", "tasks"), ("BroadcastExchange", "driver")}, "rows are no time"
    codegen, driver = rows["WholeStageCodegen", "tasks"], rows["BroadcastExchange", "driver"]
    assert (codegen["total_s"], codegen["max_s"], codegen["n_tasks"], codegen["n_nodes"]) == (2.0, 0.5, 4, 1)
    assert (driver["total_s"], driver["max_s"], driver["n_tasks"]) == (5.0, None, 0)


def test_a_choice_of_queries_leaves_out_the_others_and_what_is_outside_sql(facts: Make) -> None:
    chosen = build_profile(facts(application()), sql_ids=[0])
    assert chosen.queries["sql_id"].to_list() == [0]
    assert chosen.stage_spans["stage_id"].to_list() == [0, 1]
    assert build_profile(facts(application()), sql_ids=[1]).overview["n_tasks"].to_list() == [0]


def test_the_profile_of_one_query_is_about_it_alone_and_says_so(facts: Make) -> None:
    log = facts(application())
    first, second = build_profile(log, sql_ids=[0]), build_profile(log, sql_ids=[1])
    row = first.overview.row(0, named=True)
    assert (row["wall_time_s"], row["busy_time_s"], row["task_time_s"], row["n_tasks"]) == (5.7, 4.0, 6.5, 5)
    assert row["slot_use_share"] == pytest.approx(6.5 / (4 * 5.7))
    assert first.details[0] == "Covers only first query (0)."
    assert "The 4 task slots were busy 29 % of 5.7 s; in 30 % of it no stage of theirs ran" in first.details[2]
    assert (second.answer, second.details) == ("It ran for 5.7 s and no task ended in it.", ("Covers only query 1.",))
    assert dict(first.coverage.select("part", "task_time_s").iter_rows())[NO_SQL_PART] == 0.0
    assert first.coverage["task_time_s"].sum() == 6.5
    assert first.operator_times.height == 2
    assert second.operator_times.height == second.stage_spans.height == 0
    assert first.failure_counts.height == 0
    assert second.failure_counts["message"].to_list() == ["it failed"]
    assert set(first.exclusive_times["sql_id"]) == {0}
    for chosen in (first, second):
        assert check_profile(chosen)["holds"].all()


def test_exclusive_times_of_a_query_add_up_to_its_time_once(result: Profile) -> None:
    rows = {(row[0], row[1], row[2]): row[3:] for row in result.exclusive_times.select(
        "sql_id", "stage_id", "operator", "wall_time_s", "task_time_s"
    ).iter_rows()}  # fmt: skip
    assert rows == {
        (0, None, "idle"): (pytest.approx(0.6), 0.0),
        (0, None, "driver"): (pytest.approx(1.1), 0.0),
        (0, None, "waiting for executors"): (pytest.approx(1.0), 0.0),
        (0, 0, "Filter"): pytest.approx((17 / 12, 3.0)),
        (0, 0, "Project"): pytest.approx((17 / 12, 3.0)),
        (0, 1, "Filter"): pytest.approx((1 / 12, 0.25)),
        (0, 1, "Project"): pytest.approx((1 / 12, 0.25)),
        (1, None, "driver"): (pytest.approx(5.7), 0.0),
    }
    assert set(result.exclusive_times["query"]) == {"first query (0)", "query 1"}
    operators = {row[0]: row[1:] for row in result.sum_operators().iter_rows()}
    assert list(operators) == ["driver", "Filter", "Project", "waiting for executors", "idle"]
    assert operators["Filter"] == pytest.approx((1.5, 1.5 / 11.4, 3.25))


def test_stages_have_their_exclusive_time_and_the_skew_of_the_longest_task(result: Profile) -> None:
    rows = result.sum_stages().select("sql_id", "stage_id", "wall_time_s", "task_time_s", "skew_ratio", "skew_cost_s")
    assert rows.rows() == [
        (0, 0, pytest.approx(17 / 6), 6.0, 3.0, 2.0),
        (None, 2, None, 1.0, None, None),
        (0, 1, pytest.approx(1 / 6), 0.5, None, None),
    ]


def test_exclusive_times_are_those_that_explain_prints() -> None:
    log = read_single_log(str(LOGS / "tpch_sf0.1.zstd"))
    measured = measure_single_log(log)
    found = build_profile(log).exclusive_times
    for sql_id, query, operator in ((18, "q21 pass 0", "Exchange"), (10, "q1 pass 0", "HashAggregate")):
        explained = explain_operator([("log", "log", log)], measured, query, operator)
        mine = found.filter(pl.col("sql_id") == sql_id, pl.col("operator") == operator)
        assert explained.sums["operator_s"].to_list() == pytest.approx([mine["wall_time_s"].sum()])


def test_every_second_of_a_sample_is_in_one_row() -> None:
    found = build_profile(read_event_logs(LOGS / "tpch_sf0.1.zstd"))
    # Query 8 started query 9, whose work it has.
    started = pl.col("sql_id").replace({9: 8})
    tasks = found.queries.group_by(started).agg(pl.col("task_time_s").sum())
    queries = found.queries.select("sql_id", "duration_s").join(tasks, on="sql_id").sort("sql_id")
    sums = found.exclusive_times.group_by("sql_id").agg(pl.col("wall_time_s", "task_time_s", "wall_time_share").sum())
    sums = sums.sort("sql_id")
    assert sums["sql_id"].to_list() == queries["sql_id"].to_list()
    assert sums["wall_time_s"].to_list() == pytest.approx(queries["duration_s"].to_list(), abs=1e-5)
    assert sums["task_time_s"].to_list() == pytest.approx(queries["task_time_s"].to_list())
    assert sums["wall_time_share"].to_list() == pytest.approx([1.0] * sums.height)


def test_what_a_query_started_is_a_part_of_it_and_alone_where_it_is_chosen_alone(facts: Make) -> None:
    outer = made.sql_start(0, made.plan("Execute CreateDataSourceTableAsSelectCommand"), "outer")
    inner = made.sql_start(1, made.plan("Range"), "inner") | {"rootExecutionId": 0}
    job = made.job_start(0, [0], {"spark.sql.execution.id": "1"})
    events = [outer, inner, job, made.stage_submitted(), *tasks(0, 3000), made.stage_completed(), made.job_end()]
    log = facts(made.small(*events, made.sql_end(1), made.sql_end(0)))
    for sql_ids, owner, covers in (
        ([], 0, None),
        ([0], 0, "Covers only outer (0)."),
        ([1], 1, "Covers only inner (1)."),
    ):
        found = build_profile(log, sql_ids=sql_ids)
        assert set(found.exclusive_times["sql_id"]) == {owner}
        assert found.exclusive_times["task_time_s"].sum() == found.overview["task_time_s"][0] == 3.0
        assert covers is None or found.details[0] == covers


def test_a_time_that_nests_says_what_it_includes(result: Profile) -> None:
    includes = dict(result.operator_times.select("operator", "includes").iter_rows())
    assert includes == {"WholeStageCodegen": "the operators fused in it", "BroadcastExchange": None}
    times = build_profile(read_event_logs(LOGS / "tpch_sf0.1.zstd")).operator_times
    by_metric = dict(times.select("metric", "includes").iter_rows())
    assert by_metric["time in aggregation build"] == "its inputs"
    assert by_metric["sort time"] == by_metric["scan time"] == "no other operator"


def test_unknown_queries_and_logs_are_refused_with_those_that_exist(facts: Make) -> None:
    with pytest.raises(InputError, match="no such SQL execution") as caught:
        build_profile(facts(application()), sql_ids=[0, 7])
    assert (caught.value.facts["found"], caught.value.facts["allowed"]) == ([7], [0, 1])
    with pytest.raises(InputError, match="no application of this number"):
        build_profile(facts(application()), log_id=3)
    with pytest.raises(InputError, match="no such SQL execution") as caught:
        build_profile(facts(made.small()), sql_ids=[0])
    assert caught.value.facts["allowed"] == "none: no SQL ran"


def test_a_sound_log_is_valid_and_its_answer_holds_the_figures(result: Profile) -> None:
    assert (result.verdict, result.reasons) == ("valid", ())
    assert result.answer == "Failed work costs about 5.7 s of 8.0 s, 2.9 to 5.7: look at the failures."
    assert result.details == (
        "1 query failed. Query: query 1.",
        "The 4 task slots were busy 24 % of 8.0 s; in 50 % of it no stage ran, and in 12 % a stage "
        "waited for executors.",
        "Most expensive query: first query (0), 100 % of task time.",
        "Operators report times in stages with only 80 % of the task time.",
        "It took 0.132 executor minutes and 0.527 core minutes, 76 % of these without a task.",
    )


def test_a_cut_a_damaged_and_a_stained_log_are_invalid_and_say_why(facts: Make) -> None:
    whole = application()
    cut = build_profile(facts(whole[: len(whole) * 3 // 4]))
    assert cut.verdict == "invalid"
    assert "incomplete" in cut.reasons[0]
    assert "1 of" in cut.reasons[-1]
    packed = bytearray(codecs.lz4(whole, piece_bytes=2048))
    packed[-200] ^= 0xFF
    damaged = build_profile(facts(bytes(packed)))
    assert any("damaged" in reason for reason in damaged.reasons)
    stained = build_profile(facts(whole + b"oops\n"))
    lines = whole.count(b"\n") + 1
    assert stained.reasons == (f"1 of {lines} lines could not be read",)


def test_an_application_that_did_nothing_has_tables_without_rows_and_an_answer(facts: Make) -> None:
    empty = build_profile(facts(made.small()))
    assert empty.verdict == "valid"
    assert empty.answer == "The application ran for 8.0 s and no task ended in it."
    assert empty.overview["overlap_ratio"].to_list() == [None]
    assert empty.coverage["task_time_share"].to_list() == [None] * 4
    for declared in tables.PROFILE_TABLES[1:]:
        if declared not in (tables.COVERAGE, tables.WALL_PARTS, tables.EXECUTOR_STEPS, tables.EXECUTOR_SHAPES, BOOKS):
            assert getattr(empty, declared.name).height == 0, declared.name
    assert check_profile(empty)["holds"].all()


def test_a_log_without_the_applications_start_says_so_and_counts_from_the_first_time_it_holds(facts: Make) -> None:
    headless = b"".join(line for line in application().splitlines(keepends=True) if b"ApplicationStart" not in line)
    found = build_profile(facts(headless))
    row = found.overview.row(0, named=True)
    assert (row["wall_time_s"], row["slot_use_share"], row["n_tasks"]) == (None, None, 6)
    assert found.queries["start_s"].to_list() == pytest.approx([0.3, 0.3]), "the executor came first"
    assert found.answer == "The log lacks the application's start."
    assert found.details[0] == "Its 6 tasks worked 7.5 s in 4.0 s with a stage running."
    assert found.findings.height == 0
    assert "lacks the application's start;" in found.reasons[0]
    empty = b"".join(line for line in made.small().splitlines(keepends=True) if b"ApplicationStart" not in line)
    answer = build_profile(facts(empty)).answer
    assert answer == "The log lacks the application's start, and no task ended in it."


def test_slots_are_those_at_one_time_and_count_while_their_executor_was_there(facts: Make) -> None:
    def executor(number: int, cores: int, from_ms: int, to_ms: int) -> list[dict[str, object]]:
        name = str(number)
        added, removed = made.executor_added(name, cores=cores), made.executor_removed(name)
        return [added | {"Timestamp": from_ms}, removed | {"Timestamp": to_ms}]

    events = [event for n in range(10) for event in executor(n, 4, 1000 + 800 * n, 1800 + 800 * n)]
    work = [made.job_start(), made.stage_submitted(), *tasks(0, *[1000] * 4), made.stage_completed(), made.job_end()]
    cpus = made.environment({"spark.task.cpus": "2"})
    events[10:10] = work
    content = made.dump(made.log_start(), cpus, made.application_start(), *events, made.application_end())
    row = build_profile(facts(content)).overview.row(0, named=True)
    assert row["n_task_slots"] == 2
    assert row["slot_use_share"] == pytest.approx(4 / (2 * 8))


def test_a_log_without_sql_books_all_time_outside_it() -> None:
    content = read_event_logs(LOGS / "failing.zstd")
    without = EventLogFacts(**{
        name: getattr(content, name).with_columns(sql_id=pl.lit(None, pl.Int64))
        if name == "stages" else getattr(content, name).clear() if name in ("sql_executions", "node_metrics")
        else getattr(content, name)
        for name in EventLogFacts.__dataclass_fields__
    })  # fmt: skip
    parts = dict(build_profile(without).coverage.select("part", "task_time_s").iter_rows())
    assert parts[NO_SQL_PART] == pytest.approx(content.stage_tasks["task_duration_total_ms"].sum() / 1e3)
    assert sum(parts.values()) == parts[NO_SQL_PART]


def test_one_of_several_logs_is_profiled_as_if_it_were_alone_and_none_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(made.small())
    (tmp_path / "b").write_bytes(application())
    both, alone = read_event_logs(tmp_path), read_event_logs(tmp_path / "b")
    one, other = build_profile(both, log_id=1), build_profile(alone)
    for declared in tables.PROFILE_TABLES:
        assert getattr(one, declared.name).equals(getattr(other, declared.name)), declared.name
    assert build_profile(both, log_id=0).overview["n_tasks"].to_list() == [0]
    with pytest.raises(InputError, match="a profile is of one"):
        build_profile(both)


def test_failures_are_counted_by_what_they_say(facts: Make) -> None:
    ends = [{"Reason": "ExceptionFailure", "Class Name": "E", "Description": f"bad row\nat line {n}"} for n in range(3)]
    failed = [made.task_end(0, 0, n, failed=True, end=end) for n, end in enumerate(ends)]
    content = made.small(made.stage_submitted(), *failed, made.stage_completed(failure="stop"))
    rows = build_profile(facts(content)).failure_counts.select("kind", "message", "n", "first_s").rows()
    assert rows == [("task", "E: bad row", 3, 1.2), ("stage", "stop", 1, 5.0)]


@pytest.mark.parametrize("name", ["tpch_sf0.1.zstd", "failing.zstd", "killed", "rolled", "small/three_queries"])
def test_invariants_hold_on_every_sample(name: str) -> None:
    facts = read_event_logs(LOGS / name)
    result = build_profile(facts)
    assert check_profile(result)["holds"].all()
    assert (result.verdict == "invalid") == (name == "killed")


def test_a_book_that_does_not_balance_is_a_reason_and_names_both_sides(facts: Make) -> None:
    content = facts(application())
    wrong = content.stage_tasks.with_columns(n_failed=pl.col("n_failed") + 1)
    result = build_profile(EventLogFacts(**{**content.__dict__, "stage_tasks": wrong}))
    assert result.verdict == "invalid"
    n_tasks = content.stage_tasks["n_tasks"].sum()
    assert result.reasons == (
        f"the book of outcomes does not balance: tasks that succeeded, failed or were killed {n_tasks + wrong.height},"
        f" ends of tasks {n_tasks} (likely cause: an unknown outcome)",
    )


def test_an_error_of_the_workbench_stops_the_notebook(result: Profile) -> None:
    wrong = pl.when(pl.col("book") == "task time by coverage").then(pl.lit(False)).otherwise("holds")
    with pytest.raises(BrokenInvariantError) as caught:
        check_profile(replace(result, books=result.books.with_columns(holds=wrong)))
    assert caught.value.facts["where"] == "task time by coverage"


def spans(*pairs: tuple[float, float]) -> pl.DataFrame:
    schema = {"start_s": pl.Float64, "end_s": pl.Float64}
    return pl.DataFrame({"start_s": [a for a, _ in pairs], "end_s": [b for _, b in pairs]}, schema=schema)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_the_union_equals_a_count_of_covered_seconds(pairs: list[tuple[int, int]]) -> None:
    intervals = [(start, start + length) for start, length in pairs]
    expected = len({second for start, end in intervals for second in range(start, end)})
    assert sum_covered_time(spans(*intervals)) == expected
    assert sum_covered_time(spans(*reversed(intervals))) == expected
