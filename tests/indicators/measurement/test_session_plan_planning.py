"""The plan of a session: sides, cases, what does not apply, what is refused before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tests.indicators.measurement.making import SCRIPT, Tiny, session, two_sides
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.config import session_config
from workbench.indicators.contract.indicator import Case, Indicator, check, parameter, result
from workbench.indicators.measurement import session_plan, stack_variants
from workbench.indicators.measurement.session_plan import PreparedCase
from workbench.indicators.measurement.stack_variants import Variant
from workbench.indicators.store.archive import Arm


class NeedsNumpy(Indicator):
    """Needs a package. And more is told here."""

    script: ClassVar[Path | str] = SCRIPT
    requires: ClassVar[tuple[str, ...]] = ("numpy",)
    n: int = parameter(1)
    elapsed_ms: float = result(unit="ms", better="lower", tolerance=0.05)
    rate: float = result(unit="1/s", better="higher", derived=True)
    digest: str = check()
    error: float = check(at_most=1.0)


def side(name: str, copy: int = 0, **packages: str) -> Variant:
    return Variant(Arm(name=name, stack=name, stack_key=name, packages=packages, copy_number=copy), sys.executable, {})


def test_a_plan_says_all_that_is_compared() -> None:
    plan = session([Case.from_parameters(NeedsNumpy)], [side("a", numpy="1"), side("b"), side("control", 1, numpy="1")])
    (case,) = plan.cases
    assert (plan.baseline, case.label, case.about) == ("a", "NeedsNumpy", "Needs a package. And more is told here.")
    assert [(one.name, one.field, one.unit, one.better, one.tolerance) for one in case.metrics] == [
        ("NeedsNumpy", "elapsed_ms", "ms", "lower", 0.05)
    ]
    assert case.compared_checks == ("digest",)
    assert case.skipped == {"b": "has no numpy"}
    assert case.declaration == NeedsNumpy.model_json_schema()
    assert case.indicator_version == NeedsNumpy.version()


def test_what_the_baseline_lacks_cannot_be_planned() -> None:
    with pytest.raises(ConfigError, match="the baseline cannot run this") as caught:
        session([Case.from_parameters(NeedsNumpy)], [side("a"), side("b", numpy="1")])
    assert "has no numpy" in str(caught.value)


def test_nothing_to_measure_and_the_same_twice_are_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to measure"):
        session_plan.build_session_plan("x", session_config(), two_sides(), [])
    with pytest.raises(ConfigError, match="twice"):
        session([Case.from_parameters(Tiny), Case.from_parameters(Tiny, {"n": 2})])


def test_more_threads_than_cores_are_noted() -> None:
    assert any("threads share" in note for note in session(threads=1000).notes)
    assert session(threads=1).notes == ()


def test_a_seed_is_chosen_and_told() -> None:
    assert session(seed=None).seed != session(seed=None).seed


def test_the_memory_limit_leaves_the_machine_something() -> None:
    config = session_config()
    assert config.memory_limit_bytes(4 << 30) == 3 << 30
    assert config.memory_limit_bytes(1 << 40) == 8 << 30
    assert session_config(memory_bytes=1 << 30).memory_limit_bytes(4 << 30) == 1 << 30


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": ()},
        {"rounds": (10, 5)},
        {"rounds": (0,)},
        {"rounds": (5, 5)},
        {"rounds": (100_000,)},
        {"alpha": 0.0},
        {"alpha": float("nan")},
        {"threads": 0},
        {"timeout_s": 0},
        {"timeout_s": float("inf")},
        {"memory_bytes": 1},
        {"seed": -1},
        {"surprise": 1},
    ],
)
def test_a_session_that_cannot_be_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not a valid session") as caught:
        session_config(**settings)
    assert next(iter(settings)) in str(caught.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        session_config(threads=0, alpha=2.0)
    assert "threads" in str(caught.value)
    assert "alpha" in str(caught.value)


def test_an_environment_is_asked_what_is_in_it() -> None:
    one, two, control = two_sides()
    assert one.arm.packages["numpy"] == two.arm.packages["numpy"]
    assert one.arm.python == ".".join(map(str, sys.version_info[:3]))
    assert (control.arm.name, control.arm.copy_number, control.python) == ("control", 1, one.python)
    assert one.arm.notes == {}
    assert control.arm.notes == {"environment": "the baseline's own, not a copy"}


def test_a_folder_of_an_environment_will_do_and_the_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = stack_variants.build_python_variants({"a": str(tmp_path)})
    assert found[0].python == str(tmp_path / "bin" / "python")


def test_the_baseline_comes_first() -> None:
    found = stack_variants.build_python_variants({"a": sys.executable, "b": sys.executable}, "b")
    assert [one.arm.name for one in found] == ["b", "a", "control"]
    assert found[-1].arm.stack == "b"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["nothing"], "not an environment"),
        (["=x"], "not an environment"),
        (["a="], "not an environment"),
        (["a=x", "a=y"], "two environments of one name"),
    ],
)
def test_environments_that_cannot_be_read_are_refused(texts: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        stack_variants.parse_pythons(texts)


@pytest.mark.parametrize("path", ["/nowhere/python", "/bin/true", "/etc"])
def test_a_path_without_a_python_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="not a Python"):
        stack_variants.build_python_variants({"a": path})


def test_a_side_called_like_the_control_is_refused() -> None:
    with pytest.raises(ConfigError, match="two variants of one name"):
        stack_variants.build_python_variants({"control": sys.executable})


def test_an_unknown_baseline_and_no_stack_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="no such stack"):
        stack_variants.choose_baseline("c", ["a", "b"])
    with pytest.raises(ConfigError, match="no stack to measure"):
        stack_variants.choose_baseline(None, [])


def test_a_changed_environment_is_not_the_session_s_any_more() -> None:
    before = [side("a", numpy="1")]
    stack_variants.check_environments([side("a", numpy="1")], [one.arm for one in before])
    for now in ([side("a", numpy="2")], []):
        with pytest.raises(RunFailedError, match="has changed since the session started"):
            stack_variants.check_environments(now, [one.arm for one in before])


def test_a_specification_of_ours_is_one_that_can_be_read_again(tmp_path: Path) -> None:
    import json

    from workbench.indicators.compat_thoth import amun_specification

    hashes = {"numpy": ("sha256:" + "a" * 64,)}
    here = ".".join(map(str, sys.version_info[:3]))
    arm = Arm(name="a", stack="a", stack_key="k", python=here, packages={"numpy": "2.0.0"})
    one = Variant(arm, sys.executable, hashes)
    plan = session([Case.from_parameters(NeedsNumpy)], [one])
    told = session_plan.build_specification(
        plan, one, PreparedCase.from_case(Case.from_parameters(NeedsNumpy)), "inspection-x"
    )
    (tmp_path / "s.json").write_text(json.dumps(told))
    (found,) = amun_specification.read_specifications(tmp_path / "s.json")
    assert (found.name, found.rounds, found.threads) == ("inspection-x", 2, 1)
    assert found.sources == {"script.py": SCRIPT}
    assert found.environment == {"PI_N": "1"}
    assert [(package.name, package.version) for package in found.packages] == [("numpy", "2.0.0")]
