"""A smaller dump out of a dump: the rows that are left, and what the operator gives for them; signed anew."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.lore import fingerprint, trust
from workbench.lore.bridge import Bridge
from workbench.lore.confs import conf_fault
from workbench.lore.dumping import versions
from workbench.lore.failure import failure_of
from workbench.lore.rebuild import Rebuilt, is_one_to_one, rebuild, stored_schema
from workbench.lore.sidecar import FILE_NAME, ZERO_COLUMN, ExpectedError, InputEntry, Output, Sidecar
from workbench.lore.store import Store
from workbench.lore.subsets import Subset
from workbench.lore.writing import write, write_metas, write_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS = 1_000_000
KEEP_OUTPUT_ROWS = 100_000


def require_empty(store: Store) -> None:
    """Refuse a place with something in it, before the search rather than after it.

    Raises
    ------
    ConfigError
        There is something.
    """
    if not store.is_empty():
        raise ConfigError(
            "there is something already", where="--out", found=store.url, do="name a new folder for the smaller dump"
        )


@dataclass(frozen=True)
class Smaller:
    """What is to be written.

    Attributes
    ----------
    sidecar, plan
        Of the dump that it comes from; plan.meta goes along as it is.
    subsets
        Its inputs.
    bridge
        Of the session whose answer the new dump is to expect.
    settings
        What that session has set beyond the old dump's settings.
    """

    sidecar: Sidecar
    plan: bytes
    subsets: Sequence[Subset]
    bridge: Bridge
    settings: Mapping[str, str]

    def left_out(self) -> list[str]:
        """Settings that no dump may make, so that whoever verifies the new one must make them by --conf."""
        return sorted(key for key, value in self.settings.items() if conf_fault(key, value) is not None)

    def write(self, target: Store) -> Store:
        """Write it to loreId-N below the target, under a private name first; gives that folder."""
        name = f"loreId-{self.sidecar.lore_id}"
        scratch = f".{name}-{uuid.uuid4().hex[:12]}"
        store = target.below(scratch)
        store.make()
        try:
            entries = [self._input(store, subset) for subset in self.subsets]
            self._finish(store, entries)
            target.move(scratch, name)
        except BaseException:
            target.remove(scratch)
            raise
        return target.below(name)

    def _kept(self, subset: Subset) -> list[int]:
        """Partitions to write; inputs that go partition by partition have the same ones."""
        alike = [subset]
        if subset.entry.kind in ("rows", "columnar"):
            by_rows = [one for one in self.subsets if one.entry.kind in ("rows", "columnar")]
            alike = [one for one in by_rows if one.entry.n_partitions == subset.entry.n_partitions]
        left = sorted({number for one in alike for number in one.partitions_left()})
        return left or subset.entry.partitions[:1]

    def _input(self, store: Store, subset: Subset) -> InputEntry:
        keep, old = self._kept(subset), subset.entry
        folder = f"input-{old.index}"
        rdd = subset.bridge.rows(subset.frame(subset.rows))
        pruned = subset.bridge.prune(rdd, keep) if len(keep) < old.n_partitions else rdd
        schema = stored_schema(old.model_copy(update={"zero_columns": False}), subset.bridge)
        frame = subset.bridge.frame(pruned, schema)
        if old.zero_columns:
            frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
        batches, n_rows = write(store, folder, frame, keep, batch_rows=BATCH_ROWS)
        sizes = store.sizes(folder)
        entry = old.model_copy(
            update={
                "partitions": keep,
                "batches": {str(number): batches.get(number, 0) for number in keep},
                "n_rows": n_rows,
                "n_bytes": sum(size for name, size in sizes.items() if name.endswith(".parquet")),
            }
        )
        write_metas(store, entry)
        return entry

    def _finish(self, store: Store, entries: list[InputEntry]) -> None:
        store.write("plan.meta", self.plan)
        taken = {key: value for key, value in self.settings.items() if key not in self.left_out()}
        conf = self.bridge.spark.conf
        sidecar = self.sidecar.model_copy(
            update={
                "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(self.bridge),
                "inputs": entries,
                "confs": dict(sorted({**self.sidecar.confs, **taken}.items())),
                "time_zone": str(conf.get("spark.sql.session.timeZone")),
                "ansi": str(conf.get("spark.sql.ansi.enabled")) == "true",
            }
        )
        sidecar = sidecar.model_copy(update={"output": self._output(store, sidecar)})
        sidecar = sidecar.model_copy(update={"files": store.entries(known={"plan.meta": self.plan})})
        store.write(FILE_NAME, trust.sign(sidecar).model_dump_json(indent=1).encode())

    def _output(self, store: Store, sidecar: Sidecar) -> Output:
        """What the operator gives over the files that were just written."""
        over = rebuild(store, sidecar, self.plan, self.bridge)
        by_rows = [entry for entry in sidecar.inputs if entry.kind in ("rows", "columnar")]
        old = sidecar.output
        try:
            rdd = over.rdd()
            n_partitions = int(rdd.getNumPartitions())
            keep = list(range(n_partitions))
            if is_one_to_one(sidecar.operator, [entry.n_partitions for entry in by_rows], n_partitions):
                keep = sorted({number for entry in by_rows for number in entry.partitions})
            frame = self._frame(over, rdd, keep)
            prints = fingerprint.of(frame, keep)
        except Exception as error:  # noqa: BLE001 - whatever the operator dies of is what a replay must die of
            found = failure_of(error)
            expected = ExpectedError(**{name: getattr(found, name) for name in ExpectedError.model_fields})
            return Output(columns=old.columns, n_partitions=old.n_partitions, fingerprint={}, error=expected)
        kept = 0 < sum(one.n_rows for one in prints.values()) <= KEEP_OUTPUT_ROWS
        kept = kept and write_output(store, frame, keep, batch_rows=BATCH_ROWS)
        return Output(
            columns=old.columns,
            n_partitions=n_partitions,
            fingerprint={str(number): one for number, one in prints.items()},
            kept=kept,
        )

    def _frame(self, over: Rebuilt, rdd: Any, keep: list[int]) -> DataFrame:
        if len(keep) < int(rdd.getNumPartitions()):
            rdd = self.bridge.prune(rdd, keep)
        return fingerprint.numbered(self.bridge.quiet(), rdd, over.attributes)
