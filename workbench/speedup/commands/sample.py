"""`workbench speedup sample`: correct predictions by runs on slices of the tables."""

from __future__ import annotations

from workbench.console.finish import JsonFlag, finish_command
from workbench.console.options import OptionValues, take_options_from
from workbench.console.terminal import print_block, print_text
from workbench.core.field_options import FieldOption


@take_options_from(
    "workbench.speedup.config:SampleConfig",
    options={"engines": "engine", "queries": FieldOption(flags=("--queries", "--suite"))},
    defaults="model",
)
def sample(settings: OptionValues, as_json: JsonFlag = False) -> None:
    """Run the longest queries of a log on slices of their tables, on both engines, and correct their predictions.

    The same share of the rows of each large table is taken, small tables are whole. What the factors get wrong on a
    slice, they are taken to get wrong on the whole. Exit code 1 when no sample counts, or one failed.

    Example: workbench speedup sample --baseline-log LOG --factors factors.json --suite tpcds --scale 10
    --budget 10% --out data/runs/sample

    Then: workbench speedup qualify LOG --factors factors.json --sample data/runs/sample
    """
    from workbench.report.display import table
    from workbench.speedup import tables
    from workbench.speedup.config import SampleConfig
    from workbench.speedup.sampling.query_sample import sample_queries, write_sample

    config = settings.build_model(SampleConfig)
    sampled = sample_queries(config, say=lambda text: print_text(text, err=True))
    write_sample(sampled, config)

    def print_sample() -> None:
        print_text(sampled.answer)
        for reason in sampled.reasons:
            print_text(reason)
        columns = ["query", "baseline_s", "log_share", "n_runs", "sample_ratio", "expected_ratio", "reason"]
        print_block(table(sampled.queries.select(columns), tables.SAMPLED_QUERIES, caption="Queries", limit=100).text)

    document = {
        "answer": sampled.answer,
        "reasons": sampled.reasons,
        "cost_s": sampled.cost_s,
        "run_s": sampled.run_s,
        "queries": sampled.queries.to_dicts(),
        "predictions": sampled.predictions.to_dicts(),
    }
    finish_command(print_sample, document, as_json=as_json, is_valid=not sampled.reasons, written=[config.out])
