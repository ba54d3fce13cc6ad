"""Copies of one stack held against each other: how often are two of them told apart?"""

from __future__ import annotations

from itertools import combinations

import polars as pl

from workbench.stats import decide_beyond, paired_log_ratio

WINDOW = 10
LEVEL = 0.95
MARGIN = 0.02


_SCHEMA = {
    "metric": pl.String, "one": pl.String, "other": pl.String, "begin": pl.Int64, "ratio": pl.Float64,
    "verdict": pl.String,
}  # fmt: skip


def comparisons(values: pl.DataFrame, window: int = WINDOW, *, runs: pl.DataFrame | None = None) -> pl.DataFrame:
    """Every pair of arms, metric and window of rounds by itself: `metric, one, other, begin, ratio, verdict`.

    `values` is table OBSERVATIONS. Each comparison stands alone, without a correction for their number: the harder
    test for measuring in rounds, where none should be told apart. Where a run of the window has no value, ratio and
    verdict are null. `runs`, table RUNS, tells of arms and rounds without a single value.
    """
    rows = []
    by = {
        (arm, metric): dict(part.select("round", "value").iter_rows())
        for (arm, metric), part in values.group_by(["arm", "metric"])
    }
    planned = values if runs is None else runs
    arms, metrics = sorted(set(planned["arm"])), sorted({metric for _, metric in by})
    rounds = range(1 + int(planned["round"].max())) if planned.height else range(0)  # type: ignore[arg-type]
    for begin in range(0, len(rounds) - window + 1, window):
        of_window = rounds[begin : begin + window]
        for metric in metrics:
            for one, other in combinations(arms, 2):
                pair = [[by.get((arm, metric), {}).get(number) for number in of_window] for arm in (one, other)]
                if any(value is None for side in pair for value in side):
                    rows.append((metric, one, other, begin, None, None))
                    continue
                interval = paired_log_ratio(*pair, level=LEVEL)
                (decision,) = decide_beyond([interval], [MARGIN])
                rows.append((metric, one, other, begin, interval.estimate, decision.verdict))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def false_share(values: pl.DataFrame, window: int = WINDOW) -> float:
    """The share of comparisons, but the missing ones, that are called FASTER or SLOWER."""
    verdicts = comparisons(values, window)["verdict"]
    return float(verdicts.is_in(["FASTER", "SLOWER"]).mean() or 0.0)
