"""Dump from an inline capture: pick task attempts, move their files, keep the run's fingerprint."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.core.errors import ConfigError, InputError
from workbench.lore.dumps.dump_folder import ORIGINAL_RUN, InputEntry, Output, PartitionPrint
from workbench.lore.dumps.dump_store import DumpStore, write_meta_files
from workbench.lore.dumps.operator_dump import OperatorDump, PreparedInput
from workbench.lore.jvm.inline_hooks import JOINT_KINDS, plan_stored_input
from workbench.lore.replays import row_differences
from workbench.lore.spark_bridge.operator_inputs import OperatorInput, choose_stored_names, list_inputs
from workbench.lore.spark_bridge.operator_isolation import is_one_to_one
from workbench.lore.spark_bridge.physical_plan import PlanNode, PlanTree
from workbench.lore.spark_bridge.query_runs import OperatorFailure

if TYPE_CHECKING:
    from workbench.lore.config import DumpSettings

OUTPUT_PLACE = "output"


@dataclass(frozen=True)
class TapRecord:
    """Record of one tap: one partition in one attempt of a task.

    `exhausted`: Did it reach the end of its rows? A LIMIT above, or a join whose other side has ended, stops earlier.
    `fault`: Error of the tap itself, or null.
    `error_class`: Error of the task, or null.
    `files`, `batch_rows`: For an input: names below the staging folder, and the rows in each.
    """

    lore_id: int
    place: str
    partition: int
    attempt: int
    exhausted: bool
    fault: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    files: tuple[str, ...] = ()
    batch_rows: tuple[int, ...] = ()
    n_bytes: int = 0
    print: PartitionPrint | None = None

    @property
    def is_good(self) -> bool:
        """Did the tap and its task succeed?"""
        return self.fault is None and self.error_class is None


def parse_record(line: str) -> TapRecord:
    """Parse a line of JSON from the hooks.

    >>> line = '{"tap": "loreId-5/input-0", "partition": 2, "attempt": 9, "exhausted": true, '
    >>> record = parse_record(line + '"files": ["p2-a9-1-0.parquet"], "batch_rows": [7], "bytes": 901}')
    >>> record.lore_id, record.place, record.partition, record.batch_rows
    (5, 'input-0', 2, (7,))
    """
    record: dict[str, Any] = json.loads(line)
    tap, _, place = str(record["tap"]).partition("/")
    fingerprint = None
    if "hash_sum" in record:
        fingerprint = PartitionPrint(
            n_rows=record["rows"],
            hash_sum=int(record["hash_sum"]),
            hash_xor=record["hash_xor"],
            ordered_sum=int(record["ordered_sum"]),
        )
    return TapRecord(
        lore_id=int(tap.removeprefix("loreId-")),
        place=place,
        partition=record["partition"],
        attempt=record["attempt"],
        exhausted=record["exhausted"],
        fault=record.get("fault"),
        error_class=record.get("error_class"),
        error_message=record.get("error_message"),
        files=tuple(record.get("files", ())),
        batch_rows=tuple(record.get("batch_rows", ())),
        n_bytes=record.get("bytes", 0),
        print=fingerprint,
    )


# Place → partition → record.
PickedRecords = dict[str, dict[int, TapRecord]]


def pick_records(records: Iterable[TapRecord], joint: Sequence[str], *, one_to_one: bool) -> PickedRecords:
    """Choose one record for each partition of each place.

    `joint`: Places that one task passes: the inputs that are neither broadcast nor subqueries.
    `one_to_one`: Whether partition P of the output comes from partition P of each of these. Then all are taken from
    one attempt.

    Returns: By place and partition: the last good attempt, else the last one. An output of another attempt than its
    inputs is left out.
    """
    by_place: dict[str, dict[int, list[TapRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_place[record.place][record.partition].append(record)
    together = joint if one_to_one else ()
    picked: PickedRecords = {
        place: {number: _pick_last_good(tries) for number, tries in partitions.items()}
        for place, partitions in by_place.items()
        if place not in together
    }
    for number in sorted(set[int]().union(*(by_place[place] for place in together))):
        for place, record in _pick_common_attempt(
            {place: by_place[place].get(number, []) for place in together}
        ).items():
            picked.setdefault(place, {})[number] = record
    outputs = {
        number: _pick_output_record(tries, number, picked, by_place, joint, one_to_one=one_to_one)
        for number, tries in by_place[OUTPUT_PLACE].items()
    }
    picked[OUTPUT_PLACE] = {number: record for number, record in outputs.items() if record is not None}
    return picked


def _pick_last_good(tries: Sequence[TapRecord]) -> TapRecord:
    return ([record for record in tries if record.is_good] or tries)[-1]


def _pick_common_attempt(tries: Mapping[str, Sequence[TapRecord]]) -> dict[str, TapRecord]:
    """Pick the records of the last task attempt that passed all places; empty if there is none.

    `tries`: Records of one partition by place, one for each attempt.
    """
    common = set.intersection(*({record.attempt for record in each} for each in tries.values()))
    good_attempts = {record.attempt for each in tries.values() for record in each} - {
        record.attempt for each in tries.values() for record in each if not record.is_good
    }
    order = [record.attempt for record in next(iter(tries.values())) if record.attempt in common]
    if not order:
        return {}
    chosen = ([attempt for attempt in order if attempt in good_attempts] or order)[-1]
    return {place: [record for record in each if record.attempt == chosen][-1] for place, each in tries.items()}


def _pick_output_record(
    tries: Sequence[TapRecord],
    number: int,
    picked: PickedRecords,
    by_place: Mapping[str, Mapping[int, Sequence[TapRecord]]],
    joint: Sequence[str],
    *,
    one_to_one: bool,
) -> TapRecord | None:
    """Pick the output record of partition `number` that belongs to the picked inputs; null if none can be matched.

    `tries`: Records of the output, one for each task attempt. `picked`: Records of the inputs. `by_place`: All records.
    `joint`: Places that one task passes with the output. `one_to_one`: A task reads one partition of each input.
    """
    if one_to_one:
        # One attempt for all inputs, and the output's must be that one.
        attempts = {picked[place][number].attempt for place in joint if number in picked.get(place, {})}
        same = [record for record in tries if {record.attempt} == attempts]
        return same[-1] if same else None
    # Attempts can only be matched where there was exactly one of each.
    once = all(len(each) == 1 for place in joint for each in by_place[place].values())
    return tries[0] if once and len(tries) == 1 else None


@dataclass
class CapturedRun:
    """A captured run.

    `store`, `staging`: The dump path, and the folder below it that the executors wrote to.
    `failure`: Failure of the query; null when it succeeded.
    """

    armed: Any
    store: DumpStore
    staging: str
    failure: OperatorFailure | None
    key: str
    records: list[TapRecord] = field(init=False)

    def __post_init__(self) -> None:
        self.records = [parse_record(str(line)) for line in self.armed.records()]

    def n_partitions(self, lore_id: int, place: str) -> int | None:
        """Number of partitions that passed a place; null when it did not run."""
        count = int(self.armed.partitionCount(f"loreId-{lore_id}/{place}"))
        return None if count < 0 else count


class InlineDump(OperatorDump):
    """Dump of one captured operator."""

    def __init__(
        self, tree: PlanTree, node: PlanNode, partitions: Iterable[int] | None, settings: DumpSettings, run: CapturedRun
    ) -> None:
        lore_id = node.lore_id or 0
        operator = run.armed.operator(lore_id)
        if operator is None:
            faults = [str(fault) for fault in run.armed.faults()]
            if run.failure is not None:
                faults.insert(0, f"the query failed before: {run.failure}")
            raise ConfigError(
                "the captured run did not reach this operator",
                where=f"loreId {node.lore_id}, {node.name}",
                found="; ".join(faults[:3]) or "the plan differs from the tagged one, or was prepared before",
                do="run the same query as a new DataFrame; with AQE the plan can change from run to run",
            )
        # The operator of the captured run, with its attributes and seeds.
        super().__init__(tree, replace(node, java=operator), partitions, run.store, settings, run.key)
        self.captured, self.lore_id = run, lore_id
        self.warnings: list[str] = []
        self.entries: dict[int, InputEntry] = {}
        self.joint = [
            index
            for index, operator_input in enumerate(list_inputs(self.node, self.bridge))
            if operator_input.kind in JOINT_KINDS
        ]
        self.picked = self._pick_records()

    def _write_parts(self, plan: bytes, prepared: list[PreparedInput]) -> tuple[list[InputEntry], Output]:
        """Move the captured inputs into the dump; the output is that of the query."""
        entries = [self._write_input(index, prepared_input) for index, prepared_input in enumerate(prepared)]
        return entries, self._find_output(plan, prepared)

    def _pick_records(self) -> PickedRecords:
        places = [f"input-{index}" for index in self.joint]
        records = [record for record in self.captured.records if record.lore_id == self.lore_id]
        return pick_records(records, places, one_to_one=self._is_one_to_one())

    def _is_one_to_one(self) -> bool:
        counts = [self._count_partitions(f"input-{index}") for index in self.joint]
        n_output = self.captured.n_partitions(self.lore_id, OUTPUT_PLACE)
        return is_one_to_one(self.node.name, counts, counts[0] if n_output is None and counts else n_output or 0)

    def _count_partitions(self, place: str) -> int:
        count = self.captured.n_partitions(self.lore_id, place)
        if count is None:
            raise ConfigError(
                "an input of the operator was not computed in the captured run",
                where=f"loreId {self.lore_id}, {place}",
                do="dump without mode=inline",
            )
        return count

    def _prepare_input(self, index: int, operator_input: OperatorInput) -> PreparedInput:
        place = f"input-{index}"
        n_partitions = self._count_partitions(place)
        how = plan_stored_input(self.node, index, operator_input, self.masking, self.bridge)
        records = self.picked.get(place, {})
        if broken := [record for record in records.values() if record.fault is not None]:
            raise InputError(
                "an input could not be written while the query ran",
                where=f"loreId {self.lore_id}, {place}, partition {broken[0].partition}",
                found=broken[0].fault,
                do="check free space and permissions of the dump path, or dump fewer partitions",
            )
        wanted = (
            self._partitions_to_write(n_partitions) if operator_input.kind in JOINT_KINDS else list(range(n_partitions))
        )
        keep = [number for number in wanted if number in records]
        self._check_missing_partitions(place, operator_input, wanted, keep)
        names = how.names if how.attributes else []
        return PreparedInput(how.operator_input, how.attributes, None, keep, n_partitions, names, how.masks)

    def _check_missing_partitions(
        self, place: str, operator_input: OperatorInput, wanted: list[int], keep: list[int]
    ) -> None:
        """Refuse, or warn about, wanted partitions that the captured run did not compute; `keep` are those computed."""
        if len(keep) == len(wanted):
            return
        missing = [number for number in wanted if number not in keep]
        if self.captured.failure is None and (self.chosen is not None or operator_input.kind not in JOINT_KINDS):
            raise ConfigError(
                "the captured run did not compute all chosen partitions",
                where=f"loreId {self.lore_id}, {place}",
                found="not computed: " + _format_numbers(missing),
                do="choose others, or remove the LIMIT above the operator",
            )
        reason = "the query failed before" if self.captured.failure else "a LIMIT above ended it early"
        self.warnings.append(
            f"loreId {self.lore_id}, {place}: not computed: partitions {_format_numbers(missing)}; {reason}"
        )

    def _write_input(self, index: int, prepared: PreparedInput) -> InputEntry:
        folder = f"input-{index}"
        records = {number: self.picked[folder][number] for number in prepared.keep}
        for number, record in records.items():
            target = f"{self.scratch}/{folder}/partition-{number}"
            self.parent.make_folder(target)
            for batch, name in enumerate(record.files):
                self.parent.move(f"{self.captured.staging}/{name}", f"{target}/batch-{batch}.parquet")
        entry = InputEntry(
            index=index,
            kind=prepared.operator_input.kind,
            n_partitions=prepared.n_partitions,
            partitions=prepared.keep,
            batches={str(number): len(record.files) for number, record in records.items()},
            n_rows=sum(sum(record.batch_rows) for record in records.values()),
            n_bytes=sum(record.n_bytes for record in records.values()),
            zero_columns=not prepared.attributes,
            columns=self._build_columns(prepared.attributes, prepared.names),
        )
        write_meta_files(self.store, entry)
        self.entries[index] = entry
        return entry

    def _find_output(self, plan: bytes, prepared: list[PreparedInput]) -> Output:
        """Output of the original run if it is fully known, else of the operator over the captured rows."""
        original = self._original_prints(prepared)
        if original is None:
            return self._explain_recomputed_output(self._recompute_output(plan))
        attributes = self.bridge.to_list(self.node.java.output())
        output = Output(
            columns=self._build_columns(attributes, choose_stored_names(attributes, original=False)),
            n_partitions=self.captured.n_partitions(self.lore_id, OUTPUT_PLACE) or 0,
            fingerprint={str(number): fingerprint for number, fingerprint in original.items()},
        ).model_copy(update={"compared_with": ORIGINAL_RUN})
        if not 0 < sum(fingerprint.n_rows for fingerprint in original.values()) <= self.settings.keep_output_rows:
            return output
        # The query did not write its output rows; recomputed ones are kept when they are the same.
        again = self._recompute_output(plan)
        if again.error is None and row_differences.merge_prints(again.fingerprint) == row_differences.merge_prints(
            original
        ):
            return output.model_copy(update={"kept": again.kept})
        self.store.remove("output")
        self.warnings.append(
            f"loreId {self.lore_id}: {self.node.name} gives different rows when it runs again over the same inputs"
        )
        return output

    def _explain_recomputed_output(self, again: Output) -> Output:
        failure = self.captured.failure
        if failure is None:
            self.warnings.append(
                f"loreId {self.lore_id}: verify compares with the operator recomputed over the captured inputs, since "
                "the output of the original run is not fully known (a limit above, masking, or mixed partitions)"
            )
        elif again.error is not None and _error_identity(again.error) == _error_identity(failure):
            return again.model_copy(update={"compared_with": ORIGINAL_RUN})
        return again

    def _recompute_output(self, plan: bytes) -> Output:
        """Output of the operator over the captured files."""
        return self._fingerprint_output(
            *self._compute_over_files(plan, [self.entries[index] for index in sorted(self.entries)])
        )

    def _original_prints(self, prepared: list[PreparedInput]) -> dict[int, PartitionPrint] | None:
        """Fingerprints of the original output by partition.

        Null if the run did not compute all that belongs to these inputs.
        """
        n_partitions = self.captured.n_partitions(self.lore_id, OUTPUT_PLACE)
        if n_partitions is None or self.captured.failure is not None:
            return None
        parts = [prepared_input for prepared_input in prepared if prepared_input.operator_input.kind in JOINT_KINDS]
        wanted = list(range(n_partitions))
        if any(len(prepared_input.keep) < prepared_input.n_partitions for prepared_input in parts):
            if not self._is_one_to_one():
                return None
            wanted = parts[0].keep
        records = [self.picked[OUTPUT_PLACE].get(number) for number in wanted]
        prints = {
            number: record.print
            for number, record in zip(wanted, records, strict=True)
            if record is not None and record.is_good and record.exhausted and record.print is not None
        }
        return prints if len(prints) == len(wanted) else None


def _error_identity(error: Any) -> tuple[str, str]:
    return error.error_class, error.message


def _format_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")
