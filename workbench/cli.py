"""The command `workbench`: reads options, makes one library call, prints a short table and the written paths.

What is imported here is what `workbench --help` waits for: typer and little else. Libraries are imported by the
command that needs them, areas by the command that names them.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from workbench import __version__
from workbench.commands import Area, Commands, Lazy
from workbench.errors import ConfigError, WorkbenchError

EXAMPLES = """\b
Examples:
  workbench run all --jobs 2            every notebook, on the sample data
  workbench run speedup -p event_log=app.zstd -p top_operators=5
                                        one notebook, on your event log
  workbench gallery data/runs           an index page over the reports
  workbench lab                         the same notebooks, live
  workbench doctor                      what this machine can run
"""


# The only place that names the areas. Each module holds a Typer app called `app`.
AREAS = {
    "eventlog": Area("workbench.eventlog.command", "Read Spark event logs into tables."),
    "speedup": Area(
        "workbench.speedup.command",
        "Measure and predict what an accelerator gains, operator by operator.",
        uses=("spark",),
    ),
    "lore": Area(
        "workbench.lore.command",
        "Dump the inputs of an operator, replay it alone, verify it bit for bit.",
        needs=("base", "spark"),
    ),
    "sizing": Area("workbench.sizing.command", "How many GPUs for N users at p95 <= T, with an interval, verified."),
    "indicators": Area("workbench.indicators.command", "Measure library stacks, and recommend one with evidence."),
    "scaletest": Area(
        "workbench.scaletest.command",
        "How many workloads a cluster schedules per second, and why.",
        uses=("cluster",),
        checks="workbench.scaletest.localcluster.readiness",
    ),
    "capacity": Area("workbench.capacity.command", "GPUs, nodes and cost of jobs and users, from the results of runs."),
}


# What is no area, and has commands of its own all the same.
HOUSE = {"runs": Area("workbench.runs_command", "The runs of notebooks: list, show, compare, check, delete them.")}


class _Commands(Commands):
    """The commands of the house, and the areas behind them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        present = {name: found for name, found in (HOUSE | AREAS).items() if found.present}
        self.commands.update({name: Lazy(name=name, help=found.help, area=found) for name, found in present.items()})


app = typer.Typer(
    cls=_Commands,
    name="workbench",
    help="Answers about accelerated computing, with measured evidence.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Drawing help with rich would double the time until it is there.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where run folders go; data/runs in the checkout, else your cache."),
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"workbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Version, then stop.")
    ] = False,
) -> None:
    """Answers about accelerated computing, with measured evidence."""


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench run 01_speedup -p event_log=app.zstd --open\n"
    "  workbench run speedup sizing -p speedup.top_operators=5 --jobs 2\n"
    "  workbench run 01_speedup --parameters"
)
def run(
    notebooks: Annotated[list[str], typer.Argument(metavar="NOTEBOOK...", help="01_speedup, speedup, a path, or all.")],
    p: Annotated[
        list[str] | None,
        typer.Option(
            "-p", "--parameter", metavar="NAME=VALUE", help="Set a parameter; AREA.NAME=VALUE in one notebook only."
        ),
    ] = None,
    f: Annotated[
        Path | None,
        typer.Option("-f", "--parameters-file", metavar="YAML", help="Parameters from a file; -p wins over it."),
    ] = None,
    out: Out = None,
    jobs: Annotated[int, typer.Option(help="Notebooks that run side by side.", metavar="N")] = 1,
    timeout: Annotated[int | None, typer.Option(help="Longest time of a cell, in seconds.", metavar="S")] = None,
    thresholds: Annotated[
        Path | None,
        typer.Option(metavar="YAML", help="Limits that the runs must keep; one that is broken ends with 1."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open each report in the browser.")] = False,
    as_json: Json = False,
    list_parameters: Annotated[
        bool,
        typer.Option("--parameters", "--help-parameters", help="List the parameters of the notebooks; run nothing."),
    ] = False,
) -> None:
    """Run notebooks headless, each into a report.

    Each run gets a folder with report.ipynb, report.html, its tables and run.json.
    """
    from workbench import batch

    paths = batch.find(notebooks)
    if list_parameters:
        batch.show_parameters(paths, as_json=as_json)
        return
    code = batch.run(
        paths,
        batch.assignments(p or []),
        f,
        out=out,
        jobs=jobs,
        timeout_s=timeout,
        thresholds=thresholds,
        as_json=as_json,
        show=show,
    )
    raise typer.Exit(code)


@app.command()
def gallery(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder with run folders at any depth; as --out of run.")
    ] = None,
) -> None:
    """Make an index page over reports.

    Takes in all reports below the folder; prints the path of the page.
    """
    from workbench import report, runs

    folder = folder or runs.default_out()
    if not folder.is_dir():
        raise ConfigError("no such folder", where="gallery", found=folder)
    typer.echo(report.write_gallery(folder))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    ctx: typer.Context,
    notebooks: Annotated[
        Path | None, typer.Option(help="Folder to open; the checkout's notebooks.", metavar="DIR")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, open no browser.")] = False,
) -> None:
    """Start JupyterLab on the notebooks.

    Further options go to JupyterLab itself.
    """
    from workbench import lab as jupyter

    raise typer.Exit(jupyter.start(notebooks, [*(["--no-browser"] if no_browser else []), *ctx.args]))


@app.command()
def doctor(
    area: Annotated[str | None, typer.Argument(help="Only what this area needs.", metavar="[AREA]")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Start a kernel too (seconds).")] = False,
    as_json: Json = False,
) -> None:
    """Tell what this machine can run.

    For what it cannot run, the command that mends it is told too.
    """
    import importlib

    from workbench import doctor as checks

    areas = {name: known for name, known in AREAS.items() if known.present}
    if area is not None and area not in areas:
        raise ConfigError("no such area", where="doctor", found=area, allowed=areas)
    asked = areas if area is None else {area: areas[area]}
    more = [importlib.import_module(known.checks).checks for known in asked.values() if known.checks]
    wanted = None if area is None else (*areas[area].needs, *areas[area].uses)
    found = checks.examine(wanted, deep=deep, more=more)
    shown = {name: known.needs for name, known in asked.items()}
    typer.echo(checks.as_json(found, shown) if as_json else checks.as_text(found, shown))
    needed = ("base",) if area is None else areas[area].needs
    raise typer.Exit(3 if any(checks.lacks(found, ability) for ability in needed) else 0)


# What a disk or a machine may say at any time; nobody's mistake in using the command, and none of ours.
_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    try:
        app(arguments, prog_name="workbench")
    except SystemExit:
        _flush()
        raise
    except WorkbenchError as error:
        # What was found is somebody else's text, and may hold what steers a terminal.
        _tell(f"Error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno not in _FAULTS:
            _apologise()
        place = f"\n  where: {error.filename}" if error.filename else ""
        _tell(f"Error: the system cannot do that now{place}\n  found: {error.strerror}")
        _drop_stdout()
        sys.exit(3)
    except Exception:  # noqa: BLE001 - the last place that can still say what to do
        _apologise()


def _apologise() -> NoReturn:
    import traceback

    traceback.print_exc()
    _tell("\nSorry: this is a mistake in the workbench, not in what you did. Please report the text above.")
    sys.exit(3)


def _flush() -> None:
    """What was printed must have arrived: a full disk behind `> file` shows only now."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads has had enough, as `head` has.
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        _tell(f"Error: the output cannot be written\n  found: {error.strerror}")
        sys.exit(3)


def _drop_stdout() -> None:
    """Python flushes once more at its end, and would end with 120."""
    import os

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(text: str) -> None:
    from workbench.terminal import say

    with contextlib.suppress(OSError):
        say(text, err=True)
