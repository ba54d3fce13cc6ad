"""The qualification arithmetic of v24.08: golden files, built-in factors, and its rules on hand-made plans."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import eventlogs as fake
from tests.speedup.compat_rapids_tools import made
from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools import seed_factors
from workbench.speedup.compat_rapids_tools.estimates import ApplicationEstimate, estimate_application
from workbench.speedup.compat_rapids_tools.jvm_semantics import truncate_decimals
from workbench.speedup.compat_rapids_tools.qualification_output import estimate_applications, write_qualification
from workbench.speedup.compat_rapids_tools.seed_log import read_seed_logs
from workbench.speedup.rapids_facts import get_operator_scores

CASES = {"join": "rp_sql_eventlog", "dsv1": "eventlog_dsv1"}
FACTORS = {"ProjectExec": 3.0, "FilterExec": 5.0, "FileSourceScanExec": 2.0, "SortExec": 4.0}


def estimated(tmp_path: Path, tree: dict[str, Any], factors: dict[str, float] | None = None) -> ApplicationEstimate:
    path = tmp_path / "log"
    path.write_bytes(made.log(tree))
    return estimate_application(read_seed_logs(path)[0], factors or FACTORS)


def rows(text: str, *, without: str = "") -> list[list[str]]:
    """Sorted rows: the original's order is that of hashes of whole rows."""
    head, *found = csv.reader(io.StringIO(text))
    kept = [number for number, name in enumerate(head) if name != without]
    return [head, *sorted([row[number] for number in kept] for row in found)]


@pytest.mark.parametrize(("case", "log"), CASES.items())
def test_the_golden_files_are_written_cell_by_cell(
    golden: Path, logs: Path, tmp_path: Path, case: str, log: str
) -> None:
    found = estimate_applications(
        [logs / f"{log}.zstd"], seed_factors.read_factor_file(golden / case / "generatedScores.csv")
    )
    for path in write_qualification(found, tmp_path):
        ours, theirs = path.read_text(), (golden / case / "qual" / path.name).read_text()
        if path.name.endswith("_status.csv"):
            assert ours.splitlines()[0] == theirs.splitlines()[0]
        elif path.name.endswith(("_execs.csv", "_unsupportedOperators.csv")):
            assert rows(ours, without="ExecId") == rows(theirs, without="ExecId")
        else:
            assert ours == theirs, path.name


def test_nds_q72_with_the_built_in_on_premises_factors(logs: Path) -> None:
    (found,) = estimate_applications([logs / "nds_q72_dataproc_2_2.zstd"], get_operator_scores("onprem-a100"))
    assert round(found.estimate.estimated_ms, 2) == 55_295.07
    assert truncate_decimals(found.estimate.speedup_ratio) == 2.11
    assert found.factor == 3.94


def test_a_span_gets_the_plain_mean_of_its_operators_and_a_stage_that_of_its_execs(tmp_path: Path) -> None:
    found = estimated(tmp_path, made.plan())
    span, scan = found.plans[0].execs
    assert (span.factor, scan.factor) == (4.0, 2.0)
    assert [stage.factor for stage in found.stages] == [3.0]
    # 8 s, of which 5.5 s are covered by the job (1.5 to 7 s); all task time is supported.
    assert found.estimate.opportunity_ms == 5500
    assert found.estimate.estimated_ms == pytest.approx(5500 / 3 + 2500)
    assert found.estimate.recommendation == "Recommended"
    # An operator without a factor counts as one.
    assert estimated(tmp_path, made.plan(), {"FilterExec": 5.0}).plans[0].execs[0].factor == 3.0


def test_unsupported_operators_take_an_equal_share_of_the_stage(tmp_path: Path) -> None:
    scan = fake.plan("Scan json ", "FileScan json [a#1] Format: JSON, ReadSchema: struct<a:int>", metrics={3: "rows"})
    tree = fake.plan("Filter", "Filter isnotnull(a#1)", [scan], metrics={2: "rows"})
    (stage,) = estimated(tmp_path, tree).stages
    assert (stage.task_time_ms, stage.unsupported_ms, stage.transitions) == (200, 100, 1)


def test_an_expression_that_is_not_supported_takes_its_operator_with_it(tmp_path: Path) -> None:
    tree = fake.plan("Project", "Project [from_json(a#1) AS b#2, upper(a#1) AS c#3]", metrics={2: "rows"})
    (item,) = estimated(tmp_path, tree).plans[0].execs
    assert (item.supported, item.factor) == (False, 1.0)
    assert [found.name for found in item.unsupported] == ["from_json"]


def test_a_user_function_halves_the_factor_of_its_stage(tmp_path: Path) -> None:
    tree = fake.plan("Sort", "Sort [UDF(a#1) ASC], true, 0", metrics={2: "rows"})
    found = estimated(tmp_path, tree)
    assert found.plans[0].execs[0].udf
    assert [stage.factor for stage in found.stages] == [0.5]


def test_a_typed_dataset_is_not_supported(tmp_path: Path) -> None:
    tree = fake.plan("MapElements", "MapElements Main$$Lambda$12@1, obj#3", metrics={2: "rows"})
    (item,) = estimated(tmp_path, tree).plans[0].execs
    assert (item.supported, item.dataset, item.action) == (False, True, "IgnorePerf")


def test_column_to_row_counts_neither_for_nor_against(tmp_path: Path) -> None:
    scan = fake.plan("Scan parquet ", "FileScan parquet Format: Parquet, ReadSchema: struct<a:int>", metrics={3: "r"})
    inner = fake.plan("Filter", "Filter isnotnull(a#1)", [fake.plan("ColumnarToRow", children=[scan])], {2: "rows"})
    (stage,) = estimated(tmp_path, fake.plan("WholeStageCodegen (1)", children=[inner])).stages
    assert (stage.factor, stage.unsupported_ms) == (3.5, 0)


def test_an_operator_without_a_stage_takes_that_of_its_neighbour(tmp_path: Path) -> None:
    sort = fake.plan("Sort", "Sort [a#1 ASC NULLS FIRST], true, 0", metrics={2: "rows"})
    found = estimated(tmp_path, fake.plan("Project", "Project [a#1]", [sort]))
    assert [(stage.stage_id, stage.factor) for stage in found.stages] == [(0, 3.5)]


def test_without_any_metric_the_stages_of_the_querys_jobs_are_shared(tmp_path: Path) -> None:
    (stage,) = estimated(tmp_path, fake.plan("Sort", "Sort [a#1 ASC NULLS FIRST], true, 0")).stages
    assert (stage.estimated, stage.factor, stage.task_time_ms) == (True, 4.0, 200)


def test_an_operator_that_no_table_knows_is_said_aloud(tmp_path: Path) -> None:
    found = estimated(tmp_path, fake.plan("PhotonSort", metrics={2: "rows"}))
    assert found.warnings == ("operators that the support tables do not know count as unsupported: PhotonSort",)


def test_a_failed_query_makes_the_application_not_applicable(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        made.cpu().replace(b'{"Result":"JobSucceeded"}', b'{"Result":"JobFailed","Exception":{"Message":"no"}}')
    )
    assert estimate_application(read_seed_logs(path)[0], FACTORS).estimate.recommendation == "Not Applicable"


def test_an_accelerated_log_is_refused(gpu_log: Path) -> None:
    with pytest.raises(InputError, match="an accelerated run on the CPU side"):
        estimate_application(read_seed_logs(gpu_log)[0], FACTORS)


def test_files_that_are_there_are_not_overwritten(cpu_log: Path, tmp_path: Path) -> None:
    found = estimate_applications([cpu_log], FACTORS)
    write_qualification(found, tmp_path / "out")
    with pytest.raises(InputError, match="there is a qualification output already"):
        write_qualification(found, tmp_path / "out")


def test_the_most_promising_application_comes_first(cpu_log: Path, tmp_path: Path) -> None:
    slower = tmp_path / "slower"
    slower.write_bytes(made.cpu(name="slow", end_ms=90_000))
    assert [one.log.app_name for one in estimate_applications([slower, cpu_log], FACTORS)] == ["made", "slow"]
