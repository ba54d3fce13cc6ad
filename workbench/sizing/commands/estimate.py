"""`workbench sizing estimate`: from the points of a sweep to GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folders = Annotated[list[Path], typer.Argument(metavar="SWEEP…", help="Folder of a sweep; one for each GPU count.")]
Users = Annotated[
    float | None, typer.Option("--target-users", "--target_users", help="Users to serve.", min=0, metavar="N")
]
Rate = Annotated[float | None, typer.Option("--target-rate", help="Requests a second to serve (open loops).", min=0)]
Goals = Annotated[
    list[str] | None,
    typer.Option("--goal", metavar="GOAL", help="p95<=2 (s), 'ttft p99<=300ms'; the sweep's own by default. Repeat."),
]
Price = Annotated[float | None, typer.Option("--gpu-price", help="Price of a GPU for an hour.", min=0)]
Draws = Annotated[int, typer.Option(help="Resamples of the intervals.", min=100, max=100_000)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]


def estimate(
    folders: Folders,
    target_users: Users = None,
    target_rate: Rate = None,
    goal: Goals = None,
    gpu_price: Price = None,
    draws: Draws = 500,
    seed: Annotated[int, typer.Option(help="Start of the random numbers.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """How many GPUs do so many users need? Reads what `run` or `import` measured; measures nothing.

    Several sweeps on different GPU counts show how the service scales: two or three by Amdahl's law, four or more by
    the universal scalability law. With one, linear scaling is assumed, and the answer says so.

    Exit code 0 with a number for every goal, 1 without (the reason and the levels to add are told), 2 for wrong use.

    Example: workbench sizing estimate data/runs/sizing/RUN --target-users 150
    """
    from workbench.sizing import keeping
    from workbench.terminal import say

    found = keeping.estimate(folders, keeping.load_of(target_users, target_rate), goal, gpu_price, draws, seed)
    if as_json:
        typer.echo(keeping.as_json(found, folders[0]))
    else:
        say(keeping.text(found, folders[0]))
    raise typer.Exit(1 if found.reasons else 0)
