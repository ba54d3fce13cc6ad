"""The search keeps what is truly faster and nothing else; SIMULATED sessions whose settings have known effects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.speedup.recording.recordings import FACTS, LOG, QUERIES
from workbench.core.errors import RunFailedError
from workbench.forecasts.ledger import read_ledger
from workbench.speedup.config import ImproveConfig
from workbench.speedup.improvement import improvement, trial_session
from workbench.speedup.improvement.changes import list_changes
from workbench.speedup.improvement.improvement import PATCH_FILE, UNDO_FILE, Improvement, improve_suite
from workbench.speedup.recording import query_session, recorder, session_process
from workbench.speedup.tables import ADVICE

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install -r requirements.lock)")

A, B, C = "spark.sql.a", "spark.sql.b", "spark.sql.c"
COLUMNS = [["n", "int"]]


class SimulatedSpark:
    """Stands in for a session's process: each query takes 1 s, times the effect of each setting, times noise."""

    def __init__(
        self,
        effects: Mapping[str, float],
        *,
        seed: int = 0,
        noise: float = 0.03,
        by_query: Mapping[str, float] | None = None,
    ) -> None:
        self.effects, self.noise, self.draw = effects, noise, np.random.default_rng(seed)
        self.by_query = by_query or {}
        self.screened: list[list[str]] = []
        self.wrong: set[str] = set()
        self.n_sessions = 0
        self.before: Callable[[int], None] = lambda number: None

    def time_query(self, query: str, settings: Mapping[str, str]) -> float:
        slower = np.prod([self.effects.get(f"{name}={value}", 1.0) for name, value in settings.items()])
        return float(self.by_query.get(query, 1.0) * slower * np.exp(self.draw.normal(0, self.noise)))

    def __call__(
        self,
        plan: query_session.SessionPlan,
        *,
        timeout_s: float,
        on_execution: Callable[[dict[str, Any]], None],
        local: bool,
        spark: str | None = None,
        module: ModuleType = query_session,
    ) -> session_process.SessionEnd:
        self.n_sessions += 1
        self.before(self.n_sessions)
        folder = Path(plan.folder)
        if isinstance(plan, trial_session.TrialPlan):
            return self._run_trial(plan, folder, on_execution)
        rows, lines = [], []
        for number, order in enumerate(plan.orders, 1):
            for position, query in enumerate(order, 1):
                row = {"pass": number, "position": position, "query": query, "status": "ok", "n_rows": 1, "error": None}
                rows.append(row | {"duration_s": self.time_query(query, plan.settings)})
                on_execution(rows[-1])
                if number == 1:
                    lines.append({"query": query, **self._answer(plan.settings)})
        (folder / query_session.EVENTS).mkdir()
        (folder / query_session.EVENTS / "local-1").write_text(LOG)
        (folder / query_session.ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return session_process.SessionEnd(rows, FACTS, None)

    def _run_trial(
        self, plan: trial_session.TrialPlan, folder: Path, on_execution: Callable[[dict[str, Any]], None]
    ) -> session_process.SessionEnd:
        lines = []
        self.screened.append(sorted(plan.orders[0]))
        for number in range(plan.n_rounds + 1):
            for position, (arm, settings) in enumerate(plan.arms.items(), 1):
                for query in plan.orders[0]:
                    row = {
                        "pass": number,
                        "position": position,
                        "arm": arm,
                        "query": query,
                        "status": "ok",
                        "error": None,
                    }
                    on_execution(row | {"duration_s": self.time_query(query, {**plan.settings, **settings})})
                    if not number:
                        lines.append({"query": query, "arm": arm, **self._answer(settings)})
            if (folder / trial_session.STOP_FILE).exists():
                break
        (folder / query_session.ANSWERS).write_text("".join(json.dumps(line) + "\n" for line in lines))
        defaults = {name: "0" if name != C else None for arm in plan.arms.values() for name in arm}
        return session_process.SessionEnd([], {"defaults": defaults}, None)

    def _answer(self, settings: Mapping[str, str]) -> dict[str, Any]:
        is_wrong = any(f"{name}={value}" in self.wrong for name, value in settings.items())
        return {"columns": COLUMNS, "limit": None, "keys": None, "rows": [[8 if is_wrong else 7]]}


Search = Callable[..., Improvement]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Search:
    """Searches among settings that the user names; the log of such a session tells nothing."""
    monkeypatch.setattr(recorder, "measure_busy_share", lambda: 0.0)
    monkeypatch.setattr(improvement, "study_profile", lambda *_: SimpleNamespace(advice=ADVICE.frame([])))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t.parquet").write_bytes(b"")
    (tmp_path / "queries.sql").write_text(QUERIES)

    def run(spark: SimulatedSpark, *tries: str, out: str = "out", **settings: Any) -> Improvement:
        monkeypatch.setattr(session_process, "run_session", spark)
        given = {"queries": str(tmp_path / "queries.sql"), "data": str(tmp_path / "data"), "tries": list(tries)}
        return improve_suite(ImproveConfig(out=tmp_path / out, **given | settings), say=lambda _: None)

    return run


def test_what_helps_is_kept_with_the_way_back(search: Search, tmp_path: Path) -> None:
    spark = SimulatedSpark({f"{A}=1": 0.8, f"{B}=1": 0.9, f"{C}=1": 1.2})
    found = search(spark, f"{A}=1", f"{B}=1", f"{C}=1")
    assert found.is_improved
    assert found.state.kept == {A: "1", B: "1"}
    assert found.state.ratio == pytest.approx(1 / (0.8 * 0.9), rel=0.05)
    assert (tmp_path / "out" / PATCH_FILE).read_text() == f"{A} 1\n{B} 1\n"
    assert (tmp_path / "out" / UNDO_FILE).read_text() == f"# remove {A}: it was not set\n# remove {B}: it was not set\n"


def test_what_does_nothing_is_seldom_kept(search: Search) -> None:
    tries = [f"{name}=1" for name in (A, B, C)]
    improved = [search(SimulatedSpark({}, seed=seed), *tries, out=f"out{seed}").is_improved for seed in range(60)]
    assert sum(improved) <= 2


def test_what_is_slower_is_never_kept(search: Search) -> None:
    for seed in range(20):
        found = search(SimulatedSpark({f"{A}=1": 1.03}, seed=seed), f"{A}=1", out=f"out{seed}")
        assert found.state.kept == {}


def test_another_answer_is_refused_however_fast(search: Search) -> None:
    spark = SimulatedSpark({f"{A}=1": 0.5})
    spark.wrong = {f"{A}=1"}
    found = search(spark, f"{A}=1")
    assert not found.is_improved
    assert found.state.changes[0].verdict.startswith("refused: ")
    assert "wrong answer" in found.state.changes[0].verdict


def test_of_values_of_one_setting_the_best_is_tried(search: Search) -> None:
    found = search(SimulatedSpark({f"{A}=1": 0.9, f"{A}=2": 0.7}), f"{A}=1", out="one")
    assert found.state.kept == {A: "1"}


def test_a_search_that_is_killed_anywhere_goes_on_and_ends_as_one_that_is_not(search: Search, tmp_path: Path) -> None:
    effects, tries = {f"{A}=1": 0.8, f"{B}=1": 0.85}, (f"{A}=1", f"{B}=1")
    whole = SimulatedSpark(effects)
    assert search(whole, *tries, out="whole").is_improved
    for at in range(1, whole.n_sessions + 1):
        out = f"killed{at}"
        killed = SimulatedSpark(effects)

        def die(number: int, at: int = at) -> None:
            if number == at:
                raise RunFailedError("planned")

        killed.before = die
        with pytest.raises(RunFailedError):
            search(killed, *tries, out=out)
        assert not (tmp_path / out / PATCH_FILE).exists()
        found = search(SimulatedSpark(effects), *tries, out=out)
        assert found.is_improved
        assert found.state.kept == {A: "1", B: "1"}


def test_a_budget_that_ends_is_a_reason_and_more_of_it_goes_on(search: Search) -> None:
    spark = SimulatedSpark({f"{A}=1": 0.8})
    short = search(spark, f"{A}=1", budget_s=1e-6)
    assert (short.verdict, short.is_improved) == ("invalid", False)
    assert search(spark, f"{A}=1", budget_s=900).is_improved


def test_numbers_get_values_around_them_and_memory_a_session_of_its_own() -> None:
    def row(setting: str, value: str, now: str) -> dict[str, Any]:
        told = {"change": "c", "at_most_s": 1.0, "at_most_share": 0.1, "rests_on": "r", "not_when": "n", "source": "s"}
        return told | {"setting": setting, "value": value, "now": now}

    advice = ADVICE.frame([row("spark.executor.memory", "4g", "2g"), row("spark.sql.shuffle.partitions", "100", "200")])
    tried = [f"{A}=x", "spark.sql.extensions=e"]
    changes = list_changes(advice, tried, ["spark.sql.shuffle.partitions=200", "spark.ui.enabled=false"])
    # Twice the advised value is what the run had.
    assert [change.value for change in changes] == ["4g", "100", "25", "50", "x", "e", "default"]
    # Static settings are those that Spark refuses to change in a session.
    assert [change.needs_session for change in changes] == [True, False, False, False, False, True, False]


def test_what_is_set_is_tried_at_the_default_that_spark_tells(search: Search, tmp_path: Path) -> None:
    spark = SimulatedSpark({f"{A}=bad": 1.5, f"{A}=default": 1.0, f"{A}=0": 1.0})
    found = search(spark, conf=[f"{A}=bad", f"{C}=1"])
    assert found.state.kept == {A: "0"}
    assert [change.verdict for change in found.state.changes] == ["FASTER", "refused: Spark has no default"]
    assert (tmp_path / "out" / UNDO_FILE).read_text() == f"{A} bad\n"


def test_memory_is_tried_in_sessions_of_its_own_on_top_of_what_is_kept(search: Search, tmp_path: Path) -> None:
    memory = "spark.driver.memory"
    spark = SimulatedSpark({f"{A}=1": 0.8, f"{memory}=8g": 0.7, "spark.speculation=true": 1.0})
    found = search(spark, f"{memory}=8g", f"{A}=1", "spark.speculation=true")
    assert found.state.kept == {A: "1", memory: "8g"}
    assert found.state.ratio == pytest.approx(1 / (0.8 * 0.7), rel=0.05)
    assert [change.n_rounds for change in found.state.changes if change.needs_session] == [5, 5]


def test_gains_are_kept_as_forecasts_with_the_range_of_one_more_run(search: Search, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    search(SimulatedSpark({f"{A}=1": 0.8}), f"{A}=1", ledger=ledger)
    forecasts = read_ledger(ledger).forecasts.values()
    assert {one.subject for one in forecasts} == {"query a", "query b", "query c"}
    for one in forecasts:
        assert one.note == f"settings: {A}=1"
        assert one.low < 1.25 < one.high
    assert search(SimulatedSpark({}), f"{B}=1", out="none", ledger=tmp_path / "none.jsonl").state.kept == {}
    assert not (tmp_path / "none.jsonl").exists()


def test_a_slice_of_long_queries_is_screened_and_all_of_them_decide(search: Search) -> None:
    spark = SimulatedSpark({f"{A}=1": 0.8}, by_query={"a": 9.0})
    assert search(spark, f"{A}=1").is_improved
    assert spark.screened == [["a"], ["a", "b", "c"]]
