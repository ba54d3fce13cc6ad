"""`workbench indicators run`: indicators on stacks, in rounds of random order, beside a control."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.indicators.running.starting import Outcome


def run(
    indicator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:P=V,…]",
            help="What to measure: a shipped indicator, module:Class or file.py:Class (which runs it). Repeatable.",
        ),
    ] = None,
    stacks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Stacks that `workbench indicators stacks` made.")
    ] = None,
    stack: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUIREMENTS", help="A stack solved on the spot, such as numpy==2.2.6. Repeatable."),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="An environment that is there: its Python or folder. Repeatable."),
    ] = None,
    specification: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="An Amun specification: script, lock, environment, files.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Leave out a field of it, such as base. Repeatable.")
    ] = None,
    fetch_script: Annotated[
        bool, typer.Option("--fetch-script", help="Load a specification's script from its URL, and run it.")
    ] = False,
    baseline: Annotated[
        str | None, typer.Option(metavar="STACK", help="The stack to compare with.", show_default="the first")
    ] = None,
    rounds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,…",
            help="Rounds after which it may stop when all is decided; the last ends it.",
            show_default="10,20,30",
        ),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="False claims that are accepted, split over the looks.", show_default="0.05")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads that libraries may use.", show_default="1")] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Time limit of a run, in seconds.", show_default="60")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory limit of a run.", show_default="8GiB, or 3/4 of the machine's"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Processes and threads of a run at most.", show_default="512")
    ] = None,
    network: Annotated[bool, typer.Option("--network", help="Let runs reach the network.")] = False,
    seed: Annotated[int | None, typer.Option(help="Start of the random order.", show_default="chosen and told")] = None,
    max_download: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Refuse stacks whose download is larger.", show_default="2GB")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Install from uv's cache alone.")] = False,
    backend: Annotated[
        str,
        typer.Option(help="Where runs are made: process (here), kubernetes (a pod a round), or manifests (printed)."),
    ] = "process",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What the cluster is asked for, such as image=…, gpus=1, node-selector=a=b. Repeatable.",
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.", show_default="the current")] = None,
    confirm_context: Annotated[
        str | None,
        typer.Option(metavar="CONTEXT", help="The context once more: needed unless its server is this machine."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder below which the session gets its own.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the session in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Measure indicators on stacks; say which is faster than the baseline, slower, the same, or undecided.

    Everything is installed first. Then, in each round, every stack runs every indicator once, in random order, each
    time in a fresh process: pinned to a core, without a network, within limits of time and memory. The baseline runs
    twice, the second time as the control: when these two differ, nothing is to be believed. Scripts are not held
    against malice: run what you would run anyway.

    Each run is on disk before the next begins. Ctrl-C lets the current run end; --resume goes on, also after a kill.

    Exit code 0 when the session is valid, 1 when it is not (the reasons are told), 130 after Ctrl-C.

    Example: workbench indicators run --stack numpy==1.26.4 --stack numpy==2.2.6 --indicator sort --indicator matmul
    """
    from workbench.errors import ConfigError
    from workbench.indicators.stacks.request import size_bytes

    allowed = ("process", "kubernetes", "manifests")
    if backend not in allowed:
        raise ConfigError("no such backend", where="--backend", found=backend[:40], allowed=allowed)
    place = Place(backend, tuple(cluster or ()), context, confirm_context)
    if backend == "process" and place != Place():
        raise ConfigError("for a cluster only", where="--cluster, --context", do="add --backend kubernetes")
    given: dict[str, Any] = {
        "indicators": tuple(indicator or ()) or None,
        "stacks": None if stacks is None else str(stacks),
        "stack": tuple(stack or ()) or None,
        "python": tuple(python or ()) or None,
        "specification": None if specification is None else str(specification),
        "ignore": tuple(ignore or ()) or None,
        "baseline": baseline,
        "rounds": None if rounds is None else _rounds(rounds),
        "alpha": alpha,
        "threads": threads,
        "timeout_s": timeout,
        "memory_bytes": None if memory is None else size_bytes(memory, "--memory"),
        "processes": processes,
        "network": network or None,
        "seed": seed,
        "max_download_bytes": None if max_download is None else size_bytes(max_download),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if resume is not None and (given or out):
        raise ConfigError(
            "a session goes on as it was begun", where="--resume", found=[*given, *(["out"] if out else [])]
        )
    if specification is None and (ignore or fetch_script):
        raise ConfigError("--ignore and --fetch-script are for --specification", where="--specification")
    _refuse_at_odds(place, resume)
    if backend == "manifests":
        _plan(given, out, place, as_json)
        return
    _measure(given, out, resume, fetch_script, offline, as_json, place)


@dataclass(frozen=True)
class Place:
    """Where runs are made, and what a cluster is asked for."""

    backend: str = "process"
    cluster: tuple[str, ...] = ()
    context: str | None = None
    confirm_context: str | None = None


def _refuse_at_odds(place: Place, resume: Path | None) -> None:
    from workbench.errors import ConfigError

    unfit = {"--resume": resume, "--context": place.context, "--confirm-context": place.confirm_context}
    if place.backend == "manifests" and (found := [name for name, value in unfit.items() if value is not None]):
        raise ConfigError(
            "manifests are written for people to apply: no cluster is asked, and nothing is gone on with",
            where="--backend manifests",
            found=found,
            do="leave these away; or --backend kubernetes",
        )
    if resume is not None and place.cluster:
        raise ConfigError(
            "a session goes on as it was begun", where="--resume", found=["--cluster"], do="leave --cluster away"
        )


def _plan(given: dict[str, Any], out: Path | None, place: Place, as_json: bool) -> None:
    import json

    from workbench.indicators.config import session_config
    from workbench.indicators.kubernetes import starting
    from workbench.indicators.kubernetes.options import options_of
    from workbench.terminal import say

    folder = starting.plan(session_config(**given), options_of(place.cluster), out=out, command=_command())
    commands = starting.instructions(folder)
    say(json.dumps({"folder": str(folder), "commands": commands.splitlines()}, indent=1) if as_json else commands)


def _on_cluster(given: dict[str, Any], out: Path | None, resume: Path | None, place: Place, told: Any) -> Outcome:
    from workbench.indicators.config import session_config
    from workbench.indicators.kubernetes import starting
    from workbench.indicators.kubernetes.cluster import connect
    from workbench.indicators.kubernetes.options import options_of
    from workbench.indicators.kubernetes.planning import read_options

    options = options_of(place.cluster) if resume is None else read_options(resume)
    cluster = connect(place.context, place.confirm_context, options.namespace)
    if resume is not None:
        return starting.resume(resume, cluster, watcher=told)
    return starting.start(session_config(**given), options, cluster, out=out, watcher=told, command=_command())


def _command() -> str:
    import shlex
    import sys

    return "workbench " + shlex.join(sys.argv[1:])


def _measure(
    given: dict[str, Any],
    out: Path | None,
    resume: Path | None,
    fetch_script: bool,
    offline: bool,
    as_json: bool,
    place: Place,
) -> None:
    import json

    from workbench.indicators.config import session_config
    from workbench.indicators.running import starting, telling
    from workbench.indicators.running.progress import watcher
    from workbench.terminal import say

    with watcher() as told:
        outcome: Outcome
        if place.backend == "kubernetes":
            outcome = _on_cluster(given, out, resume, place, told)
        elif resume is not None:
            outcome = starting.resume(resume, watcher=told, offline=offline)
        else:
            outcome = starting.start(
                session_config(**given),
                out=out,
                watcher=told,
                fetch_script=fetch_script,
                offline=offline,
                command=_command(),
            )
    say(json.dumps(telling.document(outcome), indent=1) if as_json else telling.text(outcome))
    raise typer.Exit(130 if outcome.interrupted else 0 if outcome.compared.valid else 1)


def _rounds(text: str) -> tuple[int, ...]:
    from workbench.errors import ConfigError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError("not numbers of rounds", where="--rounds", found=text[:60], allowed="like 10,20,30") from None
