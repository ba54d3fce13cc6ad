"""Charts of a profile build for every log, for one row and for none, and say in their titles what they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from tests.speedup.applications import application
from workbench.eventlog.reader import read_event_logs
from workbench.speedup import charts
from workbench.speedup.attribution.application_profile import Profile, build_profile

LOGS = SAMPLES / "eventlogs"
CHARTS: dict[str, Callable[[Profile], Any]] = {
    "Queries and stages over time": lambda result: charts.chart_timeline(result.queries, result.stage_spans),
    "Time that operators report": lambda result: charts.chart_operator_times(result.operator_times, top=5),
    "Which task time does the log explain?": lambda result: charts.chart_coverage(result.coverage),
    "Longest minus median task": lambda result: charts.chart_skew(result.stage_spans),
}
TIMELINE = "Queries and stages over time"


def titled(chart: Any) -> tuple[dict[str, Any], str]:
    built = chart.to_dict()
    return built, json.dumps(built)


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize("name", ["tpch_sf0.1.zstd", "failing.zstd", "killed", "rolled", "small/three_queries.lz4"])
def test_every_chart_builds_for_every_sample_and_carries_its_rows(kind: str, name: str) -> None:
    result = build_profile(read_event_logs(LOGS / name))
    built, text = titled(CHARTS[kind](result))
    assert kind in text
    rows = [row for data in built["datasets"].values() for row in data]
    expected = {
        TIMELINE: result.stage_spans["stage"].to_list()[:1],
        "Time that operators report": result.operator_times["operator"].to_list()[:1],
        "Which task time does the log explain?": result.coverage["part"].to_list(),
        "Longest minus median task": result.stage_spans.drop_nulls("skew_cost_s")["stage"].to_list()[:1],
    }[kind]
    for value in expected:
        assert any(str(value) in str(row.values()) for row in rows), value


@pytest.mark.parametrize("kind", CHARTS)
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(made.small(), id="nothing"),
        pytest.param(made.small(made.stage_submitted(), made.task_end(), made.stage_completed()), id="one stage"),
        pytest.param(application(), id="made by hand"),
    ],
)
def test_no_row_and_one_row_draw(kind: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    built, _ = titled(CHARTS[kind](build_profile(read_event_logs(tmp_path / "log"))))
    assert built["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_a_failed_query_is_coloured_as_a_failure(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(application())
    text = titled(CHARTS[TIMELINE](build_profile(read_event_logs(tmp_path / "log"))))[1]
    assert '"outcome": "failed"' in text


def test_markup_in_a_description_stays_text(tmp_path: Path) -> None:
    events = made.sql_start(0, description="<script>alert(1)</script>")
    (tmp_path / "log").write_bytes(made.small(events, made.sql_end(0)))
    built, _ = titled(CHARTS[TIMELINE](build_profile(read_event_logs(tmp_path / "log"))))
    rows = [row for data in built["datasets"].values() for row in data]
    assert any("<script>" in str(row.get("what")) for row in rows), "data is JSON; the page escapes it"


def test_the_slot_time_is_one_bar_whose_parts_carry_their_names_and_add_up() -> None:
    result = build_profile(read_event_logs(LOGS / "tpch_sf0.1.zstd"))
    n_slots = result.overview["n_task_slots"][0]
    built, text = titled(charts.chart_slot_time(result.wall_parts, n_slots))
    rows = {row["what"]: row for data in built["datasets"].values() for row in data if "words" in row}
    assert list(rows) == ["running", "waiting", "driver alone", "no query"]
    assert all(row["words"].startswith(f"{name}\n") for name, row in rows.items())
    assert max(row["to_value"] for row in rows.values()) == pytest.approx(result.overview["wall_time_s"][0] * n_slots)
    assert '"legend": null' in text


def test_the_timeline_covers_the_application_and_shades_what_no_stage_covers() -> None:
    result = build_profile(read_event_logs(LOGS / "tpch_sf0.1.zstd"))
    span = {"start_s": result.start_s, "end_s": result.end_s}
    built, text = titled(charts.chart_timeline(result.queries, result.stage_spans, **span))
    gaps = [row for data in built["datasets"].values() for row in data if "gap_s" in row]
    assert gaps[0]["start_s"] == 0.0
    assert gaps[0]["end_s"] == result.stage_spans["start_s"].min()
    assert "shaded: no stage ran" in text
