"""What the original tool lists as potential problems of a query."""

from __future__ import annotations

import pytest

from workbench.eventlog.plan_graph import PlanNode
from workbench.speedup.compat_rapids_tools.format_support import NESTED, Read, list_problems


def nodes(*texts: str) -> list[PlanNode]:
    """Nodes of these texts, named by their first words."""
    return [PlanNode(place, text.split(" [")[0], text, 0, None, [], []) for place, text in enumerate(texts)]


UDF, HOUR, RDD = "Project [myUDF(a#1)]", "Filter [hour(b#2)]", "Scan ExistingRDD [a#1]"


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((UDF, HOUR), {"UDF", "TIMEZONE hour()"}),
        ((UDF, RDD, HOUR), set()),
        ((RDD, UDF), set()),
        (("Sort [a#1]",), set()),
    ],
)
def test_a_query_that_works_on_rdds_from_some_node_on_has_no_problems(texts: tuple[str, ...], found: set[str]) -> None:
    assert set(list_problems(nodes(*texts), [])) == found


def test_a_nested_column_that_is_read_is_a_problem_also_of_rdds() -> None:
    assert list_problems(nodes(RDD), [Read("parquet", "a:struct<b:array<int>>")]) == [NESTED]
    assert list_problems(nodes(RDD), [Read("parquet", "a:int")]) == []
