"""Which session is meant: exactly one, or an error that says in what they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indicators import worlds
from workbench.core.errors import InputError
from workbench.indicators.recommendation import recommender
from workbench.indicators.store.archive import Session, write_session


def kept(folder: Path, session_id: str, **changes: object) -> Session:
    made = worlds.session(session_id=session_id).model_copy(update=changes)
    write_session(folder / session_id, made)
    return made


def test_a_sessions_own_folder_or_one_above_it(tmp_path: Path) -> None:
    kept(tmp_path / "indicators", "first")
    for folder in (tmp_path / "indicators" / "first", tmp_path / "indicators", tmp_path):
        assert recommender.choose_session([folder]) == tmp_path / "indicators" / "first"


def test_no_session_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no session there") as caught:
        recommender.choose_session([tmp_path, tmp_path / "nowhere"])
    assert "workbench indicators run" in str(caught.value)


def test_several_sessions_are_refused_with_what_they_differ_in(tmp_path: Path) -> None:
    kept(tmp_path, "a", created_at="2026-01-01T00:00:00+00:00")
    kept(tmp_path, "b", created_at="2026-01-02T00:00:00+00:00", threads=4)
    kept(tmp_path, "c", created_at="2026-01-03T00:00:00+00:00")
    with pytest.raises(InputError, match="several sessions") as caught:
        recommender.choose_session([tmp_path])
    said = str(caught.value)
    assert "b differs from a in threads; c measures the same as a" in said
    assert "--session c" in said


def test_a_session_may_be_picked_by_how_its_id_begins(tmp_path: Path) -> None:
    kept(tmp_path, "20260101-a")
    kept(tmp_path, "20260102-b")
    assert recommender.choose_session([tmp_path], "20260102").name == "20260102-b"
    with pytest.raises(InputError, match="several sessions"):
        recommender.choose_session([tmp_path], "2026")
    with pytest.raises(InputError, match="no such session") as caught:
        recommender.choose_session([tmp_path], "2027")
    assert "20260101-a, 20260102-b" in str(caught.value)


def test_differences_are_those_that_decide_what_is_fast() -> None:
    one = worlds.session()
    hardware = one.hardware.model_copy(update={"key": "other"})
    case = one.cases[0].model_copy(update={"indicator_version": "v2"})
    arms = (one.arms[0].model_copy(update={"stack_key": "k"}), *one.arms[1:])
    changed = {"hardware": hardware, "cases": (case,), "threads": 2, "arms": arms}
    other = one.model_copy(update=changed)
    found = recommender.list_differences(one, other)
    assert found == ["the baseline's lock", "the machine", "threads", "the version of Sort"]
    assert recommender.list_differences(one, one.model_copy(update={"session_id": "x", "seed": 5})) == []
    assert recommender.list_differences(one, one.model_copy(update={"cases": ()})) == ["cases"]
