"""Headless runs in real kernels: what is left behind when all goes well, when a cell fails, when somebody stops it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest

from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError
from workbench.core.files import PROJECT_FILE
from workbench.core.locks import find_holder
from workbench.execution import discovery, runner
from workbench.execution.parameters import ResolvedValues
from workbench.runs import run_folder

FAKES = Path(__file__).parents[1] / "fakes" / "notebooks"
CANARY = "canary-9f3b1c77-and-more"
LIMIT_S = 90
pytestmark = pytest.mark.notebook


@pytest.fixture
def plain_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is made at once, for tests that are not about pages."""
    from workbench.report import page

    monkeypatch.setattr(page, "write_report", lambda folder, _: (folder / "report.html").write_text("page"))


def run_one(name: str, out: Path, values: dict[str, Any] | None = None, **options: Any) -> runner.RunResult:
    (result,) = runner.run_notebooks([FAKES / f"{name}.ipynb"], values, out=out, **options)
    return result


def copy_of(result: runner.RunResult) -> Any:
    return json.loads((result.run.folder / "report.ipynb").read_text())


def stdout_of(result: runner.RunResult) -> list[str]:
    outputs = [output for cell in copy_of(result)["cells"] for output in cell.get("outputs", [])]
    return ["".join(output["text"]) for output in outputs if output.get("name") == "stdout"]


def kernels_of(process: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in process.children(recursive=True):
        # Other tests' children may come and go meanwhile.
        with contextlib.suppress(psutil.Error):
            found += [child] if "ipykernel" in " ".join(child.cmdline()) else []
    return found


@pytest.mark.smoke
def test_a_run_leaves_record_tables_copy_and_page(tmp_path: Path) -> None:
    before = (FAKES / "01_adds.ipynb").read_bytes()
    result = run_one("01_adds", tmp_path, {"left": 40, "mode": "loud"})
    record = result.run.record
    assert (result.exit_code, result.run.status, result.run.verdict) == (0, "succeeded", "valid")
    assert (result.run.title, result.run.answer) == ("What is the sum?", "The sum is 42.")
    assert record["config"] == {"left": 40, "right": 2, "label": "sum", "mode": "loud", "some_file": "01_adds.ipynb"}
    assert record["tables"][0].items() >= {"name": "sums", "rows": 1}.items()
    assert record["inputs"][0]["path"].endswith("01_adds.ipynb")
    assert record["command"] == f"workbench run {shlex.quote(str(FAKES / '01_adds.ipynb'))} -p left=40 -p mode=loud"
    assert record["duration_s"] > 0
    assert stdout_of(result) == ["42 loud notebooks\n"]
    assert sorted(path.name for path in result.run.folder.iterdir()) == [
        "report.html",
        "report.ipynb",
        "run.json",
        "tables",
    ]
    assert "The sum is 42." in result.run.report.read_text()
    assert (FAKES / "01_adds.ipynb").read_bytes() == before


def test_the_copy_does_not_say_where_the_input_lay(tmp_path: Path, plain_page: None) -> None:
    result = run_one("no_parameters_cell", tmp_path)
    assert copy_of(result)["metadata"]["papermill"]["input_path"] == "no_parameters_cell.ipynb"
    assert str(FAKES) not in (result.run.folder / "report.ipynb").read_text()


def test_an_invalid_result_is_neither_good_nor_failed(tmp_path: Path, plain_page: None) -> None:
    result = run_one("02_invalid_result", tmp_path)
    assert (result.run.status, result.run.verdict, result.exit_code) == ("succeeded", "invalid", 1)


def test_a_failing_cell_leaves_copy_and_page_with_a_link_to_it(tmp_path: Path) -> None:
    result = run_one("cell_fails", tmp_path)
    assert result.exit_code == 3
    assert result.run.record["failure"] == {
        "cell_number": 2,
        "source": "# the next line fails\nnumerator / 0",
        "error_name": "ZeroDivisionError",
        "error": "division by zero",
    }
    cells = ["".join(cell["source"]) for cell in copy_of(result)["cells"]]
    assert f'<a href="#{runner.FAILURE_ANCHOR}">cell [2]</a>' in cells[0]
    assert f'id="{runner.FAILURE_ANCHOR}"' in cells[3]
    assert "numerator / 0" in cells[4]
    assert "division by zero" in result.run.report.read_text()
    assert "never reached" not in stdout_of(result)


def test_an_error_text_is_escaped_in_the_banner_and_on_the_page(tmp_path: Path) -> None:
    result = run_one("cell_fails_with_markup", tmp_path)
    assert "<script>alert(1)" not in "".join(copy_of(result)["cells"][0]["source"])
    assert "<script>alert(1)" not in result.run.report.read_text()


def test_a_kernel_that_dies_fails_its_run_with_advice(tmp_path: Path, plain_page: None) -> None:
    result = run_one("kernel_dies", tmp_path)
    assert (result.exit_code, result.run.record["failure"]["error_name"]) == (3, "DeadKernel")
    assert result.run.record["failure"]["cell_number"] == 1
    assert "workbench doctor" in (result.advice or "")
    assert result.run.report.is_file()


def test_a_cell_that_takes_too_long_is_stopped(tmp_path: Path, plain_page: None) -> None:
    result = run_one("cell_hangs", tmp_path, timeout_s=1)
    assert (result.exit_code, result.run.record["failure"]["error_name"]) == (3, "Timeout")
    assert "--timeout" in (result.advice or "")
    assert not kernels_of(psutil.Process())


def test_a_python_without_ipykernel_fails_its_run_with_advice(
    tmp_path: Path, plain_page: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'No module named ipykernel_launcher' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    result = run_one("no_parameters_cell", tmp_path / "out")
    assert (result.exit_code, result.run.record["failure"]["error_name"]) == (3, "KernelStart")
    assert "No module named ipykernel_launcher" in result.run.record["failure"]["error"]
    assert "doctor --deep" in (result.advice or "")


def test_a_page_that_cannot_be_made_fails_the_run_but_keeps_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.report import page

    def fails(folder: Path, record: dict[str, Any]) -> Path:
        raise ValueError("no page today")

    monkeypatch.setattr(page, "write_report", fails)
    result = run_one("no_parameters_cell", tmp_path)
    assert (result.exit_code, result.run.record["failure"]["error"]) == (3, "no page: no page today")
    assert run_folder.load_run(result.run.folder).status == "failed"
    assert stdout_of(result) == ["42\n"]


def test_the_kernel_is_this_python_whatever_the_notebook_names(tmp_path: Path, plain_page: None) -> None:
    assert stdout_of(run_one("kernelspec_of_another_machine", tmp_path)) == [sys.executable + "\n"]


def test_kernels_say_nothing_on_our_own_output(
    tmp_path: Path, plain_page: None, capfd: pytest.CaptureFixture[str]
) -> None:
    run_one("prints_its_surroundings", tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_temporary_folder_too_deep_for_sockets_is_no_obstacle(
    tmp_path: Path, plain_page: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert stdout_of(run_one("no_parameters_cell", tmp_path / "out")) == ["42\n"]
    assert list(deep.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_notebook_in_a_folder_with_braces_and_spaces_runs_there(tmp_path: Path, plain_page: None) -> None:
    folder = tmp_path / "a {b} c's"
    folder.mkdir()
    notebook = folder / "07_prints.ipynb"
    notebook.write_bytes((FAKES / "prints_its_surroundings.ipynb").read_bytes())
    (result,) = runner.run_notebooks([notebook], {"text": "3.10 {x} 'y' \"z\" \\n"}, out=tmp_path / "out")
    executable, where, text = "".join(stdout_of(result)).splitlines()
    assert (executable, where) == (sys.executable, str(folder))
    assert text == repr("3.10 {x} 'y' \"z\" \\n")
    assert sorted(path.name for path in folder.iterdir()) == ["07_prints.ipynb"]


def test_notebooks_run_side_by_side_the_longest_first_without_mixing_their_runs(
    tmp_path: Path, plain_page: None
) -> None:
    names = ["01_adds", "no_parameters_cell", "cell_fails", "02_invalid_result"]
    paths = [tmp_path / f"{name}.ipynb" for name in names]
    for path, takes in zip(paths, [None, "long", 30, 20], strict=True):
        content = json.loads((FAKES / path.name).read_text())
        content["metadata"]["workbench"] = {"takes_s": takes}
        path.write_text(json.dumps(content))
    results = runner.run_notebooks(paths, out=tmp_path / "runs", jobs=2)
    assert [result.notebook.stem for result in results] == names
    started = [result.run.record["started_at"] for result in results]
    assert max(started[2:]) < min(started[:2])
    assert [result.exit_code for result in results] == [0, 0, 3, 1]
    assert results[0].run.record["tables"][0].items() >= {"name": "sums", "rows": 1}.items()
    assert results[3].run.record["tables"] == []


def test_a_parameter_goes_to_the_notebooks_that_have_it_or_to_the_one_that_is_named() -> None:
    paths = [FAKES / "01_adds.ipynb", FAKES / "prints_its_surroundings.ipynb", FAKES / "no_parameters_cell.ipynb"]
    plans = discovery.plan_runs(paths, {"left": 5, "adds": {"right": 6}}, texts={"prints_its_surroundings.text": "x"})
    assert [plan.resolved.given for plan in plans] == [{"left": 5, "right": 6}, {"text": "x"}, {}]


@pytest.mark.parametrize("name", ["nobody_has_it", "adds.nobody_has_it", "elsewhere.left"])
def test_a_parameter_that_no_notebook_has_is_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    paths = [FAKES / "01_adds.ipynb", FAKES / "no_parameters_cell.ipynb"]
    with pytest.raises(ConfigError):
        runner.run_notebooks(paths, texts={name: "1"}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_that_runs_it_again_means_the_same_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("notebooks", "my own"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "01_adds.ipynb").write_bytes((FAKES / "01_adds.ipynb").read_bytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"give its path, notebooks/01_adds\.ipynb; or mark .*: workbench init \."):
        discovery.resolve_notebooks(["adds"])
    (tmp_path / PROJECT_FILE).touch()
    for name, said in (("adds", "01_adds"), ("notebooks/01_adds.ipynb", "01_adds"), ("my own/01_adds.ipynb", None)):
        (path,) = discovery.resolve_notebooks([name])
        (plan,) = discovery.plan_runs([path], {"left": 4})
        words = shlex.split(plan.command)
        assert words == ["workbench", "run", said or str(path), "-p", "left=4"]
        assert discovery.resolve_notebooks([words[2]]) == [path]
    with pytest.raises(ConfigError, match=r"do: workbench run '.*/my own/01_adds\.ipynb' --parameters"):
        discovery.plan_runs([path], {"lef": 4})


def test_the_command_of_a_notebook_is_its_path_where_there_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "CHECKOUT", tmp_path)
    monkeypatch.chdir(tmp_path)
    path = FAKES / "01_adds.ipynb"
    assert discovery.plan_runs([path])[0].command == f"workbench run {shlex.quote(str(path))}"


def test_a_derived_parameter_only_matters_to_whoever_sets_one() -> None:
    path = FAKES / "derived_parameter.ipynb"
    assert discovery.plan_runs([path])[0].resolved.config == {}
    with pytest.raises(InputError, match="not a literal"):
        discovery.plan_runs([path], texts={"base": "3"})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none_there", "cannot read the notebook"),
        ("written_in_another_language", "another language"),
    ],
)
def test_what_is_no_python_notebook_is_refused(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        discovery.plan_runs([FAKES / f"{name}.ipynb"])


@pytest.mark.parametrize(
    "content", ["this is no JSON", "[]", "{}", '{"nbformat": 4, "cells": 3}', '{"nbformat": 99}', "null"]
)
def test_json_that_is_no_notebook_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(InputError, match="not a notebook"):
        discovery.read_notebook(path)


@pytest.mark.parametrize("options", [{"jobs": 0}, {"jobs": 1000}, {"timeout_s": 0}])
def test_senseless_options_are_refused(tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        run_one("no_parameters_cell", tmp_path, **options)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of this test's own that every process below it uses."""
    folder = Path(tempfile.mkdtemp(prefix="s", dir="/tmp" if os.access("/tmp", os.W_OK) else tmp_path))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def files_with_the_canary(*folders: Path) -> list[Path]:
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert paths
    return [path for path in paths if re.search(CANARY[:9].encode() + b"|" + CANARY[9:].encode(), path.read_bytes())]


@pytest.mark.parametrize("then_fail", [False, True])
def test_a_secret_reaches_no_file(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, then_fail: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVICE_KEY", CANARY)
    result = run_one("leaks_a_secret", tmp_path / "out", {"api_key_env": "SERVICE_KEY", "then_fail": then_fail})
    text = (result.run.folder / "report.ipynb").read_text()
    assert result.run.status == ("failed" if then_fail else "succeeded")
    assert text.count(redaction.REDACTION_MARK) >= 5
    assert files_with_the_canary(tmp_path, scratch if any(scratch.iterdir()) else tmp_path) == []
    assert CANARY not in "".join(capfd.readouterr())
    assert CANARY not in json.dumps(result.build_document())


def until(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What a condition gives once it holds; fails when the process has ended before."""
    while True:
        if found := condition():
            return found
        assert process.poll() is None, process.communicate()
        threading.Event().wait(0.05)


def end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output once it has ended; where it does not end, its stacks as the failure."""
    try:
        return process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        pytest.fail(f"it goes on after {LIMIT_S} s: {process.communicate(timeout=LIMIT_S)[1]}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_no_process_and_says_so(tmp_path: Path, number: signal.Signals) -> None:
    note, out = tmp_path / "pids.txt", tmp_path / "out"
    command = [
        sys.executable,
        "-X",
        "faulthandler",
        "-m",
        "workbench",
        "run",
        str(FAKES / "spawns_and_sleeps.ipynb"),
        "-p",
        f"note_file={note}",
    ]
    process = subprocess.Popen(
        [*command, "--out", str(out), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in until(lambda: note.is_file() and note.read_text(), process).split()]
    assert all(psutil.pid_exists(pid) for pid in pids)
    process.send_signal(number)
    stdout, stderr = end_of(process)
    (run,) = run_folder.list_run_folders(out)
    assert (process.returncode, run.status, run.record["failure"]) == (130, "cancelled", None)
    assert json.loads(stdout)["runs"][0]["status"] == "cancelled"
    assert "Traceback" not in stderr
    assert (run.folder / "report.ipynb").is_file()
    assert [
        pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ] == []


def test_runs_that_wait_for_their_turn_do_not_begin_after_a_stop(tmp_path: Path) -> None:
    note, out = tmp_path / "pids.txt", tmp_path / "out"
    names = ["spawns_and_sleeps", "no_parameters_cell"]
    command = [sys.executable, "-X", "faulthandler", "-m", "workbench", "run"]
    command += [str(FAKES / f"{name}.ipynb") for name in names]
    command += ["-p", f"note_file={note}", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(note.is_file, process)
    process.send_signal(signal.SIGINT)
    end_of(process)
    assert [run.area for run in run_folder.list_run_folders(out)] == ["spawns_and_sleeps"]


def test_a_run_tells_its_cell_and_its_process_while_it_goes_on(tmp_path: Path) -> None:
    note, out = tmp_path / "pids.txt", tmp_path / "out"
    command = [sys.executable, "-m", "workbench", "run", str(FAKES / "spawns_and_sleeps.ipynb")]
    command += ["-p", f"note_file={note}", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(note.is_file, process)
    (run,) = run_folder.list_run_folders(out)
    told = json.loads((run.folder / "progress.json").read_text())
    assert (find_holder(run.folder), run.state) == (process.pid, "running")
    assert 0 < told["cell"] < told["cells"]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert sorted(path.name for path in run.folder.iterdir()) == ["report.ipynb", "run.json", "tables"]


def write_notebook(path: Path, *cells: str | tuple[str, str]) -> Path:
    """A notebook with these code cells; a pair is a source and a tag."""
    made = [nbformat.v4.new_markdown_cell("# What is shown?")]
    for cell in cells:
        source, *tags = (cell,) if isinstance(cell, str) else cell
        made.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags}))
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return path


def outputs_of(result: runner.RunResult, index: int) -> list[str]:
    shown = copy_of(result)["cells"][index]["outputs"]
    return ["".join(output.get("text") or output.get("data", {}).get("text/html") or []) for output in shown]


def test_outputs_stay_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    cell = """
from IPython.display import HTML, display
import sys
for region, p95 in (("north", 11), ("south", 99)):
    print("region:", region)
    display(HTML(f"<b>{p95}</b>"))
for number in range(3000):
    print(number, end="\\r")
print()
print("a\\nb")
sys.stdout.flush()
print("warned", file=sys.stderr)
sys.stderr.flush()
print("c")
"""
    many = "import sys\nfor n in range(2100):\n    print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True)"
    path = write_notebook(tmp_path / "order.ipynb", cell, many, 'print("x" * 12_000_000)')
    (result,) = runner.run_notebooks([path], out=tmp_path / "out")
    assert result.run.status == "succeeded"
    told = ["region: north\n", "<b>11</b>", "region: south\n", "<b>99</b>", "2999\na\nb\n", "warned\n", "c\n"]
    assert outputs_of(result, 1) == told
    page = result.run.report.read_text()
    assert [page.index(text) for text in ("region: north", "<b>11</b>", "region: south", "<b>99</b>")] == sorted(
        page.index(text) for text in ("region: north", "<b>11</b>", "region: south", "<b>99</b>")
    )
    shown = outputs_of(result, 2)
    assert (len(shown), shown[:2]) == (2001, ["0\n", "1\n"])
    assert shown[-1] == "100 more outputs of this cell were dropped; 2,000 are kept\n"
    assert "8,000,001 characters are left out here" in outputs_of(result, 3)[0]


@pytest.mark.parametrize(
    ("cells", "status", "number"),
    [
        ([("1 / 0", "raises-exception"), "print(1)"], "succeeded", None),
        ([("1 / 0", "raises-exception"), "int('x')", ("1 / 0", "raises-exception")], "failed", 2),
    ],
)
def test_a_cell_that_is_tagged_to_raise_fails_no_run(
    tmp_path: Path, cells: list[Any], status: str, number: int | None
) -> None:
    (result,) = runner.run_notebooks([write_notebook(tmp_path / "raises.ipynb", *cells)], out=tmp_path / "out")
    assert result.run.status == status
    failure = result.run.record["failure"] or {}
    assert failure.get("cell_number") == number
    assert failure.get("error_name") == ("ValueError" if number else None)
    assert ('class="cell failed" id="cell-2"' in result.run.report.read_text()) == bool(number) or not number


@pytest.mark.parametrize("values", [None, {"a": 3}])
def test_two_parameters_cells_are_refused_with_and_without_values(
    tmp_path: Path, values: dict[str, int] | None
) -> None:
    path = write_notebook(tmp_path / "two.ipynb", ("a: int = 1", "parameters"), ("a: int = 2", "parameters"))
    with pytest.raises(InputError, match="more than one cell is tagged"):
        runner.run_notebooks([path], values, out=tmp_path / "out")


def test_a_picture_that_is_attached_to_a_text_is_in_the_report(tmp_path: Path, plain_page: None) -> None:
    from workbench.report.cells import embed_attachments

    attached = {"a b.png": {"image/png": "iVBORw==\n"}, "c.svg": {"image/svg+xml": ["<svg>", "</svg>"]}}
    shown = embed_attachments("![x](attachment:a%20b.png) <img src='attachment:c.svg'> `attachment:c.svg`", attached)
    assert shown == (
        "![x](data:image/png;base64,iVBORw==) <img src='data:image/svg+xml;base64,PHN2Zz48L3N2Zz4='> `attachment:c.svg`"
    )


def test_a_stop_is_not_held_up_by_a_run_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STOP_LIMIT_S", 0.2)
    never, begun = threading.Event(), threading.Event()

    def hang(_: Any, item: Any) -> None:
        begun.set()
        never.wait()

    monkeypatch.setattr(runner._RunPool, "run_plan", hang)
    stopped_by = threading.Thread(target=lambda: (begun.wait(), os.kill(os.getpid(), signal.SIGINT)))
    stopped_by.start()
    try:
        with pytest.raises(runner.CancelledRuns) as stop:
            runner.run_notebooks([FAKES / "01_adds.ipynb"], out=tmp_path)
    finally:
        never.set()
        stopped_by.join()
    assert stop.value.results == []


def test_a_notebook_whose_runs_cannot_be_copied_is_refused_before_it_runs(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "my notebook.ipynb", "1 / 0")
    with pytest.raises(ConfigError, match="a notebook whose runs cannot be copied"):
        runner.run_notebooks([path], out="memory://bucket/runs")


HEADLINE = """
from IPython.display import display
from workbench.report.display import headline
display(headline(answer="It is {answer}.", verdict="{verdict}", reasons={reasons}))
"""
VALID = HEADLINE.format(answer=2, verdict="valid", reasons=[])
INVALID = HEADLINE.format(answer=3, verdict="invalid", reasons=["noise"])
CONCLUDE = """
from workbench.runs.run_folder import current_run
current_run("parts").conclude("valid", (), "It is 2.")
"""


@pytest.mark.parametrize(
    ("cells", "exit_code", "verdict"),
    [
        ([VALID], 0, "valid"),
        ([INVALID], 1, "invalid"),
        ([VALID, CONCLUDE], 0, "valid"),
        ([INVALID, CONCLUDE], 3, "valid"),
        ([VALID, INVALID], 3, "valid"),
        ([CONCLUDE, CONCLUDE.replace("It is 2.", "It is 4.")], 2, "valid"),
    ],
)
def test_a_notebook_has_one_verdict_or_fails(
    tmp_path: Path, plain_page: None, cells: list[str], exit_code: int, verdict: str
) -> None:
    (result,) = runner.run_notebooks([write_notebook(tmp_path / "parts.ipynb", *cells)], out=tmp_path / "out")
    failure = result.run.record["failure"]
    assert (result.exit_code, result.run.record["verdict"]) == (exit_code, verdict), failure
    assert (failure is None) == (exit_code == 0 or cells == [INVALID])


def test_progress_names_the_work_of_a_cell_and_else_the_heading_above_it() -> None:
    from nbformat import v4

    cells = [
        v4.new_markdown_cell("# How many?"),
        v4.new_code_cell("n: int = int(2)  # how many", metadata={"tags": ["parameters"]}),
        v4.new_code_cell("import os  # (of the system)\nfound = build(n)  # measures, compares\nfound.show()"),
        v4.new_markdown_cell("## The answer"),
        v4.new_code_cell("# a note of its own\nshow(found)"),
    ]
    plan = discovery.RunPlan(Path("a.ipynb"), v4.new_notebook(cells=cells), ResolvedValues())
    labels = ["How many?", "How many?", "measures, compares", "The answer", "The answer"]
    assert runner._list_cell_labels(plan) == labels
