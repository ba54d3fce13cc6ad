"""Conditions of a run: what is counted, what is left out, and in which words it is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from workbench.scaletest.analysis.run_analysis import Analysis
from workbench.scaletest.analysis.validity import _check_host, _check_order, list_reasons, list_warnings
from workbench.scaletest.cluster_api.connection import NS_PER_S
from workbench.scaletest.observation import run_records
from workbench.scaletest.observation.run_records import Begun, Stopped
from workbench.scaletest.tables import GAPS, SKEW, SUBMISSIONS, VALIDITY

ORIGIN = 1_795_315_530 * NS_PER_S
LATE = "lateness of sending (p99)"


def condition(found: Analysis, name: str) -> dict[str, Any]:
    (row,) = found.validity.filter(pl.col("condition") == name).to_dicts()
    return row


def with_gaps(folder: Path, *gaps: tuple[float, float, bool]) -> dict[str, Any]:
    found = analysis(Plan(np.arange(50) / 10), folder)
    same = {"resource": "pod", "reason": "end of stream", "recovered": 0}
    rows = [same | {"from_s": begin, "to_s": end, "relisted": relisted} for begin, end, relisted in gaps]
    GAPS.write(GAPS.frame(rows), folder / "tables")
    return condition(found, "times that a watch was away")


def test_watches_that_end_by_themselves_and_are_opened_again_at_once_are_no_gap(tmp_path: Path) -> None:
    row = with_gaps(tmp_path, *((begin, begin + 0.005, False) for begin in (1.0, 2.0, 3.0)))
    assert (row["found"], row["holds"], row["reason"]) == (0, True, None)


def test_longer_gaps_are_told_with_their_time(tmp_path: Path) -> None:
    row = with_gaps(tmp_path, (1.0, 1.005, False), (1.0, 1.4, False), (2.0, 2.8, False))
    assert (row["found"], row["holds"], row["grave"]) == (2, False, False)
    assert row["reason"] == "no watch of pod from 1.0 to 1.4 s, 2.0 to 2.8 s: times found afterwards are upper bounds"


def test_what_came_and_went_before_a_list_is_not_known_and_that_is_told(tmp_path: Path) -> None:
    row = with_gaps(tmp_path, (1.0, 1.02, True))
    assert row["found"] == 1
    assert row["reason"].endswith("are upper bounds; objects that existed only in between are unknown")


def test_clocks_that_are_far_apart_are_told_with_their_distance(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10, skew_s=-3.0), tmp_path)
    row = condition(found, "clock offset (at least)")
    assert (row["found"], row["holds"], row["grave"]) == (pytest.approx(2.999), False, False)
    assert row["reason"] == "steps between two clocks are off by the clock offset, -3 s, known to ± 0.001 s"
    assert condition(found, "uncertainty of the clock offset (half of its bounds)")["holds"]
    assert found.reasons == ()


def test_bounds_that_are_wide_claim_no_distance(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10), tmp_path)
    rows = [{"at_s": 0.0, "low_s": 0.003, "high_s": 0.983, "probes": 3}]
    rows.append({"at_s": 4.0, "low_s": 0.002, "high_s": 0.004, "probes": 200})
    SKEW.write(SKEW.frame(rows), tmp_path / "tables")
    row = condition(found, "uncertainty of the clock offset (half of its bounds)")
    assert (row["found"], row["holds"]) == (0.49, False)
    told = (
        "steps between two clocks are off by the clock offset, +0.003 s, known to ± 0.001 s, at times only to ± 0.49 s"
    )
    assert row["reason"] == told
    assert condition(found, "clock offset (at least)")["holds"]


def test_clocks_that_were_apart_for_a_time_were_apart(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10), tmp_path)
    rows = [{"at_s": at, "low_s": low, "high_s": low + 0.002, "probes": 200} for at, low in ((0.0, -0.001), (4.0, 0.3))]
    SKEW.write(SKEW.frame(rows), tmp_path / "tables")
    row = condition(found, "clock offset (at least)")
    assert (row["found"], row["holds"]) == (0.3, False)
    assert "+0.301 s, known to ± 0.001 s" in row["reason"]


def resumed(folder: Path, late_s: float = 0.0, at_s: float = 15.0) -> Analysis:
    """A submitter that died after 10 of 20 s; another one went on 5 s later, and was late by so much."""
    found = analysis(Plan(np.arange(400) / 20), folder)
    made = found.submissions
    overdue = (pl.col("due_s") >= 10.0) & (pl.col("due_s") < at_s)
    sent = pl.when(overdue).then(at_s + 0.01).when(pl.col("due_s") >= at_s).then(pl.col("sent_s") + late_s)
    acked = pl.col("sent_s") + 0.002
    changed = made.with_columns(sent.otherwise("sent_s").alias("sent_s")).with_columns(acked.alias("acked_s"))
    SUBMISSIONS.write(changed, folder / "tables")
    begun = [Begun("st-00000001", ORIGIN, ORIGIN)]
    again = Begun("st-00000001", ORIGIN + round(at_s * NS_PER_S), ORIGIN, resumed=True)
    lines = map(run_records.encode_line, [*begun, again, Stopped(ORIGIN + 21 * NS_PER_S, "finished")])
    (folder / run_records.JOURNAL).write_bytes(b"".join(lines))
    return Analysis(folder, found.conditions)


def test_what_was_due_while_no_submitter_ran_is_not_the_submitters_lateness(tmp_path: Path) -> None:
    found = resumed(tmp_path)
    row = condition(found, LATE)
    assert row["found"] == pytest.approx(0.0005)
    assert row["holds"]
    told = condition(found, "workloads due while submission was interrupted")
    assert (told["found"], told["holds"], told["grave"]) == (100, False, False)
    assert "100 workloads due before the resume" in told["reason"]
    assert found.reasons == ()


def test_a_resumed_submitter_that_is_late_is_told_as_any_other(tmp_path: Path) -> None:
    row = condition(resumed(tmp_path, late_s=0.3), LATE)
    assert row["found"] == pytest.approx(0.3005)
    assert not row["holds"]
    assert "100 workloads due before the run was resumed are excluded" in row["reason"]


def test_what_was_sent_before_the_submitter_died_still_counts(tmp_path: Path) -> None:
    found = resumed(tmp_path)
    late = (pl.col("due_s") < 10.0).fill_null(value=False)
    worse = found.submissions.with_columns(
        pl.when(late).then(pl.col("sent_s") + 0.2).otherwise("sent_s").alias("sent_s")
    )
    SUBMISSIONS.write(worse, tmp_path / "tables")
    row = condition(Analysis(tmp_path, found.conditions), LATE)
    assert row["found"] == pytest.approx(0.2005)
    assert not row["holds"]


def test_a_run_that_was_not_resumed_has_no_interruption(tmp_path: Path) -> None:
    found = analysis(Plan(np.arange(50) / 10), tmp_path)
    assert "workloads due while submission was interrupted" not in found.validity["condition"].to_list()


@pytest.mark.parametrize(
    ("booked", "ends"),
    [
        ((0.1, 0.4, 0.5), "strangers 50 %): strangers had more than 20 % of this machine while it was saturated"),
        (
            (0.6, 0.1, 0.3),
            "client and sampler had more than 50 % and strangers had more than 20 % of this machine while",
        ),
        ((0.1, 0.8, 0.1), "strangers 10 %); times include that delay"),
    ],
)
def test_a_saturated_machine_is_told_in_one_sentence(booked: tuple[float, float, float], ends: str) -> None:
    load = pl.DataFrame(
        {
            "host_busy": [0.2, 0.99],
            **{name: [0.0, share] for name, share in zip(("client", "side", "others"), booked, strict=True)},
        }
    )
    table = VALIDITY.frame(_check_host(SimpleNamespace(load=load)))  # type: ignore[arg-type]
    (told,) = [*list_reasons(table), *list_warnings(table)]
    assert ends in told
    assert table.filter(~pl.col("holds")).height >= 1


@pytest.mark.parametrize(
    ("delays_s", "impossible", "invalid", "told"),
    [
        (
            (-7199.0, -7190.0, -7100.0),
            9,
            False,
            "9 of 12 steps end before they begin and are excluded: submission times",
        ),
        ((7200.5, 7210.0, 7300.0), 0, True, "submission times are 2 h earlier than the cluster's for 3 of 3 workloads"),
        ((-3.0, -7.0, -5.0), 9, False, "the submission's clock is about 7 s ahead of the cluster's (all 3 delays"),
        ((-3.0, 2.0, 4.0), 3, True, "at least 3 s ahead of the cluster's, or was set meanwhile (1 of 3 delays"),
        ((0.5, 1.0, 2.0), 1, False, "their ends are of one clock, so an object was made again"),
        ((-0.9, 1.0, 2.0), 0, False, None),
        # A first workload that took long is not a time zone.
        ((2000.0, 2100.0, 2300.0), 0, False, None),
    ],
)
def test_imported_times_name_the_clock(
    delays_s: tuple[float, ...], impossible: int, invalid: bool, told: str | None
) -> None:
    sent = [float(at) for at in range(len(delays_s))]
    created = [at + delay for at, delay in zip(sent, delays_s, strict=True)]
    submissions = pl.DataFrame({"sent_s": sent, "created_s": created})
    run = SimpleNamespace(imported=True, impossible=(impossible, 12), submissions=submissions)
    table = VALIDITY.frame(_check_order(run))  # type: ignore[arg-type]
    reasons, warnings = list_reasons(table), list_warnings(table)
    assert (len(reasons), len(warnings)) == (int(invalid), int(told is not None and not invalid))
    assert told is None or told in (reasons + warnings)[0]
