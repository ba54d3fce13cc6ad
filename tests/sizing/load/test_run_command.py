"""`workbench sizing run` as a user meets it: what is printed, what is refused, with which exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.hostile import hostile
from workbench.cli.app import main

pytestmark = pytest.mark.live

SMALL = ("--samples", "20", "--most-samples", "20", "--max-step", "20", "--processes", "0")


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]


@pytest.fixture
def sizing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Said:
        code: object = 0
        try:
            main(["sizing", "run", "--out", str(tmp_path / "out"), *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        said = capsys.readouterr()
        return Said(int(str(code or 0)), said.out, said.err)

    return run


def test_a_sweep_prints_its_points_where_they_lie_and_what_a_level_is(sizing: Run, tmp_path: Path) -> None:
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


def test_json_is_one_document_and_nothing_else(sizing: Run) -> None:
    with hostile(delay_s=0.02) as server:
        said = sizing("--url", server.url, "--users", "2", "--json", *SMALL)
    document = json.loads(said.out)
    assert document["ended"] == "finished"
    assert [point["load"] for point in document["points"]] == [2.0]
    assert Path(document["folder"], "sweep.json").is_file()


def test_failures_are_told_in_the_services_own_words(sizing: Run) -> None:
    with hostile(shares={"4xx": 1.0}) as server:
        said = sizing("--url", server.url, "--users", "2", *SMALL)
    assert said.code == 1
    assert 'x http_error 422: {"detail": "field required"}' in said.out
    assert "not good: 2 users: interrupted, 100.0% of" in said.out


def test_a_limit_ends_it_with_the_way_to_go_on(sizing: Run, tmp_path: Path) -> None:
    with hostile() as server:
        said = sizing("--url", server.url, "--users", "1,2", "--max-requests", "10", *SMALL)
        folder = next((tmp_path / "out" / "sizing").iterdir())
        assert said.code == 1
        assert "not good: the sweep ended at its limit, --max-requests 10" in said.out
        assert f"resume: workbench sizing run --resume {folder}" in said.out
        again = sizing("--resume", folder, "--max-requests", "100000")
    assert "the sweep ended at its limit" not in again.out
    assert "go on:" not in again.out


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
    arguments: tuple[str, ...], told: str, sizing: Run, tmp_path: Path
) -> None:
    said = sizing(*arguments)
    assert said.code == 2, said
    assert told in said.err
    assert said.out == ""
    assert not (tmp_path / "out").exists()


def test_a_secret_in_place_of_a_variable_is_not_repeated(sizing: Run) -> None:
    said = sizing("--url", "http://127.0.0.1:1", "--users", "1", "--header-env", "Authorization: Bearer s3cr3t")
    assert said.code == 2
    assert "s3cr3t" not in said.out + said.err


def test_a_function_of_the_working_directory_is_driven(sizing: Run, tmp_path: Path) -> None:
    (tmp_path / "my_agent_for_sizing.py").write_text(
        "import asyncio\nasync def agent(prompt: str) -> str:\n    await asyncio.sleep(0.001)\n    return prompt\n"
    )
    said = sizing("--function", "my_agent_for_sizing:agent", "--users", "2", "--json", *SMALL[:-1], "1")
    assert json.loads(said.out)["points"][0]["n_failed"] == 0


def test_an_open_loop_says_what_its_levels_are(sizing: Run) -> None:
    with hostile() as server:
        said = sizing("--url", server.url, "--arrivals", "poisson", "--rates", "30", "--max-step", "1", *SMALL[:4])
    assert said.out.startswith("a level is arrivals a second (poisson), whatever the service does")
    assert "step 0, 30/s poisson" in said.err
