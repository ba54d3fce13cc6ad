"""`workbench indicators recommend`: choose one of the measured stacks, with the evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption


@take_options_from(
    "workbench.indicators.recommendation.recommendation_request:RecommendationRequest",
    options={
        "mix": FieldOption(metavar="METRIC=WEIGHT,…"),
        "type": FieldOption("type_"),
        "require": FieldOption(metavar="REQUIREMENT"),
        "exclude": FieldOption(metavar="REQUIREMENT"),
        "vulnerabilities": FieldOption(metavar="FILE"),
        "min_age_days": FieldOption(metavar="DAYS", show_default="30 if stable"),
        "margin": FieldOption(metavar="SHARE", show_default="the metrics' own"),
        "clock": FieldOption(show_default="the session's"),
        "max_failed_share": FieldOption("max_failed", metavar="SHARE"),
        "propose": FieldOption("next_", metavar="K"),
    },
    groups={
        "Request": "mix type session require exclude vulnerabilities min_age_days margin clock max_failed_share",
        "Next stacks": "predict propose stacks unit database next_stacks seed",
    },
    omit="as_of",
    defaults="model",
)
def recommend(
    settings: OptionValues,
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER…", help="A session's folder, or a folder of sessions.")
    ],
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the session, if there are several; its start is enough.")
    ] = None,
    stacks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The solved stacks with their locks.", show_default="FOLDER/stacks.json"),
    ] = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Your own unit, or FILE.py:CLASS (its code runs). Repeatable."),
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL|FILE", help="Database for the named queries of units.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the recommended stack's requirements with hashes.")
    ] = None,
    pylock: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the recommended stack as pylock.toml; needs the index.")
    ] = None,
    next_stacks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the stacks that --next proposes, ready to be measured.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for the tables.", show_default="FOLDER/tables")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Recommend a stack of a session, with intervals, chances, and the runs behind every sentence.

    Constraints come first: requirements, wrong answers, failed runs, vulnerabilities, age, yanked files; every stack
    that they exclude is listed with the reason. Another stack than the baseline is recommended only if it is better
    by more than the margin; otherwise the answer says whether the stacks are equivalent or the data do not decide.
    Nothing is recommended from an invalid session.

    Exit code 0 with a recommendation (also to keep the baseline), 1 without one.

    Example: workbench indicators recommend sample:numpy --mix sort=0.5,matmul=0.5
    """
    from workbench.core.errors import ConfigError
    from workbench.core.samples import copy_sample
    from workbench.indicators import summary
    from workbench.indicators.analysis.effects import compare_session
    from workbench.indicators.analysis.observations import load_observations
    from workbench.indicators.recommendation import recommender, unit_pipeline
    from workbench.indicators.recommendation.recommendation_request import RecommendationRequest
    from workbench.indicators.store.sql_database import refuse_password

    refuse_password(database)
    request = settings.build_model(RecommendationRequest)
    if next_stacks is not None and not request.propose:
        raise ConfigError("there are no proposed stacks to write", where="--next-stacks", do="also give --next K")
    folder = recommender.choose_session(folders, session)
    folder = folder if out else copy_sample(folder)
    units = [unit_pipeline.load_unit(text) for text in unit or []]
    solved, comparison = recommender.find_stacks(folder, stacks), compare_session(load_observations(folder))
    queries = None
    if database is not None:
        queries = recommender.build_query_function(database, comparison.observed.session.session_id)
    result = recommender.recommend(comparison, request, stack_set=solved, units=units, database=queries)
    written: list[Path] = []
    if result.answer.stack is not None:
        if requirements is not None:
            written.append(recommender.write_requirements(result, solved, requirements))
        if pylock is not None:
            written.append(recommender.write_pylock(result, solved, pylock))
        if next_stacks is not None:
            written.append(recommender.write_next_stacks(result, solved, next_stacks))
    written += recommender.write_tables(result, out or folder / "tables")
    finish_command(
        lambda: summary.format_recommendation(result),
        lambda: {**summary.build_recommendation_document(result, folder), "written": list(map(str, written))},
        as_json=as_json,
        is_valid=result.is_known,
        written=written,
    )
