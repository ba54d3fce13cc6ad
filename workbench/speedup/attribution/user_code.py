"""Code of users in a plan, which no engine can read: Python's operators, and functions that are not Spark's own."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files

_OPERATORS = re.compile(
    r"\w*Python\w*|\w*InPySpark|\w*InPandas\w*|\w*MapInArrow|\w*InArrow|ArrowWindowPython|\w*GroupsInR\w*|MapElements"
    r"|MapPartitions\w*|FlatMapGroups\w*|MapGroups|CoGroup|TypedFilter|AppendColumns\w*|ScriptTransformation"
)
_FUNCTIONS = re.compile(
    r"\bUDF\(|\b(?:ScalaUDF|ScalaUDAF|ScalaAggregator|HiveSimpleUDF|HiveGenericUDF|HiveGenericUDTF|HiveUDAFFunction)\b"
)
# Operators of Spark whose arguments are expressions.
_COMPUTING = re.compile(r"Project|Filter|\w*Aggregate|Window|\w*Join|Generate|Sort|Expand|TakeOrderedAndProject")
_PARENTHESES = re.compile(r"([A-Za-z_][\w.]*)?\(|\)")
_STEP = re.compile(r"(?:partial|merge|finalmerge)_")


def is_user_code(name: str, arguments: str) -> bool:
    """Whether a node of a plan runs code of a user.

    Functions that a user registered are known by a name that Spark has not; engines' own nodes never run them.

    >>> is_user_code("Project", "Project [k#1L, score(abs(v#2)) AS s#3]")
    True
    >>> is_user_code("Project", "Project [k#1L, abs(v#2) AS score(v)#3]"), is_user_code("CometProject", "score(v#2)")
    (False, False)
    """
    if _OPERATORS.match(name.removeprefix("Gpu")) or _FUNCTIONS.search(arguments):
        return True
    return (
        _COMPUTING.fullmatch(name.partition("(")[0]) is not None and not _list_calls(arguments) <= _load_known_names()
    )


@lru_cache(maxsize=4096)
def _list_calls(arguments: str) -> frozenset[str]:
    """Functions that an operator calls, in lower case; columns that are named by a call stand before their number."""
    open_calls: list[tuple[str, int]] = []
    calls = set()
    for found in _PARENTHESES.finditer(arguments):
        if found[0] != ")":
            open_calls.append((found[1] or "", found.start()))
        elif open_calls:
            name, start = open_calls.pop()
            # A text begins with its operator; the name of a join's type is no function either.
            if name and start and name != "ExistenceJoin" and not arguments.startswith("#", found.end()):
                calls.add(_STEP.sub("", name.lower(), count=1))
    return frozenset(calls)


@lru_cache(maxsize=1)
def _load_known_names() -> frozenset[str]:
    """Spark's functions and expressions, made by `docs/extract_spark_functions.py`."""
    content = json.loads((files("workbench.speedup") / "spark_functions.json").read_text())
    return frozenset(content["names"])
