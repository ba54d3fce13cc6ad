"""What the notebook says: answers and key numbers that read well, and are true, for runs of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.fakes.scale_runs import Plan, analysis
from tests.scaletest.analysis.test_variants import session
from tests.scaletest.compat_runai import making
from workbench.report.display import headline
from workbench.scaletest import summary
from workbench.scaletest.analysis import variants
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.analysis.variants import Session, VariantRun
from workbench.scaletest.compat_runai.run_import import import_folder
from workbench.scaletest.compat_runai.runai_files import export_run
from workbench.scaletest.config import NotebookConfig
from workbench.scaletest.study import Study
from workbench.scaletest.tables import MILESTONES

DUE = np.arange(200) / 40


def studied(place: Path) -> Study:
    return Study(NotebookConfig(runs=str(place)), variants.read_variants(place))


def two_sides(place: Path, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Study:
    """Runs of two sides, as their plans say, one turn after the other."""
    runs = list[VariantRun]()
    for turn, given in enumerate(zip(a, b, strict=True)):
        for side, more in zip(("default", "kai"), given, strict=True):
            one = VariantRun(side=side, position=len(runs), folder=f"run-{len(runs)}")
            analysis(Plan(DUE, **({"jitter": 0.3, "seed": turn} | more)), place / one.folder)
            runs.append(one)
    told: dict[str, Any] = {"scenario_sha256": "0" * 64, "created_at": "2026-11-22", "sides": ("default", "kai")}
    variants.write_session(place, Session(repeat=len(a), runs=tuple(runs), **told))
    return studied(place)


def explain(found: Study) -> str:
    return " ".join(found.details)


def numbers(found: Study) -> dict[str, Any]:
    """Key numbers by label; a headline takes them."""
    given = found.key_numbers()
    headline(answer=found.answer, verdict="valid", key_numbers=given)
    return {label: rest for label, *rest in given}


def test_a_faster_side_is_told_with_both_medians_and_the_ratio(tmp_path: Path) -> None:
    found = two_sides(tmp_path, [{"scheduled_per_s": 20}] * 5, [{"scheduled_per_s": 200}] * 5)
    # The planted rates: one side holds 20/s, the other all 40/s that are offered.
    assert "Sustained rate: 19.4 to 21.5 pods/s with default, at least 40 pods/s with kai (first run" in " ".join(
        found.details
    )
    assert explain(found).startswith("kai schedules ")
    assert "x faster than default at the median (95 % interval " in explain(found)
    assert " from due to scheduled. " in explain(found)
    value, unit, note = numbers(found)["median, default over kai"]
    assert (value > 5, unit) == (True, "")
    assert note.endswith("], kai is faster")
    assert found.next_steps()[0] == "Prefer kai for a load like this one: its workloads wait less."


def test_a_slower_side_is_never_said_to_be_faster_by_a_part(tmp_path: Path) -> None:
    found = two_sides(tmp_path, [{"scheduled_per_s": 200}] * 5, [{"scheduled_per_s": 20}] * 5)
    assert explain(found).startswith("default schedules ")
    assert "x faster than kai at the median (95 % interval " in explain(found)
    value, _, note = numbers(found)["median, kai over default"]
    assert value > 5
    assert note.endswith("], kai is slower")
    low, high = (float(end.replace(",", "")) for end in note.split("]")[0].strip("[").split(", "))
    assert low < value < high
    assert "faster by" not in str(found.key_numbers())


def test_sides_that_are_alike_are_the_same_within_the_margin(tmp_path: Path) -> None:
    alike = [{"jitter": 0.01, "seed": seed, "scheduled_per_s": 100} for seed in range(5)]
    other = [{"jitter": 0.01, "seed": 10 + seed, "scheduled_per_s": 100} for seed in range(5)]
    found = two_sides(tmp_path, alike, other)
    assert "default and kai are equivalent within 5 %: the median" in explain(found)
    assert found.next_steps()[0].startswith("Choose between default and kai by other criteria")
    (median,) = [rest for label, rest in numbers(found).items() if label.startswith("median, ")]
    assert median[2].endswith("equivalent within 5 %")


def test_one_run_each_decides_nothing_and_says_why(tmp_path: Path) -> None:
    found = two_sides(tmp_path, [{"scheduled_per_s": 20}], [{"scheduled_per_s": 200}])
    assert "Not decided whether default or kai is faster" in explain(found)
    assert "one run each does not show" in explain(found)
    assert found.next_steps()[0].startswith("Run more turns to decide between default and kai")
    assert numbers(found)["median, default over kai"][2] == "no interval, not decided"


def test_a_side_that_schedules_less_than_half_is_named(tmp_path: Path) -> None:
    lossy = {"lost": tuple(range(120))}
    found = two_sides(tmp_path, [{}] * 3, [lossy, {}, lossy])
    assert explain(found).startswith(
        "The medians of default and kai cannot be compared: "
        "more than 50 % of the workloads never completed it in 2 of 3 runs of kai."
    )
    assert "median, default over kai" not in numbers(found)
    assert numbers(found)["kai: p95"] == [
        None,
        "s",
        "more than 5 % of its workloads were never scheduled in 2 of 3 runs",
    ]


def test_a_median_is_not_told_without_a_tail_that_was_lost(tmp_path: Path) -> None:
    lossy = {"scheduled_per_s": 200, "lost": tuple(range(30))}
    found = two_sides(tmp_path, [{"scheduled_per_s": 20}] * 5, [lossy] * 5)
    assert "kai schedules " in explain(found)
    lost = "There is no verdict at p95: more than 5 % of the workloads never completed it in 5 of 5 runs of kai."
    assert explain(found).endswith(f" {lost}")


def test_sides_without_a_turn_in_common_are_not_compared(tmp_path: Path) -> None:
    two_sides(tmp_path, [{}] * 2, [{}] * 2)
    for gone in ("run-0", "run-3"):
        (tmp_path / gone / "tables" / "submissions.parquet").unlink()
    found = studied(tmp_path)
    assert explain(found).startswith("The medians of default and kai cannot be compared: no turn has a run of both.")
    assert numbers(found)


def test_medians_stand_in_where_no_side_came_as_far_as_p95(tmp_path: Path) -> None:
    lossy = {"lost": tuple(range(30))}
    assert {"default: median", "kai: median"} <= set(numbers(two_sides(tmp_path, [lossy] * 2, [lossy] * 2)))


def test_a_single_run_is_answered_by_its_rate(tmp_path: Path) -> None:
    analysis(Plan(np.arange(900) / 60, scheduled_per_s=40), tmp_path)
    found = studied(tmp_path)
    assert found.answer == analyse_run(tmp_path).answer
    assert found.comparison.is_empty()
    assert set(numbers(found)) == {"default-scheduler: p95", "default-scheduler: sustained rate"}
    rate, own = found.next_steps()
    assert rate.startswith("Do not plan above the proven rates, ")
    assert "pods/s with default-scheduler" in rate
    assert own.startswith("To test your own cluster: ")


def test_a_run_that_is_too_short_for_a_rate_says_so(tmp_path: Path) -> None:
    analysis(Plan(np.arange(10) / 10), tmp_path)
    found = studied(tmp_path)
    assert "The sustainable rate is not decided" in explain(found)
    assert "default-scheduler: sustained rate" not in numbers(found)


def test_two_sides_with_gangs_keep_within_a_headline(tmp_path: Path) -> None:
    gangs = {"gang": True, "pods": 4, "scheduled_per_s": 100, "nodes": 400}
    found = two_sides(tmp_path, [gangs] * 2, [gangs] * 2)
    labels = list(numbers(found))
    assert 3 <= len(labels) <= summary.MAX_KEY_NUMBERS
    assert sum("default" in label for label in labels) == sum("kai" in label for label in labels)
    assert "Complete gangs: 400 of 400 with default, 400 of 400 with kai." in explain(found)


def imported(folder: Path) -> Path:
    """A run of ours, written as the old tool's files, and read back as if another had made it."""
    chains = [one for index in range(20) for one in making.chain(index, 0.4 + index)]
    export_run(making.run(folder / "own", 20, chains), folder / "files")
    return Path(import_folder(folder / "files", out=folder / "imported").run.folder)


def test_an_imported_run_has_a_name_an_answer_and_nothing_made_up(tmp_path: Path) -> None:
    found = studied(imported(tmp_path))
    assert found.found.names == ("imported",)
    said = "95 % of the sampled workloads were decided (scheduled or unschedulable) within"
    assert explain(found).startswith(said)
    assert explain(found).endswith("of submission; the files do not contain a rate.")
    assert "plan and cluster are unknown" in found.notes[0]
    ((value, unit, note),) = numbers(found).values()
    assert (value > 0, unit, note) == (True, "s", "sent to decided")
    assert found.step == "sent to decided"
    assert found.found.durations(found.step).height == 20


def test_an_imported_run_without_a_decision_says_so(tmp_path: Path) -> None:
    found = imported(tmp_path)
    sent = MILESTONES.read(found / "tables").filter(pl.col("milestone") != "decided")
    MILESTONES.write(sent, found / "tables")
    assert analyse_run(found).explanation.startswith("The sampled workloads have no time of decision; ")


def test_two_imported_sides_are_said_to_decide_and_not_to_schedule(tmp_path: Path) -> None:
    slow, quick = (imported(tmp_path / name) for name in ("slow", "quick"))
    table = MILESTONES.read(slow / "tables")
    later = pl.when(pl.col("milestone") == "decided").then(pl.col("server_s") * 3 + 60).otherwise("server_s")
    MILESTONES.write(table.with_columns(later.alias("server_s")), slow / "tables")
    found = Study(NotebookConfig(), variants.combine_variants([slow] * 2, [quick] * 2, ("slow", "quick")))
    assert "quick decides (scheduled or unschedulable) " in explain(found)


def test_two_imported_runs_are_compared_by_their_own_total(tmp_path: Path) -> None:
    one = imported(tmp_path)
    comparison = variants.combine_variants([one], [one]).comparison()
    assert set(comparison["step"]) == {"sent to decided"}
    assert set(comparison["clock"]) == {"mixed"}
    assert set(comparison["verdict"]) == {"UNDECIDED"}


def test_what_was_measured_is_told_once(tmp_path: Path) -> None:
    found = studied(session(tmp_path, repeat=1))
    assert found.notes[0] == (
        "Runs: 1 of a, 1 of b; plan simulated; Kubernetes simulated, your cluster; "
        "its nodes are simulated, so steps after the binding are simulated too."
    )
    assert len(found.notes) == len(set(found.notes))


def test_a_step_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown step; known are lateness, admission"):
        NotebookConfig(step="scheduled")


def test_durations_keep_those_that_never_ended(tmp_path: Path) -> None:
    table = two_sides(tmp_path, [{"lost": (1, 2)}], [{}]).found.durations("due to scheduled")
    counts = table.group_by("side", maintain_order=True).agg(pl.len(), pl.col("duration_s").null_count().alias("lost"))
    assert counts.rows() == [("default", 200, 2), ("kai", 200, 0)]
