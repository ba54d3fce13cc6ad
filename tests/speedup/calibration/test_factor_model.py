"""A factor model from a file: what it may hold, and what is refused with its file and field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import InputError
from workbench.speedup.calibration.factor_model import load_factor_model

Document = dict[str, Any]


def make_term(operator: str, share: float) -> Document:
    return {
        "operator": operator, "log_factor": math.log(2), "log_se": 0.1, "log_price": None, "baseline_share": share,
        "n_queries": 4, "quality": "good", "left_on_cpu_share": 0.0,
    }  # fmt: skip


def make_model() -> Document:
    member = {"time_weight": 0.8, "multipliers": {"Filter": 0.5}, "costs_s": [0, 0, 0], "calibration": 0.0}
    predictor = {"members": [member | {"weight": 0.75}, member | {"weight": 0.25}], "log_sd": 0.2}
    return {
        "format_version": 2, "baseline": "spark", "candidate": "comet",
        "baseline_engine": "spark", "candidate_engine": "comet",
        "terms": [make_term("Filter", 0.75), make_term("Sort + Window", 0.25)],
        "groups": [["Sort", "Window"]], "prices": {"Filter": 0.001},
        "log_overall": 0.5, "overall_log_se": 0.1, "spread": 0.3, "by_plan": predictor, "by_log": predictor,
        "n_queries": 4, "queries": ["q1", "q2", "q3", "q4"],
        "n_baseline_sessions": 5, "n_candidate_sessions": 5, "n_passes": 2,
        "created_at": "2026-12-01T00:00:00Z", "package_version": "1.0",
    }  # fmt: skip


def change(*path: str | int, to: Any) -> Callable[[Document], None]:
    def set_value(document: Document) -> None:
        place: Any = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to

    return set_value


def write(folder: Path, *changes: Callable[[Document], None]) -> Path:
    document = json.loads(json.dumps(make_model()))
    for make_change in changes:
        make_change(document)
    path = folder / "factors.json"
    path.write_text(json.dumps(document))
    return path


MEMBER = ("by_log", "members", 0)
SHARE = "a share from 0 to 1"
WRONG: dict[str, tuple[Callable[[Document], None], str, str, str]] = {
    "a share above 1": (change("terms", 0, "baseline_share", to=1.5), "terms[0].baseline_share", "1.5", SHARE),
    "a share below 0": (change("terms", 0, "baseline_share", to=-0.1), "terms[0].baseline_share", "-0.1", SHARE),
    "a share left on the CPU above 1": (
        change("terms", 1, "left_on_cpu_share", to=2), "terms[1].left_on_cpu_share", "2", SHARE,
    ),
    "a weight above 1": (change(*MEMBER, "weight", to=3), "by_log.members[0].weight", "3", SHARE),
    "a weight of time above 1": (change(*MEMBER, "time_weight", to=1.2), "by_log.members[0].time_weight", "1.2", SHARE),
    "a price of 0": (change("prices", "Filter", to=0), "prices.Filter", "0", "greater than 0"),
    "a price below 0": (change("prices", "Filter", to=-1), "prices.Filter", "-1", "greater than 0"),
    "a factor without end": (
        change("terms", 0, "log_factor", to=800), "terms[0].log_factor", "800", "less than or equal to 700",
    ),
    "a factor of 0": (
        change("terms", 0, "log_factor", to=-800), "terms[0].log_factor", "-800", "greater than or equal to -700",
    ),
    "an engine-wide factor without end": (
        change("log_overall", to=1e6), "log_overall", "1000000.0", "less than or equal to 700",
    ),
    "a standard error below 0": (
        change("terms", 0, "log_se", to=-0.1), "terms[0].log_se", "-0.1", "greater than or equal to 0",
    ),
    "a term without a name": (
        change("terms", 0, "operator", to=""), "terms[0].operator", "''", "must have at least 1 character",
    ),
    "a term twice": (
        change("terms", 1, to=make_term("Filter", 0.25)), "terms", "['Filter twice']", "each name once",
    ),
    "an operator in two groups": (
        change("groups", to=[["Sort", "Window"], ["Sort", "Project"]]), "groups", "['Sort twice']", "each name once",
    ),
    "a group twice": (
        change("groups", to=[["Sort", "Window"]] * 2), "groups", "['Sort twice', 'Window twice']", "each name once",
    ),
    "a group of one": (change("groups", to=[["Sort"]]), "groups", "['Sort']", "two operators or more"),
    "a query twice": (change("queries", to=["q1", "q1"]), "queries", "['q1 twice']", "each name once"),
    "shares of more than everything": (
        change("terms", 1, "baseline_share", to=0.5), "terms", "baseline shares that add up to 1.25", "at most 1",
    ),
    "weights that do not add up": (
        change(*MEMBER, "weight", to=0.5), "by_log.members", "weights that add up to 0.75", "1",
    ),
    "a multiplier of nothing": (
        change(*MEMBER, "multipliers", to={"Fliter": 0.5}), "by_log.members", "multipliers of Fliter",
        "operators of the terms",
    ),
}  # fmt: skip


def test_a_model_whose_parts_fit_is_read(tmp_path: Path) -> None:
    model = load_factor_model(write(tmp_path))
    assert [term.operator for term in model.terms] == ["Filter", "Sort + Window"]
    assert model.build_factors().log_overall == 0.5


def test_shares_and_weights_may_be_off_by_what_rounding_does(tmp_path: Path) -> None:
    changes = change("terms", 0, "baseline_share", to=0.7500000001), change(*MEMBER, "weight", to=0.7500000001)
    assert load_factor_model(write(tmp_path, *changes)).terms[0].baseline_share == 0.7500000001


@pytest.mark.parametrize(("make_change", "field", "found", "allowed"), WRONG.values(), ids=list(WRONG))
def test_a_value_that_cannot_be_is_refused_with_file_and_field(
    tmp_path: Path, make_change: Callable[[Document], None], field: str, found: str, allowed: str
) -> None:
    path = write(tmp_path, make_change)
    with pytest.raises(InputError, match="not a factor model") as caught:
        load_factor_model(path)
    facts = caught.value.facts
    assert facts == {
        "where": f"{path}, {field}",
        "found": facts["found"],
        "allowed": allowed,
        "do": "make one with: workbench speedup generate RECORDING --output factors.json",
    }
    assert str(facts["found"]) == found
