"""What a run forecasts, which of its figures are outcomes, and of which forecasts they are."""

from __future__ import annotations

import importlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.forecasts.conftest import DAY, write_run
from workbench.core.errors import ConfigError, InputError
from workbench.core.tables import Table
from workbench.forecasts import tables
from workbench.forecasts.ledger import Forecast, Ledger, Outcome
from workbench.forecasts.matching import (
    build_forecasts,
    count_statuses,
    list_outcomes,
    match_run,
    refuse_second_outcome,
)
from workbench.forecasts.sources import FORECAST_SOURCES, OUTCOME_SOURCES
from workbench.runs.catalogue import StoredRun, copy_run, open_run

NOW = DAY + timedelta(days=9)
# The declarations that INPUT tables stand for: of these, columns of the same name have the same type and unit.
DECLARED = {
    "applications": "speedup", "predictions": "speedup", "validation": "speedup", "overview": "speedup",
    "pairs": "speedup", "estimates": "sizing", "verification": "sizing", "recommendations": "indicators",
    "effects": "indicators", "steps": "sizing", "sustained": "scaletest", "day": "capacity",
}  # fmt: skip


def predict(query: str, session: str = "log", **more: Any) -> dict[str, Any]:
    return {"session": session, "query": query, "ratio": 2.0, "ratio_low": 1.6, "ratio_high": 2.5} | more


def measure(query: str, ratio: float = 2.1) -> dict[str, Any]:
    return {"query": query, "candidate_s": 1.0, "ratio": ratio, "ratio_low": ratio - 0.1, "ratio_high": ratio + 0.1}


def predicting(folder: Path, *queries: str, **options: Any) -> StoredRun:
    write_run(folder, "speedup", {tables.INPUT_PREDICTIONS: [predict(query) for query in queries]}, **options)
    return open_run(folder)


def measuring(folder: Path, *queries: str, **options: Any) -> StoredRun:
    write_run(folder, "speedup", {tables.INPUT_PAIRS: [measure(query) for query in queries]}, **options)
    return open_run(folder)


def keep(*forecasts: Forecast, outcomes: tuple[Outcome, ...] = ()) -> Ledger:
    return Ledger({forecast.id: forecast for forecast in forecasts}, outcomes)


def test_sources_name_columns_that_the_areas_declare() -> None:
    for source in (*FORECAST_SOURCES, *OUTCOME_SOURCES):
        module = importlib.import_module(f"workbench.{DECLARED[source.table.name]}.tables")
        declared = next(
            table for table in vars(module).values()
            if isinstance(table, Table) and table.name == source.table.name and "INPUT" not in str(table.meaning)
        )  # fmt: skip
        columns = {column.name: column for column in declared.columns}
        for column in source.table.columns:
            if not column.added:
                assert (column.name, column.dtype) == (column.name, columns[column.name].dtype), source
                assert column.nullable or not columns[column.name].nullable, (source.table.name, column.name)
        assert {name for name in (source.value, source.low, source.high, source.level) if name} <= {
            column.name for column in source.table.columns
        }


def test_the_forecasts_of_a_run_carry_its_id_time_level_and_inputs(tmp_path: Path) -> None:
    inputs = [{"path": "a.zstd", "bytes": 1, "sha256": "b" * 64}, {"path": "c", "bytes": None, "sha256": None}]
    run = predicting(tmp_path / "run-1", "q1", "q2", config={"level": 0.8}, inputs=inputs)
    first, second = build_forecasts(run, NOW, note="by the new factors")
    assert (first.subject, first.quantity, first.unit, second.subject) == ("query q1", "ratio", "times", "query q2")
    assert (first.value, first.low, first.high, first.level) == (2.0, 1.6, 2.5, 0.8)
    assert (first.run_id, first.folder, first.note) == ("run-1", "run-1", "by the new factors")
    assert (first.made_at, first.kept_at) == (DAY + timedelta(hours=1), NOW)
    assert first.inputs_sha256 is not None
    assert first.id != second.id
    assert [entry.id for entry in build_forecasts(run, NOW + timedelta(days=1))] == [first.id, second.id]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"verdict": "invalid", "reasons": ["noise"]}, "it is invalid: noise"),
        ({"status": "failed"}, "it failed"),
        ({"status": "running"}, "it is not finished"),
        ({"verdict": None}, "it has no verdict"),
    ],
)
def test_a_run_that_is_not_valid_is_refused_unless_it_is_accepted(
    tmp_path: Path, record: dict[str, Any], reason: str
) -> None:
    run = predicting(tmp_path / "run", "q1", **record)
    with pytest.raises(InputError, match="is not kept") as caught:
        build_forecasts(run, NOW)
    assert caught.value.facts["found"] == reason
    assert [entry.note for entry in build_forecasts(run, NOW, accept_invalid=True)] == [reason]


def test_a_run_without_forecasts_or_outcomes_is_refused_with_the_tables_that_have_them(tmp_path: Path) -> None:
    run = measuring(tmp_path / "run", "q1")
    with pytest.raises(InputError, match="no table with forecasts") as caught:
        build_forecasts(run, NOW)
    assert "speedup: predictions" in caught.value.facts["allowed"]
    with pytest.raises(InputError, match="no table with outcomes"):
        match_run(keep(), predicting(tmp_path / "other", "q1"), NOW)
    with pytest.raises(InputError, match="has not ended"):
        match_run(keep(), measuring(tmp_path / "third", "q1", status="running"), NOW)


def test_a_run_at_a_url_is_copied_first(tmp_path: Path) -> None:
    copy = copy_run(predicting(tmp_path / "made", "q1"), "memory://forecasts")
    with pytest.raises(InputError, match="at a URL are not read") as caught:
        build_forecasts(open_run(copy), NOW)
    assert caught.value.facts["do"] == f"copy it first: workbench runs copy {copy} --to data/runs"


def test_outcomes_meet_forecasts_of_the_same_area_subject_and_quantity(tmp_path: Path) -> None:
    ledger = keep(*build_forecasts(predicting(tmp_path / "made", "q1", "q2"), NOW))
    rows = match_run(ledger, measuring(tmp_path / "seen", "q1", "q3", day=2), NOW)
    # The pair has a time and a ratio of each query: only the ratio of q1 was forecast.
    assert count_statuses(rows) == {"matched": 1, "no forecast": 3}
    (outcome,) = list_outcomes(rows)
    assert (outcome.value, outcome.low, outcome.high, outcome.unit) == (2.1, 2.0, 2.2, "times")
    assert (outcome.run_id, outcome.verdict, outcome.observed_at) == ("seen", "valid", DAY + timedelta(days=2, hours=1))


def test_a_forecast_that_was_made_when_the_run_had_begun_is_left_out(tmp_path: Path) -> None:
    ledger = keep(*build_forecasts(predicting(tmp_path / "made", "q1", day=2), NOW))
    for day, status in ((1, "left out"), (2, "left out"), (3, "matched")):
        (row,) = [
            row for row in match_run(ledger, measuring(tmp_path / f"seen-{day}", "q1", day=day), NOW) if row.forecast
        ]
        assert row.status == status, day
        if day == 1:
            assert row.reason == "made at 2026-11-03T01:00:00+00:00, when the run had begun"


def test_when_it_was_measured_counts_and_not_when_a_run_read_it(tmp_path: Path) -> None:
    """A pair may have been recorded long before its run: then nothing says when, but for whoever knows."""
    ledger = keep(*build_forecasts(predicting(tmp_path / "made", "q1", day=1), NOW))
    run = measuring(tmp_path / "seen", "q1", day=3)
    (outcome,) = list_outcomes(match_run(ledger, run, NOW))
    assert outcome.measured_at is None
    (outcome,) = list_outcomes(match_run(ledger, run, NOW, measured_at=DAY + timedelta(days=2)))
    assert outcome.measured_at == DAY + timedelta(days=2)
    (row,) = [row for row in match_run(ledger, run, NOW, measured_at=DAY) if row.forecast]
    assert (row.status, row.reason) == ("left out", "made at 2026-11-02T01:00:00+00:00, when it was being measured")
    with pytest.raises(ConfigError, match="measured after the run") as caught:
        match_run(ledger, run, NOW, measured_at=DAY + timedelta(days=4))
    assert caught.value.facts["allowed"] == "at most 2026-11-04T01:00:00+00:00, when the run had ended"


def test_sessions_and_sweeps_say_when_they_were_measured(tmp_path: Path) -> None:
    row = {"metric": "sort", "arm": "new", "stack": "new", "baseline": "old", "control": False, "reason": None}
    row |= {"ratio": 1.2, "low": 1.1, "high": 1.3}
    target = {"target": "p95", "gpus": 1, "driven_load": 9.0, "load_unit": "users", "reason": None}
    target |= {"value_s": 1.0, "low_s": 0.9, "high_s": 1.1}
    for name, text, measured_at in (
        ("known", "20261103T040506Z-abc", DAY + timedelta(days=2, hours=4, minutes=5, seconds=6)),
        ("imported", "imported-0123", None),
        ("damaged", "99999999T999999Z-abc", None),
    ):
        write_run(tmp_path / name, "indicators", {tables.INPUT_EFFECTS: [row | {"session_id": text}]})
        (found,) = match_run(keep(), open_run(tmp_path / name), NOW)
        assert found.figure.measured_at == measured_at, name
    early = DAY + timedelta(days=1)
    for number, (times, measured_at) in enumerate(
        [
            ([early.isoformat(), (early + timedelta(hours=1)).isoformat()], early),
            ([early.isoformat(), None], None),
            ([], None),
        ]
    ):
        steps = [{"step": step, "started_at": time} for step, time in enumerate(times)]
        rows = {tables.INPUT_VERIFICATION: [target], tables.INPUT_STEPS: steps}
        write_run(tmp_path / f"sweep-{number}", "sizing", rows)
        (found,) = match_run(keep(), open_run(tmp_path / f"sweep-{number}"), NOW)
        assert (found.figure.measured_at, found.figure.subject) == (measured_at, "p95, 9 users on 1 GPUs")


def test_a_run_is_no_outcome_of_its_own_forecast(tmp_path: Path) -> None:
    rows = {tables.INPUT_PREDICTIONS: [predict("q1")], tables.INPUT_PAIRS: [measure("q1")]}
    write_run(tmp_path / "both", "speedup", rows)
    run = open_run(tmp_path / "both")
    (forecast,) = build_forecasts(run, NOW)
    early = forecast.model_copy(update={"made_at": DAY - timedelta(days=1)})
    (row,) = [row for row in match_run(keep(early), run, NOW) if row.forecast]
    assert (row.status, row.reason) == ("left out", "this run made the forecast")


def test_the_same_run_changes_nothing_and_another_one_is_refused_unless_again(tmp_path: Path) -> None:
    (forecast,) = build_forecasts(predicting(tmp_path / "made", "q1"), NOW)
    first, second = (measuring(tmp_path / f"seen-{day}", "q1", day=day) for day in (2, 3))
    outcomes = tuple(list_outcomes(match_run(keep(forecast), first, NOW)))
    ledger = keep(forecast, outcomes=outcomes)
    assert count_statuses(match_run(ledger, first, NOW, again=True)) == {"unchanged": 1, "no forecast": 1}
    assert count_statuses(match_run(ledger, second, NOW)) == {"refused": 1, "no forecast": 1}
    later = list_outcomes(match_run(ledger, second, NOW + timedelta(hours=1), again=True))
    both = keep(forecast, outcomes=(*later, *outcomes))
    assert (len(both.outcomes), both.newest_outcomes[forecast.id].run_id) == (2, "seen-3")
    with pytest.raises(ConfigError, match="has an outcome"):
        refuse_second_outcome(ledger, forecast, again=False)
    refuse_second_outcome(ledger, forecast, again=True)


def test_an_outcome_that_several_forecasts_wait_for_is_ambiguous_until_one_is_named(tmp_path: Path) -> None:
    made = [build_forecasts(predicting(tmp_path / f"made-{day}", "q1", day=day), NOW)[0] for day in (0, 1)]
    run = measuring(tmp_path / "seen", "q1", day=2)
    rows = match_run(keep(*made), run, NOW)
    assert count_statuses(rows) == {"no forecast": 1, "ambiguous": 2}
    assert rows[0].reason == "2 forecasts wait for it: --made-by RUN, or --forecast ID"
    assert list_outcomes(rows) == []
    (outcome,) = list_outcomes(match_run(keep(*made), run, NOW, made_by="made-1"))
    assert outcome.forecast == made[1].id
    with pytest.raises(ConfigError, match="no forecast of this run is kept") as caught:
        match_run(keep(*made), run, NOW, made_by="made")
    assert caught.value.facts["allowed"] == ["made-0", "made-1"]


def test_an_outcome_is_never_matched_twice(tmp_path: Path) -> None:
    made = [build_forecasts(predicting(tmp_path / f"made-{day}", "q1", day=day), NOW)[0] for day in (0, 1)]
    run = measuring(tmp_path / "seen", "q1", day=2)
    outcomes = tuple(list_outcomes(match_run(keep(*made), run, NOW, made_by="made-1")))
    for options in ({}, {"made_by": "made-0"}, {"again": True}):
        rows = match_run(keep(*made, outcomes=outcomes), run, NOW, **options)
        assert list_outcomes(rows) == [], options
        assert (rows[0].status, rows[0].reason) == ("refused", f"this outcome is matched with forecast {made[1].id}")


def test_a_forecast_without_an_outcome_is_matched_beside_those_that_have_one(tmp_path: Path) -> None:
    made = [build_forecasts(predicting(tmp_path / f"made-{day}", "q1", day=day), NOW)[0] for day in (0, 2)]
    seen = [measuring(tmp_path / f"seen-{day}", "q1", day=day) for day in (1, 3)]
    first = tuple(list_outcomes(match_run(keep(*made), seen[0], NOW)))
    assert [outcome.forecast for outcome in first] == [made[0].id]
    (second,) = list_outcomes(match_run(keep(*made, outcomes=first), seen[1], NOW))
    assert second.forecast == made[1].id


def predicting_applications(folder: Path, *app_ids: str | None) -> list[Forecast]:
    row = {"app_name": "etl", "predicted_s": 50.0, "predicted_low_s": 40.0, "predicted_high_s": 60.0}
    rows = [row | {"log": f"log-{number}", "app_id": app_id} for number, app_id in enumerate(app_ids)]
    write_run(folder, "fleet", {tables.INPUT_APPLICATIONS: rows})
    return build_forecasts(open_run(folder), NOW)


def measuring_applications(folder: Path, *app_ids: str, day: int = 2) -> StoredRun:
    row = {"app_name": "etl", "engine": "comet", "status": "complete", "wall_time_s": 55.0}
    write_run(folder, "profile", {tables.INPUT_OVERVIEW: [row | {"app_id": app_id} for app_id in app_ids]}, day=day)
    return open_run(folder)


def test_applications_of_one_name_are_matched_by_their_ids_and_never_by_the_name_alone(tmp_path: Path) -> None:
    first, second = predicting_applications(tmp_path / "made", "app-1", "app-2")
    assert (first.subject, first.application, second.application) == ("application etl", "app-1", "app-2")
    rows = match_run(keep(first, second), measuring_applications(tmp_path / "same", "app-2"), NOW)
    assert [(row.status, row.forecast) for row in rows] == [("matched", second)]
    assert [outcome.application for outcome in list_outcomes(rows)] == ["app-2"]
    rows = match_run(keep(first, second), measuring_applications(tmp_path / "both", "app-1", "app-2"), NOW)
    assert [outcome.forecast for outcome in list_outcomes(rows)] == [first.id, second.id]
    rows = match_run(keep(first, second), measuring_applications(tmp_path / "other", "app-9"), NOW)
    assert [row.status for row in rows] == ["ambiguous", "ambiguous"]
    # By its id one is taken, and only the other waits for the application of another id.
    rows = match_run(keep(first, second), measuring_applications(tmp_path / "mixed", "app-1", "app-9"), NOW)
    assert [outcome.forecast for outcome in list_outcomes(rows)] == [first.id, second.id]


def test_one_name_on_both_sides_meets_though_the_accelerated_application_has_another_id(tmp_path: Path) -> None:
    for number, app_id in enumerate(("app-1", None)):
        (forecast,) = predicting_applications(tmp_path / f"made-{number}", app_id)
        run = measuring_applications(tmp_path / f"seen-{number}", "app-9")
        (outcome,) = list_outcomes(match_run(keep(forecast), run, NOW))
        assert (forecast.application, outcome.application, outcome.forecast) == (app_id, "app-9", forecast.id)


def test_an_application_that_is_profiled_twice_is_one_outcome(tmp_path: Path) -> None:
    (first,), (second,) = (predicting_applications(tmp_path / f"made-{number}", None) for number in range(2))
    run = measuring_applications(tmp_path / "seen", "app-9")
    outcomes = tuple(list_outcomes(match_run(keep(first), run, NOW)))
    again = measuring_applications(tmp_path / "seen-again", "app-9", day=3)
    rows = match_run(keep(first, second, outcomes=outcomes), again, NOW)
    assert [(row.forecast, row.status) for row in rows] == [(first, "refused"), (second, "refused")]
    assert rows[1].reason == f"this outcome is matched with forecast {first.id}"


def test_an_impossible_figure_of_a_run_is_refused_with_its_run_and_subject(tmp_path: Path) -> None:
    row = predict("q1", ratio=-2.0)
    write_run(tmp_path / "made", "speedup", {tables.INPUT_PREDICTIONS: [row]})
    with pytest.raises(InputError, match="not a forecast") as caught:
        build_forecasts(open_run(tmp_path / "made"), NOW)
    assert caught.value.facts["where"] == "run made (speedup), query q1, ratio, value"
    assert caught.value.facts["allowed"] == "greater than or equal to 0"


def test_an_impossible_outcome_is_named_and_the_others_of_its_run_are_matched(tmp_path: Path) -> None:
    ledger = keep(*build_forecasts(predicting(tmp_path / "made", "q1", "q2", "q3"), NOW))
    pairs = [measure("q1", 0.05), measure("q2") | {"ratio_high": 1.0}, measure("q3")]
    write_run(tmp_path / "seen", "speedup", {tables.INPUT_PAIRS: pairs}, day=2)
    rows = [row for row in match_run(ledger, open_run(tmp_path / "seen"), NOW) if row.forecast]
    assert [(row.status, row.reason) for row in rows] == [
        ("impossible", "-0.05, not greater than or equal to 0"),
        ("impossible", "the lower end 2 is above the upper end 1"),
        ("matched", ""),
    ]


def test_several_outcomes_of_one_subject_are_ambiguous_and_another_unit_is_left_out(tmp_path: Path) -> None:
    row = {"metric": "sort", "stack": "new", "baseline": "old", "control": False, "ratio": 1.2, "low": 1.1, "high": 1.3}
    rows = [row | {"session_id": f"s{number}", "arm": "new", "reason": None} for number in (1, 2)]
    write_run(tmp_path / "seen", "indicators", {tables.INPUT_EFFECTS: rows}, day=2)
    fields = {"area": "indicators", "subject": "new over old", "quantity": "ratio of sort", "value": 1.1, "level": 0.9}
    forecast = Forecast(**fields, id="0" * 12, unit="times", made_at=DAY, kept_at=DAY)  # type: ignore[arg-type]
    found = match_run(keep(forecast), open_run(tmp_path / "seen"), NOW)
    assert [(row.status, row.outcome) for row in found] == [("ambiguous", None)] * 2
    write_run(tmp_path / "one", "indicators", {tables.INPUT_EFFECTS: rows[:1]}, day=2)
    (row_of_one,) = match_run(keep(forecast.model_copy(update={"unit": "%"})), open_run(tmp_path / "one"), NOW)
    assert (row_of_one.status, row_of_one.reason) == ("left out", "another unit: times, forecast in %")


def test_a_measurement_without_a_value_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    row = {"session_id": "s", "metric": "sort", "arm": "new", "stack": "new", "baseline": "old", "control": False}
    row |= {"ratio": None, "low": None, "high": None, "reason": "all its runs failed"}
    write_run(tmp_path / "seen", "indicators", {tables.INPUT_EFFECTS: [row]}, day=2, verdict="invalid")
    fields = {"area": "indicators", "subject": "new over old", "quantity": "ratio of sort", "value": 1.1, "level": 0.9}
    forecast = Forecast(**fields, id="0" * 12, unit="times", made_at=DAY, kept_at=DAY)  # type: ignore[arg-type]
    (outcome,) = list_outcomes(match_run(keep(forecast), open_run(tmp_path / "seen"), NOW))
    assert (outcome.value, outcome.failure, outcome.verdict) == (None, "no value: all its runs failed", "invalid")


def test_gpus_are_a_forecast_beyond_the_measured_ones_and_an_outcome_within(tmp_path: Path) -> None:
    row = {"target": "p95 <= 2 s", "load": 400.0, "load_unit": "users", "reason": None}
    for name, gpus, test_gpus in (("small", 17.4, 2), ("large", 17.3, 20)):
        estimate = row | {"test_gpus": test_gpus, "gpus": gpus, "gpus_low": gpus - 1, "gpus_high": gpus + 1}
        write_run(tmp_path / name, "sizing", {tables.INPUT_ESTIMATES: [estimate]}, day=2 * (name == "large"))
    small, large = open_run(tmp_path / "small"), open_run(tmp_path / "large")
    (forecast,) = build_forecasts(small, NOW)
    assert (forecast.subject, forecast.quantity, forecast.value) == ("p95 <= 2 s, 400 users", "GPUs", 17.4)
    assert build_forecasts(large, NOW) == []
    assert match_run(keep(forecast), small, NOW) == []
    assert [outcome.value for outcome in list_outcomes(match_run(keep(forecast), large, NOW))] == [17.3]


def test_only_a_whole_application_on_an_accelerator_is_an_outcome(tmp_path: Path) -> None:
    prediction = {"log": "a", "app_name": "etl", "predicted_s": 50.0, "predicted_low_s": 40.0, "predicted_high_s": 60.0}
    nameless = prediction | {"log": "b", "app_name": None}
    refused = prediction | {"log": "c", "predicted_s": None, "predicted_low_s": None, "predicted_high_s": None}
    write_run(tmp_path / "made", "fleet", {tables.INPUT_APPLICATIONS: [prediction, nameless, refused]})
    (forecast,) = build_forecasts(open_run(tmp_path / "made"), NOW)
    assert forecast.subject == "application etl"
    for engine, status, n_outcomes in (("spark", "complete", 0), ("comet", "incomplete", 0), ("comet", "complete", 1)):
        row = {"app_id": "x", "app_name": "etl", "engine": engine, "status": status, "wall_time_s": 55.0}
        folder = tmp_path / f"{engine}-{status}"
        write_run(folder, "profile", {tables.INPUT_OVERVIEW: [row]}, day=2)
        assert len(list_outcomes(match_run(keep(forecast), open_run(folder), NOW))) == n_outcomes


def test_a_predicted_stack_meets_the_measured_one_over_the_same_baseline(tmp_path: Path) -> None:
    row = {"session_id": "s", "ratio": 1.2, "low": 1.1, "high": 1.3, "level": 0.95}
    old = row | {"stack": "old", "baseline": True, "predicted": False, "ratio": 1.0}
    for name, predicted in (("made", True), ("seen", False)):
        new = row | {"stack": "new", "baseline": False, "predicted": predicted}
        write_run(tmp_path / name, "indicators", {tables.INPUT_RECOMMENDATIONS: [old, new]}, day=2 * (not predicted))
    (forecast,) = build_forecasts(open_run(tmp_path / "made"), NOW)
    assert (forecast.subject, forecast.level) == ("new over old", 0.95)
    assert len(list_outcomes(match_run(keep(forecast), open_run(tmp_path / "seen"), NOW))) == 1
    assert build_forecasts(open_run(tmp_path / "seen"), NOW) == []


def test_scale_tests_and_plans_are_read() -> None:
    folder = SAMPLES / "capacity"
    fields = {"area": "scaletest", "subject": "kai-scheduler", "quantity": "sustained rate", "value": 8.0, "level": 0.9}
    early = open_run(folder / "scaletest").began - timedelta(days=1)
    forecast = Forecast(**fields, id="0" * 12, unit="pods/s", made_at=early, kept_at=early)  # type: ignore[arg-type]
    (outcome,) = list_outcomes(match_run(keep(forecast), open_run(folder / "scaletest"), NOW))
    assert (outcome.value, outcome.low, outcome.high) == (outcome.low, outcome.low, outcome.high)
    assert len(build_forecasts(open_run(folder / "sizing"), NOW)) == 1
    assert len(build_forecasts(open_run(folder / "speedup"), NOW)) == 5
