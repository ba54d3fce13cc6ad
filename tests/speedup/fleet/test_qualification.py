from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.fakes.planted import BASELINE, CANDIDATE, RICH, planted
from workbench.core.errors import ConfigError, InputError
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration.factor_model import FactorModel
from workbench.speedup.calibration.pair_calibration import calibrate_pair
from workbench.speedup.calibration.prediction import predict_by_term, predict_queries
from workbench.speedup.fleet.qualification import QualificationTerms, classify_recommendation, qualify_applications
from workbench.speedup.summary import list_fleet_next_steps
from workbench.speedup.tables import APPLICATIONS_MEASURED

SESSION = f"{BASELINE}-0"


@pytest.fixture(scope="module")
def model() -> FactorModel:
    return calibrate_pair(planted(RICH, 1), BASELINE, CANDIDATE, engines=("spark", "comet")).model


@pytest.fixture(scope="module")
def logs() -> Measured:
    return planted(RICH, 2).select(pl.col("label") == BASELINE)


def application(log: str, **facts: Any) -> dict[str, Any]:
    row = {"log": log, "app_id": log, "app_name": f"app {log}", "engine": "spark", "n_queries": 44, "n_failed": 0}
    row |= {"wall_s": 100.0, "sql_wall_s": 60.0, "outside_sql_s": 10.0, "streaming_s": 0.0, "status": "complete"}
    return dict.fromkeys(APPLICATIONS_MEASURED.schema()) | row | facts


def frame(*rows: dict[str, Any]) -> pl.DataFrame:
    return APPLICATIONS_MEASURED.frame(rows)


def qualified_row(model: FactorModel, logs: Measured, share: float = 1.0, **facts: Any) -> dict[str, Any]:
    """The first session as an application whose SQL took this share of the time of its queries."""
    took_s = share * sum_times(logs)
    rows = frame(application(SESSION, **({"wall_s": took_s, "sql_wall_s": took_s} | facts)))
    return qualify_applications(model, rows, logs).applications.row(0, named=True)


def sum_times(logs: Measured) -> float:
    return float(logs.executions.filter(pl.col("session") == SESSION)["wall_s"].sum())


def test_time_outside_sql_stays_as_it_is(model: FactorModel, logs: Measured) -> None:
    took_s = sum_times(logs)
    slow, fast = qualified_row(model, logs, wall_s=took_s * 2), qualified_row(model, logs)
    assert slow["predicted_s"] == pytest.approx(fast["predicted_s"] + took_s)
    assert 1 < slow["ratio"] < fast["ratio"]
    for row in (slow, fast):
        assert row["predicted_low_s"] < row["predicted_s"] < row["predicted_high_s"]
        assert row["ratio_low"] < row["ratio"] < row["ratio_high"]
        assert row["saved_s"] == pytest.approx(row["baseline_s"] - row["predicted_s"])


def test_predictions_are_those_of_the_planted_factors(model: FactorModel, logs: Measured) -> None:
    truth = calibrate_pair(planted(RICH, 1), BASELINE, CANDIDATE).pairs
    found = predict_queries(model, logs).group_by("query").agg(pl.col("ratio").mean())
    joined = found.join(truth.select("query", actual="ratio"), on="query")
    assert joined.height == RICH.n_queries
    assert ((joined["ratio"] / joined["actual"]).log().abs().mean() or 1) < 0.10  # type: ignore[operator]


def test_queries_that_ran_side_by_side_count_by_the_clock(model: FactorModel, logs: Measured) -> None:
    half, one = qualified_row(model, logs, share=0.5), qualified_row(model, logs)
    assert half["ratio"] == pytest.approx(one["ratio"])


def test_what_cannot_be_judged_says_why(model: FactorModel, logs: Measured) -> None:
    qualified = qualify_applications(
        model,
        frame(
            application("a", status="unreadable", reason="an empty file"),
            application("b", engine="rapids"),
            application("c"),
            application("d", wall_s=None),
            application("e", status="contradictory", reason="a task takes longer"),
            application("f", status="superseded", reason="attempt 1; attempt 2 counts: c"),
            application(f"{BASELINE}-1", status="incomplete", reason="the log is cut"),
        ),
        logs,
    )
    assert qualified.answer.startswith("Move none: no application gains enough; 100 s would save ")
    assert [detail for detail in qualified.details if detail[0].isdigit()][1:] == [
        "1 application already accelerated.",
        "1 copy or earlier attempt not counted.",
        "4 applications could not be judged.",
    ]
    table = qualified.applications
    reasons = dict(table.select("log", "reason").iter_rows())
    classes = dict(table.select("log", "recommendation").iter_rows())
    assert reasons["a"] == "an empty file"
    assert (classes["b"], reasons["b"]) == ("already accelerated", "already accelerated by rapids")
    assert "no SQL" in reasons["c"]
    assert "duration" in reasons["d"]
    assert [classes[name] for name in "acde"] == ["not judged"] * 4
    assert "f" not in classes
    assert qualified.repeated.rows() == [("f", "superseded", "attempt 1; attempt 2 counts: c")]
    assert classes[f"{BASELINE}-1"] != "not judged"
    assert "cut" in reasons[f"{BASELINE}-1"]
    assert (
        table.filter(pl.col("recommendation").is_in(["not judged", "already accelerated"]))["ratio"].null_count() == 5
    )


def test_one_large_run_among_those_of_a_call_site_moves_no_ratio(model: FactorModel, logs: Measured) -> None:
    by_work = model.model_copy(update={"time_weight": 0.6})
    first = logs.executions.filter(pl.col("number") == pl.col("number").min())
    times = {"sql_id": pl.col("sql_id") + 1000, "wall_s": pl.col("wall_s") * 10}
    large = logs.pieces.join(first, on=["session", "sql_id"], how="semi").with_columns(**times)
    large = large.with_columns(work=pl.col("work").list.eval(pl.element() * 10))
    every = Measured(pl.concat([logs.executions, first.with_columns(**times)]), pl.concat([logs.pieces, large]))
    joined = predict_queries(by_work, every).join(predict_queries(by_work, logs), on=["session", "query"])
    assert joined["n_executions"].to_list() == [3] * joined.height
    assert ((joined["ratio"] / joined["ratio_right"]).log().abs() < 0.05).all()


COPY = "the same application as "


def test_copies_and_earlier_attempts_are_one_line_and_no_rows(model: FactorModel, logs: Measured) -> None:
    counted = f"/logs/{SESSION}"
    copies = [application(f"/logs/copy-{n}", status="duplicate", reason=COPY + counted) for n in range(3)]
    attempt = application("/logs/try-1", status="superseded", reason="attempt 1; attempt 2 counts: /logs/b/try-2")
    rows = [application(counted), *copies, attempt, application("/logs/b/try-2")]
    found = qualify_applications(model, frame(*rows), logs)
    assert sorted(found.applications["log"]) == ["/logs/b/try-2", counted]
    assert found.repeated_note == f"Not counted: 3 copies of {SESSION}, 1 earlier attempt of b/try-2."
    assert qualify_applications(model, frame(application(SESSION)), logs).repeated_note == ""
    copies_by_log = dict(found.build_ranking()[0].select("log", "copies").iter_rows())
    assert copies_by_log == {SESSION: 3, "b/try-2": 1}, "copies are a count in the row of what they copy"


def test_no_path_of_a_machine_is_shown(model: FactorModel, logs: Measured) -> None:
    names = [f"/home/ann/work/notebooks/../logs/2026/{name}" for name in ("a", "b")]
    rows = [application(names[0]), application(names[1], status="unreadable", reason=f"cannot read {names[1]}")]
    found = qualify_applications(model, frame(*rows), logs)
    assert found.folder_name == "logs/2026"
    shown = found.shorten_logs(found.applications.select("log", "reason"))
    assert not [text for row in shown.iter_rows() for text in row if text and "/home" in text]
    assert found.applications["log"].to_list() == names, "tables name the logs wholly"


def test_log_names_are_cut_from_the_left_where_a_table_has_no_room(model: FactorModel, logs: Measured) -> None:
    names = [f"/logs/{'year=2026/' * 4}app-{n}" for n in range(2)] + ["/logs/app"]
    found = qualify_applications(model, frame(*map(application, names)), logs)
    shown = found.build_ranking()[0]["log"].to_list()
    assert sorted(shown) == [
        "app",
        "…026/year=2026/year=2026/year=2026/app-0",
        "…026/year=2026/year=2026/year=2026/app-1",
    ]
    assert [len(name) for name in sorted(shown)] == [3, 40, 40]
    assert sorted(found.applications["log"]) == sorted(names), "tables and JSON have them whole"


@pytest.mark.parametrize(
    ("slower", "caution"),
    [
        (1.0, None),
        (16.0, r"rows are ([\d.]+)x slower here than where the factors were measured"),
        (1 / 16, r"rows are ([\d.]+)x faster here than where the factors were measured"),
        (1e5, "its row counts cannot be compared with those behind the factors"),
        (1e-5, "its row counts cannot be compared with those behind the factors"),
    ],
)
def test_a_log_of_a_much_faster_or_slower_machine_is_told(
    model: FactorModel, logs: Measured, slower: float, caution: str | None
) -> None:
    wall_s = pl.col("wall_s") * slower
    other = Measured(logs.executions.with_columns(wall_s), logs.pieces.with_columns(wall_s))
    reason = qualified_row(model, other)["reason"] or ""
    found = re.search(caution or "less certain", reason)
    assert (found is not None) == (caution is not None)
    if found:
        assert reason.endswith(", so the prediction is less certain")
        assert [float(times) for times in found.groups()] == pytest.approx([16.0] * len(found.groups()), rel=0.1)
    assert re.search(r"\d{4}", reason) is None, "no multiple that cannot be"


def test_cost_follows_time_and_prices(model: FactorModel, logs: Measured) -> None:
    terms = QualificationTerms(baseline_price_per_h=36.0, candidate_price_per_h=72.0)
    row = qualify_applications(model, frame(application(SESSION)), logs, terms).applications.row(0, named=True)
    assert row["baseline_cost"] == pytest.approx(1.0)
    assert row["predicted_cost"] == pytest.approx(row["predicted_s"] / 50)
    assert row["saved_cost"] == pytest.approx(1.0 - row["predicted_s"] / 50)
    assert row["saved_cost_low"] < row["saved_cost"] < row["saved_cost_high"]


def test_cost_by_executor_counts_only_their_own_time(model: FactorModel, logs: Measured) -> None:
    terms = QualificationTerms(baseline_price_per_h=2.0, candidate_price_per_h=4.0, price_of="executor")

    def qualify(executor_h: float | None) -> dict[str, Any]:
        fleet = frame(application(SESSION) | {"executor_h": executor_h})
        return qualify_applications(model, fleet, logs, terms).applications.row(0, named=True)

    row = qualify(0.5)
    assert row["baseline_cost"] == pytest.approx(1.0)
    # The candidate has as many executors on average.
    assert row["predicted_cost"] == pytest.approx(0.5 / row["ratio"] * 4.0)
    unknown = qualify(None)
    assert unknown["saved_cost"] is None
    assert "no cost: its executors are not known" in unknown["reason"]


def test_what_if_changes_one_operator(model: FactorModel, logs: Measured) -> None:
    before = predict_by_term(model, logs).filter(pl.col("operator") == "Exchange")
    after = predict_by_term(model, logs, overrides={"Exchange": float(before["factor"][0]) * 2})
    changed = after.filter(pl.col("operator") == "Exchange")
    assert changed["predicted_s"].sum() == pytest.approx(before["predicted_s"].sum() / 2)
    others = pl.col("operator") != "Exchange"
    assert after.filter(others)["predicted_s"].sum() == pytest.approx(
        predict_by_term(model, logs).filter(others)["predicted_s"].sum()
    )


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_set_by_hand_must_be_one(model: FactorModel, logs: Measured, factor: float) -> None:
    with pytest.raises(InputError, match="not a factor"):
        predict_queries(model, logs, overrides={"Exchange": factor})


def test_an_unknown_operator_gets_the_nearest_name(model: FactorModel, logs: Measured) -> None:
    with pytest.raises(InputError) as caught:
        predict_queries(model, logs, overrides={"HashAgregate": 2.0})
    assert caught.value.facts["allowed"][0] == "HashAggregate"


@pytest.mark.parametrize("terms", [{"least_ratio": 0.5}, {"baseline_price_per_h": 1.0}, {"least_ratio": float("nan")}])
def test_terms_are_checked(terms: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        QualificationTerms(**terms)


def test_an_operator_without_a_factor_widens_the_interval_and_is_named(model: FactorModel, logs: Measured) -> None:
    strange = logs.pieces.with_columns(
        operators=pl.when(pl.col("operators").list.first() == "Sort")
        .then(pl.lit(["Window"]))
        .otherwise(pl.col("operators"))
    )
    plain, odd = predict_queries(model, logs), predict_queries(model, Measured(logs.executions, strange))
    joined = odd.join(plain, on=["session", "query"], suffix="_plain").filter(pl.col("unknown_share") > 0.2)
    assert joined.height
    assert joined["unknown_operators"].to_list() == [["Window"]] * joined.height
    width = joined["predicted_high_s"] / joined["predicted_low_s"]
    assert (width > joined["predicted_high_s_plain"] / joined["predicted_low_s_plain"]).all()


def test_what_another_log_holds_does_not_move_a_prediction(
    model: FactorModel, logs: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = logs.executions["session"].unique().to_list()
    is_odd = (pl.col("session") == sessions[0]) & (pl.col("operators").list.first() == "Sort")
    operators = pl.when(is_odd).then(pl.lit(["Window"])).otherwise(pl.col("operators"))
    mixed = Measured(logs.executions, logs.pieces.with_columns(operators=operators))
    rows = frame(*(application(session) for session in sessions))
    together = qualify_applications(model, rows, mixed).predictions
    monkeypatch.setattr("workbench.speedup.fleet.qualification.LOGS_AT_A_TIME", 1)
    alone = qualify_applications(model, rows, mixed).predictions
    assert set(together.filter(pl.col("unknown_share") > 0)["session"]) == {sessions[0]}
    assert_frame_equal(alone, together, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("candidate_engine", "step"),
    [
        ("", "Window has no factor yet ({} queries): record a query that uses it, `workbench speedup record`."),
        ("comet", "Nonsense is not accelerated ({} queries): ask for its support first."),
    ],
)
def test_the_next_step_asks_for_what_is_unsupported_and_records_what_is_unknown(
    model: FactorModel, logs: Measured, candidate_engine: str, step: str
) -> None:
    renamed = pl.when(pl.col("operators").list.first() == "Sort").then(pl.lit([step.split()[0]]))
    strange = Measured(logs.executions, logs.pieces.with_columns(operators=renamed.otherwise(pl.col("operators"))))
    named = model.model_copy(update={"candidate_engine": candidate_engine})
    found = qualify_applications(named, frame(application(SESSION)), strange)
    assert step.format(found.operators_at_stake["n_queries"][0]) in list_fleet_next_steps(found, ())


def test_classes() -> None:
    assert classify_recommendation(0.97, 0.9, 1.3) == "slower"
    assert classify_recommendation(0.99, 0.9, 1.3) == "little gain"
