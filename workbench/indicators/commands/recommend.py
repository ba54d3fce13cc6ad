"""`workbench indicators recommend`: which of the measured stacks to use, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.indicators.recommending.request import Request
    from workbench.indicators.recommending.result import Recommendation
    from workbench.indicators.stacks.model import StackSet


def recommend(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER…", help="A session's folder, or one that holds sessions.")
    ],
    mix: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=WEIGHT,…",
            help="What matters, and how much (names may be cut short); all the same without it.",
        ),
    ] = None,
    type_: Annotated[
        str,
        typer.Option(
            "--type",
            help="performance: best mix; stable: that, old enough and surely not worse; security: that, and nothing "
            "known to be vulnerable, or that pip-audit did not look at (OSV records cannot tell: a warning names what "
            "none of them names); latest: newest versions; testing: most to learn.",
        ),
    ] = "performance",
    session: Annotated[str | None, typer.Option(metavar="ID", help="Which session, when there are several.")] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="REQUIREMENT", help="What stacks must meet; repeat for several.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUIREMENT", help="What no stack may have, like numpy==2.0.0; repeat for several."),
    ] = None,
    vulnerabilities: Annotated[
        Path | None, typer.Option(metavar="FILE", help="OSV records, or the output of pip-audit --format json.")
    ] = None,
    min_age_days: Annotated[
        float | None,
        typer.Option(metavar="DAYS", help="Age of a stack's newest file, in days.", show_default="30 if stable"),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Differences within it do not matter.", show_default="the metrics' own"),
    ] = None,
    max_failed: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of failed runs above which a stack is left out.")
    ] = 0.1,
    predict: Annotated[
        bool, typer.Option("--predict", help="Also stacks never measured, by those that share their versions.")
    ] = False,
    next_: Annotated[
        int, typer.Option("--next", metavar="K", help="Propose K stacks to measure next, beside the baseline.")
    ] = 0,
    stacks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The solved stacks with their locks.", show_default="FOLDER/stacks.json"),
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="A unit of your own, or FILE.py:CLASS: this runs its code. Repeat."),
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="Database that answers the named queries of units.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the recommended stack's requirements with hashes.")
    ] = None,
    pylock: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it as pylock.toml; asks the index for addresses.")
    ] = None,
    next_stacks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what --next proposes as stacks to be measured.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the tables.", show_default="FOLDER/tables")
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of all random numbers.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Recommend one of the stacks of a session, with intervals, chances, and the runs behind every sentence.

    Constraints come first: requirements, wrong answers, failed runs, vulnerabilities, age, files taken back. What
    they leave out is listed with the reason. The baseline is left only for a stack that is better beyond the margin;
    "no difference that matters" is an answer. Nothing is recommended from a session whose control differs from the
    baseline that it duplicates.

    Exit code 0 with a recommendation (also: keep the baseline), 1 when nothing can be recommended.

    Example: workbench indicators recommend data/runs/indicators --mix sort=0.5,matmul=0.5
    """
    from workbench.errors import ConfigError
    from workbench.indicators.recommending import request, sessions
    from workbench.indicators.storage.database import refuse_password

    refuse_password(database)
    if next_stacks is not None and not next_:
        raise ConfigError("nothing is proposed that could be written", where="--next-stacks", do="give --next K, too")
    asked = request.request(
        mix=mix,
        type=type_,
        require=tuple(require or ()),
        exclude=tuple(exclude or ()),
        vulnerabilities=vulnerabilities,
        min_age_days=min_age_days,
        margin=margin,
        max_failed_share=max_failed,
        predict=predict,
        propose=next_,
        seed=seed,
    )
    folder = sessions.chosen(folders, session)
    found, solved = _recommended(folder, asked, stacks, unit or [], database)
    written = _written(found, solved, out or folder / "tables", requirements, pylock, next_stacks)
    _told(found, folder, written, as_json=as_json)
    raise typer.Exit(1 if found.answer.stack is None else 0)


def _recommended(
    folder: Path, asked: Request, stacks: Path | None, units: list[str], database: str | None
) -> tuple[Recommendation, StackSet | None]:
    from workbench.indicators.effects import compared
    from workbench.indicators.observations import observed
    from workbench.indicators.recommending import loading, outputs, recommendation

    loaded = [loading.load(text) for text in units]
    solved, found = outputs.stacks_of(folder, stacks), compared(observed(folder))
    queries = None
    if database is not None:
        from workbench.indicators.recommending.database import answering

        queries = answering(database, found.observed.session.session_id)
    made = recommendation.recommend(found, asked, stacks=solved, units=loaded, database=queries)
    return made, solved


def _written(
    found: Recommendation,
    solved: StackSet | None,
    tables: Path,
    requirements: Path | None,
    pylock: Path | None,
    next_stacks: Path | None,
) -> list[Path]:
    from workbench.indicators.recommending import outputs

    written: list[Path] = []
    if found.answer.stack is not None:
        if requirements is not None:
            written.append(outputs.write_requirements(found, solved, requirements))
        if pylock is not None:
            written.append(outputs.write_pylock(found, solved, pylock))
        if next_stacks is not None:
            written.append(outputs.write_next(found, solved, next_stacks))
    return [*written, *outputs.write_tables(found, tables)]


def _told(found: Recommendation, folder: Path, written: list[Path], *, as_json: bool) -> None:
    import json

    from workbench.indicators.recommending import report
    from workbench.terminal import say

    if as_json:
        document: dict[str, Any] = {**report.document(found, folder), "written": [str(path) for path in written]}
        typer.echo(json.dumps(document, indent=1))
    else:
        say(report.text(found) + "".join(f"\nwritten: {path}" for path in written))
