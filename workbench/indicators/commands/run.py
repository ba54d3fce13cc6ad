"""`workbench indicators run`: measure indicators on stacks, in rounds of random order, beside a control."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.indicators.commands import refuse_resumed_settings


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
    from workbench.core.errors import ConfigError
    from workbench.indicators.kubernetes import cluster_session
    from workbench.indicators.kubernetes.job_manifests import parse_cluster_options
    from workbench.indicators.kubernetes.job_submission import connect_cluster, read_options
    from workbench.indicators.measurement import session_report, sessions
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    if resume is None and more is not None:
        raise ConfigError("--more extends a session", where="--more", do="add --resume DIR, its folder")
    rounds = None if resume is None else settings.get("rounds")
    if rounds is not None and len(rounds) != 1:
        raise ConfigError("not a number of rounds", where="--rounds", found=rounds, allowed="one number with --resume")
    if "specification" not in settings and ("ignore" in settings or fetch_script):
        raise ConfigError("--ignore and --fetch-script are for --specification", where="--specification")
    placed: dict[str, object] = {
        "--cluster": cluster or None,
        "--context": context,
        "--confirm-context": confirm_context,
    }
    _refuse_conflicting_options(settings, backend, placed, out, resume)
    command = format_command_line()
    if backend == "manifests":
        folder = cluster_session.plan_cluster_session(
            settings.build_model(SessionConfig), parse_cluster_options(cluster or ()), out=out, command=command
        )
        text = cluster_session.format_instructions(folder)
        finish_command(text, {"folder": folder, "commands": text.splitlines()}, as_json=as_json)
    with select_watcher() as watcher:
        if backend == "kubernetes":
            options = parse_cluster_options(cluster or ()) if resume is None else read_options(resume)
            connected = connect_cluster(context, confirm_context, options.namespace)
            folder = resume or cluster_session.plan_cluster_session(
                settings.build_model(SessionConfig), options, out=out, watcher=watcher, command=command
            )
            outcome = cluster_session.resume_cluster_session(folder, connected, watcher=watcher)
        elif resume is not None:
            total = None if rounds is None else rounds[0]
            outcome = sessions.resume_session(resume, watcher=watcher, offline=offline, rounds=total, more=more)
        else:
            outcome = sessions.start_session(
                settings.build_model(SessionConfig),
                out=out,
                watcher=watcher,
                fetch_script=fetch_script,
                offline=offline,
                command=command,
            )
    finish_command(
        lambda: session_report.format_session(outcome),
        lambda: session_report.build_session_document(outcome),
        as_json=as_json,
        is_valid=outcome.compared.valid,
        is_cancelled=outcome.interrupted,
    )


def _refuse_conflicting_options(
    settings: OptionValues, backend: str, placed: dict[str, object], out: Path | None, resume: Path | None
) -> None:
    """Refuse options that do not fit the backend, or a session that is resumed.

    `placed`: Options of a cluster, null where they are not given.
    """
    from workbench.core.errors import ConfigError

    allowed = ("process", "kubernetes", "manifests")
    if backend not in allowed:
        raise ConfigError("no such backend", where="--backend", found=backend[:40], allowed=allowed)
    if backend == "process" and any(value is not None for value in placed.values()):
        raise ConfigError("for a cluster only", where="--cluster, --context", do="add --backend kubernetes")
    if resume is not None:
        kept = OptionValues(settings, settings.flags)
        if backend == "process":
            kept.pop("rounds", None)
        refuse_resumed_settings("session", kept, {"--out": out, "--cluster": placed["--cluster"]})
    unfit = {"--resume": resume, **placed, "--cluster": None}
    if backend == "manifests" and (conflicts := [name for name, value in unfit.items() if value is not None]):
        raise ConfigError(
            "--backend manifests only writes manifests: it neither reaches a cluster nor resumes a session",
            where="--backend manifests",
            found=conflicts,
            do="omit these options, or use --backend kubernetes",
        )
