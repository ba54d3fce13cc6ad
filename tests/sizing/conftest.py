"""What tests of commands share: a call of `workbench sizing` and what it left."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from workbench.cli.app import main


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Sizing = Callable[..., Said]


@pytest.fixture
def sizing(capsys: pytest.CaptureFixture[str]) -> Sizing:
    """Runs `workbench sizing ARGUMENTS`."""

    def run(*arguments: object) -> Said:
        code: object = 0
        try:
            main(["sizing", *map(str, arguments)])
        except SystemExit as ended:
            code = ended.code
        return Said(int(str(code or 0)), *capsys.readouterr())

    return run
