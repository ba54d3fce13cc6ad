"""`workbench sizing verify`: is the answer right? Drives the service at the predicted load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.sizing.commands.estimate import Json

_TOGETHER = "at most, of the sweep and its verifications together; the sweep's limit by default."


def verify(
    folder: Annotated[Path, typer.Argument(metavar="SWEEP", help="Folder of a sweep with an estimate.")],
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where to drive; the sweep's target by default.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="GPUs behind it: with the predicted count the whole load is driven.", min=1, show_default=False
        ),
    ] = None,
    predicted: Annotated[
        int | None, typer.Option(help="The count to verify; the recommended one by default.", min=1)
    ] = None,
    target_confirm: Annotated[
        str | None, typer.Option(metavar="HOST", help="The URL's host once more: needed unless it is this machine.")
    ] = None,
    max_requests: Annotated[int | None, typer.Option(help=f"Requests {_TOGETHER}", min=1, show_default=False)] = None,
    max_duration: Annotated[
        float | None, typer.Option(metavar="S", help=f"Time {_TOGETHER}", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help=f"Tokens {_TOGETHER}", min=1, show_default=False)] = None,
    max_cost: Annotated[float | None, typer.Option(help=f"Cost {_TOGETHER}", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Did p95 hold at the predicted load? Drives it until that is told apart, and says held, failed or undecided.

    On the test GPUs the service gets its share of the load, which cannot show uneven routing or shared resources;
    behind --gpus as many as predicted it gets the whole.

    Exit code 0 when every target held, 1 when not, 2 for wrong use, 130 after Ctrl-C.

    Example: workbench sizing verify data/runs/sizing/RUN --url http://127.0.0.1:8000 --gpus 18
    """
    from workbench.sizing import checking
    from workbench.sizing.driving.progress import watcher
    from workbench.terminal import say

    limits = {
        "max_requests": max_requests,
        "max_duration_s": max_duration,
        "max_tokens": max_tokens,
        "max_cost": max_cost,
    }
    with watcher() as told:
        done = checking.verify(
            folder,
            url=url,
            gpus=gpus,
            predicted=predicted,
            target_confirm=target_confirm,
            limits=limits,
            watcher=told,
        )
    if as_json:
        typer.echo(checking.as_json(done.table, folder))
    else:
        say(checking.text(done.table, folder))
    raise typer.Exit(130 if done.ended == "interrupted" else 0 if done.table["verdict"].eq("held").all() else 1)
