"""`workbench lore run`: an operator over rows that you changed."""

from __future__ import annotations

from pathlib import Path

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.lore.commands.lore_options import REPLAY_FLAGS, Folder, parse_setting_flags


def _parse_inputs(texts: list[str], flag: str) -> dict[str, Path]:
    return {name: Path(path) for name, path in parse_setting_flags(texts, flag).items()}


@take_options_from(
    "workbench.lore.replays.operator_runs:RunOptions",
    options={
        "inputs": FieldOption("input", kind=list[str], metavar="input-N=FILE", parse=_parse_inputs),
        "confs": REPLAY_FLAGS["confs"],
        "out": FieldOption(metavar="FILE"),
        "show": FieldOption(min=0, max=1000),
    },
    defaults="model",
)
def run(option_values: OptionValues, folder: Folder, as_json: JsonFlag = False) -> None:
    """Run a dumped operator over rows that you changed, and show or keep what it gives.

    Take the rows of an input with lore.open(DUMP).inputs["input-0"], change them, write them with write_parquet.
    Rows are brought to the partitions and order that the operator needs.

    Exit code 0 when it ran, 1 when the operator failed, 2 when the dump or the rows were refused.

    Example: workbench lore run dumps/q/loreId-9 --input input-0=changed.parquet --out output.parquet
    """
    from workbench.console.terminal import print_text
    from workbench.lore.replays.operator_runs import RunOptions, run_operator

    options = option_values.build_model(RunOptions)
    result = run_operator(folder, options, report=lambda line: print_text(line, err=True))

    def print_result() -> None:
        print_text(f"loreId {result.lore_id}, {result.operator}\n{result.answer}")
        for note in result.notes:
            print_text(f"note: {note}")
        for row in result.rows:
            print_text(f"  {row[:400]}")
        if result.n_rows is not None and 0 < len(result.rows) < result.n_rows:
            print_text(f"  … and {result.n_rows - len(result.rows)} more")
        if result.out:
            print_text(f"written: {result.out}")

    finish_command(print_result, result, as_json=as_json, is_valid=result.failure is None)
