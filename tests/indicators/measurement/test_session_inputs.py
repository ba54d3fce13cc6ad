"""Scripts of the old contract, as they are: which indicator each is of is asked of the script."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.indicators.compat_thoth.test_thoth_indicators import OLD_SCRIPT as OLD
from tests.indicators.measurement.making import printing, session, two_sides
from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import Case
from workbench.indicators.measurement.rounds import measure_session
from workbench.indicators.measurement.script_cases import bind_script, probe_script, reload_case
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.session_plan import Undeclared
from workbench.indicators.store.archive import Result, read_results

CONV = {
    "name": "PiConv2D",
    "@parameters": {"batch": 4, "input_width": 161, "padding": 1},
    "@result": {"rate": 10.0, "elapsed": 0.05},
}


def asked(script: str, environment: dict[str, str] | None = None) -> tuple[Case, str | None]:
    config = session_config(threads=1, timeout_s=20.0)
    return probe_script(sys.executable, {"script.py": script}, environment or {}, config)


@pytest.mark.live
def test_an_old_script_is_known_by_its_document_runs_unmodified_and_its_values_count(tmp_path: Path) -> None:
    case, notice = asked(OLD, {"MATMUL_MATRIX_SIZE": "64"})
    assert (case.indicator.__name__, notice) == ("PiMatmul", None)
    assert case.parameters["matrix_size"] == 64
    assert case.indicator.sources() == {"script.py": OLD}
    assert case.indicator.environment(case.parameters)["MATMUL_MATRIX_SIZE"] == "64"
    again = reload_case("PiMatmul", {"script.py": OLD}, case.parameters)
    assert (again.label, again.indicator.version()) == (case.label, case.indicator.version())
    found = measured(tmp_path, case)
    assert [one.workbench.status for one in found] == ["ok"] * 3
    assert {one.metric_value("elapsed") for one in found} == {0.25}


def measured(folder: Path, case: Case) -> list[Result]:
    plan = session([case], rounds=(1,))
    assert bool(plan.cases[0].metrics) == (case.indicator.__name__ != "Undeclared")
    measure_session(folder, plan, two_sides(), [case])
    return [one for *_, one in read_results(folder, plan)]


@pytest.mark.live
def test_the_script_that_takes_another_s_name_is_known_by_its_fields(tmp_path: Path) -> None:
    case, notice = asked(printing(CONV))
    assert case.indicator.__name__ == "PiConv1D"
    assert "PiConv2D" in str(notice)
    assert {one.workbench.status for one in measured(tmp_path, case)} == {"ok"}


def named(name: object) -> str:
    return printing({"name": name, "@parameters": {}, "@result": {"x": 1}})


@pytest.mark.live
@pytest.mark.parametrize(
    ("script", "told", "status"),
    [
        (named("PiUnheardOf"), "PiUnheardOf: no indicator of this name", "invalid document"),
        # A script must not choose what the workbench imports.
        (named("os:system"), "os:system: no indicator of this name", "invalid document"),
        (printing("no JSON"), "printed no valid document", "not JSON"),
        ("raise SystemExit(3)", "printed no valid document: exit code", "exit code"),
        (printing({"name": "PiMatmul", "@parameters": {}, "@result": {}}), "no valid document", "invalid document"),
    ],
)
def test_what_nobody_declared_is_kept_without_values(tmp_path: Path, script: str, told: str, status: str) -> None:
    case, notice = asked(script)
    assert case.indicator.__name__ == "Undeclared"
    assert told in str(notice)
    found = measured(tmp_path, case)
    assert [one.workbench.status for one in found] == [status] * 3
    if "no indicator of this name" in told:
        assert all("workbench indicators new" in str(one.workbench.reason) for one in found)
    again = reload_case("Undeclared", case.indicator.sources(), {})
    assert again.indicator.__name__ == Undeclared.__name__


def test_another_script_is_another_version() -> None:
    first, second = (bind_script(Undeclared, {"script.py": text}) for text in ("a", "b"))
    assert first.version() != second.version()


@pytest.mark.parametrize("form", ["{module}:Chosen", "{file}:Chosen", "{file}"])
def test_a_name_in_a_session_never_imports_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    file = tmp_path / "chosen_by_a_file.py"
    file.write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    name = form.format(module=file.stem, file=file)
    with pytest.raises(ConfigError, match="not a name for an indicator"):
        reload_case(name, {"script.py": OLD}, {})
    assert not (tmp_path / "was-run").exists()
