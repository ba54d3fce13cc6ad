"""The command line: what is passed on, what is printed where, and the exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench import __version__
from workbench.cli import app, lab, run_output
from workbench.core.errors import ConfigError, InvalidResultError, MissingToolError
from workbench.core.files import PROJECT_FILE, UnwritableError
from workbench.execution import runner
from workbench.runs import run_folder

FAKES = Path(__file__).parents[1] / "fakes" / "notebooks"
# What makes a start slow; each is imported by the command that needs it.
HEAVY = {
    "altair", "IPython", "jupyter_client", "nbclient", "nbconvert", "nbformat", "numpy", "pandas", "papermill",
    "polars", "psutil", "pyarrow", "pydantic", "pyspark", "rich", "scipy", "vl_convert", "yaml",
}  # fmt: skip


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        app.main(list(arguments))
    return int(caught.value.code or 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command would have run."""
    seen: dict[str, Any] = {}

    def run_notebooks(paths: Any, values: Any, **options: Any) -> list[Any]:
        seen.update(paths=paths, values=values, **options)
        return []

    monkeypatch.setattr(runner, "run_notebooks", run_notebooks)
    return seen


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a notebooks folder, and the working directory."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / PROJECT_FILE).touch()
    for name in ("00_start_here", "01_adds", "_template", "scratch"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_bytes((FAKES / "01_adds.ipynb").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded_by(*arguments: str) -> set[str]:
    """Top-level modules that a command line loads, in a process of its own."""
    code = "import sys, json\nfrom workbench.cli.app import main\n"
    code += "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
    code += "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout or __version__ in done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["runs", "--help"], ["doctor", "--help"]]
)
def test_help_loads_no_heavy_module_and_no_area(arguments: list[str]) -> None:
    modules = loaded_by(*arguments)
    # Typer itself looks at pydantic when it makes a command's options.
    allowed = {"pydantic"} if len(arguments) > 1 else set()
    assert HEAVY & modules <= allowed
    assert sorted(area.module for area in app.AREAS.values() if area.module.rpartition(".")[0] in modules) == []


def test_help_names_every_area_that_is_there_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    text = capsys.readouterr().out
    assert [name for name, area in app.AREAS.items() if area.is_installed and f"\n  {name} " not in text] == []
    assert "workbench run all --jobs 2" in text


def test_an_area_that_is_named_is_loaded_and_shows_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("eventlog", "--help") == 0
    assert "facts" in capsys.readouterr().out


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out == f"workbench {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["fly"], ["run"], ["run", "x", "--jobs", "many"], ["gallery", "a", "b"], ["--no-such"]]
)
def test_wrong_use_ends_with_2_and_says_so_on_stderr(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error" in captured.err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (ConfigError("bad", do="this"), 2),
        (InvalidResultError("bad", do="this"), 1),
        (MissingToolError("bad", do="this"), 3),
        (UnwritableError(13, "bad"), 2),
    ],
)
def test_an_error_is_told_without_traceback_and_ends_with_its_code(
    raised: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(run_output, "resolve_notebooks", fails)
    assert call("run", "x") == code
    error = capsys.readouterr().err
    assert error.startswith("Error: ")
    assert "bad\n  do: " in error
    assert "Traceback" not in error


def test_a_mistake_of_ours_is_apologised_for_and_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_output, "resolve_notebooks", lambda names: 1 / 0)
    assert call("run", "x") == 3
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "bug in the workbench" in error


def test_what_failed_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder.start_run("adds", tmp_path)
    evil = "bad log \x1b]0;owned\x07\x9b2J"
    run.end("failed", {"cell_number": 1, "source": f"read({evil!r})\n# {evil}", "error_name": "E", "error": evil})
    run_output.print_results([runner.RunResult(FAKES / "01_adds.ipynb", run)], as_json=False)
    told = capsys.readouterr().err
    assert "bad log" in told
    assert not {"\x1b", "\x07", "\x9b"} & set(told)


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_output, "resolve_notebooks", interrupted)
    assert call("run", "x") == 130


def test_run_passes_on_what_it_is_given(calls: dict[str, Any], here: Path) -> None:
    (here / "given.yaml").write_text("left: 3\n")
    arguments = ["run", "adds", "-p", "label=3.10=x", "-f", "given.yaml", "--jobs", "3", "--timeout", "9", "--out", "o"]
    assert call(*arguments) == 0
    assert calls["paths"] == [here / "notebooks" / "01_adds.ipynb"]
    assert (calls["values"], calls["texts"]) == ({"left": 3}, {"label": "3.10=x"})
    assert (calls["jobs"], calls["timeout_s"], calls["out"]) == (3, 9, "o")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["01_adds"], ["01_adds"]),
        (["adds"], ["01_adds"]),
        (["notebooks/scratch.ipynb"], ["scratch"]),
        (["scratch"], ["scratch"]),
        (["all"], ["00_start_here", "01_adds"]),
        (["adds", "all"], ["01_adds", "00_start_here"]),
    ],
)
def test_a_notebook_is_found_by_number_area_or_path(here: Path, names: list[str], found: list[str]) -> None:
    assert [path.stem for path in run_output.resolve_notebooks(names)] == found


def test_yaml_of_the_command_line_wins_over_the_file_name_by_name(calls: dict[str, Any], here: Path) -> None:
    (here / "given.yaml").write_text("adds: {a: 1, b: {x: 1, y: 2}}\nlimits: {eu: 1}\n")
    more = ["-y", "adds: {b: {x: 3}}", "-y", "{limits: [1], day: a}", "-y", "day: b"]
    assert call("run", "01_adds", "-f", "given.yaml", *more) == 0
    assert calls["values"] == {"adds": {"a": 1, "b": {"x": 3}}, "limits": [1], "day": "b"}


@pytest.mark.parametrize("text", ["[1]", "5", "{1: 2}", "a: [", "a: 1\na: 2"])
def test_yaml_of_the_command_line_that_gives_no_names_is_refused(text: str, here: Path) -> None:
    with pytest.raises(ConfigError, match="-y"):
        run_output.read_values(None, [text], [])


def test_an_unknown_notebook_is_answered_with_those_there_are(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", "01_add") == 2
    error = capsys.readouterr().err
    assert "allowed: 00_start_here, 01_adds, scratch" in error
    assert "did you mean 01_adds?" in error


def test_a_mistyped_area_is_answered_with_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("lor") == 2
    assert "Did you mean 'lore'?" in capsys.readouterr().err


def test_all_needs_numbered_notebooks(here: Path) -> None:
    for name in ("00_start_here", "01_adds"):
        (here / "notebooks" / f"{name}.ipynb").unlink()
    with pytest.raises(ConfigError, match="no numbered notebooks"):
        run_output.resolve_notebooks(["all"])


@pytest.mark.parametrize("given", [["secret-value"], ["=secret-value"], ["a=1", "a=secret-value"]])
def test_a_bad_assignment_is_refused_and_not_repeated(given: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        run_output.parse_assignments(given)
    assert "secret-value" not in str(caught.value)


def test_the_parameters_of_a_notebook_are_listed_and_nothing_runs(
    here: Path, calls: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run", "adds", "--parameters") == 0
    assert "  left: int = 1  # first number\n" in capsys.readouterr().out
    assert call("run", "adds", "--parameters", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["01_adds"][0] == {"name": "left", "type": "int", "default": 1, "comment": "first number"}
    assert calls == {}


@pytest.mark.notebook
def test_run_prints_verdict_answer_and_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notebooks" / "01_adds.ipynb").rename(here / "notebooks" / "01_sums.ipynb")
    assert call("run", "sums", "-p", "some_file=pyproject.toml", "--out", "o") == 2
    captured = capsys.readouterr()
    assert "cell 4 of 01_sums.ipynb failed" in captured.err
    assert "InputError: cannot read the input" in captured.err
    assert call("run", "sums", "-p", "some_file=notebooks/01_sums.ipynb", "--out", "o") == 0
    captured = capsys.readouterr()
    report = re.search(r"^  report: (.*)$", captured.out, re.MULTILINE)
    assert captured.out.startswith("The sum is 3.\n  valid\n  why: two numbers were given\n")
    assert report is not None
    assert Path(report.group(1)).is_file()
    assert "sums: cell 6, The answer" in captured.err


@pytest.mark.notebook
def test_json_is_the_only_thing_on_stdout_and_the_worst_run_gives_the_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [str(FAKES / f"{name}.ipynb") for name in ("no_parameters_cell", "cell_fails", "02_invalid_result")]
    assert call("run", *names, "--json", "--out", str(tmp_path), "--jobs", "2") == 3
    document = json.loads(capfd.readouterr().out)
    assert [item["status"] for item in document["runs"]] == ["succeeded", "failed", "succeeded"]
    assert [item["verdict"] for item in document["runs"]] == [None, None, "invalid"]
    assert document["runs"][1]["failure"]["source"] == "# the next line fails\nnumerator / 0"
    assert all(Path(item["report"]).is_file() for item in document["runs"])


def test_runs_are_listed_newest_first_and_broken_ones_told_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder.start_run("adds", tmp_path)
    run.conclude("valid", [], "Yes.")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert call("runs", "list", "--out", str(tmp_path)) == 0
    captured = capsys.readouterr()
    name = run.run_id[:15]
    assert captured.out.splitlines() == [f"{'run':<15}  area  outcome  answer", f"{name}  adds  valid    Yes."]
    assert "unreadable run record" in captured.err
    assert call("runs", "list", "--out", str(tmp_path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["answer"] == "Yes."


@pytest.mark.parametrize("name", ["start", "folder"])
def test_a_run_is_shown_by_the_start_of_its_id_or_its_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder.start_run("adds", tmp_path, title="How many?", config={"left": 5})
    given = run.run_id[:18] if name == "start" else str(run.folder)
    assert call("runs", "show", given, "--out", str(tmp_path)) == 0
    text = capsys.readouterr().out
    assert text.startswith("No answer.\nrunning\n")
    assert "left         5\n" in text


def test_a_run_is_shown_with_its_answer_first_and_settings_as_they_are_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"goals": ["p95<=6"], "users": 400.0, "live": False, "url": "", "sweep": []}
    run = run_folder.start_run("sizing", tmp_path, title="How many GPUs do N users need?", config=config)
    run.record["tables"] = [{"name": "points", "rows": 1}]
    run.conclude("valid", [], "19 GPUs serve 400 users.", conditions=["simulated service"], details=["It was driven."])
    assert call("runs", "show", run.run_id, "--out", str(tmp_path)) == 0
    text = capsys.readouterr().out
    assert text.startswith("19 GPUs serve 400 users.\nvalid, simulated service\nIt was driven.\n")
    assert "N users" not in text
    rows = [line.split() for line in text.splitlines()]
    assert all(row in rows for row in (["goals", "p95<=6"], ["users", "400"], ["live", "false"], ["points", "1"]))
    assert "not set: url, sweep" in text


def test_a_run_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("runs", "show", "2026", "--out", str(tmp_path)) == 2
    assert "workbench runs list" in capsys.readouterr().err


def test_a_gallery_of_no_folder_is_refused(tmp_path: Path) -> None:
    assert call("gallery", str(tmp_path / "none")) == 2


def test_a_gallery_prints_the_path_of_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.report import gallery

    monkeypatch.setattr(gallery, "write_gallery", lambda place: f"{place}/index.html")
    assert call("gallery", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"{tmp_path}/index.html\n"


def test_doctor_knows_the_areas_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "eventlog", "--json") == 0
    assert json.loads(capsys.readouterr().out)["areas"] == {"eventlog": True}
    assert call("doctor", "flying") == 2
    assert "eventlog" in capsys.readouterr().err


def test_lab_passes_further_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(lab, "start_lab", lambda folder, options: seen.append((folder, options)) or 0)
    assert call("lab", "--no-browser", "--notebooks", str(tmp_path), "--port=9999") == 0
    assert seen == [(tmp_path, ["--no-browser", "--port=9999"])]


def test_lab_refuses_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        lab.start_lab(tmp_path / "none")


@pytest.mark.notebook
def test_lab_serves_the_folder_on_this_machine_with_a_token_and_ends_on_an_interrupt(tmp_path: Path) -> None:
    import signal

    command = [sys.executable, "-m", "workbench", "lab", "--no-browser", "--notebooks", str(tmp_path), "--port=0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if re.search(r"http://(127\.0\.0\.1|localhost):\d+/lab\?token=[0-9a-f]{48}", line):
            break
    else:
        pytest.fail("".join(lines))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0
