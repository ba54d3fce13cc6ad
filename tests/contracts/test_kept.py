"""What users of the day before the renaming keep goes on working, unchanged: notebooks, code of the guides, runs.

Old names may warn that they are deprecated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import documents, introspection, notebook_runs
from tests.lore.local_spark import MARKS, local

KEPT = Path(__file__).parent / "kept"
RUNS = sorted(path.name for path in (KEPT / "runs").iterdir())
CODE = sorted((KEPT / "guide_code").glob("*.py"))
NEEDS_SPARK = [path for path in CODE if path.stem.startswith("lore-")]
# A class for `workbench indicators recommend --unit`, which is no program.
UNIT = KEPT / "guide_code" / "indicators-units-1.py"


def with_spark(test: Any) -> Any:
    """The marks of a test that starts a Spark."""
    for mark in MARKS:
        test = mark(test)
    return test


pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


@pytest.mark.spark
@pytest.mark.notebook
@pytest.mark.timeout(900)
def test_the_kept_notebook_of_lore_runs(tmp_path: Path) -> None:
    # While it is today's, `make report` and nbval run it.
    if not notebook_runs.is_as_kept("02_lore"):
        notebook_runs.run(notebook_runs.place_kept(["02_lore"], tmp_path), tmp_path / "out")


@pytest.mark.notebook
@pytest.mark.timeout(900)
def test_a_notebook_that_was_made_from_the_kept_template_runs(tmp_path: Path) -> None:
    if not notebook_runs.is_as_kept("_template"):
        notebook_runs.run(notebook_runs.place_kept(["_template"], tmp_path), tmp_path / "out")


@pytest.mark.parametrize(
    "path", [path for path in CODE if path not in (*NEEDS_SPARK, UNIT)], ids=lambda path: path.stem
)
def test_kept_code_of_a_guide_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(documents.ROOT)
    names: dict[str, Any] = {}
    exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), names)
    # A block that ends in no table says itself what must hold.
    assert names["times"].height > 0 if "times" in names else "\nassert " in path.read_text(encoding="utf-8")


def test_a_kept_unit_takes_part_in_a_recommendation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(documents.ROOT)
    (tmp_path / "memory.py").write_text(UNIT.read_text(encoding="utf-8"), encoding="utf-8")
    words = f"{documents.SESSION} --mix sort=0.5,matmul=0.5 --unit {tmp_path / 'memory.py'}:SmallMemory"
    said = introspection.call_command(
        ["indicators", "recommend", *words.split(), "--out", str(tmp_path / "recommended"), "--json"]
    )
    assert said.code == 0, said.err
    assert re.search(r"needs \d+ MiB at its peak", said.out)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with local(spark__sql__shuffle__partitions="8") as found:
        yield found


@with_spark
def test_kept_code_of_the_guide_to_lore_runs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    left = spark.range(1000).selectExpr("id", "id % 7 AS k")
    names = {"spark": spark, "df": left.hint("merge").join(spark.range(100), "id").groupBy("k").count()}
    for path in NEEDS_SPARK:
        exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), names)
    assert "PASS" in capsys.readouterr().out
    assert (tmp_path / "dumps" / "nightly" / "loreId-9" / "plan.json").is_file()
    assert names["query"](spark).columns == ["n"]


@pytest.mark.parametrize("area", RUNS)
def test_a_kept_run_is_shown_and_is_no_other_than_itself(area: str) -> None:
    folder = str(KEPT / "runs" / area)
    shown = introspection.call_command(["runs", "show", folder, "--json"])
    assert (shown.code, json.loads(shown.out)["area"], json.loads(shown.out)["verdict"]) == (0, area, "valid")
    compared = introspection.call_command(["runs", "diff", folder, folder, "--json"])
    found = json.loads(compared.out)
    assert compared.code == 0
    assert found["counts"]["HIGHER"] == found["counts"]["LOWER"] == 0
    assert not [table for table in found["tables"] if table["only_baseline"] or table["only_candidate"]]
    record = json.loads((KEPT / "runs" / area / "run.json").read_text(encoding="utf-8"))
    assert {table["name"] for table in found["tables"]} == {table["name"] for table in record["tables"]}


def test_kept_runs_are_in_the_catalogue() -> None:
    found = introspection.list_kept_runs(KEPT / "runs")
    assert found == [{"area": area, "state": "succeeded", "verdict": "valid"} for area in RUNS]


# Tables of the kept runs that would have other values today, and why; their columns are the same.
CHANGED_VALUES = {
    "scaletest/sustained": "the low end of a rate rests on whole steps",
    "speedup/comparability": "the noise of the sessions is a row",
    "speedup/steps": "intervals hold the noise of the runs",
    "sizing/quantiles": "there are more metrics",
    "scaletest": "its notebook reads four schedulers by default, not two",
}


def test_kept_runs_have_the_tables_that_are_frozen() -> None:
    frozen = documents.ROOT / "tests" / "contracts" / "frozen" / "runs"
    for area in RUNS:
        described = json.loads((frozen / area / "tables.json").read_text(encoding="utf-8"))
        for path in sorted((KEPT / "runs" / area / "tables").glob("*.parquet")):
            now = described[path.stem]
            kept = notebook_runs.describe_table(area, path, now["key"])[0]
            added = set(now["columns"]) - set(kept["columns"])
            # A table may have grown since; then its rows may be others, too, and its digest is.
            now = now | {"columns": [one for one in now["columns"] if one not in added]}
            differs = added or {area, f"{area}/{path.stem}"} & CHANGED_VALUES.keys()
            grown = {name: kept[name] for name in ("sha256", "rows")} if differs else {}
            assert kept == now | grown, f"{area}/{path.stem}"


def test_a_kept_factor_model_predicts() -> None:
    model = KEPT / "runs" / "speedup" / "factors.json"
    log = documents.ROOT / documents.LOG
    said = introspection.call_command(["speedup", "qualify", str(log), "--factors", str(model), "--json"])
    assert said.code == 0, said.err
    assert len(json.loads(said.out)["applications"]) == 1


def test_what_is_kept_names_no_machine() -> None:
    texts = [path for path in KEPT.rglob("*") if path.suffix in (".json", ".ipynb", ".py")]
    found = {path.name for path in texts if re.search(r"(?<![\w.])/(?:home|root|tmp|work|mnt)/", path.read_text())}
    assert found == set()
