"""Plan of a recording: sides with their settings, suite, data, and the order of sessions and queries."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, PrivateAttr

from workbench import __version__
from workbench.core import files, host
from workbench.core.errors import ConfigError, InputError
from workbench.core.schema import StrictModel, read_model_file
from workbench.eventlog.log_redaction import remove_property_secrets
from workbench.spark import engine_jars, releases
from workbench.spark.engine_jars import class_path_settings
from workbench.spark.engines import RUNNABLE, Artifact
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import query_suite
from workbench.speedup.recording.benchmark_data import BENCHMARKS
from workbench.speedup.recording.query_session import SessionPlan
from workbench.speedup.recording.query_suite import QueryData, Suite

if TYPE_CHECKING:
    import polars as pl

FORMAT_VERSION = 1
JOURNAL = "recording.json"
MAX_JOURNAL_BYTES = 32 << 20
# Verdicts on an answer that let the query's executions count.
GOOD_VERDICTS = ("reference", "equal", "equal up to ties at the limit")
# Shares of the CPU that others may use during a session; more slows down the queries.
MAX_OTHER_LOAD = 0.1
# Tables kept instead of the logs.
FACTS_FOLDER = "facts"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,39}$"

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


def _check_relative_path(text: str) -> str:
    """Refuse a path that leaves the recording's folder."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in text or ":" in text or "\0" in text:
        raise ValueError("must be a path inside the recording's folder, relative to it")
    return text


class _JournalPart(StrictModel):
    model_config = ConfigDict(frozen=False)


class RecordedSuite(_JournalPart):
    """The queries."""

    name: str = Field(description="tpch, tpcds, or the name of the user's file or module.")
    queries: list[str] = Field(min_length=1, description="Their names, in the suite's order.")
    sha256: str = Field(description="Digest of names and texts.")


class Data(_JournalPart):
    """The tables that the queries read."""

    source: str = Field(description='Generator with its version, "folder", or the URL.')
    scale: float | None = Field(
        default=None, description="Scale factor of the benchmark; null for the user's own data."
    )
    views: list[str] = Field(default=[], description="Names of the tables; empty when only Spark can list them.")
    fingerprint: str | None = Field(default=None, description="Digest of names and sizes of the files; null for URLs.")


class Side(_JournalPart):
    """An engine with its settings."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    engine: str = Field(description="Engine, such as spark or comet.")
    spark: str | None = Field(default=None, description="Line of Spark, such as 4.1; null for the installed one.")
    settings: dict[str, str] = Field(description="Spark settings of this side only, without paths.")
    jar: str | None = Field(default=None, description="Name of the engine's jar.")
    jar_sha256: str | None = Field(default=None, description="Its digest.")


class Session(_JournalPart):
    """One fresh JVM of one side."""

    label: str = Field(pattern=LABEL, description="Name of the side.")
    session: int = Field(ge=1, description="Number within the side.")
    status: Literal["ok", "failed"] = Field(description="ok: all passes ran and the log is complete.")
    log: Annotated[str, AfterValidator(_check_relative_path)] | None = Field(
        description="Its event log, inside the folder; null for a failed session, and where facts are kept instead."
    )
    log_sha256: str | None = Field(default=None, description="Digest of the log's file.")
    n_passes: int = Field(ge=0, description="Complete passes.")
    n_failed: int = Field(default=0, ge=0, description="Executions that failed.")
    started_at: datetime = Field(description="UTC.")
    duration_s: float = Field(ge=0, description="Run time of the process.")
    load_per_core: float | None = Field(default=None, description="Load average of the minute before the start.")
    busy_share: float | None = Field(default=None, description="Share of the CPU in use just before the start.")
    other_cpu_share: float | None = Field(
        default=None, description="Share of the machine's CPU used by other programs while the queries ran."
    )
    steal_share: float | None = Field(default=None, description="Share of it taken by other virtual machines.")
    spark_version: str | None = None
    java_version: str | None = None
    warnings: list[str] = Field(default=[], description="Possible disturbances, and traces of the machine in the log.")
    error: str | None = Field(default=None, description="Why it failed.")

    @property
    def file_name(self) -> str:
        """Name of its log."""
        return f"{self.label}-s{self.session}.zstd"


class Recording(_JournalPart):
    """Content of `recording.json`; `folder` is the folder that holds it."""

    format_version: Literal[1] = 1
    created_at: datetime
    package_version: str
    suite: RecordedSuite
    data: Data
    seed: int
    n_sessions: int = Field(ge=1, description="Requested sessions per side.")
    n_passes: int = Field(ge=1, description="Passes per session.")
    power_run: bool = Field(default=False, description="Each query once in stream order, with its times in `power/`.")
    master: str
    settings: dict[str, str] = Field(description="Spark settings that all sides share.")
    scrubbed: bool
    sides: list[Side] = Field(min_length=1)
    sessions: list[Session] = Field(default=[])
    excluded: dict[str, dict[str, str]] = Field(
        default={}, description="Side to query to why its executions do not count: wrong answer, failed, …"
    )
    host: dict[str, Any] = Field(default={})
    versions: dict[str, str] = Field(default={})
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Folder of the recording."""
        return self._folder

    @property
    def labels(self) -> list[str]:
        """Names of the sides; the first is the baseline, and its answers are the reference."""
        return [side.label for side in self.sides]

    @property
    def complete(self) -> bool:
        """Whether all requested sessions have run."""
        good_keys = {(session.label, session.session) for session in self.sessions if session.status == "ok"}
        return len(good_keys) >= len(self.sides) * self.n_sessions

    def find_side(self, label: str) -> Side:
        """The side of this name."""
        named_side = next((side for side in self.sides if side.label == label), None)
        if named_side is None:
            raise InputError("no such side in the recording", where=self.folder, found=label, allowed=self.labels)
        return named_side

    def list_good_sessions(self, label: str | None = None) -> list[Session]:
        """The good sessions, in the order of sides and numbers."""
        order = {name: place for place, name in enumerate(self.labels)}
        sessions = [session for session in self.sessions if session.status == "ok" and label in (None, session.label)]
        return sorted(sessions, key=lambda session: (order[session.label], session.session))

    def iterate_logs(self, label: str | None = None) -> Iterator[tuple[str, int, Path]]:
        """Side, session number and event log of each good session whose log is kept, in the same order."""
        for session in self.list_good_sessions(label):
            if session.log:
                yield session.label, session.session, self.folder / session.log

    def list_bad_queries(self) -> set[str]:
        """Queries whose executions do not count on at least one side, and therefore in no pair."""
        return {query for queries in self.excluded.values() for query in queries}

    def read_executions(self) -> pl.DataFrame:
        """Table `executions` of the good sessions; empty if nothing was recorded."""
        import polars as pl

        from workbench.speedup import tables

        if not tables.RECORDED_EXECUTIONS.path(self.folder).exists():
            return tables.RECORDED_EXECUTIONS.frame([])
        # A crash may have left rows of a session that is not in the journal.
        keys = [{"label": session.label, "session": session.session} for session in self.list_good_sessions()]
        sessions = pl.DataFrame(keys, schema={"label": pl.String, "session": pl.Int64})
        return tables.RECORDED_EXECUTIONS.read(self.folder).join(sessions, on=["label", "session"], how="semi")

    def read_answers(self) -> pl.DataFrame:
        """Table `answers`."""
        from workbench.speedup import tables

        return tables.ANSWERS.read(self.folder)

    def write(self) -> None:
        """Write `recording.json` atomically."""
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_text(self._folder / JOURNAL, self.model_dump_json(indent=1) + "\n")

    def move_to(self, folder: Path) -> Recording:
        """Set the folder, and return the recording."""
        self._folder = folder
        return self


def load_recording(folder: str | Path) -> Recording:
    """Read a recording.

    Returns: Sides, sessions with their event logs (`iterate_logs()`), and queries that do not count (`excluded`,
    `list_bad_queries()`). Logs of good sessions exist inside the folder, symbolic links followed.
    """
    folder = Path(folder)
    path = folder / JOURNAL
    if not path.exists():
        do = "record one: workbench speedup record --engine spark --engine comet --out DIR"
        raise InputError("no recording here", where=folder, found=f"no {JOURNAL}", do=do)
    recording = read_model_file(
        Recording, path, noun="recording", max_bytes=MAX_JOURNAL_BYTES, max_version=FORMAT_VERSION
    ).move_to(folder)
    labels = recording.labels
    if len(set(labels)) != len(labels):
        raise InputError("a side is named twice", where=path, found=labels)
    seen: set[tuple[str, int]] = set()
    for session in recording.sessions:
        name = (session.label, session.session)
        if session.label not in labels or (session.status == "ok" and name in seen):
            raise InputError("sessions do not fit the sides", where=path, found=f"{name[0]} {name[1]}", allowed=labels)
        if session.status == "ok":
            seen.add(name)
    root = recording.folder.resolve()
    for label, number, log in recording.iterate_logs():
        if not log.exists():
            raise InputError("the event log of a session is missing", where=path, found=f"{label} {number}: {log.name}")
        if not log.resolve().is_relative_to(root):
            raise InputError("the event log of a session is outside the recording", where=path, found=str(log.name))
    return recording


@dataclass(frozen=True)
class RecordedSide:
    """Label, engine and line of Spark of a side, and its own settings."""

    label: str
    engine: str
    settings: dict[str, str] = field(default_factory=dict)
    spark: str | None = None

    @property
    def line_beside(self) -> str | None:
        """Its line of Spark; null for the installed one."""
        return None if self.spark == releases.get_installed_line() else self.spark

    @property
    def artifact(self) -> Artifact | None:
        """Jar of its engine; null for plain Spark."""
        return RUNNABLE[self.engine].get_artifact(self.spark)


def parse_sides(
    engines: Iterable[str], labels: Iterable[str], spelled: Iterable[str], line: str | None = None
) -> list[RecordedSide]:
    """The sides that the options name; the first is the baseline. `line`: Line of Spark of those that name none.

    >>> [side.label for side in parse_sides(["spark", "comet@4.1"], [], [])]
    ['spark', 'comet-4.1']
    >>> parse_sides([], [], ["aqe-off,spark.sql.adaptive.enabled=false"])[0].settings
    {'spark.sql.adaptive.enabled': 'false'}
    """
    engines, labels = list(engines), list(labels)
    if labels and len(labels) != len(engines):
        raise ConfigError("one label for each engine", where="--label", found=f"{len(labels)} for {len(engines)}")
    names = labels or [engine.replace("@", "-") for engine in engines]
    sides = [parse_side(f"{label}:{engine}") for engine, label in zip(engines, names, strict=True)]
    sides += [parse_side(text) for text in spelled]
    sides = [replace(side, spark=_choose_line(side.spark or line)) for side in sides]
    if not sides:
        raise ConfigError("nothing to record", where="--engine, --side", do="--engine spark --engine comet")
    for side in sides:
        if side.engine not in RUNNABLE:
            raise ConfigError(
                "unknown engine", where="--engine, --side", found=side.engine[:80], allowed=list(RUNNABLE)
            )
        if not re.fullmatch(LABEL, side.label):
            allowed = "letters, digits, _ . + -, at most 40, a letter or digit first"
            raise ConfigError("not a label", where="--label, --side", found=side.label[:80], allowed=allowed)
    names = [side.label for side in sides]
    if len({name.lower() for name in names}) != len(names):
        raise ConfigError(
            "two sides with the same label", where="--side, --label", found=names, do="give each its own --label"
        )
    return sides


def parse_side(text: str) -> RecordedSide:
    """A side from the text LABEL[:ENGINE[@LINE]][,key=value…]; values may hold commas."""
    # A comma starts a setting only before a key with =.
    head, *settings = re.split(r",(?=[A-Za-z][\w.]*=)", text)
    label, _, spelled = head.partition(":")
    engine, _, line = spelled.partition("@")
    return RecordedSide(label, engine or "spark", parse_settings(settings, where="--side"), line or None)


def _choose_line(line: str | None) -> str | None:
    """The line of Spark of a side: its own, else that of $WORKBENCH_SPARK, else the installed one."""
    if line is not None:
        return releases.check_line(line, where="--spark, --engine, --side")
    return releases.get_chosen_line() or releases.get_installed_line()


def parse_settings(pairs: Iterable[str], *, where: str = "--conf") -> dict[str, str]:
    """Parse texts KEY=VALUE to Spark settings.

    >>> parse_settings(["spark.sql.shuffle.partitions=8"])
    {'spark.sql.shuffle.partitions': '8'}
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.-]{1,200}", key):
            raise ConfigError("not a Spark setting", where=where, found=pair[:200], allowed="spark.some.key=value")
        if key.startswith(RECORDER_SETTINGS):
            raise ConfigError("the recorder sets this itself", where=where, found=key)
        settings[key] = value
    return settings


@dataclass(frozen=True)
class RecordingPlan:
    """Everything that the recording sessions need."""

    config: RecordConfig
    suite: Suite
    data: QueryData
    sides: tuple[RecordedSide, ...]
    jars: dict[str, Path]

    def find_side(self, label: str) -> RecordedSide:
        """The side of a label."""
        return next(side for side in self.sides if side.label == label)

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

    def build_side_settings(self, side: RecordedSide) -> dict[str, str]:
        """Spark settings of a side besides those of all: the engine's, unless `--conf` has them, and its own."""
        given = parse_settings(self.config.conf)
        of_engine = {key: value for key, value in (RUNNABLE[side.engine].settings or {}).items() if key not in given}
        return of_engine | side.settings

    def build_recording(self) -> Recording:
        """The journal of a recording without sessions."""
        sides = []
        for side in self.sides:
            jar = self.jars.get(side.label)
            sides.append(
                Side(
                    label=side.label,
                    engine=side.engine,
                    spark=side.line_beside,
                    settings=hide_secret_settings(self.build_side_settings(side)),
                    jar=jar.name if jar else None,
                    jar_sha256=files.hash_file(jar) if jar else None,
                )
            )
        data = self.data
        recording = Recording(
            created_at=datetime.now(UTC),
            package_version=__version__,
            suite=RecordedSuite(name=self.suite.name, queries=list(self.suite.queries), sha256=self.suite.sha256),
            data=Data(source=data.source, scale=data.scale, views=list(data.views), fingerprint=data.fingerprint),
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
        side = self.find_side(label)
        places = {"spark.sql.warehouse.dir": (folder / "warehouse").as_uri()}
        if self.config.local:
            places["spark.local.dir"] = str(scratch)
        jar = self.jars.get(label)
        return SessionPlan(
            folder=str(folder),
            app_name=f"{self.suite.name} {label} s{number}",
            master=self.config.master,
            settings=places | self.shared | self.build_side_settings(side) | (class_path_settings(jar) if jar else {}),
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

    sides = tuple(parse_sides(config.engines, config.labels, config.sides, config.spark))
    parse_settings(config.conf)
    benchmark = BENCHMARKS.get(config.queries)
    scale = config.scale if config.data is None or benchmark else None
    suite = benchmark.build_suite(scale, dry, say) if benchmark else query_suite.find_suite(config.queries)
    suite = suite.select(config.only)
    # Refuse a jar that no side needs, or that is for one of two lines of Spark.
    lines = {side.spark for side in sides if side.artifact is not None}
    if config.comet_jar is not None and len(lines) != 1:
        raise ConfigError(
            "no side needs this jar" if not lines else "a jar is for one line of Spark, and the sides have several",
            where="--comet-jar",
            found=str(config.comet_jar),
        )
    for line in {} if dry else dict.fromkeys(side.spark for side in sides):
        jvm.build_spark_environment(line, say=say)
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
    """Add to `differences` a line for each value that differs between two JSON documents.

    >>> differences: list[str] = []
    >>> _collect_difference("config", {"cores": 4}, {"cores": 8}, differences)
    >>> differences
    ['config.cores: 4 then, 8 now']
    """
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
