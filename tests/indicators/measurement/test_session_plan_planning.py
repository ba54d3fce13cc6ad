"""The plan of a session: sides, cases, what does not apply, what is refused before anything runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tests.indicators.measurement.making import SCRIPT, Tiny, session, two_sides
from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.compat_thoth import amun_specification
from workbench.indicators.contract.indicator import Case, Indicator, check, parameter, result
from workbench.indicators.measurement import session_plan, stack_variants
from workbench.indicators.measurement.session_config import session_config
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


def test_a_seed_is_chosen_threads_that_share_a_core_noted_and_memory_left_to_the_machine() -> None:
    assert session(seed=None).seed != session(seed=None).seed
    assert any("threads share" in note for note in session(threads=1000).notes)
    assert session(threads=1).notes == ()
    config = session_config()
    assert config.memory_limit_bytes(4 << 30) == 3 << 30
    assert config.memory_limit_bytes(1 << 40) == 8 << 30
    assert session_config(memory_bytes=1 << 30).memory_limit_bytes(4 << 30) == 1 << 30


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("rounds", [(), (10, 5), (0,), (5, 5), (100_000,)]),
        ("alpha", [0.0, float("nan")]),
        ("timeout_s", [0, float("inf")]),
        *(("threads", [0]), ("memory_bytes", [1]), ("seed", [-1]), ("surprise", [1])),
    ],
)
def test_a_session_that_cannot_be_is_refused(setting: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"not a valid session[\s\S]*{setting}"):
            session_config(**{setting: value})
    with pytest.raises(ConfigError, match=r"(?s)threads.*alpha|alpha.*threads"):
        session_config(threads=0, alpha=2.0)


def test_an_environment_is_asked_what_is_in_it() -> None:
    one, two, control = two_sides()
    assert one.arm.packages["numpy"] == two.arm.packages["numpy"]
    assert one.arm.python == ".".join(map(str, sys.version_info[:3]))
    assert (control.arm.name, control.arm.copy_number, control.interpreter) == ("control", 1, one.interpreter)
    assert one.arm.notes == {}
    assert control.arm.notes == {"environment": "the baseline's own, not a copy"}


def test_a_folder_of_an_environment_will_do_and_the_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = stack_variants.build_python_variants({"a": str(tmp_path)})
    assert found[0].interpreter == str(tmp_path / "bin" / "python")
    found = stack_variants.build_python_variants({"a": sys.executable, "b": sys.executable}, "b")
    assert [one.arm.name for one in found] == ["b", "a", "control"], "the baseline comes first"
    assert found[-1].arm.stack == "b"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        *(([text], "not an environment") for text in ("nothing", "=x", "a=")),
        *(([text], "not a Python") for text in ("a=/nowhere/python", "a=/bin/true", "a=/etc")),
        (["a=x", "a=y"], "two environments of one name"),
        ([f"control={sys.executable}"], "two variants of one name"),
    ],
)
def test_environments_that_cannot_be_are_refused(texts: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        stack_variants.build_python_variants(stack_variants.parse_pythons(texts))


def test_an_unknown_baseline_and_no_stack_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="no such stack"):
        stack_variants.choose_baseline("c", ["a", "b"])
    with pytest.raises(ConfigError, match="no stack to measure"):
        stack_variants.choose_baseline(None, [])


@pytest.mark.parametrize("url", ["numpy @ https://x/y.whl", "numpy @  https://x/y.whl", "numpy@https://x/y.whl"])
def test_a_requirement_by_url_stays_one_and_is_refused_as_such(url: str) -> None:
    assert stack_variants.split_requirements(f"{url} pandas==2.2.3, scipy") == (url, "pandas==2.2.3", "scipy")
    with pytest.raises(ConfigError, match="requirements by URL are not supported"):
        stack_variants.solve_requirement_sets([url], 1_000_000)


def test_a_changed_environment_is_not_the_session_s_any_more() -> None:
    before = [side("a", numpy="1")]
    stack_variants.check_environments([side("a", numpy="1")], [one.arm for one in before])
    for now in ([side("a", numpy="2")], []):
        with pytest.raises(RunFailedError, match="has changed since the session started"):
            stack_variants.check_environments(now, [one.arm for one in before])


def test_a_specification_of_ours_is_one_that_can_be_read_again(tmp_path: Path) -> None:
    here = ".".join(map(str, sys.version_info[:3]))
    arm = Arm(name="a", stack="a", stack_key="k", python=here, packages={"numpy": "2.0.0"})
    one = Variant(arm, sys.executable, {"numpy": ("sha256:" + "a" * 64,)})
    case = Case.from_parameters(NeedsNumpy)
    told = session_plan.build_specification(session([case], [one]), one, case, "inspection-x")
    (tmp_path / "s.json").write_text(json.dumps(told))
    (found,) = amun_specification.read_specifications(tmp_path / "s.json")
    assert (found.name, found.rounds, found.threads) == ("inspection-x", 2, 1)
    assert (found.sources, found.environment) == ({"script.py": SCRIPT}, {"PI_N": "1"})
    assert [(package.name, package.version) for package in found.packages] == [("numpy", "2.0.0")]
