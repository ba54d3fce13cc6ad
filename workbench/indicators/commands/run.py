"""`workbench indicators run`: measure indicators on stacks, in rounds of random order, beside a control."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from

if TYPE_CHECKING:
    from workbench.indicators.measurement.session_progress import SessionWatcher
    from workbench.indicators.measurement.session_report import SessionOutcome


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    units={"s": "S"},
    groups=("What runs", "Stacks", "Measurement", "History"),
    omit="warmup",
)
def run(
    settings: OptionValues,
    fetch_script: Annotated[
        bool,
        typer.Option(
            "--fetch-script",
            rich_help_panel="Stacks",
            help="Download a specification's script from its URL, and run it.",
        ),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Install from uv's cache alone.")] = False,
    backend: Annotated[
        str,
        typer.Option(
            help="Where runs are made: process (here), kubernetes (one pod per round), or manifests (written only)."
        ),
    ] = "process",
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Requests to the cluster, such as image=…, gpus=1, node-selector=a=b. Repeatable.",
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.", show_default="the current")] = None,
    confirm_context: Annotated[
        str | None,
        typer.Option(metavar="CONTEXT", help="The context once more; required unless its server is this machine."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the session's own folder.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Resume the session in this folder; with --rounds N or --more N, extend it."),
    ] = None,
    more: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --resume: so many further rounds.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure indicators on stacks; report which are faster than the baseline, slower, the same, or undecided.

    SAME means that the whole interval lies within the margin; UNDECIDED says why, and how many rounds would tell.

    All stacks are installed first. In each round every stack then runs every indicator once, in random order, each
    in a fresh process: pinned to a core, without network, within limits of time and memory. The baseline runs twice,
    the second time as the control: if the two differ, the session is invalid. This is no sandbox: run only scripts
    that you trust.

    --script runs any script that prints a document (JSON with name, @parameters, @result); its results are compared by
    the direction that their names tell, or --better. Answers in their results (answer, digest, rows) must be the
    baseline's: --output any accepts others. --pytest and --pyperf run suites, every benchmark a metric.

    Each run is on disk before the next one starts. Ctrl-C lets the current run end; --resume continues, also after a
    kill.

    Exit code 0 for a valid session; 1 for an invalid one, with reasons: also where a stack has no answer (no values, no
    decided time, another answer than the baseline's, processes left running); 130 after Ctrl-C.

    Example: workbench indicators run --stack numpy==1.26.4 --stack numpy==2.2.6 --indicator sort --indicator matmul
    """
    from workbench.indicators.measurement import session_report, sessions
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    place = RunBackend(backend, tuple(cluster or ()), context, confirm_context)
    total_rounds = _take_total_rounds(settings, resume, more)
    _refuse_conflicting_options(settings, place, out, resume, fetch_script=fetch_script)
    if backend == "manifests":
        _write_manifests(settings, out, place, as_json)
    with select_watcher() as watcher:
        if backend == "kubernetes":
            outcome = _measure_on_cluster(settings, out, resume, place, watcher)
        elif resume is not None:
            outcome = sessions.resume_session(resume, watcher=watcher, offline=offline, rounds=total_rounds, more=more)
        else:
            outcome = sessions.start_session(
                settings.build_model(SessionConfig),
                out=out,
                watcher=watcher,
                fetch_script=fetch_script,
                offline=offline,
                command=format_command_line(),
            )
    finish_command(
        lambda: session_report.format_session(outcome),
        lambda: session_report.build_session_document(outcome),
        as_json=as_json,
        is_valid=outcome.compared.valid,
        is_cancelled=outcome.interrupted,
    )


def _take_total_rounds(settings: OptionValues, resume: Path | None, more: int | None) -> int | None:
    """The rounds of a resumed session in all, where they are given."""
    from workbench.core.errors import ConfigError

    if resume is None:
        if more is not None:
            raise ConfigError("--more extends a session", where="--more", do="add --resume DIR, its folder")
        return None
    numbers = settings.get("rounds")
    if numbers is not None and len(numbers) != 1:
        raise ConfigError("not a number of rounds", where="--rounds", found=numbers, allowed="one number with --resume")
    return numbers[0] if numbers else None


@dataclass(frozen=True)
class RunBackend:
    """Backend where runs are made, and what is requested from a cluster."""

    backend: str = "process"
    cluster: tuple[str, ...] = ()
    context: str | None = None
    confirm_context: str | None = None


def _refuse_conflicting_options(
    settings: OptionValues, place: RunBackend, out: Path | None, resume: Path | None, *, fetch_script: bool
) -> None:
    """Refuse options that do not fit the backend, or a session that is resumed."""
    from workbench.core.errors import ConfigError

    allowed = ("process", "kubernetes", "manifests")
    if place.backend not in allowed:
        raise ConfigError("no such backend", where="--backend", found=place.backend[:40], allowed=allowed)
    if place.backend == "process" and place != RunBackend():
        raise ConfigError("for a cluster only", where="--cluster, --context", do="add --backend kubernetes")
    fixed = [
        *(settings.flags[name] for name in settings if name != "rounds" or place.backend != "process"),
        *(["--out"] if out else []),
        *(["--cluster"] if place.cluster else []),
    ]
    if resume is not None and fixed:
        raise ConfigError(
            "a resumed session keeps its settings", where="--resume", found=fixed, do="leave these options out"
        )
    if "specification" not in settings and ("ignore" in settings or fetch_script):
        raise ConfigError("--ignore and --fetch-script are for --specification", where="--specification")
    unfit = {"--resume": resume, "--context": place.context, "--confirm-context": place.confirm_context}
    if place.backend == "manifests" and (conflicts := [name for name, value in unfit.items() if value is not None]):
        raise ConfigError(
            "--backend manifests only writes manifests: it neither reaches a cluster nor resumes a session",
            where="--backend manifests",
            found=conflicts,
            do="omit these options, or use --backend kubernetes",
        )


def _write_manifests(settings: OptionValues, out: Path | None, place: RunBackend, as_json: bool) -> NoReturn:
    """Plan a session, write its manifests, and print the commands that run it."""
    from workbench.indicators.kubernetes.cluster_session import format_instructions, plan_cluster_session
    from workbench.indicators.kubernetes.job_manifests import parse_cluster_options
    from workbench.indicators.measurement.session_config import SessionConfig

    config, options = settings.build_model(SessionConfig), parse_cluster_options(place.cluster)
    folder = plan_cluster_session(config, options, out=out, command=format_command_line())
    commands = format_instructions(folder)
    finish_command(commands, {"folder": str(folder), "commands": commands.splitlines()}, as_json=as_json)


def _measure_on_cluster(
    settings: OptionValues, out: Path | None, resume: Path | None, place: RunBackend, watcher: SessionWatcher
) -> SessionOutcome:
    """Plan a session for a cluster or read a planned one, and make its missing rounds there."""
    from workbench.indicators.kubernetes import cluster_session
    from workbench.indicators.kubernetes.job_manifests import parse_cluster_options
    from workbench.indicators.kubernetes.job_submission import connect_cluster, read_options
    from workbench.indicators.measurement.session_config import SessionConfig

    options = parse_cluster_options(place.cluster) if resume is None else read_options(resume)
    cluster = connect_cluster(place.context, place.confirm_context, options.namespace)
    folder = resume or cluster_session.plan_cluster_session(
        settings.build_model(SessionConfig), options, out=out, watcher=watcher, command=format_command_line()
    )
    return cluster_session.resume_cluster_session(folder, cluster, watcher=watcher)
