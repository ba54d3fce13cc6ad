"""`workbench indicators stacks` as a user meets it: what is printed and written, what is refused, exit codes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from tests.indicators.stacks.making import SMALL, Made, Served
from workbench.core.errors import WorkbenchError
from workbench.indicators.command import app
from workbench.indicators.stacks import environments, stack_sets, stack_solver
from workbench.indicators.stacks.uv_tool import Sources

Serve = Callable[..., Served]


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def stacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command in an empty folder, with errors told as the command line tells them."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: str | Path) -> Said:
        code: object = 0
        try:
            app(["stacks", *map(str, arguments)], prog_name="workbench indicators")
        except SystemExit as ended:
            code = ended.code
        except WorkbenchError as error:
            typer.echo(f"Error: {error}", err=True)
            code = error.exit_code
        said = capsys.readouterr()
        return Said(int(str(code or 0)), said.out, said.err)

    return run


BOTH = ("--free", "aaa", "--free", "bbb", "--step", "patch", "--exclude-newer", "2021-01-01")


def test_a_table_tells_stacks_sizes_keys_reasons_and_how_to_ask_again(stacks: Run, small: Sources) -> None:
    said = stacks(*BOTH)
    lines = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert lines[0].startswith("3 stacks by grid, for Python 3.")
    assert lines[2].split() == ["stack", "packages", "download", "key", "also", "differs", "in"]
    made = stack_sets.read_stack_set("stacks.json")
    assert [line.split("  ")[0] for line in lines[3:6]] == [stack.name for stack in made.stacks]
    assert [made.stacks[number].key[:12] in line for number, line in enumerate(lines[3:6])] == [True] * 3
    assert lines[3].endswith("ccc 1.0")
    assert lines[4].endswith("no ccc")
    assert lines[7] == "rejected: 3 points, full reasons in the file"
    assert lines[8] == "  aaa 2.0, bbb 1.0"
    assert lines[9].startswith("    Because bbb")
    assert lines[-2:] == [
        "to repeat: workbench indicators stacks --free aaa --free bbb --step patch --exclude-newer 2021-01-01",
        "written: stacks.json",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--free", "aaa>=1.1", "--latest", "2"),
        ("--free", "aaa", "--free", "bbb", "--decision", "random", "--step", "major"),
        ("--free", "bbb", "--decision", "bounds"),
        ("--free", "aaa", "--exclude-newer", "never"),
        ("--free", "aaa", "--decision", "dates", "--from", "2024-01-31", "--every", "year"),
        ("--free", "aaa", "--python-version", "3.12", "--platform", "windows"),
        ("--free", "aaa", "--exclude-newer", "2021-01-01T12:00:00Z"),
        ("--free", "aaa", "--free", "bbb", "--step", "patch", "--most", "250"),
        ("--free", "aaa", "--max-download", "1GiB"),
        ("--free", "aaa", "--context", '{"base": "an image", "script": "print(\'é\')"}'),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_the_command_that_is_told_gives_the_same_bytes(stacks: Run, small: Sources, arguments: tuple[str, ...]) -> None:
    (told,) = [line for line in stacks(*arguments).out.splitlines() if line.startswith("to repeat")]
    first = Path("stacks.json").read_bytes()
    Path("stacks.json").unlink()
    said = stacks(*shlex.split(told.partition("workbench indicators stacks ")[2]))
    assert said.code == 0
    assert Path("stacks.json").read_bytes() == first


def test_the_old_tools_options_work(stacks: Run, small: Sources) -> None:
    Path("requirements.txt").write_text("ccc\n")
    said = stacks(
        *BOTH, "--decision-type", "random", "--seed", 5654, "--count", 2, "--requirements", "requirements.txt",
        "--stack-output", "out", "--report-output", "report.json", "--context", '{"base": "fedora:32"}',
        "--limit-latest-versions", -1,
    )  # fmt: skip
    assert said.code == 0
    made = stack_sets.read_stack_set("stacks.json")
    assert (made.seed, made.context, made.requirements) == (5654, {"base": "fedora:32"}, ("ccc",))
    for number, stack in enumerate(made.stacks):
        assert (Path("out") / str(number) / "requirements.txt").read_text() == stack.lock
        assert "[[packages]]" in (Path("out") / str(number) / "pylock.toml").read_text()
    report = json.loads(Path("report.json").read_text())
    assert (report["seed"], report["skipped"]) == (5654, len(made.rejected))
    assert [one["response"] for one in report["responses"]] == ["out/0", "out/1"]
    assert [one["product"]["packages"] for one in report["responses"]] == [stack.versions for stack in made.stacks]
    assert "--requirements FILE --decision random --step patch --count 2 --seed 5654 --exclude-newer" in said.out


def test_all_is_the_old_name_of_the_grid_and_steps_alone_are_a_decision(stacks: Run, small: Sources) -> None:
    assert stacks(*BOTH, "--decision-type", "all", "--limit-latest-versions", 1).code == 0
    assert [stack.name for stack in stack_sets.read_stack_set("stacks.json").stacks] == ["aaa 2.0, bbb 2.0"]
    assert stacks("--free", "aaa", "--latest", 2).out.startswith("2 stacks by latest")


def test_locks_go_to_stdout_and_everything_else_elsewhere(stacks: Run, small: Sources) -> None:
    said = stacks("--free", "ccc", "--stack-output", "-")
    assert said.out == f"# 0: ccc 1.0\nccc==1.0 \\\n    --hash=sha256:{SMALL[-1].sha256}\n\n"
    assert "1 stack by grid" in said.err


def test_a_dry_run_lists_the_points_and_solves_nothing(
    stacks: Run, small: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_solver, "solve_stack_plan", None)
    said = stacks(*BOTH, "--dry-run")
    assert said.code == 0
    head = "aaa: 2.0, 1.1, 1.0\nbbb: 2.0, 1.0\n\n6 of 6 points by grid:\n  aaa 2.0, bbb 2.0\n"
    assert said.out.startswith(head)
    assert said.out.splitlines()[-1] == "nothing was solved (--dry-run)"
    document = json.loads(stacks(*BOTH, "--dry-run", "--json", "--decision", "random", "--seed", 1).out)
    assert (document["total"], document["seed"], len(document["points"])) == (6, 1, 3)
    assert list(Path().iterdir()) == []


def test_json_is_one_document_and_nothing_else(stacks: Run, small: Sources) -> None:
    said = stacks("--free", "ccc", "--json", "--install")
    document = json.loads(said.out)
    assert document["stacks"] == json.loads(Path("stacks.json").read_text())
    assert document["written"] == "stacks.json"
    assert [one["stack"] for one in document["environments"]] == ["ccc 1.0"]
    assert Path(document["environments"][0]["python"]).exists()
    assert said.err.startswith("installing 1 stack: download up to ")


def test_environments_are_told_and_found_again(stacks: Run, small: Sources) -> None:
    first = stacks("--free", "aaa", "--step", "patch", "--install")
    again = stacks("--in", "stacks.json", "--install")
    assert sum("created in" in line and "bytecode" in line for line in first.out.splitlines()) == 3
    assert sum("reused" in line for line in again.out.splitlines()) == 3
    assert again.out.splitlines()[0] == first.out.splitlines()[0]


def test_stacks_of_a_file_are_checked_before_they_are_installed(stacks: Run, small: Sources) -> None:
    stacks("--free", "ccc")
    text = Path("stacks.json").read_text()
    Path("stacks.json").write_text(text.replace(SMALL[-1].sha256, "0" * 64, 1))
    said = stacks("--in", "stacks.json", "--install")
    assert (said.code, said.out) == (2, "")
    assert "the lock does not match its packages" in said.err
    assert not environments.default_environment_root().exists()


def test_points_with_the_same_reason_are_told_together_with_code_1(stacks: Run, serve: Serve) -> None:
    serve([*(Made("aaa", f"1.{minor}") for minor in range(6)), Made("bbb", "1.0", ("zzz",))])
    said = stacks("--free", "aaa", "--free", "bbb")
    lines = said.out.splitlines()
    assert (said.code, lines[0].startswith("0 stacks by grid")) == (1, True)
    place = lines.index("rejected: 6 points, full reasons in the file")
    assert lines[place + 1] == "  aaa 1.5, bbb 1.0; aaa 1.4, bbb 1.0; aaa 1.3, bbb 1.0; and 3 more"
    assert lines[place + 2].startswith("    Because zzz was not found")


def test_merged_points_and_days_are_told(stacks: Run, serve: Serve) -> None:
    serve([Made("aaa", "1.0"), Made("aaa", "1.1", uploaded="2021-05-01T00:00:00Z")])
    said = stacks("--free", "aaa", "--decision", "dates", "--from", "2021-01-15", "--to", "2021-07-20")
    assert "aaa 1.0         1" in said.out
    assert "before 2021-01-15" in said.out.splitlines()[3]
    assert "merged: before 2021-01-15; before 2021-04-15: one lock, aaa 1.0" in said.out
    assert "--decision dates --from 2021-01-15 --to 2021-07-20\n" in said.out


def test_unknown_sizes_are_said(stacks: Run, serve: Serve) -> None:
    served = serve([Made("aaa", "1.0", tells_size=False)])
    served.tells_length = False
    said = stacks("--free", "aaa", "--install")
    assert said.out.splitlines()[3].split()[:4] == ["aaa", "1.0", "1", "unknown"]
    assert said.err == "installing 1 stack: download up to 0 bytes, and 1 package of unknown size\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to solve: give --free PACKAGE"),
        (("--free", "aaa", "--decision", "best"), "where: --decision"),
        (("--free", "aaa", "--decision-type", "grid"), "allowed: all, random"),
        (("--free", "aaa", "--decision-type", "all", "--decision", "random"), "two decisions"),
        (("--free", "aaa", "--max-download", "much"), "like 2GB, 500MB or 1GiB"),
        (("--free", "aaa", "--stack-output", "-", "--json"), "two outputs on stdout"),
        (("--free", "aaa", "--stack-output", "https://amun.example/api"), "workbench indicators run"),
        (("--free", "aaa", "--offline"), "--offline is for --install"),
        (("--free", "aaa", "--in", "stacks.json"), "these stacks are solved already"),
        (("--free", "aaa", "--out", "file/stacks.json"), "cannot write the stacks"),
        (("--free", "aaa", "--report-output", "file/report.json"), "cannot write the report"),
        (("--free", "aaa", "--stack-output", "file/out"), "cannot write the stacks"),
    ],
)
def test_wrong_use_is_told_with_code_2(stacks: Run, small: Sources, arguments: tuple[str, ...], said: str) -> None:
    Path("file").touch()
    found = stacks(*arguments)
    assert found.code == 2
    assert said in found.err


def test_a_download_above_the_limit_is_a_rejected_point_and_installs_nothing(stacks: Run, small: Sources) -> None:
    found = stacks("--free", "aaa", "--install", "--max-download", "10")
    assert found.code == 1
    assert "above --max-download 10 bytes" in found.out
    stacks("--free", "aaa")
    refused = stacks("--in", "stacks.json", "--install", "--max-download", "10")
    assert refused.code == 2
    assert "the download is too large" in refused.err
