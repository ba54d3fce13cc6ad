"""`workbench indicators blame`: of all that differs between two sides, what makes one slower?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.console.finish import JsonFlag, finish_command, format_command_line
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.indicators.commands import refuse_resumed_settings

if TYPE_CHECKING:
    from workbench.indicators.measurement.blame import Blame


@take_options_from(
    "workbench.indicators.measurement.session_config:SessionConfig",
    "good bad indicators script better max_download_bytes",
    units={"s": "S"},
    groups=("What runs", "Measurement"),
    omit="pytest pyperf output warmup threads",
)
def blame(
    settings: OptionValues,
    good: Annotated[
        str | None,
        typer.Argument(
            metavar="GOOD",
            help="The fast side: requirements ('numpy==2.2.6 pandas==2.2.3'), an environment's folder, SESSION:ARM, or "
            "a stacks file or matrix with one arm, which has threads and variables, too.",
        ),
    ] = None,
    bad: Annotated[str | None, typer.Argument(metavar="BAD", help="The slow side, in the same forms.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel="What runs", help="Metric to explain.", show_default="the only one"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="S", min=0, help="Time after which no other session is begun.")
    ] = 3600.0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the search's own folder.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with the search in this folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find the smallest set of differences that makes one side slower: packages, Python, threads, variables.

    Each session measures the slow side, the good one, and the slow one without one group of differences after the
    other. Groups that do not matter are left out, until each difference that is left matters: with its share, what the
    slow side is without it, and what it does alone. Differences that are slow only together are told as such. "The
    machine" (two equal copies differ) and "nothing" are answers, too.

    Exit code 0 if the answer is known, 1 if it is not.

    Example: workbench indicators blame 'numpy==2.2.6' 'numpy==2.4.6' --indicator sort
    """
    from workbench.core.errors import ConfigError
    from workbench.indicators.measurement import blame as measurement
    from workbench.indicators.measurement.session_config import SessionConfig
    from workbench.indicators.measurement.session_progress import select_watcher

    if resume is not None:
        sides = {"GOOD": good, "BAD": bad, "--out": out}
        refuse_resumed_settings("search", settings, sides, allowed="--metric, --budget")
        folder, plan = measurement.load_blame(resume, metric=metric)
    elif good is None or bad is None:
        raise ConfigError("two sides are needed", where="GOOD BAD", do="give both, or --resume DIR")
    else:
        folder, plan = measurement.start_blame(good, bad, settings.build_model(SessionConfig), metric=metric, out=out)
    found = measurement.measure_blame(
        folder, plan, budget_s=budget, watch=select_watcher, command=format_command_line()
    )
    finish_command(
        lambda: _print_blame(found),
        lambda: measurement.build_blame_document(found),
        as_json=as_json,
        is_valid=found.found,
        is_cancelled=found.interrupted,
        written=[found.folder],
    )


def _print_blame(found: Blame) -> None:
    from workbench.indicators.measurement.blame import format_answer, list_cause_rows
    from workbench.indicators.tables import CAUSES
    from workbench.report.display import table

    print_text(format_answer(found))
    if rows := list_cause_rows(found):
        print_block(table(CAUSES.frame(rows), CAUSES, caption="What makes it slower").text)
