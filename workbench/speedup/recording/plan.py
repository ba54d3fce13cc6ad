"""What is going to be recorded, settled before anything starts: suite, tables, sides, orders."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from workbench import __version__, files, host
from workbench.errors import ConfigError, InputError
from workbench.eventlog.scrub import scrub_property
from workbench.spark import jars
from workbench.spark.engines import class_paths
from workbench.speedup.recording import data as tables_of
from workbench.speedup.recording import engines, journal, suite
from workbench.speedup.recording.config import RecordConfig
from workbench.speedup.recording.data import Data
from workbench.speedup.recording.journal import Recording
from workbench.speedup.recording.session import Plan
from workbench.speedup.recording.suite import Suite

LOCAL_SHUFFLE_PARTITIONS = 4
# What must be equal for a recording to be gone on with; sessions may become more.
SAME = ("suite", "data", "seed", "n_passes", "master", "settings", "scrubbed", "sides")


@dataclass(frozen=True)
class Prepared:
    """Everything that sessions need."""

    config: RecordConfig
    suite: Suite
    data: Data
    sides: tuple[engines.Side, ...]
    jars: dict[str, Path]

    @property
    def shared(self) -> dict[str, str]:
        """Spark settings of all sides."""
        config = self.config
        found = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.memory": config.driver_memory,
        }
        partitions = config.shuffle_partitions or (LOCAL_SHUFFLE_PARTITIONS if config.local else None)
        if partitions:
            found["spark.sql.shuffle.partitions"] = str(partitions)
        if config.local:
            found |= {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
        return found | engines.settings(config.conf)

    def recording(self) -> Recording:
        """The journal of a recording that has no session yet."""
        sides = []
        for side in self.sides:
            jar = self.jars.get(side.label)
            sides.append(
                journal.Side(
                    label=side.label,
                    engine=side.engine,
                    settings=shown(side.settings),
                    jar=jar.name if jar else None,
                    jar_sha256=files.sha256(jar) if jar else None,
                )
            )
        data = self.data
        recording = Recording(
            created_at=datetime.now(UTC),
            package_version=__version__,
            suite=journal.Suite(name=self.suite.name, queries=list(self.suite.queries), sha256=self.suite.sha256),
            data=journal.Data(
                source=data.source, scale=data.scale, views=list(data.views), fingerprint=data.fingerprint
            ),
            seed=self.config.seed,
            n_sessions=self.config.sessions,
            n_passes=self.config.passes,
            master=self.config.master,
            settings=shown(self.shared),
            scrubbed=self.config.scrub,
            sides=sides,
            host=host.facts(),
            versions=host.versions(),
        )
        return recording.at(self.config.out.absolute())

    def session(self, label: str, number: int, *, folder: Path, scratch: Path) -> Plan:
        """What one session does."""
        side = next(side for side in self.sides if side.label == label)
        places = {"spark.sql.warehouse.dir": (folder / "warehouse").as_uri()}
        if self.config.local:
            places["spark.local.dir"] = str(scratch)
        jar = self.jars.get(label)
        return Plan(
            folder=str(folder),
            app_name=f"{self.suite.name} {label} s{number}",
            master=self.config.master,
            settings=places | self.shared | side.settings | (class_paths(jar) if jar else {}),
            place=self.data.place,
            views=self.data.views,
            queries=self.suite.queries,
            orders=orders(list(self.suite.queries), self.config.seed, number, self.config.passes),
        )


def shown(settings: dict[str, str]) -> dict[str, str]:
    """Settings as they may be written down: without the values of secrets."""
    return {key: scrub_property(key, value) for key, value in settings.items()}


def orders(queries: list[str], seed: int, session: int, passes: int) -> list[list[str]]:
    """The order of the queries in each pass of a session: the same for every side, so that pairs meet alike.

    Examples
    --------
    >>> first = orders(["a", "b", "c"], 0, 1, 2)
    >>> first == orders(["a", "b", "c"], 0, 1, 2), [sorted(names) for names in first]
    (True, [['a', 'b', 'c'], ['a', 'b', 'c']])
    """
    found = []
    for number in range(1, passes + 1):
        names = list(queries)
        random.Random(f"{seed} {session} {number}").shuffle(names)  # noqa: S311 - an order, not a secret
        found.append(names)
    return found


def sequence(labels: list[str], seed: int, sessions: int) -> Iterator[tuple[str, int]]:
    """Sides and numbers of all sessions, in the order they run: each round holds every side once, shuffled.

    In rounds, so that a machine that grows slower meets all sides alike, and that more rounds leave the first ones be.
    """
    for number in range(1, sessions + 1):
        names = list(labels)
        random.Random(f"{seed} round {number}").shuffle(names)  # noqa: S311 - an order, not a secret
        for label in names:
            yield label, number


def prepare(config: RecordConfig, *, say: Callable[[str], None], dry: bool = False) -> Prepared:
    """Settle everything; make the data and bring the jars unless it is a dry run.

    Raises
    ------
    ConfigError, InputError
        The options do not fit each other, or name what is not there.
    MissingToolError
        A jar, tpchgen-cli, pyspark or Java cannot be had.
    """
    from workbench.spark import java

    sides = tuple(engines.sides(config.engines, config.labels, config.sides))
    engines.settings(config.conf)
    scale = config.scale if config.data is None or config.queries == "tpch" else None
    found = suite.find(config.queries, scale=scale)
    if config.comet_jar is not None and not any(side.engine == "comet" for side in sides):
        raise ConfigError("no side needs this jar", where="--comet-jar", found=str(config.comet_jar))
    java.environment()
    data = _data(config, scale, dry=dry, say=say)
    if config.queries == "tpch" and (missing := tables_of.lacks_tpch(data)):
        raise InputError("tables of TPC-H are missing", where="--data", found=missing)
    brought: dict[str, Path] = {}
    for side in sides:
        if side.artifact is not None and not dry:
            brought[side.label] = jars.resolve(side.artifact, given=config.comet_jar, say=say)
    return Prepared(config, found, data, sides, brought)


def _data(config: RecordConfig, scale: float | None, *, dry: bool, say: Callable[[str], None]) -> Data:
    if config.data is not None:
        return tables_of.given(config.data, scale=scale)
    if not config.local:
        raise ConfigError(
            "the workers of a cluster cannot read this machine's cache",
            where="--data",
            do="put the tables where they can, and name that place with --data URL",
        )
    if dry:
        return Data("", f"{tables_of.GENERATOR} {tables_of.generator_version()}", config.scale, {}, None)
    return tables_of.generated(config.scale, say=say)


def differences(earlier: Recording, now: Recording) -> list[str]:
    """Settings in which a recording that was begun differs from what is asked for now."""
    one, two = (recording.model_dump(mode="json") for recording in (earlier, now))
    one["versions"], two["versions"] = ({"pyspark": part["versions"].get("pyspark")} for part in (one, two))
    found: list[str] = []
    for name in (*SAME, "versions"):
        _differ(name, one[name], two[name], found)
    return found


def _differ(name: str, one: object, two: object, found: list[str]) -> None:
    if one == two:
        return
    if isinstance(one, dict) and isinstance(two, dict):
        for key in {**one, **two}:
            _differ(f"{name}.{key}", one.get(key), two.get(key), found)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for place, (left, right) in enumerate(zip(one, two, strict=True)):
            _differ(f"{name}[{place}]", left, right, found)
    else:
        found.append(f"{name}: {str(one)[:80]} then, {str(two)[:80]} now")
