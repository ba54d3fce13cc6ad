"""Invariants of a session, its effects and its recommendation; a broken one stops the notebook."""

from __future__ import annotations

import math

import polars as pl

from workbench.indicators.analysis.effects import Comparison
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.report.study import check_invariants
from workbench.stats.verdicts import FASTER, SAME, SLOWER


def check_study(comparison: Comparison, recommendation: Recommendation) -> pl.DataFrame:
    """Check that runs count once, that ratios follow from their rounds, and that the recommendation is allowed.

    Returns: One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.
    """
    return check_invariants(
        [*_check_runs(comparison), *_check_effects(comparison), *_check_recommendation(comparison, recommendation)]
    )


def _check_runs(comparison: Comparison) -> list[tuple[str, int]]:
    """Name and number of violations of the invariants of RUNS and OBSERVATIONS."""
    runs, values = comparison.observed.runs, comparison.observed.values
    by_run = ["inspection_id", "run"]
    failed = runs.filter(pl.col("status") != "ok")
    extra_machines = max(0, runs["hardware_key"].n_unique() - 1)
    versions = runs.group_by("case").agg(pl.col("indicator_version").n_unique())
    mixed_cases = versions.filter(pl.col("indicator_version") > 1).height
    return [
        ("runs that failed and have a value", values.join(failed, on=by_run, how="semi").height),
        ("values without a run", values.join(runs, on=by_run, how="anti").height),
        ("a valid session on several machines", extra_machines * comparison.valid),
        ("a valid session with a case in two versions", mixed_cases * comparison.valid),
        ("rounds of a case with an arm twice", runs.filter(runs.select("case", "round", "arm").is_duplicated()).height),
    ]


def _check_effects(comparison: Comparison) -> list[tuple[str, int]]:
    """Name and number of violations of the invariants of EFFECTS."""
    effects = comparison.effects.filter(pl.col("ratio").is_not_null())
    bounded = effects.filter(pl.col("low").is_not_null())
    outside = bounded.filter((pl.col("low") > pl.col("ratio")) | (pl.col("ratio") > pl.col("high")))
    margin = 1 + pl.col("margin")
    faster = bounded.filter((pl.col("verdict") == FASTER) & (pl.col("low") <= margin))
    slower = bounded.filter((pl.col("verdict") == SLOWER) & (pl.col("high") >= 1 / margin))
    same = bounded.filter((pl.col("verdict") == SAME) & ((pl.col("low") < 1 / margin) | (pl.col("high") > margin)))
    # Ratios that differ from the geometric mean over rounds, recomputed in another way.
    base = comparison.observed.values.filter(pl.col("arm") == comparison.observed.session.baseline)
    pairs = comparison.observed.values.join(base, on=["metric", "round"], suffix="_base")
    logs = (pl.col("value_base") / pl.col("value")).log()
    signed = pl.when(pl.col("better") == "lower").then(logs).otherwise(-logs)
    positive = pairs.filter((pl.col("value") > 0) & (pl.col("value_base") > 0))
    again = positive.group_by("arm", "metric").agg(signed.mean().exp().alias("again"))
    both = comparison.effects.join(again, on=["arm", "metric"], how="inner")
    wrong_ratios = sum(
        not math.isclose(ratio, two, rel_tol=1e-9) for ratio, two in both.select("ratio", "again").iter_rows() if ratio
    )
    return [
        ("ratios outside their own interval", outside.height),
        ("ratios that do not follow from their rounds", wrong_ratios),
        ("claims whose interval reaches into the margin", faster.height + slower.height),
        ("SAME beyond the margin", same.height),
    ]


def _check_recommendation(comparison: Comparison, recommendation: Recommendation) -> list[tuple[str, int]]:
    """Name and number of violations of the invariants of RECOMMENDATIONS, EXCLUDED and JUSTIFICATIONS."""
    chosen = recommendation.table.filter(pl.col("recommended"))
    left_out = set(recommendation.excluded["stack"].to_list())
    chances = recommendation.table["p_best"].drop_nulls()
    off = bool(len(chances)) and abs(float(chances.sum()) - 1) > 1e-6
    return [
        ("recommended stacks of an invalid session", 0 if comparison.valid else chosen.height),
        ("stacks that are both excluded and ranked", len(left_out & set(recommendation.table["stack"].to_list()))),
        ("chances to be the best that do not add up to one", int(off)),
        (
            "sentences without runs behind them",
            recommendation.justifications.filter(pl.col("runs").list.len() == 0).height,
        ),
    ]
