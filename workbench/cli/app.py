"""The command `workbench`: command groups, options, exit codes.

Imports little besides typer, so that `workbench --help` is fast: commands import their libraries and areas.
"""

from __future__ import annotations

import contextlib
import errno
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from workbench import __version__
from workbench.console import completion
from workbench.console.finish import JsonFlag
from workbench.console.options import Area, CommandApp, CommandGroup, LazyGroup
from workbench.core.errors import ConfigError, ExitCode, WorkbenchError
from workbench.core.files import UnwritableError, default_place

EXAMPLES = """\b
Examples:
  workbench demo                        three answers on the sample data, in under a minute
  workbench run all --jobs 2            every notebook, on the sample data
  workbench run profile -p event_log=sample:failing
                                        one notebook, on another event log: yours, or a sample
  workbench gallery                     an index page over the reports
  workbench lab                         the same notebooks, live
  workbench init DIR                    a project of your own, with copies of the notebooks
  workbench samples                     inputs to try commands on
  workbench doctor                      what this machine can run
"""

# The only list of areas. Each module has a Typer app called `app`.
AREAS = {
    "eventlog": Area("workbench.eventlog.command", "Read Spark event logs into tables."),
    "speedup": Area(
        "workbench.speedup.command",
        "Measure and predict what an accelerator gains, operator by operator.",
        uses=("spark",),
        questions="workbench.speedup.log_questions",
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
        checks="workbench.scaletest.local_cluster.program_builds",
    ),
    "capacity": Area("workbench.capacity.command", "GPUs, nodes and cost of jobs and users, from the results of runs."),
}

# Command groups that are not areas.
OWN_GROUPS = {
    "runs": Area("workbench.cli.runs", "Runs of notebooks: list, show, compare, copy and delete them."),
    "forecast": Area("workbench.cli.forecast", "Keep forecasts, match them with their outcomes, and score them."),
}
Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder or URL (s3://…) for the runs; by default data/runs in the project or checkout, else your cache.",
    ),
]
# Faults of the disk or the machine, not of the user or the workbench.
_SYSTEM_FAULTS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)


class _RootGroup(CommandGroup):
    """Own commands, followed by the areas."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        present = {name: area for name, area in (OWN_GROUPS | AREAS).items() if area.is_installed}
        self.commands.update({name: LazyGroup(name=name, help=area.help, area=area) for name, area in present.items()})


app = CommandApp(
    cls=_RootGroup,
    name="workbench",
    help="Answers about accelerated computing, with measured evidence.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Rich would double the time of the help.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"workbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Answers about accelerated computing, with measured evidence."""


@app.command(
    epilog="\b\nExamples:\n"
    "  workbench run 08_profile -p event_log=sample:failing --open\n"
    "  workbench run speedup sizing -p speedup.level=0.8 --jobs 2\n"
    "  workbench run 01_speedup --parameters"
)
def run(
    notebooks: Annotated[
        list[str],
        typer.Argument(
            metavar="NOTEBOOK...",
            help="01_speedup, speedup, a path, or all.",
            autocompletion=completion.complete_notebook,
        ),
    ],
    p: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--parameter",
            metavar="NAME=VALUE",
            help="Set a parameter, a nested one as JSON; AREA.NAME=VALUE in one notebook only.",
            autocompletion=completion.complete_parameter,
        ),
    ] = None,
    y: Annotated[
        list[str] | None,
        typer.Option("-y", "--parameters-yaml", metavar="YAML", help="Parameters as YAML, such as 'rows: [1, 2]'."),
    ] = None,
    f: Annotated[
        Path | None,
        typer.Option(
            "-f", "--parameters-file", metavar="FILE", help="Parameters from a YAML file; -y and -p override."
        ),
    ] = None,
    out: Out = None,
    jobs: Annotated[int, typer.Option(help="Number of notebooks to run in parallel.", metavar="N")] = 1,
    timeout: Annotated[int | None, typer.Option(help="Time limit of a cell, in seconds.", metavar="S")] = None,
    thresholds: Annotated[
        Path | None,
        typer.Option(metavar="YAML", help="File of thresholds; exit code 1 when one is broken."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open each report in the browser.")] = False,
    as_json: JsonFlag = False,
    list_parameters: Annotated[
        bool,
        typer.Option("--parameters", "--help-parameters", help="Only list the parameters of the notebooks."),
    ] = False,
) -> None:
    """Run notebooks headless, each into a report.

    Each run gets a folder with report.ipynb, report.html, its tables and run.json.
    """
    from workbench.cli import run_output

    paths = run_output.resolve_notebooks(notebooks)
    if list_parameters:
        run_output.print_parameters(paths, as_json=as_json)
        return
    code = run_output.run_and_print(
        paths,
        run_output.parse_assignments(p or []),
        run_output.read_values(f, y or [], paths),
        out=out,
        jobs=jobs,
        timeout_s=timeout,
        thresholds=thresholds,
        as_json=as_json,
        show=show,
    )
    raise typer.Exit(code)


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the runs; by default that of `workbench run`."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the path of the reports.")] = False,
) -> None:
    """Answer three questions from the samples, and open their reports.

    Does an accelerator pay off, how many GPUs does a service need, which version of a library is faster? It takes
    under a minute and needs no accelerator, no Spark and no cluster.
    """
    from workbench.cli import demo as show

    raise typer.Exit(show.run_demo(out, is_opened=not no_open))


@app.command(
    epilog="\b\nExample:\n"
    "  workbench init bench && cd bench\n"
    "  workbench run start_here\n"
    "  workbench run all -f parameters.yaml --thresholds thresholds.yaml --jobs 2"
)
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; made when it does not exist.")],
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="Leave out data/samples, which the notebooks' defaults read.")
    ] = False,
) -> None:
    """Create a project of your own: notebooks, parameters, thresholds, Makefile, README.

    Existing files stay unchanged, so the same command completes a project after an update. In the
    project and below it, `workbench run NAME` runs its notebooks; anywhere else, those of the installation.
    """
    from workbench.cli import project

    typer.echo(project.format_layout(folder, project.lay_out_project(folder, with_samples=not no_samples)))


@app.command(epilog="\b\nExample:\n  workbench samples && workbench speedup profile sample:tpch_sf0.1")
def samples(as_json: JsonFlag = False) -> None:
    """List the shipped samples by the names that stand for their paths.

    `sample:NAME` is an input wherever a command, a parameter or a panel takes a path, from any folder.
    """
    from workbench.cli import sample_list

    sample_list.print_samples(as_json=as_json)


@app.command()
def gallery(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR]", help="Folder or URL (s3://…) with runs at any depth; by default that of `run --out`."
        ),
    ] = None,
) -> None:
    """Write an index page of reports.

    Covers all reports below the folder; prints the path of the page.
    """
    from workbench.report.gallery import write_gallery
    from workbench.runs.run_stores import is_url

    place = folder or default_place()
    if not is_url(place) and not Path(place).is_dir():
        raise ConfigError("no such folder", where="gallery", found=place)
    typer.echo(write_gallery(place))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def lab(
    ctx: typer.Context,
    notebooks: Annotated[
        Path | None, typer.Option(help="Folder to open; by default the notebooks of the checkout.", metavar="DIR")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, do not open a browser.")] = False,
) -> None:
    """Start JupyterLab on the notebooks.

    In a checkout that cannot be written it opens copies, and says where they are; changed ones are kept.

    Other options go to JupyterLab.
    """
    from workbench.cli import lab as jupyter

    raise typer.Exit(jupyter.start_lab(notebooks, [*(["--no-browser"] if no_browser else []), *ctx.args]))


@app.command()
def doctor(
    area: Annotated[str | None, typer.Argument(help="Check only what this area needs.", metavar="[AREA]")] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also start a kernel (seconds).")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check what this machine can run.

    With the command that fixes what is missing.
    """
    import importlib

    from workbench.cli import doctor as checks
    from workbench.console.terminal import print_text

    areas = {name: entry for name, entry in AREAS.items() if entry.is_installed}
    if area is not None and area not in areas:
        raise ConfigError("no such area", where="doctor", found=area, allowed=areas)
    chosen = areas if area is None else {area: areas[area]}
    more = [importlib.import_module(entry.checks).checks for entry in chosen.values() if entry.checks]
    wanted = None if area is None else (*areas[area].needs, *areas[area].uses)
    findings = checks.check_machine(wanted, deep=deep, more=more)
    shown = {name: entry.needs for name, entry in chosen.items()}
    if as_json:
        typer.echo(checks.format_checks_json(findings, shown))
    else:
        print_text(checks.format_checks(findings, shown))
    needed = ("base",) if area is None else areas[area].needs
    raise typer.Exit(
        ExitCode.FAILED if any(checks.list_missing(findings, ability) for ability in needed) else ExitCode.GOOD
    )


@app.command(
    epilog="\b\nExample, in the configuration of a client:\n"
    '  {"mcpServers": {"workbench": {"command": "workbench", "args": ["mcp", "--out", "data/runs"]}}}'
)
def mcp(
    out: Out = None,
    logs: Annotated[
        list[str] | None,
        typer.Option("--logs", metavar="PLACE", help="Event logs to answer about: a folder, a URL, history:URL."),
    ] = None,
) -> None:
    """Answer questions about runs, and with --logs about Spark's event logs, by the Model Context Protocol.

    For assistants that ask for figures: each comes with its interval and the verdict of its run, from the tables of
    the runs. Reads only, speaks on standard input and output, and ends with its client.
    """
    import importlib

    from workbench.runs.question_server import build_server

    more: list[Any] = []
    if logs:
        modules = [
            importlib.import_module(area.questions) for area in AREAS.values() if area.questions and area.is_installed
        ]
        more = [question for module in modules for question in module.list_questions(logs)]
    build_server(out or default_place(), more).run("stdio")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    try:
        completion.run_completion(lambda: app(arguments, prog_name="workbench"))
    except SystemExit:
        _flush_stdout()
        raise
    except WorkbenchError as error:
        _print_error(f"Error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.CANCELLED)
    except UnwritableError as error:
        do = "choose an existing folder that you can write to"
        told = ConfigError("cannot write this file", where=error.filename, found=error.strerror, do=do)
        _print_error(f"Error: {told}")
        sys.exit(told.exit_code)
    except OSError as error:
        if error.errno not in _SYSTEM_FAULTS:
            _report_internal_error()
        place = f"\n  where: {error.filename}" if error.filename else ""
        _print_error(f"Error: the system cannot do that now{place}\n  found: {error.strerror}")
        _drop_stdout()
        sys.exit(ExitCode.FAILED)
    except Exception:  # noqa: BLE001 - the last handler
        _report_internal_error()


def _report_internal_error() -> NoReturn:
    import traceback

    traceback.print_exc()
    _print_error("\nThis is a bug in the workbench. Please report the text above.")
    sys.exit(ExitCode.FAILED)


def _flush_stdout() -> None:
    """Flush stdout, which may fail only now, as on a full disk behind `> file`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has ended, as `head` does.
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        _print_error(f"Error: the output cannot be written\n  found: {error.strerror}")
        sys.exit(ExitCode.FAILED)


def _drop_stdout() -> None:
    """Redirect stdout to the null device: Python flushes it at exit, and would exit with 120."""
    import os

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(text: str) -> None:
    from workbench.console.terminal import print_text

    with contextlib.suppress(OSError):
        print_text(text, err=True)
