"""`workbench scaletest run`: one test of a cluster, from the checks before to the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def run(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO", help="YAML; `workbench scaletest plan --example` prints one.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="A local cluster that `cluster up` made, such as local.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="CONTEXT", help="Context of the kubeconfig: the measuring identity's.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The kubeconfig.", show_default="$KUBECONFIG or ~/.kube/config")
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="FINGERPRINT", help="The cluster's fingerprint: needed once for any but a local one."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help="default, kai or any schedulerName; several are held against each other.",
            show_default="all of the scenario's",
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Runs of each of several schedulers, in turn.", min=1, max=100, show_default="5"
        ),
    ] = None,
    submit_with: Annotated[str, typer.Option(help="api (POST), kubectl, or command (with --submit-command).")] = "api",
    submit_command: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Such as 'runai submit {name} -g {gpus}'; also {namespace} and {file}."),
    ] = None,
    kubectl: Annotated[Path | None, typer.Option(metavar="FILE", help="The kubectl.", show_default="on PATH")] = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Closed loop: bursts of --processes, all awaited, then --delay.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(metavar="P", help="Size of a burst; programs at once.", show_default="8")
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="S", help="Pause after a burst, in seconds.", show_default="0")
    ] = None,
    settle: Annotated[
        float | None,
        typer.Option(metavar="S", help="Pods are waited for until nothing changed for so long.", show_default="30"),
    ] = None,
    no_cleanup: Annotated[bool, typer.Option("--no-cleanup", help="Leave the run's objects in the cluster.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder below which the run gets its own.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the run in this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Test a cluster: send a scenario's workloads when they are due, watch what becomes of them, say where time goes.

    First the cluster is confirmed and looked at: nothing is sent where a check refuses. The sampler watches before the
    first request goes out. What was made is deleted at the end, unless the run was interrupted or aborted.

    Ctrl-C stops submission and lets what is under way end; again, it ends at once. What was measured is kept, and
    --resume goes on, also after a kill: each workload is made exactly once. In the cleanup it ends the cleanup only.

    With several schedulers (all that the scenario names, without --scheduler) the same plan is run on each, --repeat
    times in turn (A B B A …), the cluster emptied in between; `workbench scaletest compare` then reads the folder. How
    many runs that makes is said first, and all sides are checked before the first one.

    Exit code 0 when the run is valid, 1 when it is not (the reasons are told), 2 when it was not begun, 130 after
    Ctrl-C.

    Example: workbench scaletest run scenario.yaml --cluster local
    """
    from workbench.errors import ConfigError
    from workbench.scaletest.driving.by_command import words_of

    given: dict[str, Any] = {
        "submit_with": submit_with,
        "submit_command": None if submit_command is None else words_of(submit_command, "--submit-command"),
        "kubectl": None if kubectl is None else str(kubectl),
        "closed": closed or None,
        "processes": processes,
        "delay_s": delay,
        "settle_s": settle,
        "cleanup": False if no_cleanup else None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if resume is None and scenario is None:
        raise ConfigError("which scenario?", where="SCENARIO", do="workbench scaletest plan --example > scenario.yaml")
    where = {"cluster": cluster, "kubeconfig": kubeconfig, "context": context}
    if resume is None:
        names = _schedulers(scheduler, scenario)
        if len(names) == 1 and repeat is not None:
            raise ConfigError(
                "runs of one scheduler are not compared", where="--repeat", do="name two: --scheduler A,B"
            )
        if len(names) > 1:
            _interleave(scenario, where, confirm, names, repeat, given, out, no_cleanup, as_json)
        _run(scenario, where, confirm, names[0], given, out, as_json)
        return
    at_odds: dict[str, Any] = {"SCENARIO": scenario, "--scheduler": scheduler, "--repeat": repeat, "--out": out}
    at_odds |= {"--submit-command": submit_command, "--kubectl": kubectl, "--closed": closed or None}
    at_odds |= {"--processes": processes, "--delay": delay, "--settle": settle}
    if found := [name for name, value in at_odds.items() if value is not None]:
        raise ConfigError("a run goes on as it was begun", where="--resume", found=found, do="leave these away")
    _resume(resume, where, confirm, no_cleanup, as_json)


def _run(
    scenario: Path | None,
    where: dict[str, Any],
    confirm: str | None,
    scheduler: str | None,
    given: dict[str, Any],
    out: Path | None,
    as_json: bool,
) -> None:
    from workbench.scaletest import running
    from workbench.scaletest.running.progress import watcher

    assert scenario is not None
    chosen, place = running.options(**given), running.place(**where)
    with watcher() as told:
        result = running.run(
            scenario,
            place,
            scheduler=scheduler,
            confirmed=confirm,
            options=chosen,
            out=out,
            watcher=told,
            command=_command(),
        )
    _tell(result, as_json)


def _interleave(
    scenario: Path | None,
    where: dict[str, Any],
    confirm: str | None,
    names: tuple[str, ...],
    repeat: int | None,
    given: dict[str, Any],
    out: Path | None,
    no_cleanup: bool,
    as_json: bool,
) -> None:
    from workbench.errors import ConfigError
    from workbench.scaletest import running
    from workbench.scaletest.running import ab
    from workbench.scaletest.running.progress import watcher

    assert scenario is not None
    if no_cleanup:
        raise ConfigError("each turn begins on an emptied cluster", where="--no-cleanup", do="leave it away")
    chosen, place = running.options(**given), running.place(**where)
    times = ab.REPEAT if repeat is None else repeat
    with watcher() as told:
        found = ab.interleaved(
            scenario,
            place,
            names,
            repeat=times,
            confirmed=confirm,
            options=chosen,
            out=out,
            watcher=told,
            command=_command(),
        )
    _tell_turns(found, as_json)


def _resume(folder: Path, where: dict[str, Any], confirm: str | None, no_cleanup: bool, as_json: bool) -> None:
    from workbench.scaletest import running, sides
    from workbench.scaletest.running import ab
    from workbench.scaletest.running.progress import watcher

    place = running.place(**where) if any(value is not None for value in where.values()) else None
    with watcher() as told:
        if (folder / sides.FILE).is_file():
            _tell_turns(ab.go_on(folder, place, confirmed=confirm, watcher=told, command=_command()), as_json)
        result = running.resume(folder, place, confirmed=confirm, cleanup=False if no_cleanup else None, watcher=told)
    _tell(result, as_json)


def _tell_turns(found: Any, as_json: bool) -> None:
    import json

    from workbench.terminal import say

    if as_json:
        turns = [one.document() for one in found.results]
        invalid = [one.folder.name for one in found.invalid]
        say(json.dumps({"folder": str(found.folder), "left": found.left, "invalid": invalid, "runs": turns}, indent=1))
    else:
        for one in found.results:
            say(f"{one.scheduler:<20}{one.verdict:<9}{one.answer}")
            for reason in one.reasons:
                say(f"  because {reason}")
        own = {one.folder for one in found.results}
        for one in found.invalid:
            if one.folder not in own:
                say(f"{one.folder.name}, made before, is invalid: {'; '.join(one.record['reasons'])}")
        if found.left:
            say(f"{found.left} turn(s) are left: workbench scaletest run --resume {found.folder}")
        say(f"compare: workbench scaletest compare {found.folder}")
    raise typer.Exit(found.exit_code)


def _tell(result: Any, as_json: bool) -> None:
    import json

    from workbench.scaletest.running import telling
    from workbench.terminal import say

    if as_json:
        say(json.dumps(result.document(), indent=1))
    else:
        telling.say_all(result)
    raise typer.Exit(result.exit_code)


def _schedulers(text: str | None, path: Path | None) -> tuple[str, ...]:
    """The sides: as named, or all that the scenario names."""
    from workbench.scaletest import scenario

    short = {"default": scenario.DEFAULT_SCHEDULER, "kai": scenario.KAI_SCHEDULER}
    if text is None:
        assert path is not None
        return scenario.load(path).schedulers
    return tuple(short.get(name, name) for name in text.split(","))


def _command() -> str:
    import shlex
    import sys

    return "workbench " + shlex.join(sys.argv[1:])
