"""Charts of a plan draw the rows of its tables, also where a part is not covered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.capacity.making import application, config, only, sizing_run, speedup_run
from workbench.capacity import charts
from workbench.capacity.study import Study, build_plan
from workbench.charts.data import describe_spec, list_datasets
from workbench.core.errors import InputError


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Study:
    place = tmp_path_factory.mktemp("runs")
    row = application("tpch spark 1", predicted_low_s=1500.0, predicted_high_s=2400.0)
    return build_plan(config(**only(speedup=speedup_run(place, row), sizing=sizing_run(place)), draws=200))


def spec(chart: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(chart.to_json())
    return made


def test_the_day_shows_both_parts_stacked_their_band_and_the_nodes(found: Study) -> None:
    made = spec(charts.chart_day(found.hours))
    rows = {len(one) for one in list_datasets(made)}
    assert rows == {24, 48}
    stacked = next(one for one in list_datasets(made) if len(one) == 48)
    assert {row["part"] for row in stacked} == {"Spark", "service"}
    at_nine = sum(row["gpus"] for row in stacked if row["hour"] == 9)
    hour = found.hours.row(9, named=True)
    assert at_nine == pytest.approx(hour["spark_gpus_p50"] + hour["service_gpus_p50"])
    assert "How many GPUs does each hour need?" in describe_spec(made)


def test_a_part_that_is_not_covered_is_not_drawn(tmp_path: Path) -> None:
    alone = build_plan(config(**only(sizing=sizing_run(tmp_path)), draws=100))
    made = spec(charts.chart_day(alone.hours))
    assert {row["part"] for one in list_datasets(made) for row in one if "part" in row} == {"service"}
    bound = spec(charts.chart_what_if(alone.what_if))
    assert [param["name"] for param in bound["params"]] == ["users_percent"]


def test_the_tornado_has_two_ends_for_each_input(found: Study) -> None:
    made = spec(charts.chart_tornado(found.tornado))
    rows = max(list_datasets(made), key=len)
    assert len(rows) == 2 * found.tornado.height
    assert {row["end"] for row in rows} == set(charts.ENDS)


def test_nodes_carry_their_interval_and_idle_gpus_are_drawn_with_both_numbers_of_nodes(found: Study) -> None:
    nodes = max(list_datasets(spec(charts.chart_nodes(found.hours))), key=len)
    assert {"hour", "nodes", "low", "high"} <= set(nodes[0])
    rows = max(list_datasets(spec(charts.chart_idle_cost(found.hours))), key=len)
    at_nine = [row["cost"] for row in rows if row["hour"] == 9]
    assert sum(at_nine) == pytest.approx(found.hours.row(9, named=True)["idle_cost_fixed"])
    assert len(rows) == 48


def test_what_chance_could_have_made_is_not_drawn_as_worth_measuring(found: Study) -> None:
    unresolved = found.information.with_columns(resolved=pl.col("input") != found.information["input"][0])
    drawn = max(list_datasets(spec(charts.chart_information(unresolved))), key=len)
    assert found.information["input"][0] not in {row["input"] for row in drawn}


def test_the_what_if_has_two_sliders_that_begin_at_the_plan(found: Study) -> None:
    made = spec(charts.chart_what_if(found.what_if))
    params = {param["name"]: param for param in made["params"]}
    assert {name: param["value"] for name, param in params.items()} == {"jobs_percent": 100, "users_percent": 100}
    assert all(param["bind"]["input"] == "range" for param in params.values())
    assert len(max(list_datasets(made), key=len)) == 7 * 7 * 24
    still = spec(charts.chart_what_if(found.what_if, sliders=False))
    assert not any("bind" in param for param in still["params"])


def test_a_table_without_the_columns_of_a_chart_is_refused(found: Study) -> None:
    with pytest.raises(InputError, match="column"):
        charts.chart_day(found.hours.drop("gpus_p95"))
    with pytest.raises(InputError, match="column"):
        charts.chart_tornado(found.tornado.drop("input"))
