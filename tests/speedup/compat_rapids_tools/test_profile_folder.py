"""Profile folders as they are found: any version's columns, and every way in which they can be unusable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.speedup.compat_rapids_tools.profile_folder import (
    is_profile_folder,
    read_profile_folder,
    write_profile_folder,
)


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
    "table",
    [
        "wholestagecodegen_mapping",
        "sql_plan_metrics_for_application",
        "sql_to_stage_information",
    ],
)
def test_a_missing_table_is_named(profile: Path, table: str) -> None:
    (profile / "app-1" / f"{table}.csv").unlink()
    with pytest.raises(InputError, match=rf"lacks a table[\s\S]*{table}\.csv"):
        read_profile_folder(profile, accelerated=False)


def test_the_accelerated_side_needs_neither_spans_nor_metrics(profile: Path) -> None:
    (profile / "app-1" / "wholestagecodegen_mapping.csv").unlink()
    (profile / "app-1" / "sql_plan_metrics_for_application.csv").unlink()
    assert len(read_profile_folder(profile, accelerated=True)[0].stages) == 1


def test_a_missing_column_is_named(profile: Path) -> None:
    path = profile / "app-1" / "sql_to_stage_information.csv"
    path.write_text(path.read_text().replace("Stage Duration", "Duration"))
    with pytest.raises(InputError, match=r"column\(s\) missing: Stage Duration"):
        read_profile_folder(profile, accelerated=False)


def test_a_cell_that_is_no_number_is_named(profile: Path) -> None:
    path = profile / "app-1" / "sql_to_stage_information.csv"
    path.write_text(path.read_text().replace(",4000,", ",soon,"))
    with pytest.raises(InputError, match=r"cell is no number[\s\S]*Stage Duration[\s\S]*soon"):
        read_profile_folder(profile, accelerated=False)


def test_an_application_without_a_duration_is_refused(profile: Path) -> None:
    path = profile / "app-1" / "application_information.csv"
    path.write_text(path.read_text().replace(",8000,", ',"",'))
    with pytest.raises(InputError, match="application without a duration"):
        read_profile_folder(profile, accelerated=False)


def test_a_folder_without_profiles_is_refused(tmp_path: Path) -> None:
    assert not is_profile_folder(tmp_path)
    with pytest.raises(InputError, match="no profile in this folder"):
        read_profile_folder(tmp_path, accelerated=False)


def test_sub_folders_are_applications_in_order_of_their_names(profile: Path) -> None:
    shutil.copytree(profile / "app-1", profile / "app-0")
    found = read_profile_folder(profile, accelerated=False)
    assert [Path(one.where).name for one in found] == ["app-0", "app-1"]
