"""Limits of a run: what a file may say, and how a run stands to it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.kept_runs import kept
from workbench.cli import app
from workbench.core import redaction
from workbench.core.errors import ConfigError
from workbench.core.files import OUT_VARIABLE
from workbench.core.locks import release_lock
from workbench.runs import catalogue, run_folder, threshold_gate


@pytest.fixture(autouse=True)
def outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (run_folder.RUN_DIR_VARIABLE, OUT_VARIABLE, redaction.SECRET_NAMES_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def file_of(tmp_path: Path, *rules: dict[str, Any], area: str = "speedup") -> Path:
    path = tmp_path / "thresholds.yaml"
    path.write_text(json.dumps({area: list(rules)}))
    return path


def judged(tmp_path: Path, run: run_folder.Run, *rules: dict[str, Any]) -> list[tuple[str, str]]:
    gate = threshold_gate.load_gate(file_of(tmp_path, *rules), [run.area], [], tmp_path / "runs")
    found = gate.check_run(catalogue.build_stored_run(run))
    assert found is not None
    return [(rule["outcome"], rule["found"]) for rule in found["rules"]]


FACTOR = {"table": "factors", "column": "factor"}
WORD = {"table": "factors", "column": "verdict"}


@pytest.mark.parametrize(
    ("rule", "outcome", "found"),
    [
        ({"key": "verdict", "equals": "valid"}, "passed", "valid"),
        ({"key": "verdict", "equals": "invalid"}, "broken", "verdict: valid"),
        ({"key": "status", "equals": "succeeded"}, "passed", "succeeded"),
        ({"key": "duration_s", "at_most": 1e6}, "passed", ""),
        ({"key": "duration_s", "at_least": 1e6}, "broken", "duration_s: "),
        ({"rows": "factors", "equals": 3}, "passed", "3"),
        ({"rows": "factors", "where": {"operator": "Fly"}, "at_most": 0}, "passed", "0"),
        ({"rows": "factors", "between": [4, 9]}, "broken", "factors: 3"),
        (FACTOR | {"where": {"operator": "Filter"}, "at_least": 1.5}, "passed", "2"),
        (FACTOR | {"where": {"operator": ["Filter", "Sort"]}, "between": [1, 3]}, "passed", "1.2 to 2 in 2 rows"),
        (FACTOR | {"where": {"operator": ["Filter", "Sort"]}, "at_least": 1.5}, "broken", "FASTER: 1.2"),
        (FACTOR | {"where": {"verdict": None}, "at_least": 0}, "broken", "Window: missing"),
        (FACTOR | {"at_least": 0}, "broken", "Window: missing"),
        (FACTOR | {"where": {"operator": "Fly"}, "at_least": 0}, "broken", "no row is meant by it"),
        (WORD | {"where": {"n": 22, "operator": "Sort"}, "equals": "FASTER"}, "passed", ""),
        ({"table": "factors", "column": "n", "equals": 22}, "passed", "22 to 22 in 3 rows"),
        ({"table": "none", "column": "n", "equals": 22}, "refused", "the run has no table none; it has factors"),
        ({"table": "factors", "column": "pace", "equals": 22}, "refused", "no column pace in factors; it has operator"),
        (FACTOR | {"where": {"colour": 1}, "equals": 22}, "refused", "no column colour"),
        (FACTOR | {"where": {"operator": 1}, "equals": 22}, "refused", "column operator holds String"),
        (FACTOR | {"where": {"n": False}, "equals": 22}, "refused", "column n holds Int64"),
        ({"table": "factors", "column": "operator", "at_least": 2}, "refused", "is not a number"),
        (FACTOR | {"where": {"operator": "Sort"}, "equals": "fast"}, "refused", "of another kind"),
    ],
)  # fmt: skip
def test_a_rule_is_passed_broken_or_cannot_be_checked(
    tmp_path: Path, rule: dict[str, Any], outcome: str, found: str
) -> None:
    ((what, text),) = judged(tmp_path, kept(tmp_path / "runs"), rule)
    assert what == outcome
    assert found in text


@pytest.mark.parametrize(
    ("limit", "now", "outcome"),
    [
        # Surely worse: 1.2 after 2 is a fall by 1.67, with ends far above 1.02.
        ({}, (1.2, 1.15, 1.25), "broken"),
        # Within the noise: not surely worse, and not proven to be no worse either.
        ({}, (1.9, 1.7, 2.1), "passed"),
        ({"proven": True}, (1.9, 1.7, 2.1), "broken"),
        ({"proven": True}, (4.0, 3.8, 4.2), "passed"),
        ({"tolerance": 0.9}, (1.2, 1.15, 1.25), "passed"),
        ({"better": "lower"}, (4.0, 3.8, 4.2), "broken"),
        ({"better": "lower"}, (1.2, 1.15, 1.25), "passed"),
        # Without ends the figures count by themselves.
        ({}, (1.99, None, None), "passed"),
        ({}, (1.9, None, None), "broken"),
        ({"proven": True}, (2.5, None, None), "broken"),
    ],
)
def test_no_worse_than_goes_by_the_interval_of_the_difference(
    tmp_path: Path, limit: dict[str, Any], now: tuple[float, float | None, float | None], outcome: str
) -> None:
    before = kept(tmp_path / "runs", [("Filter", 2.0, 1.8, 2.2)])
    after = kept(tmp_path / "runs", [("Filter", *now)])
    rule = FACTOR | {"no_worse_than": {"run": before.run_id, "better": "higher", **limit}}
    ((what, text),) = judged(tmp_path, after, rule)
    assert what == outcome
    assert "after 2" in text


def dated(out: Path, day: int, rows: Any, **options: Any) -> run_folder.Run:
    """A run that started on a day of November."""
    run = kept(out, rows, **options)
    run.record |= {"started_at": f"2026-11-{day:02}T09:00:00+00:00", "ended_at": None}
    run.save()
    return run


@pytest.mark.parametrize(
    ("words", "outcome", "found"),
    [
        ("last valid", "broken", "2 after 1 (2 times as bad"),
        ("median of last 3", "passed", "2 after 2 (1 times as bad"),
        ("since 2026-11-03", "broken", "2 after 1 "),
        ("since 40d", "passed", "median of 3 valid runs"),
        ("since 2026-11-07", "refused", "no valid run of speedup before this one since 2026-11-07"),
    ],
)
def test_words_choose_valid_runs_before_the_checked_one(tmp_path: Path, words: str, outcome: str, found: str) -> None:
    def rows(value: float) -> list[tuple[str, float, float, float]]:
        return [("Sort", value, value * 0.999, value * 1.001)]

    for day, value in ((1, 2.0), (2, 2.2), (3, 1.0)):
        dated(tmp_path / "runs", day, rows(value))
    dated(tmp_path / "runs", 4, rows(9.0), verdict="invalid")
    checked = dated(tmp_path / "runs", 5, rows(2.0))
    dated(tmp_path / "runs", 6, rows(9.0))
    rule = FACTOR | {"no_worse_than": {"run": words, "better": "lower"}}
    ((what, text),) = judged(tmp_path, checked, rule)
    assert what == outcome
    assert found in text


@pytest.mark.parametrize("state", ["invalid", "failed", "cancelled", "died"])
def test_a_run_that_is_not_valid_is_no_baseline_and_passes_nothing(tmp_path: Path, state: str) -> None:
    bad = kept(tmp_path / "runs", verdict="invalid" if state == "invalid" else "valid")
    bad.record["status"] = {"invalid": "succeeded", "died": "running"}.get(state, state)
    bad.save()
    rule = FACTOR | {"no_worse_than": {"run": bad.run_id, "better": "higher"}}
    with pytest.raises(ConfigError, match="baseline run is not valid") as caught:
        threshold_gate.load_gate(file_of(tmp_path, rule), ["speedup"], [], tmp_path / "runs")
    assert "last valid" in str(caught.value)
    gate = threshold_gate.load_gate(file_of(tmp_path, {"rows": "factors", "at_least": 1}), ["speedup"], [], tmp_path)
    outcome = gate.check_run(catalogue.open_run(bad.folder))
    assert outcome is not None
    assert threshold_gate.threshold_exit_code(outcome) == 1
    assert outcome["rules"][0]["rule"] == threshold_gate.VALID_RUN


def test_a_run_is_not_held_against_itself(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs")
    rule = FACTOR | {"where": {"operator": "Sort"}, "no_worse_than": {"run": run.run_id, "better": "higher"}}
    ((what, text),) = judged(tmp_path, run, rule)
    assert (what, "the baseline is the run itself" in text) == ("refused", True)


@pytest.mark.parametrize(
    ("unit", "limit", "outcome", "found"),
    [
        ("ms", 10_001, "passed", "10,000"),
        ("s", 9, "broken", "10"),
        ("KiB", 9, "refused", "has s, which is not convertible to KiB"),
    ],
)
def test_limits_may_name_their_unit(tmp_path: Path, unit: str, limit: float, outcome: str, found: str) -> None:
    rule = {"table": "factors", "column": "baseline_s", "unit": unit, "at_most": limit}
    ((what, text),) = judged(tmp_path, kept(tmp_path / "runs"), rule)
    assert what == outcome
    assert found in text


def test_no_worse_than_looks_at_all_rows_together(tmp_path: Path) -> None:
    names = [f"Operator{number}" for number in range(20)]
    before = kept(tmp_path / "runs", [(name, 1.0, 0.9, 1.111) for name in names])
    # One of 20 a little beyond what a single row would allow: chance makes one of them so.
    after = kept(tmp_path / "runs", [(name, 1.2 if name == "Operator7" else 1.0, 1.08, 1.333) for name in names[7:8]])
    whole = kept(
        tmp_path / "runs",
        [(name, *((1.2, 1.08, 1.333) if name == "Operator7" else (1.0, 0.9, 1.111))) for name in names],
    )
    rule = FACTOR | {"no_worse_than": {"run": before.run_id, "better": "lower", "tolerance": 0.0}}
    assert judged(tmp_path, after, rule)[0][0] == "broken"
    assert judged(tmp_path, whole, rule)[0][0] == "passed"


def test_a_row_that_the_earlier_run_lacks_breaks_the_rule(tmp_path: Path) -> None:
    before = kept(tmp_path / "runs", [("Filter", 2.0, 1.8, 2.2)])
    after = kept(tmp_path / "runs", [("Filter", 2.0, 1.8, 2.2), ("Sort", 2.0, 1.8, 2.2)])
    rule = FACTOR | {"no_worse_than": {"run": str(before.folder), "better": "higher"}}
    ((what, text),) = judged(tmp_path, after, rule)
    assert (what, text) == ("broken", f"Sort: missing in {before.run_id}")


def test_a_row_that_is_gone_breaks_the_rule_where_the_rule_means_it(tmp_path: Path) -> None:
    before = kept(tmp_path / "runs", [("Filter", 2.0, 1.8, 2.2), ("Sort", 2.0, 1.8, 2.2)])
    after = kept(tmp_path / "runs", [("Filter", 2.0, 1.8, 2.2)])
    rule = FACTOR | {"no_worse_than": {"run": str(before.folder), "better": "higher"}}
    ((what, text),) = judged(tmp_path, after, rule)
    assert (what, text) == ("broken", "Sort: missing, after 2")
    ((what, _),) = judged(tmp_path, after, rule | {"where": {"operator": ["Filter"]}})
    assert what == "passed"


@pytest.mark.parametrize(
    ("value", "limit", "outcome"),
    [
        (date(2026, 11, 1), {"at_least": 5}, "refused"),
        ({"a": 1}, {"at_most": 5}, "refused"),
        (1.5, {"equals": 10**400}, "broken"),
        (1.5, {"at_most": 10**400}, "passed"),
    ],
)
def test_a_figure_that_is_no_number_is_never_within_limits(
    tmp_path: Path, value: Any, limit: dict[str, Any], outcome: str
) -> None:
    run = kept(tmp_path / "runs")
    pl.DataFrame({"factor": [value]}).write_parquet(run.tables_folder / "factors.parquet")
    ((what, _),) = judged(tmp_path, run, FACTOR | limit)
    assert what == outcome


def test_key_figures_and_row_counts_compare_with_an_earlier_run_too(tmp_path: Path) -> None:
    before, after = kept(tmp_path / "runs"), kept(tmp_path / "runs")
    before.record["duration_s"], after.record["duration_s"] = 10.0, 11.0
    before.save()
    limit = {"run": before.run_id, "better": "lower"}
    rules = [
        {"key": "duration_s", "no_worse_than": limit | {"tolerance": 0.2}},
        {"key": "duration_s", "no_worse_than": limit | {"tolerance": 0.05}},
        {"rows": "factors", "no_worse_than": limit},
    ]
    assert [what for what, _ in judged(tmp_path, after, *rules)] == ["passed", "broken", "passed"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"key": "duration_s"}, "no limit"),
        ({"at_most": 1}, "exactly one of key, rows and table"),
        ({"key": "duration_s", "rows": "x", "at_most": 1}, "exactly one of key, rows and table"),
        ({"table": "factors", "at_most": 1}, "table and column go together"),
        ({"key": "duration_s", "at_mots": 1}, "at_mots: unknown key"),
        ({"key": "verdict", "at_most": 1}, "its limit is equals"),
        ({"key": "loudness", "at_most": 1}, "speedup 1 key"),
        ({"key": "duration_s", "where": {"a": 1}, "at_most": 1}, "where is for tables"),
        ({"key": "duration_s", "between": [2, 1]}, "the lower limit comes first"),
        ({"key": "duration_s", "between": [1]}, "between"),
        ({"key": "duration_s", "at_most": "fast"}, "at_most"),
        ({"key": "duration_s", "no_worse_than": {"run": "x"}}, "better"),
        ({"key": "duration_s", "unit": "s", "at_most": 1}, "unit is for columns"),
        (
            {"key": "duration_s", "no_worse_than": {"run": "last vaild", "better": "lower"}},
            "last valid, median of last N",
        ),
        ({"key": "duration_s", "no_worse_than": {"run": "since then", "better": "lower"}}, "not a time"),
        ({"key": "duration_s", "no_worse_than": {"run": "x", "better": "louder"}}, "better"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_before_anything_runs(
    tmp_path: Path, rule: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        threshold_gate.load_thresholds(file_of(tmp_path, rule))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", "speedup: []", "speedup: 3", "speedup: [3]", "a: [", "\x00", "a: &x [1]\nb: *x\n", "[" * 3000,
        "speedup: [{key: verdict, key: status, equals: valid}]", "speedup: []\nspeedup: []",
        "1: [{key: status, equals: x}]",
        "speedup: [{key: duration_s, at_most: .nan}]", "speedup: [{key: duration_s, at_most: .inf}]",
    ],
)  # fmt: skip
def test_what_is_no_file_of_thresholds_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "thresholds.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        threshold_gate.load_thresholds(path)


def test_a_file_that_is_not_there_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the thresholds"):
        threshold_gate.load_thresholds(tmp_path / "none.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (threshold_gate.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="not a file of thresholds"):
        threshold_gate.load_thresholds(tmp_path / "large.yaml")


def test_unknown_areas_and_runs_are_refused_before_anything_runs(tmp_path: Path) -> None:
    rule = {"key": "verdict", "equals": "valid"}
    with pytest.raises(ConfigError, match="unknown area") as caught:
        threshold_gate.load_gate(file_of(tmp_path, rule, area="speedpu"), ["speedup"], ["sizing"], tmp_path)
    assert "did you mean speedup?" in str(caught.value)
    with pytest.raises(ConfigError, match="no thresholds for this notebook"):
        threshold_gate.load_gate(file_of(tmp_path, rule, area="sizing"), ["speedup"], ["sizing"], tmp_path)
    worse = {"key": "duration_s", "no_worse_than": {"run": "2026", "better": "lower"}}
    with pytest.raises(ConfigError, match="baseline run not found"):
        threshold_gate.load_gate(file_of(tmp_path, worse), ["speedup"], [], tmp_path)


def test_a_run_of_another_area_or_without_the_table_is_no_baseline(tmp_path: Path) -> None:
    other = kept(tmp_path / "runs", area="sizing")
    rule = FACTOR | {"no_worse_than": {"run": other.run_id, "better": "higher"}}
    with pytest.raises(ConfigError, match="another area"):
        threshold_gate.load_gate(file_of(tmp_path, rule), ["speedup"], [], tmp_path / "runs")
    with pytest.raises(ConfigError, match="no such table"):
        threshold_gate.load_gate(
            file_of(tmp_path, rule | {"table": "fly"}, area="sizing"), ["sizing"], [], tmp_path / "runs"
        )


def test_rules_of_areas_that_are_not_run_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    rule = {"key": "verdict", "equals": "valid"}
    path.write_text(json.dumps({"speedup": [rule], "sizing": [rule]}))
    gate = threshold_gate.load_gate(path, ["speedup"], ["sizing"], tmp_path)
    assert gate.check_run(catalogue.build_stored_run(kept(tmp_path / "runs", area="lore"))) is None


def test_the_words_say_what_was_broken_first_and_markup_is_escaped(tmp_path: Path) -> None:
    run = kept(tmp_path / "runs")
    name = "<script>alert(1)</script>"
    rules = [{"key": "status", "equals": "succeeded"}, {"name": name, "key": "verdict", "equals": "invalid"}]
    gate = threshold_gate.load_gate(file_of(tmp_path, *rules), ["speedup"], [], tmp_path)
    found = gate.check_run(catalogue.build_stored_run(run))
    assert threshold_gate.format_threshold_lines(found) == [
        "thresholds: 1 passed, 1 broken",
        f"  broken: {name}: verdict equals invalid (verdict: valid)",
        "  passed: status equals succeeded (succeeded)",
    ]
    assert "<script>" not in threshold_gate.render_thresholds(found)
    assert "1 of 2 thresholds broken" in threshold_gate.render_threshold_chip(found)
    assert found is not None
    assert found["file"] == "thresholds.yaml"


@pytest.mark.parametrize("judged", [None, 3, [], {}, {"broken": "x", "rules": 3}, {"passed": -1, "rules": [1, {}]}])
def test_a_record_that_somebody_spoilt_is_shown_without_an_error(judged: Any) -> None:
    assert "<script>" not in threshold_gate.render_thresholds(judged) + threshold_gate.render_threshold_chip(
        judged
    ) + "".join(threshold_gate.format_threshold_lines(judged))


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app.main(list(arguments))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"key": "verdict", "equals": "valid"}, 0),
        ({"key": "verdict", "equals": "invalid"}, 1),
        ({"rows": "none", "at_least": 1}, 2),
        ({"rows": "factors", "at_moist": 1}, 2),
    ],
)
def test_a_check_ends_with_the_code_of_its_worst_rule_and_changes_nothing(
    tmp_path: Path, rule: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "runs")
    before = (run.folder / "run.json").read_bytes()
    options = ["--out", str(tmp_path / "runs"), "--thresholds", str(file_of(tmp_path, rule))]
    assert call("runs", "check", run.run_id, *options) == code
    assert call("runs", "check", str(run.folder), *options, "--json") == code
    assert (run.folder / "run.json").read_bytes() == before
    assert "Traceback" not in capsys.readouterr().err


def test_the_document_of_a_check_is_the_only_thing_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kept(tmp_path / "runs")
    path = file_of(tmp_path, {"key": "duration_s", "at_least": 1e9})
    assert call("runs", "check", str(run.folder), "--thresholds", str(path), "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["run_id"], document["thresholds"]["broken"]) == (run.run_id, 1)


def test_a_died_run_breaks_a_rule_on_its_status(tmp_path: Path) -> None:
    run = run_folder.start_run("speedup", tmp_path / "runs")
    release_lock(run.folder)
    gate = threshold_gate.load_gate(
        file_of(tmp_path, {"key": "status", "equals": "succeeded"}), ["speedup"], [], tmp_path
    )
    found = gate.check_run(catalogue.open_run(run.folder))
    assert found is not None
    assert [rule["found"] for rule in found["rules"]] == ["it died", "status: died"]


def test_bad_thresholds_are_refused_before_a_notebook_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, {"key": "verdict", "equals": "valid"}, area="start_heer")
    assert call("run", "start_here", "--thresholds", str(path), "--out", str(tmp_path / "out")) == 2
    assert "did you mean start_here?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("area", "n_rules"), [("speedup", 1), ("fleet", 1), ("profile", 1), ("sizing", 0)])
def test_rules_from_before_a_notebook_was_split_hold_for_its_parts(area: str, n_rules: int, tmp_path: Path) -> None:
    rule = {"key": "status", "equals": "succeeded"}
    assert len(threshold_gate.load_thresholds(file_of(tmp_path, rule)).list_rules(area)) == n_rules


def test_rules_of_its_own_come_first(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    rules = {area: [{"key": "duration_s", "at_most": limit}] for area, limit in (("speedup", 1), ("profile", 2))}
    path.write_text(json.dumps(rules))
    (rule,) = threshold_gate.load_thresholds(path).list_rules("profile")
    assert rule.at_most == 2
