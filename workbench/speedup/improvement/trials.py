"""Trials: arms of settings in turn in one warm session, with their times and answers."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import stats
from workbench.core.errors import RunFailedError
from workbench.speedup.improvement import trial_session
from workbench.speedup.recording import query_session, session_process
from workbench.speedup.recording.answers import Answer, compare_answers
from workbench.speedup.recording.recording_plan import GOOD_VERDICTS, RecordingPlan
from workbench.stats.verdicts import DECIDED

NOW = "now"
FINAL = frozenset(DECIDED)


@dataclass
class Trial:
    """Times of the arms' rounds, s by query; the first round of each is cold.

    `wrong`: Arms that failed or differ. `defaults`: Spark's own values of the settings; null where it has none.
    """

    rounds: dict[str, list[dict[str, float]]] = field(default_factory=lambda: defaultdict(list))
    wrong: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str | None] = field(default_factory=dict)

    def take_row(self, row: Mapping[str, Any]) -> None:
        """One query of an arm in a round."""
        of_arm = self.rounds[row["arm"]]
        if len(of_arm) <= row["pass"]:
            of_arm.append({})
        of_arm[row["pass"]][row["query"]] = row["duration_s"]
        if row["status"] != "ok":
            self.wrong.setdefault(row["arm"], f"{row['query']} failed: {row['error']}")

    def list_totals(self, arm: str) -> list[float]:
        """Warm time of the whole suite, by round."""
        return [sum(times.values()) for times in self.rounds[arm][1:]]

    def compare(self, arm: str, other: str, level: float) -> stats.Interval:
        """Ratio of the first arm's times to the second's, over rounds that both ended; it holds at every look."""
        pairs = list(zip(self.list_totals(arm), self.list_totals(other), strict=False))
        return stats.sequential_log_ratio([one for one, _ in pairs], [two for _, two in pairs], level=level)


def run_trial(
    prepared: RecordingPlan,
    arms: Mapping[str, Mapping[str, str]],
    n_rounds: int,
    *,
    queries: Sequence[str] | None = None,
    is_enough: Callable[[Trial], bool] = lambda _: False,
    timeout_s: float,
) -> Trial:
    """Run the arms in turn until there are rounds enough, or all have run.

    `arms`: Settings by name; answers are held against those of the first. `queries`: Null: all.
    """
    side = prepared.sides[0]
    order = list(queries or prepared.suite.queries)
    trial = Trial()
    with tempfile.TemporaryDirectory(prefix="workbench-improve-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "session"
        folder.mkdir()
        session = prepared.build_session_plan(side.label, 1, folder=folder, scratch=Path(scratch) / "local")
        plan = trial_session.TrialPlan(
            **session.model_dump() | {"orders": [order]},
            arms={name: dict(settings) for name, settings in arms.items()},
            n_rounds=n_rounds,
        )

        def take_row(row: dict[str, Any]) -> None:
            trial.take_row(row)
            ended = row["position"] == len(arms) and len(trial.rounds[row["arm"]][-1]) == len(order)
            if ended and row["pass"] and is_enough(trial):
                (folder / trial_session.STOP_FILE).touch()

        ended = session_process.run_session(
            plan,
            timeout_s=timeout_s,
            on_execution=take_row,
            local=prepared.config.local,
            spark=side.spark,
            module=trial_session,
        )
        if ended.facts is None:
            raise RunFailedError("a session of trials failed", found=ended.error)
        trial.defaults = ended.facts["defaults"]
        with (folder / query_session.ANSWERS).open(encoding="utf-8") as lines:
            _compare_arms(trial, [json.loads(line) for line in lines], next(iter(arms)))
    return trial


def _compare_arms(trial: Trial, lines: Sequence[dict[str, Any]], reference: str) -> None:
    """Note the arms whose answers are not those of the reference."""
    expected = {line["query"]: Answer.from_line(line) for line in lines if line["arm"] == reference}
    for line in lines:
        if line["query"] in expected:
            compared = compare_answers(expected[line["query"]], Answer.from_line(line))
            if compared.verdict not in GOOD_VERDICTS:
                trial.wrong.setdefault(line["arm"], f"{line['query']}: {compared.verdict}, {compared.difference}")
