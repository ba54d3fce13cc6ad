"""Plans are read as Spark writes them; joins of a run are carried to another session's plan by their keys."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from workbench.speedup.planning import planned_operators
from workbench.speedup.planning.planned_operators import NOT_RUN, RunJoin, expect_joins, match_run_joins, read_plan

Tree = dict[str, Any]


def node(name: str, *children: Tree, text: str = "") -> Tree:
    return {"nodeName": name, "simpleString": text or name, "children": list(children), "metrics": [], "metadata": {}}


def join(kind: str, keys: tuple[str, str], *children: Tree, type_: str = "Inner") -> Tree:
    return node(kind, *children, text=f"{kind} [{keys[0]}], [{keys[1]}], {type_}")


def plan(tree: Tree, explanation: str | None = None) -> list[planned_operators.PlannedOperator]:
    return read_plan(json.dumps(tree), explanation)


def adaptive(tree: Tree) -> Tree:
    return node("AdaptiveSparkPlan", tree)


def scan() -> Tree:
    return node("CometNativeScan parquet ")


MIXED = adaptive(
    node(
        "HashAggregate",
        node("Exchange", node("HashAggregate", join("SortMergeJoin", ("a#1L", "b#2L"), node("CometSort"), scan()))),
    )
)
EXPLAINED = """\
 HashAggregate [COMET: its buffers differ: count(x#12)]
+- Exchange
   +- HashAggregate
      +-  SortMergeJoin [COMET: Unsupported join type ExistenceJoin(exists#4807)]
         :- CometSort
         +- CometNativeScan parquet

Comet accelerated 2 out of 6 eligible operators (33%).
"""


def test_work_is_the_engines_or_left_to_spark_with_its_reason() -> None:
    operators = plan(MIXED, EXPLAINED)
    left = planned_operators.list_left_to_spark(operators)
    assert [operator.name for operator in left] == ["HashAggregate", "Exchange", "HashAggregate", "SortMergeJoin"]
    # Ids of columns differ from session to session, and say nothing.
    assert [operator.reason for operator in left] == [
        "its buffers differ: count(x)",
        None,
        None,
        "Unsupported join type ExistenceJoin(exists)",
    ]
    assert len(planned_operators.list_work(operators)) == 6


def test_reasons_of_a_name_that_the_explanation_has_more_often_are_not_guessed() -> None:
    operators = plan(MIXED, EXPLAINED + " HashAggregate [COMET: of a subquery]\n")
    reasons = {operator.reason for operator in operators if operator.name == "HashAggregate"}
    assert reasons == {None}
    assert any(operator.reason for operator in operators)


def test_borders_are_counted_where_adaptive_plans_do_not_show_them() -> None:
    # Both inputs of the join are converted; the result is the engine's only in the second plan.
    assert planned_operators.count_transitions(plan(MIXED)) == 2
    assert planned_operators.count_transitions(plan(adaptive(node("CometProject", scan())))) == 1
    assert planned_operators.count_transitions(plan(node("Project", node("Scan parquet ")))) == 0


def test_a_join_of_a_run_is_found_again_by_its_keys_under_another_kind() -> None:
    first = plan(
        adaptive(
            join(
                "SortMergeJoin",
                ("a#1L", "b#2L"),
                join("SortMergeJoin", ("c#3", "d#4"), node("Sort"), node("Sort")),
                node("Sort"),
            )
        )
    )
    final = plan(adaptive(join("BroadcastHashJoin", ("a#1L", "b#2L"), node("EmptyRelation"), node("Sort"))))
    assert match_run_joins(first, final) == [
        RunJoin("[a], [b]", "SortMergeJoin", "BroadcastHashJoin"),
        RunJoin("[c], [d]", "SortMergeJoin", NOT_RUN),
    ]


def test_expected_joins_are_those_of_the_run_by_name_not_by_id() -> None:
    run = [RunJoin("[a], [b]", "SortMergeJoin", "BroadcastHashJoin"), RunJoin("[c], [d]", "SortMergeJoin", NOT_RUN)]
    candidate = plan(
        adaptive(
            join(
                "CometSortMergeJoin",
                ("a#71L", "b#72L"),
                join("CometSortMergeJoin", ("c#73", "d#74"), scan(), scan()),
                join("CometBroadcastHashJoin", ("e#75", "f#76"), scan(), scan()),
            )
        )
    )
    assert list(expect_joins(candidate, run).values()) == ["BroadcastHashJoin", NOT_RUN, "BroadcastHashJoin"]
    assert list(expect_joins(candidate, []).values()) == ["SortMergeJoin", "SortMergeJoin", "BroadcastHashJoin"]


def test_a_join_that_the_engine_plans_as_another_kind_keeps_it() -> None:
    run = [RunJoin("[a], [b]", "SortMergeJoin", "SortMergeJoin")]
    candidate = plan(join("CometHashJoin", ("a#1", "b#2"), scan(), scan()))
    assert list(expect_joins(candidate, run).values()) == ["ShuffledHashJoin"]


KINDS = st.sampled_from(["SortMergeJoin", "BroadcastHashJoin"])
KEYS = st.sampled_from(["a", "b", "c"])


@given(
    joins=st.lists(st.tuples(KEYS, KINDS, st.one_of(KINDS, st.none())), min_size=1, max_size=8),
    shift=st.integers(0, 99),
)
def test_whatever_became_of_the_joins_the_same_is_expected_of_the_same_plan(
    joins: list[tuple[str, str, str | None]], shift: int
) -> None:
    def chain(kinds: list[tuple[int, str, str]], first_id: int) -> Tree:
        tree = scan()
        for place, key, kind in kinds:
            tree = join(kind, (f"{key}#{first_id + 2 * place}", f"{key}#{first_id + 2 * place + 1}"), tree, scan())
        return adaptive(tree)

    planned = [(place, key, kind) for place, (key, kind, _) in enumerate(joins)]
    ran = [(place, key, kind) for place, (key, _, kind) in enumerate(joins) if kind is not None]
    run = match_run_joins(plan(chain(planned, 1)), plan(chain(ran, 1)))
    expected = expect_joins(plan(chain(planned, 1 + shift)), run)
    # The top of the tree comes first in a plan.
    assert list(expected.values()) == [kind or NOT_RUN for _, _, kind in reversed(joins)]
