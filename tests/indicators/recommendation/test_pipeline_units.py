"""The five kinds of units: what each may do, and what happens when a user's own goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar
from unittest.mock import Mock

import polars as pl
import pytest

from tests.indicators.recommendation import making
from tests.indicators.recommendation.making import NAMES, recommended
from workbench.core.errors import InputError
from workbench.indicators.recommendation.evidence import Justification
from workbench.indicators.recommendation.unit_pipeline import (
    Boot,
    Candidate,
    Context,
    NotAcceptable,
    Sieve,
    Step,
    Stride,
    Unit,
    Wrap,
)

BASE, NEW = NAMES["2.2.6"], NAMES["2.4.6"]


@pytest.fixture(scope="module")
def session() -> making.Comparison:
    return making.numpy_session()


def unit(name: str, kind: type[Unit], run: Callable[..., Any], query: str | None = None) -> Unit:
    made: Unit = type(name, (kind,), {"run": run, "query": query})()
    return made


class Prepared(Boot):
    def run(self, context: Context) -> None:
        context.tables["favourites"] = pl.DataFrame({"stack": [BASE]})


class OnlyFavourites(Sieve):
    query = "favourites"

    def run(self, stacks: Iterable[Candidate]) -> Iterable[Candidate]:
        return [stack for stack in stacks if stack.name in self.observations["stack"]]


def test_a_boot_makes_a_table_that_a_later_unit_asks_for_and_a_sieve_leaves_out_by_its_name(session: Any) -> None:
    made = recommended(session, units=[OnlyFavourites(), Prepared()])
    assert made.table["stack"].to_list() == [BASE]
    assert set(made.excluded["unit"]) == {"OnlyFavourites"}
    assert set(made.excluded["reason"]) == {"excluded by OnlyFavourites"}


class Bonus(Step):
    """A tenth more for 2.0.2."""

    def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
        chosen = stack.packages["numpy"] == "2.0.2"
        return (0.1, [stack.info("liked")]) if chosen else (0.0, [])


def test_the_score_is_the_sum_of_the_steps_and_decides_with_the_mix(session: Any) -> None:
    plain, liked = (recommended(session, mix="loop=1,matmul=1", units=units) for units in ((), [Bonus()]))
    row = liked.table.filter(pl.col("stack") == NAMES["2.0.2"]).row(0, named=True)
    before = plain.table.filter(pl.col("stack") == NAMES["2.0.2"]).row(0, named=True)
    assert row["score"] == pytest.approx(before["score"] + 0.1)
    # The figures stay what was measured; the chances are those of the scores.
    assert (row["ratio"], row["verdict"]) == (before["ratio"], before["verdict"])
    assert (plain.answer.stack, liked.answer.stack) == (NEW, NAMES["2.0.2"])
    assert row["p_best"] > 0.99
    assert any(one.message == "liked" for _, one in liked.sentences)


def test_a_step_may_leave_a_stack_out_with_a_reason(session: Any) -> None:
    class Picky(Step):
        def run(self, stack: Candidate) -> tuple[float, list[Justification]]:
            if stack.name == NEW:
                raise NotAcceptable("too new", link="https://example.org")
            return 0.0, []

    row = recommended(session, units=[Picky()]).excluded.row(0, named=True)
    assert (row["stack"], row["unit"], row["reason"], row["link"]) == (NEW, "Picky", "too new", "https://example.org")
    assert len(row["runs"]) == 40


def test_a_stride_denies(session: Any) -> None:
    made = recommended(session, units=[unit("NoOnes", Stride, lambda _, one: one.packages["numpy"] >= "2.")])
    assert set(made.excluded["stack"]) == {NAMES["1.24.4"], NAMES["1.26.4"]}
    assert set(made.excluded["reason"]) == {"denied by NoOnes"}


def test_a_wrap_adds_sentences_and_leaves_the_scores_alone(session: Any) -> None:
    class Told(Wrap):
        def run(self, stack: Candidate) -> list[Justification]:
            version = "==" + stack.packages["numpy"]
            return [stack.warning(f"mind {stack.name}", package_name="numpy", version_range=version)]

    plain, made = recommended(session), recommended(session, units=[Told()])
    assert made.table.equals(plain.table)
    said = [one for stack, one in made.sentences if stack == NEW and one.message == f"mind {NEW}"]
    assert [(one.type, one.package_name, one.version_range) for one in said] == [("WARNING", "numpy", "==2.4.6")]
    assert said[0].link == said[0].evidence.runs[0]


def test_a_unit_takes_part_only_in_the_types_it_is_for(session: Any) -> None:
    class ForLatest(Stride):
        def should_include(self, recommendation_type: str) -> bool:
            return recommendation_type == "latest"

        def run(self, stack: Candidate) -> bool:
            return False

    assert recommended(session, units=[ForLatest()]).excluded.height == 0
    assert recommended(session, type="latest", units=[ForLatest()]).excluded.height == 5
    broken = hostile(Wrap, None)
    broken.should_include = Mock(side_effect=LookupError("who knows"))  # type: ignore[method-assign]
    with pytest.raises(InputError, match="a unit failed"):
        recommended(session, units=[broken])


def test_a_query_may_be_sql_over_the_sessions_tables(session: Any) -> None:
    def count(own: Any, stack: Candidate) -> list[Justification]:
        return [stack.info(f"{dict(own.observations.iter_rows())[stack.name]} good runs")]

    query = "SELECT stack, COUNT(*) AS runs FROM runs WHERE status = 'ok' GROUP BY stack"
    made = recommended(session, units=[unit("Counted", Wrap, count, query)])
    # The baseline's control is the same stack.
    assert [one.message for stack, one in made.sentences if stack == BASE and "good runs" in one.message] == [
        "80 good runs"
    ]
    assert [one.message for stack, one in made.sentences if stack == NEW and "good runs" in one.message] == [
        "40 good runs"
    ]


@pytest.mark.parametrize("name", ["runs", "observations", "checks", "effects", "drift", "packages"])
def test_the_sessions_tables_are_queries_by_name(session: Any, name: str) -> None:
    seen: list[int] = []
    recommended(session, units=[unit("Asking", Wrap, lambda own, _: seen.append(own.observations.width) or [], name)])
    assert len(seen) == 5
    assert min(seen) > 0


@pytest.mark.parametrize(
    ("query_", "said"), [("nothing", "no such query"), ("SELECT nope FROM runs", "the query failed")]
)
def test_a_query_that_is_not_there_is_told_with_the_unit(session: Any, query_: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        recommended(session, units=[unit("Asking", Wrap, lambda *_: [], query_)])
    assert said in str(caught.value)
    assert "unit Asking" in str(caught.value)


def hostile(kind: type[Unit], answer: Any) -> Unit:
    """A unit that gives this, or raises it."""

    def run(*_: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return unit("Hostile", kind, run)


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        (Step, (float("nan"), []), "a score that is not a number"),
        (Step, (1.5, []), "a score out of bounds"),
        (Step, None, "a step did not return a score"),
        (Step, 0.5, "a step did not return a score"),
        (Step, (0.5, ["liked"]), "did not return a list"),
        (Step, ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (Step, SystemExit(0), "SystemExit"),
        (Sieve, None, "TypeError"),
        (Sieve, ["numpy"], "a sieve returned a stack"),
        (Sieve, ValueError("a\nb"), "ValueError: a b"),
        (Wrap, None, "did not return a list"),
        (Step, ValueError("x" * 10_000), "ValueError: xxx"),
        (Step, InputError("a bad file"), "where: unit Hostile"),
    ],
)
def test_a_hostile_unit_is_an_error_that_names_it(session: Any, kind: type[Unit], answer: Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        recommended(session, units=[hostile(kind, answer)])
    text = str(caught.value)
    assert said in text
    assert "unit Hostile" in text
    assert (caught.value.exit_code, len(text) < 500) == (2, True)


def test_two_units_of_one_name_both_count(session: Any) -> None:
    twins = [unit("Twin", Step, lambda *_, bonus=bonus: (bonus, [])) for bonus in (0.1, 0.2)]
    plain, made = recommended(session), recommended(session, units=twins)
    assert made.table["score"].to_list() == pytest.approx([score + 0.3 for score in plain.table["score"]])
    # What all have alike changes no chance.
    assert made.table["p_best"].to_list() == pytest.approx(plain.table["p_best"].to_list())


def test_a_unit_used_again_remembers_no_reasons(session: Any) -> None:
    class Moody(Sieve):
        reasons: ClassVar[list[str]] = ["first"]

        def run(self, stacks: Iterable[Candidate]) -> Iterable[Candidate]:
            given = list(stacks)
            if self.reasons:
                self.reject(given[-1], self.reasons.pop())
            return given[:-1]

    moody = Moody()
    assert recommended(session, units=[moody]).excluded["reason"].to_list() == ["first"]
    assert recommended(session, units=[moody]).excluded["reason"].to_list() == ["excluded by Moody"]


def test_strides_see_the_scores_of_all_stacks_also_those_of_later_steps(session: Any) -> None:
    def is_among_three(own: Any, stack: Candidate) -> bool:
        return stack.name in sorted(own.context.scores, key=lambda name: -own.context.scores[name])[:3]

    best_three = unit("BestThree", Stride, is_among_three)
    made = recommended(session, mix="loop=1,matmul=1", units=[best_three, Bonus()])
    assert made.table.height == 3
    assert made.answer.stack == NAMES["2.0.2"]


def test_a_wrap_may_leave_a_stack_out_a_boot_refuse_the_whole_and_a_sieve_may_not(session: Any) -> None:
    made = recommended(session, units=[hostile(Wrap, NotAcceptable("no words for it"))])
    assert made.answer.stack is None
    assert set(made.excluded["reason"]) == {"no words for it"}
    with pytest.raises(InputError, match="outside of a single stack") as caught:
        recommended(session, units=[hostile(Sieve, NotAcceptable("none of these"))])
    assert "unit Hostile" in str(caught.value)
    assert "none of these" in str(caught.value)
    made = recommended(session, units=[hostile(Boot, NotAcceptable("it is Sunday"))])
    assert made.answer.stack is None
    assert made.answer.sentence == "Nothing is recommended: Hostile: it is Sunday"
