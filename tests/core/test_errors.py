"""Errors say what, where, found, allowed and what to do, and keep saying it across processes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from workbench.core import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InputError, 2),
        (errors.ConfigError, 2),
        (errors.InvalidResultError, 1),
        (errors.MissingToolError, 3),
        (errors.RunFailedError, 3),
    ],
)
def test_every_kind_has_its_exit_code(kind: type[errors.WorkbenchError], code: int) -> None:
    assert kind("what").exit_code == code


def test_only_what_is_known_is_said_and_zero_is_known() -> None:
    error = errors.InputError("what", found=0, allowed=["a", "b"])
    assert str(error) == "what\n  found: 0\n  allowed: a, b"


def test_nothing_is_lost_between_processes() -> None:
    error = errors.ConfigError("what", where="here", do="that")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


# IPython complains of a shell in which another environment is active.
@pytest.mark.filterwarnings("ignore:Attempting to work in a virtualenv")
def test_a_notebook_shows_the_words_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    shell.run_cell(
        "from workbench.core.errors import InputError\nraise InputError('no such log \x1b[2J', where='a.zstd')"
    )
    assert capsys.readouterr().out == "Error: no such log \N{REPLACEMENT CHARACTER}[2J\n  where: a.zstd\n"
    shell.run_cell("1 / 0")
    assert "Traceback" in capsys.readouterr().out
