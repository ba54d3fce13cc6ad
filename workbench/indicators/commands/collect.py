"""`workbench indicators collect`: what a session's pods told, into its archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from workbench.indicators.contract import Case
    from workbench.indicators.kubernetes.collecting import Collected


def collect(
    folder: Annotated[Path, typer.Argument(help="Folder of a session that was planned for a cluster.")],
    logs: Annotated[
        list[Path] | None,
        typer.Argument(help="Files with the pods' logs; without any, they are asked from the cluster."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig.", show_default="the current one")
    ] = None,
    confirm_context: Annotated[
        str, typer.Option(metavar="NAME", help="The context once more: needed unless it is this machine.")
    ] = "",
    indicator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE:CLASS", help="An indicator of your own that the session measures; repeat for several."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Bring the results of a session's pods into its archive: from log files, or from the cluster.

    Results are signed; what is cut, repeated or made up by a script does not count. Runs that are missing are told
    with their rounds, and why as far as the cluster says. It may be done again: what is there stays as it is.
    The session is judged by what is there, as `workbench indicators run` does it.

    Exit code 0 when all rounds are there, or were not needed, 1 when some runs are missing.

    Example: kubectl logs -l workbench-session --tail=-1 > pods.log; workbench indicators collect runs/a pods.log
    """
    from workbench.indicators.kubernetes import collecting, submitting
    from workbench.indicators.kubernetes.cluster import connect
    from workbench.indicators.kubernetes.manifests import selector
    from workbench.indicators.kubernetes.planning import key_of, read_options
    from workbench.indicators.kubernetes.records import blocks_of
    from workbench.terminal import say

    cases = _cases(folder, indicator or [])
    key = key_of(folder)
    if logs:
        found = collecting.collect(folder, cases, [blocks_of(path) for path in logs], key=key)
    else:
        from workbench.indicators import archive

        cluster = connect(context, confirm_context or None, read_options(folder).namespace)
        wanted = selector(archive.read_session(folder).session_id)
        pods = submitting.over(cluster.pods(wanted))
        say(f"{len(pods)} pod(s) that are over; context {cluster.context}, namespace {cluster.namespace}", err=True)
        found = submitting.collected_from(folder, cases, cluster, pods, key=key)
    judged = _judged(folder, found)
    if as_json:
        typer.echo(_as_json(found, judged))
    else:
        say("\n".join([_text(found), *(f"session: {one}" for one in judged)]))
    raise typer.Exit(1 if found.missing or _lacking(found) else 0)


def _cases(folder: Path, own: list[str]) -> list[Case]:
    """The cases of a session: shipped indicators by their names, a user's own as they are given."""
    from workbench.errors import ConfigError
    from workbench.indicators import archive
    from workbench.indicators.contract import Case
    from workbench.indicators.running.probing import declared_named
    from workbench.indicators.shipped.registry import indicator_named

    given = {one.__name__: one for one in map(indicator_named, own)}
    cases = []
    for planned in archive.read_session(folder).cases:
        try:
            indicator = given.get(planned.indicator) or declared_named(planned.indicator)
        except ConfigError:
            raise ConfigError(
                "the session measures an indicator that is not shipped",
                found=planned.indicator[:80],
                do=f"--indicator FILE.py:{planned.indicator if planned.indicator.isidentifier() else 'CLASS'}",
            ) from None
        cases.append(Case.of(indicator, planned.parameters))
    return cases


def _judged(folder: Path, found: Collected) -> tuple[str, ...]:
    """Verdict and answer of a run folder, written into it with the tables; none while there are no runs."""
    from workbench import runs
    from workbench.indicators import effects
    from workbench.indicators.observations import observed
    from workbench.indicators.running import starting

    if not (folder / runs.RECORD).is_file() or not (found.new or found.present):
        return ()
    run = runs.load(folder)
    starting.keep_outcome(run, starting.Outcome(folder, found.session, effects.compared(observed(folder))))
    return (run.record["verdict"], run.record["answer"])


def _counts(found: Collected) -> dict[str, int]:
    counts = {
        "runs collected": len(found.new),
        "runs that were there before": found.present,
        "lines cut or not signed": found.damaged,
        "runs told in part": found.torn,
        "runs of a further pod at the same round, which do not count": found.repeated,
    }
    return {name: count for name, count in counts.items() if count or name == "runs collected"}


def _text(found: Collected) -> str:
    lines = [f"{count:>7,}  {name}" for name, count in _counts(found).items()]
    lines += [f"{count:>7,}  of them {status}" for status, count in found.statuses.items() if status != "ok"]
    lines += [f"round {number}: {why}" for number, why in sorted(found.missing.items())]
    if absent := [number for number in _lacking(found) if number not in found.missing]:
        lines.append(f"rounds without any run: {_ranges(absent)}")
    return "\n".join(lines)


def _lacking(found: Collected) -> list[int]:
    """Rounds without any run, unless everything was decided without them."""
    return [] if found.session.stop_reason == "decided" else found.absent


def _ranges(numbers: list[int]) -> str:
    """0, 1, 2, 5 as 0-2, 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)


def _as_json(found: Collected, judged: tuple[str, ...]) -> str:
    import json

    verdict, answer = judged or (None, None)
    document = {
        "session_id": found.session.session_id,
        "rounds_done": found.session.rounds_done,
        "collected": len(found.new),
        "present": found.present,
        "statuses": found.statuses,
        "damaged_lines": found.damaged,
        "torn": found.torn,
        "repeated": found.repeated,
        "missing": {str(number): why for number, why in sorted(found.missing.items())},
        "absent": found.absent,
        "verdict": verdict,
        "answer": answer,
    }
    return json.dumps(document, indent=1)
