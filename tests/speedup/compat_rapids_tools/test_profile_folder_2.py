"""The profile folder: equal to v24.08's own files, cell by cell and in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools import made
from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.profile_folder import write_profile_folder

LOGS = {
    "join/cpu_profile": "rp_sql_eventlog",
    "join/gpu_profile": "rapids_join_eventlog",
    "dsv1/cpu_profile": "eventlog_dsv1",
    "dsv1/gpu_profile": "eventlog-gpu-dsv1",
}


@pytest.mark.parametrize(("folder", "log"), LOGS.items())
def test_every_golden_table_is_written_to_the_byte(
    golden: Path, logs: Path, tmp_path: Path, folder: str, log: str
) -> None:
    written = {path.name: path.read_text() for path in write_profile_folder([logs / f"{log}.zstd"], tmp_path)}
    expected = {path.name: path.read_text() for path in (golden / folder).glob("*.csv")}
    assert written == expected


def test_the_layout_is_that_of_the_original(cpu_log: Path, tmp_path: Path) -> None:
    written = write_profile_folder([cpu_log], tmp_path / "out")
    assert {path.relative_to(tmp_path).as_posix() for path in written} == {
        f"out/rapids_4_spark_profile/app-1/{name}.csv"
        for name in (
            "application_information",
            "job_information",
            "sql_to_stage_information",
            "wholestagecodegen_mapping",
            "sql_plan_metrics_for_application",
            "stage_level_aggregated_task_metrics",
            "sql_duration_and_executor_cpu_time_percent",
        )
    }


def test_two_logs_of_one_application_do_not_overwrite_each_other(cpu_log: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.write_bytes(made.cpu(name="other"))
    with pytest.raises(InputError, match="two logs of the same application"):
        write_profile_folder([cpu_log, again], tmp_path / "out")


def test_a_profile_that_is_there_is_not_overwritten(cpu_log: Path, tmp_path: Path) -> None:
    write_profile_folder([cpu_log], tmp_path / "out")
    with pytest.raises(InputError, match="there is a profile of this application already"):
        write_profile_folder([cpu_log], tmp_path / "out")


def test_an_application_id_does_not_leave_the_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(made.cpu(app_id="../../up"))
    for path in write_profile_folder([log], tmp_path / "out"):
        assert path.resolve().is_relative_to((tmp_path / "out").resolve())
