"""Dump: the inputs of chosen operators written side by side by the executors, with what a replay needs beside them.

Post-hoc: the operators' inputs are computed again from what was last shuffled. Nothing stands under its final name
before it is whole: a dump that was cut off leaves a hidden folder that nothing loads.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.errors import ConfigError, WorkbenchError
from workbench.lore import fingerprint, javaclasses, stubs, trust
from workbench.lore.bridge import Bridge, described, side_by_side
from workbench.lore.failure import failure_of
from workbench.lore.inputs import Input, execute, inputs, output_of, stored_names
from workbench.lore.inspection.javastream import class_names
from workbench.lore.masking import MASKED, How, Masking, masking_key
from workbench.lore.plan import Node, Tree, require_same
from workbench.lore.rebuild import assemble, is_one_to_one, rows_of
from workbench.lore.sidecar import (
    FILE_NAME,
    ZERO_COLUMN,
    ExpectedError,
    InputColumn,
    InputEntry,
    Output,
    Sidecar,
    Versions,
)
from workbench.lore.store import Store
from workbench.lore.writing import capped, write, write_metas, write_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from workbench.lore.config import DumpSettings


@dataclass
class Dumped:
    """What a dump wrote.

    Attributes
    ----------
    folders
        loreId-N by id, as URLs.
    refused
        Why an id was left out, by id; only with non-strict mode.
    warnings
        Worth knowing, in order.
    """

    folders: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def dump_frame(
    frame: DataFrame, settings: DumpSettings, *, tagged: Mapping[str, Any] | None = None, failed: bool = False
) -> Dumped:
    """Run a query as far as its plan needs it, and dump the chosen operators. See `lore.dump`."""
    from workbench.lore.running import tagged as tree_of

    if failed:
        from workbench.lore.failing import dump_failed, require_unchosen

        require_unchosen(tagged=tagged, mode=settings.mode)
        return dump_failed(frame, settings)
    if not settings.ids:
        raise ConfigError(
            "no operator is chosen",
            where="spark.rapids.sql.lore.idsToDump",
            allowed="1[0 2 5-9], 4[*]",
            do="workbench lore tag shows the ids",
        )
    if settings.mode == "inline":
        from workbench.lore import inline

        return inline.dump(frame, settings, tagged=tagged)
    # A stream has no plan that could be looked at.
    if frame.isStreaming or (tree := Tree.of(frame)).provisional:
        tree = tree_of(frame)
    if tagged is not None:
        require_same(str(tagged.get("shape", "")), tree)
    return dump_tree(tree, settings)


def dump_tree(tree: Tree, settings: DumpSettings) -> Dumped:
    """Dump the chosen operators of a final plan.

    Raises
    ------
    ConfigError
        An id that is none, a partition that is none, an operator that cannot be dumped, a path with something in it
        (in strict mode; else these are listed as refused).
    """
    found = Dumped()
    store = Store(tree.bridge, settings.path)
    if not store.is_empty() and settings.strict:
        raise ConfigError(
            "the dump path is not empty", where="dumpPath", found=settings.path, do="name a new folder for each dump"
        )
    with masking_key(tree.bridge) if settings.mask else nullcontext("") as key:
        for lore_id, selection in settings.ids.items():
            try:
                node = tree.node(lore_id)
                dump = OneDump(tree, node, selection.partitions, store, settings, key)
                with described(tree.bridge, f"lore dump, loreId {lore_id}"):
                    found.folders[lore_id] = dump.run()
                found.warnings += dump.masking.warnings
            except Exception as error:
                if settings.strict:
                    raise
                reason = str(error) if isinstance(error, WorkbenchError) else f"failed: {failure_of(error)}"
                found.refused[lore_id] = reason.replace("\n", ";")
    return found


@dataclass(frozen=True)
class Prepared:
    """An input ready to be written.

    Attributes
    ----------
    one, attributes
        What the operator gets of it, columns left out already.
    rdd
        Its rows before anything is chosen or masked.
    keep
        Partitions that are dumped, of `n_partitions`.
    """

    one: Input
    attributes: list[Any]
    rdd: Any
    keep: list[int]
    n_partitions: int
    names: list[str]
    masks: dict[str, str]


class OneDump:
    """One operator's dump."""

    def __init__(
        self,
        tree: Tree,
        node: Node,
        partitions: Iterable[int] | None,
        store: Store,
        settings: DumpSettings,
        key: str,
    ) -> None:
        self.tree, self.node, self.settings = tree, node, settings
        self.chosen = None if partitions is None else sorted(partitions)
        self.bridge = tree.bridge
        self.quiet = self.bridge.quiet()
        self.masking = Masking(settings, key)
        self.final = f"loreId-{node.lore_id}"
        self.scratch = f".{self.final}-{uuid.uuid4().hex[:12]}"
        self.parent = store
        self.store = store.below(self.scratch)

    def run(self) -> str:
        """Write it under a private name, then give it its own."""
        if self.parent.exists(self.final):
            raise ConfigError("this id was dumped there before", where=self.parent.url, found=self.final)
        sources = inputs(self.node, self.bridge)
        self.masking.check(self.node, sources, self.bridge)
        self.store.make()
        try:
            with capped(self.store, self.settings.max_bytes):
                prepared = [self._prepare(index, one) for index, one in enumerate(sources)]
                plan = stubs.plan_meta(self.node.java, [one.one for one in prepared], self.bridge)
                self._check_loadable(plan)
                entries, output = self._written(plan, prepared)
            self._finish(plan, entries, output)
            self.parent.move(self.scratch, self.final)
        except BaseException:
            self.parent.remove(self.scratch)
            raise
        return str(self.parent.path(self.final).toString())

    def _written(self, plan: bytes, prepared: list[Prepared]) -> tuple[list[InputEntry], Output]:
        """Inputs written, output computed."""
        writing = [partial(self._input, index, one) for index, one in enumerate(prepared)]
        if self._reads_alike():
            *entries, output = side_by_side([*writing, partial(self._output, *self._computed(plan, prepared))])
            return entries, output
        entries = side_by_side(writing)
        return entries, self._output(*self._over_files(plan, entries))

    def _check_loadable(self, plan: bytes) -> None:
        """A plan that no replay would load is not worth its rows."""
        names = javaclasses.refused(class_names(plan))
        if names and not self.settings.skip_plan_dump:
            raise ConfigError(
                f"{self.node.name} holds classes that a replay does not load",
                where=f"loreId {self.node.lore_id}",
                found=names[:8],
                do="functions of Scala or Java, and reflect(), run code that nobody can check: dump an operator above "
                "or below, or the data alone with skip_plan_dump",
            )

    def _prepare(self, index: int, one: Input) -> Prepared:
        every = self.bridge.listed(one.output)
        rdd = execute(one.source, self.bridge)
        n_partitions = int(rdd.getNumPartitions())
        # Every task of a join needs the whole broadcast or subquery.
        keep = self._keep(n_partitions) if one.kind in ("rows", "columnar") else list(range(n_partitions))
        reduced = self.masking.kept(self.node, index, one, self.bridge)
        attributes = self.bridge.listed(reduced.output)
        names = stored_names(attributes, original=self.settings.original_names)
        masks = {
            name: text
            for name, attribute in zip(names, attributes, strict=True)
            if (text := self.masking.expression(attribute, name))
        }
        if reduced is not one:
            rdd = self._narrowed(rdd, every, attributes)
        nullable = [
            attribute.withNullability(True) if self.masking.how(str(attribute.name())) == "null" else attribute
            for attribute in attributes
        ]
        return Prepared(
            replace(reduced, output=self.bridge.seq(nullable)), nullable, rdd, keep, n_partitions, names, masks
        )

    def _narrowed(self, rdd: Any, every: list[Any], kept: list[Any]) -> Any:
        ids = [attribute.exprId().id() for attribute in every]
        frame = fingerprint.numbered(self.quiet, rdd, every)
        return self.quiet.rows(frame.select(*(f"c{ids.index(attribute.exprId().id())}" for attribute in kept)))

    def _keep(self, n_partitions: int) -> list[int]:
        if self.chosen is None:
            return list(range(n_partitions))
        if wrong := [number for number in self.chosen if number >= n_partitions]:
            where = f"loreId {self.node.lore_id}"
            raise ConfigError("no such partition", where=where, found=wrong, allowed=f"0 to {n_partitions - 1}")
        return self.chosen

    def _input(self, index: int, one: Prepared) -> InputEntry:
        folder = f"input-{index}"
        rdd = self.bridge.prune(one.rdd, one.keep) if len(one.keep) < one.n_partitions else one.rdd
        frame = self._masked(one, rdd)
        if not one.attributes:
            # Parquet cannot carry rows without columns.
            frame = frame.selectExpr(f"CAST(1 AS TINYINT) AS {ZERO_COLUMN}")
        batches, n_rows = write(self.store, folder, frame, one.keep, batch_rows=self.settings.batch_rows)
        sizes = self.store.sizes(folder)
        entry = InputEntry(
            index=index,
            kind=one.one.kind,
            n_partitions=one.n_partitions,
            partitions=one.keep,
            batches={str(number): batches.get(number, 0) for number in one.keep},
            n_rows=n_rows,
            n_bytes=sum(size for name, size in sizes.items() if name.endswith(".parquet")),
            zero_columns=not one.attributes,
            columns=self._columns(one.attributes, one.names),
        )
        write_metas(self.store, entry)
        return entry

    def _masked(self, one: Prepared, rdd: Any) -> DataFrame:
        columns = [(name, attribute.dataType()) for name, attribute in zip(one.names, one.attributes, strict=True)]
        frame = self.quiet.frame(rdd, self.bridge.struct(columns))
        if not one.masks:
            return frame
        return frame.selectExpr(*(f"{one.masks.get(name, f'`{name}`')} AS `{name}`" for name in one.names))

    def _columns(self, attributes: list[Any], names: list[str]) -> list[InputColumn]:
        return [
            _column(attribute, name, self.masking.how(str(attribute.name())))
            for attribute, name in zip(attributes, names, strict=True)
        ]

    def _output(self, attributes: list[Any], rdd: Any, keep: list[int] | None) -> Output:
        """The operator computed where it stands, or over what its dumped inputs were made, as a fingerprint."""
        n_partitions = int(rdd.getNumPartitions())
        keep = list(range(n_partitions)) if keep is None else keep
        if len(keep) < n_partitions:
            rdd = self.bridge.prune(rdd, keep)
        names = stored_names(attributes, original=False)
        columns = self._columns(attributes, names)
        frame = fingerprint.numbered(self.quiet, rdd, attributes)
        try:
            prints = fingerprint.of(frame, keep)
        except Exception as error:  # noqa: BLE001 - whatever the operator dies of is what a replay must die of
            failure = failure_of(error)
            expected = ExpectedError(**{name: getattr(failure, name) for name in ExpectedError.model_fields})
            return Output(columns=columns, n_partitions=n_partitions, fingerprint={}, error=expected)
        kept = 0 < sum(one.n_rows for one in prints.values()) <= self.settings.keep_output_rows
        kept = kept and write_output(self.store, frame, keep, batch_rows=self.settings.batch_rows)
        prints_by_name = {str(number): one for number, one in prints.items()}
        return Output(columns=columns, n_partitions=n_partitions, fingerprint=prints_by_name, kept=kept)

    def _computed(self, plan: bytes, prepared: list[Prepared]) -> tuple[list[Any], Any, list[int] | None]:
        """Attributes and rows of the output, and which of its partitions belong to what is dumped (null: all)."""
        changed = self.settings.columns or any(one.masks for one in prepared)
        subset = any(len(one.keep) < one.n_partitions for one in prepared)
        whole = output_of(self.node, self.bridge)
        counts = [one.n_partitions for one in prepared if one.one.kind in ("rows", "columnar")]
        if not changed and (not subset or is_one_to_one(self.node.name, counts, int(whole.getNumPartitions()))):
            return self.bridge.listed(self.node.java.output()), whole, self.chosen if subset else None

        def source(index: int) -> tuple[Any, int]:
            one = prepared[index]
            rdd = self.bridge.padded(one.rdd, one.keep)
            return (self.quiet.rows(self._masked(one, rdd)) if one.masks else rdd), one.n_partitions

        operator = self.bridge.deserialize(plan)
        stubs.at_home(operator, self.bridge)
        over = assemble(operator, source, self.bridge)
        return over.attributes, over.rdd(), None

    def _reads_alike(self) -> bool:
        """Does a shuffle read twice give its rows in one order? From other executors blocks come as they come."""
        master = str(self.bridge.context.master)
        return master.startswith("local") and not master.startswith("local-cluster")

    def _over_files(self, plan: bytes, entries: list[InputEntry]) -> tuple[list[Any], Any, list[int] | None]:
        """As `_computed`, over the very rows that were written."""

        def source(index: int) -> tuple[Any, int]:
            return rows_of(self.store, entries[index], self.quiet), entries[index].n_partitions

        operator = self.bridge.deserialize(plan)
        stubs.at_home(operator, self.bridge)
        over = assemble(operator, source, self.bridge)
        rdd = over.rdd()
        rows = [one for one in entries if one.kind in ("rows", "columnar")]
        subset = any(len(one.partitions) < one.n_partitions for one in rows)
        kept = subset and is_one_to_one(self.node.name, [one.n_partitions for one in rows], int(rdd.getNumPartitions()))
        return over.attributes, rdd, rows[0].partitions if kept else None

    def _finish(self, plan: bytes, entries: list[InputEntry], output: Output) -> None:
        known = {} if self.settings.skip_plan_dump else {"plan.meta": plan}
        for name, data in known.items():
            self.store.write(name, data)
        masked = sorted({column.name for entry in entries for column in entry.columns if column.masked})
        sidecar = Sidecar(
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(self.bridge),
            lore_id=self.node.lore_id or 0,
            operator=self.node.name,
            operator_class=str(self.node.java.getClass().getName()),
            operator_text=self.node.text,
            tree=self.tree.render(metrics=False),
            plan_hash=self.tree.plan_hash,
            time_zone=str(self.bridge.spark.conf.get("spark.sql.session.timeZone")),
            ansi=str(self.bridge.spark.conf.get("spark.sql.ansi.enabled")) == "true",
            confs=confs(self.bridge),
            inputs=entries,
            output=output,
            masked=f"{MASKED} ({', '.join(masked)})" if masked else None,
            python_functions=[name for name, _ in stubs.python_functions(self.node.java, self.bridge)],
            has_plan=not self.settings.skip_plan_dump,
            files=self.store.entries(known=known),
        )
        self.store.write(FILE_NAME, trust.sign(sidecar).model_dump_json(indent=1).encode())


def _column(attribute: Any, name: str, masked: How | None) -> InputColumn:
    return InputColumn(
        masked=masked,
        name=str(attribute.name()),
        stored_as=name,
        type=json.loads(attribute.dataType().json()),
        nullable=bool(attribute.nullable()),
        expr_id=int(attribute.exprId().id()),
    )


def versions(bridge: Bridge) -> Versions:
    """What this session runs on."""

    def version(package: str) -> str | None:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    return Versions(
        workbench=__version__,
        spark=str(bridge.spark.version),
        scala=str(bridge.object("scala.util.Properties").versionNumberString()),
        java=str(bridge.jvm.java.lang.System.getProperty("java.version")),
        python=platform.python_version(),
        pyarrow=version("pyarrow"),
        pandas=version("pandas"),
        numpy=version("numpy"),
    )


def confs(bridge: Bridge) -> dict[str, str]:
    """Settings of the session that a replay takes over: those that trust allows, and that somebody set."""
    found = {}
    entries = bridge.session.sessionState().conf().getAllConfs().iterator()
    while entries.hasNext():
        entry = entries.next()
        key, value = str(entry._1()), str(entry._2())
        if trust.conf_fault(key, value) is None:
            found[key] = value
    return dict(sorted(found.items()))
