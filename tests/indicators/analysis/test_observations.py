"""The archive as tables: every run has its row, and only good ones have values."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.indicators.worlds import on_disk, result, session
from workbench.core.errors import InputError
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.store.archive import CONTROL, inspection_id, result_path, write_result, write_session

VALUES = {("base", "Sort"): [1.0, 2.0], ("other", "Sort"): [3.0, None], (CONTROL, "Sort"): [1.5, 2.5]}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    found = load_observations(on_disk(tmp_path, session(), VALUES))
    assert found.values.select("arm", "round", "value").sort("arm", "round").rows() == [
        ("base", 0, 1.0),
        ("base", 1, 2.0),
        (CONTROL, 0, 1.5),
        (CONTROL, 1, 2.5),
        ("other", 0, 3.0),
    ]
    assert found.runs.height == 6
    failed = found.runs.filter(found.runs["status"] != "ok").row(0, named=True)
    told = [failed[name] for name in ("arm", "status", "passed", "overall_score", "ru_maxrss")]
    assert told == ["other", "timeout", None, None, None]


def test_checks_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    plan = session(compared_checks=("digest",))
    write_session(tmp_path, plan)
    made = result(plan, "base", "Sort", 0, 1.0, checks={"digest": "abc", "wrong": 0})
    write_result(tmp_path, inspection_id(plan.session_id, "base", "Sort"), 0, made)
    assert load_observations(tmp_path).checks.select("field", "value", "compared").rows() == [
        ("digest", "abc", True),
        ("wrong", "0", False),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not valid JSON"),
        ('{"stdout": 1}', "not a result of this project"),
        (result(session(), "other", "Sort", 0, 1.0).model_dump_json(), "run of another session"),
    ],
)
def test_a_damaged_document_or_one_that_belongs_elsewhere_is_named(tmp_path: Path, text: str, told: str) -> None:
    plan = session()
    on_disk(tmp_path, plan, VALUES)
    path = result_path(tmp_path, inspection_id(plan.session_id, "base", "Sort"), 0)
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        load_observations(tmp_path)
    assert str(path) in str(caught.value)


def test_a_folder_without_a_session_or_with_one_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no session\.json in this folder"):
        load_observations(tmp_path)
    write_session(tmp_path, session().model_copy(update={"format_version": 99}))
    with pytest.raises(InputError, match="written by a newer version"):
        load_observations(tmp_path)


def test_a_folder_that_is_not_the_number_of_a_run_is_named(tmp_path: Path) -> None:
    plan = session()
    on_disk(tmp_path, plan, VALUES)
    run = result_path(tmp_path, inspection_id(plan.session_id, "base", "Sort"), 0).parent
    shutil.copytree(run, run.with_name("0 (copy)"))
    with pytest.raises(InputError, match="not a run number") as caught:
        load_observations(tmp_path)
    assert "0 (copy)" in str(caught.value)
