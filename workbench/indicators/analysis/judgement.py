"""Judgement of a session: may anything be concluded from it, and is anything decided?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from workbench.indicators.analysis.observations import Observations
from workbench.indicators.store.archive import Session
from workbench.indicators.tables import JUDGEMENTS
from workbench.stats.verdicts import DECIDED, DIFFERENT

if TYPE_CHECKING:
    import polars as pl

MIN_ROUNDS = 5


def build_judgement(observations: Observations, effect_table: pl.DataFrame, drift_table: pl.DataFrame) -> pl.DataFrame:
    """Judge whether conclusions may be drawn from this session.

    It is invalid when not a single comparison is decided, by either clock: then nothing is known. It is not even
    `sound` without a control, with a control that differs from the baseline or has fewer than five rounds beside it,
    when measured in blocks or on several machines, and with several thread counts or versions of an indicator.
    Warnings of a valid session are listed as reasons, too.
    """
    import polars as pl

    session, runs = observations.session, observations.runs
    reasons = _list_invalid_reasons(session, effect_table, runs)
    sound = not reasons
    others = effect_table.filter(~pl.col("control"))
    decided = others.filter(pl.col("verdict").is_in(DECIDED)).height
    if sound and others.height and not others["decided_by"].count():
        reasons.append(_explain_undecided(others))
    verdict = "invalid" if reasons else "valid"
    changed = drift_table.filter(pl.col("changed"))
    for row in changed.iter_rows(named=True):
        change = f"{row['factor']:.2f} times the value from round {row['change_at']} on"
        reasons.append(f"the machine changed: {row['metric']} of the baseline has {change}")
    failed = runs.filter(pl.col("status") != "ok")
    for (arm, case, status), count in sorted(Counter(failed.select("arm", "case", "status").iter_rows()).items()):
        reasons.append(f"{arm}, {case}: {count} run(s) without values: {status}")
    if open_ := runs.filter(pl.col("network") != "isolated").height:
        reasons.append(f"network not isolated in {open_} of {runs.height} run(s)")
    n_rounds = int(runs["round"].n_unique())
    counts = {"compared": others.height, "decided": decided, "sound": sound}
    reasons += _list_unequal_reasons(others)
    row = {
        **counts,
        "rounds": n_rounds,
        "runs": runs.height,
        "failed": failed.height,
        "hosts_changed": changed.height > 0,
    }
    return JUDGEMENTS.frame([{"session_id": session.session_id, "verdict": verdict, "reasons": reasons, **row}])


def _explain_undecided(others: pl.DataFrame) -> str:
    """Nothing is decided: how many comparisons, the first reason, and how many rounds would tell."""
    count, whys = others.height, [reason for reason in others["undecided_because"].to_list() if reason]
    subject = "the comparison is undecided" if count == 1 else f"all {count} comparisons are undecided"
    return f"nothing is known yet: {subject}" + (f": {whys[0]}" if whys else "")


def _list_unequal_reasons(others: pl.DataFrame) -> list[str]:
    """Claims that rest on unequal conditions, one sentence per arm."""
    import polars as pl

    unequal = others.filter(pl.col("unequal").list.len() > 0)
    sentences: dict[str, str] = {}
    for arm, conditions in unequal.select("arm", "unequal").iter_rows():
        sentences.setdefault(arm, f"{arm} runs under other conditions than the baseline: {'; '.join(conditions)}")
    return list(sentences.values())


def _list_invalid_reasons(session: Session, table: pl.DataFrame, runs: pl.DataFrame) -> list[str]:
    reasons = []
    if session.design != "rounds":
        reasons.append("measured in blocks, one stack after the other: drift looks like a difference of stacks")
    if any(arm.copy_number for arm in session.arms):
        reasons += _check_control(table)
    else:
        reasons.append("no control: the measurement error of this session is unknown")
    return reasons + _list_mixed_conditions(runs, planned_threads=any(arm.threads for arm in session.arms))


def _check_control(table: pl.DataFrame) -> list[str]:
    """Problems of the control, for metrics with at least one comparison."""
    import polars as pl

    reasons = []
    others = table.filter(~pl.col("control"))
    # A session of one stack claims nothing, but its control must hold like any other.
    compared = set(others.filter(pl.col("n") > 0)["metric"]) if others.height else set(table["metric"])
    for row in table.filter(pl.col("control")).iter_rows(named=True):
        if row["verdict"] in DIFFERENT:
            figures = f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            reasons.append(f"the control differs from the baseline that it duplicates: {row['metric']} {figures}")
        elif row["metric"] in compared and (row["n"] < MIN_ROUNDS or row["low"] is None):
            reasons.append(f"{row['metric']}: {row['n']} round(s) of the control, at least {MIN_ROUNDS} are needed")
    if not compared:
        reasons.append("no round has values of two stacks")
    return reasons


def _list_mixed_conditions(runs: pl.DataFrame, *, planned_threads: bool) -> list[str]:
    """Conditions that changed within the session, so that its figures cannot be compared."""
    import polars as pl

    mixed = []
    for column, noun in (("hardware_key", "machines"), ("threads", "thread counts")):
        if column == "threads" and planned_threads:
            continue
        if (values := runs[column].unique().sort().to_list())[1:]:
            mixed.append(f"measured with several {noun}: {', '.join(map(str, values))}")
    versions = runs.group_by("case").agg(pl.col("indicator_version").unique().sort()).sort("case")
    for case, values in versions.iter_rows():
        if values[1:]:
            mixed.append(f"{case} was measured with several versions of its indicator: {', '.join(values)}")
    return mixed
