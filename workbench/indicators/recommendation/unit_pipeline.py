"""Run boots, sieves, steps, strides and wraps in order, and load a user's own units."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.user_code import import_user_module
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
        """The answer of a named query of the database; refused without a database."""
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


def load_unit(text: str) -> Unit:
    """Load a unit from `module:Class` or `file.py:Class`; it is created without arguments.

    Raises
    ------
    ConfigError
        It cannot be imported or created, there is no such class, or it is none of the five kinds.
    """
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise ConfigError("not a unit", where="--unit", found=text[:200], allowed="module:Class or file.py:Class")
    try:
        module = import_user_module(where)
    # User code may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        raise ConfigError("the unit cannot be imported", where=text[:200], found=format_exception(error)) from error
    unit_class = getattr(module, name, None)
    if not (isinstance(unit_class, type) and issubclass(unit_class, KINDS) and unit_class not in KINDS):
        names = [key for key, member in vars(module).items() if isinstance(member, type) and issubclass(member, KINDS)]
        unit_names = [key for key in names if vars(module)[key] not in KINDS]
        message = "no such class" if unit_class is None else "not a unit"
        raise ConfigError(
            message, where=text[:200], found=f"units there: {', '.join(unit_names) or 'none'}",
            allowed="a class derived from " + ", ".join(kind.__name__ for kind in KINDS),
        )  # fmt: skip
    try:
        return unit_class()
    except (Exception, SystemExit) as error:
        raise ConfigError("the unit cannot be created", where=text[:200], found=format_exception(error)) from error


def format_exception(error: BaseException) -> str:
    """An exception of user code in one short line."""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True)
class Excluded:
    """An excluded stack, with the unit and the reason."""

    stack: Candidate
    unit: str
    reason: str
    link: str | None
    runs: tuple[str, ...]
    package_name: str | None = None
    version_range: str | None = None


@dataclass
class Accepted:
    """An accepted stack: the scores of the steps, the measured part of them, and its sentences."""

    stack: Candidate
    scores: list[tuple[str, float]] = field(default_factory=list)
    measured: float = 0.0
    sentences: list[Justification] = field(default_factory=list)

    @property
    def score(self) -> float:
        """The sum of the steps' scores."""
        return math.fsum(score for _, score in self.scores)

    @property
    def extra(self) -> float:
        """The part of the score that does not come from the measured mix."""
        return self.score - self.measured


def select_units(units: Sequence[Unit], context: Context) -> list[Unit]:
    """Select the units for this type of recommendation, and set their context."""
    active = []
    for unit in units:
        with _blame_unit(unit):
            if unit.should_include(context.recommendation_type):
                unit.context = context
                active.append(unit)
    return active


def boot_units(units: Sequence[Unit], context: Context) -> str | None:
    """Run the boots, then load every unit's observations; return null, or why nothing can be recommended."""
    for unit in units:
        if isinstance(unit, Boot):
            try:
                _load_unit_observations(unit, context)
                with _blame_unit(unit, may_refuse=True):
                    unit.run(context)
            except NotAcceptable as refused:
                return f"{unit.label}: {refused.reason}"
    for unit in units:
        if not isinstance(unit, Boot):
            _load_unit_observations(unit, context)
    return None


def sieve_stacks(units: Sequence[Unit], stacks: Sequence[Candidate]) -> tuple[list[Candidate], list[Excluded]]:
    """Run the sieves: the stacks that pass all of them, and the excluded ones."""
    candidates, excluded = list(stacks), list[Excluded]()
    for unit in units:
        if isinstance(unit, Sieve):
            unit.rejected.clear()
            given = set(map(id, candidates))
            with _blame_unit(unit):
                survivors = list(unit.run(iter(candidates)))
            for stack in survivors:
                if id(stack) not in given:
                    raise InputError(
                        "a sieve returned a stack that it was not given",
                        where=f"unit {unit.label}",
                        found=repr(stack)[:80],
                    )
            names = {stack.name for stack in survivors}
            for stack in candidates:
                if stack.name not in names:
                    refused = unit.rejected.get(stack.name) or NotAcceptable(f"excluded by {unit.label}")
                    excluded.append(_build_exclusion(unit, stack, refused))
            candidates = [stack for stack in candidates if stack.name in names]
    return candidates, excluded


def score_stacks(
    units: Sequence[Unit], stacks: Sequence[Candidate], context: Context
) -> tuple[list[Accepted], list[Excluded]]:
    """Run steps, strides and wraps: the accepted stacks with scores and sentences, and the excluded ones.

    All stacks are scored before the first stride; `context.scores` then holds the scores by name.
    """
    excluded: list[Excluded] = []
    contenders = [Accepted(stack) for stack in stacks]
    for kind, run_unit in ((Step, _run_step), (Stride, _run_stride), (Wrap, _run_wrap)):
        survivors = []
        for contender in contenders:
            unit: Any = None
            try:
                for unit in (unit for unit in units if isinstance(unit, kind)):
                    run_unit(unit, contender)
                survivors.append(contender)
            except NotAcceptable as refused:
                excluded.append(_build_exclusion(unit, contender.stack, refused))
        contenders = survivors
        context.scores.update({survivor.stack.name: survivor.score for survivor in contenders})
    return contenders, excluded


def _run_step(unit: Step, contender: Accepted) -> None:
    """Add a step's score and sentences to a contender; a wrong answer is refused with the unit's name."""
    with _blame_unit(unit, may_refuse=True):
        answer = unit.run(contender.stack)
    try:
        score, sentences = answer
        value = float(score)
        if not math.isfinite(value) or abs(value) > unit.most:
            raise InputError(
                "a score that is not a number" if math.isnan(value) else "a score out of bounds",
                where=f"unit {unit.label}", found=value, allowed=f"-{unit.most:g} to {unit.most:g}",
            )  # fmt: skip
    except (TypeError, ValueError):
        raise InputError(
            "a step did not return a score and a list of sentences",
            where=f"unit {unit.label}",
            found=repr(answer)[:80],
        ) from None
    contender.scores.append((unit.label, value))
    contender.measured += value if unit.measured else 0.0
    contender.sentences += _check_sentences(unit, sentences)


def _run_stride(unit: Stride, contender: Accepted) -> None:
    with _blame_unit(unit, may_refuse=True):
        if not unit.run(contender.stack):
            raise NotAcceptable(f"denied by {unit.label}")


def _run_wrap(unit: Wrap, contender: Accepted) -> None:
    with _blame_unit(unit, may_refuse=True):
        sentences = unit.run(contender.stack)
    contender.sentences += _check_sentences(unit, sentences)


def _check_sentences(unit: Unit, sentences: Any) -> list[Justification]:
    if isinstance(sentences, list | tuple) and all(isinstance(sentence, Justification) for sentence in sentences):
        return list(sentences)
    raise InputError(
        "a unit did not return a list of Justification", where=f"unit {unit.label}", found=repr(sentences)[:80],
        do='return [stack.info("…")]',
    )  # fmt: skip


def _load_unit_observations(unit: Unit, context: Context) -> None:
    if unit.query is None:
        return
    try:
        unit.observations = context.query(unit.query)
    except WorkbenchError as error:
        error.facts["where"] = f"unit {unit.label}, query"
        raise


@contextlib.contextmanager
def _blame_unit(unit: Unit, *, may_refuse: bool = False) -> Iterator[None]:
    """Turn whatever a unit raises into an error that names it, except refusals where these are allowed."""
    where = f"unit {unit.label}"
    try:
        yield
    except NotAcceptable as refused:
        if may_refuse:
            raise
        raise InputError(
            "a unit raised NotAcceptable outside of a single stack", where=where, found=refused.reason[:200],
            do="in a sieve, call self.reject(stack, reason)",
        ) from refused  # fmt: skip
    except WorkbenchError as error:
        error.facts["where"] = error.facts.get("where") or where
        raise
    # User code may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        raise InputError(
            "a unit failed", where=where, found=format_exception(error), do="correct the unit, or omit it"
        ) from error


def _build_exclusion(unit: Unit, stack: Candidate, refused: NotAcceptable) -> Excluded:
    runs = refused.runs or stack.basis
    link = refused.link or (runs[0] if runs else None)
    return Excluded(
        stack, unit.label, refused.reason[:1000], link, runs, refused.package_name, refused.version_range
    )  # fmt: skip
