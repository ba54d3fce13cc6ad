"""What to do with an answer of the notebook: a decision, and the command that comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from workbench.formats import number
from workbench.speedup.qualify import RECOMMENDED, SLOWER, TRIAL

if TYPE_CHECKING:
    from workbench.speedup.calibrated import Calibrated
    from workbench.speedup.profile import Profile
    from workbench.speedup.qualify import Qualified

# Kinds of time that no engine runs as an operator.
_NO_OPERATORS = ("idle", "task overhead", "unattributed")
_REASONS = "the reasons stand beside the verdict"
_QUALIFY = "`workbench speedup qualify LOGS --factors RUN/factors.json` (RUN: this report's folder)"


def of_pair(calibrated: Calibrated, reasons: tuple[str, ...]) -> list[str]:
    """Which jobs to look at, which operator to look at first, and how to measure a pair of one's own."""
    if reasons:
        return [f"Decide nothing by these factors: {_REASONS}. Record both sides again: `workbench speedup record`."]
    candidate, baseline = calibrated.candidate, calibrated.baseline
    decided = {
        "FASTER": f"Rank your own applications by what they would save on {candidate}: {_QUALIFY}.",
        "SLOWER": f"Keep queries like these on {baseline}: {candidate} is slower.",
        "SAME": f"Do not move queries like these for speed: {candidate} and {baseline} take as long.",
        "UNDECIDED": f"Not decided: record more sessions a side before moving to {candidate}:"
        " `workbench speedup record`.",
    }
    own = "Measured were this recording's queries on its machine; record a pair on yours: `workbench speedup record`."
    return [decided[calibrated.verdict], *_least_gain(calibrated), own]


def _least_gain(calibrated: Calibrated) -> list[str]:
    """The operator that takes most of the candidate's time and gains less than the whole."""
    overall = calibrated.overall.estimate
    table = calibrated.factors.filter(~pl.col("operator").is_in(_NO_OPERATORS) & (pl.col("quality") == "good"))
    slow = table.filter(pl.col("factor") < overall) if overall is not None else table.clear()
    if not slow.height:
        return []
    row = slow.sort("candidate_s", descending=True).row(0, named=True)
    gained = f"{row['candidate_share']:.0%} of the time on {calibrated.candidate}, factor {number(row['factor'])}"
    return [f"To gain more, look at {row['operator']} first ({gained}): `workbench run lore` takes an operator out."]


def of_fleet(qualified: Qualified, reasons: tuple[str, ...]) -> list[str]:
    """What to move first, or what to try; which operator holds the rest back."""
    if reasons:
        return [f"Decide nothing by this ranking: {_REASONS}; the table says why an application was not judged."]
    table = qualified.applications.filter(pl.col("recommendation").is_in([RECOMMENDED, TRIAL])).sort(
        pl.col("recommendation") != RECOMMENDED, pl.col("saved_s") * -1, nulls_last=True
    )
    steps = ["Move nothing for speed: no application reaches the least ratio."]
    if table.height:
        row = table.row(0, named=True)
        name = row["app_name"] or row["app_id"] or row["log"]
        verb = "Move first" if row["recommendation"] == RECOMMENDED else "Try before you move"
        steps = [f"{verb}: {name}, {number(row['saved_s'])} s of {number(row['baseline_s'])} s saved by prediction."]
    if slower := int((qualified.applications["recommendation"] == SLOWER).sum()):
        steps.append(f"Leave {slower} where {'it is' if slower == 1 else 'they are'}: predicted to get slower.")
    if qualified.operators_at_stake.height:
        row = qualified.operators_at_stake.sort("baseline_s", descending=True).row(0, named=True)
        steps.append(_at_stake(row["operator"], row["n_queries"], unknown=row["kind"] == "unknown"))
    return steps if len(steps) > 1 else [*steps, "Then run one of them on both engines: `workbench speedup record`."]


def _at_stake(operator: str, n_queries: int, *, unknown: bool) -> str:
    where = "1 query" if n_queries == 1 else f"{n_queries} queries"
    if unknown:
        # The candidate may well run it: the recording had no query with it.
        return f"{operator} has no factor yet, in {where}: record a query that uses it, `workbench speedup record`."
    return f"{operator} is not accelerated in {where}: ask for it first."


def of_profile(profile: Profile) -> list[str]:
    """Failures first, then the query that costs most, then what an accelerator would do."""
    overview = profile.overview.row(0, named=True)
    steps = []
    if failed := overview["n_failed_tasks"]:
        steps.append(f"Look at the {failed} failed tasks first: what failed, by kind and reason, stands below.")
    costly = profile.queries.sort("task_time_s", descending=True, nulls_last=True)
    if costly.height:
        steps.append(f"Look at {costly['query'][0]}: it costs most task time; its operators and stages stand below.")
    own = "What would it take on an accelerator? `workbench speedup qualify LOG --factors factors.json`;"
    return [*steps, f"{own} `workbench speedup generate` makes the factors."]
