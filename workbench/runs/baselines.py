"""Baseline runs by words: the last valid run, the median of the last valid ones, or of those since a day."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench.core.errors import ConfigError, InputError
from workbench.core.files import is_store_failure
from workbench.runs import catalogue
from workbench.runs.catalogue import StoredRun
from workbench.stats import Interval

MAX_BASELINES = 50
ALLOWED_WORDS = f"last valid, median of last N (2 to {MAX_BASELINES}), since DATE (2026-11-01 or 30d)"
_MEDIAN = re.compile(r"median of last (\d{1,4})")
MEDIAN_METHOD = "median of several runs, with all of their estimates within the interval"


@dataclass(frozen=True)
class BaselineChoice:
    """Which valid runs before the checked one are its baseline: the newest `n`, started at `since` or later."""

    n: int
    since: str | None = None

    @property
    def text(self) -> str:
        """The choice as part of a sentence.

        >>> BaselineChoice(3).text
        'the median of the last 3 valid runs'
        """
        if self.since is not None:
            return f"the median of the valid runs since {self.since}"
        return "the last valid run" if self.n == 1 else f"the median of the last {self.n} valid runs"

    def choose_runs(self, run: StoredRun, runs: Sequence[StoredRun]) -> list[StoredRun]:
        """The valid runs of its area before a run, newest first."""
        begun = None
        if self.since is not None:
            begun = catalogue.parse_moment(self.since, option="since", now=run.began)
        earlier = [
            one
            for one in runs
            if one.area == run.area and not one.objection and (one.began, one.run_id) < (run.began, run.run_id)
        ]
        # A run may be there twice, as a copy.
        chosen = {one.run_id: one for one in earlier if begun is None or one.began >= begun}.values()
        return sorted(chosen, key=lambda one: (one.began, one.run_id), reverse=True)[: self.n]


def parse_baseline_words(text: str) -> BaselineChoice | None:
    """The choice that words stand for; null for the name of a run.

    >>> parse_baseline_words("last valid"), parse_baseline_words("20261101T0900")
    (BaselineChoice(n=1, since=None), None)
    """
    words = " ".join(text.split())
    if words == "last valid":
        return BaselineChoice(1)
    if (found := _MEDIAN.fullmatch(words)) and 2 <= int(found[1]) <= MAX_BASELINES:
        return BaselineChoice(int(found[1]))
    if words.startswith("since "):
        since = words.removeprefix("since ")
        catalogue.parse_moment(since, option="since", now=datetime(2026, 1, 1, tzinfo=UTC))
        return BaselineChoice(MAX_BASELINES, since)
    if words.split(" ")[0] in ("last", "median", "since") and " " in words:
        raise ConfigError("unknown words for a baseline", found=text[:60], allowed=ALLOWED_WORDS)
    return None


def list_baseline_runs(place: str | Path) -> list[StoredRun]:
    """Runs of a place; raises where its store does not answer, as one that is missed may be the last."""
    unread: list[InputError] = []
    runs = catalogue.list_runs(place, unreadable=unread.append)
    if missed := next(filter(is_store_failure, unread), None):
        raise missed
    return runs


def combine_baselines(values: Sequence[Interval]) -> Interval:
    """One figure of several runs: their median; its interval holds the estimates of all of them.

    Each end is the median of the runs' ends, or the outermost estimate where that lies beyond. No ends where a run has
    none.

    >>> runs = [Interval(value, value - 0.1, value + 0.1, 0.9, 5, "t") for value in (1.0, 1.5, 1.1)]
    >>> found = combine_baselines(runs)
    >>> found.estimate, found.low, found.high
    (1.1, 1.0, 1.5)
    """
    known = [value for value in values if value.estimate is not None]
    if len(known) < 2:
        return known[0] if known else Interval(None, None, None, 0.9, 0, MEDIAN_METHOD)
    estimates = [value.estimate for value in known if value.estimate is not None]
    lows = [value.low for value in known if value.low is not None]
    highs = [value.high for value in known if value.high is not None]
    low, high = None, None
    if len(lows) == len(highs) == len(known):
        low, high = min(statistics.median(lows), *estimates), max(statistics.median(highs), *estimates)
    n = min((value.n for value in known if value.n > 0), default=0)
    level = min(value.level for value in known)
    return Interval(statistics.median(estimates), low, high, level, n, MEDIAN_METHOD)
