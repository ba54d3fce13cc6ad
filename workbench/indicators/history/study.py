"""The study of the history notebook: how each figure changed over time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
from packaging.version import Version

from workbench.console.tables import format_table
from workbench.core.formats import NULL, fit_answer, format_ends, format_number
from workbench.indicators.config import HistoryConfig
from workbench.indicators.history.history_points import CONTROL, FOLLOWED, MACHINE, PYTHON, load_history
from workbench.indicators.history.level_changes import (
    DRIFT,
    HistoryAnalysis,
    analyse_history,
    format_package_changes,
)
from workbench.report.display import KeyNumber
from workbench.report.study import check_invariants
from workbench.runs.run_folder import Run
from workbench.stats.change_points import MIN_POINTS
from workbench.stats.verdicts import FASTER, SLOWER

MAX_LISTED, MAX_NOTES = 12, 5
_DIFFERENCES = ("stack", "hardware_key", "cpu_model", "threads", "clock", "indicator_version")


def format_answer(analysis: HistoryAnalysis) -> str:
    """Answer the notebook's question in at most 90 characters; `explain_answer` has all figures."""
    explanation = explain_answer(analysis)
    shortened = explanation.partition(";")[0].partition(" (")[0].removesuffix(".") + "."
    if analysis.since is not None:
        if not analysis.regressions.height:
            return fit_answer(explanation, shortened)
        row = analysis.regressions.sort("ratio").row(0, named=True)
        claim = f"{_shorten_metric(row['metric'])} of {row['stack']} is {_format_effect(row)}"
        return fit_answer(f"Regression since {analysis.since}: {claim}.", f"Regression: {claim}.", shortened)
    changes = analysis.list_changes(FOLLOWED)
    if not is_known(analysis) or not changes:
        return fit_answer(explanation, shortened)
    change, metric = changes[0], _shorten_metric(changes[0]["metric"])
    if change["shape"] == DRIFT:
        claim = f"{metric} of {change['stack']} drifted: {_format_effect(change)}"
        return fit_answer(f"{claim}, over {change['sessions_after']} sessions.", f"{claim}.", shortened)
    day = change["created_at"][:10]
    plain = f"{metric} of {change['stack']} became {_format_effect(change)}"
    cause = [f"{change['packages']} made {metric} {_format_effect(change)}"] if change["packages"] else []
    return fit_answer(*(f"{claim}." for claim in cause), f"{plain}, on {day}.", f"{plain}.", shortened)


def _shorten_metric(metric: str) -> str:
    """A metric without its parameters."""
    return metric.partition("[")[0]


def _format_effect(row: dict[str, Any]) -> str:
    """A ratio with its interval: "10 % slower, 9 to 12 %", or "4.1x faster, 3.8 to 4.4"."""
    ratio, low, high, word = _orient_ends(row)
    if ratio >= 2:
        return f"{ratio:.2g}x {word}, {low:.2g} to {high:.2g}"
    return f"{100 * (ratio - 1):.2g} % {word}, {100 * (low - 1):.2g} to {100 * (high - 1):.2g} %"


def explain_answer(analysis: HistoryAnalysis) -> str:
    """Answer the notebook's question in one or two sentences, with all figures.

    If the analysis has a date, the answer says which figures have become slower since then. Otherwise it names the
    newest change among the followed stacks.
    """
    if analysis.since is not None:
        # Answer for a date: a regression, that none was found, or that it is not known.
        followed, slower, unknown = analysis.followed, analysis.regressions, analysis.unknown
        day = f"since {analysis.since}"
        if slower.height:
            worst = slower.sort("ratio").row(0, named=True)
            ratio, ends, word = _orient_ratio(worst)
            finding = f"{worst['metric']} of {worst['stack']} is {format_number(ratio)} times {word} {day}"
            detail = f"{finding} (95 % interval {ends})"
            others = f"; {slower.height - 1} more of {followed.height} series are slower" if slower.height > 1 else ""
            return f"Regression: {detail}{others}."
        if unknown.height or not followed.height:
            row = unknown.row(0, named=True) if unknown.height else {}
            reason = row.get("reason") or (
                f"{row['metric']} of {row['stack']} may be up to {format_number(1 / row['low'])} times slower"
                if row.get("low")
                else "no stack but the reference is followed"
            )
            return f"Not known {day}: {reason} ({unknown.height} of {followed.height} series are not decided)."
        faster = followed.filter(pl.col("verdict") == FASTER).height
        detail = f"; {faster} faster" if faster else ""
        return f"No regression {day}: none of {followed.height} series is slower by more than its margin{detail}."
    changes = analysis.list_changes(FOLLOWED)
    sessions = analysis.history.points["session_id"].n_unique()
    if not analysis.followed.height:
        return "Unknown: no stack but the reference is followed."
    if (longest := int(analysis.followed["sessions"].max() or 0)) < MIN_POINTS:  # type: ignore[arg-type]
        return f"Not known: changes of level need {MIN_POINTS} sessions; the longest series has {longest}."
    if not changes:
        beyond = "" if analysis.changes.filter(pl.col("kind") == FOLLOWED).is_empty() else " beyond the margin"
        return f"No change of level{beyond} found in {analysis.followed.height} series over {sessions} sessions."
    more = f" {len(changes) - 1} more change(s) before." if len(changes) > 1 else ""
    return f"{format_change(changes[0])}.{more}"


def format_change(change: dict[str, Any]) -> str:
    """Describe a change of level or a drift (a row of table CHANGES) in one sentence, without a full stop."""
    ratio, ends, word = _orient_ratio(change)
    name, at = f"{change['metric']} of {change['stack']}", change["created_at"][:16]
    extent = f"{format_number(ratio)} times {word} (95 % interval {ends})"
    cause = f"; {change['packages']}" if change["packages"] else ""
    if change["shape"] == DRIFT:
        return f"{name} drifted to {extent} over {change['sessions_after']} sessions from {at}{cause}"
    cause += f"; commits {change['revisions']}" if change["revisions"] else ""
    return f"{name} became {extent} at {at}{cause or '; no package and no commit is known to differ'}"


def _orient_ratio(change: dict[str, Any]) -> tuple[float, str, str]:
    """Turn a ratio so that it is at least 1; return it, its interval as text, and "faster" or "slower".

    `change` needs `ratio`, `low` and `high`, where a ratio above 1 is faster.
    """
    ratio, low, high, word = _orient_ends(change)
    return ratio, format_ends(low, high), word


def _orient_ends(change: dict[str, Any]) -> tuple[float, float, float, str]:
    """A ratio and its ends, turned so that it is at least 1, and "faster" or "slower"."""
    ratio, low, high = change["ratio"], change["low"], change["high"]
    if ratio >= 1:
        return ratio, low, high, "faster"
    return 1 / ratio, 1 / high, 1 / low, "slower"


def is_known(analysis: HistoryAnalysis) -> bool:
    """Whether the sessions suffice for an answer.

    With a date, a regression was found, or every series is decided. Without one, some series is long enough to show a
    change.
    """
    if not analysis.followed.height:
        return False
    if analysis.since is not None:
        return bool(analysis.regressions.height) or not analysis.unknown.height
    return int(analysis.followed["sessions"].max() or 0) >= MIN_POINTS  # type: ignore[arg-type]


def list_notes(analysis: HistoryAnalysis) -> list[str]:
    """List what else must be known: sessions left out, bad last sessions, series that end, changes of the machine."""
    points = analysis.history.points
    notes = [f"left out: {count} session(s): {reason}" for reason, count in analysis.history.left_out.items()]
    for row in analysis.followed.filter(pl.col("last_outlier").is_not_null()).head(MAX_NOTES).iter_rows(named=True):
        ratio, _, word = _orient_ratio({"ratio": row["last_outlier"], "low": 1, "high": 1})
        name = f"{row['metric']} of {row['stack']}"
        notes.append(f"{name} was {format_number(ratio)} times {word} in its last session: an outlier so far")
    notes += _list_ended_series(analysis)
    if points.filter(pl.col("created_at") < pl.col("created_at").shift(1).over("series")).height:
        notes.append("sessions are in the order of their commits, not in that of measurement")
    for change in analysis.list_changes(MACHINE)[:3]:
        notes.append(f"the machine changed: {format_change(change)}. Ratios to the reference are not affected")
    for change in analysis.list_changes(CONTROL)[:3]:
        notes.append(f"the measurement changed: {format_change(change)}. Changes near it are doubtful")
    if (points["reference"] == "").any():
        notes.append("sessions without a reference: a changed machine looks like a changed figure")
    return notes


def _list_ended_series(analysis: HistoryAnalysis) -> list[str]:
    """Say of each followed series that ends before others do what it lacks, and which goes on in its place."""
    points = analysis.history.points.filter(pl.col("kind") == FOLLOWED)
    moment = pl.coalesce("commit_at", "created_at")
    by_series = points.with_columns(moment=moment).group_by("series", maintain_order=True)
    ends = by_series.agg(
        pl.col("metric", *_DIFFERENCES, "packages").last(),
        pl.col("packages").first().alias("first_packages"),
        first=pl.col("moment").min(),
        last=pl.col("moment").max(),
    )
    moments = points.select("session_id", moment=moment).unique("session_id")["moment"]
    notes = []
    for row in ends.sort("series").iter_rows(named=True):
        later = int((moments > row["last"]).sum())
        if not later:
            continue
        benchmark = _strip_timer(row["metric"])
        next_rows = [
            other
            for other in ends.sort("first").iter_rows(named=True)
            if other["first"] > row["last"] and _strip_timer(other["metric"]) == benchmark
        ]
        gone_on = _describe_difference(row, next_rows[0]) if next_rows else "no later session has a figure of it"
        name = f"{row['metric']} of {row['stack']} on {row['cpu_model']}"
        notes.append(f"{name} ends at {row['last'][:16]}, {later} session(s) before the newest: {gone_on}")
    hidden = [f"and {len(notes) - MAX_NOTES} more series that end before the newest session"]
    return notes[:MAX_NOTES] + (hidden if len(notes) > MAX_NOTES else [])


def _strip_timer(metric: str) -> str:
    """Name of a metric without the timer of pytest-benchmark."""
    return metric.partition(" [timer ")[0]


def _describe_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """What differs between the series that ends and the one that goes on, which are not compared."""
    packages = format_package_changes(old["packages"], new["first_packages"])
    told = {
        "another machine": old["hardware_key"] != new["hardware_key"],
        f"another stack ({new['stack']})": old["stack"] != new["stack"],
        packages: bool(packages),
        f"another timer ({new['metric']})": old["metric"] != new["metric"],
        f"{new['threads']} threads": old["threads"] != new["threads"],
        f"{new['clock']} clock": old["clock"] != new["clock"],
        "another version of the benchmark": old["indicator_version"] != new["indicator_version"],
    }
    differences = [text for text, differs in told.items() if differs]
    return f"from there on it is {' and '.join(differences) or 'another reference'}, which is not compared"


def format_history(analysis: HistoryAnalysis) -> str:
    """Format the answer, the series, the changes and the notes for the terminal."""
    listed = analysis.series.filter(pl.col("kind") != MACHINE)
    shown = listed.sort(pl.col("changes") > 0, descending=True, maintain_order=True).head(MAX_LISTED)
    rows = []
    for row in shown.iter_rows(named=True):
        level = f"{format_number(row['level'])} [{_number(row['level_low'])}, {_number(row['level_high'])}]"
        since = f"{_number(row['ratio'])} [{_number(row['low'])}, {_number(row['high'])}]" if row["verdict"] else NULL
        name = f"{row['metric']} of {row['stack']}"
        rows.append([name, row["sessions"], level, row["changes"], since, row["verdict"]])
    base = "times the reference" if (analysis.history.points["reference"] != "").any() else "times the first session"
    names = ["series", "sessions", base, "changes", "since the date", "verdict"]
    parts = [*dict.fromkeys([format_answer(analysis), explain_answer(analysis)]), "", *format_table(rows, names)]
    if more := listed.height - shown.height:
        parts.append(f"… and {more} more series: --json or --out has all")
    changes = analysis.list_changes(FOLLOWED)
    parts += [f"change: {format_change(change)}" for change in changes[:MAX_LISTED]]
    parts += [f"note: {note}" for note in list_notes(analysis)]
    return "\n".join(parts)


def _number(value: float | None) -> str:
    return NULL if value is None else format_number(value)


def build_history_document(analysis: HistoryAnalysis) -> dict[str, Any]:
    """Build the document of `--json`: the answer, and the tables as lists of rows."""
    return {
        "answer": format_answer(analysis),
        "explanation": explain_answer(analysis),
        "verdict": "valid" if is_known(analysis) else "invalid",
        "since": analysis.since,
        "regressions": analysis.regressions.height,
        "undecided": analysis.unknown.height,
        "series": analysis.series.to_dicts(),
        "changes": analysis.changes.to_dicts(),
        "left_out": analysis.history.left_out,
        "notes": list_notes(analysis),
    }


def list_key_numbers(analysis: HistoryAnalysis) -> list[KeyNumber]:
    """List the numbers of sessions and changes, the newest change, and the regressions since the date."""
    points, changes = analysis.history.points, analysis.list_changes(FOLLOWED)
    days = sorted(points["created_at"].str.slice(0, 10))
    span = f"{days[0]} to {days[-1]}"
    numbers: list[KeyNumber] = [
        ("sessions", points["session_id"].n_unique(), "", span),
        ("changes of level", len(changes), "", f"in {analysis.followed.height} followed series"),
    ]
    if changes:
        ratio, ends, word = _orient_ratio(changes[0])
        numbers.insert(0, ("newest change", ratio, f"times {word}", f"{changes[0]['metric']}: {ends}"))
    control = analysis.series.filter(pl.col("kind") == CONTROL)
    if control.height:
        spread = f"{100 * float(control['spread'].max() or 0):.2g}"  # type: ignore[arg-type]
        numbers.append(("control's changes", int(control["changes"].sum()), "", f"sessions differ by {spread} %"))
    if analysis.since is not None:
        note = f"{analysis.unknown.height} not decided"
        numbers.append((f"slower since {analysis.since}", analysis.regressions.height, "series", note))
    return numbers


def list_next_steps(analysis: HistoryAnalysis) -> list[str]:
    """List at most three sentences on what to do next."""
    slower = [change for change in analysis.list_changes(FOLLOWED) if change["verdict"] == SLOWER]
    steps = []
    packages = [text for text in slower[0]["packages"].split(", ") if text] if slower else []
    if packages and (own := [text for text in packages if not text.startswith(f"{PYTHON} ")]):
        name, old, _, new = own[0].split(" ")
        indicator = slower[0]["metric"].partition("[")[0].partition(".")[0]
        if "none" not in (old, new):
            first, last = sorted((old, new), key=Version)
            steps.append(
                f"Go back to {name} {old}, or find the version that made it slower: "
                f"`workbench indicators bisect {name} {first}..{last} --indicator {indicator.lower()}`."
            )
    elif slower and slower[0]["shape"] == DRIFT:
        steps.append("A drift has no commit: look at what grows with each session (data, caches, the machine's disk).")
    elif slower:
        steps.append("No package is known to have changed there: look at the commits, and at the machine.")
    if analysis.unknown.height:
        steps.append("Measure more sessions, or more rounds per session, until the undecided series are decided.")
    steps.append("Use it as a gate: `workbench indicators history --since DATE` ends with exit code 1 on a regression.")
    return steps[:3]


@dataclass(frozen=True)
class HistoryStudy:
    """The notebook's result; implements `workbench.report.study.Study`."""

    config: HistoryConfig
    analysis: HistoryAnalysis

    @property
    def answer(self) -> str:
        """The newest change of level, or the regression since a date."""
        return format_answer(self.analysis)

    @property
    def details(self) -> list[str]:
        """The answer with all its figures."""
        return [explanation] if (explanation := explain_answer(self.analysis)) != self.answer else []

    @property
    def conditions(self) -> tuple[str, ...]:
        """Sessions are measured: nothing is simulated."""
        return ()

    @property
    def verdict(self) -> Literal["valid", "invalid"]:
        """`invalid` where the sessions do not suffice for an answer, else `valid`."""
        return "valid" if is_known(self.analysis) else "invalid"

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reason for an invalid verdict; empty for a valid one."""
        return () if self.verdict == "valid" else (self.answer,)

    @property
    def notes(self) -> list[str]:
        """Sentences on sessions that were left out, and on changes of the machine and of the control."""
        return list_notes(self.analysis)

    @property
    def changes(self) -> pl.DataFrame:
        """Changes of level of the followed stacks, the newest first."""
        changes = self.analysis.changes.filter(pl.col("kind") == FOLLOWED).sort("created_at", descending=True)
        return changes.drop("series", "kind").with_columns(pl.col("created_at").str.slice(0, 16))

    @property
    def series(self) -> pl.DataFrame:
        """The series with the columns that the notebook shows; those about the date only if there is one."""
        shown = ["metric", "stack", "cpu_model", "sessions", "last_at", "level", "level_low", "level_high", "changes"]
        shown += ["since_sessions", "ratio", "low", "high", "verdict"] if self.analysis.since is not None else []
        return self.analysis.series.select(shown).with_columns(pl.col("last_at").str.slice(0, 16))

    def key_numbers(self) -> list[KeyNumber]:
        """The key numbers below the answer."""
        return list_key_numbers(self.analysis)

    def next_steps(self) -> list[str]:
        """List at most three sentences on what to do next."""
        return list_next_steps(self.analysis)

    def check(self) -> pl.DataFrame:
        """Check that every figure lies within its interval, and that the counts of sessions and changes add up.

        Raises
        ------
        BrokenInvariantError
            An invariant does not hold.
        """
        series, changes = self.analysis.series, self.analysis.changes
        tolerance = pl.col("series").replace_strict(self.analysis.history.tolerances, return_dtype=pl.Float64)
        claims = changes.with_columns(margin=1 + tolerance)
        return check_invariants(
            [
                ("ratios outside their own interval", _count_outside(changes, "ratio", "low", "high")),
                ("levels outside their own interval", _count_outside(series, "level", "level_low", "level_high")),
                (
                    "claims whose interval reaches into the margin",
                    claims.filter((pl.col("verdict") == FASTER) & (pl.col("low") <= pl.col("margin"))).height
                    + claims.filter((pl.col("verdict") == SLOWER) & (pl.col("high") >= 1 / pl.col("margin"))).height,
                ),
                (
                    "points that no series counts",
                    abs(self.analysis.history.points.height - int(series["sessions"].sum())),
                ),
                ("changes that no series counts", abs(changes.height - int(series["changes"].sum()))),
            ]
        )


def _count_outside(table: pl.DataFrame, name: str, low: str, high: str) -> int:
    """Number of rows whose value lies outside its interval; `name`, `low` and `high` are columns, rows may be null."""
    bounded = table.drop_nulls([name, low, high])
    return bounded.filter((pl.col(low) > pl.col(name)) | (pl.col(name) > pl.col(high))).height


def build_study(config: HistoryConfig, run: Run) -> HistoryStudy:
    """Read the points of a history, find its changes, and write the tables into the run folder.

    Raises
    ------
    ConfigError, InputError
        A setting is wrong, or the source has no figures that fit.
    """
    analysis = analyse_history(load_history(config.source or None, config.filter), since=config.since or None)
    if Path(config.source).is_file():
        run.add_input(config.source)
    study = HistoryStudy(config, analysis)
    for table, frame in analysis.tables:
        run.write_table(table, frame)
    return study
