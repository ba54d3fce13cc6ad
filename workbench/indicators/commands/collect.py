"""`workbench indicators collect`: collect the results of a session's pods into its archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workbench.console.finish import JsonFlag, finish_command

if TYPE_CHECKING:
    from workbench.indicators.contract.indicator import Case
    from workbench.indicators.kubernetes.result_collection import Collection


def collect(
    folder: Annotated[Path, typer.Argument(help="Folder of a session that was planned for a cluster.")],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(help="Files with the pods' logs; without any, they are read from the cluster."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.", show_default="the current one")
    ] = None,
    confirm_context: Annotated[
        str, typer.Option(metavar="NAME", help="The context once more; required unless its server is this machine.")
    ] = "",
    indicator: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE:CLASS", help="Your own indicator, if the session measures one. Repeatable."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Collect the results of a session's pods into its archive, from log files or from the cluster.

    Results are signed; cut, repeated or forged ones do not count. Missing runs are listed with their rounds, and with
    the reason if the cluster knows it. Collecting again keeps existing runs. The session is then judged as by
    `workbench indicators run`.

    Exit code 0 if no run is missing, or the missing ones are not needed; else 1.

    Example: kubectl logs -l workbench-session --tail=-1 > pods.log; workbench indicators collect runs/a pods.log
    """
    from workbench.console.terminal import print_text
    from workbench.indicators.kubernetes import job_submission, result_collection
    from workbench.indicators.kubernetes.job_manifests import build_label_selector
    from workbench.indicators.kubernetes.job_submission import connect_cluster, load_signing_key, read_options
    from workbench.indicators.kubernetes.log_records import read_blocks

    cases = _load_cases(folder, indicator or [])
    key = load_signing_key(folder)
    if logs:
        collection = result_collection.collect_results(folder, cases, [read_blocks(path) for path in logs], key=key)
    else:
        from workbench.indicators.store import archive

        cluster = connect_cluster(context, confirm_context or None, read_options(folder).namespace)
        wanted = build_label_selector(archive.read_session(folder).session_id)
        pods = [pod for pod in cluster.list_pods(wanted) if job_submission.is_over(pod)]
        print_text(f"{len(pods)} finished pod(s); context {cluster.context}, namespace {cluster.namespace}", err=True)
        collection = job_submission.collect_from_pods(folder, cases, cluster, pods, key=key)
    outcome = _write_outcome(folder, collection)
    finish_command(
        lambda: "\n".join([_format_collection(collection), *(f"session: {part}" for part in outcome)]),
        lambda: _build_document(collection, outcome),
        as_json=as_json,
        is_valid=not collection.missing and not _list_missing_rounds(collection),
    )


def _load_cases(folder: Path, specs: list[str]) -> list[Case]:
    """The cases of a session: shipped indicators by name, and the given classes."""
    from workbench.core.errors import ConfigError
    from workbench.indicators.contract.indicator import Case
    from workbench.indicators.measurement.script_cases import find_declaration
    from workbench.indicators.shipped.indicator_classes import load_indicator
    from workbench.indicators.store import archive

    by_name = {declaration.__name__: declaration for declaration in map(load_indicator, specs)}
    cases = []
    for planned in archive.read_session(folder).cases:
        try:
            indicator = by_name.get(planned.indicator) or find_declaration(planned.indicator)
        except ConfigError:
            raise ConfigError(
                "the session measures an indicator that is not shipped",
                found=planned.indicator[:80],
                do=f"--indicator FILE.py:{planned.indicator if planned.indicator.isidentifier() else 'CLASS'}",
            ) from None
        cases.append(Case.from_parameters(indicator, planned.parameters))
    return cases


def _write_outcome(folder: Path, collection: Collection) -> tuple[str, ...]:
    """Write verdict, answer and tables into the run folder and return the first two; empty without runs."""
    from workbench.indicators.measurement import sessions
    from workbench.runs import run_folder

    if not (folder / run_folder.RECORD_FILE).is_file() or not (collection.new or collection.present):
        return ()
    run = run_folder.load_run(folder)
    sessions.judge_session(run)
    return (run.record["verdict"], run.record["answer"])


def _build_counts(collection: Collection) -> dict[str, int]:
    """Counts to print; those of problems only if there are any."""
    counts = {
        "runs collected": len(collection.new),
        "runs collected before": collection.present,
        "lines cut or not signed": collection.damaged,
        "incomplete runs": collection.torn,
        "runs of a second pod of the same round, not counted": collection.repeated,
    }
    return {name: count for name, count in counts.items() if count or name == "runs collected"}


def _format_collection(collection: Collection) -> str:
    lines = [f"{count:>7,}  {name}" for name, count in _build_counts(collection).items()]
    lines += [f"{count:>7,}  of them {status}" for status, count in collection.statuses.items() if status != "ok"]
    lines += [f"round {number}: {reason}" for number, reason in sorted(collection.missing.items())]
    if absent := [number for number in _list_missing_rounds(collection) if number not in collection.missing]:
        lines.append(f"rounds without any run: {_format_ranges(absent)}")
    return "\n".join(lines)


def _list_missing_rounds(collection: Collection) -> list[int]:
    """Rounds without any run, unless the session was decided without them."""
    return [] if collection.session.stop_reason == "decided" else collection.absent


def _format_ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as 0-2, 5."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _build_document(collection: Collection, outcome: tuple[str, ...]) -> dict[str, Any]:
    verdict, answer = outcome or (None, None)
    return {
        "session_id": collection.session.session_id,
        "rounds_done": collection.session.rounds_done,
        "collected": len(collection.new),
        "present": collection.present,
        "statuses": collection.statuses,
        "damaged_lines": collection.damaged,
        "torn": collection.torn,
        "repeated": collection.repeated,
        "missing": {str(number): reason for number, reason in sorted(collection.missing.items())},
        "absent": collection.absent,
        "verdict": verdict,
        "answer": answer,
    }
