"""Two runs compared: rows matched by their key, ratios with intervals, verdicts that chance seldom makes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from tests.fakes.kept_runs import FACTORS, Rows, kept
from workbench.core import redaction
from workbench.core.errors import ConfigError, InputError
from workbench.core.files import OUT_VARIABLE
from workbench.core.tables import Column, Table
from workbench.report import display
from workbench.runs import catalogue, compare, compare_page, differences, run_folder
from workbench.runs.columns import find_interval_columns


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def two(tmp_path: Path, before: Rows, after: Rows, **options: Any) -> compare.Comparison:
    sides = [catalogue.open_run(kept(tmp_path, rows).folder) for rows in (before, after)]
    return compare.compare_runs(*sides, **options)


def table_of(found: compare.Comparison, name: str = "factors") -> compare.TableDiff:
    return next(table for table in found.tables if table.name == name)


BEFORE: Rows = [("Filter", 2.0, 1.9, 2.1), ("Sort", 2.0, 1.9, 2.1), ("Join", 2.0, 1.99, 2.01), ("Gone", 1.0, 0.9, 1.1)]
AFTER: Rows = [("New", 1.0, 0.9, 1.1), ("Join", 2.0, 1.99, 2.01), ("Filter", 4.0, 3.8, 4.2), ("Sort", 1.0, 0.9, 1.1)]


def test_rows_are_matched_by_their_key_whatever_their_order(tmp_path: Path) -> None:
    table = table_of(two(tmp_path, BEFORE, AFTER))
    assert (table.key, table.rows) == (("operator",), 3)
    assert (table.only_baseline, table.only_candidate) == (("Gone",), ("New",))


def test_ratios_and_verdicts_are_those_worked_by_hand(tmp_path: Path) -> None:
    found = two(tmp_path, BEFORE, AFTER)
    by_row = {one.row: one for one in table_of(found).contrasts}
    assert {name: one.verdict for name, one in by_row.items()} == {"Filter": "HIGHER", "Sort": "LOWER", "Join": "SAME"}
    assert by_row["Filter"].ratio.estimate == pytest.approx(2.0)
    # Both halves are about ln 1.05: together their root of 2, 0.0724 down and 0.0708 up.
    down = math.hypot(math.log(4.0 / 3.8), math.log(2.1 / 2.0))
    assert by_row["Filter"].ratio.low == pytest.approx(2.0 * math.exp(-down))
    assert found.counts == {"HIGHER": 1, "LOWER": 1, "UNDECIDED": 0, "SAME": 1, "EQUAL": 0}


def test_a_run_compared_with_itself_differs_in_nothing(tmp_path: Path) -> None:
    run = catalogue.open_run(kept(tmp_path, BEFORE).folder)
    found = compare.compare_runs(run, run)
    table = table_of(found)
    assert (found.facts, table.changes, table.only_baseline) == ((), (), ())
    assert found.counts["HIGHER"] + found.counts["LOWER"] == 0
    assert all(one.ratio.estimate == 1.0 for one in table.contrasts)


def test_two_runs_of_the_same_thing_claim_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(11)

    def noisy() -> Rows:
        rows = []
        for number in range(40):
            middle = math.exp(random.normal(0.5, 0.05))
            half = math.exp(1.645 * 0.05)
            rows.append((f"Operator{number}", middle, middle / half, middle * half))
        return rows

    found = two(tmp_path, noisy(), noisy())
    assert found.counts["HIGHER"] + found.counts["LOWER"] == 0
    assert found.counts["UNDECIDED"] > 30


def test_figures_without_interval_have_a_difference_and_no_verdict(tmp_path: Path) -> None:
    baseline, candidate = kept(tmp_path), kept(tmp_path)
    frame = candidate.read_table(FACTORS)
    import polars as pl

    candidate.write_table(FACTORS, frame.with_columns(baseline_s=pl.lit(12.5), verdict=pl.lit("SLOWER")))
    found = compare.compare_runs(catalogue.open_run(baseline.folder), catalogue.open_run(candidate.folder))
    changes = {(one.row, one.column): one for one in table_of(found).changes}
    assert changes["Sort", "baseline_s"].difference == 2.5
    assert changes["Sort", "baseline_s"].unit == "s"
    assert (changes["Sort", "verdict"].candidate, changes["Sort", "verdict"].difference) == ("SLOWER", None)
    assert changes["Window", "verdict"].baseline is None


def test_a_missing_value_is_neither_a_ratio_nor_a_verdict(tmp_path: Path) -> None:
    table = table_of(two(tmp_path, [("Sort", None, None, None)], [("Sort", 2.0, 1.9, 2.1)]))
    (one,) = table.contrasts
    assert (one.verdict, one.ratio.estimate, one.ratio.reason) == (None, None, "a value is missing")


def test_what_went_in_and_where_it_ran_is_compared_too(tmp_path: Path) -> None:
    source = tmp_path / "log"
    sides = []
    for text, top in (("one", 5), ("two", 7)):
        run = kept(tmp_path / "runs", config={"top": top, "deep": {"er": 1}})
        source.write_text(text)
        run.add_input(source)
        run.record["versions"]["polars"] = f"2.{top}"
        run.record["host"]["cpu_model"] = f"CPU {top}"
        run.save()
        sides.append(catalogue.open_run(run.folder))
    facts = {(kind, name): (one, other) for kind, name, one, other in compare.compare_runs(*sides).facts}
    assert facts["setting", "top"] == ("5", "7")
    assert facts["version", "polars"] == ("2.5", "2.7")
    assert facts["machine", "cpu_model"] == ("CPU 5", "CPU 7")
    assert all(len(digest or "") == 64 for digest in facts["input", str(source)])
    assert ("setting", "deep.er") not in facts


def test_runs_that_read_the_same_measurements_are_not_called_independent(tmp_path: Path) -> None:
    source = tmp_path / "log"
    source.write_text("events")
    sides = [kept(tmp_path / "runs") for _ in range(2)]
    for run in sides:
        run.add_input(source)
    found = compare.compare_runs(*(catalogue.open_run(run.folder) for run in sides))
    assert any("not independent" in note for note in found.notes)


def test_runs_of_different_areas_are_refused_unless_asked_for(tmp_path: Path) -> None:
    sides = [catalogue.open_run(kept(tmp_path, area=area).folder) for area in ("speedup", "lore")]
    with pytest.raises(ConfigError, match="different areas"):
        compare.compare_runs(*sides)
    assert table_of(compare.compare_runs(*sides, other_area=True)).rows == 3


def test_an_older_run_without_keys_is_matched_by_its_leading_columns(tmp_path: Path) -> None:
    runs_kept = [kept(tmp_path, rows) for rows in (BEFORE, AFTER)]
    for run in runs_kept:
        run.record["tables"] = [{"name": "factors", "rows": 4}]
        run.save()
    found = compare.compare_runs(*(catalogue.open_run(run.folder) for run in runs_kept))
    assert table_of(found).key == ("operator",)
    assert {one.verdict for one in table_of(found).contrasts} == {"HIGHER", "LOWER", "SAME"}


SESSIONS = Table(
    "effects",
    "One row per metric of a session.",
    ("session_id", "metric"),
    (
        Column("session_id", "str", "Name of the session."),
        Column("metric", "str", "What was measured."),
        Column("ratio", "float", "Times as fast."),
        Column("low", "float", "Low end."),
        Column("high", "float", "High end."),
    ),
)


def test_the_name_of_the_session_itself_does_not_part_the_rows(tmp_path: Path) -> None:
    sides = []
    for session in ("s1", "s2"):
        run = run_folder.start_run("indicators", tmp_path)
        row = {"session_id": session, "metric": "wall", "ratio": 1.5, "low": 1.4, "high": 1.6}
        run.write_table(SESSIONS, SESSIONS.frame([row]))
        run.conclude("valid")
        sides.append(catalogue.open_run(run.folder))
    table = table_of(compare.compare_runs(*sides), "effects")
    assert (table.key, table.own, table.rows) == (("metric",), ("session_id",), 1)


def test_a_table_that_only_one_run_has_or_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    baseline, candidate = kept(tmp_path), kept(tmp_path)
    candidate.write_table(SESSIONS, SESSIONS.frame([]))
    (candidate.folder / "tables" / "factors.parquet").write_bytes(b"PAR1 no more")
    found = compare.compare_runs(catalogue.open_run(baseline.folder), catalogue.open_run(candidate.folder))
    assert table_of(found, "effects").note == "only the candidate has it"
    assert "not a readable Parquet file" in (table_of(found).note or "")


def test_a_table_too_long_for_rows_is_counted_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "MAX_ROWS", 3)
    assert "more than 3 rows (4 and 4)" in (table_of(two(tmp_path, BEFORE, AFTER)).note or "")


def test_the_words_are_short_and_tell_what_was_told_apart_first(tmp_path: Path) -> None:
    rows = [(f"Operator{number:02}", 1.0, 0.8, 1.25) for number in range(30)]
    wider = [(name, 1.0, 0.79, 1.25) for name, *_ in rows]
    lines = compare_page.format_comparison(two(tmp_path, [*rows, *BEFORE], [*wider, *AFTER])).splitlines()
    shown = [line for line in lines if line.startswith("factors.factor ")]
    assert [line.split()[-1] for line in shown[:2]] == ["HIGHER", "LOWER"]
    assert len(shown) == compare_page.MAX_LINES + 2
    assert "and 18 more: --json has all" in lines
    assert "Figures with intervals: 1 HIGHER, 1 LOWER, 30 UNDECIDED, 1 SAME" in lines


def test_figures_that_are_equal_to_the_last_digit_are_a_count_and_never_undecided(tmp_path: Path) -> None:
    rows = [(f"Operator{number:02}", 1.0, 0.8, 1.25) for number in range(30)]
    found = two(tmp_path, [*rows, *BEFORE], [*rows, *AFTER])
    assert (found.counts["UNDECIDED"], found.counts["EQUAL"]) == (0, 30)
    text = compare_page.format_comparison(found)
    assert "Operator" not in text
    assert "Figures with intervals: 1 HIGHER, 1 LOWER, 1 SAME, 30 EQUAL" in text.splitlines()
    page = compare_page.write_comparison_page(found, tmp_path / "diff.html").read_text()
    assert "Operator00" not in page
    assert "30 figures are equal to the last digit" in page


def with_key_number(run: run_folder.Run, value: str, unit: str = "GPUs") -> catalogue.StoredRun:
    """A run with a report whose first key number is this."""
    shown = display.headline(answer="Some.", key_numbers=[("recommended", value, unit)])
    cell = compare_page.build_result_cell("show()", shown)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), run.folder / "report.ipynb")
    return catalogue.open_run(run.folder)


@pytest.mark.parametrize(
    ("after", "answer"),
    [
        ({"users": 800.0}, "recommended: 37 instead of 19 GPUs, because users 400 -> 800."),
        ({"users": 800.0, "seed": 1}, "recommended: 37 instead of 19 GPUs, with 2 settings changed."),
        ({"users": 400.0}, "recommended: 37 instead of 19 GPUs, with the same settings, inputs and versions."),
    ],
)
def test_the_answer_names_the_key_number_and_its_cause(tmp_path: Path, after: dict[str, Any], answer: str) -> None:
    before = with_key_number(kept(tmp_path, config={"users": 400.0, "seed": 0 if "seed" in after else None}), "19")
    other = with_key_number(kept(tmp_path, config={"seed": None} | after), "37")
    found = compare.compare_runs(before, other)
    assert differences.find_differences(found).answer == answer
    lines = compare_page.format_comparison(found).splitlines()
    assert lines[0] == answer
    assert any(line.split() == ["recommended", "19", "37", "GPUs"] for line in lines)
    assert compare_page.build_comparison_document(found)["answer"] == answer
    page = compare_page.write_comparison_page(found, tmp_path / "diff.html").read_text()
    assert answer.replace(">", "&gt;") in page


def test_the_document_is_json_and_holds_every_contrast(tmp_path: Path) -> None:
    found = two(tmp_path, BEFORE, AFTER)
    document = json.loads(json.dumps(compare_page.build_comparison_document(found), allow_nan=False))
    (table,) = document["tables"]
    assert document["counts"]["HIGHER"] == 1
    assert {one["row"]: one["ratio"]["estimate"] for one in table["contrasts"]}["Filter"] == pytest.approx(2.0)
    assert document["baseline"]["run_id"] == found.baseline.run_id


def test_the_page_draws_the_ratios_and_runs_nothing_that_came_from_a_run(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    before: Rows = [(bad, 2.0, 1.9, 2.1), ("Sort", 1.0, None, None)]
    after: Rows = [(bad, 4.0, 3.9, 4.1), ("Sort", 2.0, None, None)]
    page = compare_page.write_comparison_page(two(tmp_path / "runs", before, after), tmp_path / "diff.html").read_text()
    assert bad not in page.replace("\\u003c", "<")
    assert "1 of 1 figures moved" in page
    assert re.search(r'id="spec-0"', page)
    assert "factors: candidate / baseline, factor" in page


def test_a_page_of_runs_without_tables_is_a_page_all_the_same(tmp_path: Path) -> None:
    sides = []
    for _ in range(2):
        run = run_folder.start_run("lore", tmp_path / "runs")
        run.end("failed")
        sides.append(catalogue.open_run(run.folder))
    page = compare_page.write_comparison_page(compare.compare_runs(*sides), tmp_path / "diff.html").read_text()
    assert f"No verdicts: run {sides[0].run_id} failed" in page
    assert "for the baseline: it failed" in page


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["factor", "factor_low", "factor_high"], {"factor": ("factor_low", "factor_high")}),
        (["saved_cost", "saved_low_cost", "saved_high_cost"], {"saved_cost": ("saved_low_cost", "saved_high_cost")}),
        (["rate_per_s", "low_per_s", "high_per_s"], {"rate_per_s": ("low_per_s", "high_per_s")}),
        (["value_s", "low_s", "high_s"], {"value_s": ("low_s", "high_s")}),
        (["stack", "ratio", "low", "high"], {"ratio": ("low", "high")}),
        (["at_s", "low_s", "high_s"], {}),
        (["value_ms", "low_s", "high_s"], {}),
        (["factor", "factor_low"], {}),
        (["low", "high"], {}),
        (["below", "slow_high", "yellow"], {}),
    ],
)  # fmt: skip
def test_intervals_are_known_by_their_names(names: list[str], found: dict[str, Any]) -> None:
    assert find_interval_columns(names) == found


def test_a_column_may_name_its_ends(tmp_path: Path) -> None:
    declared = Table(
        "scores",
        "One row per predictor.",
        ("predictor",),
        (
            Column("predictor", "str", "Name."),
            Column("error_ratio", "float", "How far off.", ends=("from_ratio", "to_ratio")),
            Column("from_ratio", "float", "Low end."),
            Column("to_ratio", "float", "High end."),
        ),
    )
    sides = []
    for factor in (1.0, 2.0):
        run = run_folder.start_run("speedup", tmp_path)
        row = {"predictor": "ours", "error_ratio": factor, "from_ratio": 0.95 * factor, "to_ratio": 1.05 * factor}
        run.write_table(declared, declared.frame([row]))
        run.conclude("valid")
        sides.append(catalogue.open_run(run.folder))
    (one,) = table_of(compare.compare_runs(*sides), "scores").contrasts
    assert (one.column, one.verdict, one.ratio.estimate) == ("error_ratio", "HIGHER", 2.0)


def in_unit(out: Path, unit: str, value: float, **options: Any) -> catalogue.StoredRun:
    """A run with one figure in a unit."""
    ends = [Column(f"p50_{end}", "float", "End.", unit=unit) for end in ("low", "high")]
    kind = options.get("kind", "float")
    figure = Column("p50", kind, options.get("meaning", "Median."), unit=unit, better=options.get("better", ""))
    table = Table("times", "Times.", ("name",), (Column("name", "str", "Name."), figure, *ends))
    run = run_folder.start_run("speedup", out)
    shown = str(value) if kind == "str" else value
    run.write_table(
        table, table.frame([{"name": "a", "p50": shown, "p50_low": value * 0.99, "p50_high": value * 1.01}])
    )
    verdict = options.get("verdict", "valid")
    run.conclude(verdict, ["noisy"])
    return catalogue.open_run(run.folder)


def test_a_figure_in_another_unit_is_converted_and_says_so(tmp_path: Path) -> None:
    found = compare.compare_runs(in_unit(tmp_path, "ms", 100.0), in_unit(tmp_path, "s", 0.2))
    (table,) = found.tables
    (one,) = table.contrasts
    assert (one.ratio.estimate, one.verdict, one.unit) == (pytest.approx(2.0), "HIGHER", "s")
    assert one.baseline.estimate == pytest.approx(0.1)
    assert table.column_notes == ("p50: converted from ms (baseline) to s (candidate)",)
    assert "converted from ms" in compare_page.format_comparison(found)


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ({"unit": "ms"}, {"unit": "KiB"}, "unit ms in the baseline and KiB in the candidate: not compared"),
        ({"unit": "ms"}, {"unit": ""}, "unit ms in the baseline and none in the candidate: not compared"),
        ({"better": "lower"}, {"better": "higher"}, "lower is better in the baseline and higher in the candidate"),
        ({}, {"kind": "str"}, "type number in the baseline and String in the candidate: not compared"),
    ],
)
def test_another_column_of_the_same_name_is_not_compared(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], note: str
) -> None:
    sides = [in_unit(tmp_path, **({"unit": "ms", "value": 100.0} | options)) for options in (before, after)]
    (table,) = compare.compare_runs(*sides).tables
    assert [(one.ratio.estimate, one.verdict) for one in table.contrasts] in ([], [(None, None)])
    assert not table.changes
    assert any(note in text for text in table.column_notes)


def test_another_meaning_is_told(tmp_path: Path) -> None:
    sides = [in_unit(tmp_path, "ms", 100.0, meaning=text) for text in ("Of requests.", "Of sessions.")]
    (table,) = compare.compare_runs(*sides).tables
    assert table.column_notes == ("p50: its meaning was 'Of requests.' and is 'Of sessions.'",)


def test_a_run_that_is_not_valid_has_neither_ratio_nor_verdict(tmp_path: Path) -> None:
    good, bad = in_unit(tmp_path, "ms", 100.0), in_unit(tmp_path, "ms", 200.0, verdict="invalid")
    for sides, which in (((good, bad), "candidate"), ((bad, good), "baseline")):
        found = compare.compare_runs(*sides)
        (one,) = found.tables[0].contrasts
        assert (one.ratio.estimate, one.verdict, one.ratio.reason) == (None, None, f"the {which} is not valid")
        assert f"No ratios and no verdicts for the {which}: it is invalid: noisy." in found.notes


def test_rows_whose_long_names_begin_alike_stay_apart(tmp_path: Path) -> None:
    rows: Rows = [("x" * 300 + end, value, value * 0.99, value * 1.01) for end, value in (("a", 1.0), ("b", 2.0))]
    found = two(tmp_path, rows, rows)
    assert len({one.row for one in table_of(found).contrasts}) == 2


def test_rows_that_nothing_tells_apart_are_not_matched(tmp_path: Path) -> None:
    import polars as pl

    frame = pl.DataFrame({"at_s": [1.0, 2.0], "kind": ["a", "a"]})
    side = compare.RunTable(frame, None, {})
    with pytest.raises(InputError, match="no column identifies its rows"):
        compare.pair_rows(side, side)


def test_a_key_of_another_type_in_the_other_run_is_told(tmp_path: Path) -> None:
    import polars as pl

    one = compare.RunTable(pl.DataFrame({"step": [1, 2]}), ("step",), {})
    other = compare.RunTable(pl.DataFrame({"step": ["1", "2"]}), ("step",), {})
    with pytest.raises(InputError, match="different types"):
        compare.pair_rows(one, other)
