"""Names that tell stacks apart, and no longer than that."""

from __future__ import annotations

from collections.abc import Sequence

from tests.indicators.stacks.making import lock
from workbench.indicators.stacks.stack_sets import Stack, list_varying_packages, name_stacks


def stack(letter: str = "a", **versions: str) -> Stack:
    return lock(versions, hash_of=letter)


def names(stacks: Sequence[Stack], *first: str) -> list[str]:
    return [one.name for one in name_stacks(stacks, first)]


def test_only_packages_that_vary_or_that_some_lack_are_named_in_the_order_of_asking() -> None:
    stacks = [stack(numpy="2.2.6", pandas="2.2.3"), stack(numpy="2.4.6", pandas="2.2.3")]
    assert names(stacks, "numpy", "pandas") == ["numpy 2.2.6", "numpy 2.4.6"]
    both = [stack(numpy="1", pandas="1"), stack(numpy="1", pandas="2"), stack(numpy="2", pandas="1")]
    assert names(both, "pandas", "numpy") == ["pandas 1, numpy 1", "pandas 2, numpy 1", "pandas 1, numpy 2"]
    some = [stack(numpy="1"), stack(numpy="1", six="2")]
    assert names(some, "numpy") == ["no six", "six 2"]
    assert list_varying_packages(some) == ["six"]


def test_another_package_helps_where_the_free_ones_do_not_tell_apart() -> None:
    stacks = [stack(numpy="1", six="1", pytz="1"), stack(numpy="1", six="2", pytz="1")]
    assert names(stacks, "numpy") == ["six 1", "six 2"]
    more = [*stacks, stack(numpy="2", six="1", pytz="1")]
    assert names(more, "numpy") == ["numpy 1, six 1", "numpy 1, six 2", "numpy 2, six 1"]


def test_the_key_tells_apart_what_packages_do_not() -> None:
    stacks = [stack("a", numpy="1"), stack("b", numpy="1")]
    assert names(stacks, "numpy") == [f"numpy 1 ({one.key[:6]})" for one in stacks]


def test_a_single_stack_is_named_after_what_was_asked() -> None:
    assert names([stack(numpy="1", six="2")], "six") == ["six 2"]
    assert names([stack(numpy="1", six="2")]) == ["numpy 1"]
    assert names([], "six") == []
