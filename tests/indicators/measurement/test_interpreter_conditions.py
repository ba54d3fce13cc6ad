"""Conditions of runs: byte code that is missing, another hash seed, other threads, files that were never read."""

from __future__ import annotations

import dataclasses
import json
import os
import py_compile
import sys
import sysconfig
import time
import venv
from pathlib import Path

import pytest

from tests.indicators.measurement.making import Tiny, session, two_sides
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement import stack_variants
from workbench.indicators.measurement.launcher_client import Launcher, build_clean_environment
from workbench.indicators.measurement.machine_facts import MARKER, PREFIX, equalize_conditions
from workbench.indicators.measurement.rounds import measure_session
from workbench.indicators.measurement.run_messages import RunCommand, RunLimits
from workbench.indicators.measurement.stack_variants import Variant

pytestmark = pytest.mark.live

ASK = "import json, bulky\nprint(json.dumps([bulky.__cached__, bulky.VALUE]))\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a package that has no byte code, and one that has."""
    made = tmp_path_factory.mktemp("trap") / "environment"
    venv.create(made, with_pip=False, symlinks=True)
    (packages,) = made.glob("lib/python3.*/site-packages")
    (packages / "bulky").mkdir()
    (packages / "bulky" / "__init__.py").write_text("VALUE = 5\n")
    (packages / "bulky" / "template.py").write_text("not {{ python }}\n")
    (packages / "ready.py").write_text("VALUE = 6\n")
    py_compile.compile(str(packages / "ready.py"))
    return made


def variants_of(folder: Path) -> list[Variant]:
    return stack_variants.build_python_variants({"bare": str(folder)})


def test_byte_code_that_an_environment_lacks_is_compiled_in_a_copy_that_its_runs_read(
    folder: Path, tmp_path: Path
) -> None:
    notes: list[str] = []
    found = equalize_conditions(variants_of(folder), {}, threads=1, root=tmp_path / "copies", note=notes.append)
    assert "modules without byte code: compiled in a copy" in notes[0]
    assert len(notes) == 1
    assert not list(folder.rglob("bulky/__pycache__"))
    for variant in found:
        assert variant.arm.conditions["byte code"] == "compiled"
        copy = variant.environment[PREFIX]
        command = RunCommand(variant.interpreter, {"script.py": ASK}, build_clean_environment(1, variant.environment))
        with Launcher(RunLimits(), [variant.interpreter], folders=[copy]) as launcher:
            cached, value = json.loads(launcher.run_command(command).stdout)
        assert value == 5
        assert cached.startswith(copy)
        assert Path(cached).is_file()
        # What is there already takes no room again.
        (ready,) = folder.rglob("ready.*.pyc")
        assert (Path(copy) / ready.parents[1].relative_to("/") / ready.name).samefile(ready)
    again: list[str] = []
    equalize_conditions(variants_of(folder), {}, threads=1, root=tmp_path / "copies", note=again.append)
    assert again == notes


def test_a_copy_that_no_session_used_for_a_month_goes(tmp_path: Path) -> None:
    month_ago = time.time() - 31 * 86_400
    for name, used in (("old", month_ago), ("new", time.time())):
        (tmp_path / name).mkdir()
        (tmp_path / name / MARKER).write_text("0")
        os.utime(tmp_path / name / MARKER, (used, used))
    (tmp_path / "being-made").mkdir()
    equalize_conditions([], {}, threads=1, root=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["being-made", "new"]


def test_byte_code_that_cannot_be_compiled_is_said_at_every_verdict(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").write_text("no folder")
    notes: list[str] = []
    bare, control = equalize_conditions(variants_of(folder), {}, threads=1, root=tmp_path / "copies", note=notes.append)
    assert bare.arm.conditions["byte code"].startswith("missing for ")
    assert PREFIX not in control.environment
    assert "no copy could be compiled" in notes[0]


@pytest.mark.parametrize(
    ("variables", "condition", "value"),
    [
        ({"PYTHONHASHSEED": "7"}, "hash seed", "7"),
        ({"OMP_NUM_THREADS": "4"}, "threads", "1, OMP_NUM_THREADS=4"),
    ],
)
def test_an_arm_with_another_hash_seed_or_other_threads_is_found(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str], condition: str, value: str
) -> None:
    one, control = variants_of(folder)
    other, copies = dataclasses.replace(control, environment=variables), tmp_path_factory.getbasetemp() / "copies"
    plain, changed = equalize_conditions([one, other], {}, threads=1, root=copies, note=lambda _: None)
    assert changed.arm.conditions[condition] == value
    unequal = {name for name in plain.arm.conditions if plain.arm.conditions[name] != changed.arm.conditions[name]}
    assert unequal == {condition}


@pytest.mark.skipif(
    (Path(sysconfig.get_path("stdlib")) / "sitecustomize.py").exists(),
    reason="this Python has a sitecustomize of its own, which comes before an environment's",
)
def test_start_up_code_that_changes_variables_is_found(tmp_path: Path) -> None:
    made = tmp_path / "environment"
    venv.create(made, with_pip=False, symlinks=True)
    (packages,) = made.glob("lib/python3.*/site-packages")
    (packages / "sitecustomize.py").write_text(
        "import os\nos.environ['MKL_NUM_THREADS'] = '8'\nos.environ['X_A'] = '1'\n"
    )
    found = equalize_conditions(variants_of(made), {}, threads=1, root=tmp_path / "copies", note=lambda _: None)[0]
    assert found.arm.conditions["threads"] == "1, MKL_NUM_THREADS=8"
    assert found.arm.conditions["start-up code"] == "sitecustomize"
    assert found.arm.conditions["variables"] == "X_A=1"


def test_each_case_warms_up_once_with_each_interpreter_before_the_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    usual = Launcher.run_command

    def run(self: Launcher, command: RunCommand) -> object:
        made.append(command.python)
        return usual(self, command)

    monkeypatch.setattr(Launcher, "run_command", run)
    cases = [Case.from_parameters(Tiny), Case.from_parameters(Tiny, {"n": 3})]
    plan = session(cases, rounds=(1,))
    measure_session(tmp_path, plan, two_sides(), cases)
    # Two cases of three arms, and before them each case once: all arms are one interpreter.
    assert made == [sys.executable] * (2 + 6)
    measure_session(tmp_path, plan, two_sides(), cases)
    assert len(made) == 8
