"""Profile folders: equal to v24.08's own files, cell by cell and in its order; any version's columns are read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.speedup.compat_rapids_tools import made
from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.profile_folder import (
    is_profile_folder,
    read_profile_folder,
    write_profile_folder,
)

LOGS = {
    "join/cpu_profile": "rp_sql_eventlog",
    "join/gpu_profile": "rapids_join_eventlog",
    "dsv1/cpu_profile": "eventlog_dsv1",
    "dsv1/gpu_profile": "eventlog-gpu-dsv1",
}


@pytest.fixture
def profile(cpu_log: Path, tmp_path: Path) -> Path:
    write_profile_folder([cpu_log], tmp_path / "out")
    return tmp_path / "out" / "rapids_4_spark_profile"


def test_a_written_profile_is_read_back(profile: Path) -> None:
    (found,) = read_profile_folder(profile, accelerated=False)
    assert (found.name, found.duration_ms, found.accelerated) == ("made", 8000, False)
    assert found.spans == (("WholeStageCodegen (1)", "Project"), ("WholeStageCodegen (1)", "Filter"))
    assert found.span_times == (("WholeStageCodegen (1)", 4000),)
    assert [stage.duration_ms for stage in found.stages] == [4000]


@pytest.mark.parametrize("below", ["", "rapids_4_spark_profile", "rapids_4_spark_profile/app-1"])
def test_the_folder_above_and_the_application_itself_will_do(profile: Path, below: str) -> None:
    folder = profile.parent / below
    assert is_profile_folder(folder)
    assert len(read_profile_folder(folder, accelerated=False)) == 1


def test_columns_are_found_by_name_wherever_they_stand(profile: Path) -> None:
    path = profile / "app-1" / "application_information.csv"
    path.write_text(
        "appName,appId,attemptId,sparkUser,startTime,endTime,exitCode,duration,durationStr,sparkRuntime,sparkVersion,"
        'pluginEnabled,totalCoreSeconds\n"newer","app-1",1,"ann",1,2,0,7000,"7 s","SPARK","3.5.9",false,12\n'
    )
    assert read_profile_folder(profile, accelerated=False)[0].duration_ms == 7000


@pytest.mark.parametrize(
    "table", ["wholestagecodegen_mapping", "sql_plan_metrics_for_application", "sql_to_stage_information"]
)
def test_a_missing_table_is_named(profile: Path, table: str) -> None:
    (profile / "app-1" / f"{table}.csv").unlink()
    with pytest.raises(InputError, match=rf"lacks a table[\s\S]*{table}\.csv"):
        read_profile_folder(profile, accelerated=False)


def test_the_accelerated_side_needs_neither_spans_nor_metrics(profile: Path) -> None:
    (profile / "app-1" / "wholestagecodegen_mapping.csv").unlink()
    (profile / "app-1" / "sql_plan_metrics_for_application.csv").unlink()
    assert len(read_profile_folder(profile, accelerated=True)[0].stages) == 1


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("sql_to_stage_information", "Stage Duration", "Duration", r"column\(s\) missing: Stage Duration"),
        ("sql_to_stage_information", ",4000,", ",soon,", r"cell is no number[\s\S]*Stage Duration[\s\S]*soon"),
        ("application_information", ",8000,", ',"",', "application without a duration"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_by_its_column(
    profile: Path, table: str, old: str, new: str, message: str
) -> None:
    path = profile / "app-1" / f"{table}.csv"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        read_profile_folder(profile, accelerated=False)


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    assert not is_profile_folder(tmp_path)
    with pytest.raises(InputError, match="no profile in this folder"):
        read_profile_folder(tmp_path, accelerated=False)


def test_sub_folders_are_applications_in_order_of_their_names(profile: Path) -> None:
    shutil.copytree(profile / "app-1", profile / "app-0")
    found = read_profile_folder(profile, accelerated=False)
    assert [Path(one.where).name for one in found] == ["app-0", "app-1"]


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


def test_a_profile_is_not_overwritten_by_another_log_nor_another_time(cpu_log: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.write_bytes(made.cpu(name="other"))
    with pytest.raises(InputError, match="two logs of the same application"):
        write_profile_folder([cpu_log, again], tmp_path / "out")
    write_profile_folder([cpu_log], tmp_path / "out")
    with pytest.raises(InputError, match="there is a profile of this application already"):
        write_profile_folder([cpu_log], tmp_path / "out")


def test_an_application_id_does_not_leave_the_folder(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(made.cpu(app_id="../../up"))
    for path in write_profile_folder([log], tmp_path / "out"):
        assert path.resolve().is_relative_to((tmp_path / "out").resolve())
