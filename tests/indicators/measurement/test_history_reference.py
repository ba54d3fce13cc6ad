"""The pinned reference of a history: the baseline of every session, and the control in place of an equal lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.config import session_config
from workbench.indicators.measurement.session_inputs import REFERENCE, add_reference
from workbench.indicators.stacks.stack_sets import Package, Stack, StackSet, build_stack


def made(*versions: str, name: str = "numpy {}") -> list[Stack]:
    return [
        build_stack(
            [Package(name="numpy", version=version, hashes=(f"sha256:{index:064x}",))],
            python="3.11",
            platform="linux",
            name=name.format(version),
        )
        for index, version in enumerate(versions)
    ]


def stack_set(stacks: list[Stack]) -> StackSet:
    return StackSet(
        requirements=("numpy",),
        free=(),
        decision="grid",
        python="3.11",
        platform="linux",
        uv_version="1",
        stacks=tuple(stacks),
    )


def pinned(folder: Path, stacks: list[Stack]) -> str:
    return str(stack_set(stacks).write(folder / "reference.json"))


def test_the_reference_comes_first_and_an_equal_lock_is_left_to_the_control(tmp_path: Path) -> None:
    old, new = made("2.2.6", "2.4.6")
    config = session_config(reference=pinned(tmp_path, [old]))
    found, stood_for = add_reference(config, stack_set([new]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE, "numpy 2.4.6"], None)
    assert found.stacks[0].key == old.key
    found, stood_for = add_reference(config, stack_set([old, new]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE, "numpy 2.4.6"], "numpy 2.2.6")
    found, stood_for = add_reference(config, stack_set([old]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE], "numpy 2.2.6")


def test_what_is_no_single_pinned_stack_is_refused(tmp_path: Path) -> None:
    old, new = made("2.2.6", "2.4.6")
    two = session_config(reference=pinned(tmp_path, [old, new]))
    with pytest.raises(ConfigError, match="not one pinned stack"):
        add_reference(two, stack_set([new]))
    one = session_config(reference=pinned(tmp_path, [old]))
    with pytest.raises(ConfigError, match="the baseline beside stacks"):
        add_reference(one, None)
    with pytest.raises(ConfigError, match="the baseline beside stacks"):
        add_reference(one.model_copy(update={"baseline": "numpy 2.4.6"}), stack_set([new]))
    (named,) = made("2.4.6", name=REFERENCE)
    with pytest.raises(ConfigError, match="named like the reference"):
        add_reference(session_config(reference=pinned(tmp_path, [old])), stack_set([named]))
