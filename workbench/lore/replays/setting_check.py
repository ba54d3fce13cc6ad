"""Whether settings under comparison have an effect: known, different, and read while the operator runs.

A replay has a finished plan. What Spark decided when it made the plan (ANSI mode, time zone, joins, AQE) is in the plan
and does not change with a setting; a comparison of it would call both sides equal and compare nothing. Therefore the
operator runs once on the side whose value is new, and a setting that nothing reads in this run is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator
from workbench.lore.spark_bridge.query_runs import describe_failure
from workbench.lore.spark_bridge.setting_reads import (
    check_known_keys,
    find_entry,
    read_effective_value,
    watch_settings,
)
from workbench.lore.spark_bridge.spark_internals import Bridge

HADOOP_PREFIX = "spark.hadoop."
# Fixed in the expressions when the query is analysed.
ANALYSIS_KEYS = (
    "spark.sql.ansi.",
    "spark.sql.session.timeZone",
    "spark.sql.caseSensitive",
    "spark.sql.storeAssignmentPolicy",
    "spark.sql.decimalOperations.",
    "spark.sql.timestampType",
    "spark.sql.legacy.",
)
# Used when the files of the dump are read.
FILE_KEYS = ("spark.sql.parquet.", "spark.sql.files.")
PLANNING_WORD = "decided at planning"
# The plan made anew under some settings, as text.
DescribePlan = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True)
class ComparedSettings:
    """Settings of both sides."""

    shared: Mapping[str, str]
    a: Mapping[str, str]
    b: Mapping[str, str]
    engine: str = "spark"

    def check_keys(self, bridge: Bridge) -> None:
        """Refuse keys that nothing reads, and keys that cannot differ between the sides."""
        for where, settings in (("--conf", self.shared), ("--a", self.a), ("--b", self.b)):
            keys = [key for key in settings if not key.startswith(HADOOP_PREFIX)]
            check_known_keys(bridge, keys, where=where, engine=self.engine)
            if where != "--conf" and (fixed := [key for key in settings if key.startswith(HADOOP_PREFIX)]):
                raise ConfigError(
                    "file systems are set when Spark starts and are the same on both sides",
                    where=where,
                    found=fixed,
                    do="give it as --conf, or replay twice",
                )

    def list_keys(self) -> list[str]:
        """Keys of either side, sorted."""
        return sorted({*self.a, *self.b})


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison.

    `rebuild`: Builds the operator in this session; its inputs are read by another one.
    `run_scan`: Reads the inputs alone: what is read in its tasks, the operator does not read.
    """

    bridge: Bridge
    rebuild: Callable[[], RebuiltOperator]
    run_scan: Callable[[], object]


def list_differing_settings(settings: ComparedSettings, a: Bridge, b: Bridge) -> list[str]:
    """Keys whose values differ between the sessions of both sides."""
    same: list[str] = []
    differing: list[str] = []
    for key in settings.list_keys():
        values = [read_effective_value(bridge, key) for bridge in (a, b)]
        if values[0] != values[1]:
            differing.append(key)
        elif not (key in settings.a and key in settings.b):
            same.append(f"{key}={settings.b.get(key, settings.a.get(key))}")
    if same:
        raise ConfigError(
            "a setting has the same value on both sides, so nothing would be compared",
            where="--a, --b",
            found=same,
            do="give another value; the value in the dump is that of the query's session",
        )
    return differing


def find_unread_settings(texts: Mapping[str, str], side: ComparedSide) -> list[str]:
    """Keys that nothing reads while the operator is rebuilt and run once; `texts` are their values on this side."""
    entries = {key: text for key, text in texts.items() if find_entry(side.bridge, key) is not None}
    if not entries:
        return []
    side.bridge.prepare_rules()
    with watch_settings(side.bridge, entries) as watch, side.bridge.propagate_settings():
        watch.forget_reads()
        side.run_scan()
        scanned = set(watch.list_read_keys())
        watch.forget_reads()
        try:
            side.rebuild().output_rdd().count()
        except Exception as error:  # noqa: BLE001 - a failure is a result of the comparison; what was read counts
            describe_failure(error)
        read = set(watch.list_read_keys())
    # What reading the files reads, too, counts for the operator unless it is of files or of analysis.
    only_scanned = {key for key in scanned if key.startswith((*ANALYSIS_KEYS, *FILE_KEYS))}
    return sorted(key for key in entries if key not in read or key in only_scanned)


def check_settings_are_read(
    settings: ComparedSettings,
    a: ComparedSide,
    b: ComparedSide,
    *,
    dump: Bridge,
    operator: str,
    can_replan: bool = False,
    describe_plan: DescribePlan | None = None,
) -> None:
    """Refuse settings that do not differ, that the operator does not read, and that do not change a plan made anew.

    Each is watched on the side whose value is not that of the dump. On a cluster the reads of tasks are not seen, and
    only settings that do not differ are refused.

    `describe_plan`: The plan made anew under some settings, as text; null without `--replan`.
    """
    watched: dict[int, dict[str, str]] = {0: {}, 1: {}}
    for key in list_differing_settings(settings, a.bridge, b.bridge):
        on_b = read_effective_value(b.bridge, key) != read_effective_value(dump, key)
        watched[int(on_b)][key] = (b if on_b else a).bridge.spark.conf.get(key)
    unread = [key for number, side in enumerate((a, b)) for key in find_unread_settings(watched[number], side)]
    if describe_plan is not None:
        fixed = [key for key in unread if key.startswith(ANALYSIS_KEYS)]
        planned = [key for key in unread if key not in fixed]
        idle = [
            key
            for side_settings, texts in zip((settings.a, settings.b), watched.values(), strict=True)
            for key in planned
            if key in texts and not _changes_plan(key, {**side_settings, **texts}, describe_plan)
        ]
        _refuse_idle_settings(idle, operator=operator)
        unread = fixed
    if unread and dump.shares_jvm():
        _refuse_unread_settings(unread, operator=operator, can_replan=can_replan and describe_plan is None)


def _changes_plan(key: str, settings: Mapping[str, str], describe_plan: DescribePlan) -> bool:
    """Does a setting change the plan: taken from its side, or alone?"""
    without = {other: text for other, text in settings.items() if other != key}
    if describe_plan(settings) != describe_plan(without):
        return True
    return bool(without) and describe_plan({key: settings[key]}) != describe_plan({})


def _refuse_idle_settings(keys: list[str], *, operator: str) -> None:
    if keys:
        raise ConfigError(
            f"planned anew, {operator} is the same with and without it, and nothing read it while it ran: both sides "
            "would be the same",
            where="--replan",
            found=keys,
            do="give a value that changes the plan of these rows, or dump the query again with --conf KEY=VALUE",
        )


def _refuse_unread_settings(keys: list[str], *, operator: str, can_replan: bool) -> None:
    analysed = [key for key in keys if key.startswith(ANALYSIS_KEYS)]
    remedies = []
    if analysed:
        remedies.append(
            "dump the query again with --conf KEY=VALUE and compare both replays: it is fixed in the expressions when "
            "the query is analysed"
        )
    if len(analysed) < len(keys):
        remedies.append(
            "add --replan, which plans the join anew on both sides"
            if can_replan
            else "dump the query again with --conf KEY=VALUE, or choose an operator that reads it"
        )
    raise ConfigError(
        f"{PLANNING_WORD}, or of no use to {operator}: nothing read it while the operator ran, so both sides would be "
        "the same",
        where="--a, --b",
        found=keys,
        do="; ".join(remedies),
    )
