"""`workbench lore replay` and `workbench lore verify`: run an operator alone, in this fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from workbench.console.finish import JsonFlag, finish_command, print_json
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.lore.commands.lore_options import REPLAY_FLAGS, Folders

if TYPE_CHECKING:
    from workbench.lore.replays.operator_replay import ReplayResult

_OPTIONS = "workbench.lore.replays.operator_replay:ReplayOptions"
_TOLERANCE = FieldOption(min=0, max=1)


@take_options_from(
    _OPTIONS,
    options={**REPLAY_FLAGS, "repeat": FieldOption(min=0), "tight": FieldOption(min=0, max=1), "tolerance": _TOLERANCE},
    defaults="model",
)
def replay(option_values: OptionValues, folders: Folders, as_json: JsonFlag = False) -> None:
    """Run a dumped operator alone: verify its output, then time it without the time to read its inputs.

    With --a and --b two sets of settings are compared, with --engine comet plain Spark and Comet: both outputs are
    compared, runs alternate, and the ratio comes with its interval. With --replan a join is planned anew on both sides,
    so that settings of joins, AQE and broadcasts are compared. Several dumps are replayed one after the other on
    one Spark, which starts once.

    Exit code 0 when the output is the expected one, 1 when not (or when the engine left the operator to Spark), 2
    when the dump was refused.

    Example: workbench lore replay dumps/q/loreId-9 --repeat 5
    """
    _run_replays(folders, option_values, as_json=as_json)


@take_options_from(
    _OPTIONS,
    "folders partition confs tolerance trust master driver_memory",
    {"partition": REPLAY_FLAGS["partition"], "confs": REPLAY_FLAGS["confs"], "tolerance": _TOLERANCE},
    defaults="model",
)
def verify(option_values: OptionValues, folders: Folders, as_json: JsonFlag = False) -> None:
    """Check that a dumped operator gives its original output: PASS (0), FAIL (1) with differing rows, refused (2).

    Example: workbench lore verify dumps/q/loreId-9 dumps/q/loreId-12
    """
    option_values["repeat"] = 0
    _run_replays(folders, option_values, as_json=as_json)


def _run_replays(folders: list[str], option_values: OptionValues, *, as_json: bool) -> None:
    """Replay one dump and print it in full, or several in one session with a line for each."""
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.core.errors import ConfigError, ExitCode, WorkbenchError
    from workbench.lore.replays.operator_replay import ReplayOptions, replay_dump
    from workbench.lore.spark_bridge.replay_session import keep_session

    options = option_values.build_model(ReplayOptions)

    def replay_folder(folder: str) -> ReplayResult:
        with show_progress_count("replay") as on_progress:
            return replay_dump(folder, options, report=lambda line: print_text(line, err=True), on_progress=on_progress)

    if len(folders) == 1:
        result = replay_folder(folders[0])
        finish_command(lambda: _print_result(result), result, as_json=as_json, is_valid=result.passed)
    if options.profile is not None:
        raise ConfigError("a profile is of one dump", where="--profile", do="give one dump, or omit --profile")
    results: list[ReplayResult] = []
    documents: list[object] = []
    with keep_session():
        for folder in folders:
            try:
                result = replay_folder(folder)
            except WorkbenchError as error:
                # The others are still replayed.
                print_text(f"{folder}: refused: {error}\n", err=True)
                documents.append({"folder": folder, "refused": str(error)})
                continue
            results.append(result)
            documents.append(result)
            if not as_json:
                print_text(folder)
                _print_result(result)
                print_text("")
    n_passed, n_refused = sum(result.passed for result in results), len(folders) - len(results)
    n_failed = len(results) - n_passed
    if as_json:
        print_json({"replays": documents})
    else:
        print_text(f"{len(folders)} dumps: {n_passed} PASS, {n_failed} not, {n_refused} refused")
    raise typer.Exit(ExitCode.WRONG_USE if n_refused else ExitCode.INVALID if n_failed else ExitCode.GOOD)


def _print_result(result: ReplayResult) -> None:
    """The answer first, then what it rests on."""
    from workbench.console.terminal import print_text
    from workbench.lore import tables
    from workbench.report.display import table

    print_text(f"loreId {result.lore_id}, {result.operator}\n{result.answer}")
    for note in result.notes:
        print_text(f"note: {note}")
    if result.verification["differing_column"]:
        print_text(result.verification["differing_column"])
    _print_rows({"missing": result.verification["missing"], "not expected": result.verification["extra"]})
    if result.not_accelerated:
        print_text(f"not accelerated: {result.not_accelerated}")
    if result.comparison is not None:
        _print_rows({"only in A": result.comparison["only_a"], "only in B": result.comparison["only_b"]})
    if result.sides:
        for times in result.sides:
            print_text(_format_time(times))
        frame = tables.SIDES.frame(result.sides)
        shown = frame.select(column for column in frame.columns if frame[column].null_count() < frame.height)
        print_text(table(shown, tables.SIDES, caption="Time of the operator").text)
    if result.sides and (ratio := result.ratio) and ratio["estimate"] is not None:
        ends = "no interval" if ratio["low"] is None else f"[{ratio['low']:.2f}, {ratio['high']:.2f}]"
        print_text(f"A's elapsed time by B's: {ratio['estimate']:.2f} {ends}, {result.verdict}")
    if result.comparison is not None or result.not_accelerated:
        for side, plan in result.plans.items():
            print_text(f"\nplan of {side}:\n{plan.rstrip()}")
    if result.metrics:
        metrics = tables.METRICS.frame(result.metrics)
        print_text(table(metrics, tables.METRICS, caption="Spark's metrics of the last run", limit=30).text)
    if result.profile:
        print_text(f"profile: {result.profile}")


def _print_rows(rows_by_title: dict[str, list[str]]) -> None:
    from workbench.console.terminal import print_text

    for title, rows in rows_by_title.items():
        for row in rows:
            print_text(f"  {title}: {row[:400]}")


def _format_time(side: dict[str, Any]) -> str:
    """Format a side's elapsed time with its interval, or the bound that it is below, then its CPU time."""
    n_runs = f"{side['n']} run{'s' if side['n'] > 1 else ''}"
    parts: list[str] = []
    for word, name, suffix in (("elapsed", "operator_s", "s"), ("of CPU time", "operator_cpu_s", "cpu_s")):
        value, low, high, below = side[name], *(side[f"{end}_{suffix}"] for end in ("low", "high", "below"))
        if value is not None:
            ends = "no interval" if low is None else f"90 % interval {low:.3g} to {high:.3g}"
            parts.append(f"{value:.3g} s {word} ({ends}{'' if parts else f'; {n_runs}'})")
        elif not parts:
            bound = "" if below is None else f": below {1e3 * below:.3g} ms"
            parts.append(f"elapsed time not resolved{bound} ({n_runs})")
    return f"{side['side']}: {', '.join(parts)}"
