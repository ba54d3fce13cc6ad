"""`workbench lore bisect`: the smallest input with which an operator still fails, or two sides still differ."""

from __future__ import annotations

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.core.field_options import FieldOption
from workbench.lore.commands.lore_options import REPLAY_FLAGS, Folder


@take_options_from(
    "workbench.lore.bisection.input_bisection:BisectOptions",
    options={
        **REPLAY_FLAGS,
        "check": FieldOption(metavar="FUNCTION"),
        "sql_check": FieldOption(metavar="SQL"),
        "no_nulls": FieldOption(kind=list[str], metavar="COLUMN"),
        "unique": FieldOption(kind=list[str], metavar="COLUMN"),
        "journal": FieldOption(metavar="FILE"),
        "out": FieldOption(metavar="DIR"),
        "max_steps": FieldOption(min=1),
        "show": FieldOption(min=0, max=1000),
    },
    defaults="model",
)
def bisect(option_values: OptionValues, folder: Folder, as_json: JsonFlag = False) -> None:
    """Find the smallest input with which a dumped operator fails as it did, or two sides differ.

    Partitions, batches and rows are left out by halves, and what is left must give the same error (class and message)
    or, with --a, --b or --engine, different rows on both sides, or an output that a check of yours calls wrong. In the
    end no single row can be left out. A check is a function of the output as a polars table that returns False or the
    failing rows, a SQL condition of wrong rows, or a ready one: --no-nulls, --unique, --row-count.

    Exit code 0 when it was found, 1 when the failure or difference did not reproduce (with the reason), 2 when the
    dump was refused.

    Example: workbench lore bisect dumps/failed/loreId-3 --out dumps/smallest
    """
    from workbench.console.terminal import print_text, show_progress_count
    from workbench.lore.bisection.input_bisection import BisectOptions, bisect_dump

    options = option_values.build_model(BisectOptions)
    with show_progress_count("rows left out") as on_progress:
        result = bisect_dump(folder, options, report=lambda line: print_text(line, err=True), on_progress=on_progress)

    def print_result() -> None:
        print_text(f"loreId {result.lore_id}, {result.operator}\n{result.answer} ({result.steps} steps)")
        print_text(f"looked for: {result.looked_for}")
        for name, outcome in result.sides.items():
            print_text(f"  {name}: {outcome}")
        for note in result.notes:
            print_text(f"note: {note}")
        for subset in result.inputs:
            print_text(
                f"input-{subset['index']} ({subset['kind']}): {subset['n_rows']} of {subset['n_rows_dumped']} rows"
            )
            for row in subset["rows"]:
                print_text(f"  partition {row['partition']}, row {row['row']}: {row['values']}")
            if subset["rows"] and len(subset["rows"]) < subset["n_rows"]:
                print_text(f"  … and {subset['n_rows'] - len(subset['rows'])} more")
        for side, rows in (("A", result.only_a), ("B", result.only_b)):
            for row in rows:
                print_text(f"  only in {side}: {row[:400]}")
        if result.out:
            word = {True: "verified", False: "which does NOT verify", None: "not verified"}[result.verified]
            print_text(f"\nreduced dump, {word}: {result.out.removeprefix('file:')}")

    finish_command(print_result, result, as_json=as_json, is_valid=result.reproduced)
