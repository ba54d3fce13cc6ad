"""Bisect the inputs of a failing or differing operator, and write the reduced dump."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from workbench.core.errors import ConfigError
from workbench.lore.bisection import input_search
from workbench.lore.bisection.input_search import (
    Frames,
    InputSearch,
    NotReproduced,
    OnProgress,
    OperatorVariant,
    OutputCheck,
    SearchJournal,
    SearchPredicate,
    build_check_predicate,
    build_difference_predicate,
    build_error_predicate,
)
from workbench.lore.bisection.row_subsets import InputSubset
from workbench.lore.dumps.dump_folder import SIDECAR_FILE, ZERO_COLUMN, ExpectedError, InputEntry, Output, Sidecar
from workbench.lore.dumps.dump_store import DumpStore, write_frame, write_meta_files, write_output_rows
from workbench.lore.dumps.operator_dump import collect_versions
from workbench.lore.replays import operator_replay, output_verification, row_differences
from workbench.lore.replays.replay_variants import (
    HADOOP_PREFIX,
    ComparedSettings,
    ComparedSide,
    NotAcceleratedError,
    check_acceleration,
    check_settings_are_read,
    variant_settings,
)
from workbench.lore.replays.row_differences import choose_display_names
from workbench.lore.spark_bridge import replay_session
from workbench.lore.spark_bridge.operator_isolation import (
    RebuiltOperator,
    build_stored_schema,
    is_one_to_one,
    rebuild_operator,
)
from workbench.lore.spark_bridge.query_runs import describe_failure
from workbench.lore.spark_bridge.spark_internals import Bridge, connect_bridge
from workbench.lore.trust import trust_check
from workbench.lore.trust.allow_lists import find_conf_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS = 1_000_000
KEEP_OUTPUT_ROWS = 100_000
MAX_STEPS = 2000
MAX_SHOWN_ROWS = 20
ReportLine = Callable[[str], None]


def check_target_is_empty(store: DumpStore) -> None:
    """Refuse a target that is not empty, before the search starts."""
    if not store.is_empty():
        raise ConfigError(
            "the folder is not empty", where="--out", found=store.url, do="choose a new folder for the reduced dump"
        )


@dataclass(frozen=True)
class ReducedDump:
    """A reduced dump to write."""

    sidecar: Sidecar
    plan: bytes
    subsets: Sequence[InputSubset]
    bridge: Bridge
    settings: Mapping[str, str]

    def list_refused_confs(self) -> list[str]:
        """Settings that a dump may not contain; verifying it needs them as --conf."""
        return sorted(key for key, value in self.settings.items() if find_conf_fault(key, value) is not None)

    def write_dump(self, target: DumpStore) -> DumpStore:
        """Write to a temporary folder below the target, then rename it to loreId-N; returns that folder."""
        name = f"loreId-{self.sidecar.lore_id}"
        scratch = f".{name}-{uuid.uuid4().hex[:12]}"
        store = target.subfolder(scratch)
        store.make_folder()
        try:
            entries = [self._write_input(store, subset) for subset in self.subsets]
            self._write_sidecar(store, entries)
            target.move(scratch, name)
        except BaseException:
            target.remove(scratch)
            raise
        return target.subfolder(name)

    def _partitions_to_write(self, subset: InputSubset) -> list[int]:
        """Numbers of the partitions to write; inputs that are read partition by partition have the same ones."""
        alike = [subset]
        if subset.entry.kind in ("rows", "columnar"):
            by_rows = [other for other in self.subsets if other.entry.kind in ("rows", "columnar")]
            alike = [other for other in by_rows if other.entry.n_partitions == subset.entry.n_partitions]
        numbers = sorted({number for other in alike for number in other.partitions_left()})
        return numbers or subset.entry.partitions[:1]

    def _write_input(self, store: DumpStore, subset: InputSubset) -> InputEntry:
        keep, old = self._partitions_to_write(subset), subset.entry
        folder = f"input-{old.index}"
        rdd = subset.bridge.internal_rows(subset.rows_frame(subset.rows))
        pruned = subset.bridge.prune_partitions(rdd, keep) if len(keep) < old.n_partitions else rdd
        schema = build_stored_schema(old.model_copy(update={"zero_columns": False}), subset.bridge)
        frame = subset.bridge.to_frame(pruned, schema)
        if old.zero_columns:
            frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
        batches, n_rows = write_frame(store, folder, frame, keep, batch_rows=BATCH_ROWS)
        sizes = store.list_sizes(folder)
        entry = old.model_copy(
            update={
                "partitions": keep,
                "batches": {str(number): batches.get(number, 0) for number in keep},
                "n_rows": n_rows,
                "n_bytes": sum(size for name, size in sizes.items() if name.endswith(".parquet")),
            }
        )
        write_meta_files(store, entry)
        return entry

    def _write_sidecar(self, store: DumpStore, entries: list[InputEntry]) -> None:
        """Write and sign the sidecar of the reduced dump, with its new inputs, settings and output fingerprint."""
        store.write_file("plan.meta", self.plan)
        taken = {key: value for key, value in self.settings.items() if key not in self.list_refused_confs()}
        conf = self.bridge.spark.conf
        sidecar = self.sidecar.model_copy(
            update={
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": collect_versions(self.bridge),
                "inputs": entries,
                "confs": dict(sorted({**self.sidecar.confs, **taken}.items())),
                "time_zone": str(conf.get("spark.sql.session.timeZone")),
                "ansi": str(conf.get("spark.sql.ansi.enabled")) == "true",
            }
        )
        sidecar = sidecar.model_copy(update={"output": self._fingerprint_output(store, sidecar)})
        sidecar = sidecar.model_copy(update={"files": store.list_entries(known={"plan.meta": self.plan})})
        store.write_file(SIDECAR_FILE, trust_check.sign_sidecar(sidecar).model_dump_json(indent=1).encode())

    def _fingerprint_output(self, store: DumpStore, sidecar: Sidecar) -> Output:
        """Output of the operator over the new files."""
        over = rebuild_operator(store, sidecar, self.plan, self.bridge)
        by_rows = [entry for entry in sidecar.inputs if entry.kind in ("rows", "columnar")]
        old = sidecar.output
        try:
            rdd = over.output_rdd()
            n_partitions = int(rdd.getNumPartitions())
            keep = list(range(n_partitions))
            if is_one_to_one(sidecar.operator, [entry.n_partitions for entry in by_rows], n_partitions):
                keep = sorted({number for entry in by_rows for number in entry.partitions})
            frame = self._output_frame(over, rdd, keep)
            prints = row_differences.fingerprint_partitions(frame, keep)
        except Exception as error:  # noqa: BLE001 - a replay must fail with the same error
            failure = describe_failure(error)
            expected = ExpectedError(**{name: getattr(failure, name) for name in ExpectedError.model_fields})
            return Output(columns=old.columns, n_partitions=old.n_partitions, fingerprint={}, error=expected)
        is_kept = 0 < sum(fingerprint.n_rows for fingerprint in prints.values()) <= KEEP_OUTPUT_ROWS
        is_kept = is_kept and write_output_rows(store, frame, keep, batch_rows=BATCH_ROWS)
        return Output(
            columns=old.columns,
            n_partitions=n_partitions,
            fingerprint={str(number): fingerprint for number, fingerprint in prints.items()},
            kept=is_kept,
        )

    def _output_frame(self, over: RebuiltOperator, rdd: Any, keep: list[int]) -> DataFrame:
        """Data frame of the output, with only the partitions to keep."""
        if len(keep) < int(rdd.getNumPartitions()):
            rdd = self.bridge.prune_partitions(rdd, keep)
        return row_differences.number_columns(self.bridge.quiet_bridge(), rdd, over.attributes)


class BisectOptions(operator_replay.VariantOptions):
    """Options of a bisection."""

    out: str | None = Field(default=None, description="Empty folder for the reduced dump, written to loreId-N.")
    check: str | None = Field(
        default=None,
        description="module:function or FILE.py:function of the output as a polars table: False or failing rows.",
    )
    sql_check: str | None = Field(default=None, description="SQL condition that only wrong rows of the output meet.")
    no_nulls: list[str] = Field(default=[], description="Column of the output without nulls; repeat.")
    unique: list[str] = Field(default=[], description="Column of a key without duplicates in the output; repeat.")
    row_count: Literal["same", "at-most"] | None = Field(
        default=None, description="Rows of the output compared with those of input-0."
    )
    journal: str | None = Field(
        default=None, description="File for the answers; a search that was killed continues from it."
    )
    max_steps: int = Field(default=MAX_STEPS, ge=1, le=1_000_000, description="Maximum number of trials.")
    show: int = Field(default=MAX_SHOWN_ROWS, ge=0, le=1000, description="Rows of each input to show.")

    def list_checks(self) -> list[OutputCheck]:
        """The checks of the output that are asked for."""
        checks: list[OutputCheck] = []
        if self.check:
            checks.append(input_search.check_by_function(input_search.load_user_check(self.check), self.check))
        if self.sql_check:
            checks.append(input_search.check_by_sql(self.sql_check))
        if self.no_nulls:
            checks.append(input_search.check_no_nulls(self.no_nulls))
        if self.unique:
            checks.append(input_search.check_unique(self.unique))
        if self.row_count:
            checks.append(input_search.check_row_count(self.row_count))
        if checks and self.is_comparison:
            raise ConfigError("a check looks at one side", where="--check", do="omit --a, --b and --engine")
        return checks

    def to_replay_options(self) -> operator_replay.ReplayOptions:
        """The shared options as those of a replay."""
        shared = operator_replay.VariantOptions.model_fields
        return operator_replay.ReplayOptions(**{name: getattr(self, name) for name in shared})


class BisectionResult(BaseModel):
    """Result of a bisection, as one JSON document.

    `reproduced`: Whether the whole dump, and then the reduced input, gave the failure or difference.
    `minimal`: Whether no single row can be left out. False when `max_steps` ended the search; null when nothing was
    reproduced.
    `inputs`: index, kind, n_rows_dumped, n_rows, n_partitions (with rows), rows (the first ones: partition, position
    in it, both as dumped, and values as JSON).
    `sides`: Outcome for the reduced input by side: an error, or a number of rows.
    `out`: Folder of the reduced dump; `verified` tells whether it passes `workbench lore verify`.
    """

    folder: str
    lore_id: int
    operator: str
    operator_text: str
    reproduced: bool
    minimal: bool | None = None
    answer: str
    looked_for: str
    steps: int
    inputs: list[dict[str, Any]] = []
    sides: dict[str, str] = {}
    only_a: list[str] = []
    only_b: list[str] = []
    out: str | None = None
    verified: bool | None = None
    notes: list[str] = []


def bisect_dump(
    folder: str, options: BisectOptions, *, report: ReportLine, on_progress: OnProgress | None = None
) -> BisectionResult:
    """Find the smallest input with which a dumped operator fails as it did, or two sides differ.

    `report`: Called with the contents of an untrusted dump before it is loaded (`trust`).
    """
    with operator_replay.open_dump(folder, options.to_replay_options(), report=report) as dump:
        return _Bisection(dump, options).search_and_write(on_progress)


class _Bisection:
    def __init__(self, dump: operator_replay.OpenDump, options: BisectOptions) -> None:
        # Keys of file systems are set at the start, and may be secret.
        self.confs = {key: value for key, value in options.confs.items() if not key.startswith(HADOOP_PREFIX)}
        self.spark, self.sidecar, self.options = dump.spark, dump.sidecar, options
        self.checks = options.list_checks()
        self.settings = ComparedSettings(options.confs, options.confs_a, options.confs_b, options.engine)
        self.settings.check_keys(connect_bridge(self.spark))
        self.plan = (dump.local / "plan.meta").read_bytes()
        replay_session.apply_dump_settings(self.spark, self.sidecar, self.confs)
        self.base = self._new_session({}, "spark").quiet_bridge()
        self.store = DumpStore(self.base, dump.url)
        self.target = None if options.out is None else DumpStore(self.base, options.out)
        if self.target is not None:
            check_target_is_empty(self.target)

    def _new_session(self, confs: Mapping[str, str], engine: str) -> Bridge:
        """A separate session, so that sides differ only in these settings."""
        child = self.spark.newSession()
        settings = {**self.confs, **confs, **variant_settings(engine, self.options.engine)}
        replay_session.apply_dump_settings(child, self.sidecar, settings)
        return connect_bridge(child)

    def search_and_write(self, on_progress: OnProgress | None) -> BisectionResult:
        """Check the whole input, shrink it, check again, write the reduced dump.

        A is the operator on Spark; B, only in a comparison, the one with the other settings or engine. `subsets` hold
        the rows that are left of each input, and the search changes them. Nothing is written without a target, nor
        where the rows found do not reproduce.
        """
        options, sidecar = self.options, self.sidecar
        a = OperatorVariant(self._new_session(options.confs_a, "spark"), sidecar, self.plan, "spark")
        b = None
        if options.is_comparison:
            b = OperatorVariant(self._new_session(options.confs_b, options.engine), sidecar, self.plan, options.engine)
        subsets = [InputSubset(entry, self.store, self.base) for entry in sidecar.inputs]
        input_frames = {index: subset.rows_frame(subset.rows) for index, subset in enumerate(subsets)}
        predicate = self._build_predicate(a, b, input_frames)
        if isinstance(predicate, NotReproduced):
            return self._build_result(False, f"not reproduced: {predicate.reason}", predicate.looked_for, 0)
        with self._open_journal(predicate) as journal:
            search = InputSearch(subsets, predicate.holds, options.max_steps, on_progress, journal)
            search.shrink_inputs()
        result = self._describe_found(search, predicate, a, b)
        if journal is not None and journal.n_resumed:
            note = f"{journal.n_resumed} of {search.steps} answers are answers of the journal"
            result = result.model_copy(update={"notes": [*result.notes, note]})
        return result if self.target is None or not result.reproduced else self._write_reduced_dump(result, subsets, a)

    def _open_journal(self, predicate: SearchPredicate) -> contextlib.AbstractContextManager[SearchJournal | None]:
        if self.options.journal is None:
            return contextlib.nullcontext()
        identity = {"dump": self.sidecar.hmac or self.sidecar.plan_hash, "looked_for": predicate.looked_for}
        return SearchJournal(Path(self.options.journal), identity)

    def _build_predicate(
        self, a: OperatorVariant, b: OperatorVariant | None, input_frames: Frames
    ) -> SearchPredicate | NotReproduced:
        if self.checks:
            return self._build_check_predicate(a, input_frames)
        if b is None:
            return build_error_predicate(a, self.sidecar, input_frames)
        try:
            check_acceleration(b.rebuild_over(input_frames), self.options.engine, self.sidecar.operator)
        except NotAcceleratedError as reason:
            return NotReproduced("different outputs of A and B", f"not accelerated: {reason}")
        check_settings_are_read(
            self.settings,
            self._build_side(a, input_frames),
            self._build_side(b, input_frames),
            dump=self.base,
            operator=a.name,
        )
        return build_difference_predicate(a, b, input_frames)

    def _build_check_predicate(self, a: OperatorVariant, input_frames: Frames) -> SearchPredicate | NotReproduced:
        columns = choose_display_names(a.column_names)
        wanted = [*self.options.no_nulls, *self.options.unique]
        if unknown := [name for name in wanted if name.lower() not in {column.lower() for column in columns}]:
            raise ConfigError(
                "the output has no such column", where="--no-nulls, --unique", found=unknown, allowed=columns[:50]
            )
        try:
            return build_check_predicate(a, self.checks, input_frames)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                "the check cannot be done on the output of the whole input",
                where="--check, --sql-check",
                found=str(describe_failure(error))[:500],
                allowed=columns[:50],
                do="use the columns of the output; where the operator itself fails, search without a check",
            ) from error

    def _build_side(self, side: OperatorVariant, input_frames: Frames) -> ComparedSide:
        return ComparedSide(
            side.bridge,
            lambda: side.rebuild_over(input_frames),
            lambda: [frame.count() for frame in input_frames.values()],
        )

    def _build_result(self, reproduced: bool, answer: str, looked_for: str, steps: int) -> BisectionResult:
        return BisectionResult(
            folder=self.store.url,
            lore_id=self.sidecar.lore_id,
            operator=self.sidecar.operator,
            operator_text=self.sidecar.operator_text,
            reproduced=reproduced,
            answer=answer,
            looked_for=looked_for,
            steps=steps,
        )

    def _describe_found(
        self, search: InputSearch, predicate: SearchPredicate, a: OperatorVariant, b: OperatorVariant | None
    ) -> BisectionResult:
        frames = search.remaining_frames()
        again = predicate.holds(frames)
        outcomes = (
            {"replay": a.run_to_outcome(frames)}
            if b is None
            else {"A": a.run_to_outcome(frames), "B": b.run_to_outcome(frames)}
        )
        only_a: tuple[str, ...] = ()
        only_b: tuple[str, ...] = ()
        if b is not None and not any(outcome.failure for outcome in outcomes.values()):
            # Run both variants over the same rows and return the first differing rows of each; empty if there are none.
            with row_differences.carry_frame(b.run_to_frame(frames), a.bridge.quiet_bridge()) as other:
                apart = row_differences.find_first_differences(a.run_to_frame(frames), other, names=a.column_names)
                only_a, only_b = apart.first, apart.second
        return self._build_result(again, _format_answer(search, again), predicate.looked_for, search.steps).model_copy(
            update={
                "minimal": not search.stopped if again else None,
                "inputs": [_describe_subset(subset, self.options.show) for subset in search.subsets],
                "sides": {name: str(outcome) for name, outcome in outcomes.items()},
                "only_a": list(only_a),
                "only_b": list(only_b),
                "notes": [*predicate.notes, *([self.sidecar.masked] if self.sidecar.masked else [])],
            }
        )

    def _write_reduced_dump(
        self, result: BisectionResult, subsets: Sequence[InputSubset], side: OperatorVariant
    ) -> BisectionResult:
        assert self.target is not None
        settings = {**self.confs, **self.options.confs_a}
        smaller = ReducedDump(self.sidecar, self.plan, subsets, side.bridge, settings)
        store = smaller.write_dump(self.target)
        update: dict[str, Any] = {"out": store.url, "verified": None}
        if (local := store.local_path()) is not None:
            sidecar = trust_check.check_trust(local)
            over = rebuild_operator(store, sidecar, self.plan, side.bridge)
            verification, _ = output_verification.verify_replay(store, sidecar, over)
            update["verified"] = verification.passed
        if left_out := smaller.list_refused_confs():
            note = f"settings that a dump may not contain are skipped; verify it with --conf: {', '.join(left_out)}"
            update["notes"] = [*result.notes, note]
        return result.model_copy(update=update)


def _format_answer(search: InputSearch, again: bool) -> str:
    pairs = ((len(subset.rows), subset.n_rows_dumped) for subset in search.subsets)
    parts = " and ".join(f"{n_rows} of {dumped}" for n_rows, dumped in pairs)
    if not again:
        return f"not reproduced: {parts} rows gave it once and then not, so it depends on more than the input"
    if search.stopped:
        return f"reproduced with {parts} rows; stopped after {search.steps} steps, so fewer may do"
    return f"reproduced with {parts} rows, all of which are needed"


def _describe_subset(subset: InputSubset, max_rows: int) -> dict[str, Any]:
    return {
        "index": subset.entry.index,
        "kind": subset.entry.kind,
        "n_rows_dumped": subset.n_rows_dumped,
        "n_rows": len(subset.rows),
        "n_partitions": len(subset.partitions_left()),
        "rows": subset.list_first_rows(max_rows) if max_rows else [],
    }
