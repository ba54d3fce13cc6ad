"""The five kinds of units of a recommendation pipeline, and their inputs.

    Boot     runs once, first: prepare tables, or refuse
    Sieve    sees all stacks together: which ones stay
    Step     sees one stack: a log score with sentences, or not acceptable
    Stride   sees one scored stack: accept or deny
    Wrap     sees one accepted stack: more sentences

The score of a stack is the sum of its steps' scores, so 0.1 counts like being 10 % faster. Own units are classes
derived from one of these, given with `--unit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workbench.core.errors import InputError
from workbench.indicators.recommendation.evidence import Evidence, Justification, Kind
from workbench.stats import Interval

if TYPE_CHECKING:
    import polars as pl

    from workbench.indicators.recommendation.evidence import Facts
    from workbench.indicators.store.archive import Session

_LACKING = re.compile(r"relation '.*' was not found")
RecommendationType = Literal["latest", "stable", "performance", "security", "testing"]


class NotAcceptable(Exception):  # noqa: N818 - upstream's word, and it is no error
    """Raised by a unit that does not accept a stack.

    Parameters
    ----------
    reason
        The reason, as a sentence.
    link
        Link to more information; by default the first run.
    runs
        The runs that show it; by default all runs of the stack.
    package_name, version_range
        The package that is the reason, and its versions.
    """

    def __init__(
        self,
        reason: str,
        *,
        link: str | None = None,
        runs: Iterable[str] | None = None,
        package_name: str | None = None,
        version_range: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.link = link
        self.runs = None if runs is None else tuple(runs)
        self.package_name = package_name
        self.version_range = version_range


@dataclass(frozen=True)
class Candidate:
    """A stack as units see it.

    `arm`: Its arm of the session; null if it was not measured.
    `yanked`: Package to whether a file was yanked; null: unknown.
    `baseline`, `predicted`: Whether it is the baseline; whether its ratio is estimated from stacks that share its
    versions.
    `interval`: Ratio to the baseline over the mix, above 1 is better; the ends are null with too little data.
    `rounds`: Number of rounds in which it and the baseline have all values of the mix.
    `runs`, `basis`: Its runs, as paths relative to the session's folder; the runs behind its figures, which are those
    of all stacks if it has none of its own.
    """

    name: str
    key: str
    arm: str | None
    packages: Mapping[str, str]
    uploaded: Mapping[str, str | None] = field(default_factory=dict)
    yanked: Mapping[str, bool | None] = field(default_factory=dict)
    baseline: bool = False
    predicted: bool = False
    interval: Interval = field(default_factory=lambda: Interval(None, None, None, 0.95, 0, "none"))
    rounds: int = 0
    runs: tuple[str, ...] = ()
    basis: tuple[str, ...] = ()
    hardware: str | None = None
    session: str | None = None

    @property
    def place(self) -> str:
        """Identifies it in estimates: its arm, or its key if it was not measured.

        Two arms can share a key if their environments have the same versions but different builds.
        """
        return self.key if self.arm is None else self.arm

    def info(self, message: str, **more: str) -> Justification:
        """An INFO sentence about this stack, with its runs; `more`: link, package_name, version_range."""
        return self.sentence("INFO", message, **more)

    def warning(self, message: str, **more: str) -> Justification:
        """A WARNING sentence about this stack."""
        return self.sentence("WARNING", message, **more)

    def sentence(self, kind: Kind, message: str, **more: str) -> Justification:
        """A sentence of any type about this stack."""
        evidence = Evidence(runs=self.basis, hardware=self.hardware, session=self.session)
        defaults = {"link": self.basis[0] if self.basis else None}
        return Justification(type=kind, message=message, evidence=evidence, **{**defaults, **more})


@dataclass
class Context:
    """Data shared by all units of a recommendation.

    `recommendation_type`, `baseline`, `weights`, `margin`: The type, the baseline's stack, metric to weight, and the
    margin of the mix as a share.
    `tables`: Tables by name: runs, observations, checks, effects, drift, packages. A boot may add more.
    `everything`, `stacks`: All stacks; the stacks that passed all sieves, for steps, strides and wraps.
    `database`: Runs a named query or SQL on the database; null without one.
    """

    session: Session
    recommendation_type: RecommendationType
    baseline: str
    weights: Mapping[str, float]
    margin: float
    tables: dict[str, pl.DataFrame]
    facts: Facts
    everything: tuple[Candidate, ...] = ()
    stacks: tuple[Candidate, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    database: Callable[[str], pl.DataFrame] | None = None

    def query(self, name: str) -> pl.DataFrame:
        """Run a query: the name of a table of the session, SQL over these tables, or a query of the database.

        The session takes precedence; the database is used for queries that the session lacks. SQL on the database sees
        all of its sessions.

        Raises
        ------
        InputError
            No such query, or invalid SQL.
        """
        if name in self.tables:
            return self.tables[name]
        if not is_sql(name):
            return self._find_table(name)
        import polars as pl

        try:
            return pl.SQLContext(self.tables, eager=True).execute(name)
        except pl.exceptions.PolarsError as error:
            if self.database is not None and _LACKING.search(str(error)):
                return self.database(name)
            raise InputError("the query failed", where=name[:200], found=str(error)[:300]) from None

    def _find_table(self, name: str) -> pl.DataFrame:
        if self.database is not None:
            return self.database(name)
        raise InputError(
            "no such query", found=name[:80], allowed=[*self.tables, "SELECT … FROM one of them"],
            do="give --database for the named queries of `workbench indicators show`",
        )  # fmt: skip


def is_sql(query: str) -> bool:
    """Whether a query is SQL rather than a name."""
    return query.lstrip().lower().startswith(("select ", "select\n", "with "))


class Unit:
    """Base of all five kinds.

    The class variable `query` names the table that the unit needs (or is SQL over the session's tables); its result is
    in `self.observations`. `self.context` is set before any unit runs.
    """

    query: ClassVar[str | None] = None
    context: Context
    observations: pl.DataFrame

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002 - for derived ones
        """Whether the unit takes part in recommendations of this type; by default in all."""
        return True

    @property
    def label(self) -> str:
        """The unit's name in messages."""
        return type(self).__name__


class Boot(Unit):
    """Runs once, before all other units."""

    def run(self, context: Context) -> None:
        """Prepare tables; raise `NotAcceptable` if nothing can be recommended."""
        raise NotImplementedError


class Sieve(Unit):
    """Sees all stacks together and lets some pass."""

    def run(self, stacks: Iterable[Candidate]) -> Iterable[Candidate]:
        """Return the stacks that stay; call `self.reject(stack, reason)` for the others."""
        raise NotImplementedError

    def reject(self, stack: Candidate, reason: str, **more: Any) -> None:
        """Note why a stack is excluded; `more`: link, runs, package_name, version_range, as of `NotAcceptable`."""
        self.rejected[stack.name] = NotAcceptable(reason, **more)

    @property
    def rejected(self) -> dict[str, NotAcceptable]:
        """The reasons so far, by the stack's name."""
        reasons: dict[str, NotAcceptable] = self.__dict__.setdefault("_rejected", {})
        return reasons


class Step(Unit):
    """Scores one stack.

    Class variables: `most`, the limit of the score in either direction (1 is a factor of e); `measured`, true only for
    the measured mix, which the intervals are about.
    """

    most: ClassVar[float] = 1.0
    measured: ClassVar[bool] = False

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """Return a log score from -1 to 1 with sentences; raise `NotAcceptable` to exclude the stack."""
        raise NotImplementedError


class Stride(Unit):
    """Accepts or denies a scored stack."""

    def run(self, stack: Candidate) -> bool:
        """Whether to accept the stack; raise `NotAcceptable` to give a reason."""
        raise NotImplementedError


class Wrap(Unit):
    """Adds sentences to an accepted stack."""

    def run(self, stack: Candidate) -> list[Justification]:
        """Return more sentences; the score does not change."""
        raise NotImplementedError


KINDS = (Boot, Sieve, Step, Stride, Wrap)
