"""`workbench lore replay` and `workbench lore verify`: run an operator alone, in this fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import FieldOption, OptionValues, take_options_from
from workbench.lore.commands.lore_options import REPLAY_FLAGS, Folder

if TYPE_CHECKING:
    from workbench.lore.replays.operator_replay import ReplayResult

_OPTIONS = "workbench.lore.replays.operator_replay:ReplayOptions"
_TOLERANCE = FieldOption(min=0, max=1)


@take_options_from(
    _OPTIONS,
    "folder partition repeat tight budget_s confs confs_a confs_b engine profile profile_to tolerance trust master "
    "driver_memory",
    {**REPLAY_FLAGS, "repeat": FieldOption(min=0), "tight": FieldOption(min=0, max=1), "tolerance": _TOLERANCE},
    defaults="model",
)
def replay(given: OptionValues, folder: Folder, as_json: JsonFlag = False) -> None:
    """Run a dumped operator alone: verify its output, then time it without the time to read its inputs.

    With --a and --b two sets of settings are compared, with --engine comet plain Spark and Comet: both outputs are
    compared, runs alternate, and the ratio comes with its interval.

    Exit code 0 when the output is the expected one, 1 when not (or when the engine left the operator to Spark), 2
    when the dump was refused.

    Example: workbench lore replay dumps/q/loreId-9 --repeat 5
    """
    _run_replay(folder, given, as_json=as_json)


@take_options_from(
    _OPTIONS,
    "folder partition confs tolerance trust master driver_memory",
    {"partition": REPLAY_FLAGS["partition"], "confs": REPLAY_FLAGS["confs"], "tolerance": _TOLERANCE},
    defaults="model",
)
def verify(given: OptionValues, folder: Folder, as_json: JsonFlag = False) -> None:
    """Check that a dumped operator gives its original output: PASS (0), FAIL (1) with differing rows, refused (2).

    Example: workbench lore verify dumps/q/loreId-9
    """
    given["repeat"] = 0
    _run_replay(folder, given, as_json=as_json)


def _run_replay(folder: str, given: OptionValues, *, as_json: bool) -> None:
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.lore.replays.operator_replay import ReplayOptions, replay_dump

    options = given.build_model(ReplayOptions)
    with show_progress_count("replay") as on_progress:
        result = replay_dump(folder, options, report=lambda line: print_text(line, err=True), on_progress=on_progress)
    finish_command(lambda: _print_result(result), result, as_json=as_json, is_valid=result.passed)


def _print_result(found: ReplayResult) -> None:
    """The answer first, then what it rests on."""
    from workbench.console.terminal import print_text
    from workbench.lore import tables
    from workbench.report.display import table

    print_text(f"loreId {found.lore_id}, {found.operator}\n{found.answer}")
    for note in found.notes:
        print_text(f"note: {note}")
    if found.verification["differing_column"]:
        print_text(found.verification["differing_column"])
    for title, rows in (("missing", found.verification["missing"]), ("not expected", found.verification["extra"])):
        for row in rows:
            print_text(f"  {title}: {row[:400]}")
    if found.not_accelerated:
        print_text(f"not accelerated: {found.not_accelerated}")
    if found.comparison is not None:
        for side, rows in (("A", found.comparison["only_a"]), ("B", found.comparison["only_b"])):
            for row in rows:
                print_text(f"  only in {side}: {row[:400]}")
    if found.sides:
        for one in found.sides:
            print_text(_format_time(one))
        frame = tables.SIDES.frame(found.sides)
        shown = frame.select(column for column in frame.columns if frame[column].null_count() < frame.height)
        print_text(table(shown, tables.SIDES, caption="Time of the operator").text)
    if found.ratio and found.ratio["estimate"] is not None:
        ends = (
            f"[{found.ratio['low']:.2f}, {found.ratio['high']:.2f}]"
            if found.ratio["low"] is not None
            else "no interval"
        )
        print_text(f"A's CPU time by B's: {found.ratio['estimate']:.2f} {ends}, {found.verdict}")
    if found.comparison is not None or found.not_accelerated:
        for side, plan in found.plans.items():
            print_text(f"\nplan of {side}:\n{plan.rstrip()}")
    if found.metrics:
        shown = tables.METRICS.frame(found.metrics)
        print_text(table(shown, tables.METRICS, caption="Spark's metrics of the last run", limit=30).text)
    if found.profile:
        print_text(f"profile: {found.profile}")


def _format_time(side: dict[str, Any]) -> str:
    """The CPU time of a side with its interval, the elapsed one where there is none, or what it is below."""
    for word, name, suffix in (("CPU time", "operator_cpu_s", "cpu_s"), ("elapsed time", "operator_s", "s")):
        value, low, high = side[name], side[f"low_{suffix}"], side[f"high_{suffix}"]
        if value is not None:
            ends = "no interval" if low is None else f"90 % interval {low:.3g} to {high:.3g}"
            return f"{side['side']}: {value:.3g} s of {word} ({ends}; {side['n']} runs)"
        if (below := side[f"below_{suffix}"]) is not None:
            return f"{side['side']}: {word} not resolved: below {1e3 * below:.3g} ms ({side['n']} runs)"
    return f"{side['side']}: time not resolved ({side['n']} runs)"
