"""`workbench indicators collect`: collect the results of a session's pods into its archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command

if TYPE_CHECKING:
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
    from workbench.core.errors import ConfigError
    from workbench.indicators.contract.indicator import Case
    from workbench.indicators.kubernetes import job_submission, result_collection
    from workbench.indicators.kubernetes.job_manifests import build_label_selector
    from workbench.indicators.kubernetes.job_submission import connect_cluster, load_signing_key, read_options
    from workbench.indicators.kubernetes.log_records import read_blocks
    from workbench.indicators.measurement import sessions
    from workbench.indicators.measurement.script_cases import find_declaration
    from workbench.indicators.shipped.indicator_classes import load_indicator
    from workbench.indicators.store import archive
    from workbench.runs import run_folder

    by_name = {declaration.__name__: declaration for declaration in map(load_indicator, indicator or [])}
    session = archive.read_session(folder)
    cases = []
    for planned in session.cases:
        try:
            declaration = by_name.get(planned.indicator) or find_declaration(planned.indicator)
        except ConfigError:
            raise ConfigError(
                "the session measures an indicator that is not shipped",
                found=planned.indicator[:80],
                do=f"--indicator FILE.py:{planned.indicator if planned.indicator.isidentifier() else 'CLASS'}",
            ) from None
        cases.append(Case.from_parameters(declaration, planned.parameters))
    key = load_signing_key(folder)
    if logs:
        collection = result_collection.collect_results(folder, cases, [read_blocks(path) for path in logs], key=key)
    else:
        cluster = connect_cluster(context, confirm_context or None, read_options(folder).namespace)
        pods = [
            pod for pod in cluster.list_pods(build_label_selector(session.session_id)) if job_submission.is_over(pod)
        ]
        print_text(f"{len(pods)} finished pod(s); context {cluster.context}, namespace {cluster.namespace}", err=True)
        collection = job_submission.collect_from_pods(folder, cases, cluster, pods, key=key)
    verdict = answer = None
    if (folder / run_folder.RECORD_FILE).is_file() and (collection.new or collection.present):
        run = run_folder.load_run(folder)
        sessions.judge_session(run)
        verdict, answer = run.record["verdict"], run.record["answer"]
    # Once it was decided, no further round is needed.
    absent = [] if collection.session.stop_reason == "decided" else collection.absent
    document = {
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
    finish_command(
        lambda: "\n".join(
            [*_format_collection(collection, absent), *(f"session: {part}" for part in (verdict, answer) if verdict)]
        ),
        document,
        as_json=as_json,
        is_valid=not collection.missing and not absent,
    )


def _format_collection(collection: Collection, absent: list[int]) -> list[str]:
    """Counts, those of problems only if there are any; and the rounds without a run, 0, 1, 2, 5 as 0-2, 5."""
    counts = {
        "runs collected before": collection.present,
        "lines cut or not signed": collection.damaged,
        "incomplete runs": collection.torn,
        "runs of a second pod of the same round, not counted": collection.repeated,
    }
    lines = [f"{len(collection.new):>7,}  runs collected"]
    lines += [f"{count:>7,}  {name}" for name, count in counts.items() if count]
    lines += [f"{count:>7,}  of them {status}" for status, count in collection.statuses.items() if status != "ok"]
    lines += [f"round {number}: {reason}" for number, reason in sorted(collection.missing.items())]
    ranges: list[list[int]] = []
    for number in (number for number in absent if number not in collection.missing):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    if ranges:
        texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges]
        lines.append(f"rounds without any run: {', '.join(texts)}")
    return lines
