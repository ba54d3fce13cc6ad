"""Charts of sweeps draw the rows of their tables, mark what does not count, and calculate as Python does."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pytest
import vl_convert

from tests.sizing.making import closed, requests, steps
from workbench.sizing.charts import (
    build_law_lines,
    chart_answers,
    chart_client,
    chart_goodput,
    chart_ladder,
    chart_scaling,
    list_backlog_charts,
)
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.backlog import sample_backlog
from workbench.sizing.estimation.gpu_estimates import GpuCapacity, fit_scaling_laws, select_usable_levels
from workbench.sizing.estimation.gpu_what_if import WhatIf, estimate_capacities, sample_fitted_curve
from workbench.sizing.estimation.method_comparison import TrueRequirement, compare_methods
from workbench.sizing.estimation.sizing_answer import SizingAnswer, compute_answer
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.tables import CAPACITIES

GOAL = Goal(limit_s=1.4)


@pytest.fixture(scope="module")
def raw() -> tuple[pl.DataFrame, pl.DataFrame]:
    config = build_sweep_config(protocol="function", simulated=True, users=[1, 2, 4, 6, 8, 12], goals=[GOAL])
    return virtual_time.simulate_sweep(Service(slots=8), config)


@pytest.fixture(scope="module")
def found(raw: tuple[pl.DataFrame, pl.DataFrame]) -> SizingAnswer:
    return compute_answer(*raw, [GOAL], 100, draws=100)


@pytest.fixture(scope="module")
def what_if(raw: tuple[pl.DataFrame, pl.DataFrame], found: SizingAnswer) -> WhatIf:
    levels = select_usable_levels(*raw, found.points, GOAL)
    return WhatIf(levels, 1, GOAL, 100, "users", estimate_capacities({1: levels}, GOAL, draws=100))


def drawn(chart: Any) -> tuple[list[dict[str, Any]], str]:
    built = chart.to_dict()
    return [row for data in built["datasets"].values() for row in data], json.dumps(built, ensure_ascii=False)


def failing() -> SizingAnswer:
    """Two good levels, one that the client limited, one whose requests all failed."""
    rows = [closed(1, [1.0] * 250), closed(2, [1.1] * 250, step=1), closed(4, [1.2] * 250, step=2)]
    failed = {"outcome": "timeout", "runtime_s": None, "status": None}
    rows.append(
        requests([{"sent_s": at / 10, "intended_s": at / 10, "ended_s": at + 30.0, **failed} for at in range(250)], 3)
    )
    held = steps({"users": 1}, {"users": 2}, {"users": 4, "client_cpu_share": 0.99}, {"users": 8})
    return compute_answer(pl.concat(rows), held, [Goal(limit_s=2)], 100, draws=100)


def test_the_ladder_has_a_dot_a_step_and_names_what_is_carried(found: SizingAnswer) -> None:
    row = found.estimates.row(0, named=True)
    rows, text = drawn(chart_ladder(found.points, found.quantiles, row))
    assert sorted(one["load"] for one in rows if "verdict" in one) == [1, 2, 4, 6, 8, 12]
    assert f"1 GPU carries {row['capacity']:.3g} users with runtime p95 within 1.4 s" in text
    assert "SLO 1.4 s" in text
    assert [one["capacity_low"] for one in rows if "capacity_low" in one] == [row["capacity_low"]]


def test_the_curve_is_drawn_when_it_is_given(raw: Any, found: SizingAnswer) -> None:
    row = found.estimates.row(0, named=True)
    fitted = sample_fitted_curve(select_usable_levels(*raw, found.points, GOAL), GOAL, row["method"])
    rows, _ = drawn(chart_ladder(found.points, found.quantiles, row, fitted))
    assert sum(set(one) == {"load", "value_s"} for one in rows) == fitted.height > 6
    assert sample_fitted_curve([], GOAL, "line").height == 0
    assert sample_fitted_curve(select_usable_levels(*raw, found.points, GOAL), GOAL, None).height == 0


def test_steps_that_do_not_count_are_marked_and_those_without_a_value_counted() -> None:
    answered = failing()
    rows, text = drawn(chart_ladder(answered.points, answered.quantiles, answered.estimates.row(0, named=True)))
    assert {one["load"]: one["use"] for one in rows if "use" in one} == {1: "used", 2: "used", 4: "left out"}
    # One scale for both: two would have a legend each.
    assert "resolve" not in json.loads(text)
    assert "1 steps whose quantile falls among failures are not drawn" in text
    assert "1 GPU: which load keeps runtime p95 within 2 s is open" in text


def test_the_answers_say_who_deploys_too_few(found: SizingAnswer) -> None:
    table = compare_methods(found, burst_gpus=10.2, truth=TrueRequirement(13, {13: True, 12: False}, 3))
    rows, text = drawn(chart_answers(table))
    said = {one["answer"]: one["said"].strip() for one in rows if "said" in one}
    assert said["line, toolkit's runs"] == "11: 2 too few"
    assert set(said) == {"this workbench", "line, same points", "line, toolkit's runs"}
    assert "the service needs 13" in text


def test_without_a_truth_nobody_is_called_right_or_wrong(found: SizingAnswer) -> None:
    rows, text = drawn(chart_answers(compare_methods(found)))
    assert "needs" not in text
    assert {one["said"].strip() for one in rows if "said" in one} == {
        str(found.recommended),
        str(compare_methods(found)["deployed"][1]),
    }


def test_a_method_without_a_number_is_named(found: SizingAnswer) -> None:
    _, text = drawn(chart_answers(compare_methods(found, truth=TrueRequirement(None, {}, 1))))
    assert "no number: line, toolkit's runs, true need" in text


def test_the_load_is_held_to_what_was_asked_by_both_clocks(found: SizingAnswer) -> None:
    rows, _ = drawn(chart_client(found.points))
    assert {one["seen"] for one in rows} == {"in flight (client)", "in service (server)"}
    assert all(98 <= one["held_percent"] <= 102 for one in rows)


def test_a_repeated_load_counts_by_its_worst_step() -> None:
    both = [closed(2, [1.0] * 250), closed(2, [1.0] * 250, server=0.5, step=1)]
    answered = compute_answer(pl.concat(both), steps({"users": 2}, {"users": 2}), [Goal(limit_s=2)], 10, draws=100)
    rows, _ = drawn(chart_client(answered.points))
    seen = {one["seen"]: one["held_percent"] for one in rows}
    assert seen["in service (server)"] == pytest.approx(50, abs=2)
    assert len(rows) == 2


def test_goodput_parts_from_the_rate_where_requests_are_late(found: SizingAnswer) -> None:
    rows, _ = drawn(chart_goodput(found.points, found.goodput))
    by_load = {
        name: {one["load"]: one["requests_per_s"] for one in rows if one["served"] == name}
        for name in ("within all targets", "all requests")
    }
    late = {load: by_load["all requests"][load] - good for load, good in by_load["within all targets"].items()}
    assert late[1] == pytest.approx(0, abs=0.05)
    assert late[12] > 1


def shown(chart: Any, **values: float) -> str:
    """The picture's words, the sliders moved."""
    spec = chart.to_dict()
    for param in spec["params"]:
        if "value" in param:
            param["value"] = values.get(param["name"], param["value"])
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", vl_convert.vegalite_to_svg(spec)))


def test_the_page_calculates_what_python_does(what_if: WhatIf) -> None:
    for users, limit_ms in ((100, 1400), (37, 1400), (250, 1540), (100, 1190)):
        most = -(-users // what_if.table.filter(limit_ms=limit_ms).row(0, named=True)["capacity_low"])
        assert f"{most:.0f} GPUs" in shown(what_if.chart(), load=users, limit_s=limit_ms / 1000)


def test_the_sliders_have_the_grid_and_need_no_kernel(what_if: WhatIf) -> None:
    binds = {param["name"]: param["bind"] for param in what_if.chart().to_dict()["params"] if "bind" in param}
    assert binds["limit_s"]["step"] == 0.07
    assert round(1400 - 1000 * binds["limit_s"]["min"]) % 70 == 0
    assert binds["load"]["max"] == 400
    assert all("bind" not in param for param in what_if.chart(sliders=False).to_dict()["params"])


def test_a_limit_whose_interval_is_open_recommends_nothing() -> None:
    row = {"gpus": 2, "limit_ms": 500, "capacity": 8.0, "capacity_low": None, "capacity_high": 9.0}
    what_if = WhatIf([], 2, Goal(limit_s=0.5), 40, "users", CAPACITIES.frame([row]))
    assert "more than 10 GPUs, how many is open" in shown(what_if.chart())


def test_a_grid_without_any_capacity_still_draws() -> None:
    assert drawn(WhatIf([], 2, GOAL, 40, "users", CAPACITIES.frame([])).chart())[0] == []


def test_the_laws_are_drawn_to_twice_the_largest_count() -> None:
    table = fit_scaling_laws("p95", [GpuCapacity(1, 10, 9.9, 10.1), GpuCapacity(2, 18, 17.8, 18.2)], 30, draws=50)
    lines = build_law_lines(table, "p95")
    assert lines.filter(model="linear")["gpus"].to_list() == [1, 2, 3, 4]
    amdahl = lines.filter(model="Amdahl")["capacity"].to_list()
    assert amdahl[0] == pytest.approx(10)
    assert amdahl[1] == pytest.approx(18)
    counts = [
        {"gpus": n, "limit_ms": 500, "capacity": c, "capacity_low": c - 1, "capacity_high": c + 1.0}
        for n, c in ((1, 10.0), (2, 18.0))
    ]
    rows, text = drawn(chart_scaling(table, CAPACITIES.frame(counts), "p95", 30, 500))
    assert sum("limit_ms" in one for one in rows) == 2
    assert "to be served: 30" in text


def test_the_backlog_of_a_step_that_is_not_sustained_is_drawn_and_of_no_other() -> None:
    def open_loop(service_s: float, step: int) -> pl.DataFrame:
        """One server, first come first served, at ten evenly spaced arrivals a second."""
        free, rows = 0.0, []
        for place in range(400):
            due = place / 10
            free = max(free, due) + service_s
            rows.append({"intended_s": due, "sent_s": due, "ended_s": free, "runtime_s": free - due})
        return requests(rows, step)

    sent = pl.concat([open_loop(0.05, 0), open_loop(0.15, 1)])
    arrivals = {"loop": "open", "users": None, "rate_per_s": 10.0, "arrivals": "constant"}
    held = steps(arrivals, arrivals)
    points, _ = assess_steps(sent, held)
    assert points["verdict"].to_list() == ["valid", "not sustained"]
    backlog = sample_backlog(sent, held)
    (chart,) = list_backlog_charts(points, backlog)
    rows, text = drawn(chart)
    assert {row["arrivals"] for row in rows if "arrivals" in row} == {"10.0/s, step 1"}
    assert max(row["waiting"] for row in rows if "waiting" in row) == backlog.filter(step=1)["waiting"].max()
    assert "not sustained" in text
    assert list_backlog_charts(points.filter(step=0), backlog) == []
