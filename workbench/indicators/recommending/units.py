"""The five kinds of units that a recommendation is made of, and what they see.

    Boot     once, before anything: prepare tables, or refuse
    Sieve    all stacks at once: which stay
    Step     one stack: a score in log space, with sentences; or not acceptable
    Stride   one stack that was scored: accept or deny
    Wrap     one stack that was accepted: more sentences

The score of a stack is the plain sum of its steps' scores, so 0.1 means "as good as being 10 % faster". Derive a class
from one of them, and give it with `--unit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workbench.errors import InputError
from workbench.indicators.recommending.justification import Evidence, Justification, Kind
from workbench.stats import Interval

if TYPE_CHECKING:
    import polars as pl

    from workbench.indicators.archive import Session
    from workbench.indicators.recommending.facts import Facts

_LACKING = re.compile(r"relation '.*' was not found")
RecommendationType = Literal["latest", "stable", "performance", "security", "testing"]


class NotAcceptable(Exception):  # noqa: N818 - upstream's word, and it is no error
    """A unit does not want this stack, and says why.

    Parameters
    ----------
    reason
        Why, as a sentence.
    link
        Where there is more to read; the first run without it.
    runs
        The runs that show it; all of the stack's without them.
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

    Attributes
    ----------
    name, key
        Its name, and the hash of its lock, Python and platform.
    arm
        Its side of the session; null when it was not measured.
    packages
        Name to version.
    uploaded
        Package to the time its files were put on the index, where known.
    yanked
        Package to whether a file was taken back; null: not known.
    baseline, predicted
        It is what others are compared with; its figures come from stacks that share its versions.
    interval
        Ratio to the baseline over the mix, above 1 is better; null ends where there is too little data.
    rounds
        Rounds in which it and the baseline have all values of the mix.
    runs, basis
        Its runs, as paths below the session's folder; the runs that its figures rest on, which are those of all stacks
        when it has none of its own.
    hardware, session
        Where it was measured; for the evidence.
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
        """What its figures go by: its arm, or its key when it was not measured.

        Two arms may have one key: environments of the same versions whose builds differ.
        """
        return self.key if self.arm is None else self.arm

    def info(self, message: str, **more: str) -> Justification:
        """A sentence about this stack that links to the runs behind it; more: link, package_name, version_range."""
        return self.sentence("INFO", message, **more)

    def warning(self, message: str, **more: str) -> Justification:
        """The same, as a warning."""
        return self.sentence("WARNING", message, **more)

    def sentence(self, kind: Kind, message: str, **more: str) -> Justification:
        """The same, of any type."""
        evidence = Evidence(runs=self.basis, hardware=self.hardware, session=self.session)
        own = {"link": self.basis[0] if self.basis else None}
        return Justification(type=kind, message=message, evidence=evidence, **{**own, **more})


@dataclass
class Context:
    """What all units of one recommendation share.

    Attributes
    ----------
    session
        What was planned.
    recommendation_type, baseline, weights, margin
        What is asked for: the type, the baseline's stack, metric to weight, the margin of the mix as a share.
    tables
        Tables by name: runs, observations, checks, effects, drift, packages. A boot may add more.
    facts
        Runs, failures and wrong answers by arm.
    everything, stacks
        All stacks; those that passed the sieves, for steps, strides and wraps.
    scores
        Name of a stack to its score, for strides and wraps.
    database
        Answers a named query or SQL from the database, where one was given.
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
        """The table of a named query: a table of the session, SQL over these, or what the database answers.

        The session comes first. The database answers what the session lacks; in SQL it sees all of its sessions.

        Raises
        ------
        InputError
            There is none of this name, or the SQL is wrong.
        """
        if name in self.tables:
            return self.tables[name]
        if not is_sql(name):
            return self._named(name)
        import polars as pl

        try:
            return pl.SQLContext(self.tables, eager=True).execute(name)
        except pl.exceptions.PolarsError as error:
            if self.database is not None and _LACKING.search(str(error)):
                return self.database(name)
            raise InputError("the query failed", where=name[:200], found=str(error)[:300]) from None

    def _named(self, name: str) -> pl.DataFrame:
        if self.database is not None:
            return self.database(name)
        raise InputError(
            "no such query", found=name[:80], allowed=[*self.tables, "SELECT … FROM one of them"],
            do="give --database for the named queries of `workbench indicators show`",
        )  # fmt: skip


def is_sql(query: str) -> bool:
    """Is this SQL, not a name?"""
    return query.lstrip().lower().startswith(("select ", "select\n", "with "))


class Unit:
    """What all five kinds share.

    Class variables: `query`, the name of the table that it needs (or SQL over the session's tables), found then in
    `self.observations`. `self.context` is set before anything runs.
    """

    query: ClassVar[str | None] = None
    context: Context
    observations: pl.DataFrame

    def should_include(self, recommendation_type: RecommendationType) -> bool:  # noqa: ARG002 - for derived ones
        """Does it take part in a recommendation of this type? By default always."""
        return True

    @property
    def label(self) -> str:
        """Its name in messages."""
        return type(self).__name__


class Boot(Unit):
    """Runs once, first."""

    def run(self, context: Context) -> None:
        """Prepare; raise `NotAcceptable` when nothing can be recommended."""
        raise NotImplementedError


class Sieve(Unit):
    """Sees all stacks at once and lets some through."""

    def run(self, stacks: Iterable[Candidate]) -> Iterable[Candidate]:
        """Give back those that stay. `self.reject(stack, reason)` says why another does not."""
        raise NotImplementedError

    def reject(self, stack: Candidate, reason: str, **more: Any) -> None:
        """Note why a stack is left out; more: link, runs, package_name, version_range, as of `NotAcceptable`."""
        self.rejected[stack.name] = NotAcceptable(reason, **more)

    @property
    def rejected(self) -> dict[str, NotAcceptable]:
        """The reasons so far, by name of the stack."""
        found: dict[str, NotAcceptable] = self.__dict__.setdefault("_rejected", {})
        return found


class Step(Unit):
    """Scores one stack.

    Class variables: `most`, the largest score in either direction; 1 is a factor of e. `measured` is for the mix
    itself: its score is what the intervals are of.
    """

    most: ClassVar[float] = 1.0
    measured: ClassVar[bool] = False

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        """A score within -1 to 1 as a logarithm, and sentences; raise `NotAcceptable` to leave the stack out."""
        raise NotImplementedError


class Stride(Unit):
    """Accepts or denies one stack that was scored."""

    def run(self, stack: Candidate) -> bool:
        """Accept it? Raise `NotAcceptable` to say why not."""
        raise NotImplementedError


class Wrap(Unit):
    """Adds sentences to one stack that was accepted."""

    def run(self, stack: Candidate) -> list[Justification]:
        """More sentences; the score stays."""
        raise NotImplementedError


KINDS = (Boot, Sieve, Step, Stride, Wrap)
