"""Factor files: what is read and kept, and every way in which one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools import seed_factors


def reading(tmp_path: Path, text: str) -> dict[str, float]:
    path = tmp_path / "factors.csv"
    path.write_text(text)
    return seed_factors.read_factor_file(path)


def test_execs_expressions_and_learning_functions_are_read_and_kept(tmp_path: Path) -> None:
    factors = reading(tmp_path, "CPUOperator,Score\nFilterExec,2.5\nAbs,4\nKMeans-pyspark,8.86\n")
    assert factors == {"FilterExec": 2.5, "Abs": 4.0, "KMeans-pyspark": 8.86}
    seed_factors.write_factor_file(tmp_path / "again.csv", factors)
    assert seed_factors.read_factor_file(tmp_path / "again.csv") == factors


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    assert reading(tmp_path, "\ufeffCPUOperator,Score\r\nSortExec,1.5\r\n") == {"SortExec": 1.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "another header"),
        ("Operator,Factor\nFilterExec,2\n", "another header[\\s\\S]*Operator,Factor[\\s\\S]*CPUOperator,Score"),
        ("CPUOperator,Score\n", "no rows"),
        ("CPUOperator,Score\nFilterExec,nan\n", "line 2: FilterExec has nan, which is no finite number above 0"),
        ("CPUOperator,Score\nFilterExec,inf\n", "FilterExec has inf"),
        ("CPUOperator,Score\nFilterExec,0\n", "FilterExec has 0"),
        ("CPUOperator,Score\nFilterExec,-1\n", "FilterExec has -1"),
        ("CPUOperator,Score\nFilterExec,fast\n", "'fast', which is no number"),
        ("CPUOperator,Score\nFilterExec,1\nFilterExec,2\n", "line 3: FilterExec comes twice"),
        ("CPUOperator,Score\nFilterExec\n", "1 cells, not 2"),
        (
            "CPUOperator,Score\nSortMergeJionExec,2\n",
            "unknown operator 'SortMergeJionExec', nearest is SortMergeJoinExec",
        ),
        ("CPUOperator,Score\nqqqqqqqq,2\n", "unknown operator 'qqqqqqqq'"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reading(tmp_path, text)


def test_all_bad_rows_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2[\s\S]*line 3"):
        reading(tmp_path, "CPUOperator,Score\nFilterExec,0\nSortExec,nan\n")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such factor file"):
        seed_factors.read_factor_file(tmp_path / "nothing.csv")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "factors.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        seed_factors.read_factor_file(path)


def test_a_scan_of_exactly_one_is_written_as_a_little_more_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "factors.csv"
    warnings = seed_factors.write_factor_file(path, {"FileSourceScanExec": 1.0, "FilterExec": 1.0, "SortExec": 0.6})
    assert path.read_text() == "CPUOperator,Score\nFileSourceScanExec,1.01\nFilterExec,1.0\nSortExec,0.6\n"
    assert len(warnings) == 1
    assert warnings[0].startswith("FileSourceScanExec is written as 1.01")


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_no_finite_number_above_zero_is_never_written(tmp_path: Path, factor: float) -> None:
    with pytest.raises(InputError, match="no finite number above 0"):
        seed_factors.write_factor_file(tmp_path / "factors.csv", {"SortExec": factor})
    assert not (tmp_path / "factors.csv").exists()
