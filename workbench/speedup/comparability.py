"""Do the two sides of a pair differ in anything but the engine? Each setting that moves times, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from workbench.errors import InputError
from workbench.eventlog.reader import Facts
from workbench.formats import number, size
from workbench.speedup import engines
from workbench.speedup.settings import Settings, settings_of
from workbench.tables import Column, Table

Severity = Literal["ok", "warning", "invalid"]
COMPARABILITY = Table(
    "comparability",
    "What else differs between the sides than the engine, and whether that makes the pair invalid.",
    ("property",),
    (
        Column("property", "str", "What is compared."),
        Column("baseline", "str", "Value(s) on the baseline; several where its sessions differ."),
        Column("candidate", "str", "Value(s) on the candidate."),
        Column("severity", "str", "ok, warning (part of the ratio may be due to it) or invalid (no fair pair)."),
        Column("why", "str", "What the property does to a comparison, or what is wrong."),
    ),
)
# Other data: more than this, as a share.
DATA_TOLERANCE = 0.01
# At least this share of the operators counts as an accelerated side.
ACCELERATED_SHARE = 0.05
UNKNOWN = "not told by the log"

# Setting, and why a difference in it matters.
_SETTINGS: tuple[tuple[str, Callable[[Settings], str], str], ...] = (
    ("task slots", lambda s: _count(s.task_slots), "times scale with the tasks that run at once"),
    ("executors", lambda s: _count(s.n_executors), "the same slots on more executors share less memory and shuffle"),
    ("executor memory", lambda s: s.executor_memory, "heap, off-heap and overhead: less memory spills more"),
    ("driver memory", lambda s: s.driver_memory, "broadcasts are built there, and all tasks run there when local"),
    ("master", lambda s: s.master, "another place to run is another machine"),
    ("shuffle partitions", lambda s: s.shuffle_partitions, "sets the number and the size of tasks after a shuffle"),
    ("broadcast threshold", lambda s: s.broadcast_threshold, "decides which joins are broadcast: another plan"),
    ("adaptive execution", lambda s: s.adaptive, "changes plans and numbers of tasks while a query runs"),
    ("Spark version", lambda s: s.spark_version, "the optimizer and the operators differ between versions"),
    ("Java version", lambda s: s.java_version, "the compiler and the collector differ between versions"),
    ("file cache", lambda s: s.file_cache, "a cache of input files speeds up later runs on its side alone"),
)


@dataclass(frozen=True)
class _Side:
    facts: Sequence[Facts]
    settings: list[Settings]
    engines: list[str]
    accelerated_share: float


def comparability(baseline: Sequence[Facts], candidate: Sequence[Facts], *, named: bool = False) -> pl.DataFrame:
    """What differs between the sides besides the engine, and does it spoil the comparison?

    Parameters
    ----------
    baseline, candidate
        Facts of each side's logs, one element a session.
    named
        The user said which side is the baseline. Without it, an accelerated baseline beside a plain candidate is
        taken for a mistake.

    Returns
    -------
    DataFrame
        Table `COMPARABILITY`, one row a property, those that are invalid first, then warnings.

    Raises
    ------
    InputError
        A side has no facts.

    Notes
    -----
    Invalid: other data (rows and files of the same tables differ by more than 1 %), an application on both sides,
    sessions of one side on different engines, sides that look swapped, and a side on which every query ran once only
    (all runs are cold). Everything else is a warning, task slots too: a pair of machines of different size is a
    question that people ask, and its factors hold for that pair; only the reader must know that they are not the
    engine's alone. Off-heap memory is counted as memory, since accelerators get theirs from there.

    Settings are those that the driver started with: what a session changes later by SET is not seen here.
    """
    for label, facts in (("baseline", baseline), ("candidate", candidate)):
        if not facts:
            raise InputError("a side has no event log", where=label, do="give at least one log for each side")
    sides = _side(baseline), _side(candidate)
    rows = [
        _applications(*sides),
        _engine(*sides),
        _accelerated(*sides, named=named),
        _data(*sides),
        _warm_runs(*sides),
        *(_setting(name, value, why, *sides) for name, value, why in _SETTINGS),
    ]
    order = {"invalid": 0, "warning": 1, "ok": 2}
    return COMPARABILITY.frame(sorted(rows, key=lambda row: order[row["severity"]]))


def _side(facts: Sequence[Facts]) -> _Side:
    return _Side(
        facts,
        [settings_of(one, log_id=one.logs["log_id"][0]) for one in facts],
        sorted({engine for one in facts for engine in one.applications["engine"]}),
        _accelerated_share(facts),
    )


def _row(name: str, texts: list[str], severity: Severity, why: str) -> dict[str, Any]:
    return {"property": name, "baseline": texts[0], "candidate": texts[1], "severity": severity, "why": why}


def _setting(
    name: str, value: Callable[[Settings], str], why: str, baseline: _Side, candidate: _Side
) -> dict[str, Any]:
    found = [list(dict.fromkeys(value(one) for one in side.settings)) for side in (baseline, candidate)]
    texts = [" / ".join(values) for values in found]
    uneven = [label for label, values in zip(("baseline", "candidate"), found, strict=True) if len(values) > 1]
    if uneven:
        return _row(name, texts, "warning", f"sessions of the {' and the '.join(uneven)} differ; {why}")
    if texts[0] == texts[1]:
        return _row(name, texts, "ok", why)
    return _row(name, texts, "warning", why)


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else number(value)


def _applications(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    ids = [
        {(app_id, start) for one in side.facts for app_id, start in _identity(one)} for side in (baseline, candidate)
    ]
    both = {app_id for app_id, _ in ids[0] & ids[1]}
    texts = [f"{len(side.facts)} session(s)" for side in (baseline, candidate)]
    if both:
        return _row("applications", texts, "invalid", f"the same application is on both sides: {', '.join(both)}")
    if min(len(baseline.facts), len(candidate.facts)) < 2:
        return _row("applications", texts, "warning", "with one session on a side there is no interval")
    return _row("applications", texts, "ok", "each session is one fresh driver")


def _identity(facts: Facts) -> list[tuple[str, int | None]]:
    known = facts.applications.filter(pl.col("app_id").is_not_null())
    return list(known.select("app_id", "start_time_ms").iter_rows())


def _engine(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    texts = [" / ".join(side.engines) for side in (baseline, candidate)]
    mixed = [label for label, side in (("baseline", baseline), ("candidate", candidate)) if len(side.engines) > 1]
    if mixed:
        return _row("engine", texts, "invalid", f"sessions of the {' and the '.join(mixed)} ran on different engines")
    return _row("engine", texts, "ok", "what is compared")


def _accelerated_share(facts: Sequence[Facts]) -> float:
    """Of the operators that do work, the share that ran on an accelerator."""
    plain = accelerated = 0
    for one in facts:
        names = one.plan_nodes.filter(pl.col("is_final")).group_by("node_name").len()
        for name, count in names.iter_rows():
            operator = engines.operator(name)
            if operator.kind == "none":
                continue
            plain += count * (not operator.accelerated)
            accelerated += count * operator.accelerated
    return accelerated / (plain + accelerated) if plain + accelerated else 0.0


def _accelerated(baseline: _Side, candidate: _Side, *, named: bool) -> dict[str, Any]:
    name = "accelerated operators"
    texts = [f"{side.accelerated_share:.0%}" for side in (baseline, candidate)]
    fast = [side.accelerated_share >= ACCELERATED_SHARE for side in (baseline, candidate)]
    if fast[0] and not fast[1]:
        if named:
            return _row(name, texts, "ok", "the baseline is the accelerated side, as was asked for")
        return _row(
            name,
            texts,
            "invalid",
            "the two sides look swapped: the baseline ran on an accelerator, the candidate did not; swap the logs, or "
            "name the sides with --baseline and --candidate",
        )
    idle = [
        label
        for label, side, ran in zip(("baseline", "candidate"), (baseline, candidate), fast, strict=True)
        if side.engines != ["spark"] and not ran
    ]
    if idle:
        return _row(name, texts, "warning", f"the accelerator of the {' and the '.join(idle)} was on and ran nothing")
    return _row(name, texts, "ok", "share of the plans' operators that an accelerator ran")


def _data(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    """Tables compared by rows and by files: either alone may differ for the same data.

    Filters that are pushed into the files change the rows, another compression changes the files' size.
    """
    queries = _descriptions(baseline) & _descriptions(candidate)
    sides = [_tables(side.facts, queries) for side in (baseline, candidate)]
    common = sorted(set(sides[0]) & set(sides[1]))
    texts = [_data_text(side, common) for side in sides]
    if not common:
        return _row("data", texts, "warning", "no scan of a common table: whether both read the same is unknown")
    other, layout = [], []
    for table in common:
        rows, files = (_differ(sides[0][table][i], sides[1][table][i]) for i in (0, 1))
        if rows and files is not False:
            other.append(table)
        elif files:
            layout.append(table)
    if other:
        return _row("data", texts, "invalid", f"the sides read other data: {', '.join(other[:5])}")
    if layout:
        return _row("data", texts, "warning", f"the same rows in other files: {', '.join(layout[:5])}")
    missing = sorted(set(sides[0]) ^ set(sides[1]))
    if missing:
        return _row("data", texts, "warning", f"tables that one side alone reads: {', '.join(missing[:5])}")
    return _row("data", texts, "ok", "rows and files of the largest scan of each table agree within 1 %")


def _differ(first: float | None, second: float | None) -> bool | None:
    if not first or not second:
        return None
    return abs(first - second) / max(first, second) > DATA_TOLERANCE


def _data_text(side: dict[str, tuple[float | None, float | None]], common: list[str]) -> str:
    tables = {name: side[name] for name in common or sorted(side)}
    rows = sum(rows or 0 for rows, _ in tables.values())
    files = sum(files or 0 for _, files in tables.values())
    return f"{len(tables)} table(s), {number(round(rows))} rows, {size(files)}"


def _descriptions(side: _Side) -> set[str | None]:
    return {text for one in side.facts for text in one.sql_executions["description"]}


def _tables(facts: Sequence[Facts], queries: set[str | None]) -> dict[str, tuple[float | None, float | None]]:
    """Table to the rows and file bytes of its largest scan in these queries, over all sessions."""
    found: dict[str, tuple[float | None, float | None]] = {}
    for one in facts:
        ran = one.sql_executions.filter(pl.col("description").is_in([text for text in queries if text is not None]))
        scanning = [name for name in one.plan_nodes["node_name"].unique() if _is_scan(name)]
        scans = (
            one.plan_nodes.filter(pl.col("is_final"), pl.col("node_name").is_in(scanning))
            .join(ran if queries else one.sql_executions, on=["log_id", "sql_id"], how="semi")
            .select("log_id", "sql_id", table=_table_name(), accumulator_id="accumulator_ids")
        )
        metrics = one.node_metrics.filter(
            pl.col("metric_name").is_in(["number of output rows", "size of files read"])
        ).select("log_id", "sql_id", "accumulator_id", "metric_name", value=_value())
        values = (
            scans.filter(pl.col("table").is_not_null())
            .explode("accumulator_id")
            .join(metrics, on=["log_id", "sql_id", "accumulator_id"])
            .group_by("table", "metric_name")
            .agg(pl.col("value").max())
        )
        for table, metric, value in values.iter_rows():
            rows, files = found.get(table, (None, None))
            if metric == "number of output rows":
                rows = max(rows or 0.0, float(value or 0))
            else:
                files = max(files or 0.0, float(value or 0))
            found[table] = (rows, files)
    return found


def _value() -> pl.Expr:
    return pl.max_horizontal(pl.col("total"), pl.col("driver_value")).cast(pl.Float64)


def _is_scan(name: str) -> bool:
    return engines.operator(name).name.startswith("Scan")


def _table_name() -> pl.Expr:
    """The last part of the path, since folders differ between clusters; the columns where Spark cut the path."""
    path = pl.col("simple_string").str.extract(r"Location: [^\[]*\[([^\],]+)", 1)
    name = path.str.strip_chars_end("/").str.extract(r"([^/:]+)$", 1)
    columns = pl.col("simple_string").str.extract(r"ReadSchema: (.*)$", 1).str.slice(0, 80)
    return pl.when(name.str.ends_with("...")).then(columns).otherwise(name)


def _warm_runs(baseline: _Side, candidate: _Side) -> dict[str, Any]:
    runs = [_runs(side.facts) for side in (baseline, candidate)]
    texts = [f"at most {most} run(s) of a query in a session" for most in runs]
    cold = [label for label, most in zip(("baseline", "candidate"), runs, strict=True) if most < 2]
    if cold:
        return _row(
            "warm runs", texts, "invalid", f"every query of the {' and the '.join(cold)} ran once: all runs are cold"
        )
    if runs[0] != runs[1]:
        return _row("warm runs", texts, "warning", "later runs are warmer: compilers and caches have seen more")
    return _row("warm runs", texts, "ok", "the first run of each query in a session is cold and does not count")


def _runs(facts: Sequence[Facts]) -> int:
    counts = [
        one.sql_executions.filter(pl.col("status") == "succeeded").group_by("log_id", "description").len()["len"].max()
        for one in facts
    ]
    return max((int(count) for count in counts if isinstance(count, int)), default=0)
