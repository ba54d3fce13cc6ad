"""Plan of a recording: sides with their settings, suite, data, and the order of sessions and queries."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from workbench import __version__
from workbench.core import files, host
from workbench.core.errors import ConfigError, InputError
from workbench.eventlog.secret_removal import remove_property_secrets
from workbench.spark import engine_jars
from workbench.spark.engine_jars import ENGINES, Artifact, class_path_settings
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import query_suite, recording_journal
from workbench.speedup.recording.benchmark_data import BENCHMARKS
from workbench.speedup.recording.query_session import SessionPlan
from workbench.speedup.recording.query_suite import QueryData, Suite
from workbench.speedup.recording.recording_journal import LABEL, Recording

# Settings of the recorder, which needs the log at a known place, uncompressed and in one file.
RECORDER_SETTINGS = (
    "spark.eventLog.",
    "spark.master",
    "spark.app.name",
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
    "spark.submit.deployMode",
)


LOCAL_SHUFFLE_PARTITIONS = 4
# Fields that must be equal to complete a recording.
FIXED_FIELDS = ("suite", "data", "seed", "n_passes", "power_run", "master", "settings", "scrubbed", "sides")


@dataclass(frozen=True)
class RecordedSide:
    """Label and engine of a side, and its settings in addition to the engine's."""

    label: str
    engine: str
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of this side: the engine's, overridden by its own."""
        return {**ENGINES[self.engine].settings, **self.conf}

    @property
    def artifact(self) -> Artifact | None:
        """Jar of its engine; null for plain Spark."""
        return ENGINES[self.engine].artifact


def parse_sides(engines: Iterable[str], labels: Iterable[str], spelled: Iterable[str]) -> list[RecordedSide]:
    """The sides that the options name; the first is the baseline.

    >>> [side.label for side in parse_sides(["spark", "comet"], [], [])]
    ['spark', 'comet']
    >>> parse_sides([], [], ["aqe-off,spark.sql.adaptive.enabled=false"])[0].settings
    {'spark.sql.adaptive.enabled': 'false'}
    """
    engines, labels = list(engines), list(labels)
    if labels and len(labels) != len(engines):
        raise ConfigError("one label for each engine", where="--label", found=f"{len(labels)} for {len(engines)}")
    sides = [RecordedSide(label, engine) for engine, label in zip(engines, labels or engines, strict=True)]
    sides += [parse_side(text) for text in spelled]
    if not sides:
        raise ConfigError("nothing to record", where="--engine, --side", do="--engine spark --engine comet")
    for side in sides:
        _check_side(side)
    names = [side.label for side in sides]
    if len({name.lower() for name in names}) != len(names):
        raise ConfigError(
            "two sides with the same label", where="--side, --label", found=names, do="give each its own --label"
        )
    return sides


def parse_side(text: str) -> RecordedSide:
    """A side from the text LABEL[:ENGINE][,key=value…]; values may hold commas."""
    # A comma starts a setting only before a key with =.
    head, *settings = re.split(r",(?=[A-Za-z][\w.]*=)", text)
    label, _, engine = head.partition(":")
    return RecordedSide(label, engine or "spark", parse_settings(settings, where="--side"))


def parse_settings(pairs: Iterable[str], *, where: str = "--conf") -> dict[str, str]:
    """Spark settings from `key=value` texts."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.-]{1,200}", key):
            raise ConfigError("not a Spark setting", where=where, found=pair[:200], allowed="spark.some.key=value")
        if key.startswith(RECORDER_SETTINGS):
            raise ConfigError("the recorder sets this itself", where=where, found=key)
        settings[key] = value
    return settings


def _check_side(side: RecordedSide) -> None:
    if side.engine not in ENGINES:
        raise ConfigError("unknown engine", where="--engine, --side", found=side.engine[:80], allowed=list(ENGINES))
    if not re.fullmatch(LABEL, side.label):
        allowed = "letters, digits, _ . + -, at most 40, a letter or digit first"
        raise ConfigError("not a label", where="--label, --side", found=side.label[:80], allowed=allowed)


@dataclass(frozen=True)
class RecordingPlan:
    """Everything that the sessions need."""

    config: RecordConfig
    suite: Suite
    data: QueryData
    sides: tuple[RecordedSide, ...]
    jars: dict[str, Path]

    @property
    def shared(self) -> dict[str, str]:
        """Spark settings of all sides."""
        config = self.config
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": config.driver_memory,
        }
        partitions = config.shuffle_partitions or (LOCAL_SHUFFLE_PARTITIONS if config.local else None)
        if partitions:
            settings["spark.sql.shuffle.partitions"] = str(partitions)
        if config.local:
            settings |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
        return settings | parse_settings(config.conf)

    def build_recording(self) -> Recording:
        """The journal of a recording without sessions."""
        sides = []
        for side in self.sides:
            jar = self.jars.get(side.label)
            sides.append(
                recording_journal.Side(
                    label=side.label,
                    engine=side.engine,
                    settings=hide_secret_settings(side.settings),
                    jar=jar.name if jar else None,
                    jar_sha256=files.hash_file(jar) if jar else None,
                )
            )
        data = self.data
        recording = Recording(
            created_at=datetime.now(UTC),
            package_version=__version__,
            suite=recording_journal.RecordedSuite(
                name=self.suite.name, queries=list(self.suite.queries), sha256=self.suite.sha256
            ),
            data=recording_journal.Data(
                source=data.source, scale=data.scale, views=list(data.views), fingerprint=data.fingerprint
            ),
            seed=self.config.seed,
            n_sessions=self.config.n_sessions,
            n_passes=self.config.n_passes,
            power_run=self.config.power_run,
            master=self.config.master,
            settings=hide_secret_settings(self.shared),
            scrubbed=self.config.scrub,
            sides=sides,
            host=host.read_host_facts(),
            versions=host.list_versions(),
        )
        return recording.move_to(self.config.out.absolute())

    def build_session_plan(self, label: str, number: int, *, folder: Path, scratch: Path) -> SessionPlan:
        """The plan of one session."""
        side = next(side for side in self.sides if side.label == label)
        places = {"spark.sql.warehouse.dir": (folder / "warehouse").as_uri()}
        if self.config.local:
            places["spark.local.dir"] = str(scratch)
        jar = self.jars.get(label)
        return SessionPlan(
            folder=str(folder),
            app_name=f"{self.suite.name} {label} s{number}",
            master=self.config.master,
            settings=places | self.shared | side.settings | (class_path_settings(jar) if jar else {}),
            place=self.data.place,
            views=self.data.views,
            queries=self.suite.queries,
            orders=self._order_queries(number),
        )

    def _order_queries(self, number: int) -> list[list[str]]:
        if self.config.power_run:
            return [list(self.suite.stream or self.suite.queries)]
        return order_queries(list(self.suite.queries), self.config.seed, number, self.config.n_passes)


def hide_secret_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings without the values of secrets."""
    return {key: remove_property_secrets(key, value) for key, value in settings.items()}


def order_queries(queries: list[str], seed: int, session: int, passes: int) -> list[list[str]]:
    """Order of the queries in each pass of a session; equal for all sides.

    >>> first = order_queries(["a", "b", "c"], 0, 1, 2)
    >>> first == order_queries(["a", "b", "c"], 0, 1, 2), [sorted(names) for names in first]
    (True, [['a', 'b', 'c'], ['a', 'b', 'c']])
    """
    orders = []
    for number in range(1, passes + 1):
        names = list(queries)
        random.Random(f"{seed} {session} {number}").shuffle(names)  # noqa: S311 - an order, not a secret
        orders.append(names)
    return orders


def iterate_sessions(labels: list[str], seed: int, sessions: int) -> Iterator[tuple[str, int]]:
    """Sides and numbers of all sessions in the order they run: shuffled rounds, each with every side once.

    Rounds spread a drift of the machine over all sides, and more rounds do not change the earlier ones.
    """
    for number in range(1, sessions + 1):
        names = list(labels)
        random.Random(f"{seed} round {number}").shuffle(names)  # noqa: S311 - an order, not a secret
        for label in names:
            yield label, number


def prepare_recording(config: RecordConfig, *, say: Callable[[str], None], dry: bool = False) -> RecordingPlan:
    """Build the plan; generate the data and download the jars unless it is a dry run."""
    from workbench.spark import jvm

    sides = tuple(parse_sides(config.engines, config.labels, config.sides))
    parse_settings(config.conf)
    benchmark = BENCHMARKS.get(config.queries)
    scale = config.scale if config.data is None or benchmark else None
    suite = benchmark.build_suite(scale, dry, say) if benchmark else query_suite.find_suite(config.queries)
    suite = suite.select(config.only)
    if config.comet_jar is not None and not any(side.engine == "comet" for side in sides):
        raise ConfigError("no side needs this jar", where="--comet-jar", found=str(config.comet_jar))
    jvm.build_spark_environment()
    data = _find_query_data(config, scale, dry=dry, say=say)
    if benchmark and (missing := benchmark.list_missing_tables(data)):
        raise InputError(f"tables of {config.queries} are missing", where="--data", found=missing)
    jars: dict[str, Path] = {}
    for side in sides:
        if side.artifact is not None and not dry:
            jars[side.label] = engine_jars.resolve_jar(side.artifact, given=config.comet_jar, say=say)
    return RecordingPlan(config, suite, data, sides, jars)


def _find_query_data(config: RecordConfig, scale: float | None, *, dry: bool, say: Callable[[str], None]) -> QueryData:
    if config.data is not None:
        return query_suite.find_user_data(config.data, scale=scale)
    if not config.local:
        raise ConfigError(
            "the workers of a cluster cannot read this machine's cache",
            where="--data",
            do="put the tables where the workers can read them, and give --data URL",
        )
    # Queries of one's own without --data run on the tables of TPC-H.
    benchmark = BENCHMARKS.get(config.queries, BENCHMARKS["tpch"])
    if dry:
        return QueryData("", benchmark.source(), config.scale, {}, None)
    return benchmark.get_data(config.scale, say)


def list_differences(earlier: Recording, requested: Recording) -> list[str]:
    """Differences between an earlier recording and the requested one."""
    one, two = (recording.model_dump(mode="json") for recording in (earlier, requested))
    one["versions"], two["versions"] = ({"pyspark": part["versions"].get("pyspark")} for part in (one, two))
    differences: list[str] = []
    for name in (*FIXED_FIELDS, "versions"):
        _collect_difference(name, one[name], two[name], differences)
    return differences


def _collect_difference(name: str, one: object, two: object, differences: list[str]) -> None:
    if one == two:
        return
    if isinstance(one, dict) and isinstance(two, dict):
        for key in {**one, **two}:
            _collect_difference(f"{name}.{key}", one.get(key), two.get(key), differences)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (left, right) in enumerate(zip(one, two, strict=True)):
            _collect_difference(f"{name}[{place}]", left, right, differences)
    else:
        differences.append(f"{name}: {str(one)[:80]} then, {str(two)[:80]} now")
