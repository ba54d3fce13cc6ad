"""`workbench sizing calc`: slope-based estimation, with the flags of NVIDIA NeMo Agent Toolkit's `nat sizing calc`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workbench.console.finish import JsonFlag
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption

_ONLINE_FIELDS = (
    "config_file concurrencies num_passes endpoint endpoint_timeout_s target_confirm header_env server_clock nat_python"
)


def _option_names(*names: str) -> tuple[str, ...]:
    """Each name with underscores, as the toolkit has it, and with dashes."""
    return tuple(dict.fromkeys(f"--{spelling}" for name in names for spelling in (name, name.replace("_", "-"))))


def _flag(*names: str, **rules: Any) -> FieldOption:
    return FieldOption(names[0], _option_names(*names), **rules)


def _parse_levels(text: str, flag: str) -> tuple[int, ...]:
    """Parse numbers between commas; empty parts are skipped, as the toolkit does."""
    from workbench.core.errors import ConfigError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        odd = next(part for part in parts if not part.lstrip("+-").isdecimal())
        raise ConfigError("not a level", where=flag, found=odd[:40], allowed="whole numbers: 1,2,4,8") from None


_OPTIONS = {
    "config_file": _flag("config_file", "config", metavar="YAML", show_default=False),
    "offline": _flag("offline_mode"),
    "output_dir": _flag("calc_output_dir", "output_dir", metavar="DIR", show_default=False),
    "concurrencies": _flag("concurrencies", metavar="N,N,…", parse=_parse_levels, show_default="1 to 10"),
    "num_passes": _flag("num_passes", metavar="N", default=None, show_default=False),
    "append": _flag("append_calc_outputs", "append_jobs"),
    "endpoint": _flag("endpoint", "remote_endpoint", metavar="URL", show_default=False),
    "endpoint_timeout_s": _flag("endpoint_timeout", "remote_endpoint_timeout", kind=int, metavar="S"),
    "target_confirm": _flag("target_confirm", metavar="HOST"),
    "header_env": _flag("header_env", metavar="HEADER=VARIABLE", show_default=False),
    "server_clock": _flag("server_clock"),
    "nat_python": _flag("nat_python", metavar="PYTHON"),
    "seed": FieldOption(default=0, min=0),
    "remove_older": _flag("remove_older_jobs"),
    "plots": _flag("no_plots", kind=bool, default=False, parse=lambda value, _: not value, help="Write no pictures."),
    "write": _flag(
        "no_write", kind=bool, default=False, parse=lambda value, _: not value, help="Write nothing, only print."
    ),
}
Latency = Annotated[
    float,
    typer.Option(*_option_names("target_llm_latency"), metavar="S", help="Largest p95 of an LLM call, s; 0: none."),
]
Runtime = Annotated[
    float,
    typer.Option(*_option_names("target_workflow_runtime"), metavar="S", help="Largest p95 of a run, s; 0: none."),
]
TargetUsers = Annotated[int, typer.Option(*_option_names("target_users"), metavar="N", help="Users to serve.")]
TestGpus = Annotated[
    int, typer.Option(*_option_names("test_gpu_count"), metavar="N", help="GPUs that the levels are measured on.")
]
KeepOrder = Annotated[
    bool, typer.Option(*_option_names("keep_order"), help="Send the rows in the file's order, as the toolkit does.")
]


@take_options_from(
    "workbench.sizing.compat_nat.calculation:Options",
    options=_OPTIONS,
    groups={
        "Question": "target_llm_latency target_workflow_runtime target_users test_gpu_count offline",
        "Measurement": _ONLINE_FIELDS,
        "Output": "output_dir append remove_older plots write keep_order",
    },
    omit="goal rules",
)
def calc(
    option_values: OptionValues,
    target_llm_latency: Latency = 0.0,
    target_workflow_runtime: Runtime = 0.0,
    target_users: TargetUsers = 0,
    test_gpu_count: TestGpus = 0,
    keep_order: KeepOrder = False,
    as_json: JsonFlag = False,
) -> None:
    """Estimate GPUs by a line through p95 values: the toolkit's calculator, with its flags and files.

    Exit code 0 when every target has its number, 1 when the levels give no line (R² below 0.7, fewer than two
    levels), 2 when the line cannot answer the target or for wrong use. All results are printed and written in each
    case.

    Example: workbench sizing calc --offline_mode --calc_output_dir out --target_workflow_runtime 10 --target_users 100
    --test_gpu_count 8
    """
    import orjson

    from workbench.console.terminal import print_text
    from workbench.sizing.compat_nat import calc_outputs
    from workbench.sizing.compat_nat.calculation import CalcGoal, Options
    from workbench.sizing.compat_nat.calculator import run_calculation

    option_values["goal"] = CalcGoal(target_llm_latency, target_workflow_runtime, target_users, test_gpu_count)
    option_values |= {"seed": None} if keep_order else {}
    options = option_values.build_model(Options)
    result = run_calculation(options, report=lambda line: print_text(line, err=True))
    ignored = [option_values.flags[name] for name in _ONLINE_FIELDS.split() if name in option_values] + [
        "--keep_order"
    ] * keep_order
    if options.offline and ignored:
        result.notices.append(f"ignored offline: {', '.join(ignored)} (all recorded levels are used)")
    if as_json:
        document = {
            "output": result.output.model_dump(mode="json"),
            **result.to_document(),
            "folder": str(result.folder) if result.folder else None,
            "paths": [str(path) for path in result.paths],
            "exit_code": result.exit_code,
        }
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())
        raise typer.Exit(result.exit_code)
    for line in calc_outputs.format_calculation(result.calculation):
        print_text(line)
    for notice in result.notices:
        print_text(f"note: {notice}", err=True)
    for path in result.paths:
        print_text(f"wrote {path}", err=True)
    if options.write and options.output_dir is None:
        print_text("note: nothing written: no --calc_output_dir", err=True)
    raise typer.Exit(result.exit_code)
