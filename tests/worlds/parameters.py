"""Nested parameters of people's notebooks, given as papermill takes them, whose values are known.

A cell declares parameters by annotation or by a default alone. One of them is given by a file, an inline YAML text or
as JSON behind -p: either a value of its kind, or one that is wrong in a known way. Right values must arrive unchanged
in the record, in papermill's cell and from the command that repeats the run; wrong ones are refused by their name.

python -m tests.worlds.parameters 300 --first 0 --show 10
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import shlex
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from papermill.translators import PythonTranslator

from workbench.cli.run_output import parse_assignments
from workbench.core.errors import WorkbenchError
from workbench.execution import discovery, parameters

TEXTS = (
    "a",
    "",
    "3.10",
    "007",
    "null",
    "true",
    "a, b",
    'say "x"',
    "it's",
    "C:\\new",
    "ü: #1",
    "{x}",
    "[1]",
    "two\nlines",
)
KEYS = ("eu", "north west", "3.10", "max_tokens", 'a"b', "ü", "x.y")
SCALARS = ("str", "int", "float", "bool")
SECRET = "c4nary77"
WAYS = ("file", "inline", "text")
ERRORS = ("another type", "not finite", "key that is no text", "date", "too deep", "key given twice", "secret", "user")
Kind = tuple[Any, ...]


@dataclass(frozen=True)
class World:
    """A parameters cell, the parameter that is given, the text that gives it, and what must come of it."""

    seed: int
    source: str
    name: str
    way: str
    text: str
    value: Any
    error: str | None


def draw_kind(draw: random.Random, depth: int) -> Kind:
    if depth == 0 or draw.random() < 0.2:
        return (draw.choice(SCALARS),)
    form = draw.choice(("list", "dict", "list", "dict", "bare list", "bare dict"))
    return (form,) if form.startswith("bare") else (form, draw_kind(draw, depth - 1))


def spell_kind(kind: Kind) -> str:
    inner = f"[{'str, ' if kind[0] == 'dict' else ''}{spell_kind(kind[1])}]" if len(kind) > 1 else ""
    return kind[0].removeprefix("bare ") + inner


def draw_value(draw: random.Random, kind: Kind, depth: int = 2) -> Any:
    form, size = kind[0], draw.randrange(4)
    if form in ("list", "dict"):
        items = [draw_value(draw, kind[1], depth) for _ in range(size)]
        return items if form == "list" else dict(zip(draw.sample(KEYS, size), items, strict=True))
    if form.startswith("bare"):
        inner = [draw_value(draw, draw_kind(draw, depth), depth - 1) if depth else None for _ in range(size)]
        return inner if form == "bare list" else dict(zip(draw.sample(KEYS, size), inner, strict=True))
    scalars = {"int": draw.randrange(-9, 10**9), "float": draw.randrange(-99, 99) / 8, "bool": draw.random() < 0.5}
    return scalars[form] if form in scalars else draw.choice(TEXTS)


def infer_kind(value: Any) -> Kind:
    """The kind that a default alone shows: scalars of one type stay so, all else is JSON."""
    if isinstance(value, dict):
        return ("bare dict",)
    if not isinstance(value, list):
        return (type(value).__name__,)
    names = {type(item).__name__ for item in value}
    return ("list", (names.pop(),)) if len(names) == 1 and names <= set(SCALARS) else ("bare list",)


def draw_world(seed: int) -> World:
    """Draw a cell of parameters, and a value for one of them."""
    draw = random.Random(seed)
    kinds, lines = {}, []
    for number in range(draw.randrange(1, 5)):
        kind = draw_kind(draw, 3)
        default = draw_value(draw, kind)
        is_declared = draw.random() < 0.6
        kinds[f"p{number}"] = kind if is_declared else infer_kind(default)
        lines.append(f"p{number}{f': {spell_kind(kind)}' if is_declared else ''} = {default!r}")
    name = draw.choice(list(kinds))
    kind, way = kinds[name], draw.choice(WAYS)
    value = draw_value(draw, kind)
    errors = [error for error in ERRORS if _fits(error, kind, way)]
    error = draw.choice(errors) if errors and draw.random() < 0.5 else None
    given, extra = _break_value(draw, value, kind, error) if error else (value, "")
    if way == "text":
        text = json.dumps(given, ensure_ascii=False)
    else:
        text = yaml.safe_dump({name: given}, allow_unicode=True, sort_keys=False)
    if way == "text" and kind in [(scalar,) for scalar in SCALARS]:
        text = str(given).lower() if isinstance(given, bool) else str(given)
    return World(seed, "\n".join(lines), name, way, extra or text, value, error)


def _fits(error: str, kind: Kind, way: str) -> bool:
    is_open, is_text = kind[0].startswith("bare"), way == "text"
    return {
        # Behind -p each item of a list of texts is a text: 3.10 stays as it is.
        "another type": (len(kind) > 1 or is_open) and not (is_text and kind == ("list", ("str",))),
        "not finite": is_open,
        "key that is no text": not is_text and kind == ("bare dict",),
        "date": not is_text and is_open,
        "too deep": is_open,
        "key given twice": is_text and kind == ("bare dict",),
        "secret": is_open,
        "user": is_open,
    }[error]


def _break_value(draw: random.Random, value: Any, kind: Kind, error: str) -> tuple[Any, str]:
    """The value made wrong, or the whole text that gives a wrong one."""
    if error == "key given twice":
        return value, '{"eu": {"a": 1, "a": 2}}'
    if error == "another type":
        inner = {"str": 7, "int": "x", "float": "x", "bool": "x"}.get(kind[1][0], "x") if len(kind) > 1 else None
        if inner is None or draw.random() < 0.3:
            return ({"eu": 1} if kind[0].endswith("list") else [1]), ""
        return ([inner] if kind[0] == "list" else {"eu": inner}), ""
    bad: Any = {
        "not finite": float(draw.choice(("nan", "inf"))),
        "key that is no text": {draw.choice((1, 2.5, True)): 1},
        "date": dt.date(2026, 2, 3),
        "secret": {draw.choice(("api_key", "hub_token", "fs.s3a.secret.key")): SECRET},
        "user": f"https://me:{SECRET}@host/x",
        "too deep": [],
    }[error]
    for _ in range(60 if error == "too deep" else draw.randrange(3)):
        bad = [bad] if draw.random() < 0.5 else {"eu": bad}
    return ([bad] if kind[0] == "bare list" else {"north west": bad}), ""


def judge_world(seed: int) -> list[str]:
    """What is not so of a world."""
    world = draw_world(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.ipynb"
        cell = nbformat.v4.new_code_cell(world.source, metadata={"tags": ["parameters"]})
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
        try:
            plan = plan_world(world, path)
        except WorkbenchError as error:
            return _judge_refusal(world, str(error), error.exit_code)
        if world.error:
            return [f"{world.error} was taken: {world.text!r}"]
        return _judge_plan(world, plan, path)


def plan_world(world: World, path: Path) -> discovery.RunPlan:
    """Plan a run with the world's value, given in its way."""
    texts, values = {}, {}
    if world.way == "text":
        texts = parse_assignments([f"{world.name}={world.text}"])
    elif world.way == "inline":
        values = parameters.read_values_text(world.text)
    else:
        file = path.with_name("given.yaml")
        file.write_text(world.text, encoding="utf-8")
        values = parameters.read_values_file(file)
    return discovery.plan_runs([path], values, texts=texts)[0]


def _judge_refusal(world: World, said: str, exit_code: int) -> list[str]:
    if world.error is None:
        return [f"refused: {said} for {world.text!r} of {world.source!r}"]
    wrong = [] if exit_code == 2 else [f"exit code {exit_code}"]
    # Dates, twins and depth of YAML are refused by their line.
    named = world.name in said or "line " in said or "-y" in said or ".yaml" in said
    wrong += [] if named else [f"not named: {said}"]
    return wrong + (["the secret is repeated"] if SECRET in said else [])


def _judge_plan(world: World, plan: discovery.RunPlan, path: Path) -> list[str]:
    told = {"config": plan.resolved.config[world.name], "given": plan.resolved.given[world.name]}
    cell: dict[str, Any] = {}
    exec(PythonTranslator.codify(plan.resolved.given), cell)
    told["papermill's cell"] = cell[world.name]
    _, _, notebook, *options = shlex.split(plan.command)
    texts = parse_assignments([text for text in options if text != "-p"])
    told["command"] = discovery.plan_runs([notebook], texts=texts)[0].resolved.given[world.name]
    told["record"] = json.loads(json.dumps(told["config"]))
    return [f"{place}: {value!r} for {world.value!r}" for place, value in told.items() if not _same(value, world.value)]


def _same(value: Any, truth: Any) -> bool:
    return repr(value) == repr(truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="wrong ones to print")
    chosen = parser.parse_args()
    seeds = range(chosen.first, chosen.first + chosen.n)
    counts = Counter(draw_world(seed).error or "right" for seed in seeds)
    wrong = {seed: texts for seed in seeds if (texts := judge_world(seed))}
    lines = [f"{len(seeds)} parameters, {len(wrong)} wrong; {dict(counts)}"]
    lines += [f"WRONG {seed}: {text}" for seed, texts in list(wrong.items())[: chosen.show] for text in texts]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
