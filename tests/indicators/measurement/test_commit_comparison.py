"""A pull request's gate: worse is broken, open is refused unless accepted, and better passes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl

from workbench.indicators.measurement.commit_comparison import judge_metrics
from workbench.indicators.measurement.session_report import SessionOutcome


def build_outcome(*rows: dict[str, Any]) -> SessionOutcome:
    usual = {
        "metric": "work",
        "control": False,
        "ratio": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 10,
        "undecided_because": None,
    }
    effects = pl.DataFrame([usual | row for row in rows], infer_schema_length=None)
    return SimpleNamespace(compared=SimpleNamespace(effects=effects))  # type: ignore[return-value]


def test_each_metric_is_a_rule() -> None:
    outcome = build_outcome(
        {"verdict": "SLOWER"},
        {"verdict": "SAME", "metric": "size", "ratio": 1.0, "low": 0.99, "high": 1.01},
        {"verdict": "FASTER", "metric": "start"},
        {"verdict": "UNDECIDED", "metric": "load", "undecided_because": "too few rounds"},
        {"verdict": "UNDECIDED", "metric": "none", "ratio": None, "low": None, "high": None},
        {"verdict": "SLOWER", "control": True},
    )
    strict, lax = (judge_metrics(outcome, accept_undecided=accepted) for accepted in (False, True))
    assert [rule.outcome for rule in strict] == ["broken", "passed", "passed", "refused", "refused"]
    assert [rule.outcome for rule in lax] == ["broken", "passed", "passed", "passed", "passed"]
    assert strict[0].found == "0.500 times as good [0.400, 0.600], SLOWER, 10 rounds"
    assert strict[3].found.endswith("UNDECIDED: too few rounds, 10 rounds")
    assert strict[4].found == "UNDECIDED, UNDECIDED, 10 rounds"
