"""A stack installed: once, whole, checked, whoever else wants it and whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.indicators.stacks.making import SMALL, Made, Served
from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.indicators.stacks import environments, stack_solver, uv_tool
from workbench.indicators.stacks.environments import ensure_environment, install_environments
from workbench.indicators.stacks.stack_request import build_stack_request
from workbench.indicators.stacks.stack_sets import Stack, build_stack
from workbench.indicators.stacks.uv_tool import Sources

pytestmark = pytest.mark.live

Serve = Callable[..., Served]
ROOT = Path(__file__).parents[3]


def stacks(*free: str) -> tuple[Stack, ...]:
    return stack_solver.solve_request(build_stack_request(free=free, step="patch", no_limit=True)).stacks


@pytest.fixture
def stack(small: Sources) -> Stack:
    return stacks("bbb==2.0")[0]


def says(made: environments.Environment, code: str) -> str:
    return subprocess.run([made.python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_stack_is_installed_once_in_the_users_cache_and_found_again(stack: Stack) -> None:
    made = ensure_environment(stack)
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "workbench" / "indicators" / "environments"
    assert made.folder == cache / stack.key
    assert (made.folder / environments.LOCK).read_text() == stack.lock
    assert made.installed == stack.versions == {"aaa": "2.0", "bbb": "2.0", "ccc": "1.0"}
    assert made.python_version == stack.python
    assert says(made, "import aaa, bbb; print(aaa.VERSION, bbb.VERSION)") == "2.0 2.0"
    # Bytecode is written before any run.
    assert says(made, "import aaa, os; print(os.path.isfile(aaa.__cached__))") == "True"
    assert environments.find_altered_files(made.folder) == []
    again = ensure_environment(stack)
    assert (made.made, again.made) == (True, False)
    assert (again.record_sha256, again.make_s) == (made.record_sha256, made.make_s)


def test_a_copy_is_an_environment_of_its_own_with_the_same_packages(stack: Stack, tmp_path: Path) -> None:
    own, copy = ensure_environment(stack, tmp_path), ensure_environment(stack, tmp_path, copy=1)
    assert (own.folder.name, copy.folder.name) == (stack.key, f"{stack.key}.1")
    assert own.record_sha256 == copy.record_sha256
    assert says(copy, "import sys; print(sys.prefix)") == str(copy.folder)


def test_bytecode_that_a_wheel_ships_may_be_compiled_anew(serve: Serve, tmp_path: Path) -> None:
    serve([Made("aaa", "1.0", ships_bytecode=True)])
    (stack,) = stacks("aaa")
    made = ensure_environment(stack, tmp_path)
    (shipped,) = made.folder.glob("lib/python*/site-packages/aaa/__pycache__/__init__.*.pyc")
    assert shipped.read_bytes() != b"old"
    assert environments.find_altered_files(made.folder) == []
    assert not ensure_environment(stack, tmp_path).made


def test_installing_runs_nothing_of_a_package(serve: Serve, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    serve([Made("aaa", "1.0", body=f"open({str(trace)!r}, 'w')\n", runs_at_start=f"open({str(trace)!r}, 'w')")])
    (stack,) = stacks("aaa")
    made = ensure_environment(stack, tmp_path)
    assert not trace.exists()
    says(made, "pass")
    assert trace.exists()


def test_all_are_installed_in_the_order_of_asking_and_counted(small: Sources, tmp_path: Path) -> None:
    wanted = [(one, copy) for one in stacks("aaa") for copy in (0, 1)]
    told: list[tuple[int, int]] = []
    made = install_environments(wanted, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert [(one.key, one.copy) for one in made] == [(stack.key, copy) for stack, copy in wanted]
    assert told == [(number, 6) for number in range(1, 7)]
    assert len({one.record_sha256 for one in made}) == 3


def test_a_download_above_the_limit_is_refused_by_name_before_anything_is_made(stack: Stack, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"where: {stack.name}: .* KB\n  allowed: up to 10 bytes"):
        install_environments([(stack, 0)], tmp_path / "root", max_download_bytes=10)
    assert not (tmp_path / "root").exists()


def test_a_file_that_was_replaced_on_the_index_is_not_installed(serve: Serve, tmp_path: Path) -> None:
    served = serve(SMALL)
    (stack,) = stacks("ccc")
    served.wheels[:] = [Made("ccc", "1.0", body="EVIL = True\n")]
    with pytest.raises(RunFailedError, match="cannot install the stack") as caught:
        ensure_environment(stack, tmp_path)
    assert "hash" in str(caught.value).lower()
    assert served.url.split("/")[2] not in str(caught.value)
    assert list(tmp_path.glob(f"{stack.key}*")) == []


def test_without_the_index_a_stack_is_made_from_the_cache(serve: Serve, tmp_path: Path) -> None:
    served = serve(SMALL)
    first, second = stacks("aaa>=1.1")
    ensure_environment(first, tmp_path)
    before = len(served.asked)
    assert ensure_environment(first, tmp_path, copy=1, offline=True).made
    assert len(served.asked) == before
    with pytest.raises(RunFailedError, match="install once without --offline"):
        ensure_environment(second, tmp_path, offline=True)


def damage_record(folder: Path) -> None:
    record = next(folder.glob("lib/python*/site-packages/aaa-*.dist-info/RECORD"))
    # Not in place: the file is a hard link into uv's cache.
    text = record.read_text()
    record.unlink()
    record.write_text(text + "aaa/more.py,,\n")


def damage_version(folder: Path) -> None:
    marker = folder / environments.MARKER
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format_version": 99}))


@pytest.mark.parametrize(
    "damage",
    [
        damage_version,
        damage_record,
        lambda folder: (folder / environments.MARKER).write_text("{"),
        lambda folder: next(folder.glob("lib/python*/site-packages/aaa/__init__.py")).unlink(),
        lambda folder: environments.interpreter_path(folder).unlink(),
        # As a maker that was killed leaves it.
        lambda folder: (folder / environments.MARKER).unlink(),
    ],
)
def test_what_is_damaged_or_unfinished_is_made_anew(
    stack: Stack, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    first = ensure_environment(stack, tmp_path)
    (first.folder / "left behind").touch()
    damage(first.folder)
    again = ensure_environment(stack, tmp_path)
    assert (again.made, again.record_sha256) == (True, first.record_sha256)
    assert not (again.folder / "left behind").exists()


def test_a_link_in_the_place_of_an_environment_is_not_followed(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    (tmp_path / stack.key).symlink_to(tmp_path / "mine")
    assert ensure_environment(stack, tmp_path).made
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


def test_changed_files_are_named(stack: Stack, tmp_path: Path) -> None:
    made = ensure_environment(stack, tmp_path)
    path = next(made.folder.glob("lib/python*/site-packages/aaa/__init__.py"))
    same_size = path.read_text().replace("2.0", "9.9")
    path.unlink()
    path.write_text(same_size)
    assert environments.find_altered_files(made.folder) == ["aaa/__init__.py"]
    assert environments.find_altered_files(made.folder, deep=False) == []


def test_a_failure_leaves_nothing_that_looks_finished(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(environments, "compile_bytecode", broken)
    with pytest.raises(KeyboardInterrupt):
        ensure_environment(stack, tmp_path)
    assert list(tmp_path.glob(f"{stack.key}*")) == []


def test_other_packages_than_the_locks_are_refused(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "list_installed_versions", lambda folder: {"aaa": "6.6"})
    with pytest.raises(RunFailedError, match=r"installed packages differ.*\n.*\n  found: aaa 6.6"):
        ensure_environment(stack, tmp_path)


def test_what_cannot_be_made_here_is_told(stack: Stack, tmp_path: Path) -> None:
    other = build_stack(stack.packages, python=stack.python, platform="win_amd64", name="other")
    with pytest.raises(ConfigError, match="for another platform"):
        ensure_environment(other, tmp_path)
    other = build_stack(stack.packages, python="3.8.1", platform=stack.platform, name="other")
    with pytest.raises(MissingToolError, match=r"uv python install 3\.8\.1") as caught:
        ensure_environment(other, tmp_path)
    assert caught.value.exit_code == 3
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        ensure_environment(stack, tmp_path / "file" / "root")


MAKER = """
import json, sys
from pathlib import Path
from workbench.indicators.stacks import environments, stack_sets
stack = stack_sets.Stack.model_validate_json(Path(sys.argv[1]).read_text())
print("started", flush=True)
sys.stdin.readline()
made = environments.ensure_environment(stack, Path(sys.argv[2]))
print(json.dumps([made.made, made.record_sha256]), flush=True)
"""


def test_of_two_makers_at_once_one_makes_and_the_other_finds(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(stack.model_dump_json())
    command: list[Any] = [sys.executable, "-c", MAKER, tmp_path / "stack.json", tmp_path / "root"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    makers: list[Any] = [subprocess.Popen(command, **pipes, cwd=ROOT) for _ in range(2)]
    assert [one.stdout.readline() for one in makers] == ["started\n"] * 2
    for one in makers:
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [json.loads(one.communicate(timeout=120)[0].splitlines()[-1]) for one in makers]
    assert sorted(made for made, _ in answers) == [False, True]
    assert len({digest for _, digest in answers}) == 1


def test_the_lock_lasts_as_long_as_uv_does_even_when_its_starter_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "uv"
    monkeypatch.setattr(uv_tool, "find_uv", lambda: str(stand_in))
    with open(tmp_path / "held.lock", "w") as held:
        # It counts its open files that are the held one.
        stand_in.write_text(
            f"#!{sys.executable}\nimport os\nwanted = os.stat({held.name!r}).st_ino\nfound = 0\n"
            "for number in range(3, 100):\n    try:\n        found += os.fstat(number).st_ino == wanted\n"
            "    except OSError:\n        pass\nprint(found)\n"
        )
        stand_in.chmod(0o755)
        assert uv_tool.run_uv(["x"], sources=None).stdout == "0\n"
        assert uv_tool.run_uv(["x"], sources=None, lock_descriptor=held.fileno()).stdout == "1\n"
