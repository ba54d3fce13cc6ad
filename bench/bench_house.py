"""The house itself: how soon a command answers, and how long all notebooks take, as a user meets it.

    python -m bench.bench_house [start | panel | all | suite] [--trials 5] [--json FILE]

`start`: whole processes, files read before. `panel`: from the address of a notebook in JupyterLab, in a fresh
page with a fresh kernel, until its panel stands. `all`: `workbench run all --jobs 2` on the samples, warm, once.
`suite`: `make test`, once (long).
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench import mcp_question, shape
from bench.shape import Bar, Row
from workbench.cli.app import AREAS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
EMPTY = "empty.ipynb"
NEW = "NEW"
"""In a command: a folder that is new in each trial."""
SMALLEST_JOBS = {
    "facts of a small log": ("eventlog", "facts", "sample:three_queries", "--out", NEW),
    "profile of a small log": ("speedup", "profile", "sample:three_queries", "--out", NEW),
    "estimate of a sweep": ("sizing", "estimate", "sample:gpu/sizing", "--target-users", "500"),
    "recommendation of a session": ("indicators", "recommend", "sample:numpy", "--mix", "sort=1", "--out", NEW),
    "plan of a scale test": ("scaletest", "plan", "sample:first-test"),
    "capacity plan": ("capacity", "plan", "--sizing", "sample:capacity/sizing", "--out", NEW),
    "scores of forecasts": ("forecast", "score", "--ledger", "sample:ledger"),
}
BIN = Path(sys.executable).parent


def timed(command: list[str]) -> dict[str, float]:
    """Wall time of a whole process from the checkout; what it said when it failed."""
    begin = time.perf_counter()
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-250:]}")
    return {"wall_s": time.perf_counter() - begin}


def start(trials: int) -> list[Row]:
    """Commands that should answer at once."""
    workbench = [sys.executable, "-m", "workbench"]
    with tempfile.TemporaryDirectory() as scratch:
        numbers = itertools.count()

        def run(*arguments: str) -> shape.Measure:
            return lambda: timed([*workbench, *(part.replace(NEW, f"{scratch}/{next(numbers)}") for part in arguments)])

        def greet() -> dict[str, float]:
            begin = time.perf_counter()
            mcp_question.ask(scratch, only_hello=True)
            return {"wall_s": time.perf_counter() - begin}

        sides = {
            "workbench --help": (0.35, run("--help")),
            **{f"workbench {area} --help": (0.25, run(area, "--help")) for area in AREAS},
            **{told: (0.8, run(*arguments)) for told, arguments in SMALLEST_JOBS.items()},
            "first reply of workbench mcp": (0.5, greet),
        }
        found = shape.alternating({side: measure for side, (_, measure) in sides.items()}, trials, warm_up=1)
    return [
        Row(
            "house",
            side,
            "workbench",
            "s",
            found.of(side, "wall_s"),
            bar=Bar("value", at_most=most_s),
            failures=found.failures[side],
        )
        for side, (most_s, _) in sides.items()
    ]


def panel(trials: int) -> list[Row]:
    """How soon a notebook's panel stands in JupyterLab."""
    from tests.browser import labs, pages

    def paint(browser: Browser, lab: labs.Lab, name: str) -> dict[str, float]:
        begin = time.perf_counter()
        with labs.opened(browser, lab, name) as one:
            if name != EMPTY:
                one.panel.first.wait_for()
            return {"wall_s": time.perf_counter() - begin}

    with (
        tempfile.TemporaryDirectory() as scratch,
        labs.started(Path(scratch)) as lab,
        pages.chromium_browser() as browser,
    ):
        template = json.loads((lab.notebooks / "_template.ipynb").read_text())
        (lab.notebooks / EMPTY).write_text(json.dumps(template | {"cells": template["cells"][:1]}))
        names = ("03_sizing.ipynb", "08_profile.ipynb", EMPTY)
        found = shape.alternating(
            {name: functools.partial(paint, browser, lab, name) for name in names}, trials, warm_up=1
        )
    what = "first paint of the panel, from the notebook's address"
    rows = [Row("house", what, side, "s", found.of(side, "wall_s"), failures=found.failures[side]) for side in names]
    floor = replace(rows.pop(), side="floor: a notebook without code", peer="JupyterLab and its kernel alone")
    return [*(replace(row, bar=Bar("value", at_most=3)) for row in rows), floor]


def once(name: str, command: list[str], most_s: float) -> Row:
    """A command of minutes, once."""
    found = shape.alternating({name: lambda: timed(command)}, 1)
    bar = Bar("value", at_most=most_s)
    return Row("house", name, "workbench", "s", found.of(name, "wall_s"), bar=bar, failures=found.failures[name])


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("what", choices=["start", "panel", "all", "suite"])
    options = parser.parse_args()
    if options.what == "start":
        return shape.finish(start(options.trials), options.json)
    if options.what == "panel":
        return shape.finish(panel(options.trials), options.json)
    if options.what == "suite":
        return shape.finish([once("make test", ["make", "test"], 600)], options.json)
    with tempfile.TemporaryDirectory() as out:
        which = "start_here" if options.quick else "all"
        command = [sys.executable, "-m", "workbench", "run", which, "--jobs", "2", "--out", out]
        return shape.finish([once(f"workbench run {which} --jobs 2", command, 240)], options.json)


if __name__ == "__main__":
    sys.exit(main())
