"""pylock.toml of a stack: exactly the lock's files, readable by others."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.indicators.stacks.making import SMALL, Made, Served
from workbench.core.errors import InputError
from workbench.indicators.stacks import stack_solver, uv_tool
from workbench.indicators.stacks.stack_report import format_pylock
from workbench.indicators.stacks.stack_request import build_stack_request
from workbench.indicators.stacks.stack_sets import Stack
from workbench.indicators.stacks.uv_tool import Sources

Serve = Callable[..., Served]


def stack(*free: str) -> Stack:
    return stack_solver.solve_request(build_stack_request(free=free, step="patch", no_limit=True)).stacks[0]


def test_it_lists_the_locks_files_with_what_the_index_tells(serve: Serve) -> None:
    served = serve(SMALL)
    document = tomllib.loads(format_pylock(stack("bbb")))
    assert (document["lock-version"], document["created-by"]) == ("1.0", "accelerated-workbench")
    assert [package["name"] for package in document["packages"]] == ["aaa", "bbb", "ccc"]
    (wheel,) = document["packages"][2]["wheels"]
    made = SMALL[-1]
    assert wheel["hashes"] == {"sha256": made.sha256}
    assert (wheel["name"], wheel["size"]) == (made.file_name, len(made.content))
    assert wheel["url"] == served.url.replace("/simple", f"/files/{made.file_name}")
    assert wheel["upload-time"].isoformat() == "2020-01-01T00:00:00+00:00"


def test_files_that_came_later_are_not_in_it(serve: Serve) -> None:
    served = serve([Made("aaa", "1.0")])
    found = stack("aaa")
    served.wheels.append(replace(served.wheels[0], tag="py2.py3-none-any"))
    assert len(tomllib.loads(format_pylock(found))["packages"][0]["wheels"]) == 1


def test_a_password_of_the_index_is_not_in_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(SMALL, form="html", password="s3cret")
    monkeypatch.setenv("UV_DEFAULT_INDEX", served.with_password)
    text = format_pylock(stack("ccc"))
    assert served.url.split("/")[2] in text
    assert "s3cret" not in text


def test_uv_installs_from_it(small: Sources, tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(format_pylock(stack("bbb")))
    assert uv_tool.run_uv(["venv", "--no-project", tmp_path / "venv"], sources=None).exit_code == 0
    python = tmp_path / "venv" / "bin" / "python"
    words = ["pip", "install", "--preview", "--python", python, "-r", tmp_path / "pylock.toml"]
    said = uv_tool.run_uv(words, sources=Sources(()))
    assert said.exit_code == 0, said.stderr
    done = subprocess.run([python, "-c", "import bbb; print(bbb.VERSION)"], capture_output=True, text=True, check=True)
    assert done.stdout == "2.0\n"


def test_a_file_that_the_index_lost_is_named(serve: Serve) -> None:
    served = serve(SMALL)
    found = stack("ccc")
    served.wheels[:] = [Made("ccc", "1.0", body="other = 1\n")]
    with pytest.raises(InputError, match=r"(?s)has no file for a package of the lock.*ccc 1\.0"):
        format_pylock(found)


def test_a_stack_of_another_platform_finds_its_own_files(serve: Serve) -> None:
    serve([Made("aaa", "1.0", tag=tag) for tag in ("cp312-cp312-win_amd64", "cp312-cp312-manylinux_2_17_x86_64")])
    request = build_stack_request(free=("aaa",), step="patch", no_limit=True, python="3.12", platform="windows")
    (found,) = stack_solver.solve_request(request).stacks
    (package,) = tomllib.loads(format_pylock(found))["packages"]
    assert [wheel["name"] for wheel in package["wheels"]] == ["aaa-1.0-cp312-cp312-win_amd64.whl"]


def test_texts_are_escaped() -> None:
    from workbench.indicators.stacks.stack_report import _quote_text

    for text in ('a"b', "a\\b", "a\nb\x7f\x00é"):
        assert tomllib.loads(f"x = {_quote_text(text)}")["x"] == text
