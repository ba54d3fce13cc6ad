"""Files of pytest-benchmark join a history: import, sync, change of level, gate. Files as version 5.3 writes them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.core.errors import InputError
from workbench.indicators.command import app
from workbench.indicators.store.benchmark_import import import_results
from workbench.indicators.store.import_formats import ImportOptions, detect_format
from workbench.indicators.store.session_import import ImportReport


def import_benchmarks(paths: list[Path], out: Path, machine: str = "") -> ImportReport:
    return import_results("pytest-benchmark", paths, out, ImportOptions(machine=machine))


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
    assert detect_format(folder) == "pytest-benchmark"
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
    with pytest.raises(InputError, match="no file of pytest-benchmark"):
        import_benchmarks([tmp_path / "empty"], tmp_path / "out")


def test_hosts_timers_and_local_changes_are_other_series_unless_hosts_are_joined(tmp_path: Path) -> None:
    bench = {"fullname": "bench.py::test_sort", "stats": {"median": 1.0}}
    machine = {"node": "n", "cpu": {"brand_raw": "Model X"}, "python_version": "3.11.7"}
    files = [
        write_file(tmp_path, 1, 1.0, machine_info=machine),
        write_file(tmp_path, 2, 1.0, machine_info=machine | {"node": "other"}),
        write_file(tmp_path, 3, 1.0, machine_info=machine, benchmarks=[bench | {"options": {"timer": "process_time"}}]),
        write_file(tmp_path, 4, 1.0, machine_info=machine, commit_info={"id": "a" * 40, "dirty": True}),
    ]

    def identify(**given: str) -> list[tuple[str, str, str]]:
        sessions = [entry.session for entry in import_benchmarks(files, tmp_path / "out", **given).sessions]
        return [(one.hardware.key, one.arms[0].name, one.cases[0].label) for one in sessions]

    assert len(set(identify())) == 4
    assert len({key for key, *_ in identify(machine="ci")}) == 1
    assert [name for _, name, _ in identify()][3] == "Python 3.11.7, local changes"


def test_long_names_stay_apart_and_times_are_in_utc_with_those_of_commits(tmp_path: Path) -> None:
    name = "bench.py::test[" + "x" * 300
    benches = [{"fullname": f"{name}-{end}]", "stats": {"median": 1.0}} for end in ("small", "large")]
    commit = {"id": "b" * 40, "time": "2026-01-01T09:00:00+09:00"}
    path = write_file(tmp_path, 1, 1.0, benchmarks=benches, datetime="2026-01-02T02:00:00+09:00", commit_info=commit)
    (entry,) = import_benchmarks([path], tmp_path / "out").sessions
    labels = [case.label for case in entry.session.cases]
    assert len(set(labels)) == 2
    assert max(map(len, labels)) <= 200
    assert entry.session.created_at == "2026-01-01T17:00:00+00:00"
    assert entry.session.arms[0].notes["commit time"] == "2026-01-01T00:00:00+00:00"


def test_figures_of_zero_are_left_out_and_told(tmp_path: Path) -> None:
    folder = tmp_path / ".benchmarks"
    folder.mkdir()
    for number in range(20):
        write_file(folder, number, 1e-3 if number < 15 else 0.0)
    import_benchmarks([folder], tmp_path / "out")
    database, invoke = str(tmp_path / "h.db"), CliRunner().invoke
    invoke(app, ["sync", str(tmp_path / "out"), "--database", database])
    found = json.loads(invoke(app, ["history", "--absolute", "--database", database, "--json"]).stdout)
    assert found["series"][0]["sessions"] == 15
    assert found["left_out"] == {"a figure of 0 or less, which has no ratio, or none": 5}
