"""What a replay found becomes a sentence, a verdict with reasons and tables that agree; what does not agree stops."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.lore import outcomes
from workbench import lore
from workbench.core.child_process import CommandResult
from workbench.core.errors import BrokenInvariantError, ConfigError, InputError, RunFailedError
from workbench.lore import summary
from workbench.lore.invariants import check_outcome
from workbench.lore.replays import replay_outcome
from workbench.lore.replays.operator_replay import ReplayResult
from workbench.lore.summary import build_key_numbers, find_differing_settings, format_answer, list_details
from workbench.lore.tables import DIFFERENCES, RATIOS, TIMES


def test_the_answer_tells_verification_time_and_the_other_side() -> None:
    found = outcomes.outcome()
    assert found.reasons == ()
    assert len(build_key_numbers(found)) <= 6
    ratios = RATIOS.check(found.ratios)
    assert dict(ratios.select("quantity", "verdict").iter_rows())["operator"] == "SLOWER"
    assert ratios.filter(quantity="scan (control)").row(0, named=True)["speed_ratio"] == pytest.approx(1.0)
    said = format_answer(found)
    assert said == "Filter is 1.99x slower with B than with A, 1.89 to 2.10; same 7 rows."
    first, *others = list_details(found)
    assert first.startswith("PASS: Filter (loreId 3) replayed alone gives the same 7 rows, row for row, in 0.41 s on A")
    assert others == ["A is the query as dumped; B sets key=B."]


def test_without_another_side_there_is_no_ratio() -> None:
    found = outcomes.outcome(outcomes.replayed({"replay": (0.4, 0.5, 0.6)}))
    assert "B" not in format_answer(found)
    assert found.ratios.height == 0
    assert found.times["quantity"].to_list() == ["operator", "reading its inputs"]


def test_an_operator_that_once_took_no_time_has_no_ratio() -> None:
    found = outcomes.outcome(outcomes.replayed({"A": (0.4, -0.1, 0.4), "B": (0.4, 0.5, 0.4)}))
    assert found.ratio is None
    assert set(found.ratios["quantity"]) == {"scan (control)"}
    assert format_answer(found) == "No ratio of B to A: the operator's time is not resolved in every run."


def test_settings_that_both_sides_share_are_not_named_as_a_difference() -> None:
    both = outcomes.replayed()
    for side in both.sides:
        side["settings"] = f"shared=1, key={side['side']}"
    assert find_differing_settings(outcomes.outcome(both)) == ("key=A", "key=B")
    assert find_differing_settings(outcomes.outcome(outcomes.replayed({"replay": (1.0,)}))) == ("", "")


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"verification": {"passed": False, "n_found": 6}, "answer": "FAIL: 6 rows"}, "FAIL: 6 rows"),
    ({"not_accelerated": "Filter is not supported"}, "not accelerated: Filter is not supported"),
    (
        {"comparison": {"equal": False, "n_a": 7, "n_b": 8, "only_a": [], "only_b": ["{}"]}},
        "A and B gave different rows (7 and 8)",
    ),
]


@pytest.mark.parametrize(("changed", "reason"), INVALID)
def test_what_differs_makes_the_result_invalid(changed: dict[str, Any], reason: str) -> None:
    assert outcomes.outcome(outcomes.replayed(**changed)).reasons == (reason,)


STEPS: list[tuple[dict[str, Any], str]] = [
    ({}, "Keep A: B (key=B) makes this operator slower."),
    ({"seconds": {"replay": (0.4, 0.5, 0.6)}}, "Compare a setting with this run"),
    ({"seconds": {"A": (0.4, 0.9, 0.5), "B": (0.8, 0.4, 0.5)}}, "Repeat more often, the interval is too wide"),
    ({"seconds": {"A": (0.8, 0.81, 0.84), "B": (0.4, 0.42, 0.41)}}, "Try B (key=B) on the whole query"),
    ({"verification": {"passed": False, "n_found": 6}}, "Do not use its time: replayed alone it gives other rows."),
    ({"verification": {"passed": False, "n_found": None}}, "Find the smallest input with which it fails"),
    (INVALID[1][0], "Choose another operator"),
    (INVALID[2][0], "Do not use B: it gives other rows."),
]


@pytest.mark.parametrize(("changed", "told"), STEPS)
def test_what_to_do_next_follows_from_the_result(changed: dict[str, Any], told: str) -> None:
    first, bundle = summary.list_next_steps(outcomes.outcome(outcomes.replayed(**changed)))
    assert first.startswith(told)
    assert "`workbench lore bundle RUN/" in bundle
    assert (
        "`workbench lore bundle 'my dumps/loreId-3'`."
        in summary.list_next_steps(outcomes.outcome(outcomes.replayed(**changed)), "my dumps/loreId-3")[1]
    )


def test_a_refused_dump_is_invalid_and_has_no_figures() -> None:
    found = outcomes.outcome(refused="a file of the dump was changed")
    assert found.reasons == ("the dump was refused: a file of the dump was changed",)
    assert "`workbench lore inspect RUN/" in summary.list_next_steps(found)[0]
    assert format_answer(found) == "Filter was not replayed: the dump was refused."
    assert [name for name, *_ in build_key_numbers(found)] == ["rows of inputs", "largest partition"]
    assert found.timings.height == found.sides.height == found.differences.height == 0


def test_rows_that_differ_are_told_with_the_side_that_has_them() -> None:
    missing = outcomes.replayed(verification={"passed": False, "missing": ('{"c0":1}',), "extra": ('{"c0":2}', "{}")})
    table = DIFFERENCES.check(outcomes.outcome(missing).differences)
    assert list(table.select("compared", "position", "row").iter_rows()) == [
        ("only in the original", 1, '{"c0":1}'),
        ("only in the replay", 1, '{"c0":2}'),
        ("only in the replay", 2, "{}"),
    ]


def test_a_failing_operator_is_told_by_its_error() -> None:
    failed = outcomes.replayed(
        {}, verification={"n_expected": None, "n_found": None, "row_for_row": None, "note": ("the same error: X: y",)}
    )
    assert format_answer(outcomes.outcome(failed)) == "PASS: Filter (loreId 3), the same error: X: y."


def test_intervals_follow_the_level() -> None:
    narrow, wide = (TIMES.check(type(one)(**{**vars(one), "level": level}).times) for one, level in
                    ((outcomes.outcome(), 0.6), (outcomes.outcome(), 0.99)))  # fmt: skip
    assert narrow["low_s"].null_count() == 0
    assert wide["low_s"].null_count() == wide.height


def test_the_invariants_of_a_good_replay_hold() -> None:
    checks = check_outcome(outcomes.outcome(), 3, outcomes.CHAIN)
    assert checks["holds"].all()
    assert checks.height > 10


BROKEN: list[tuple[Any, str]] = [
    (lambda: outcomes.outcome(inspection=outcomes.inspection(outcomes.sidecar(), whole=False)), "checksum"),
    (lambda: outcomes.outcome(inspection=outcomes.inspection(outcomes.sidecar(), {0: 30, 2: 9})), "rows of inputs"),
    (lambda: outcomes.outcome(inspection=outcomes.inspection(outcomes.sidecar(), {0: 40})), "batches that only"),
    (lambda: outcomes.outcome(outcomes.replayed({"A": (0.4,) * 2, "B": (0.4,) * 2})), "timed runs that a side lacks"),
    (
        lambda: outcomes.outcome(outcomes.replayed({"r": (1.0,) * 3}, timings=[
            row | {"operator_s": 3.0} for row in outcomes.timings({"r": (1.0,) * 3})])),
        "total minus scan",
    ),
    (lambda: outcomes.outcome(outcomes.replayed(verification={"n_found": 8})), "PASS with another number"),
    (lambda: outcomes.outcome(outcomes.replayed(verification={"n_found": 9, "n_expected": 9})), "beyond those"),
    (
        lambda: outcomes.outcome(
            outcomes.replayed(comparison={"equal": True, "n_a": 7, "n_b": 8, "only_a": [], "only_b": []})
        ),
        "called equal",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("made", "named"), BROKEN)
def test_a_broken_invariant_stops_and_is_named(made: Any, named: str) -> None:
    with pytest.raises(BrokenInvariantError, match=named):
        check_outcome(made(), 3)


def test_a_plan_whose_ids_are_not_in_post_order_or_that_names_another_operator_stops() -> None:
    turned = outcomes.plan(("Filter", 0, 1, 1, None), ("Scan", 1, None, 1, None))
    with pytest.raises(BrokenInvariantError, match="larger than those of all below"):
        check_outcome(outcomes.outcome(), 3, turned)
    twice = outcomes.plan(("Filter", 1, 1, 1, None), ("Scan", 1, None, 1, None))
    with pytest.raises(BrokenInvariantError, match="missing or duplicate"):
        check_outcome(outcomes.outcome(), 3, twice)
    other = outcomes.plan(("Sort", 3, 1, 1, None), ("A", 2, 1, 1, None), ("B", 1, 1, 1, None), ("C", 0, 1, 1, None))
    with pytest.raises(BrokenInvariantError, match="another name in the plan"):
        check_outcome(outcomes.outcome(), 3, other)


ANSWER = ReplayResult(
    folder="d", lore_id=3, operator="Filter", operator_text="Filter", passed=True, answer="PASS", verification={}
)


class Process:
    """Stands in for the process of a replay."""

    def __init__(self, code: int, out: str = "", err: str = "") -> None:
        self.code, self.out, self.err = code, out, err
        self.command: list[str] = []
        self.environment: dict[str, str] = {}

    def __call__(self, command: list[str], *, env: dict[str, str], **options: Any) -> CommandResult:
        self.command, self.environment = command, env
        return CommandResult(self.code, self.out, self.err)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    found = Process(0, ANSWER.model_dump_json())
    monkeypatch.setattr(replay_outcome, "run_command", found)
    return found


def test_options_become_those_of_the_command(process: Process) -> None:
    confs: dict[str, Any] = {"confs": {"a": "1", "b": "x=y"}, "confs_a": {"c": "2"}, "confs_b": {"c": "3"}}
    more: dict[str, Any] = {"tolerance": 1e-9, "trust": True, "profile": None, "driver_memory": "2g"}
    assert lore.replay(Path("d"), partition=0, repeat=0, **confs, **more) == ANSWER
    head, options, end = process.command[:6], process.command[6:-1], process.command[-1]
    assert (head, end) == ([sys.executable, "-m", "workbench", "lore", "replay", "d"], "--json")
    assert " ".join(options) == (
        "--partition 0 --repeat 0 --conf a=1 --conf b=x=y --a c=2 --b c=3 --tolerance 1e-09 --trust --driver-memory 2g"
    )
    process.code = 1
    assert lore.verify("d") == ANSWER, "a verdict comes back be it good or bad"
    assert process.command[-3:] == ["--repeat", "0", "--json"]


def test_the_session_s_own_arguments_stay_at_home(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("MINE", "kept")
    lore.replay("d")
    assert [key for key in process.environment if key.startswith(("PYSPARK", "_PYSPARK"))] == []
    assert process.environment["MINE"] == "kept"


@pytest.mark.parametrize(("code", "out"), [(3, ""), (-9, ""), (1, "Traceback"), (0, "")])
def test_a_process_that_dies_is_told_with_its_code(process: Process, code: int, out: str) -> None:
    process.code, process.out, process.err = code, out, "the last words"
    with pytest.raises(RunFailedError, match=rf"exit code {code}(.|\n)*the last words"):
        lore.replay("d")


def test_a_refusal_comes_back_in_its_own_words_and_one_that_takes_too_long_is_told(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.code, process.out, process.err = 2, "", "Error: this dump is not signed by you\n  where: d"
    with pytest.raises(InputError, match=r"was refused(.|\n)*not signed by you"):
        lore.replay("d")
    monkeypatch.setattr(replay_outcome, "run_command", Mock(side_effect=RunFailedError("it did not end in time")))
    with pytest.raises(RunFailedError, match="took too long"):
        lore.replay("d")


def test_an_unknown_option_is_refused_with_those_there_are(process: Process) -> None:
    with pytest.raises(ConfigError, match=r"repeats(.|\n)*partition, profile"):
        lore.replay("d", repeats=3)
    assert process.command == []
