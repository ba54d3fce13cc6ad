"""`workbench sizing run` as a user meets it: what is printed, what is refused, with which exit code."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.hostile import hostile
from tests.sizing.conftest import Sizing

pytestmark = pytest.mark.live

SMALL = ("--samples", "20", "--most-samples", "20", "--max-step", "20", "--processes", "0")


@pytest.fixture
def sizing(sizing: Sizing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sizing:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(sizing, "run", "--out", tmp_path / "out")


def test_a_sweep_prints_its_points_where_they_lie_and_what_a_level_is(sizing: Sizing, tmp_path: Path) -> None:
    with hostile(delay_s=0.02) as server:
        said = sizing("--url", server.url, "--users", "1,3", *SMALL)
    lines = said.out.splitlines()
    assert lines[0] == "a level is concurrent requests (users without think time)"
    assert sum("samples" in line for line in lines) >= 2
    folder = next((tmp_path / "out" / "sizing").iterdir())
    assert f"written: {folder}" in lines
    assert "step 0, 1 user: " in said.err
    assert "step 1, 3 users: " in said.err
    assert "not good" not in said.out or said.code == 1
    # 20 samples are fewer than a p95 needs, unless they were asked for.
    assert "few samples" not in said.out


def test_failures_are_told_in_the_services_own_words(sizing: Sizing) -> None:
    with hostile(shares={"4xx": 1.0}) as server:
        said = sizing("--url", server.url, "--users", "2", *SMALL)
    assert said.code == 1
    assert 'x http_error 422: {"detail": "field required"}' in said.out
    assert "invalid: 2 users: interrupted, 100.0 % of" in said.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no service to measure"),
        (("--url", "http://127.0.0.1:1"), "neither levels nor a goal"),
        (("--url", "http://127.0.0.1:1", "--users", "1,x"), "where: --users\n"),
        (("--url", "http://127.0.0.1:1", "--users", "1.5"), "where: --users[0]\n"),
        (("--url", "http://127.0.0.1:1", "--goal", "fast"), "not a goal"),
        (("--url", "http://example.org", "--users", "1"), "add --target-confirm example.org"),
        (("--url", "http://127.0.0.1:1", "--users", "1", "--protocol", "grpc"), "protocol"),
        (("--url", "http://127.0.0.1:1", "--users", "1", "--body", "{"), "not JSON"),
        (("--url", "http://127.0.0.1:1", "--users", "1", "--body", "@none.json"), "cannot read the file"),
        (("--url", "http://127.0.0.1:1", "--users", "1", "--prompts", "none.txt"), "cannot read the prompt file"),
        (("--url", "http://127.0.0.1:1", "--users", "1", "--header-env", "Authorization=NO_SUCH_V"), "NO_SUCH_V"),
        (("--url", "http://127.0.0.1:1", "--users", "1"), "no service listens"),
        (("--function", "nothing", "--users", "1"), "module:function"),
        (("--resume", "none"), "no sweep here"),
    ],
)
def test_wrong_use_is_exit_code_2_and_leaves_nothing(
    arguments: tuple[str, ...], told: str, sizing: Sizing, tmp_path: Path
) -> None:
    said = sizing(*arguments)
    assert said.code == 2, said
    assert told in said.err
    assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_secret_in_place_of_a_variable_is_not_repeated(sizing: Sizing) -> None:
    said = sizing("--url", "http://127.0.0.1:1", "--users", "1", "--header-env", "Authorization: Bearer s3cr3t")
    assert said.code == 2
    assert "s3cr3t" not in said.out + said.err


def test_a_function_of_the_working_directory_is_driven(sizing: Sizing, tmp_path: Path) -> None:
    (tmp_path / "my_agent_for_sizing.py").write_text(
        "import asyncio\nasync def agent(prompt: str) -> str:\n    await asyncio.sleep(0.001)\n    return prompt\n"
    )
    said = sizing("--function", "my_agent_for_sizing:agent", "--users", "2", "--json", *SMALL[:-1], "1")
    assert json.loads(said.out)["points"][0]["n_failed"] == 0
