"""Dump of chosen operators: their inputs, plan, expected output and sidecar.

Post-hoc: inputs are recomputed from the last shuffle files. A dump gets its final name when it is complete: an
interrupted one leaves a hidden folder that is never loaded.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.lore.dump_reader.function_modules import select_missing_modules
from workbench.lore.dump_reader.java_stream import list_class_names
from workbench.lore.dump_reader.meta_files import parse_plan_meta
from workbench.lore.dumps.dump_folder import (
    SIDECAR_FILE,
    SUBTREE_PREFIX,
    ZERO_COLUMN,
    ExpectedError,
    InputColumn,
    InputEntry,
    Output,
    Sidecar,
    Versions,
)
from workbench.lore.dumps.dump_store import DumpStore, cap_size, write_frame, write_meta_files, write_output_rows
from workbench.lore.replays import row_differences
from workbench.lore.spark_bridge import operator_isolation
from workbench.lore.spark_bridge.masked_literals import check_literals
from workbench.lore.spark_bridge.operator_inputs import (
    MASKED_NOTE,
    ColumnMasks,
    MaskMethod,
    OperatorInput,
    choose_stored_names,
    count_integer_bits,
    execute_plan,
    list_inputs,
    open_masking_key,
    operator_output_rdd,
)
from workbench.lore.spark_bridge.operator_isolation import (
    assemble_operator,
    cut_subtree,
    is_one_to_one,
    is_subtree_input,
    read_input_rows,
)
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree
from workbench.lore.spark_bridge.query_runs import describe_failure, find_unrepeatable_part, sees_partition_number
from workbench.lore.spark_bridge.spark_internals import Bridge, job_description, run_in_threads
from workbench.lore.trust import allow_lists, trust_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from workbench.lore.config import DumpSettings


@dataclass
class DumpResult:
    """Result of a dump.

    `operators`: Names of what was dumped, by id.
    `failures`: Errors of those that fail over their inputs, by id.
    `refused`: Reasons of the ids that were left out, by id; only in non-strict mode.
    """

    folders: dict[int, str] = field(default_factory=dict)
    operators: dict[int, str] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def dump_plan(tree: PlanTree, settings: DumpSettings) -> DumpResult:
    """Dump the chosen operators of a final plan."""
    result = DumpResult()
    store = DumpStore(tree.bridge, settings.path)
    if not store.is_empty() and settings.strict:
        raise ConfigError(
            "the dump path is not empty", where="dumpPath", found=settings.path, do="name a new folder for each dump"
        )
    with open_masking_key(tree.bridge) if settings.mask else nullcontext("") as key:
        for lore_id, selection in settings.ids.items():
            try:
                node = tree.find_node(lore_id)
                dump = OperatorDump(tree, node, selection.partitions, store, settings, key)
                with job_description(tree.bridge, f"lore dump, loreId {lore_id}"):
                    result.folders[lore_id] = dump.write_dump()
                result.operators[lore_id] = dump.name
                if dump.failure is not None:
                    result.failures[lore_id] = dump.failure
                result.warnings += [*dump.masking.warnings, *dump.list_run_warnings()]
            except Exception as error:
                if settings.strict:
                    raise
                reason = str(error) if isinstance(error, WorkbenchError) else f"failed: {describe_failure(error)}"
                result.refused[lore_id] = reason.replace("\n", ";")
    return result


@dataclass(frozen=True)
class PreparedInput:
    """An input ready to be written.

    `operator_input`, `attributes`: The input and its attributes, without the columns that are left out.
    """

    operator_input: OperatorInput
    attributes: list[Any]
    rdd: Any
    keep: list[int]
    n_partitions: int
    names: list[str]
    masks: dict[str, str]


class OperatorDump:
    """Dump of one operator."""

    def __init__(
        self,
        tree: PlanTree,
        node: PlanNode,
        partitions: Iterable[int] | None,
        store: DumpStore,
        settings: DumpSettings,
        key: str,
    ) -> None:
        self.tree, self.node, self.settings = tree, node, settings
        self.chosen = None if partitions is None else sorted(partitions)
        self.bridge = tree.bridge
        self.quiet = self.bridge.quiet_bridge()
        self.masking = ColumnMasks(settings, key, count_integer_bits(tree, settings.mask))
        self.final = f"loreId-{node.lore_id}"
        self.scratch = f".{self.final}-{uuid.uuid4().hex[:12]}"
        self.parent = store
        self.unrepeatable: str | None = None
        self.uncompared: str | None = None
        self.failure: str | None = None
        self.missing_modules: list[str] = []
        self.plan: Any = node.java
        self.store = store.subfolder(self.scratch)

    @property
    def name(self) -> str:
        """Name of the operator; that of a subtree says so."""
        return self.node.name if self.settings.subtree is None else f"{SUBTREE_PREFIX}{self.node.name}"

    def write_dump(self) -> str:
        """Write the dump under a temporary name, then rename it; returns its URL."""
        if self.parent.exists(self.final):
            raise ConfigError(
                "this id is already dumped there", where=self.parent.url, found=self.final, do="name a new folder"
            )
        if self.settings.subtree is None:
            self.plan, sources = self.node.java, list_inputs(self.node, self.bridge)
        else:
            self._check_subtree_settings()
            self.plan, sources = cut_subtree(self.node, self.settings.subtree, self.bridge)
        parts = (find_unrepeatable_part(operator_input.source, self.bridge) for operator_input in sources)
        self.unrepeatable = next((part for part in parts if part), None)
        self.masking.check_columns(self.node, sources, self.bridge)
        if masked_ids := self.masking.list_masked_ids(sources, self.bridge):
            kind = self.settings.subtree
            is_input = (lambda _: True) if kind is None else partial(is_subtree_input, kind=kind)
            check_literals(self.plan, masked_ids, self.bridge, is_input=is_input)
        self.store.make_folder()
        try:
            with cap_size(self.store, self.settings.max_bytes):
                prepared = [self._prepare_input(index, operator_input) for index, operator_input in enumerate(sources)]
                plan = self._serialize_plan(prepared)
                self._check_loadable(plan)
                if any(True for _ in operator_isolation.iter_python_functions(self.plan, self.bridge)):
                    functions = parse_plan_meta(plan, Path("plan.meta")).functions
                    self.missing_modules = select_missing_modules(name for one in functions for name in one.modules)
                entries, output = self._write_parts(plan, prepared)
            self._write_sidecar(plan, entries, output)
            self.failure = None if output.error is None else f"{output.error.error_class}: {output.error.message}"
            self.parent.move(self.scratch, self.final)
        except BaseException:
            self.parent.remove(self.scratch)
            raise
        return str(self.parent.hadoop_path(self.final).toString())

    def _serialize_plan(self, prepared: list[PreparedInput]) -> bytes:
        inputs = [prepared_input.operator_input for prepared_input in prepared]
        if self.settings.subtree is None:
            return operator_isolation.serialize_plan_meta(self.plan, inputs, self.bridge)
        is_input = partial(is_subtree_input, kind=self.settings.subtree)
        return operator_isolation.serialize_plan_meta(self.plan, inputs, self.bridge, is_input=is_input)

    def _check_subtree_settings(self) -> None:
        flags = {"partitions": self.chosen is not None, "--columns": bool(self.settings.columns)}
        if conflicts := [name for name, is_given in flags.items() if is_given]:
            raise ConfigError(
                "a subtree is dumped with all partitions and columns, since operators inside it need them",
                where="--subtree",
                found=conflicts,
                do=f"choose {self.node.lore_id}[*], and hide columns with --mask",
            )

    def list_run_warnings(self) -> list[str]:
        """Warn that the rows of this dump may not be those of the original run, where they differ from run to run."""
        notes = [] if self.uncompared is None else [f"loreId {self.node.lore_id}: {self.uncompared}"]
        if self.missing_modules:
            imports = f"its Python functions import {', '.join(self.missing_modules)}, which the dump does not have"
            do = "put the folder of the file on PYTHONPATH where you replay it"
            notes.append(f"loreId {self.node.lore_id}: {imports}: {do}")
        if self.chosen is not None and sees_partition_number(self.plan, self.bridge):
            numbers = "arguments of its Python functions may hang on the number of the partition"
            notes.append(f"loreId {self.node.lore_id}: {numbers}, which is another one where not all are dumped")
        if self.unrepeatable is None:
            return notes
        return [
            *notes,
            f"loreId {self.node.lore_id}: {self.unrepeatable} below it may give other rows in each run. Inputs and "
            "expected output of this dump belong together, but may not be those of the original run; --mode inline "
            "takes these",
        ]

    def _write_parts(self, plan: bytes, prepared: list[PreparedInput]) -> tuple[list[InputEntry], Output]:
        """Write the inputs and fingerprint the output."""
        writing = [partial(self._write_input, index, prepared_input) for index, prepared_input in enumerate(prepared)]
        # Blocks of other executors arrive in any order. What differs from run to run is computed once: the output is
        # that of the rows in the files.
        if self.bridge.shares_jvm() and self.unrepeatable is None and self.settings.subtree is None:
            *entries, output = run_in_threads(
                [*writing, partial(self._fingerprint_output, *self._compute_output(plan, prepared))]
            )
            return entries, output
        entries = run_in_threads(writing)
        output = self._fingerprint_output(*self._compute_over_files(plan, entries))
        if (
            self.settings.subtree is not None
            and self.unrepeatable is None
            and not any(prepared_input.masks for prepared_input in prepared)
        ):
            self._check_subtree_output(output, plan, entries)
        return entries, output

    def _check_subtree_output(self, output: Output, plan: bytes, entries: list[InputEntry]) -> None:
        """Refuse a subtree that gives other rows alone than in the query; floats within the tolerance of sums."""
        if output.error is not None:
            return
        attributes = self.bridge.to_list(self.node.java.output())
        rdd = operator_output_rdd(self.node, self.bridge)
        frame = row_differences.number_columns(self.quiet, rdd, attributes)
        original = row_differences.merge_prints(row_differences.fingerprint_partitions(frame))
        subtree_print = row_differences.merge_prints(output.fingerprint)
        if original == subtree_print:
            return
        kinds = [field.dataType.simpleString() for field in frame.schema.fields]
        limit = row_differences.choose_tolerance(self.name, kinds, None)
        if limit is not None and original.n_rows == subtree_print.n_rows:
            if original.n_rows > row_differences.MAX_CLOSE_ROWS:
                self.uncompared = f"its {original.n_rows} rows with floats are too many to be compared with the query's"
                return
            own_attributes, own_rdd, _ = self._compute_over_files(plan, entries)
            alone = row_differences.number_columns(self.quiet, own_rdd, own_attributes)
            if row_differences.are_frames_close(frame, alone, limit):
                return
        raise ConfigError(
            f"the subtree of {self.node.name} gives other rows alone than in the query",
            where=f"loreId {self.node.lore_id}, --subtree",
            found=f"{subtree_print.n_rows} rows, {original.n_rows} in the query; {varying} gives other rows in each run"
            if (varying := find_unrepeatable_part(self.plan, self.bridge))
            else f"{subtree_print.n_rows} rows, {original.n_rows} in the query",
            do="dump one operator of it without --subtree",
        )

    def _check_loadable(self, plan: bytes) -> None:
        """Refuse a plan that no replay would load."""
        names = allow_lists.list_refused_classes(list_class_names(plan))
        if names and not self.settings.skip_plan_dump:
            raise ConfigError(
                f"{self.node.name} contains classes that a replay does not load",
                where=f"loreId {self.node.lore_id}",
                found=names[:8],
                do="Scala and Java functions and reflect() run code that cannot be checked: dump an operator above or "
                "below, or the data alone with skip_plan_dump",
            )

    def _prepare_input(self, index: int, operator_input: OperatorInput) -> PreparedInput:
        every = self.bridge.to_list(operator_input.output)
        rdd = execute_plan(operator_input.source, self.bridge)
        n_partitions = int(rdd.getNumPartitions())
        # Every task of a join needs the whole broadcast or subquery.
        keep = (
            self._partitions_to_write(n_partitions)
            if operator_input.kind in ("rows", "columnar")
            else list(range(n_partitions))
        )
        reduced = self.masking.reduce_input(self.node, index, operator_input, self.bridge)
        attributes = self.bridge.to_list(reduced.output)
        names = choose_stored_names(attributes, original=self.settings.original_names)
        masks = {
            name: text
            for name, attribute in zip(names, attributes, strict=True)
            if (text := self.masking.mask_expression(attribute, name))
        }
        if reduced is not operator_input:
            rdd = self._select_columns(rdd, every, attributes)
        nullable = [
            attribute.withNullability(True) if self.masking.mask_method(str(attribute.name())) == "null" else attribute
            for attribute in attributes
        ]
        return PreparedInput(
            replace(reduced, output=self.bridge.to_scala_seq(nullable)), nullable, rdd, keep, n_partitions, names, masks
        )

    def _select_columns(self, rdd: Any, every: list[Any], attributes: list[Any]) -> Any:
        ids = [attribute.exprId().id() for attribute in every]
        frame = row_differences.number_columns(self.quiet, rdd, every)
        return self.quiet.internal_rows(
            frame.select(*(f"c{ids.index(attribute.exprId().id())}" for attribute in attributes))
        )

    def _partitions_to_write(self, n_partitions: int) -> list[int]:
        if self.chosen is None:
            return list(range(n_partitions))
        if wrong := [number for number in self.chosen if number >= n_partitions]:
            where = f"loreId {self.node.lore_id}"
            raise ConfigError("no such partition", where=where, found=wrong, allowed=f"0 to {n_partitions - 1}")
        return self.chosen

    def _write_input(self, index: int, prepared: PreparedInput) -> InputEntry:
        folder = f"input-{index}"
        rdd = (
            self.bridge.prune_partitions(prepared.rdd, prepared.keep)
            if len(prepared.keep) < prepared.n_partitions
            else prepared.rdd
        )
        frame = self._masked_frame(prepared, rdd)
        if not prepared.attributes:
            # Parquet cannot store rows without columns.
            frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
        batches, n_rows = write_frame(self.store, folder, frame, prepared.keep, batch_rows=self.settings.batch_rows)
        sizes = self.store.list_sizes(folder)
        entry = InputEntry(
            index=index,
            kind=prepared.operator_input.kind,
            n_partitions=prepared.n_partitions,
            partitions=prepared.keep,
            batches={str(number): batches.get(number, 0) for number in prepared.keep},
            n_rows=n_rows,
            n_bytes=sum(size for name, size in sizes.items() if name.endswith(".parquet")),
            zero_columns=not prepared.attributes,
            columns=self._build_columns(prepared.attributes, prepared.names),
        )
        write_meta_files(self.store, entry)
        return entry

    def _masked_frame(self, prepared: PreparedInput, rdd: Any) -> DataFrame:
        """Data frame of an input with its masked columns replaced."""
        columns = [
            (name, attribute.dataType()) for name, attribute in zip(prepared.names, prepared.attributes, strict=True)
        ]
        frame = self.quiet.to_frame(rdd, self.bridge.build_struct(columns))
        if not prepared.masks:
            return frame
        return frame.selectExpr(*(f"{prepared.masks.get(name, f'`{name}`')} AS `{name}`" for name in prepared.names))

    def _build_columns(self, attributes: list[Any], names: list[str]) -> list[InputColumn]:
        return [
            _build_column(attribute, name, self.masking.mask_method(str(attribute.name())))
            for attribute, name in zip(attributes, names, strict=True)
        ]

    def _fingerprint_output(self, attributes: list[Any], rdd: Any, keep: list[int] | None) -> Output:
        """Fingerprint the output rows, with their schema.

        A small output is also stored. `keep`: Partitions, null for all.
        """
        n_partitions = int(rdd.getNumPartitions())
        keep = list(range(n_partitions)) if keep is None else keep
        if len(keep) < n_partitions:
            rdd = self.bridge.prune_partitions(rdd, keep)
        names = choose_stored_names(attributes, original=False)
        columns = self._build_columns(attributes, names)
        frame = row_differences.number_columns(self.quiet, rdd, attributes)
        try:
            prints = row_differences.fingerprint_partitions(frame, keep)
        except Exception as error:  # noqa: BLE001 - a replay must fail with the same error
            failure = describe_failure(error)
            expected = ExpectedError(**{name: getattr(failure, name) for name in ExpectedError.model_fields})
            return Output(columns=columns, n_partitions=n_partitions, fingerprint={}, error=expected)
        is_kept = 0 < sum(fingerprint.n_rows for fingerprint in prints.values()) <= self.settings.keep_output_rows
        is_kept = is_kept and write_output_rows(self.store, frame, keep, batch_rows=self.settings.batch_rows)
        prints_by_name = {str(number): fingerprint for number, fingerprint in prints.items()}
        return Output(columns=columns, n_partitions=n_partitions, fingerprint=prints_by_name, kept=is_kept)

    def _compute_output(self, plan: bytes, prepared: list[PreparedInput]) -> tuple[list[Any], Any, list[int] | None]:
        """Compute the output: attributes, rows, and the partitions that belong to the dumped inputs (null for all)."""
        changed = self.settings.columns or any(prepared_input.masks for prepared_input in prepared)
        subset = any(len(prepared_input.keep) < prepared_input.n_partitions for prepared_input in prepared)
        full_rdd = operator_output_rdd(self.node, self.bridge)
        counts = [
            prepared_input.n_partitions
            for prepared_input in prepared
            if prepared_input.operator_input.kind in ("rows", "columnar")
        ]
        if not changed and (not subset or is_one_to_one(self.node.name, counts, int(full_rdd.getNumPartitions()))):
            return self.bridge.to_list(self.node.java.output()), full_rdd, self.chosen if subset else None

        def prepared_rows(index: int) -> tuple[Any, int]:
            prepared_input = prepared[index]
            rdd = self.bridge.pad_partitions(prepared_input.rdd, prepared_input.keep)
            return (
                self.quiet.internal_rows(self._masked_frame(prepared_input, rdd)) if prepared_input.masks else rdd
            ), prepared_input.n_partitions

        operator = self.bridge.deserialize(plan)
        operator_isolation.rebind_python_functions(operator, self.bridge)
        over = assemble_operator(operator, prepared_rows, self.bridge)
        return over.attributes, over.output_rdd(), None

    def _compute_over_files(self, plan: bytes, entries: list[InputEntry]) -> tuple[list[Any], Any, list[int] | None]:
        """Compute the output like `_compute_output`, but over the rows that were written."""

        def stored_rows(index: int) -> tuple[Any, int]:
            return read_input_rows(self.store, entries[index], self.quiet), entries[index].n_partitions

        operator = self.bridge.deserialize(plan)
        operator_isolation.rebind_python_functions(operator, self.bridge)
        over = assemble_operator(operator, stored_rows, self.bridge)
        rdd = over.output_rdd()
        rows = [entry for entry in entries if entry.kind in ("rows", "columnar")]
        subset = any(len(entry.partitions) < entry.n_partitions for entry in rows)
        keeps_partitions = subset and is_one_to_one(
            self.node.name, [entry.n_partitions for entry in rows], int(rdd.getNumPartitions())
        )
        return over.attributes, rdd, rows[0].partitions if keeps_partitions else None

    def _write_sidecar(self, plan: bytes, entries: list[InputEntry], output: Output) -> None:
        plan_files = {} if self.settings.skip_plan_dump else {"plan.meta": plan}
        for name, data in plan_files.items():
            self.store.write_file(name, data)
        masked = sorted({column.name for entry in entries for column in entry.columns if column.masked})
        sidecar = Sidecar(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=collect_versions(self.bridge),
            lore_id=self.node.lore_id or 0,
            operator=self.name,
            operator_class=str(self.node.java.getClass().getName()),
            operator_text=self.node.text,
            # Texts of other operators may have literals that are values of a masked column.
            tree=self.tree.render_text(metrics=False, texts=not masked),
            plan_hash=self.tree.plan_hash,
            time_zone=str(self.bridge.spark.conf.get("spark.sql.session.timeZone")),
            ansi=str(self.bridge.spark.conf.get("spark.sql.ansi.enabled")) == "true",
            confs=collect_confs(self.bridge),
            inputs=entries,
            output=output,
            masked=f"{MASKED_NOTE} ({', '.join(masked)})" if masked else None,
            python_functions=[name for name, _ in operator_isolation.iter_python_functions(self.plan, self.bridge)],
            has_plan=not self.settings.skip_plan_dump,
            files=self.store.list_entries(known=plan_files),
        )
        self.store.write_file(SIDECAR_FILE, trust_check.sign_sidecar(sidecar).model_dump_json(indent=1).encode())


def _build_column(attribute: Any, name: str, masked: MaskMethod | None) -> InputColumn:
    return InputColumn(
        masked=masked,
        name=str(attribute.name()),
        stored_as=name,
        type=json.loads(attribute.dataType().json()),
        nullable=bool(attribute.nullable()),
        expr_id=int(attribute.exprId().id()),
    )


def collect_versions(bridge: Bridge) -> Versions:
    """Versions of this session."""

    def find_version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    return Versions(
        workbench=__version__,
        spark=str(bridge.spark.version),
        scala=str(bridge.scala_object("scala.util.Properties").versionNumberString()),
        java=str(bridge.jvm.java.lang.System.getProperty("java.version")),
        python=platform.python_version(),
        pyarrow=find_version("pyarrow"),
        pandas=find_version("pandas"),
        numpy=find_version("numpy"),
    )


def collect_confs(bridge: Bridge) -> dict[str, str]:
    """Explicit settings of the session that a replay takes over: those that the allow list permits."""
    confs = {}
    entries = bridge.session.sessionState().conf().getAllConfs().iterator()
    while entries.hasNext():
        entry = entries.next()
        key, value = str(entry._1()), str(entry._2())
        if trust_check.find_conf_fault(key, value) is None:
            confs[key] = value
    return dict(sorted(confs.items()))
