"""A run whose truth is known: what the tables say of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis, ramp_of
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.analysis.sustainable_rate import NOT_SUSTAINED, SUSTAINED
from workbench.scaletest.observation import run_records
from workbench.scaletest.tables import TRANSITIONS

# Nothing is found in a run without trouble, and nothing of its requests is known.
FINDINGS = ("limits", "obstacles", "unfinished", "api_calls", "components")


def value(found: pl.DataFrame, step: str, share: float, clock: str = "client") -> float | None:
    own = found.filter((pl.col("step") == step) & (pl.col("clock") == clock) & (pl.col("quantile") == share))
    return own["value_s"].item()


def test_an_idle_cluster_is_measured_to_the_millisecond(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(200) / 10), tmp_path)
    assert value(found.quantiles, "lateness", 0.5) == pytest.approx(0.0005)
    assert value(found.quantiles, "admission", 0.5) == pytest.approx(0.002)
    assert value(found.quantiles, "first pod", 0.5) == pytest.approx(0.001)
    assert value(found.quantiles, "scheduling", 0.99) == pytest.approx(0.001)
    assert value(found.quantiles, "start", 0.5) == pytest.approx(0.01)
    assert value(found.quantiles, "due to running", 0.5) == pytest.approx(0.0155)
    assert found.reasons == ()
    assert found.warnings == ()


def test_notes_of_submitter_and_sampler_spoil_a_run_where_they_say_so(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(200) / 10), tmp_path)
    for file, text in ((run_records.JOURNAL, "sent twice"), (run_records.HEALTH, "a foreign pod with our name")):
        notes = [run_records.Note(1, text, spoils=True), run_records.Note(2, "a remark")]
        (tmp_path / file).write_bytes(b"".join(map(run_records.encode_line, notes)))
    assert found.reasons == ("sent twice; a foreign pod with our name",)


def test_steps_add_up_to_the_whole(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(400) / 40, scheduled_per_s=30, jitter=0.3), tmp_path)
    own = found.steps.filter(pl.col("clock") == "client").pivot("step", index="index", values="duration_s")
    parts = own.select(pl.sum_horizontal("lateness", "admission", "scheduling", "start")).to_series()
    rest = own["due to running"] - parts
    # Between the acknowledgement and the pod lies what the client cannot tell from the watch's own delay.
    assert rest.min() >= 0
    assert found.shares["share"].sum() == pytest.approx(1)
    assert found.shares["tail_share"].sum() == pytest.approx(1)


def test_the_slowest_waited_for_the_scheduler(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(600) / 60, scheduled_per_s=40), tmp_path)
    top = found.shares.sort("tail_share", descending=True).row(0, named=True)
    assert top["segment"] == "scheduled"
    assert top["tail_share"] > 0.98
    assert top["low"] <= top["tail_share"] <= top["high"]


def test_a_server_clock_that_is_off_spoils_mixed_steps_only(tmp_path: Path) -> None:
    here = analysis(Plan(np.arange(200) / 10), tmp_path / "here")
    off = analysis(Plan(np.arange(200) / 10, skew_s=3.0), tmp_path / "off")
    for clock in ("client", "server"):
        for share in (0.5, 0.99):
            one, two = (value(found.quantiles, "scheduling", share, clock) for found in (here, off))
            assert one == pytest.approx(two, abs=1e-6)


def test_every_delta_names_its_clock_and_resolution(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10), tmp_path)
    told = {(step, clock): r for step, clock, r in found.quantiles.select("step", "clock", "resolution_s").iter_rows()}
    assert told["scheduling", "client"] == 0
    assert told["scheduling", "server"] == 1.0
    assert ("admission", "server") not in told
    assert set(found.quantiles["clock"]) == {"client", "server"}


def test_work_that_was_lost_makes_nothing_faster(tmp_path: Path) -> None:
    due = np.arange(200) / 20
    whole = analysis(Plan(due), tmp_path / "whole")
    lossy = analysis(Plan(due, lost=tuple(range(0, 200, 10))), tmp_path / "lossy")
    assert value(whole.quantiles, "due to scheduled", 0.95) is not None
    # One in ten never came: p95 is beyond all that was seen, and null is not zero.
    assert value(lossy.quantiles, "due to scheduled", 0.95) is None
    assert set(lossy.quantiles.filter(pl.col("step") == "due to scheduled")["missing"]) == {20}
    assert lossy.reasons == ()


def test_a_workload_that_nobody_saw_makes_the_run_invalid(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(100) / 20, unseen=(7,)), tmp_path)
    assert found.reasons == ("1 of 100 accepted workloads were never seen",)


@pytest.mark.parametrize("capacity", [60.0, 121.0])
def test_the_knee_is_the_capacity_not_what_was_accepted(capacity: float, tmp_path: Path) -> None:
    due, steps = ramp_of([25, 50, 100, 200, 400], each_s=30)
    found = analysis(Plan(due, steps, scheduled_per_s=capacity, jitter=0.3), tmp_path)
    verdicts = found.ramp["verdict"].to_list()
    below = sum(rate < capacity for rate in (25, 50, 100))
    assert verdicts[:below] == [SUSTAINED] * below
    assert set(verdicts[below:]) == {NOT_SUSTAINED}
    # What the server accepts goes on rising.
    assert found.ramp["accepted_per_s"][-1] == pytest.approx(400, rel=0.02)
    assert found.sustainable.low_per_s is not None
    assert found.sustainable.high_per_s is not None
    assert found.sustainable.low_per_s <= capacity * 1.02
    assert found.sustainable.high_per_s >= capacity * 0.98
    assert found.sustainable.high_per_s - found.sustainable.low_per_s < 0.1 * capacity


def test_a_burst_that_outlasts_its_arrivals_is_rated_until_it_is_through(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(200) / 20, made_per_s=5.5, jitter=0.2), tmp_path)
    assert found.ramp["verdict"].to_list() == [NOT_SUSTAINED]
    assert found.sustainable.low_per_s is not None
    assert found.sustainable.high_per_s is not None
    assert found.sustainable.low_per_s <= 5.5 <= found.sustainable.high_per_s
    assert found.sustainable.high_per_s - found.sustainable.low_per_s < 1


def test_a_run_that_never_reached_its_limit_says_at_least(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(900) / 30, jitter=0.3), tmp_path)
    assert found.sustainable.high_per_s is None
    assert "at least 3" in found.explanation or "at least 29" in found.explanation


def test_every_result_is_the_declared_table(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(100) / 20, pods=4, gang=True), tmp_path)
    for table, result in found.iterate_results():
        assert table.check(result).height or table.name in FINDINGS


def test_a_run_of_nothing_has_empty_tables(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(3) / 20, unseen=(0, 1, 2)), tmp_path)
    for table, result in found.iterate_results():
        table.check(result)
    assert found.sustainable.low_per_s is None
    assert found.explanation.startswith("The sustainable rate is not decided")
    assert "fewer than 20 pods" in found.explanation


def test_pods_that_are_refused_for_good_are_told_and_left_out_of_the_rate(tmp_path: Path) -> None:
    def refuse_some(came: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return np.where(np.arange(len(came)) % 3 == 0, np.inf, came + 0.01)

    run = analysis(Plan(np.arange(300) / 10.0, make=refuse_some), tmp_path)
    table = run.read_raw_table(TRANSITIONS)
    refused = run.schedule.filter(pl.col("index") % 3 == 0)["name"]
    jobs = table.filter(pl.col("workload").is_in(refused.implode()) & (pl.col("resource") == "job")).unique("uid")
    reason = 'Error creating: Pod "a" is invalid: spec.containers[0]: must be less than or equal to memory limit of 1Gi'
    events = jobs.with_columns(
        resource=pl.lit("event"),
        transition=pl.lit("failed-create"),
        owner=pl.col("uid"),
        uid=pl.concat_str(pl.lit("e-"), "uid"),
        workload=pl.lit(None, dtype=pl.String),
        reason=pl.lit(reason),
    )
    pl.concat([table, events]).write_parquet(run.folder / "tables" / "transitions.parquet")
    told = analyse_run(run.folder)
    assert "sustains at least 6.6" in told.explanation
    assert "100 of 300 pods were refused at creation and do not count in the rate (is invalid" in told.explanation
