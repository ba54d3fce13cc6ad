"""Files of pytest-benchmark join a history: import, sync, change of level, gate. Files as version 5.3 writes them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.core.errors import InputError
from workbench.indicators.command import app
from workbench.indicators.store.pytest_benchmarks import import_benchmarks, is_benchmark_file


def write_file(folder: Path, number: int, median_s: float, **more: object) -> Path:
    """The file of a day in January."""
    document = {
        "machine_info": {
            "node": "n", "python_implementation": "CPython", "python_version": "3.11.7",
            "cpu": {"brand_raw": "Model X", "count": 2},
        },
        "commit_info": {"id": f"{number:040x}", "dirty": False},
        "benchmarks": [{"fullname": "bench.py::test_sort", "stats": {"median": median_s, "data": [median_s]}}],
        "datetime": f"2026-01-{number + 1:02}T00:00:00+00:00",
        "version": "5.3.1",
        **more,
    }  # fmt: skip
    path = folder / "Linux-CPython-3.11-64bit" / f"{number:04}_a.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_a_slower_benchmark_is_a_regression_of_its_commit(tmp_path: Path) -> None:
    folder, draw = tmp_path / ".benchmarks", random.Random(1)
    folder.mkdir()
    for number in range(28):
        write_file(folder, number, (1e-3 if number < 14 else 1.2e-3) * (1 + draw.gauss(0, 0.01)))
    assert is_benchmark_file(folder)
    database, invoke = str(tmp_path / "h.db"), CliRunner().invoke
    imported = invoke(app, ["import", str(folder), "--out", str(tmp_path / "out")])
    assert imported.exit_code == 0, imported.output
    assert "history --absolute" in imported.output
    assert invoke(app, ["sync", str(tmp_path / "out"), "--database", database]).exit_code == 0
    asked = ["history", "--absolute", "--database", database, "--json"]
    found = json.loads(invoke(app, asked).stdout)
    (change,) = found["changes"]
    assert change["ratio"] == pytest.approx(1 / 1.2, rel=0.02)
    gate = invoke(app, [*asked, "--since", "2026-01-15"])
    assert gate.exit_code == 1


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no benchmark in this file"):
        import_benchmarks([write_file(tmp_path, 1, 1.0, benchmarks=[])], tmp_path / "out")
    with pytest.raises(InputError, match="not a file of pytest-benchmark"):
        import_benchmarks([write_file(tmp_path, 1, 1.0, benchmarks=[{"stats": {}}])], tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files of pytest-benchmark"):
        import_benchmarks([tmp_path / "empty"], tmp_path / "out")
    assert not is_benchmark_file(tmp_path / "empty")
