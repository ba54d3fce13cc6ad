"""The proof of a change: fresh sessions with and without it in turn, answers row for row, and what it lets expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from workbench import stats
from workbench.forecasts.ledger import Forecast, append_entries, build_entry
from workbench.forecasts.matching import make_id
from workbench.speedup.config import ImproveConfig
from workbench.speedup.improvement.trials import NOW
from workbench.speedup.recording import recorder
from workbench.stats.intervals import t_interval

IMPROVED = "improved"
SESSIONS = 5
# Each session runs the suite for so long once it is warm, in at most so many passes: a JVM that still compiles hides
# what a change does to a short suite.
WARM_S, MAX_WARM_PASSES = 10.0, 6


@dataclass(frozen=True)
class Proof:
    """Warm times of both sides, means of the passes that count: session, query, now, improved, in s.

    `objection`: Why it does not count, such as other answers; null if it does.
    """

    times: pl.DataFrame
    objection: str | None

    def compare(self, level: float) -> stats.Interval:
        """Ratio of the suite's times, by pairs of sessions."""
        totals = self.times.group_by("session").agg(pl.col(NOW, IMPROVED).sum()).sort("session")
        return stats.paired_log_ratio(totals[NOW].to_list(), totals[IMPROVED].to_list(), level=level)


def record_proof(
    config: ImproveConfig,
    folder: str,
    usual: Mapping[str, str],
    changed: Mapping[str, str],
    suite_s: float,
    say: Callable[[str], None],
) -> Proof:
    """Record the suite with two sets of settings in fresh sessions that take turns.

    `suite_s`: What one warm pass takes as it is. The first half of the passes does not count.
    """
    n_warm = min(MAX_WARM_PASSES, max(1, math.ceil(WARM_S / max(suite_s, 0.1))))
    sides = [
        ",".join([f"{label}:spark", *(f"{name}={value}" for name, value in settings.items())])
        for label, settings in ((NOW, usual), (IMPROVED, changed))
    ]
    record = config.build_record_config(
        out=config.out / folder, engines=[], labels=[], sides=sides, sessions=SESSIONS, passes=1 + n_warm
    )
    outcome = recorder.record_suite(record, say=say)
    rows = outcome.recording.read_executions().filter(pl.col("pass") > (1 + n_warm) // 2)
    warm = rows.group_by("label", "session", "query").agg(pl.col("duration_s").mean())
    first, second = (
        warm.filter(label=label).select("session", "query", pl.col("duration_s").alias(label))
        for label in (NOW, IMPROVED)
    )
    times = first.join(second, on=["session", "query"]).sort("session", "query")
    return Proof(times, outcome.reasons[0] if outcome.reasons else None)


def book_gains(ledger: Path, proof: Proof, kept: Mapping[str, str]) -> None:
    """Keep each query's ratio as a forecast, with the range in which that of one more pair of runs would lie."""
    now = datetime.now(UTC)
    note = "settings: " + ", ".join(f"{name}={value}" for name, value in kept.items())
    forecasts: list[Forecast] = []
    for (query,), rows in proof.times.group_by("query", maintain_order=True):
        middle, half_width, _ = t_interval(np.log((rows[NOW] / rows[IMPROVED]).to_numpy()), stats.LEVEL)
        if middle is None or half_width is None:
            continue
        # The mean's interval, made that of one more value.
        reach = half_width * (rows.height + 1) ** 0.5
        fields = {
            "id": make_id(now.isoformat(), str(query), note),
            "made_at": now,
            "kept_at": now,
            "area": "speedup",
            "subject": f"query {query}",
            "quantity": "ratio",
            "unit": "times",
            "value": np.exp(middle),
            "low": np.exp(middle - reach),
            "high": np.exp(middle + reach),
            "level": stats.LEVEL,
            "note": note,
        }
        forecasts.append(build_entry(Forecast, fields, where=f"forecast of query {query}"))
    append_entries(ledger, lambda _: forecasts)
