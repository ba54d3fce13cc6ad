"""Changes of level and the comparison since a date, with planted truths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indicators.history.planted import PACKAGES, build_planted_history, build_rows, when
from workbench.core.errors import InputError
from workbench.indicators.history import study
from workbench.indicators.history.history_points import HistoryFilter, build_history, order_by_commits
from workbench.indicators.history.level_changes import HistoryAnalysis, analyse_history, format_package_changes


def analysed(n: int, *args: Any, since: int | None = None, **given: Any) -> HistoryAnalysis:
    return analyse_history(build_planted_history(n, *args, **given), since=None if since is None else when(since))


def test_a_slower_version_is_a_change_with_its_packages_commits_and_size() -> None:
    key = lambda session: ("b" if session < 20 else "c") * 64  # noqa: E731
    found = analysed(40, lambda session: 1.0 if session < 20 else 0.8, key=key)
    (change,) = found.list_changes("followed")
    assert (change["session_id"], change["last_before"], change["verdict"]) == ("s020", "s019", "SLOWER")
    assert change["low"] < 0.8 < change["high"]
    assert change["packages"] == "numpy 2.3.0 -> 2.4.6"
    assert format_package_changes("a==1 b==2", "b==3 c==1") == "a 1 -> none, b 2 -> 3, c none -> 1"
    assert format_package_changes("a==1", "a==1") == ""
    assert change["revisions"] == "r19..r20"
    assert "became 1.25 times slower" in study.explain_answer(found)
    step = "`workbench indicators bisect numpy 2.3.0..2.4.6 --indicator sort`"
    assert step in study.list_next_steps(found)[0]


def test_a_slower_machine_is_named_and_is_no_regression() -> None:
    found = analysed(40, machine=lambda session: 1.0 if session < 20 else 3.0, since=20)
    assert found.list_changes("followed") == []
    assert found.regressions.height == 0
    change = found.list_changes("machine")[-1]
    assert change["session_id"] == "s020"
    assert change["low"] < 1 / 3 < change["high"]
    assert any("the machine changed: Sort" in note for note in study.list_notes(found))


def test_without_a_change_the_answer_says_so_and_few_sessions_are_not_enough_to_know() -> None:
    found = analysed(60)
    assert study.explain_answer(found) == "No change of level found in 1 series over 60 sessions."
    assert study.is_known(found)
    found = analysed(11, lambda session: 1.0 if session < 5 else 0.5)
    assert study.explain_answer(found).startswith("Not known: changes of level need 12 sessions")
    assert not study.is_known(found)


@pytest.mark.parametrize(
    ("truth", "verdict"), [(0.8, "SLOWER"), (1.0, "SAME"), (1.3, "FASTER"), (1 / 1.02, "UNDECIDED")]
)
def test_the_sessions_since_a_date_are_compared_with_the_level_before(truth: float, verdict: str) -> None:
    found = analysed(30, lambda session: 1.0 if session < 24 else truth, since=24)
    (row,) = found.followed.to_dicts()
    assert (row["verdict"], row["since_sessions"]) == (verdict, 6)
    assert row["low"] <= truth <= row["high"]
    assert found.regressions.height == (verdict == "SLOWER")
    assert study.is_known(found) == (verdict != "UNDECIDED")


@pytest.mark.parametrize(
    ("slower", "since", "verdict"),
    [(range(25, 45), 20, "SAME"), (range(50, 60), 20, "SLOWER"), (range(20, 60), 50, "SAME")],
    ids=["mended", "later", "before the date"],
)
def test_a_regression_counts_where_it_stands_at_the_end_and_came_after_the_date(
    slower: range, since: int, verdict: str
) -> None:
    found = analysed(60, lambda session: 0.7 if session in slower else 1.0, since=since)
    assert found.followed["verdict"].to_list() == [verdict]


def test_nothing_since_the_date_and_too_few_sessions_before_it_are_not_known() -> None:
    found = analysed(20, since=25)
    assert found.unknown.height == 1
    assert "no session since the date" in study.explain_answer(found)
    assert not study.is_known(found)
    found = analysed(20, since=3)
    assert found.followed["reason"].to_list() == ["3 session(s) before the date, 4 needed"]
    assert not study.is_known(found)
    # What is undecided and not slower does not hold up the gate.
    found = analysed(30, lambda session: 1.0 if session < 24 else 1.021, since=24, noise=0.004)
    assert (found.followed["verdict"].to_list(), found.unknown.height) == (["UNDECIDED"], 0)


@pytest.mark.slow
def test_families_of_equal_stacks_rarely_get_a_false_regression() -> None:
    # 40 histories of ten followed metrics each, nothing changed: at most 5 % of them may claim one.
    false = 0
    for seed in range(40):
        rows = [row for metric in range(10) for row in build_rows(14, metric=f"M{metric}", seed=100 * seed + metric)]
        # Sessions differ by more than their rounds show.
        draw = np.random.default_rng(seed)
        shift = dict(
            zip({(row["metric"], row["session_id"]): 0 for row in rows}, draw.normal(0, 0.05, 140), strict=True)
        )
        for row in rows:
            if row["arm"].startswith("numpy"):
                row["value"] *= float(np.exp(shift[row["metric"], row["session_id"]]))
        found = analyse_history(build_history(rows, PACKAGES, HistoryFilter()), since=when(10))
        false += found.followed["verdict"].is_in(["SLOWER", "FASTER"]).any()
    assert false <= 5  # 2 expected at most; 5 or fewer in 98 % of such draws


def test_a_bad_last_session_is_no_change_and_is_told() -> None:
    found = analysed(40, lambda session: 1 / 3 if session == 39 else 1.0)
    assert study.explain_answer(found) == "No change of level found in 1 series over 40 sessions."
    assert study.list_notes(found)[0].startswith("Sort of numpy was ")
    assert study.list_notes(found)[0].endswith("times slower in its last session: an outlier so far")


@pytest.mark.parametrize(("n", "verdict"), [(1, "UNDECIDED"), (2, "SLOWER")])
def test_one_bad_session_since_a_date_is_measured_once_more(n: int, verdict: str) -> None:
    found = analysed(40, lambda session: 1 / 3 if session >= 40 - n else 1.0, since=40 - n)
    (row,) = found.followed.to_dicts()
    assert row["verdict"] == verdict
    assert (row["reason"] or "measure again").endswith("measure again")


def test_a_drift_is_told_as_one_without_commits() -> None:
    found = analysed(60, lambda session: 1.5 ** (-session / 59))
    (change,) = found.list_changes("followed")
    assert (change["shape"], change["sessions_after"], change["last_before"]) == ("drift", 60, "s059")
    assert change["low"] < 1 / 1.5 < change["high"]
    answer = study.explain_answer(found)
    assert "drifted to 1.5 times slower" in answer
    assert "over 60 sessions from" in answer
    assert "r5" not in answer
    assert study.list_next_steps(found)[0].startswith("A drift has no commit")


def test_a_series_that_ends_is_told_with_what_goes_on() -> None:
    rows = build_rows(20) + [
        row | {"session_id": f"t{row['session_id']}", "created_at": row["created_at"].replace("2026", "2027")}
        for row in build_rows(20, hardware_key="m2", cpu_model="Model Y")
    ]
    notes = study.list_notes(analyse_history(build_history(rows, PACKAGES, HistoryFilter())))
    (note,) = notes
    assert note.startswith("Sort of numpy on Model X ends at 2026-01-20T12:00, 20 session(s) before the newest")
    assert note.endswith("from there on it is another machine, which is not compared")


def test_an_old_commit_that_is_measured_late_is_not_of_the_sessions_since(tmp_path: Path) -> None:
    rows = [row | {"revision": f"{int(row['session_id'][1:]):040x}"} for row in build_rows(31, lambda session: 1.0)]
    # The last session measured is of the sixth commit, and slow, as that commit was.
    late = {"created_at": when(40), "revision": f"{5:040x}"}
    rows = [row | (late if row["session_id"] == "s030" else {}) for row in rows]
    commits = tmp_path / "commits.txt"
    commits.write_text("".join(f"{number:040x}\n" for number in range(31)))
    found = analyse_history(order_by_commits(build_history(rows, PACKAGES, HistoryFilter()), commits), since=when(25))
    assert found.followed["since_sessions"].to_list() == [5]


def test_sessions_are_in_the_order_of_a_list_of_commits(tmp_path: Path) -> None:
    order = np.random.default_rng(3).permutation(40)
    rows = build_rows(40, lambda session: 1.0 if order[session] < 20 else 0.8)
    rows = [row | {"revision": f"{int(order[int(row['session_id'][1:])]):040x}"} for row in rows]
    commits = tmp_path / "commits.txt"
    commits.write_text("".join(f"{number:040x}\n" for number in range(39)))
    found = analyse_history(order_by_commits(build_history(rows, PACKAGES, HistoryFilter()), commits))
    (change,) = found.list_changes("followed")
    assert change["revisions"] == f"{19:040x}..{20:040x}"
    assert found.history.left_out == {"of a commit that commits.txt does not have": 1}
    assert "sessions are in the order of their commits, not in that of measurement" in study.list_notes(found)
    commits.write_text("main\n")
    with pytest.raises(InputError, match="not a commit"):
        order_by_commits(found.history, commits)
    newest_first = [row | {"revision": f"{39 - int(row['session_id'][1:]):040x}"} for row in build_rows(40)]
    commits.write_text("".join(f"{number:040x}\n" for number in range(40)))
    with pytest.raises(InputError, match="the newest commit is first"):
        order_by_commits(build_history(newest_first, PACKAGES, HistoryFilter()), commits)


def test_a_step_of_rounded_values_is_no_larger_than_it_is_known() -> None:
    """4 ms and 5 ms as printed may have been 4.49 and 4.51 ms."""
    rows = build_rows(24, rounds=1, noise=0.0)
    imported = [
        row | {"backend": "imported", "value": 4.0 if row["session_id"] < "s012" else 5.0}
        for row in rows
        if row["copy_number"] == 0 and row["stack"] == "reference"
    ]
    history = build_history(imported, PACKAGES, HistoryFilter(absolute=True))
    (change,) = analyse_history(history).changes.iter_rows(named=True)
    assert change["verdict"] == "UNDECIDED"
    assert change["low"] <= 4.49 / 4.51 <= change["high"]
    exact = [row | {"value": row["value"] + 1e-9} for row in imported]
    (change,) = analyse_history(build_history(exact, PACKAGES, HistoryFilter(absolute=True))).changes.iter_rows(
        named=True
    )
    assert change["verdict"] == "SLOWER"
