"""The calculator's file: what is read, what is refused by name, which of several jobs counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from workbench import sizing
from workbench.core.errors import InputError
from workbench.sizing.compat_nat import calc_file, calc_outputs


def document(**levels: Any) -> dict[str, Any]:
    return {"calc_data": {name.removeprefix("c"): {"sizing_metrics": metrics} for name, metrics in levels.items()}}


def job(folder: Path, name: str, content: Any, *, age_s: float = 0.0, mode: str = "online") -> Path:
    path = folder / mode / name / calc_file.CALC_FILE_NAME
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path.parent, (1e9 - age_s, 1e9 - age_s))
    return path


def metrics(p95_s: float = 1.0) -> dict[str, Any]:
    return {"llm_latency_p95": p95_s / 2, "workflow_runtime_p95": p95_s}


def test_what_is_written_is_read_back_the_same(tmp_path: Path) -> None:
    output = calc_file.CalcOutput.model_validate(document(c1=metrics(), c2=metrics(2.5)))
    found, notices = calc_file.read_calc_file(calc_file.write_calc_file(tmp_path / calc_file.CALC_FILE_NAME, output))
    assert (found, notices) == (output, [])


def test_fields_are_written_in_the_toolkits_order() -> None:
    written = json.loads(calc_file.CalcOutput.model_validate(document(c1=metrics())).text())
    assert list(written) == ["gpu_estimates", "fit_results", "calc_data"]
    assert list(written["calc_data"]["1"]) == ["gpu_estimates", "alerts", "sizing_metrics"]
    times = ("llm_latency_p95", "workflow_runtime_p95", "total_runtime")
    assert list(written["calc_data"]["1"]["sizing_metrics"]) == ["alerts", *times, "per_item_metrics"]


def test_texts_and_flags_in_place_of_numbers_are_taken_as_the_toolkit_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(document(c1={"llm_latency_p95": "1.5", "workflow_runtime_p95": True, "more": 1})))
    level = calc_file.read_calc_file(path)[0].calc_data[1].sizing_metrics
    assert (level.llm_latency_p95, level.workflow_runtime_p95) == (1.5, 1.0)


@pytest.mark.parametrize(
    ("content", "where", "told"),
    [
        ('{"calc_data"', "", "not JSON"),
        ('{"calc_data": []}', "calc_data", "field has the wrong type"),
        ('{"calc_data": {"many": {}}}', "calc_data.many", "field has the wrong type"),
        (json.dumps(document(c1={"llm_latency_p95": "fast"})), "sizing_metrics.llm_latency_p95", "wrong type"),
        ("[" * 100_000, "", "not JSON"),
    ],
)
def test_a_file_that_is_none_is_refused_with_file_and_field(
    content: str, where: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "f.json"
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        calc_file.read_calc_file(path)
    assert told in str(refused.value)
    assert str(path) in str(refused.value)
    assert where in str(refused.value)


def test_a_file_that_is_not_there_not_text_or_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f.json"
    with pytest.raises(InputError, match="cannot read"):
        calc_file.read_calc_file(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="not UTF-8"):
        calc_file.read_calc_file(path)
    monkeypatch.setattr(calc_file, "MAX_CALC_FILE_BYTES", 2)
    with pytest.raises(InputError, match="too large"):
        calc_file.read_calc_file(path)


def test_the_newest_job_has_the_last_word_on_a_level(tmp_path: Path) -> None:
    job(tmp_path, "job_9", document(c1=metrics(1.0), c2=metrics(2.0)), age_s=60)
    job(tmp_path, "job_1", document(c4=metrics(4.0), c2=metrics(9.0)))
    found = calc_file.read_recorded_levels(tmp_path)
    assert list(found.metrics) == [4, 2, 1]
    assert found.metrics[2].workflow_runtime_p95 == 9.0
    assert found.source == {4: "job_1", 2: "job_1", 1: "job_9"}


def test_of_jobs_of_the_same_time_the_higher_number_is_the_newer(tmp_path: Path) -> None:
    for name in ("job_2", "job_10", "job_9"):
        job(tmp_path, name, document(c1=metrics(float(name[4:]))))
    assert calc_file.read_recorded_levels(tmp_path).metrics[1].workflow_runtime_p95 == 10.0


def test_a_job_that_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    job(tmp_path, "job_1", document(c1=metrics()))
    job(tmp_path, "job_2", "no")
    (tmp_path / "online" / "job_3").mkdir()
    found = calc_file.read_recorded_levels(tmp_path)
    assert list(found.metrics) == [1]
    assert sorted(notice.split(" ")[0] for notice in found.notices) == ["job_2", "job_3"]
    assert all("left out" in notice for notice in found.notices)


def test_without_a_job_that_can_be_read_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of recorded jobs"):
        calc_file.read_recorded_levels(tmp_path)
    (tmp_path / "online").mkdir()
    with pytest.raises(InputError, match="no recorded jobs"):
        calc_file.read_recorded_levels(tmp_path)
    job(tmp_path, "job_1", "no")
    with pytest.raises(InputError, match="not JSON"):
        calc_file.read_recorded_levels(tmp_path)


OLD = {
    "gpu_estimates": {"gpu_estimate_by_wf_runtime": 76.6},
    "per_concurrency_data": {
        "1": {"sizing_metrics": metrics(3.0), "out_of_range_runs": {"workflow_interrupted": True}},
        "2": {"gpu_estimates": {}, "out_of_range_runs": {}},
    },
}


def test_the_older_schema_is_read_with_a_notice(tmp_path: Path) -> None:
    found, notices = calc_file.read_calc_file(job(tmp_path, "job_1", OLD))
    assert list(found.calc_data) == [1]
    assert found.calc_data[1].sizing_metrics.alerts.workflow_interrupted
    assert found.calc_data[1].sizing_metrics.workflow_runtime_p95 == 3.0
    assert notices == [
        "job_1: older schema (per_concurrency_data), 1 level(s) read",
        "job_1: no p95 values for level(s) 2: they cannot be calculated again "
        "(the file says 76.6 GPUs by workflow runtime)",
    ]


@pytest.mark.parametrize("levels", [[], "x", None, {"1": {"sizing_metrics": {"llm_latency_p95": "fast"}}}])
def test_an_older_schema_that_is_broken_is_told(levels: Any, tmp_path: Path) -> None:
    path = job(tmp_path, "job_1", {"per_concurrency_data": levels})
    if isinstance(levels, dict):
        with pytest.raises(InputError, match="wrong type"):
            calc_file.read_calc_file(path)
    else:
        assert "without levels" in calc_file.read_calc_file(path)[1][0]


def test_jobs_of_one_second_never_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calc_outputs.time, "time", lambda: 1_700_000_000.9)
    names = [calc_outputs.create_job_folder(tmp_path, "online").name for _ in range(3)]
    assert names == ["job_1700000000", "job_1700000001", "job_1700000002"]
    appended = {calc_outputs.create_job_folder(tmp_path, "online", append=True).name for _ in range(3)}
    assert len(appended) == 3
    assert all(len(name) == len("job_") + 36 for name in appended)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offline").write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        calc_outputs.create_job_folder(tmp_path, "offline")


def test_only_jobs_are_removed_and_never_through_a_link(tmp_path: Path) -> None:
    kept = job(tmp_path, "job_1", document()).parent
    old = job(tmp_path, "job_2", document()).parent
    (tmp_path / "online" / "job_notes").mkdir()
    (tmp_path / "online" / "job_3").symlink_to(old, target_is_directory=True)
    found = list(calc_file.list_job_folders(tmp_path / "online"))
    assert calc_outputs.remove_older_jobs(kept, found) == ["job_2"]
    assert sorted(path.name for path in (tmp_path / "online").iterdir()) == ["job_1", "job_3", "job_notes"]


def test_too_many_jobs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calc_file, "MAX_JOBS", 1)
    job(tmp_path, "job_1", document())
    job(tmp_path, "job_2", document())
    with pytest.raises(InputError, match="too many jobs"):
        calc_file.read_recorded_levels(tmp_path)


def test_a_load_beyond_all_services_is_left_out_and_told(tmp_path: Path) -> None:
    job(tmp_path, "job_1", {"calc_data": {"1": {}, str(10**23): {}}})
    found = calc_file.read_recorded_levels(tmp_path)
    assert list(found.metrics) == [1]
    assert "its load is above" in found.notices[0]
    with pytest.raises(InputError, match="load is too large"):
        sizing.calculate(levels={10**23: {}})
