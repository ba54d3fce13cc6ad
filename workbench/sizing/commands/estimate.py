"""`workbench sizing estimate`: estimates GPUs from stored sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command

Folders = Annotated[list[Path], typer.Argument(metavar="SWEEP…", help="Sweep folders, one for each GPU count.")]
Users = Annotated[
    float | None, typer.Option("--target-users", "--target_users", help="Users to serve.", min=0, metavar="N")
]
Rate = Annotated[float | None, typer.Option("--target-rate", help="Requests a second to serve (open loops).", min=0)]
Goals = Annotated[
    list[str] | None,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="p95<=2 (seconds) or 'ttft p99<=300ms'; by default the sweep's goals. Repeatable.",
    ),
]
Price = Annotated[float | None, typer.Option("--gpu-price", help="Price of a GPU per hour.", min=0)]
Draws = Annotated[int, typer.Option(help="Bootstrap resamples for the intervals.", min=100, max=100_000)]


def estimate(
    folders: Folders,
    target_users: Users = None,
    target_rate: Rate = None,
    goal: Goals = None,
    gpu_price: Price = None,
    draws: Draws = 500,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how many GPUs a load needs, from sweeps that `run` or `import` wrote.

    Several sweeps on different GPU counts show how the service scales: two or three by Amdahl's law, four or more by
    the universal scalability law. With one count, linear scaling is assumed.

    Exit code 0 with a number for every goal, 1 without (the reason and the levels to add are printed), 2 for wrong use.

    Example: workbench sizing estimate data/runs/sizing/RUN --target-users 150
    """
    from workbench.sizing.estimation import sweep_store

    answer = sweep_store.estimate_sweeps(
        folders, sweep_store.choose_target_load(target_users, target_rate), goal, gpu_price, draws, seed
    )
    finish_command(
        lambda: sweep_store.format_sizing_answer(answer, folders[0]),
        lambda: sweep_store.sizing_answer_json(answer, folders[0]),
        as_json=as_json,
        is_valid=not answer.reasons,
    )
