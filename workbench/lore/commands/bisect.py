"""`workbench lore bisect`: the smallest input with which an operator still fails, or two sides still differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.lore.commands import options
from workbench.lore.commands.replay import Folder, Partition, Trust

if TYPE_CHECKING:
    from workbench.lore.bisecting import Bisected


def bisect(
    folder: Folder,
    partition: Partition = None,
    conf: options.Confs = None,
    a: Annotated[list[str] | None, typer.Option("--a", metavar="KEY=VALUE", help="Setting of side A; repeat.")] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="KEY=VALUE", help="Setting of side B; repeat.")] = None,
    engine: Annotated[str, typer.Option(help="spark; comet: side B is that engine.")] = "spark",
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Write a dump of the rows that are left, to loreId-N.")
    ] = None,
    max_steps: Annotated[int, typer.Option("--max-steps", help="Try so many parts at most.", min=1)] = 2000,
    show: Annotated[int, typer.Option("--show", help="Show so many rows of each input.", min=0, max=1000)] = 20,
    trust: Trust = False,
    master: options.Master = "local[*]",
    driver_memory: options.Memory = "4g",
    as_json: options.Json = False,
) -> None:
    """Find the smallest input with which a dumped operator fails as it did, or two sides differ.

    Partitions, batches and rows are left out by halves, and what is left must give the same error (class and message)
    or, with --a, --b or --engine, different rows on both sides. In the end no single row can be left out.

    Exit code 0 when it was found, 1 when there is nothing to find (with the reason), 2 when the dump was refused.

    Example: workbench lore bisect dumps/failed/loreId-3 --out dumps/smallest
    """
    values = {
        "partition": partition,
        "confs": options.pairs(conf, where="--conf"),
        "confs_a": options.pairs(a, where="--a"),
        "confs_b": options.pairs(b, where="--b"),
        "engine": engine,
        "out": out,
        "max_steps": max_steps,
        "show": show,
        "trust": trust,
        "master": master,
        "driver_memory": driver_memory,
    }
    found = _run(folder, values)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _print(found)
    raise typer.Exit(0 if found.reproduced else 1)


def _run(folder: str, values: dict[str, Any]) -> Bisected:
    from workbench.lore.bisecting import BisectOptions
    from workbench.lore.bisecting import bisect as run
    from workbench.progress import counter
    from workbench.terminal import say

    chosen = options.checked(BisectOptions, values)
    with counter("rows left out") as told:
        return run(folder, chosen, report=lambda line: say(line, err=True), told=told)


def _print(found: Bisected) -> None:
    """The answer first, then the rows."""
    from workbench.terminal import say

    say(f"loreId {found.lore_id}, {found.operator}\n{found.answer} ({found.steps} steps)")
    say(f"looked for: {found.looked_for}")
    for name, outcome in found.sides.items():
        say(f"  {name}: {outcome}")
    for note in found.notes:
        say(f"note: {note}")
    for one in found.inputs:
        say(f"input-{one['index']} ({one['kind']}): {one['n_rows']} of {one['n_rows_dumped']} rows")
        for row in one["rows"]:
            say(f"  partition {row['partition']}, row {row['row']}: {row['values']}")
        if one["rows"] and len(one["rows"]) < one["n_rows"]:
            say(f"  … and {one['n_rows'] - len(one['rows'])} more")
    for side, rows in (("A", found.only_a), ("B", found.only_b)):
        for row in rows:
            say(f"  only in {side}: {row[:400]}")
    if found.out:
        word = {True: "verified", False: "which does NOT verify", None: "not verified"}[found.verified]
        say(f"\nsmaller dump, {word}: {found.out.removeprefix('file:')}")
