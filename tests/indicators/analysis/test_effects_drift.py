"""Changes of the machine: found where they are, and not where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.indicators.worlds import of_values, session
from workbench.indicators.analysis.effects import detect_drift
from workbench.indicators.store.archive import CONTROL


def found(values: list[float]) -> dict[str, object]:
    series = {("base", "Sort"): values, ("other", "Sort"): values, (CONTROL, "Sort"): values}
    return detect_drift(of_values(session(), series)).row(0, named=True)


def test_a_step_is_found_with_its_round_and_factor() -> None:
    rng = np.random.default_rng(1)
    logs = rng.normal(0, 0.02, 20) + np.where(np.arange(20) >= 12, np.log(1.3), 0)
    told = found(list(10 * np.exp(logs)))
    assert (told["changed"], told["change_at"], told["n"]) == (True, 12, 20)
    assert told["factor"] == pytest.approx(1.3, rel=0.05)


def test_few_rounds_or_equal_values_tell_nothing() -> None:
    told = found([10.0, 10.1, 9.9, 10.0, 20.0])
    assert (told["changed"], told["change_at"], told["p_value"], told["n"]) == (False, None, None, 5)
    assert found([10.0] * 12)["changed"] is False


@pytest.mark.parametrize(("degrees", "most"), [(100.0, 24), (3.0, 40)])
def test_a_steady_machine_is_flagged_in_few_of_200_sessions(degrees: float, most: int) -> None:
    noise = (0.02 * np.random.default_rng(seed).standard_t(degrees, 10) for seed in range(200))
    flagged = sum(bool(found(list(np.exp(logs)))["changed"]) for logs in noise)
    assert 2 <= flagged <= most


def test_a_machine_that_changes_by_half_is_flagged_among_several_metrics_in_ten_rounds() -> None:
    plan = session(cases=("Sort", "Matmul", "Join", "Ufunc", "Hello"))
    rng = np.random.default_rng(6)
    step = np.where(np.arange(10) >= 6, np.log(1.5), 0.0)
    values = {
        (arm, case): list(np.exp(rng.normal(0, 0.03, 10) + (step if case == "Matmul" else 0)))
        for arm in ("base", CONTROL)
        for case in ("Sort", "Matmul", "Join", "Ufunc", "Hello")
    }
    table = detect_drift(of_values(plan, values))
    assert table.filter(table["changed"])["metric"].to_list() == ["Matmul"]


def test_metrics_are_judged_together() -> None:
    plan = session(cases=("Sort", "Matmul", "Join"))
    rng = np.random.default_rng(4)
    values = {
        (arm, case): list(np.exp(rng.normal(0, 0.02, 12))) for arm in ("base", CONTROL) for case in ("Sort", "Matmul")
    }
    table = detect_drift(of_values(plan, values))
    assert table["metric"].to_list() == ["Sort", "Matmul", "Join"]
    known = table.filter(table["p_value"].is_not_null())
    assert all(adjusted >= p for p, adjusted in known.select("p_value", "adjusted_p_value").iter_rows())
