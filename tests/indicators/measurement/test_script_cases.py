"""Sessions of scripts as they are, and of suites: declared by their first document, judged and resumed like ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.measurement import script_cases, sessions
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.measurement.sessions import SessionOutcome
from workbench.indicators.measurement.stack_variants import build_python_variants

pytestmark = pytest.mark.live

SCRIPT = """
import json, os, random
n = int(os.environ.get("PI_N", "100"))
reps = int(os.environ.get("SUM_REPS", "3"))
elapsed = n * (1 + 0.001 * random.random())
print(json.dumps({"name": "PiSum", "framework": "python", "@parameters": {"n": n, "reps": reps},
                  "@result": {"elapsed": elapsed, "rate": 1 / elapsed}}))
"""


@pytest.fixture(autouse=True)
def _same_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scanning this environment for byte code takes a second, and has tests of its own.
    monkeypatch.setattr(sessions, "equalize_conditions", lambda variants, *_, **__: list(variants))


def script(folder: Path, text: str = SCRIPT) -> Path:
    path = folder / "pi_sum.py"
    path.write_text(text)
    return path


def measure(folder: Path, **settings: object) -> SessionOutcome:
    config = session_config(python=(f"here={sys.executable}",), rounds=(5,), seed=1, **settings)
    return sessions.start_session(config, out=folder / "runs")


def declare(path: str, **more: Any) -> Any:
    config = session_config(**{"python": (f"here={sys.executable}",), "script": (path,), **more})
    return script_cases.declare_scripts(config, build_python_variants({"here": sys.executable}))


def test_a_script_is_measured_with_its_parameters_and_resumed_without_its_file(tmp_path: Path) -> None:
    path = script(tmp_path)
    outcome = measure(tmp_path, script=(f"{path}:n=50,SUM_REPS=7",))
    (case,) = outcome.session.cases
    assert case.parameters == {"n": 50, "reps": 7}
    assert [metric.field for metric in case.metrics] == ["elapsed"]
    assert set(outcome.compared.observed.runs["status"]) == {"ok"}
    assert "PiSum: compared by elapsed (lower is better); kept, not compared: rate" in outcome.session.notes
    path.unlink()
    again = sessions.resume_session(outcome.folder, more=1)
    assert again.session.rounds_done == 6
    assert set(again.compared.observed.runs["indicator_version"]) == {case.indicator_version}


def test_a_setting_that_the_script_does_not_use_is_refused(tmp_path: Path) -> None:
    path = script(tmp_path)
    for wrong in ("m=5", "SUM_REPEATS=9", "N=50"):
        with pytest.raises(ConfigError, match="does not use this setting"):
            declare(f"{path}:{wrong}")
    with pytest.raises(ConfigError, match="a secret cannot"):
        declare(f"{path}:API_TOKEN=abc")
    with pytest.raises(ConfigError, match="not a direction"):
        declare(str(path), better=("elapsed=faster",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('no JSON')", "here: "),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ('print(\'{"name": "X", "@parameters": {}, "@result": {"total": 1}}\')', "--better"),
        ('print(\'{"@parameters": {}, "@result": {"elapsed": 1}}\')', "name is missing"),
    ],
)
def test_a_script_that_prints_no_valid_document_says_so(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RunFailedError, match="no valid document") as failed:
        declare(str(script(tmp_path, text)))
    assert words in str(failed.value)


def test_documents_of_upstreams_scripts_keep_their_own_classes(tmp_path: Path) -> None:
    document = {
        "component": "tensorflow", "name": "PiMatmul", "tensorflow_aicoe_buildinfo": None,
        "@parameters": {"dtype": "float32", "device": "cpu", "reps": 5, "mini_batch": 4, "matrix_size": 64},
        "@result": {"rate": 134.5, "elapsed": 40.8},
    }  # fmt: skip
    path = script(tmp_path, f"print({json.dumps(json.dumps(document))})")
    (found,), _ = declare(f"{path}:MATMUL_REPS=5")
    assert found.declared == "PiMatmul"
    (case,) = script_cases.build_cases([found])
    assert case.indicator.environment(case.parameters) == {"MATMUL_REPS": "5"}
    assert case.parameters["mini_batch"] == 4


def test_a_suite_without_its_tool_in_any_stack_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(benchmark): benchmark(sum, [1])\n")
    config = session_config(python=(f"here={sys.executable}",), pytest=(str(tmp_path / "test_a.py"),))
    (variant, *_) = build_python_variants({"here": sys.executable})
    bare = variant.arm.model_copy(update={"packages": {}})
    with pytest.raises(ConfigError, match="no stack can run this suite"):
        script_cases.declare_scripts(config, [type(variant)(bare, variant.interpreter, {})])


def test_a_pyperf_script_is_a_suite_of_metrics(tmp_path: Path) -> None:
    path = tmp_path / "bench.py"
    path.write_text(
        "import pyperf\nrunner = pyperf.Runner(values=2, warmups=0, min_time=0.001)\n"
        "runner.timeit('sort', 'sorted(range(100))')\nrunner.timeit('sum it', 'sum(range(100))')\n"
    )
    (found,), notes = declare("", script=(), pyperf=(str(path),))
    results = [(one.name, one.better, one.unit) for one in found.fields if one.role == "result"]
    assert results == [("sort", "lower", "ms"), ("sum_it", "lower", "ms")]
    assert notes == ["bench: compared by sort (lower is better), sum_it (lower is better)"]


@pytest.mark.slow
def test_a_suite_of_pytest_benchmark_finds_what_was_planted(tmp_path: Path) -> None:
    """Two stacks with pytest-benchmark from the index; a variable makes one test three times as slow."""
    (tmp_path / "test_loop.py").write_text(
        "import os\nSLOW = 3 if os.environ.get('SLOW') else 1\n"
        "def test_slower(benchmark): benchmark(lambda: sum(range(20_000 * SLOW)))\n"
        "def test_same(benchmark): benchmark(lambda: sum(range(20_000)))\n"
        "def test_broken(benchmark): assert not os.environ.get('SLOW'); benchmark(len, [])\n"
    )
    matrix = tmp_path / "m.yaml"
    matrix.write_text("packages: {pytest-benchmark: ''}\nenv: {SLOW: ['', '1']}\n")
    config = session_config(stacks=(str(matrix),), pytest=(str(tmp_path / "test_loop.py"),), rounds=(8,), seed=1)
    outcome = sessions.start_session(config, out=tmp_path / "runs")
    rows = {row["metric"]: row for row in outcome.compared.effects.iter_rows(named=True) if not row["control"]}
    assert rows["test_loop.test_slower"]["verdict"] == "SLOWER"
    assert rows["test_loop.test_same"]["verdict"] != "SLOWER"
    # A broken test is a failed check of its stack, and takes no other test with it.
    assert not rows["test_loop.test_slower"]["passed"]
    assert rows["test_loop.test_broken"]["ratio"] is None
