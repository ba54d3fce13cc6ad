"""Points of a history: the figure of each session as a ratio to its reference, from the database or a table."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlalchemy import and_, func, or_, select

from workbench.core.data_files import read_text_file
from workbench.core.errors import InputError
from workbench.indicators.analysis.observations import Clock
from workbench.indicators.analysis.rounded_values import find_step, measure_rounding
from workbench.indicators.store.archive import COMMIT_TIME, STANDS_FOR, parse_time
from workbench.indicators.store.sql_schema import ARM, HARDWARE, OBSERVATION, RUN, SESSION, STACK_PACKAGE
from workbench.indicators.tables import POINTS
from workbench.stats.change_points import MAX_POINTS

if TYPE_CHECKING:
    from workbench.indicators.store.sql_database import Database

MAX_VALUES = 2_000_000
MIN_ROUNDS = 2
# Values of a metric that tell what its values were rounded to.
MAX_DISTINCT = 200
KEY_DIGITS = 12
MIN_COMMIT, MAX_COMMIT_BYTES, MAX_BACKWARDS = 7, 64 << 20, -0.9
PYTHON = "python"
FOLLOWED, CONTROL, MACHINE = "followed", "control", "machine"
NO_REFERENCE = "imported or in blocks: no reference in the same rounds"
OTHER_REFERENCE = "another reference"
NO_RATIO = "a figure of 0 or less, which has no ratio, or none"
_IDENTITY = ("metric", "stack", "kind", "reference", "hardware_key", "threads", "clock", "indicator_version")
_SESSION = ("session_id", "created_at", "revision", "hardware_key", "cpu_model", "threads")


@dataclass(frozen=True)
class HistoryFilter:
    """Which figures belong to a history; null means all.

    `indicator` is the name of an indicator or a metric, `stack` that of a stack without versions; `reference` the start
    of the reference's key (null: the reference of most sessions). With `absolute`, sessions without a reference count
    too, by their own values. `commits`: File with a commit a line, oldest first: the order of the sessions.
    """

    indicator: str | None = None
    stack: str | None = None
    reference: str | None = None
    clock: Clock = "wall"
    absolute: bool = False
    commits: Path | None = None


@dataclass(frozen=True)
class History:
    """Table POINTS, and the number of sessions that were left out, by reason."""

    points: pl.DataFrame
    left_out: dict[str, int] = field(default_factory=dict)

    @cached_property
    def tolerances(self) -> dict[int, float]:
        """Practical margin of each series, as a share."""
        return dict(self.points.select("series", "tolerance").unique("series").iter_rows())


def load_history(source: str | Path | None, wanted: HistoryFilter) -> History:
    """Read the points of a history.

    `source`: Table `history_points` (.parquet), or a database: file, URL, or null for the default one.
    """
    if source is not None and str(source).endswith(".parquet"):
        # The points of a file with table POINTS that fit a filter; a null filter fits all. An indicator is the
        # beginning of a metric's name, in any case. A stack leaves out points of other followed stacks alone: the
        # control and the machine belong to all, since they show what is no change of a stack.
        path = Path(source)
        points = _place_points(POINTS.read_file(path))
        wrong = points.filter(~pl.col("log_ratio").is_finite() | ~pl.col("error").is_finite() | (pl.col("error") < 0))
        if wrong.height:
            finding = f"{wrong.height} rows, the first of session {wrong['session_id'][0]}"[:200]
            raise InputError("figures that are not finite", where=path, found=finding, do="write the table anew")
        if wanted.indicator is not None:
            points = points.filter(pl.col("metric").str.to_lowercase().str.starts_with(wanted.indicator.lower()))
        if wanted.stack is not None:
            points = points.filter((pl.col("stack") == wanted.stack) | (pl.col("kind") != FOLLOWED))
        if not points.height:
            raise InputError("no figure fits", where=path, found=_format_filter(wanted), do="leave out a filter")
        return _keep_newest(order_by_commits(History(points), wanted.commits))
    from workbench.indicators.store.sql_database import open_database

    with open_database(source, create=False) as database:
        return _keep_newest(collect_points(database, wanted))


def _keep_newest(history: History) -> History:
    """The newest points of each series, as many as a search for changes takes."""
    by_series = history.points.sort("series", "place").group_by("series", maintain_order=True)
    points = by_series.tail(MAX_POINTS)
    lost = history.points.height - points.height
    losses = {f"not among the newest {MAX_POINTS:,} of its series": lost} if lost else {}
    return History(points.select(history.points.columns), history.left_out | losses)


def collect_points(database: Database, wanted: HistoryFilter) -> History:
    """Build the points from a database of sessions.

    Each session gives a point per followed stack and metric: the mean over rounds of the log ratio to the baseline, its
    reference. Sessions are left out, and counted, where they have no reference in the same rounds, another one, or
    fewer than two rounds with both values.
    """
    with database.transaction() as connection:
        # Query of all values that fit a filter: one row per value, with its session, arm, run and machine.
        session = [
            SESSION.c[name] for name in ("session_id", "created_at", "revision", "backend", "design", "baseline")
        ]
        arm = [ARM.c[name] for name in ("arm", "stack", "stack_key", "copy_number", "python", "notes")]
        run = [RUN.c[name] for name in ("round", "indicator_version", "threads", "hardware_key")]
        observation = [
            OBSERVATION.c[name] for name in ("metric", "value", "other_value", "unit", "better", "tolerance", "clock")
        ]
        query = (
            select(*session, *arm, *run, *observation, HARDWARE.c.cpu_model)
            .join(RUN, RUN.c.session_id == SESSION.c.session_id)
            .join(OBSERVATION, OBSERVATION.c.run_id == RUN.c.run_id)
            .join(ARM, and_(ARM.c.session_id == RUN.c.session_id, ARM.c.arm == RUN.c.arm))
            .join(HARDWARE, HARDWARE.c.hardware_key == RUN.c.hardware_key)
        )
        if wanted.indicator is not None:
            name = wanted.indicator.lower()
            same = [func.lower(column) == name for column in (RUN.c.indicator, OBSERVATION.c.metric)]
            query = query.where(or_(*same, func.lower(RUN.c.indicator) == f"pi{name}"))
        query = query.order_by(SESSION.c.created_at, SESSION.c.session_id, OBSERVATION.c.metric, RUN.c.round, ARM.c.arm)
        rows = connection.execute(query.where(OBSERVATION.c.value > 0).limit(MAX_VALUES + 1)).mappings().all()
        without_ratio = query.where(or_(OBSERVATION.c.value <= 0, OBSERVATION.c.value.is_(None))).order_by(None)
        sessions = without_ratio.with_only_columns(SESSION.c.session_id).distinct().subquery()
        n_without = connection.execute(select(func.count()).select_from(sessions)).scalar_one()
        if len(rows) > MAX_VALUES:
            raise InputError("too many values", where=database.place, allowed=f"{MAX_VALUES:,}", do="name an indicator")
        packages: dict[str, dict[str, str]] = {}
        for key, package, version in connection.execute(select(STACK_PACKAGE)):
            packages.setdefault(key, {})[package] = version
    if not rows:
        raise InputError(
            "no figure fits",
            where=database.place,
            found=_format_filter(wanted),
            do="workbench indicators sync FOLDER, then workbench indicators show indicators",
        )
    history = build_history([dict(row) for row in rows], packages, wanted)
    if n_without:
        history = History(history.points, history.left_out | {NO_RATIO: n_without})
    return order_by_commits(history, wanted.commits)


def _format_filter(wanted: HistoryFilter) -> str:
    filters = {"indicator": wanted.indicator, "stack": wanted.stack, "reference": wanted.reference}
    return ", ".join(f"{name} {value[:80]}" for name, value in filters.items() if value) or "no filter"


def build_history(rows: list[dict[str, Any]], packages: dict[str, dict[str, str]], wanted: HistoryFilter) -> History:
    """Points from rows of the database: one row per value, in order of time.

    `packages`: Stack's key to its packages and their versions.
    """
    frame = pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"revision": pl.String, "threads": pl.Int64})
    # The other clock's value where one is wanted and known.
    swap = (pl.col("clock") != wanted.clock) & pl.col("other_value").is_not_null()
    frame = frame.with_columns(
        value=pl.when(swap).then("other_value").otherwise("value"),
        clock=pl.when(swap).then(pl.lit(wanted.clock)).otherwise(pl.col("clock").fill_null("wall")),
    ).filter(pl.col("value") > 0)
    sign = pl.when(pl.col("better") == "lower").then(-1.0).otherwise(1.0)
    frame = frame.with_columns(log=sign * pl.col("value").log())
    paired = (pl.col("backend") != "imported") & (pl.col("design") == "rounds")
    left_out = Counter({NO_REFERENCE: frame.filter(~paired)["session_id"].n_unique()})
    with_reference, chosen = _keep_reference(frame.filter(paired), wanted, left_out)
    # Rows of POINTS without series: the ratios to the reference of each session, and the reference's own values.
    base = with_reference.filter(pl.col("arm") == pl.col("baseline"))
    base_logs = base.select(
        "session_id", "metric", "indicator_version", "round", pl.col("log").alias("base"), base_value="value"
    )
    others = with_reference.filter(pl.col("arm") != pl.col("baseline"))
    pairs = others.join(base_logs, on=["session_id", "metric", "indicator_version", "round"])
    pairs = pairs.with_columns(ratio=pl.col("log") - pl.col("base"))
    points: list[dict[str, Any]] = []
    for row in _summarise_rounds(pairs, "ratio"):
        is_control = row["copy_number"] > 0
        stands_for = json.loads(row["notes"] or "{}").get(STANDS_FOR) if is_control else None
        kinds = [(CONTROL, "the reference again")] if is_control else [(FOLLOWED, row["stack"])]
        kinds += [(FOLLOWED, stands_for)] if stands_for else []
        points += [{**row, "kind": kind, "stack": stack, "reference": chosen[:KEY_DIGITS]} for kind, stack in kinds]
    for row in _summarise_rounds(base, "log"):
        points.append({**row, "kind": MACHINE, "stack": "the reference itself", "reference": chosen[:KEY_DIGITS]})
    if wanted.absolute:
        # Values of sessions without a reference, whose machine is only believed to be the same.
        rows_without = _summarise_rounds(frame.filter(~paired & (pl.col("copy_number") == 0)), "log", min_rounds=1)
        points += [{**row, "kind": FOLLOWED, "reference": ""} for row in rows_without]
        left_out.pop(NO_REFERENCE)
    thin = set(with_reference["session_id"]) - {row["session_id"] for row in points if row["kind"] != MACHINE}
    left_out[f"fewer than {MIN_ROUNDS} rounds with both values"] = len(thin)
    shown = [row for row in points if wanted.stack in (None, row["stack"]) or row["kind"] != FOLLOWED]
    table = _number_series(shown, packages)
    if not table.height:
        reasons = "; ".join(f"{count} session(s): {reason}" for reason, count in left_out.items() if count)
        do = "add --absolute for their own values" if left_out.get(NO_REFERENCE) else None
        raise InputError("no session has a figure that fits", found=reasons or _format_filter(wanted), do=do)
    return History(table, {reason: count for reason, count in left_out.items() if count})


def _keep_reference(frame: pl.DataFrame, wanted: HistoryFilter, left_out: Counter[str]) -> tuple[pl.DataFrame, str]:
    """Keep the sessions of one reference; return their values, and the reference's key.

    `frame` needs session_id, arm, baseline and stack_key. Sessions of other references are counted in `left_out`.
    """
    baseline = frame.filter(pl.col("arm") == pl.col("baseline"))
    keys = baseline.select("session_id", pl.col("stack_key").alias("reference")).unique()
    if wanted.reference is not None:
        matches = sorted({key for key in keys["reference"] if key.startswith(wanted.reference)})
        if len(matches) != 1:
            there = [key[:KEY_DIGITS] for key in sorted(set(keys["reference"]))][:10]
            message = "several references begin so" if matches else "no session has this reference"
            raise InputError(message, where="--reference", found=wanted.reference[:80], allowed=there)
        chosen = matches[0]
    elif keys.height:
        counts = keys.group_by("reference").len().sort(["len", "reference"], descending=[True, False])
        chosen = str(counts["reference"][0])
    else:
        return frame, ""
    session_ids = keys.filter(pl.col("reference") == chosen)["session_id"]
    left_out[OTHER_REFERENCE] = keys["session_id"].n_unique() - session_ids.n_unique()
    return frame.filter(pl.col("session_id").is_in(session_ids.implode())), chosen


def _summarise_rounds(frame: pl.DataFrame, name: str, *, min_rounds: int = MIN_ROUNDS) -> list[dict[str, Any]]:
    """Mean and standard error over rounds of the logarithms in column `name`, by session, arm and metric.

    Returns: Rows with the columns of the groups, log_ratio, error, rounds, rounding and tolerance; groups of fewer than
    `min_rounds` rounds are left out.
    """
    by = [*_SESSION, "arm", "stack", "stack_key", "copy_number", "python", "notes"]
    by += ["metric", "indicator_version", "clock"]
    error = (pl.col(name).std() / pl.len().sqrt()).fill_null(0.0)
    summary = frame.group_by(by, maintain_order=True).agg(
        pl.col(name).mean().alias("log_ratio"),
        error.alias("error"),
        pl.len().cast(pl.Int64).alias("rounds"),
        pl.col("tolerance").first(),
        pl.col("unit").first(),
        *(pl.col(side).alias(f"_{side}") for side in ("value", "base_value") if side in frame.columns),
    )
    rows = summary.filter(pl.col("rounds") >= min_rounds).to_dicts()
    distinct = frame.group_by("metric").agg(pl.col("value").unique().head(MAX_DISTINCT)).iter_rows()
    steps = {metric: find_step(values) for metric, values in distinct}
    for row in rows:
        sides = [row.pop(side) for side in ("_value", "_base_value") if side in row]
        row["rounding"] = measure_rounding(sides, row.pop("unit"), steps[row["metric"]])
    return rows


def _number_series(points: list[dict[str, Any]], packages: dict[str, dict[str, str]]) -> pl.DataFrame:
    """Table POINTS: series are numbered by metric and stack, points are in order of time.

    `points`: Ratios to each session's reference. `packages`: Stack's key to its packages and their versions.
    """
    rows = []
    for row in points:
        versions = packages.get(row["stack_key"], {})
        python = [f"{PYTHON}=={row['python']}"] if row.get("python") else []
        listed = " ".join([*python, *(f"{name}=={version}" for name, version in sorted(versions.items()))])
        short = strip_versions(row["stack"], versions) if row["kind"] == FOLLOWED else row["stack"]
        commit_at = json.loads(row["notes"] or "{}").get(COMMIT_TIME)
        moment = parse_time(row["created_at"])
        created_at = row["created_at"] if moment is None else moment.astimezone(UTC).isoformat()
        more = {"full": row["stack"], "packages": listed, "commit_at": commit_at, "created_at": created_at}
        rows.append({**row, "stack": short, **more})
    # Two versions of one stack in a session belong to two series, and which of them goes on elsewhere is not known.
    places = [(row["session_id"], *(row[name] for name in _IDENTITY)) for row in rows]
    counts = Counter(places)
    rows = [
        {**row, "stack": row["full"] if counts[place] > 1 else row["stack"]}
        for row, place in zip(rows, places, strict=True)
    ]
    identities = sorted({tuple(row[name] for name in _IDENTITY) for row in rows}, key=repr)
    numbers = {identity: number for number, identity in enumerate(identities, 1)}
    names = [column.name for column in POINTS.columns]
    point_rows = [{**row, "series": numbers[tuple(row[name] for name in _IDENTITY)]} for row in rows]
    table = _place_points(POINTS.frame([{name: row.get(name) for name in names} for row in point_rows]))
    # No ratio yet: it becomes one to the first session.
    own = (pl.col("kind") == MACHINE) | (pl.col("reference") == "")
    first = pl.col("log_ratio").first().over("series")
    return table.with_columns(log_ratio=pl.when(own).then(pl.col("log_ratio") - first).otherwise("log_ratio"))


def _place_points(points: pl.DataFrame) -> pl.DataFrame:
    """Table POINTS in order of its series and places, which are numbered where they are not told.

    By commits where each session of a series tells when its own was made, else by time of measurement.
    """
    if points["place"].null_count() == 0:
        return points.sort("series", "place")
    told = pl.col("commit_at").is_not_null().all().over("series")
    commit = pl.when(told).then("commit_at").otherwise(pl.lit(""))
    ordered = points.with_columns(_commit=commit).sort("series", "_commit", "created_at", "session_id").drop("_commit")
    return ordered.with_columns(place=pl.int_range(pl.len()).over("series"))


def order_by_commits(history: History, path: Path | None) -> History:
    """The history in the order of a file of commits, oldest first; sessions of other commits are left out."""
    if path is None:
        return history
    lines = read_text_file(path, noun="list of commits", max_bytes=MAX_COMMIT_BYTES).split()
    if wrong := [line for line in lines if not re.fullmatch(r"[0-9a-f]{7,64}", line)]:
        found = wrong[0][:80]
        raise InputError("not a commit", where=path, found=found, allowed="a hash a line, as `git rev-list` writes")
    by_start: dict[str, list[int]] = {}
    for place, commit in enumerate(lines):
        by_start.setdefault(commit[:MIN_COMMIT], []).append(place)

    def find_place(revision: str) -> int | None:
        places = by_start.get(revision[:MIN_COMMIT], [])
        same = [place for place in places if lines[place].startswith(revision) or revision.startswith(lines[place])]
        return same[0] if len(same) == 1 else None

    numbers = [find_place(revision) for revision in history.points["revision"].fill_null("")]
    points = history.points.with_columns(line=pl.Series(numbers, dtype=pl.Int64))
    known = points.filter(pl.col("line").is_not_null()).sort("series", "line", "created_at", "session_id")
    if not known.height:
        do = "give the list of the repository that was measured: git rev-list --reverse HEAD"
        raise InputError("no session is of one of these commits", where=path, found=f"{len(lines)} commits", do=do)
    times = known.select(pl.corr("line", pl.col("created_at").rank(), method="spearman")).item()
    if known["line"].n_unique() > 2 and times is not None and times < MAX_BACKWARDS:
        raise InputError("the newest commit is first", where=path, do="write it with git rev-list --reverse HEAD")
    lost = points.filter(pl.col("line").is_null())["session_id"].n_unique()
    losses = {f"of a commit that {path.name} does not have": lost} if lost else {}
    known = known.drop("line").with_columns(place=pl.int_range(pl.len()).over("series"))
    return History(known, history.left_out | losses)


def strip_versions(stack: str, versions: dict[str, str]) -> str:
    """Name of a stack without the versions of its packages, the same for every session.

    >>> strip_versions("numpy 2.4.6, pandas 2.3.3", {"numpy": "2.4.6", "pandas": "2.3.3"})
    'numpy, pandas'
    """
    parts = []
    for part in stack.split(", "):
        name, _, version = part.partition(" ")
        parts.append(name if version and versions.get(name) == version else part)
    return ", ".join(parts)
