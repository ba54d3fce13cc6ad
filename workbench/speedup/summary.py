"""Key numbers and next steps below the answer of each notebook mode."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from workbench.core.formats import format_number
from workbench.report.display import KeyNumber
from workbench.speedup.calibration.pair_calibration import CalibrationResult, CrossValidation, measure_noise_variance
from workbench.speedup.calibration.prediction import NO_OPERATORS
from workbench.speedup.fleet.qualification import PREDICTED_SLOWER, RECOMMENDED, TRIAL, Qualification
from workbench.stats.verdicts import FASTER, SAME, SLOWER, UNDECIDED, VERDICTS

if TYPE_CHECKING:
    from workbench.speedup.attribution.application_profile import Profile


_QUALIFY = "`workbench speedup qualify LOGS --factors RUN/factors.json` (RUN: this report's folder)"


def list_pair_key_numbers(calibrated: CalibrationResult, validation: CrossValidation | None) -> list[KeyNumber]:
    """Overall ratio, queries and operators by verdict, and the errors of left-out queries."""
    overall = calibrated.overall
    interval = "no interval: one session on a side"
    if overall.low is not None and overall.high is not None:
        interval = f"{100 * overall.level:.0f} % interval {overall.low:.2f} to {overall.high:.2f}"
    numbers: list[KeyNumber] = [
        ("faster", overall.estimate, "×", interval),
        ("queries", calibrated.pairs.height, "", _format_verdict_counts(calibrated.pairs)),
        ("operators", calibrated.factors.height, "", _format_verdict_counts(calibrated.factors)),
    ]
    # How far a query's mean ratio moves from session to session; none where one session a side cannot show it.
    noise_variance = measure_noise_variance(calibrated)
    if noise_variance is None:
        noise = []
    else:
        note = f"standard deviation over sessions, v = {format_number(noise_variance)}"
        noise = [("noise of a query's ratio", 100 * noise_variance**0.5, "%", note)]
    if validation is None:
        return [*numbers, *noise]
    score = validation.scores.row(by_predicate=pl.col("predictor") == "calibrated", named=True)
    off = 100 * math.expm1(score["mean_absolute_log_error"])
    guess = f"{score['mean_over_constant']:.2f} of a constant guess's error"
    count = f"{score['n_covered']} of {score['n_queries']} left-out queries"
    held = f"{count} fell in their {100 * overall.level:.0f} % interval"
    return [
        *numbers,
        ("error of predictions", round(off), "%", f"{guess}; {held}"),
        *noise,
    ]


def _format_verdict_counts(frame: pl.DataFrame) -> str:
    """Count the rows of each verdict, such as `3 faster, 1 undecided`."""
    counts = dict(frame.group_by("verdict").len().iter_rows())
    names = VERDICTS
    return ", ".join(f"{counts[name]} {name.lower()}" for name in names if name in counts)


def list_fleet_key_numbers(qualified: Qualification) -> list[KeyNumber]:
    """Applications, recommendations, time saved, operators at stake and, with prices, cost saved."""
    applications = qualified.applications
    judged = qualified.judged
    cost = judged["saved_cost"].drop_nulls()
    counts = Counter(judged["recommendation"])
    low, high = (float(judged[f"saved_{end}_s"].sum()) for end in ("low", "high"))
    note = f"{format_number(low)} to {format_number(high)}, of {float(judged['baseline_s'].sum()):,.1f} s"
    numbers: list[KeyNumber] = [
        ("time saved", float(judged["saved_s"].sum()), "s", note),
        ("sure to gain", counts[RECOMMENDED], "applications", "the whole interval reaches the minimum ratio"),
        ("may gain", counts[TRIAL], "applications", "only the estimate reaches the minimum ratio"),
        ("applications", applications.height, "", f"{judged.height} with a prediction"),
        ("operators at stake", qualified.operators_at_stake.height, "", "left on the CPU or without a factor"),
    ]
    if cost.len():
        note = "" if qualified.currency else "in the currency of the prices"
        numbers.append(("cost saved", float(cost.sum()), qualified.currency, note))
    return numbers


def list_profile_key_numbers(profile: Profile) -> list[KeyNumber]:
    """Wall time, slots, the costliest finding, queries, failures."""
    row = profile.overview.row(0, named=True)
    slots = f"of {row['n_task_slots']:,} task slots" if row["n_task_slots"] else ""
    use = row["slot_use_share"]
    numbers: list[KeyNumber] = [
        ("wall time", row["wall_time_s"], "s", f"{row['engine']}, Spark {row['spark_version']}"),
        ("task time", row["task_time_s"], "s", f"{row['n_tasks']:,} tasks"),
        ("slots busy", None if use is None else round(100 * use), "%", slots),
        ("queries", row["n_queries"], "", f"{row['n_failed_queries']} failed"),
        ("failed tasks", row["n_failed_tasks"], "", f"of {row['n_tasks']:,}"),
    ]
    if profile.findings.height:
        top = profile.findings.row(0, named=True)
        interval = f"{top['kind']}, {format_number(top['low_s'])} to {format_number(top['high_s'])} s"
        numbers.insert(1, ("most at stake", top["at_stake_s"], "s", interval))
    return numbers


def list_pair_next_steps(calibrated: CalibrationResult, reasons: tuple[str, ...]) -> list[str]:
    """Advise on the verdict for your applications, the operator to look at first, and how to record your own pair."""
    if reasons:
        return ["Do not use these factors, for the reasons above. Record both sides again: `workbench speedup record`."]
    candidate, baseline = calibrated.candidate, calibrated.baseline
    decided = {
        FASTER: f"Rank your own applications by their predicted savings on {candidate}: {_QUALIFY}.",
        SLOWER: f"Keep queries like these on {baseline}: {candidate} is slower.",
        SAME: f"Do not move queries like these for speed: {candidate} is as fast as {baseline}.",
        UNDECIDED: f"Record more sessions per side before moving to {candidate}: `workbench speedup record`.",
    }
    caveat = "The factors hold for this recording's queries and machine; record your own: `workbench speedup record`."
    return [decided[calibrated.verdict], *_advise_on_slowest_operator(calibrated), caveat]


def _advise_on_slowest_operator(calibrated: CalibrationResult) -> list[str]:
    """Name the operator that takes most of the candidate's time and gains less than the queries do."""
    overall = calibrated.overall.estimate
    table = calibrated.factors.filter(~pl.col("operator").is_in(sorted(NO_OPERATORS)) & (pl.col("quality") == "good"))
    slow = table.filter(pl.col("factor") < overall) if overall is not None else table.clear()
    if not slow.height:
        return []
    row = slow.sort("candidate_s", descending=True).row(0, named=True)
    share = f"{100 * row['candidate_share']:.0f} % of the time on {calibrated.candidate}"
    return [
        f"Look at {row['operator']} first ({share}, factor {format_number(row['factor'])}):"
        " `workbench run lore` reruns a single operator."
    ]


def list_fleet_next_steps(qualified: Qualification, reasons: tuple[str, ...]) -> list[str]:
    """The profile of the application to move or try first, and the operator that holds the others back."""
    if reasons:
        return ["Do not use this ranking, for the reasons above; the table says why an application was not judged."]
    steps = ["Do not move for speed: no application reaches the minimum ratio."]
    if qualified.candidates.height:
        row = qualified.candidates.row(0, named=True)
        log = row["log"].removeprefix(qualified.folder)
        steps = [
            f"Run {log} on both engines, to replace the prediction by a measurement: `workbench speedup record`.",
            f"See where the time of {log} goes: `workbench speedup profile LOG`.",
        ]
    if slower := int((qualified.applications["recommendation"] == PREDICTED_SLOWER).sum()):
        steps.append(f"Do not move {slower} application{'' if slower == 1 else 's'}: predicted to get slower.")
    if qualified.operators_at_stake.height:
        row = qualified.operators_at_stake.sort("baseline_s", descending=True).row(0, named=True)
        operator = row["operator"]
        n_queries = row["n_queries"]
        unknown = row["kind"] == "unknown"
        where = "1 query" if n_queries == 1 else f"{n_queries} queries"
        if unknown:
            # The candidate may support it: the recording had no query with it.
            operator_at_stake = (
                f"{operator} has no factor yet ({where}): record a query that uses it, `workbench speedup record`."
            )
        else:
            operator_at_stake = f"{operator} is not accelerated ({where}): ask for its support first."
        steps.append(operator_at_stake)
    return steps[:3] if len(steps) > 1 else [*steps, "Run one of them on both engines: `workbench speedup record`."]


def list_profile_next_steps(profile: Profile, advice: pl.DataFrame) -> list[str]:
    """What to try for the costliest finding, the setting that can save most, its query alone, then an accelerator.

    `advice`: Table ADVICE.
    """
    overview = profile.overview.row(0, named=True)
    steps = []
    if profile.findings.height:
        top = profile.findings.row(0, named=True)
        steps.append(f"{top['kind'].capitalize()}: {top['what_to_try']}")
    elif failed := overview["n_failed_tasks"]:
        steps.append(f"Look at the {failed} failed tasks first: the table of failures has kinds and reasons.")
    for row in advice.filter(pl.col("setting").is_not_null(), pl.col("at_most_s") > 0).head(1).iter_rows(named=True):
        steps.append(f"Try `{row['setting']}={row['value']}`: it can save {row['at_most_s']:,.1f} s at most.")
    if (costly := profile.costliest_query) is not None:
        ids = ",".join(map(str, costly["sql_ids"]))
        steps.append(f"See {costly['query']} alone: `workbench run profile -p event_log=LOG -p sql_ids=[{ids}]`.")
    return [*steps[:2], "Predict its time on an accelerator: `workbench speedup qualify LOG --factors factors.json`."]
