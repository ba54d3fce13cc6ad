"""`workbench lore replay` and `workbench lore verify`: an operator alone, in this fresh process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.lore.commands import options

if TYPE_CHECKING:
    from workbench.lore.replaying import Replayed

Folder = Annotated[str, typer.Argument(metavar="DIR", help="A folder loreId-N, a bundle FILE.zip, or a URL.")]
Partition = Annotated[int | None, typer.Option("--partition", help="Only this partition.", min=0)]
Trust = Annotated[bool, typer.Option("--trust", help="Load a dump that you did not sign; says first what is in it.")]
Tolerance = Annotated[
    float | None, typer.Option("--tolerance", help="Relative difference up to which floats are equal.", min=0, max=1)
]


def replay(
    folder: Folder,
    partition: Partition = None,
    repeat: Annotated[int, typer.Option("--repeat", help="Timed runs, after the verified one.", min=0)] = 5,
    conf: options.Confs = None,
    a: Annotated[list[str] | None, typer.Option("--a", metavar="KEY=VALUE", help="Setting of side A; repeat.")] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="KEY=VALUE", help="Setting of side B; repeat.")] = None,
    engine: Annotated[str, typer.Option(help="spark; comet: side B is that engine.")] = "spark",
    profile: Annotated[str | None, typer.Option(help="jfr: record the timed runs with Java Flight Recorder.")] = None,
    profile_to: Annotated[Path | None, typer.Option(help="Where the recording goes; lore.jfr by default.")] = None,
    tolerance: Tolerance = None,
    trust: Trust = False,
    master: options.Master = "local[*]",
    driver_memory: options.Memory = "4g",
    as_json: options.Json = False,
) -> None:
    """Run a dumped operator alone: verified first, then timed, the time to read its inputs taken off.

    With --a and --b two sets of settings are compared, with --engine comet plain Spark and Comet: outputs are held
    against each other, runs alternate, and the ratio comes with its interval.

    Exit code 0 when the output is the expected one, 1 when not (or when the engine left the operator to Spark), 2
    when the dump was refused.

    Example: workbench lore replay dumps/q/loreId-9 --repeat 5
    """
    values = {
        "partition": partition,
        "repeat": repeat,
        "confs": options.pairs(conf, where="--conf"),
        "confs_a": options.pairs(a, where="--a"),
        "confs_b": options.pairs(b, where="--b"),
        "engine": engine,
        "profile": profile,
        "profile_to": profile_to,
        "tolerance": tolerance,
        "trust": trust,
        "master": master,
        "driver_memory": driver_memory,
    }
    _run(folder, values, as_json)


def verify(
    folder: Folder,
    partition: Partition = None,
    conf: options.Confs = None,
    tolerance: Tolerance = None,
    trust: Trust = False,
    master: options.Master = "local[*]",
    driver_memory: options.Memory = "4g",
    as_json: options.Json = False,
) -> None:
    """Does a dumped operator give, alone, what it gave? PASS (0), FAIL (1) with the rows that differ, refused (2).

    Example: workbench lore verify dumps/q/loreId-9
    """
    values = {
        "partition": partition,
        "repeat": 0,
        "confs": options.pairs(conf, where="--conf"),
        "tolerance": tolerance,
        "trust": trust,
        "master": master,
        "driver_memory": driver_memory,
    }
    _run(folder, values, as_json)


def _run(folder: str, values: dict[str, Any], as_json: bool) -> None:
    from workbench.lore.replaying import Options
    from workbench.lore.replaying import replay as run
    from workbench.progress import counter
    from workbench.terminal import say

    chosen = options.checked(Options, values)
    with counter("replay") as told:
        found = run(folder, chosen, report=lambda line: say(line, err=True), told=told)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        _print(found)
    raise typer.Exit(0 if found.passed else 1)


def _print(found: Replayed) -> None:
    """The answer first, then what it rests on."""
    from workbench.display import table
    from workbench.lore import tables
    from workbench.terminal import say

    say(f"loreId {found.lore_id}, {found.operator}\n{found.answer}")
    for note in found.notes:
        say(f"note: {note}")
    for title, rows in (("missing", found.verification["missing"]), ("not expected", found.verification["extra"])):
        for row in rows:
            say(f"  {title}: {row[:400]}")
    if found.not_accelerated:
        say(f"not accelerated: {found.not_accelerated}")
    if found.comparison is not None:
        same = "gave the same rows" if found.comparison["equal"] else "gave different rows"
        say(f"A and B {same}: {found.comparison['n_a']} and {found.comparison['n_b']}")
        for side, rows in (("A", found.comparison["only_a"]), ("B", found.comparison["only_b"])):
            for row in rows:
                say(f"  only in {side}: {row[:400]}")
    if found.sides:
        say(table(tables.SIDES.frame(found.sides), tables.SIDES, caption="Time of the operator").text)
    if found.ratio and found.ratio["estimate"] is not None:
        ends = (
            f"[{found.ratio['low']:.2f}, {found.ratio['high']:.2f}]"
            if found.ratio["low"] is not None
            else "no interval"
        )
        say(f"A's time by B's: {found.ratio['estimate']:.2f} {ends}, {found.verdict}")
    if found.comparison is not None or found.not_accelerated:
        for side, plan in found.plans.items():
            say(f"\nplan of {side}:\n{plan.rstrip()}")
    if found.metrics:
        shown = tables.METRICS.frame(found.metrics)
        say(table(shown, tables.METRICS, caption="Spark's metrics of the last run", limit=30).text)
    if found.profile:
        say(f"profile: {found.profile}")
