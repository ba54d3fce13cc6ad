"""A dump made of what the inline hooks left behind: files renamed into place, the original run's fingerprint kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, InputError
from workbench.lore import fingerprint
from workbench.lore.dumping import OneDump, Prepared
from workbench.lore.failure import Failure
from workbench.lore.inline_records import OUTPUT, Picked, Record, parse, pick
from workbench.lore.inline_targets import JOINT, stored
from workbench.lore.inputs import Input, inputs, stored_names
from workbench.lore.plan import Node, Tree
from workbench.lore.rebuild import is_one_to_one
from workbench.lore.sidecar import ORIGINAL, InputEntry, Output, PartitionPrint
from workbench.lore.store import Store
from workbench.lore.writing import write_metas

if TYPE_CHECKING:
    from workbench.lore.config import DumpSettings


@dataclass
class Run:
    """A captured run.

    Attributes
    ----------
    armed
        The JVM's side of the capture.
    store, staging
        The dump path, and the folder in it that the executors wrote to.
    failure
        What the query died of; null when it ended well.
    key
        Of the hashes of masked columns.
    """

    armed: Any
    store: Store
    staging: str
    failure: Failure | None
    key: str
    records: list[Record] = field(init=False)

    def __post_init__(self) -> None:
        self.records = [parse(str(line)) for line in self.armed.records()]

    def n_partitions(self, lore_id: int, place: str) -> int | None:
        """Partitions that passed a place; null when it did not run."""
        count = int(self.armed.partitionCount(f"loreId-{lore_id}/{place}"))
        return None if count < 0 else count


class InlineDump(OneDump):
    """One operator's dump, of what was captured."""

    def __init__(
        self, tree: Tree, node: Node, partitions: Iterable[int] | None, settings: DumpSettings, run: Run
    ) -> None:
        lore_id = node.lore_id or 0
        operator = run.armed.operator(lore_id)
        if operator is None:
            raise _not_met(node, run)
        # As it was planned in the captured run: its attributes and seeds are of that run.
        super().__init__(tree, replace(node, java=operator), partitions, run.store, settings, run.key)
        self.captured, self.lore_id = run, lore_id
        self.warnings: list[str] = []
        self.entries: dict[int, InputEntry] = {}
        self.joint = [index for index, one in enumerate(inputs(self.node, self.bridge)) if one.kind in JOINT]
        self.picked = self._picked()

    def _written(self, plan: bytes, prepared: list[Prepared]) -> tuple[list[InputEntry], Output]:
        """What was written while the query ran, moved here; the output as the query gave it."""
        entries = [self._input(index, one) for index, one in enumerate(prepared)]
        return entries, self._fingerprint(plan, prepared)

    def _picked(self) -> Picked:
        places = [f"input-{index}" for index in self.joint]
        records = [record for record in self.captured.records if record.lore_id == self.lore_id]
        return pick(records, places, one_to_one=self._one_to_one())

    def _one_to_one(self) -> bool:
        counts = [self._count(f"input-{index}") for index in self.joint]
        n_output = self.captured.n_partitions(self.lore_id, OUTPUT)
        return is_one_to_one(self.node.name, counts, counts[0] if n_output is None and counts else n_output or 0)

    def _count(self, place: str) -> int:
        count = self.captured.n_partitions(self.lore_id, place)
        if count is None:
            raise ConfigError(
                "an input of the operator was not computed in the captured run",
                where=f"loreId {self.lore_id}, {place}",
                do="dump without mode=inline",
            )
        return count

    def _prepare(self, index: int, one: Input) -> Prepared:
        place = f"input-{index}"
        n_partitions = self._count(place)
        how = stored(self.node, index, one, self.masking, self.bridge)
        found = self.picked.get(place, {})
        if broken := [record for record in found.values() if record.fault is not None]:
            raise InputError(
                "an input could not be written while the query ran",
                where=f"loreId {self.lore_id}, {place}, partition {broken[0].partition}",
                found=broken[0].fault,
                do="look at the room and the rights of the dump path, or dump fewer partitions",
            )
        wanted = self._keep(n_partitions) if one.kind in JOINT else list(range(n_partitions))
        keep = [number for number in wanted if number in found]
        self._check_computed(place, one, wanted, keep)
        names = how.names if how.attributes else []
        return Prepared(how.one, how.attributes, None, keep, n_partitions, names, how.masks)

    def _check_computed(self, place: str, one: Input, wanted: list[int], keep: list[int]) -> None:
        if len(keep) == len(wanted):
            return
        missing = [number for number in wanted if number not in keep]
        if self.captured.failure is None and (self.chosen is not None or one.kind not in JOINT):
            raise ConfigError(
                "the captured run did not compute all chosen partitions",
                where=f"loreId {self.lore_id}, {place}",
                found="not computed: " + _listed(missing),
                do="choose others, or take away the LIMIT above the operator",
            )
        why = "the query failed before" if self.captured.failure else "a LIMIT above ended it early"
        self.warnings.append(f"loreId {self.lore_id}, {place}: not computed: partitions {_listed(missing)}; {why}")

    def _input(self, index: int, one: Prepared) -> InputEntry:
        folder = f"input-{index}"
        records = {number: self.picked[folder][number] for number in one.keep}
        for number, record in records.items():
            target = f"{self.scratch}/{folder}/partition-{number}"
            self.parent.make(target)
            for batch, name in enumerate(record.files):
                self.parent.move(f"{self.captured.staging}/{name}", f"{target}/batch-{batch}.parquet")
        entry = InputEntry(
            index=index,
            kind=one.one.kind,
            n_partitions=one.n_partitions,
            partitions=one.keep,
            batches={str(number): len(record.files) for number, record in records.items()},
            n_rows=sum(sum(record.batch_rows) for record in records.values()),
            n_bytes=sum(record.n_bytes for record in records.values()),
            zero_columns=not one.attributes,
            columns=self._columns(one.attributes, one.names),
        )
        write_metas(self.store, entry)
        self.entries[index] = entry
        return entry

    def _fingerprint(self, plan: bytes, prepared: list[Prepared]) -> Output:
        """What the original run gave; where that is not known, the operator over what was captured."""
        original = self._original(prepared)
        if original is None:
            return self._instead(self._again(plan))
        attributes = self.bridge.listed(self.node.java.output())
        output = Output(
            columns=self._columns(attributes, stored_names(attributes, original=False)),
            n_partitions=self.captured.n_partitions(self.lore_id, OUTPUT) or 0,
            fingerprint={str(number): one for number, one in original.items()},
        ).model_copy(update={"compared_with": ORIGINAL})
        if not 0 < sum(one.n_rows for one in original.values()) <= self.settings.keep_output_rows:
            return output
        # Its rows were not written while the query ran. Computed again they are kept, if they are the same.
        again = self._again(plan)
        if again.error is None and fingerprint.total(again.fingerprint) == fingerprint.total(original):
            return output.model_copy(update={"kept": again.kept})
        self.store.remove("output")
        self.warnings.append(
            f"loreId {self.lore_id}: {self.node.name} gives other rows when it runs again over the same inputs"
        )
        return output

    def _instead(self, again: Output) -> Output:
        failure = self.captured.failure
        if failure is None:
            self.warnings.append(
                f"loreId {self.lore_id}: verify compares with the operator recomputed over what was captured, since "
                "the original run's own output is not known in full (a limit above, masking, or partitions that mix)"
            )
        elif again.error is not None and _told(again.error) == _told(failure):
            return again.model_copy(update={"compared_with": ORIGINAL})
        return again

    def _again(self, plan: bytes) -> Output:
        """The operator computed over the captured files."""
        return self._output(*self._over_files(plan, [self.entries[index] for index in sorted(self.entries)]))

    def _original(self, prepared: list[Prepared]) -> dict[int, PartitionPrint] | None:
        """The original run's fingerprints; null where it did not see all of the output that belongs to the inputs."""
        n_partitions = self.captured.n_partitions(self.lore_id, OUTPUT)
        if n_partitions is None or self.captured.failure is not None:
            return None
        parts = [one for one in prepared if one.one.kind in JOINT]
        wanted = list(range(n_partitions))
        if any(len(one.keep) < one.n_partitions for one in parts):
            if not self._one_to_one():
                return None
            wanted = parts[0].keep
        records = [self.picked[OUTPUT].get(number) for number in wanted]
        prints = {
            number: record.print
            for number, record in zip(wanted, records, strict=True)
            if record is not None and record.is_good and record.exhausted and record.print is not None
        }
        return prints if len(prints) == len(wanted) else None


def _told(error: Any) -> tuple[str, str]:
    return error.error_class, error.message


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")


def _not_met(node: Node, run: Run) -> ConfigError:
    faults = [str(fault) for fault in run.armed.faults()]
    if run.failure is not None:
        faults.insert(0, f"the query failed before: {run.failure}")
    return ConfigError(
        "the captured run did not meet this operator",
        where=f"loreId {node.lore_id}, {node.name}",
        found="; ".join(faults[:3]) or "a plan that differs from the tagged one, or one that was prepared before",
        do="run the same query as a new DataFrame; with AQE sizes of stages can change a plan from run to run",
    )
