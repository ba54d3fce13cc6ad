"""A dump replayed in this process, which must be a fresh one: checked, verified, timed, compared.

`workbench lore replay` is such a process; `workbench.lore.replay` starts one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench import stats
from workbench.errors import ConfigError
from workbench.lore import fingerprint, measuring, opening, session, trust, verifying
from workbench.lore.bridge import bridge
from workbench.lore.engines import SERIAL_FILTER, NotAccelerated, engine_settings, require_accelerated, switched
from workbench.lore.failure import failure_of
from workbench.lore.measuring import Measured, Side, measure
from workbench.lore.rebuild import Rebuilt, rebuild
from workbench.lore.sidecar import Sidecar
from workbench.lore.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLAN_CHARS = 20_000
HADOOP = "spark.hadoop."
# Both sides come to the driver for it.
MAX_CLOSE_ROWS = 200_000


class Options(BaseModel):
    """What a replay may be told."""

    model_config = ConfigDict(extra="forbid")

    partition: int | None = Field(default=None, ge=0, description="Only this one; all that were dumped when null.")
    repeat: int = Field(default=5, ge=0, le=1000, description="Timed runs, after the one that is verified.")
    confs: dict[str, str] = Field(default={}, description="Settings of all sides.")
    confs_a: dict[str, str] = Field(default={}, description="Settings of side A.")
    confs_b: dict[str, str] = Field(default={}, description="Settings of side B.")
    engine: Literal["spark", "comet"] = Field(default="spark", description="comet: side B is that engine.")
    tolerance: float | None = Field(default=None, ge=0, lt=1, description="Relative; floats this close are equal.")
    trust: bool = Field(default=False, description="Load what another user signed, or nobody.")
    master: str = session.MASTER
    driver_memory: str = Field(default=session.DRIVER_MEMORY, pattern=r"^\d{1,6}[kmgt]$")
    profile: Literal["jfr"] | None = Field(default=None, description="Record the timed runs.")
    profile_to: Path | None = None

    @property
    def is_comparison(self) -> bool:
        """Are there two sides?"""
        return bool(self.confs_a or self.confs_b) or self.engine != "spark"


class Replayed(BaseModel):
    """What a replay found; one JSON document.

    `verification` is that of `verifying.Verification`; `sides`, `timings` and `metrics` hold the rows of the tables of
    these names; `plans` the plan as it ran, by side; `comparison` says whether both sides gave the same rows.
    """

    folder: str
    lore_id: int
    operator: str
    operator_text: str
    passed: bool
    answer: str
    verification: dict[str, Any]
    sides: list[dict[str, Any]] = []
    timings: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    plans: dict[str, str] = {}
    ratio: dict[str, Any] | None = None
    verdict: str | None = None
    comparison: dict[str, Any] | None = None
    not_accelerated: str | None = None
    profile: str | None = None
    notes: list[str] = []


Report = Callable[[str], None]


def replay(
    folder: str, options: Options, *, report: Report, told: Callable[[int, int], None] | None = None
) -> Replayed:
    """Check, load, verify and time the operator of a dump.

    Parameters
    ----------
    folder
        loreId-N: a folder, a bundle (.zip), or a URL that Hadoop knows.
    options
        See `Options`.
    report
        Told, with `trust`, what will be loaded before it is.

    Raises
    ------
    InputError, ConfigError
        It is no dump, does not hold, may not be trusted, or cannot be replayed here.
    """
    if options.profile_to is not None and not options.profile_to.absolute().parent.is_dir():
        raise ConfigError("no such folder", where="--profile-to", found=options.profile_to.parent)
    with opened(folder, options, report=report) as dump:
        return _Replay(dump, options, told).run()


@dataclass(frozen=True)
class Opened:
    """A dump that was checked, and the session that it may be loaded into.

    Attributes
    ----------
    url
        Where executors read it.
    local
        The folder loreId-N on this machine that was checked: itself, unpacked, or a copy.
    sidecar
        As if nothing but the chosen partition had been dumped.
    spark
        Fresh, and its classes filtered; not like the dump yet.
    """

    url: str
    local: Path
    sidecar: Sidecar
    spark: SparkSession


@contextlib.contextmanager
def opened(folder: str, options: Options, *, report: Report) -> Iterator[Opened]:
    """Check a dump, and start the session for it; both end with the context, as does what was unpacked or copied.

    What lies on this machine is refused before a session is started.

    Parameters
    ----------
    folder
        loreId-N or a folder with one such in it, a bundle (.zip), a file: URL of either, or a URL that Hadoop knows.
    options
        Of these partition, confs (keys of file systems alone), engine, trust, master and driver_memory.
    report
        Told, with `trust`, what will be loaded before it is.

    Raises
    ------
    InputError, ConfigError
        It is no dump, does not hold, may not be trusted, or holds no such partition.
    """
    folder = opening.without_scheme(folder)
    is_remote = "://" in folder
    settings = {
        "spark.driver.memory": options.driver_memory,
        **{key: value for key, value in options.confs.items() if key.startswith(HADOOP)},
        **engine_settings(options.engine),
    }

    def checked(path: Path) -> Sidecar:
        return opening.chosen(trust.check(path, trust=options.trust, report=report), options.partition)

    with contextlib.ExitStack() as stack:
        if not is_remote:
            local = stack.enter_context(opening.here(folder))
            sidecar = checked(local)
        spark = stack.enter_context(
            session.fresh(master=options.master, settings=settings, also_allowed=SERIAL_FILTER.get(options.engine, ""))
        )
        if is_remote:
            local = stack.enter_context(opening.copied(Store(bridge(spark), folder)))
            sidecar = checked(local)
        yield Opened(folder if is_remote else str(local), local, sidecar, spark)


class _Replay:
    def __init__(self, dump: Opened, options: Options, told: Callable[[int, int], None] | None) -> None:
        self.sidecar, self.spark, self.options, self.told = dump.sidecar, dump.spark, options, told
        self.store = Store(bridge(dump.spark), dump.url)
        self.plan = (dump.local / "plan.meta").read_bytes()
        session.like_the_dump(self.spark, self.sidecar)

    def run(self) -> Replayed:
        """Verify, then measure one side or two."""
        plain = self._side("replay" if not self.options.is_comparison else "A", self.options.confs_a, "spark")
        first = plain.make()
        found = verifying.verify(self.store, self.sidecar, first, tolerance=self.options.tolerance)
        result = Replayed(
            folder=self.store.url,
            lore_id=self.sidecar.lore_id,
            operator=self.sidecar.operator,
            operator_text=self.sidecar.operator_text,
            passed=found.passed,
            answer=found.answer,
            verification=vars(found),
            plans={plain.name: _text(first)},
            notes=list(found.note),
        )
        if found.n_found is None:
            return result
        return self._compare(plain, first, result) if self.options.is_comparison else self._timed([plain], result)

    def _side(self, name: str, confs: Mapping[str, str], engine: str) -> Side:
        """The operator in a session of its own, so that two sides differ in nothing but these settings."""
        # Keys of file systems hold since the start, and may be secret.
        settings = {key: value for key, value in {**self.options.confs, **confs}.items() if not key.startswith(HADOOP)}
        child = self.spark.newSession()
        session.like_the_dump(child, self.sidecar, {**settings, **switched(engine, self.options.engine)})
        found = bridge(child)
        store = Store(found, self.store.url)

        def make() -> Rebuilt:
            return rebuild(store, self.sidecar, self.plan, found, engine=engine != "spark")

        return Side(name, make, settings if engine == "spark" else {**settings, "engine": engine})

    def _timed(self, sides: list[Side], result: Replayed) -> Replayed:
        if not self.options.repeat:
            return result
        with measuring.profiled(self.spark, self.options.profile, self.options.profile_to) as written:
            measured = measure(sides, self.options.repeat, told=self.told)
        return result.model_copy(update=_documents(measured) | {"profile": written})

    def _compare(self, plain: Side, first: Rebuilt, result: Replayed) -> Replayed:
        other = self._side("B", self.options.confs_b, self.options.engine)
        second = other.make()
        result.plans["B"] = _text(second)
        try:
            accelerated = require_accelerated(second, self.options.engine, self.sidecar.operator)
        except NotAccelerated as reason:
            return result.model_copy(update={"passed": False, "not_accelerated": str(reason)})
        try:
            comparison, notes = self._differences(first, second)
        except Exception as error:  # noqa: BLE001 - A ran before; whatever B dies of is the answer
            notes = [*result.notes, f"B failed: {failure_of(error)}"]
            return result.model_copy(update={"passed": False, "notes": notes})
        passed = result.passed and bool(comparison["equal"])
        result = result.model_copy(
            update={"comparison": comparison, "passed": passed, "notes": [*result.notes, *notes]}
        )
        sides = [plain, Side(other.name, other.make, other.settings, accelerated)]
        return self._timed(sides, result)

    def _differences(self, first: Rebuilt, second: Rebuilt) -> tuple[dict[str, Any], list[str]]:
        """Do both sides give the same rows? And what to know of the answer."""
        frames = []
        for one in (first, second):
            frames.append(fingerprint.numbered(one.bridge.quiet(), one.rdd(), one.attributes))
        prints = [fingerprint.total(fingerprint.of(frame)) for frame in frames]
        equal = prints[0] == prints[1]
        only_a: tuple[str, ...] = ()
        only_b: tuple[str, ...] = ()
        notes: list[str] = []
        if not equal:
            with verifying.carried(frames[1], first.bridge.quiet()) as other:
                equal, notes = self._within(frames[0], other, max(one.n_rows for one in prints))
                if not equal:
                    only_a, only_b = verifying.first_differences(frames[0], other)
        found = {
            "equal": equal,
            "n_a": prints[0].n_rows,
            "n_b": prints[1].n_rows,
            "only_a": list(only_a),
            "only_b": list(only_b),
        }
        return found, notes

    def _within(self, first: DataFrame, second: DataFrame, n_rows: int) -> tuple[bool, list[str]]:
        """Are the two sides equal within the tolerance that was asked for?"""
        tolerance = self.options.tolerance
        if tolerance is None:
            return False, []
        if n_rows > MAX_CLOSE_ROWS:
            return False, [f"more than {MAX_CLOSE_ROWS:,} rows: A and B were compared bit for bit"]
        if not verifying.close(first, second, tolerance):
            return False, []
        return True, [f"A and B are not equal bit for bit, but within a relative tolerance of {tolerance:g}"]


def _text(rebuilt: Rebuilt) -> str:
    return str(rebuilt.plan.toString())[:PLAN_CHARS]


def _documents(measured: Measured) -> dict[str, Any]:
    ratio: stats.Interval | None = measured.ratio
    return {
        "sides": measured.sides.to_dicts(),
        "timings": measured.timings.to_dicts(),
        "metrics": measured.metrics.to_dicts(),
        "ratio": None if ratio is None else vars(ratio),
        "verdict": measured.verdict,
    }
