"""The pinned reference of a history: the baseline of every session, and the control in place of an equal lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indicators.stacks.making import lock, stack_set
from workbench.core.errors import ConfigError
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.session_inputs import REFERENCE, add_reference
from workbench.indicators.stacks.stack_sets import Stack

OLD, NEW = (lock({"numpy": version}, f"numpy {version}") for version in ("2.2.6", "2.4.6"))


def pinned(folder: Path, *stacks: Stack) -> str:
    return str(stack_set(stacks).write(folder / "reference.json"))


def test_the_reference_comes_first_and_an_equal_lock_is_left_to_the_control(tmp_path: Path) -> None:
    config = session_config(reference=pinned(tmp_path, OLD))
    found, stood_for = add_reference(config, stack_set([NEW]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE, "numpy 2.4.6"], None)
    assert found.stacks[0].key == OLD.key
    found, stood_for = add_reference(config, stack_set([OLD, NEW]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE, "numpy 2.4.6"], "numpy 2.2.6")
    found, stood_for = add_reference(config, stack_set([OLD]))
    assert ([stack.name for stack in found.stacks], stood_for) == ([REFERENCE], "numpy 2.2.6")


def test_what_is_no_single_pinned_stack_is_refused(tmp_path: Path) -> None:
    two = session_config(reference=pinned(tmp_path, OLD, NEW))
    with pytest.raises(ConfigError, match="exactly one pinned stack is needed"):
        add_reference(two, stack_set([NEW]))
    one = session_config(reference=pinned(tmp_path, OLD))
    with pytest.raises(ConfigError, match="the baseline, and other stacks"):
        add_reference(one, None)
    with pytest.raises(ConfigError, match="the baseline, and other stacks"):
        add_reference(one.model_copy(update={"baseline": "numpy 2.4.6"}), stack_set([NEW]))
    with pytest.raises(ConfigError, match="named like the reference"):
        add_reference(session_config(reference=pinned(tmp_path, OLD)), stack_set([lock({"numpy": "2.4.6"}, REFERENCE)]))
