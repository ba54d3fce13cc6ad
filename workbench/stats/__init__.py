"""The few estimators that all areas share: each gives an `Interval`, says where it comes from and what it hides.

Missing is null: too little data gives no interval, with the reason. Verdicts are worded here, for all areas alike.
Of scipy only `special` and `optimize` are used, and inside the functions: `scipy.stats` takes seconds to import.
"""

from __future__ import annotations

from workbench.stats.interval import LEVEL, Interval
from workbench.stats.inversion import isotonic_inversion
from workbench.stats.ratios import log_error, log_interval, paired_log_ratio, welch_log_ratio
from workbench.stats.spread import FEWEST_CLUSTERS, cluster_bootstrap, quantile_interval, session_t
from workbench.stats.verdicts import (
    MARGIN,
    MOST_PAIRS,
    Decision,
    Verdict,
    decide,
    decide_beyond,
    holm,
    p_beyond,
    pairs_needed,
    verdict,
)

__all__ = [
    "FEWEST_CLUSTERS",
    "LEVEL",
    "MARGIN",
    "MOST_PAIRS",
    "Decision",
    "Interval",
    "Verdict",
    "cluster_bootstrap",
    "decide",
    "decide_beyond",
    "holm",
    "isotonic_inversion",
    "log_error",
    "log_interval",
    "p_beyond",
    "paired_log_ratio",
    "pairs_needed",
    "quantile_interval",
    "session_t",
    "verdict",
    "welch_log_ratio",
]
