"""Notebooks in batch whose outputs and end are known: what a person sees in JupyterLab is what the run keeps.

Each notebook has cells of random prints, displays and clearings, in one real kernel, and ends in its own way. A nested
parameter is given to each: its cells and its record have the value.

python -m tests.worlds.notebooks 20 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from tests.worlds.parameters import draw_value
from workbench.core.errors import WorkbenchError
from workbench.execution import runner

PREAMBLE = """
import os, sys
from IPython.display import HTML, clear_output, display
def out(text): sys.stdout.write(text); sys.stdout.flush()
def err(text): sys.stderr.write(text); sys.stderr.flush()
def show(text): display(HTML(text))
"""
TEXTS = (
    "region\n",
    "50 %\r",
    "100 %\r\n",
    "a long line\rshort\n",
    "ab\bc\n",
    "no end",
    "\n",
    "two\nlines\n",
    "\r",
    "wxyz",
)
ENDS = {
    "passes": ("pass", "succeeded", 0),
    "raises": ("raise KeyError('k')", "failed", 3),
    "exits": ("sys.exit(0)", "succeeded", 0),
    "dies": ("os._exit(3)", "failed", 3),
    "tagged": ("1 / 0", "succeeded", 0),
    "two parameters cells": ("pass", "refused", 2),
}
N_CELLS = 40
Shown = list[tuple[str, str]]


@dataclass(frozen=True)
class World:
    """A notebook's cells as lists of steps, what they show, how it ends, and the value of its parameter."""

    seed: int
    cells: list[list[tuple[str, Any]]]
    end: str
    settings: dict[str, Any]


def draw_world(seed: int) -> World:
    """Draw the cells and the end of a notebook."""
    draw = random.Random(seed)
    cells = []
    for _ in range(N_CELLS):
        steps: list[tuple[str, Any]] = []
        for _ in range(draw.randrange(1, 12)):
            kind = draw.choices(("out", "err", "show", "clear"), (8, 3, 4, 1))[0]
            if kind == "clear":
                steps.append((kind, draw.random() < 0.5))
            else:
                steps.append((kind, draw.choice(TEXTS) if kind != "show" else f"<b>{draw.randrange(100)}</b>"))
        cells.append(steps)
    return World(seed, cells, draw.choice(list(ENDS)), draw_value(draw, ("bare dict",)))


def list_shown(steps: list[tuple[str, Any]]) -> Shown:
    """What JupyterLab shows of a cell's steps: kinds and texts, in order."""
    shown: list[list[str]] = []
    clears = False
    for kind, value in steps:
        if kind == "clear":
            clears = value
            shown = shown if value else []
            continue
        if clears:
            shown, clears = [], False
        if kind != "show" and shown and shown[-1][0] == kind:
            shown[-1][1] += value
        else:
            shown.append([kind, value])
    return [(kind, text if kind == "show" else draw_screen(text)) for kind, text in shown]


def draw_screen(text: str) -> str:
    """Text after its control characters, sign by sign on a screen."""
    lines: list[list[str]] = [[]]
    column = 0
    # A backspace takes the sign before it away, as in JupyterLab; a terminal would only go back.
    while (shorter := re.sub(r"[^\n\r\x08]\x08|(?<=[\n\r])\x08|\A\x08", "", text)) != text:
        text = shorter
    for sign in text:
        if sign == "\n":
            lines.append([])
            column = 0
        elif sign == "\r":
            column = 0
        else:
            lines[-1][column : column + 1] = [sign]
            column += 1
    return "\n".join(map("".join, lines))


def write_notebook(world: World, path: Path) -> None:
    """Write the notebook of a world."""
    names = {"out": "out({!r})", "err": "err({!r})", "show": "show({!r})", "clear": "clear_output(wait={!r})"}
    sources = ["\n".join(names[kind].format(value) for kind, value in steps) for steps in world.cells]
    cells = [
        nbformat.v4.new_markdown_cell("# What is shown?"),
        nbformat.v4.new_code_cell("settings = {'eu': [1]}", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(f"assert settings == {world.settings!r}"),
        nbformat.v4.new_code_cell(PREAMBLE),
    ]
    cells += map(nbformat.v4.new_code_cell, sources)
    tags = ["raises-exception"] if world.end == "tagged" else []
    cells.append(nbformat.v4.new_code_cell(ENDS[world.end][0], metadata={"tags": tags}))
    cells.append(nbformat.v4.new_code_cell("print('after')"))
    if world.end == "two parameters cells":
        cells.insert(1, nbformat.v4.new_code_cell("a: int = 1", metadata={"tags": ["parameters"]}))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


@dataclass(frozen=True)
class Judged:
    """What is not so of a world; `n_cells` that were compared."""

    world: World
    n_cells: int
    wrong: list[str] = field(default_factory=list)


def judge_world(seed: int) -> Judged:
    """Run a notebook and hold its copy, its status and its exit code against the truth."""
    world = draw_world(seed)
    _, status, exit_code = ENDS[world.end]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shown.ipynb"
        write_notebook(world, path)
        try:
            (result,) = runner.run_notebooks([path], {"settings": world.settings}, out=Path(folder) / "out")
        except WorkbenchError as error:
            wrong = [] if status == "refused" else [f"refused: {error}"]
            return Judged(world, 0, wrong)
        copy = json.loads((result.run.folder / "report.ipynb").read_text())
    wrong = []
    if (result.run.status, result.exit_code) != (status, exit_code):
        wrong.append(f"{result.run.status}, exit code {result.exit_code}; it {world.end}")
    if result.run.record["config"] != {"settings": world.settings}:
        wrong.append(f"config {result.run.record['config']} for {world.settings}")
    if world.end == "raises" and result.run.record["failure"]["cell_number"] != N_CELLS + 5:
        wrong.append(f"failed at {result.run.record['failure']['cell_number']}")
    code = [cell for cell in copy["cells"] if cell["cell_type"] == "code"][4 : 4 + N_CELLS]
    for number, (cell, steps) in enumerate(zip(code, world.cells, strict=True)):
        told, shown = read_outputs(cell), list_shown(steps)
        if told != shown:
            wrong.append(f"cell {number}: {told} for {shown}")
    return Judged(world, N_CELLS, wrong)


def read_outputs(cell: dict[str, Any]) -> Shown:
    """Kinds and texts of a cell's outputs."""
    shown = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            kind, text = {"stdout": "out", "stderr": "err"}[output["name"]], output["text"]
        else:
            kind, text = "show", output["data"]["text/html"]
        shown.append((kind, "".join(text)))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="wrong cells to print")
    chosen = parser.parse_args()
    found = [judge_world(seed) for seed in range(chosen.first, chosen.first + chosen.n)]
    counts = Counter(one.world.end for one in found)
    wrong = [(one.world.seed, text) for one in found for text in one.wrong]
    lines = [f"{len(found)} notebooks, {sum(one.n_cells for one in found)} cells, {len(wrong)} wrong; {dict(counts)}"]
    lines += [f"WRONG {seed}: {text}" for seed, text in wrong[: chosen.show]]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
