"""Completion by the shell: notebooks, parameters and samples, quickly, and in bash behind its own breaks of words."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.test_app import HEAVY
from workbench.core import samples


def complete(line: str) -> tuple[list[str], set[str]]:
    """What bash is told for a line, whose last word is being typed, and the modules that were loaded for it."""
    code = "import atexit, json, sys\nfrom workbench.cli.app import main\n"
    code += "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\nmain([])"
    words = {
        "COMP_WORDS": line.replace(" ", "\n"),
        "COMP_CWORD": str(line.count(" ")),
        "_WORKBENCH_COMPLETE": "complete_bash",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | words)
    return done.stdout.split(), set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("workbench run spe", ["speedup"]),
        ("workbench run profile -p top", ["top_operators="]),
        ("workbench run profile sizing --jobs 2 -p users_p", ["users_per_hour="]),
        ("workbench run profile -p event_log = sample : tpch_", ["tpch_sf0.1"]),
        ("workbench speedup profile sample : ", [samples.name_sample(path) for path in samples.list_samples()]),
        ("workbench capacity plan --sizing sample:gpu/s", ["sample:gpu/sizing"]),
        ("workbench run no_such -p a", []),
    ],
)
def test_bash_is_told_what_stands_behind_its_last_break(line: str, told: list[str]) -> None:
    found, modules = complete(line)
    assert found == told
    # Typer itself looks at pydantic when it makes a command's options.
    assert HEAVY & modules <= {"pydantic"}
