"""`workbench sizing calc`: slope-based estimation, with the flags of NVIDIA NeMo Agent Toolkit's `nat sizing calc`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from workbench.sizing.calculator.calc_options import Options
    from workbench.sizing.calculator.calculate import Calculated


def _names(*names: str) -> tuple[str, ...]:
    """Each name with underscores, as the toolkit has it, and with dashes."""
    return tuple(dict.fromkeys(f"--{spelling}" for name in names for spelling in (name, name.replace("_", "-"))))


def calc(
    config_file: Annotated[
        Path | None,
        typer.Option(
            *_names("config_file", "config"),
            metavar="YAML",
            help="The toolkit's file with workflow and eval section; needed unless offline.",
            show_default=False,
        ),
    ] = None,
    offline_mode: Annotated[
        bool, typer.Option(*_names("offline_mode"), help="Calculate from recorded jobs; run nothing.")
    ] = False,
    target_llm_latency: Annotated[
        float, typer.Option(*_names("target_llm_latency"), metavar="S", help="Largest p95 of an LLM call, s; 0: none.")
    ] = 0.0,
    target_workflow_runtime: Annotated[
        float,
        typer.Option(*_names("target_workflow_runtime"), metavar="S", help="Largest p95 of a run, s; 0: none."),
    ] = 0.0,
    target_users: Annotated[int, typer.Option(*_names("target_users"), metavar="N", help="Users to be served.")] = 0,
    test_gpu_count: Annotated[
        int, typer.Option(*_names("test_gpu_count"), metavar="N", help="GPUs that the levels are measured on.")
    ] = 0,
    calc_output_dir: Annotated[
        Path | None,
        typer.Option(
            *_names("calc_output_dir", "output_dir"),
            metavar="DIR",
            help="Jobs: read from DIR/online offline, written to DIR/online or DIR/offline.",
            show_default=False,
        ),
    ] = None,
    concurrencies: Annotated[
        str | None,
        typer.Option(*_names("concurrencies"), metavar="N,N,…", help="Levels to run [default: 1 to 10]."),
    ] = None,
    num_passes: Annotated[
        int | None,
        typer.Option(
            *_names("num_passes"), metavar="N", help="Passes at each level; 0: one, over as many rows as fill it."
        ),
    ] = None,
    append_calc_outputs: Annotated[
        bool,
        typer.Option(
            *_names("append_calc_outputs", "append_jobs"),
            help="Name the job by a random id (older jobs are kept either way).",
        ),
    ] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            *_names("endpoint", "remote_endpoint"),
            metavar="URL",
            help="A workflow that is served, instead of one started here.",
            show_default=False,
        ),
    ] = None,
    endpoint_timeout: Annotated[
        int | None,
        typer.Option(*_names("endpoint_timeout"), metavar="S", help="Longest time of a request [default: 300]."),
    ] = None,
    target_confirm: Annotated[
        str | None,
        typer.Option(
            *_names("target_confirm"), metavar="HOST", help="The endpoint's host again, when it is another machine."
        ),
    ] = None,
    header_env: Annotated[
        list[str] | None,
        typer.Option(
            *_names("header_env"),
            metavar="HEADER=VARIABLE",
            help="A header of each request, its value in that environment variable; repeat.",
            show_default=False,
        ),
    ] = None,
    server_clock: Annotated[
        bool,
        typer.Option(
            *_names("server_clock"), help="Time runs at an endpoint by the server's events, as the toolkit does."
        ),
    ] = False,
    nat_python: Annotated[
        str | None,
        typer.Option(
            *_names("nat_python"), metavar="PYTHON", help="A Python that has the toolkit; this one by default."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Start of the shuffle of the dataset's rows.", min=0)] = 0,
    keep_order: Annotated[
        bool, typer.Option(*_names("keep_order"), help="Send the rows in the file's order, as the toolkit does.")
    ] = False,
    remove_older_jobs: Annotated[
        bool,
        typer.Option(*_names("remove_older_jobs"), help="Remove older jobs of the mode, as the toolkit does unasked."),
    ] = False,
    no_plots: Annotated[bool, typer.Option(*_names("no_plots"), help="Write no pictures.")] = False,
    no_write: Annotated[bool, typer.Option(*_names("no_write"), help="Write nothing, only print.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")
    ] = False,
) -> None:
    """How many GPUs by a line through p95 values? The toolkit's calculator, with its flags and its files.

    Exit code 0 when every target has its number, 1 when the levels give no line (R² below 0.7, fewer than two
    levels), 2 when the line cannot answer the target or something was used wrongly. All that is known is printed
    and written in each case.

    Example: workbench sizing calc --offline_mode --calc_output_dir out --target_workflow_runtime 10 --target_users 100
    --test_gpu_count 8
    """
    from workbench.sizing.calculator.calc_options import Options
    from workbench.sizing.calculator.calculate import run
    from workbench.sizing.calculator.calculation import Goal
    from workbench.terminal import say

    ignored = {
        "--config_file": config_file,
        "--concurrencies": concurrencies,
        "--num_passes": num_passes,
        "--endpoint": endpoint,
        "--endpoint_timeout": endpoint_timeout,
        "--target_confirm": target_confirm,
        "--header_env": header_env,
        "--server_clock": server_clock or None,
        "--nat_python": nat_python,
        "--keep_order": keep_order or None,
    }
    options = Options(
        output_dir=calc_output_dir,
        goal=Goal(target_llm_latency, target_workflow_runtime, target_users, test_gpu_count),
        offline=offline_mode,
        config_file=config_file,
        concurrencies=_levels(concurrencies),
        num_passes=num_passes or 0,
        append=append_calc_outputs,
        endpoint=endpoint,
        endpoint_timeout_s=300 if endpoint_timeout is None else endpoint_timeout,
        target_confirm=target_confirm,
        header_env=_headers(header_env),
        server_clock=server_clock,
        nat_python=nat_python,
        seed=None if keep_order else seed,
        remove_older=remove_older_jobs,
        write=not no_write,
        plots=not no_plots,
    )
    done = run(options, report=lambda line: say(line, err=True))
    if offline_mode:
        _tell_ignored([name for name, value in ignored.items() if value is not None], done)
    _print(done, options, as_json=as_json)
    raise typer.Exit(done.exit_code)


def _levels(text: str | None) -> tuple[int, ...] | None:
    """Numbers between commas; empty places are passed over, as the toolkit does."""
    from workbench.errors import ConfigError

    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        odd = next(part for part in parts if not part.lstrip("+-").isdecimal())
        raise ConfigError(
            "no load", where="--concurrencies", found=odd[:40], allowed="whole numbers: 1,2,4,8"
        ) from None


def _headers(texts: list[str] | None) -> dict[str, str]:
    from workbench.errors import ConfigError

    pairs = [text.partition("=") for text in texts or []]
    if not all(name.strip() and variable.strip() for name, _, variable in pairs):
        # What stands there may be a secret that was meant for the header: it is not repeated.
        raise ConfigError("not a header and a variable", where="--header_env", allowed="HEADER=VARIABLE")
    return {name.strip(): variable.strip() for name, _, variable in pairs}


def _tell_ignored(names: list[str], done: Calculated) -> None:
    if names:
        done.notices.append(f"ignored offline: {', '.join(names)} (all recorded levels are used)")


def _print(done: Calculated, options: Options, *, as_json: bool) -> None:
    from workbench.sizing.calculator import calc_table
    from workbench.terminal import say

    if as_json:
        typer.echo(_document(done))
        return
    for line in calc_table.lines(done.calculation):
        say(line)
    for notice in done.notices:
        say(f"note: {notice}", err=True)
    for path in done.paths:
        say(f"wrote {path}", err=True)
    if options.write and options.output_dir is None:
        say("note: nothing written: no --calc_output_dir", err=True)


def _document(done: Calculated) -> str:
    import orjson

    document: dict[str, Any] = {
        "output": done.output.model_dump(mode="json"),
        **done.document(),
        "folder": str(done.folder) if done.folder else None,
        "paths": [str(path) for path in done.paths],
        "exit_code": done.exit_code,
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
