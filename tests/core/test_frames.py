"""People's frames: what charts, tables and runs make of pandas and Arrow is what they make of polars."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import workbench
from tests.conftest import ROOT
from tests.test_charts import PIECES
from workbench import charts, report, runs
from workbench.core.errors import ConfigError, InputError
from workbench.core.frames import convert_frame, takes_frames
from workbench.core.tables import Column, Table

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def list_rows(chart: Any) -> tuple[Any, list[Any]]:
    """A chart's spec without the names of its data, which are hashes of their text, and the data."""
    spec = chart.to_dict()
    datasets = list(spec.pop("datasets", {}).items())
    text = json.dumps(spec, sort_keys=True)
    for index, (name, _) in enumerate(datasets):
        text = text.replace(name, f"data-{index}")
    return json.loads(text), [rows for _, rows in datasets]


def to_pandas(value: Any) -> Any:
    return value.to_pandas() if isinstance(value, pl.DataFrame) else value


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.make.__name__)
def test_a_chart_of_pandas_is_that_of_polars(piece: Any) -> None:
    frame = piece.table()
    expected = list_rows(piece.draw(frame))
    assert list_rows(piece.draw(frame.to_pandas())) == expected
    assert list_rows(piece.draw(frame.to_arrow())) == expected
    assert list_rows(piece.draw(frame.lazy())) == expected


def iterate_chart_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions of the chart modules that take a frame."""
    folders = [path.parent for path in sorted((ROOT / "workbench").glob("*/charts*")) if path.suffix in ("", ".py")]
    places = [charts.__name__, *(f"workbench.{folder.name}.charts" for folder in folders)]
    for place in places:
        module = importlib.import_module(place)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            frames = "pl.DataFrame" in str(inspect.signature(function).parameters)
            if frames and (name in charts.__all__ or name.startswith("chart_")):
                yield f"{place}.{name}", function


def test_every_chart_takes_frames_of_pandas() -> None:
    found = dict(iterate_chart_functions())
    assert len(found) > 50
    assert [name for name, function in found.items() if not hasattr(function, "takes_frames")] == []


@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_charts_and_tables_of_a_notebook_are_the_same_from_pandas(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.stem == "02_lore":
        pytest.skip("its Spark session is a kernel's")
    drawn: list[str] = []

    def draw_twice(function: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            again = function(*map(to_pandas, args), **{name: to_pandas(value) for name, value in kwargs.items()})
            if hasattr(made, "to_dict"):
                assert list_rows(again) == list_rows(made), function.__name__
            elif hasattr(made, "text"):
                assert again.html == made.html
            drawn.append(function.__name__)
            return made

        return draw

    for found in pkgutil.walk_packages(workbench.__path__, "workbench."):
        if ".charts" in found.name or found.name.startswith("workbench.report"):
            importlib.import_module(found.name)
    for name, module in [pair for pair in sys.modules.items() if pair[0].startswith("workbench.")]:
        if "chart" in name or name.startswith("workbench.report"):
            for known, function in list(vars(module).items()):
                if hasattr(function, "takes_frames"):
                    monkeypatch.setattr(module, known, draw_twice(function))
    monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path))
    monkeypatch.chdir(ROOT / "notebooks")
    namespace: dict[str, Any] = {"display": lambda *_: None}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, path.name, "exec"), namespace)
    assert len(drawn) >= 3


def test_named_levels_of_an_index_become_columns_and_others_go() -> None:
    times = pd.DataFrame({"query": ["q1", "q1", "q2"], "side": ["a", "b", "a"], "wall_s": [1.0, 3.0, None]})
    by_query = convert_frame(times.groupby("query").mean(numeric_only=True), "bars")
    assert by_query.rows() == [("q1", 2.0), ("q2", None)]
    assert convert_frame(times[times.wall_s > 1], "bars").columns == ["query", "side", "wall_s"]
    assert convert_frame(times.groupby(["query", "side"])["wall_s"].max(), "bars").columns == [
        "query",
        "side",
        "wall_s",
    ]
    assert convert_frame(times.set_index("query", drop=False), "bars").columns == ["query", "side", "wall_s"]


def test_missing_values_of_pandas_are_null_and_types_stay() -> None:
    frame = pd.DataFrame(
        {
            "text": ["a", None],
            "category": pd.Categorical(["x", None]),
            "whole": pd.array([1, None], dtype="Int64"),
            "number": [1.5, float("nan")],
            "flag": pd.array([True, None], dtype="boolean"),
            "at": pd.to_datetime(["2026-01-02", None]),
        }
    )
    converted = convert_frame(frame, "bars")
    assert converted.null_count().row(0) == (1,) * 6
    assert [str(dtype).partition("(")[0] for dtype in converted.dtypes] == [
        "String", "Categorical", "Int64", "Float64", "Boolean", "Datetime",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"a": [1, 2], "b": [1, 2]}).groupby("a").agg({"b": ["min", "max"]}), "several levels"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "repeat"),
        (pd.DataFrame({"a": [1, "x"]}), "column a"),
        (pd.Index([1, 2]), "not a data frame"),
    ],
)
def test_a_frame_that_no_chart_can_draw_is_refused_with_advice(frame: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        charts.bars(frame, title="t", label="a", value="b")


def test_what_is_no_frame_is_passed_on() -> None:
    @takes_frames
    def name(frame: Any, other: Any = None) -> Any:
        return frame, other

    assert name([1], other="x") == ([1], "x")
    with pytest.raises(InputError, match="not a data frame"):
        charts.bars([{"a": 1}], title="t", label="a", value="a")  # type: ignore[arg-type]


FIGURES = Table(
    "figures",
    "Figures of an own notebook.",
    ("case",),
    (Column("case", "str", "Case."), Column("n", "int", "Runs.", nullable=True), Column("wall_s", "float", "Time.")),
)


def test_a_run_takes_tables_of_pandas_and_gives_both_kinds_back(tmp_path: Path) -> None:
    given = pd.DataFrame({"case": pd.Categorical(["a", "b"]), "n": [3, None], "wall_s": [1, 2]})
    run = runs.start_run("figures", tmp_path)
    run.write_table(FIGURES, given)  # type: ignore[arg-type]
    result = runs.open(run)
    expected = pl.DataFrame({"case": ["a", "b"], "n": [3, None], "wall_s": [1.0, 2.0]})
    assert_frame_equal(result.tables["figures"], expected)
    assert result.tables.pandas("figures")["wall_s"].tolist() == [1.0, 2.0]
    query = 'SELECT "case", wall_s * factor AS s FROM figures JOIN factors USING ("case")'
    assert result.tables.sql(query, factors=pd.DataFrame({"case": ["b"], "factor": [2]})).rows() == [("b", 4.0)]
    assert report.table(given, FIGURES).html == report.table(pl.from_pandas(given), FIGURES).html  # type: ignore[arg-type]
    run.end("succeeded")
    assert runs.open("figures", tmp_path).tables.describe()["table"].to_list() == ["figures"]
    assert "figures" in result.tables
    assert "others" not in result.tables


def test_a_table_of_pandas_with_another_type_is_refused(tmp_path: Path) -> None:
    run = runs.start_run("figures", tmp_path)
    with pytest.raises(InputError, match="another type"):
        run.write_table(FIGURES, pd.DataFrame({"case": ["a"], "n": [1.5], "wall_s": [1.0]}))  # type: ignore[arg-type]
    run.end("failed")


def test_a_notebook_checks_its_own_limits(tmp_path: Path) -> None:
    run = runs.start_run("figures", tmp_path)
    run.write_table(
        FIGURES, FIGURES.frame([{"case": "a", "n": 1, "wall_s": 3.0}, {"case": "b", "n": 2, "wall_s": 1.0}])
    )
    run.conclude("valid", answer="Two cases.")
    result = runs.open(run)
    checked = runs.check(
        result, [{"table": "figures", "column": "wall_s", "at_most": 2}, {"rows": "figures", "equals": 2}]
    )
    assert checked.select("outcome", "rows", "broken_rows").rows() == [("broken", 2, 1), ("passed", 1, 0)]
    (tmp_path / "rules.yaml").write_text(
        "figures: [{key: verdict, equals: valid}]\nspeedup: [{key: verdict, equals: valid}]"
    )
    assert runs.check(result, tmp_path / "rules.yaml")["outcome"].to_list() == ["passed"]
    with pytest.raises(ConfigError, match="not a file of thresholds"):
        runs.check(result, [{"column": "wall_s"}])


def test_sql_that_fails_names_the_tables(tmp_path: Path) -> None:
    run = runs.start_run("figures", tmp_path)
    run.write_table(FIGURES, FIGURES.frame([{"case": "a", "n": 1, "wall_s": 1.0}]))
    with pytest.raises(InputError, match="the SQL failed") as caught:
        runs.open(run).tables.sql("SELECT * FROM figure")
    assert "figures" in str(caught.value)
    with pytest.raises(InputError, match="no such table"):
        runs.open(run).tables["figure"]
    run.end("succeeded")


@pytest.mark.network
def test_pandas_3_draws_the_same(tmp_path: Path) -> None:
    """An environment with the newest pandas in place of the lock's."""
    subprocess.run(
        ["uv", "venv", "-q", "--system-site-packages", "--python", sys.executable, tmp_path / "v"], check=True
    )
    python = tmp_path / "v" / "bin" / "python"
    subprocess.run(["uv", "pip", "install", "-q", "--python", python, "pandas>=3"], check=True)
    code = "import pandas, pytest, sys; assert pandas.__version__[0] == '3'; sys.exit(pytest.main(sys.argv[1:]))"
    places = [path for path in sys.path if "site-packages" in path]
    environment = {"PYTHONPATH": ":".join([str(ROOT), str(next((tmp_path / "v").rglob("site-packages"))), *places])}
    arguments = ["-q", "-p", "no:cacheprovider", "-m", "not network and not notebook", str(Path(__file__))]
    done = subprocess.run([python, "-c", code, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
