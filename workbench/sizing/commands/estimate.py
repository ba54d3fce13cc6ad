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
Sessions = Annotated[
    float | None, typer.Option("--target-sessions", help="Sessions a second to serve (traces with sessions).", min=0)
]
Goals = Annotated[
    list[str] | None,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="p95<=2 (seconds) or 'ttft p99<=300ms'; by default the sweep's goals. Repeatable.",
    ),
]
Price = Annotated[float | None, typer.Option("--gpu-price", help="Price of a GPU per hour.", min=0)]
Currency = Annotated[str, typer.Option(metavar="NAME", help="Currency of the prices, shown with costs.")]
Draws = Annotated[int, typer.Option(help="Bootstrap resamples for the intervals.", min=100, max=100_000)]
_TOGETHER = "at most, of the sweep and its verifications together; by default the sweep's limit."


def estimate(
    folders: Folders,
    target_users: Users = None,
    target_rate: Rate = None,
    target_sessions: Sessions = None,
    goal: Goals = None,
    gpu_price: Price = None,
    currency: Currency = "",
    draws: Draws = 500,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how many GPUs a load needs, from sweeps that `run` or `import` wrote.

    Several sweeps on different GPU counts show how the service scales: two or three by Amdahl's law, four or more by
    the universal scalability law, or by the hits in prefix caches where these fall with the GPUs. With one count,
    linear scaling is assumed.

    Exit code 0 with a number for every goal, 1 without (the reason and the levels to add are printed), 2 for wrong use.

    Example: workbench sizing estimate sample:gpu/sizing --target-users 150
    """
    from workbench.core.samples import copy_sample
    from workbench.sizing.estimation import sweep_store

    folders = [copy_sample(folders[0]), *folders[1:]]
    answer = sweep_store.estimate_sweeps(
        folders,
        sweep_store.choose_target_load(target_users, target_rate, target_sessions),
        goal,
        gpu_price,
        draws,
        seed,
        currency,
    )
    finish_command(
        lambda: sweep_store.format_sizing_answer(answer, folders[0]),
        lambda: sweep_store.sizing_answer_json(answer, folders[0]),
        as_json=as_json,
        is_valid=not answer.reasons,
    )


def verify(
    folder: Annotated[Path, typer.Argument(metavar="SWEEP", help="Sweep folder with an estimate.")],
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Service to drive; by default that of the sweep.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            help="GPUs that serve it; with the predicted count, the whole load is driven.", min=1, show_default=False
        ),
    ] = None,
    predicted: Annotated[
        int | None, typer.Option(help="GPU count to verify; by default the recommended one.", min=1)
    ] = None,
    target_confirm: Annotated[
        str | None, typer.Option(metavar="HOST", help="Host of the URL again; required unless it is this machine.")
    ] = None,
    max_requests: Annotated[int | None, typer.Option(help=f"Requests {_TOGETHER}", min=1, show_default=False)] = None,
    max_duration: Annotated[
        float | None, typer.Option(metavar="S", help=f"Time {_TOGETHER}", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help=f"Tokens {_TOGETHER}", min=1, show_default=False)] = None,
    max_cost: Annotated[float | None, typer.Option(help=f"Cost {_TOGETHER}", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Drive the service at the predicted load: held, failed or undecided for each goal.

    The test GPUs get their share of the load, which cannot show uneven routing or shared resources. Where --gpus is the
    predicted count, they get the whole load.

    Exit code 0 when every target held, 1 when not, 2 for wrong use, 130 after Ctrl-C.

    Example: workbench sizing verify sample:gpu/sizing --url http://127.0.0.1:8000 --gpus 18
    """
    from workbench.core.samples import copy_sample
    from workbench.sizing.estimation import verification
    from workbench.sizing.load.sweep_report import terminal_watcher

    limits = {"max_requests": max_requests, "max_duration_s": max_duration}
    limits |= {"max_tokens": max_tokens, "max_cost": max_cost}
    with terminal_watcher() as watcher:
        outcome = verification.run_verification(
            copy_sample(folder),
            url=url,
            gpus=gpus,
            predicted=predicted,
            target_confirm=target_confirm,
            limits=limits,
            watcher=watcher,
        )
    finish_command(
        lambda: verification.format_verification(outcome.table, folder),
        lambda: verification.verification_json(outcome.table, folder),
        as_json=as_json,
        is_valid=bool(outcome.table["verdict"].eq("held").all()),
        is_cancelled=outcome.ended == "interrupted",
    )
