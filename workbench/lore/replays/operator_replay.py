"""Replay a dump in this fresh process: check, verify, time, compare.

`workbench lore replay` is such a process; `workbench.lore.replay` starts one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from workbench import stats
from workbench.core.errors import ConfigError
from workbench.core.schema import StrictModel
from workbench.lore.dumps import bundles
from workbench.lore.dumps.dump_folder import Sidecar
from workbench.lore.dumps.dump_store import DumpStore
from workbench.lore.replays import output_verification, replay_variants, row_differences
from workbench.lore.replays.output_verification import OperatorRun
from workbench.lore.replays.replay_variants import (
    HADOOP_PREFIX,
    SERIAL_FILTER,
    ComparedSettings,
    ComparedSide,
    NotAcceleratedError,
    ReplayVariant,
    check_acceleration,
    check_settings_are_read,
    engine_settings,
    measure_variants,
    scan_inputs,
    variant_settings,
)
from workbench.lore.replays.row_differences import RowDifferences
from workbench.lore.replays.run_costs import CostMeter
from workbench.lore.spark_bridge import replay_session
from workbench.lore.spark_bridge.operator_isolation import (
    RebuiltOperator,
    describe_plan_shape,
    find_replan_refusal,
    list_join_names,
    rebuild_operator,
    replan_dumped_join,
)
from workbench.lore.spark_bridge.query_runs import describe_failure
from workbench.lore.spark_bridge.spark_internals import connect_bridge
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_PLAN_CHARS = 20_000


class SessionOptions(StrictModel):
    """Options of whatever loads a dump: trust and session."""

    trust: bool = Field(default=False, description="Load a dump that you did not sign; prints its contents first.")
    master: str = Field(default=replay_session.MASTER, description="Spark master URL.")
    driver_memory: str = Field(
        default=replay_session.DRIVER_MEMORY, pattern=r"^\d{1,6}[kmgt]$", description="Memory of the driver, like 4g."
    )


class VariantOptions(SessionOptions):
    """Options of every replay of a dumped operator: partition, settings of its variants, trust and session."""

    partition: int | None = Field(default=None, ge=0, description="Only this partition; all dumped ones by default.")
    confs: dict[str, str] = Field(default={}, description="A Spark setting; repeat.")
    confs_a: dict[str, str] = Field(default={}, description="Setting of side A; repeat.")
    confs_b: dict[str, str] = Field(default={}, description="Setting of side B; repeat.")
    engine: Literal["spark", "comet"] = Field(default="spark", description="spark; comet: side B is that engine.")

    @property
    def is_comparison(self) -> bool:
        """Are there two variants?"""
        return bool(self.confs_a or self.confs_b) or self.engine != "spark"


class ReplayOptions(VariantOptions):
    """Options of a replay."""

    repeat: int = Field(
        default=11,
        ge=0,
        le=1000,
        description="Timed runs, after the verified one: from 6 on at most, fewer where the time is tight before.",
    )
    tight: float = Field(
        default=replay_variants.TIGHT,
        gt=0,
        lt=1,
        description="Fraction of the time within which its interval is tight.",
    )
    budget_s: float = Field(
        default=replay_variants.BUDGET_S, gt=0, le=86_400, description="Seconds after which no further run is timed."
    )
    tolerance: float | None = Field(
        default=None, ge=0, lt=1, description="Relative difference up to which floats are equal."
    )
    replan: bool = Field(
        default=False, description="Plan the join anew on both sides, so that join and AQE settings are compared."
    )
    profile: Literal["jfr"] | None = Field(
        default=None, description="jfr: record the timed runs with Java Flight Recorder."
    )
    profile_to: Path | None = Field(default=None, description="File of the recording; lore.jfr by default.")


class ReplayResult(BaseModel):
    """Result of a replay, as one JSON document.

    `verification` has the fields of `output_verification.Verification`; `sides`, `timings` and `metrics` the rows of
    these tables; `plans` the executed plan by side; `comparison` tells whether both sides gave the same rows.
    `repeat`: Turns that were planned at most.
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
    repeat: int = 0
    comparison: dict[str, Any] | None = None
    not_accelerated: str | None = None
    profile: str | None = None
    notes: list[str] = []


ReportLine = Callable[[str], None]


def replay_dump(
    folder: str, options: ReplayOptions, *, report: ReportLine, on_progress: Callable[[int, int], None] | None = None
) -> ReplayResult:
    """Check, load, verify and time the operator of a dump.

    `report`: Called with the contents of an untrusted dump before it is loaded (`trust`).
    """
    if options.profile_to is not None and not options.profile_to.absolute().parent.is_dir():
        raise ConfigError(
            "no such folder", where="--profile-to", found=options.profile_to.parent, do="make it, or name another file"
        )
    with open_dump(folder, options, report=report) as dump:
        return _Replay(dump, options, on_progress).verify_and_measure()


@dataclass(frozen=True)
class OpenDump:
    """A checked dump, and the session to load it into.

    `local`: The checked folder loreId-N on this machine: the dump itself, unpacked, or a copy.
    `spark`: Fresh session with the class filter, before the dump's settings are applied.
    """

    url: str
    local: Path
    sidecar: Sidecar
    spark: SparkSession


def start_spark(options: VariantOptions) -> contextlib.AbstractContextManager[SparkSession]:
    """A session as a replay with these options needs it; inside `keep_session` its Spark stays for the next one."""
    settings = {
        "spark.driver.memory": options.driver_memory,
        **{key: value for key, value in options.confs.items() if key.startswith(HADOOP_PREFIX)},
        **engine_settings(options.engine),
    }
    return replay_session.fresh_session(
        master=options.master, settings=settings, also_allowed=SERIAL_FILTER.get(options.engine, "")
    )


@contextlib.contextmanager
def open_dump(folder: str, options: ReplayOptions, *, report: ReportLine) -> Iterator[OpenDump]:
    """Check a dump and start a session for it; temporary files and the session end with the context.

    Dumps on this machine are checked before the session starts.

    `folder`: loreId-N or a folder with one such in it, a bundle (.zip), a file: URL of either, or a URL that Hadoop
    knows.
    `options`: Uses partition, confs (only keys of file systems), engine, trust, master and driver_memory.
    `report`: Called with the contents of an untrusted dump before it is loaded (`trust`).
    """
    folder = bundles.strip_file_scheme(folder)
    is_remote = "://" in folder

    def check_dump(path: Path) -> Sidecar:
        return bundles.restrict_to_partition(
            trust_check.check_trust(path, trust=options.trust, report=report), options.partition
        )

    with contextlib.ExitStack() as stack:
        if not is_remote:
            local = stack.enter_context(bundles.open_local_dump(folder))
            sidecar = check_dump(local)
        spark = stack.enter_context(start_spark(options))
        if is_remote:
            local = stack.enter_context(bundles.copy_dump(DumpStore(connect_bridge(spark), folder)))
            sidecar = check_dump(local)
        yield OpenDump(folder if is_remote else str(local), local, sidecar, spark)


class _Replay:
    def __init__(self, dump: OpenDump, options: ReplayOptions, on_progress: Callable[[int, int], None] | None) -> None:
        self.sidecar, self.spark, self.options, self.on_progress = dump.sidecar, dump.spark, options, on_progress
        self.store = DumpStore(connect_bridge(dump.spark), dump.url)
        self.plan = (dump.local / "plan.meta").read_bytes()
        replay_session.apply_dump_settings(self.spark, self.sidecar)
        # Files are read in a session of its own, so that settings of a side do not affect reading.
        self.reader = connect_bridge(self.spark.newSession())
        replay_session.apply_dump_settings(self.reader.spark, self.sidecar)

    def verify_and_measure(self) -> ReplayResult:
        """Verify, then measure one or two variants."""
        settings = ComparedSettings(self.options.confs, self.options.confs_a, self.options.confs_b, self.options.engine)
        settings.check_keys(self.reader)
        self._check_replan()
        plain = self._build_variant("replay" if not self.options.is_comparison else "A", self.options.confs_a, "spark")
        first = plain.make()
        verification, run = output_verification.verify_replay(
            self.store, self.sidecar, first, tolerance=self.options.tolerance
        )
        result = ReplayResult(
            folder=self.store.url,
            lore_id=self.sidecar.lore_id,
            operator=self.sidecar.operator,
            operator_text=self.sidecar.operator_text,
            passed=verification.passed,
            answer=verification.answer,
            verification={**vars(verification), "word": verification.word},
            plans={plain.name: _format_plan(first)},
            notes=list(verification.note),
        )
        if run is None or verification.n_found is None:
            return result
        return (
            self._compare_variants(plain, first, run, settings, result)
            if self.options.is_comparison
            else self._measure_variants([plain], result)
        )

    def _check_replan(self) -> None:
        if not self.options.replan:
            return
        if not self.options.is_comparison or self.options.engine != "spark":
            raise ConfigError(
                "planning anew is for a comparison of settings of Spark",
                where="--replan",
                do="give --a or --b KEY=VALUE",
            )
        if reason := find_replan_refusal(self.sidecar.operator_class):
            raise ConfigError(
                "this operator cannot be planned anew",
                where="--replan",
                found=reason,
                do="dump the query again with --conf KEY=VALUE and compare both replays",
            )

    def _build_variant(
        self, name: str, confs: Mapping[str, str], engine: str, *, replan: bool = False
    ) -> ReplayVariant:
        """Rebuild the operator in a session of its own, so that two variants differ only in these settings."""
        # Keys of file systems are set at the start, and may be secret.
        settings = {
            key: value for key, value in {**self.options.confs, **confs}.items() if not key.startswith(HADOOP_PREFIX)
        }
        child = self.spark.newSession()
        replay_session.apply_dump_settings(
            child, self.sidecar, {**settings, **variant_settings(engine, self.options.engine)}
        )
        bridge = connect_bridge(child)
        store = DumpStore(bridge, self.store.url)

        def rebuild_variant() -> RebuiltOperator:
            if replan:
                return replan_dumped_join(store, self.sidecar, self.plan, bridge, reader=self.reader)
            return rebuild_operator(
                store, self.sidecar, self.plan, bridge, engine=engine != "spark", reader=self.reader
            )

        return ReplayVariant(name, rebuild_variant, settings if engine == "spark" else {**settings, "engine": engine})

    def _measure_variants(self, sides: list[ReplayVariant], result: ReplayResult) -> ReplayResult:
        """Add the timings of the sides to the result; unchanged if no repetition is wanted."""
        if not self.options.repeat:
            return result
        with replay_variants.record_profile(self.spark, self.options.profile, self.options.profile_to) as written:
            measured = measure_variants(
                sides,
                self.options.repeat,
                meter=CostMeter(self.reader, count_process=self.options.engine != "spark"),
                tight=self.options.tight,
                budget_s=self.options.budget_s,
                on_progress=self.on_progress,
            )
        ratio: stats.Interval | None = measured.ratio
        timing_documents = {
            "sides": measured.sides.to_dicts(),
            "timings": measured.timings.to_dicts(),
            "metrics": measured.metrics.to_dicts(),
            "ratio": None if ratio is None else vars(ratio),
            "verdict": measured.verdict,
            "repeat": self.options.repeat,
        }
        notes = list(result.notes)
        if ratio is not None and ratio.method == stats.EARLY_LOOK and replay_variants.is_decided(ratio):
            notes.append(f"the ratio was decided after {ratio.n} of at most {self.options.repeat} turns")
        return result.model_copy(update=timing_documents | {"profile": written, "notes": notes})

    def _compare_variants(
        self,
        plain: ReplayVariant,
        first: RebuiltOperator,
        verified: OperatorRun,
        settings: ComparedSettings,
        result: ReplayResult,
    ) -> ReplayResult:
        other = self._build_variant("B", self.options.confs_b, self.options.engine)
        second = other.make()
        result.plans["B"] = _format_plan(second)
        try:
            accelerated = check_acceleration(second, self.options.engine, self.sidecar.operator)
        except NotAcceleratedError as reason:
            answer = f"not compared: {self.options.engine} left the operator to Spark. {result.answer}"
            return result.model_copy(update={"passed": False, "not_accelerated": str(reason), "answer": answer})
        check_settings_are_read(
            settings,
            ComparedSide(first.bridge, plain.make, lambda: scan_inputs(first)),
            ComparedSide(second.bridge, other.make, lambda: scan_inputs(second)),
            dump=self.reader,
            operator=self.sidecar.operator,
            can_replan=find_replan_refusal(self.sidecar.operator_class) is None and self.options.engine == "spark",
            describe_plan=self._describe_replanned if self.options.replan else None,
        )
        if self.options.replan:
            plain, other = (
                self._build_variant(name, confs, "spark", replan=True)
                for name, confs in (("A", self.options.confs_a), ("B", self.options.confs_b))
            )
            first, second = plain.make(), other.make()
        try:
            is_verified = verified.is_whole and not self.options.replan
            run_a = verified if is_verified else output_verification.run_operator(first)
            run_b = output_verification.run_operator(second)
            comparison, notes = self._find_differences(first, run_a, run_b)
        except Exception as error:  # noqa: BLE001 - A succeeded, so a failure of B is the result
            failure = describe_failure(error)
            notes = [*result.notes, f"B failed: {failure}"]
            answer = f"A and B differ: B failed with {failure}. A: {result.answer}"
            return result.model_copy(update={"passed": False, "notes": notes, "answer": answer})
        passed = result.passed and bool(comparison["equal"])
        result = result.model_copy(
            update={"comparison": comparison, "passed": passed, "notes": [*result.notes, *notes]}
        )
        if self.options.replan:
            result.plans.update(A=_format_plan(first), B=_format_plan(second))
            joins = [" and ".join(list_join_names(operator.plan, operator.bridge)) for operator in (first, second)]
            result.notes.append(f"both sides are planned anew over the dumped rows: A is {joins[0]}, B is {joins[1]}")
        # The verified run was the first of this JVM: however long it took, it has warmed up nothing.
        plain = plain if is_verified else replace(plain, earlier_run_s=run_a.duration_s)
        other = replace(other, accelerated=accelerated, earlier_run_s=run_b.duration_s)
        measured = self._measure_variants([plain, other], result)
        return measured.model_copy(update={"answer": _format_comparison(measured)})

    def _describe_replanned(self, settings: Mapping[str, str]) -> str:
        """The plan of the join under these settings, once it has run: AQE decides while it runs."""
        over = self._build_variant("plan", settings, "spark", replan=True).make()
        with over.bridge.propagate_settings():
            over.output_rdd().count()
        return describe_plan_shape(over.plan)

    def _find_differences(
        self, first: RebuiltOperator, run_a: OperatorRun, run_b: OperatorRun
    ) -> tuple[dict[str, Any], list[str]]:
        """Compare the rows of both variants: the comparison, and its notes."""
        prints = [row_differences.merge_prints(run.prints) for run in (run_a, run_b)]
        equal = prints[0] == prints[1]
        apart, within = RowDifferences(), None
        notes: list[str] = []
        if not equal:
            with row_differences.carry_frame(run_b.frame, first.bridge.quiet_bridge()) as other:
                within, notes = self._compare_within_tolerance(
                    run_a.frame, other, max(fingerprint.n_rows for fingerprint in prints)
                )
                if within is None:
                    names = [str(attribute.name()) for attribute in first.attributes]
                    apart = row_differences.find_first_differences(run_a.frame, other, names=names)
        comparison = {
            "equal": equal or within is not None,
            "n_a": prints[0].n_rows,
            "n_b": prints[1].n_rows,
            "only_a": list(apart.first),
            "only_b": list(apart.second),
            "differing_column": apart.column,
            "differing_values": list(apart.values),
            "tolerance": within,
        }
        return comparison, notes

    def _compare_within_tolerance(
        self, first: DataFrame, second: DataFrame, n_rows: int
    ) -> tuple[float | None, list[str]]:
        """Tolerance within which both outputs are equal, null if they differ; and notes."""
        kinds = [kind.dataType.simpleString() for kind in first.schema.fields]
        tolerance = row_differences.choose_tolerance(self.sidecar.operator, kinds, self.options.tolerance)
        if tolerance is None:
            return None, []
        if n_rows > row_differences.MAX_CLOSE_ROWS:
            return None, [f"more than {row_differences.MAX_CLOSE_ROWS:,} rows: A and B were compared bit for bit"]
        if not row_differences.are_frames_close(first, second, tolerance):
            return None, []
        return tolerance, [f"A and B are not equal bit for bit, but within a relative tolerance of {tolerance:g}"]


def _format_plan(rebuilt: RebuiltOperator) -> str:
    return str(rebuilt.plan.toString())[:MAX_PLAN_CHARS]


def _format_comparison(result: ReplayResult) -> str:
    """The comparison in a sentence, then the verification of A."""
    compared = result.comparison
    assert compared is not None
    counts = f"{compared['n_a']} and {compared['n_b']}"
    if not compared["equal"]:
        first = f"A and B gave different rows: {counts}"
        if compared["differing_column"]:
            value, other = compared["differing_values"]
            first += f"; the first column that differs is {compared['differing_column']}, {value} and {other}"
    elif compared["tolerance"] is not None:
        first = f"A and B gave the same rows within a relative tolerance of {compared['tolerance']:g}: {counts}"
    else:
        first = f"A and B gave the same rows: {counts}"
    return f"{first}. A: {result.answer}"
