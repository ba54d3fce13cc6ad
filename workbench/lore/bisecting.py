"""Which rows does a failing or differing operator need? Its inputs, halved until nothing of them can be left out.

Two questions can be asked of a part of the inputs. Of a dump that expects an error: does the operator fail with the
same class and message? Of two sides (settings, or an engine): are their outputs different as multisets, bit for bit?
Either is asked of the very part every time, so that an operator that depends on where a row stands is told honestly.

Does not show: which row is to blame where several parts would do; one that cannot be made smaller is found, not all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.lore import replaying, session, trust, verifying
from workbench.lore.bridge import Bridge, bridge
from workbench.lore.engines import NotAccelerated, require_accelerated, switched
from workbench.lore.questions import Frames, NotReproduced, Question, Side, different_outputs, same_error
from workbench.lore.rebuild import rebuild
from workbench.lore.searching import Search, Told
from workbench.lore.smaller import Smaller, require_empty
from workbench.lore.store import Store
from workbench.lore.subsets import Subset

MAX_STEPS = 2000
SHOWN_ROWS = 20
Report = Callable[[str], None]


class BisectOptions(BaseModel):
    """What a search may be told."""

    model_config = ConfigDict(extra="forbid")

    partition: int | None = Field(default=None, ge=0, description="Only this one; all that were dumped when null.")
    confs: dict[str, str] = Field(default={}, description="Settings of all sides.")
    confs_a: dict[str, str] = Field(default={}, description="Settings of side A.")
    confs_b: dict[str, str] = Field(default={}, description="Settings of side B.")
    engine: Literal["spark", "comet"] = Field(default="spark", description="comet: side B is that engine.")
    out: str | None = Field(default=None, description="Where the smaller dump goes: a folder with nothing in it.")
    max_steps: int = Field(default=MAX_STEPS, ge=1, le=1_000_000, description="Parts to try at most.")
    show: int = Field(default=SHOWN_ROWS, ge=0, le=1000, description="Rows of each input to show.")
    trust: bool = Field(default=False, description="Load what another user signed, or nobody.")
    master: str = session.MASTER
    driver_memory: str = Field(default=session.DRIVER_MEMORY, pattern=r"^\d{1,6}[kmgt]$")

    @property
    def is_comparison(self) -> bool:
        """Are there two sides?"""
        return bool(self.confs_a or self.confs_b) or self.engine != "spark"

    def replay(self) -> replaying.Options:
        """The same for the pieces that a replay shares."""
        shared = set(replaying.Options.model_fields)
        return replaying.Options(**{key: value for key, value in dict(self).items() if key in shared})


class Bisected(BaseModel):
    """What a search found; one JSON document.

    Attributes
    ----------
    reproduced
        Did the whole dump fail or differ as was asked, and does what is left?
    minimal
        Does leaving out any one row that is left make the failure or difference go away? False when the search was
        stopped by its cap; null when nothing was reproduced.
    looked_for
        What is looked for.
    steps
        How many parts were tried, beside the whole at first and what is left in the end.
    inputs
        index, kind, n_rows_dumped, n_rows, n_partitions (with rows), rows (the first ones: partition, row's place in
        it, both as dumped, and values as JSON).
    sides
        What the operator gives for what is left, by side: an error, or a number of rows.
    only_a, only_b
        The first rows of the output that only one side gives, as JSON.
    out
        Folder of the smaller dump; `verified` says whether it passed the checks of `workbench lore verify`.
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


def bisect(folder: str, options: BisectOptions, *, report: Report, told: Told | None = None) -> Bisected:
    """Find the smallest input with which a dumped operator fails as it did, or two sides differ.

    Parameters
    ----------
    folder
        loreId-N: a folder, a bundle (.zip), or a URL that Hadoop knows.
    options
        See `BisectOptions`.
    report
        Told, with `trust`, what will be loaded before it is.
    told
        Called with (rows left out, rows that there were) as the search goes on.

    Raises
    ------
    InputError, ConfigError
        It is no dump, does not hold, may not be trusted, cannot be replayed here, or `out` is not empty.
    """
    with replaying.opened(folder, options.replay(), report=report) as dump:
        return _Bisection(dump, options).run(told)


class _Bisection:
    def __init__(self, dump: replaying.Opened, options: BisectOptions) -> None:
        # Keys of file systems hold since the start, and may be secret.
        self.confs = {key: value for key, value in options.confs.items() if not key.startswith(replaying.HADOOP)}
        self.spark, self.sidecar, self.options = dump.spark, dump.sidecar, options
        self.plan = (dump.local / "plan.meta").read_bytes()
        session.like_the_dump(self.spark, self.sidecar, self.confs)
        self.base = self._session({}, "spark").quiet()
        self.store = Store(self.base, dump.url)
        self.target = None if options.out is None else Store(self.base, options.out)
        if self.target is not None:
            require_empty(self.target)

    def _session(self, confs: Mapping[str, str], engine: str) -> Bridge:
        """A session of its own, so that sides differ in nothing but these settings."""
        child = self.spark.newSession()
        settings = {**self.confs, **confs, **switched(engine, self.options.engine)}
        session.like_the_dump(child, self.sidecar, settings)
        return bridge(child)

    def run(self, told: Told | None) -> Bisected:
        """Ask of the whole, shrink, ask again, write."""
        options, sidecar = self.options, self.sidecar
        a = Side(self._session(options.confs_a, "spark"), sidecar, self.plan, "spark")
        b = None
        if options.is_comparison:
            b = Side(self._session(options.confs_b, options.engine), sidecar, self.plan, options.engine)
        subsets = [Subset(entry, self.store, self.base) for entry in sidecar.inputs]
        whole = {index: subset.frame(subset.rows) for index, subset in enumerate(subsets)}
        question = self._question(a, b, whole)
        if isinstance(question, NotReproduced):
            return self._result(False, f"not reproduced: {question.reason}", question.looked_for, 0)
        search = Search(subsets, question.holds, options.max_steps, told)
        search.run()
        found = self._found(search, question, a, b)
        return found if self.target is None or not found.reproduced else self._written(found, subsets, a)

    def _question(self, a: Side, b: Side | None, whole: Frames) -> Question | NotReproduced:
        if b is None:
            return same_error(a, self.sidecar, whole)
        try:
            require_accelerated(b.over(whole), self.options.engine, self.sidecar.operator)
        except NotAccelerated as reason:
            return NotReproduced("different outputs of A and B", f"not accelerated: {reason}")
        return different_outputs(a, b, whole)

    def _result(self, reproduced: bool, answer: str, looked_for: str, steps: int) -> Bisected:
        return Bisected(
            folder=self.store.url,
            lore_id=self.sidecar.lore_id,
            operator=self.sidecar.operator,
            operator_text=self.sidecar.operator_text,
            reproduced=reproduced,
            answer=answer,
            looked_for=looked_for,
            steps=steps,
        )

    def _found(self, search: Search, question: Question, a: Side, b: Side | None) -> Bisected:
        left = search.frames()
        again = question.holds(left)
        outcomes = {"replay": a.outcome(left)} if b is None else {"A": a.outcome(left), "B": b.outcome(left)}
        only_a: tuple[str, ...] = ()
        only_b: tuple[str, ...] = ()
        if b is not None and not any(outcome.failure for outcome in outcomes.values()):
            only_a, only_b = _differing_rows(a, b, left)
        return self._result(again, _answer(search, again), question.looked_for, search.steps).model_copy(
            update={
                "minimal": not search.stopped if again else None,
                "inputs": [_told(subset, self.options.show) for subset in search.subsets],
                "sides": {name: str(outcome) for name, outcome in outcomes.items()},
                "only_a": list(only_a),
                "only_b": list(only_b),
                "notes": [*question.notes, *([self.sidecar.masked] if self.sidecar.masked else [])],
            }
        )

    def _written(self, found: Bisected, subsets: Sequence[Subset], side: Side) -> Bisected:
        assert self.target is not None
        settings = {**self.confs, **self.options.confs_a}
        smaller = Smaller(self.sidecar, self.plan, subsets, side.bridge, settings)
        store = smaller.write(self.target)
        update: dict[str, Any] = {"out": store.url, "verified": None}
        if (local := store.local()) is not None:
            sidecar = trust.check(local)
            over = rebuild(store, sidecar, self.plan, side.bridge)
            update["verified"] = verifying.verify(store, sidecar, over).passed
        if left_out := smaller.left_out():
            note = f"settings that no dump may make are not in it; verify it with --conf: {', '.join(left_out)}"
            update["notes"] = [*found.notes, note]
        return found.model_copy(update=update)


def _answer(search: Search, again: bool) -> str:
    pairs = ((len(subset.rows), subset.n_rows_dumped) for subset in search.subsets)
    parts = " and ".join(f"{left} of {dumped}" for left, dumped in pairs)
    if not again:
        return f"not reproduced: {parts} rows once gave it and then did not, so it depends on more than its input"
    if search.stopped:
        return f"reproduced with {parts} rows; stopped after {search.steps} steps, so fewer may do"
    return f"reproduced with {parts} rows, none of which can be left out"


def _differing_rows(a: Side, b: Side, frames: Frames) -> tuple[tuple[str, ...], tuple[str, ...]]:
    with verifying.carried(b.output(frames), a.bridge.quiet()) as other:
        return verifying.first_differences(a.output(frames), other)


def _told(subset: Subset, most: int) -> dict[str, Any]:
    return {
        "index": subset.entry.index,
        "kind": subset.entry.kind,
        "n_rows_dumped": subset.n_rows_dumped,
        "n_rows": len(subset.rows),
        "n_partitions": len(subset.partitions_left()),
        "rows": subset.shown(most) if most else [],
    }
