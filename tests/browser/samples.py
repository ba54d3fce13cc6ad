"""A report with every ready-made chart, from tables made here; its notebook is built, not executed, for speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import polars as pl
from nbformat import v4

from workbench import charts, report
from workbench.charts import renderer, theme
from workbench.report import page
from workbench.runs import run_folder

OPERATORS = [
    "Filter",
    "Project",
    "HashAggregate",
    "SortMergeJoin",
    "Sort",
    "Exchange",
    "a name that is far too long for any axis label to show whole",
]


def factors() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "operator": OPERATORS,
            "speedup_ratio": [5.1, 4.0, 3.2, 2.4, 1.6, 1.05, 0.6],
            "ci_low": [4.2, 3.1, 2.9, 2.0, 1.2, 0.9, None],
            "ci_high": [6.1, 5.0, 3.6, 2.9, 2.0, 1.3, None],
            "n": [12, 12, 10, 8, 5, 5, 1],
            "told_apart": [True, True, True, True, True, False, None],
        }
    )


def latencies(count: int = 400) -> pl.DataFrame:
    random = np.random.default_rng(7)
    values = np.concatenate([random.lognormal(3, 0.5, count), random.lognormal(3.6, 0.6, count)])
    return pl.DataFrame({"latency_ms": values, "engine": ["gpu"] * count + ["cpu"] * count})


def stages(count: int = 40) -> pl.DataFrame:
    random = np.random.default_rng(3)
    start = random.uniform(0, 50, count)
    return pl.DataFrame(
        {
            "start_s": start,
            "end_s": start + random.exponential(4, count),
            "executor": [f"executor {index % 4}" for index in range(count)],
            "status": [("succeeded", "succeeded", "failed")[index % 3] for index in range(count)],
            "stage_id": list(range(count)),
        }
    )


def cells() -> pl.DataFrame:
    random = np.random.default_rng(5)
    rows = [
        {
            "query": f"q{query}",
            "operator": name,
            "duration_s": None if (query + len(name)) % 7 == 0 else float(random.exponential(3)),
            "n": query + 1,
        }
        for query in range(6)
        for name in OPERATORS[:5]
    ]
    return pl.DataFrame(rows)


def levels() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "concurrency": [1, 2, 4, 8, 16] * 2,
            "p95_ms": [20.0, 22, 30, 55, 140, 30, 40, 70, 150, 400],
            "low_ms": [18.0, 20, 27, 50, 110, 27, 35, 60, 130, None],
            "high_ms": [22.0, 25, 33, 60, 180, 33, 45, 80, 170, None],
            "engine": ["gpu"] * 5 + ["cpu"] * 5,
        }
    )


def ranked(count: int = 30) -> pl.DataFrame:
    values = np.random.default_rng(2).exponential(100, count)
    return pl.DataFrame({"operator": [f"operator {index}" for index in range(count)], "time_s": values})


def steps() -> pl.DataFrame:
    """Two queries from a baseline of 10 s to a prediction; in the second something gets slower."""
    rows = [
        ("q1", "cpu", 10.0, 10.0, "baseline", True, None, None),
        ("q1", "Sort", -6.0, 4.0, "faster", False, None, None),
        ("q1", "Filter", -1.0, 3.0, "faster", False, None, None),
        ("q1", "predicted", 3.0, 3.0, "predicted", True, 2.0, 4.5),
        ("q1", "measured", 3.2, 3.2, "measured", True, None, None),
        ("q2", "cpu", 0.4, 0.4, "baseline", True, None, None),
        ("q2", "Join", 0.1, 0.5, "slower", False, None, None),
        ("q2", "predicted", 0.5, 0.5, "predicted", True, 0.3, 0.9),
    ]
    names = ["query", "what", "time_s", "end_s", "kind", "total", "low_s", "high_s"]
    return pl.DataFrame(rows, schema=names, orient="row")


def predictions(count: int = 12) -> pl.DataFrame:
    random = np.random.default_rng(11)
    actual = random.lognormal(0, 1, count)
    parts = []
    for name, spread in (("ours", 0.15), ("constant", 0.5)):
        predicted = actual * random.lognormal(0, spread, count)
        one = pl.DataFrame({"query": [f"q{index}" for index in range(count)], "actual_s": actual})
        parts.append(
            one.with_columns(
                predicted_s=pl.Series(predicted),
                low_s=pl.Series(predicted * 0.7),
                high_s=pl.Series(predicted * 1.4),
                predictor=pl.lit(name),
                worst=pl.Series([name == "ours" and index < 2 for index in range(count)]),
            )
        )
    return pl.concat(parts)


def all_pieces() -> dict[str, Any]:
    return {
        "forest": charts.forest(
            factors(),
            title="Joins gain most",
            label="operator",
            estimate="speedup_ratio",
            low="ci_low",
            high="ci_high",
            n="n",
            told_apart="told_apart",
        ),
        "timeline": charts.timeline(
            stages(),
            title="Stages over time",
            start="start_s",
            end="end_s",
            lane="executor",
            category="status",
            details=("stage_id",),
        ),
        "ecdf": charts.ecdf(latencies(), title="Latency by engine", value="latency_ms", group="engine", slo=100),
        "heatmap": charts.heatmap(
            cells(), title="Where queries spend time", x="query", y="operator", value="duration_s", count="n"
        ),
        "ladder": charts.ladder(
            levels(),
            title="p95 by load",
            level="concurrency",
            value="p95_ms",
            low="low_ms",
            high="high_ms",
            variant="engine",
            slo=100,
        ),
        "bars": charts.bars(ranked(), title="Largest operators", label="operator", value="time_s"),
        "waterfall": charts.waterfall(
            steps(),
            title="From one time to the other",
            label="what",
            change="time_s",
            end="end_s",
            category="kind",
            total="total",
            case="query",
            low="low_s",
            high="high_s",
        ),
        "scatter": charts.scatter(
            predictions(),
            title="Predicted against measured",
            x="actual_s",
            y="predicted_s",
            label="query",
            low="low_s",
            high="high_s",
            group="predictor",
            hidden=("constant",),
            named="worst",
        ),
    }


def many_points(count: int = 6_000) -> dict[str, Any]:
    """A chart of somebody else's, with more rows than a drawing of elements should have."""
    random = np.random.default_rng(1)
    rows = [{"a": float(x), "b": float(y)} for x, y in random.normal(size=(count, 2))]
    encoding = {"x": {"field": "a", "type": "quantitative"}, "y": {"field": "b", "type": "quantitative"}}
    return {
        "data": {"values": rows},
        "mark": "point",
        "encoding": encoding,
        "title": "Many points",
        "config": theme.build_vega_config(),
    }


def shown(thing: Any) -> Any:
    """What a cell's output holds when it ends with `thing`."""
    if isinstance(thing, dict):
        data = renderer.build_mime_bundle(thing)
    elif hasattr(thing, "to_dict"):
        data = renderer.build_mime_bundle(thing.to_dict())
    else:
        data = thing._repr_mimebundle_()
    return v4.new_output("display_data", data=data)


def write_run(folder: Path, cells: list[Any], *, area: str = "speedup", **ending: Any) -> Path:
    """A run folder as the runner leaves it, before its report is made."""
    run = run_folder.start_run(
        area, folder, title="Untitled", notebook=f"01_{area}.ipynb", config={"top_operators": 10}
    )
    nbformat.write(v4.new_notebook(cells=cells), run.folder / "report.ipynb")
    if "verdict" in ending:
        run.conclude(ending["verdict"], ending.get("reasons", ()), ending.get("answer"))
    run.end(ending.get("status", "succeeded"), ending.get("failure"))
    return run.folder


def write_sample_report(folder: Path) -> Path:
    theme.enable_theme()
    answer = "The accelerator is 2.4 times faster (90 % interval 2.1 to 2.8)."
    said = report.headline(
        answer=answer, verdict="valid", key_numbers=[("Speedup", 2.41, "×", "n = 22"), ("Failed queries", 0)]
    )
    pieces = [v4.new_code_cell(f"charts.{name}(…)", outputs=[shown(chart)]) for name, chart in all_pieces().items()]
    notebook = [
        v4.new_markdown_cell("# How much faster will my jobs run?\n\nIn: event logs. Out: a factor."),
        v4.new_code_cell("report.headline(…)", outputs=[shown(said)]),
        *pieces,
        v4.new_code_cell("many_points()", outputs=[shown(many_points())]),
        v4.new_markdown_cell("## Checks"),
        v4.new_code_cell("report.table(factors)", outputs=[shown(report.table(factors(), caption="Factors"))]),
    ]
    return page.write_report(write_run(folder, notebook, verdict="valid", answer=answer))
