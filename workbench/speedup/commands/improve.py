"""`workbench speedup improve`: settings that make a suite of queries faster, proven and with the way back."""

from __future__ import annotations

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.core.field_options import FieldOption


@take_options_from(
    "workbench.speedup.config:ImproveConfig",
    options={"queries": FieldOption(flags=("--queries", "--suite")), "tries": FieldOption(flags=("--try",))},
    units={"s": "S"},
    defaults="model",
)
def improve(settings: OptionValues, as_json: JsonFlag = False) -> None:
    """Try settings on a suite of queries, keep those that are proven faster, and write them with the way back.

    The suite is recorded as it is; its profile's advice, values around it and your own --try are tried in turn in one
    warm session, the best one by one until the verdict is FASTER, SLOWER or SAME, and what is kept is recorded in fresh
    sessions against the suite as it is, answers row for row. Nothing is applied: settings are those of sessions that
    it starts and ends. Run the same command again to go on after a stop. Exit code 1 when time ended before the proof.

    Example: workbench speedup improve --suite tpch --scale 0.1 --out data/runs/improve

    A setting of your own: workbench speedup improve --suite tpcds --scale 1 --try spark.sql.shuffle.partitions=64 --out
    data/runs/tuned
    """
    from workbench.report.display import table
    from workbench.speedup import tables
    from workbench.speedup.config import ImproveConfig
    from workbench.speedup.improvement.improvement import improve_suite

    config = settings.build_model(ImproveConfig)
    found = improve_suite(config, say=lambda text: print_text(text, err=True))
    changes = tables.TRIED_CHANGES.frame([change.model_dump() for change in found.state.changes])

    def print_improvement() -> None:
        print_text("\n".join([found.answer, *found.reasons]))
        if changes.height:
            print_block(table(changes, tables.TRIED_CHANGES, caption="Changes that were tried", limit=40).text)

    document: dict[str, object] = {
        "answer": found.answer,
        "verdict": found.verdict,
        "reasons": list(found.reasons),
        "improved": found.is_improved,
        "kept": found.state.kept,
        "ratio": found.state.ratio,
        "low": found.state.low,
        "high": found.state.high,
        "changes": changes.to_dicts(),
        "out": config.out,
    }
    finish_command(print_improvement, document, as_json=as_json, is_valid=not found.reasons, written=[config.out])
