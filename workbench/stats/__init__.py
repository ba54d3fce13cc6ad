"""Statistical estimators that all areas share; each returns an `Interval` with its method.

Too little data gives null ends with the reason. Verdicts have the same words in all areas. Of scipy only its special
functions and optimizers are imported, inside of functions: its statistics take seconds to import.
"""

from __future__ import annotations

from workbench.stats.intervals import LEVEL, Interval, compute_interval_score, isotonic_inversion
from workbench.stats.proportions import CoverageVerdict, clustered_share, decide_coverage, wilson_interval
from workbench.stats.quantiles import MIN_CLUSTERS, cluster_bootstrap, quantile_interval, session_t
from workbench.stats.ratios import log_interval, paired_log_ratio, rank_difference_z, welch_log_ratio
from workbench.stats.verdicts import (
    EARLY_LOOK,
    LAST_LOOK,
    MARGIN,
    MAX_PAIRS,
    SEQUENCE,
    Decision,
    Verdict,
    adjust_holm,
    count_required_pairs,
    critical_value,
    decide_beyond,
    decide_verdicts,
    log_error,
    p_beyond,
    ratio_verdict,
    sequential_log_ratio,
    tail_probability,
)

__all__ = [
    "EARLY_LOOK",
    "LAST_LOOK",
    "LEVEL",
    "MARGIN",
    "MAX_PAIRS",
    "MIN_CLUSTERS",
    "SEQUENCE",
    "CoverageVerdict",
    "Decision",
    "Interval",
    "Verdict",
    "adjust_holm",
    "cluster_bootstrap",
    "clustered_share",
    "compute_interval_score",
    "count_required_pairs",
    "critical_value",
    "decide_beyond",
    "decide_coverage",
    "decide_verdicts",
    "isotonic_inversion",
    "log_error",
    "log_interval",
    "p_beyond",
    "paired_log_ratio",
    "quantile_interval",
    "rank_difference_z",
    "ratio_verdict",
    "sequential_log_ratio",
    "session_t",
    "tail_probability",
    "welch_log_ratio",
    "wilson_interval",
]
