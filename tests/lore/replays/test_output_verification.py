"""Verdicts: the same, the same in another order, close, or different and then how."""

from __future__ import annotations

import json
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lore.local_spark import MARKS, dumped, sign_other_rows, signed_anew, verified
from tests.lore.replays.test_output_verification_fingerprint import of_frame
from workbench.core.errors import ConfigError
from workbench.lore.dumps.dump_folder import ExpectedError, PartitionPrint
from workbench.lore.replays.row_differences import are_frames_close, are_rows_close
from workbench.lore.trust import trust_check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = MARKS

PRINT = PartitionPrint(n_rows=1, hash_sum=1, hash_xor=1, ordered_sum=1)
HOURS = "SELECT k, hour(CAST(k * 3600 AS TIMESTAMP)) AS h FROM (SELECT /*+ REPARTITION(2) */ k FROM a)"
SUM = "SELECT s, sum(v / 3) AS x, count(*) AS n FROM a GROUP BY s"


@pytest.fixture(scope="module")
def sums(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(spark.sql(SUM), "root", tmp_path_factory.mktemp("sums") / "d")


def with_rows(folder: Path, target: Path, spark: SparkSession, sql: str) -> Path:
    """A copy of a dump whose kept output was changed as SQL over `kept` says, with its fingerprint, signed anew."""
    import shutil

    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.spark_bridge.spark_internals import connect_bridge

    shutil.copytree(folder, target)
    sidecar, found = trust_check.check_trust(folder), connect_bridge(spark)
    prints = {}
    for number in sidecar.output.fingerprint:
        paths = [str(folder / name) for name in sidecar.files if name.startswith(f"output/partition-{number}/")]
        for path in paths:
            (target / Path(path).relative_to(folder)).unlink()
        if not paths:
            prints[number] = sidecar.output.fingerprint[number]
            continue
        spark.read.parquet(*paths).coalesce(1).createOrReplaceTempView("kept")
        changed = spark.sql(sql).coalesce(1)
        changed.write.parquet(str(target / "new"))
        (target / f"output/partition-{number}").mkdir(exist_ok=True)
        next((target / "new").glob("part-*.parquet")).rename(target / f"output/partition-{number}/batch-0.parquet")
        shutil.rmtree(target / "new")
        prints[number] = of_frame(spark, changed)[0]
    (target / "plan.json").unlink()
    (target / ".crc").unlink(missing_ok=True)
    files = DumpStore(found, str(target)).list_entries(known={})
    output = sidecar.output.model_copy(update={"fingerprint": prints})
    signed_anew(target, sidecar.model_copy(update={"output": output, "files": files}))
    return target


def test_the_same_rows_pass(spark: SparkSession, sums: Path) -> None:
    found = verified(spark, sums)
    assert found.answer == "PASS (recomputed): 7 rows, row for row, compared with the operator recomputed at dump time"
    assert (found.row_for_row, found.missing, found.extra, found.differing, found.note) == (True, (), (), (), ())


def test_a_changed_value_fails_with_the_rows_of_both_sides(spark: SparkSession, sums: Path, tmp_path: Path) -> None:
    sql = "SELECT c0, c1, IF(c0 = 'n3', c2 + 1, c2) AS c2 FROM kept"
    found = verified(spark, with_rows(sums, tmp_path / "d", spark, sql))
    assert not found.passed
    assert found.row_for_row is False
    assert len(found.differing) == 1
    assert [json.loads(row)["n"] for row in found.missing] == [44]
    assert [json.loads(row)["n"] for row in found.extra] == [43]
    assert json.loads(found.missing[0])["s"] == "n3"
    assert found.differing_column == "the first column that differs is n: 44 and 43"
    assert (found.word, found.repeatable) == ("FAIL", True)
    assert found.answer == (
        f"FAIL: 7 rows where the operator recomputed at dump time gave 7; partitions that differ: {found.differing[0]}"
    )


def test_a_row_more_is_shown_as_missing(spark: SparkSession, sums: Path, tmp_path: Path) -> None:
    found = verified(spark, with_rows(sums, tmp_path / "d", spark, "SELECT * FROM kept UNION ALL SELECT * FROM kept"))
    assert not found.passed
    assert (found.n_expected, found.n_found) == (14, 7)
    assert len(found.missing) == 5, "the first five"
    assert found.extra == ()


def test_another_order_passes_and_is_not_row_for_row(spark: SparkSession, sums: Path, tmp_path: Path) -> None:
    found = verified(spark, with_rows(sums, tmp_path / "d", spark, "SELECT * FROM kept ORDER BY c0 DESC, c2"))
    assert found.passed
    assert found.row_for_row is False
    assert "the same rows in another order" in found.answer


def test_last_bits_pass_within_a_tolerance_only_and_say_so(spark: SparkSession, sums: Path, tmp_path: Path) -> None:
    folder = with_rows(sums, tmp_path / "d", spark, "SELECT c0, c1 * (1 + 1e-12D) AS c1, c2 FROM kept")
    close = verified(spark, folder, tolerance=1e-10)
    assert close.passed
    assert close.note == ("not bit for bit: equal within a relative tolerance of 1e-10",)
    assert not verified(spark, folder, tolerance=1e-14).passed
    assert not verified(spark, folder, tolerance=0).passed
    # A tolerance does not hide what is exact.
    sql = "SELECT c0, c1 * (1 + 1e-12D) AS c1, IF(c0 = 'n3', c2 + 1, c2) AS c2 FROM kept"
    assert not verified(spark, with_rows(sums, tmp_path / "exact", spark, sql), tolerance=0.5).passed


def test_sums_of_floats_may_differ_in_their_last_bits_and_the_verdict_says_within_what(
    spark: SparkSession, sums: Path, tmp_path: Path
) -> None:
    close = verified(
        spark, with_rows(sums, tmp_path / "close", spark, "SELECT c0, c1 * (1 + 1e-12D) AS c1, c2 FROM kept")
    )
    assert close.answer.startswith(
        "PASS (recomputed): 7 rows, floats equal within a relative tolerance of 1e-09, not bit for bit"
    )
    far = verified(spark, with_rows(sums, tmp_path / "far", spark, "SELECT c0, c1 * (1 + 1e-8D) AS c1, c2 FROM kept"))
    assert far.word == "FAIL"
    assert far.differing_column is not None
    assert far.differing_column.startswith("the first column that differs is x: ")


def test_an_operator_that_gives_other_rows_each_time_is_neither_passed_nor_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions

    draw = functions.udf(lambda k: __import__("random").random(), "double")
    frame = spark.sql("SELECT /*+ REPARTITION(2) */ k FROM a").select("k", draw("k").alias("x"))
    found = verified(spark, dumped(frame, "BatchEvalPython", tmp_path / "d"))
    assert (found.passed, found.word, found.repeatable) == (False, "UNDECIDED", False)
    assert "other rows in each run over the same inputs" in found.answer


NAN, INF = float("nan"), float("inf")
UNORDERED: list[list[tuple[Any, ...]]] = [
    [(1, 100.01), (1, 100.02), (1, 100.03)],
    # On a border between roundings to four digits.
    [(1000.5,), (1000.2,)],
    [(1, None), (1, NAN), (1, 2.0), (1, INF), (1, -INF), (1, -2.0), (None, 2.0), (None, None), (1, 0.0)],
    [("a", [1.5, None]), ("a", [1.5]), ("b", [1.5, NAN]), ("b", {"x": 1.5, "y": 2.5}), ("b", {"y": 2.5})],
    # The first float is the same but for its last bits, so that it orders the two sides differently.
    [(1 + i * 2e-16, float(i), ((40 - i) / 7, "s")) for i in range(1, 40)],
]


def shaken(value: Any, by: float = 2e-16) -> Any:
    if isinstance(value, float):
        return value * (1 + by)
    if isinstance(value, dict):
        return {key: shaken(item, by) for key, item in value.items()}
    return type(value)(shaken(item, by) for item in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("rows", UNORDERED)
def test_within_a_tolerance_the_order_of_rows_does_not_matter(rows: list[tuple[Any, ...]]) -> None:
    other = [shaken(row) for row in rows[::-1]]
    assert are_rows_close(rows, other, 1e-9)
    assert not are_rows_close(rows, other[1:], 1e-9)
    assert not are_rows_close(rows, [*other[1:], other[1]], 1e-9)
    assert not are_rows_close(rows, [shaken(row, 1e-6) for row in other], 1e-9)


def test_floats_of_one_row_belong_together_and_a_chain_is_paired_as_far_as_each_row_finds_a_close_one() -> None:
    rows = [(1.0, 2.0), (3.0, 4.0), (1.0, 4.0)]
    assert are_rows_close(rows, [rows[1], rows[2], rows[0]], 1e-9)
    assert not are_rows_close(rows[:2], [(1.0, 4.0), (3.0, 2.0)], 1e-9)
    rows = [(1.0, 5.0), (1.05, 4.0), (1.1, 4.5)]
    assert are_rows_close(rows, [(1.09, 5.0), *rows[1:]], 0.1)
    assert not are_rows_close(rows, [(1.09, 5.0), *rows[1:]], 0.01)


@given(st.lists(st.tuples(st.integers(0, 1), *[st.sampled_from([-1.0, 0.0, 1.0, 1.1, 1.2, 1.3])] * 2), max_size=5))
def test_true_means_that_rows_can_be_paired(rows: list[tuple[Any, ...]]) -> None:
    from itertools import permutations

    other = [(n, y, x) for n, x, y in rows]
    can = any(
        all(a[0] == b[0] and isclose(a[1], b[1], rel_tol=0.1) and isclose(a[2], b[2], rel_tol=0.1) for a, b in pairs)
        for pairs in (list(zip(rows, turned, strict=True)) for turned in permutations(other))
    )
    assert can or not are_rows_close(rows, other, 0.1)
    one, turned = [row[:2] for row in rows], [row[:2] for row in other]
    can = any(
        all(a[0] == b[0] and isclose(a[1], b[1], rel_tol=0.1) for a, b in zip(one, pairs, strict=True))
        for pairs in permutations(turned)
    )
    assert can == are_rows_close(one, turned, 0.1)


def test_without_kept_rows_there_is_no_tolerance_and_a_failure_says_how_to_see_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = dumped(spark.sql(HOURS), "root", tmp_path / "d", keep_output_rows=0)
    with pytest.raises(ConfigError, match=r"--tolerance(.|\n)*--keep-output-rows"):
        verified(spark, folder, tolerance=1e-9)
    sign_other_rows(folder)
    found = verified(spark, folder)
    assert not found.passed
    assert found.differing == (0, 1)
    assert "--keep-output-rows" in found.note[0]


def test_an_error_that_did_not_come_again_fails(spark: SparkSession, sums: Path, tmp_path: Path) -> None:
    folder = dumped(spark.sql(HOURS), "root", tmp_path / "d")
    sidecar = trust_check.check_trust(folder)
    error = ExpectedError(error_class="java.lang.ArithmeticException", message="by zero")
    output = sidecar.output.model_copy(update={"error": error, "fingerprint": {}, "kept": False})
    signed_anew(folder, sidecar.model_copy(update={"output": output}))
    found = verified(spark, folder)
    assert not found.passed
    assert found.answer == ("FAIL: the original failed with java.lang.ArithmeticException, and the replay did not fail")


def test_an_error_where_the_original_had_none_fails_with_it(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT k, IF(k = 7, raise_error('seven'), 1) AS x FROM (SELECT /*+ REPARTITION(2) */ k FROM a)"
    folder = dumped(spark.sql(sql), "root", tmp_path / "d")
    sidecar = trust_check.check_trust(folder)
    assert sidecar.output.error is not None
    assert "seven" in sidecar.output.error.message
    same = verified(spark, folder)
    assert same.passed
    assert same.answer.startswith("PASS (recomputed): the same error: ")
    output = sidecar.output.model_copy(update={"error": None, "fingerprint": {"0": PRINT, "1": PRINT}})
    signed_anew(folder, sidecar.model_copy(update={"output": output}))
    other = verified(spark, folder)
    assert not other.passed
    assert "the replay failed, and the original did not" in other.answer
    assert "seven" in other.answer


def test_maps_whose_keys_are_arrays_or_structs_are_compared_entry_by_entry(spark: SparkSession) -> None:
    def frame(value: float, *, turned: bool = False) -> DataFrame:
        entries = [f"array(1, 2), {value}D", "array(3), 7.0D"]
        pairs = ", ".join(reversed(entries) if turned else entries)
        return spark.sql(f"SELECT map({pairs}) m, array(struct(map(struct(1 x), {value}D) n)) a, map() e, 1 m")

    assert are_frames_close(frame(1.5), frame(1.5 + 1e-12, turned=True), 1e-9)
    assert not are_frames_close(frame(1.5), frame(1.6), 1e-9)
