"""`lore bisect` as it is called wrongly, or for what cannot be searched: no Spark is needed for that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lore.small_dump import write_dump
from workbench.cli.app import app
from workbench.core.errors import ConfigError, InputError
from workbench.lore import bisect
from workbench.lore.bisection import input_bisection
from workbench.lore.bisection.input_search import strip_values
from workbench.lore.replays import operator_replay


def test_an_option_that_there_is_not_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown option of lore bisect"):
        bisect(tmp_path, repeat=3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--engine", "gpu"], "--engine"),
        (["--driver-memory", "lots"], "--driver-memory"),
        (["--a", "no setting"], "--a"),
        ([], "there is no dump"),
    ],
)
def test_wrong_use_ends_with_code_2_and_names_the_option(arguments: list[str], named: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["lore", "bisect", str(tmp_path / "nowhere"), *arguments])
    assert named in f"{result.output} {result.exception}"
    assert result.exit_code == 2 or getattr(result.exception, "exit_code", None) == 2


@pytest.mark.parametrize(
    "run",
    [
        lambda url: input_bisection.bisect_dump(url, input_bisection.BisectOptions(), report=print),
        lambda url: operator_replay.replay_dump(url, operator_replay.ReplayOptions(), report=print),
    ],
    ids=["bisect", "replay"],
)
def test_an_encoded_url_names_the_folder_with_a_space(run: Callable[[str], object], tmp_path: Path) -> None:
    url = write_dump(tmp_path / "a folder" / "loreId-3", has_plan=False).as_uri()
    assert "%20" in url
    # It was read: that it holds no plan is said before a Spark is started.
    with pytest.raises(InputError, match="this dump has data only"):
        run(url)


def test_messages_that_differ_in_values_alone_are_alike_without_them() -> None:
    one, other = "The value '12a' cannot be cast, row 17", "The value 'x y' cannot be cast, row 4"
    assert strip_values(one) == strip_values(other)
    assert strip_values(one) != strip_values("The value '12a' can be cast, row 17")
