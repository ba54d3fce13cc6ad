"""The seed generator: golden factor files to the byte, from profiles and from logs; its rules on a hand-made pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.profile_folder import read_profile_folder
from workbench.speedup.compat_rapids_tools.profile_tables import SeedApplication, StageRow, build_seed_application
from workbench.speedup.compat_rapids_tools.seed_factors import generate_factors
from workbench.speedup.compat_rapids_tools.seed_log import read_seed_logs

PAIRS = [("join", "rp_sql_eventlog", "rapids_join_eventlog"), ("dsv1", "eventlog_dsv1", "eventlog-gpu-dsv1")]


def one(name: str = "a", duration_ms: int = 1000, **more: object) -> SeedApplication:
    fields: dict[str, object] = {"spans": (), "span_times": (), "stages": ()}
    return SeedApplication("here", name, duration_ms, False, **(fields | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("case", "_cpu", "_gpu"), PAIRS)
def test_golden_profiles_give_the_golden_factors_to_the_byte(golden: Path, case: str, _cpu: str, _gpu: str) -> None:
    folder = golden / case
    found = generate_factors(
        read_profile_folder(folder / "cpu_profile", accelerated=False),
        read_profile_folder(folder / "gpu_profile", accelerated=True),
    )
    assert found.format_csv() == (folder / "generatedScores.csv").read_text()
    assert found.format_details() == (folder / "generate_verbose.txt").read_text()


@pytest.mark.parametrize(("case", "cpu", "gpu"), PAIRS)
def test_event_logs_give_the_golden_factors_to_the_byte(
    golden: Path, logs: Path, case: str, cpu: str, gpu: str
) -> None:
    before, after = (
        [build_seed_application(log) for log in read_seed_logs(logs / f"{name}.zstd")] for name in (cpu, gpu)
    )
    found = generate_factors(before, after)
    assert found.format_csv() == (golden / case / "generatedScores.csv").read_text()
    assert found.format_details() == (golden / case / "generate_verbose.txt").read_text()


def test_a_stage_is_shared_equally_and_codegen_seconds_come_on_top_of_milliseconds(
    cpu_log: Path, gpu_log: Path
) -> None:
    found = generate_factors(
        [build_seed_application(read_seed_logs(cpu_log)[0])], [build_seed_application(read_seed_logs(gpu_log)[0])]
    )
    # 4000 ms of codegen over two operators, divided by 1000; 4000 ms of stage over two operators.
    assert found.cpu == {"Project": 2.0, "Filter": 2002.0, "Scan parquet ": 2000.0}
    assert found.gpu == {"GpuFilter": 2000.0, "GpuScan parquet ": 2000.0}
    assert found.overall == 2.0
    assert found.scores == {"BatchScanExec": 1.0, "FileSourceScanExec": 1.0, "FilterExec": 1.0}


@pytest.mark.parametrize(
    ("cpu", "gpu", "scores"),
    [
        ([StageRow(100, "Filter(1)")], [StageRow(1000, "GpuFilter(1)")], {"FilterExec": 1.0}),
        (
            [StageRow(100, "Scan parquet (1)"), StageRow(600, "Scan orc (2)")],
            [StageRow(100, "GpuScan parquet (1)"), StageRow(100, "GpuScan orc (2)")],
            {"BatchScanExec": 6.0, "FileSourceScanExec": 6.0},
        ),
    ],
    ids=["a ratio below one is raised to one", "ORC overwrites Parquet"],
)
def test_scores_are_those_of_the_original(cpu: list[StageRow], gpu: list[StageRow], scores: dict[str, float]) -> None:
    assert generate_factors([one(stages=tuple(cpu))], [one(stages=tuple(gpu))]).scores == scores


def test_a_span_without_members_is_booked_as_nan() -> None:
    found = generate_factors([one(span_times=(("Scan csv ", 5000),))], [one()])
    assert found.cpu == {"nan": 5.0}


def test_of_one_name_the_last_counts_while_durations_add_up_and_a_warning_says_so() -> None:
    cpu = [one(duration_ms=3000, stages=(StageRow(100, "Filter(1)"),)) for _ in range(2)]
    gpu = [one(stages=(StageRow(50, "GpuFilter(1)"),))]
    found = generate_factors(cpu, gpu)
    assert found.cpu == {"Filter": 100.0}
    assert found.overall == 6.0
    assert "2 applications on the CPU side are called 'a'" in found.warnings[0]


def test_applications_of_different_names_add_up() -> None:
    cpu = [one("a", stages=(StageRow(100, "Filter(1)"),)), one("b", stages=(StageRow(200, "Filter(1)"),))]
    found = generate_factors(cpu, [one(stages=(StageRow(100, "GpuFilter(1)"),))])
    assert found.scores == {"FilterExec": 3.0}
    assert found.warnings == ()


def test_another_table_of_pairs_serves_another_engine() -> None:
    cpu, gpu = one(stages=(StageRow(100, "Filter(1)"),)), one(stages=(StageRow(40, "CometFilter(1)"),))
    assert generate_factors([cpu], [gpu], pairs=(("Filter", "CometFilter", ("FilterExec",)),)).scores == {
        "FilterExec": 2.5
    }


@pytest.mark.parametrize(
    ("cpu", "gpu", "message"),
    [
        ([one(stages=(StageRow(100, "Filter(1)"),))], [one(stages=(StageRow(0, "GpuFilter(1)"),))], "took no time"),
        ([], [one()], "no application time on the CPU side"),
        ([one()], [], "no application time on the GPU side"),
        ([one()], [one(stages=(StageRow(None, "GpuFilter(1)"),))], "stage without a duration"),
    ],
)
def test_what_the_original_made_zero_inf_or_nan_of_is_refused(
    cpu: list[SeedApplication], gpu: list[SeedApplication], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        generate_factors(cpu, gpu)
