"""A recording is whole sessions only: it can be stopped anywhere and gone on with, and never mixes settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.speedup.recording.recordings import FACTS, FakeSessions, config
from workbench.core.errors import ConfigError, RunFailedError
from workbench.speedup.recording import recorder, session_process
from workbench.speedup.recording.recording_plan import load_recording

pytest.importorskip("pyspark", reason="pyspark is not installed (pip install -r requirements.lock)")
pytestmark = pytest.mark.live


def silent(_: str) -> None:
    """Nobody listens."""


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> FakeSessions:
    fake = FakeSessions()
    monkeypatch.setattr(session_process, "run_session", fake)
    monkeypatch.setattr(recorder, "measure_busy_share", lambda: 0.0)
    return fake


def record(folder: Path, **changed: Any) -> recorder.RecordingOutcome:
    return recorder.record_suite(config(folder, **changed), say=silent)


def test_every_side_has_its_sessions_in_rounds_and_the_tables_say_so(sessions: FakeSessions, tmp_path: Path) -> None:
    outcome = record(tmp_path)
    assert outcome.reasons == []
    assert {frozenset(sessions.asked[:2]), frozenset(sessions.asked[2:])} == {
        frozenset({"base-s1", "other-s1"}),
        frozenset({"base-s2", "other-s2"}),
    }
    found = load_recording(tmp_path / "out")
    assert found.complete
    assert [(label, number, path.name) for label, number, path in found.iterate_logs()] == [
        ("base", 1, "base-s1.zstd"),
        ("base", 2, "base-s2.zstd"),
        ("other", 1, "other-s1.zstd"),
        ("other", 2, "other-s2.zstd"),
    ]
    assert found.read_executions().height == 2 * 2 * 2 * 3
    assert found.read_answers()["verdict"].to_list() == ["reference", "equal"] * 3
    assert found.excluded == {}
    assert found.find_side("other").settings == {"spark.sql.adaptive.enabled": "false"}


def test_both_sides_run_the_same_order_in_a_session_and_another_in_the_next_pass(
    sessions: FakeSessions, tmp_path: Path
) -> None:
    record(tmp_path, passes=8)
    orders = {name: plan.orders for name, plan in zip(sessions.asked, sessions.plans, strict=True)}
    assert orders["base-s1"] == orders["other-s1"] != orders["base-s2"] == orders["other-s2"]
    assert len({tuple(order) for order in orders["base-s1"]}) > 1


def test_settings_of_the_side_win_over_those_of_all(sessions: FakeSessions, tmp_path: Path) -> None:
    record(tmp_path, conf=["spark.sql.adaptive.enabled=true", "spark.x=1"])
    settings = {name: plan.settings for name, plan in zip(sessions.asked, sessions.plans, strict=True)}
    assert settings["base-s1"]["spark.sql.adaptive.enabled"] == "true"
    assert settings["other-s1"]["spark.sql.adaptive.enabled"] == "false"
    assert settings["other-s1"]["spark.x"] == "1"
    assert settings["base-s1"]["spark.driver.host"] == "localhost"


def test_a_cluster_is_not_bound_to_loopback_and_keeps_its_own_partitions(
    sessions: FakeSessions, tmp_path: Path
) -> None:
    record(tmp_path, master="spark://head:7077")
    assert not {"spark.driver.host", "spark.local.dir", "spark.sql.shuffle.partitions"} & set(
        sessions.plans[0].settings
    )


def test_a_stopped_recording_goes_on_where_it_was(sessions: FakeSessions, tmp_path: Path) -> None:
    def stop_at_third(name: str) -> None:
        if len(sessions.asked) == 3:
            raise KeyboardInterrupt

    sessions.before = stop_at_third
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path)
    stopped_in, before = sessions.asked[2], load_recording(tmp_path / "out")
    assert len(list(before.iterate_logs())) == 2
    assert not (tmp_path / "out" / recorder.WORK_FOLDER).exists()
    sessions.asked.clear()
    outcome = record(tmp_path)
    assert sessions.asked[0] == stopped_in
    assert len(sessions.asked) == 2
    assert outcome.recording.complete
    assert outcome.recording.read_executions().height == 24


def test_a_whole_recording_runs_nothing_again_and_may_get_more_sessions(sessions: FakeSessions, tmp_path: Path) -> None:
    record(tmp_path)
    first = list(sessions.asked)
    record(tmp_path)
    assert sessions.asked == first
    outcome = record(tmp_path, sessions=3)
    assert set(sessions.asked[4:]) == {"base-s3", "other-s3"}
    assert outcome.recording.complete
    record(tmp_path, sessions=1)
    assert len(sessions.asked) == 6


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"passes": 3}, "n_passes: 2 then, 3 now"),
        ({"seed": 1}, "seed: 0 then, 1 now"),
        ({"conf": ["spark.x=1"]}, "settings.spark.x: None then, 1 now"),
        ({"scrub": True}, "scrubbed: False then, True now"),
        ({"sides": ["base"]}, "sides"),
        ({"sides": ["base", "other"]}, "sides[1].settings.spark.sql.adaptive.enabled: false then, None now"),
        ({"master": "local[1]"}, "master: local[*] then, local[1] now"),
    ],
)
def test_other_settings_are_refused_by_name(
    sessions: FakeSessions, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    record(tmp_path)
    with pytest.raises(ConfigError) as error:
        record(tmp_path, **changed)
    assert named in str(error.value)
    assert len(sessions.asked) == 4


def test_other_data_are_refused(sessions: FakeSessions, tmp_path: Path) -> None:
    asked = config(tmp_path)
    recorder.record_suite(asked, say=silent)
    (tmp_path / "data" / "t.parquet").write_bytes(b"more")
    with pytest.raises(ConfigError, match=r"data\.fingerprint"):
        recorder.record_suite(asked, say=silent)


def test_only_an_empty_folder_or_a_recording_is_written_to(sessions: FakeSessions, tmp_path: Path) -> None:
    record(tmp_path)
    with pytest.raises(ConfigError, match="the folder is not empty"):
        record(tmp_path, fresh=True)
    with pytest.raises(ConfigError, match="holds other files"):
        record(tmp_path, out=tmp_path / "data")
    with pytest.raises(ConfigError, match="not a folder"):
        record(tmp_path, out=tmp_path / "queries.sql")
    (tmp_path / "empty").mkdir()
    assert record(tmp_path, out=tmp_path / "empty", fresh=True).reasons == []


def test_two_recorders_do_not_share_a_folder(sessions: FakeSessions, tmp_path: Path) -> None:
    asked = config(tmp_path)

    def again(name: str) -> None:
        sessions.before = lambda name: None
        with pytest.raises(ConfigError, match="another process records into this folder"):
            recorder.record_suite(asked, say=silent)

    sessions.before = again
    assert recorder.record_suite(asked, say=silent).recording.complete


def test_a_session_that_dies_leaves_nothing_but_its_reason_and_is_run_again(
    sessions: FakeSessions, tmp_path: Path
) -> None:
    sessions.before = lambda name: "out of memory" if name == "other-s2" else None
    outcome = record(tmp_path)
    assert outcome.reasons == ["other session 2: out of memory"]
    assert not outcome.recording.complete
    assert not (tmp_path / "out" / "logs" / "other-s2.zstd").exists()
    assert load_recording(tmp_path / "out").read_executions().height == 18
    sessions.before = lambda name: None
    assert record(tmp_path).reasons == []
    assert len(load_recording(tmp_path / "out").sessions) == 4


def test_a_side_whose_first_session_dies_ends_the_recording(sessions: FakeSessions, tmp_path: Path) -> None:
    sessions.before = lambda name: "no such class" if name.startswith("other") else None
    with pytest.raises(RunFailedError, match="the first session of a side failed") as error:
        record(tmp_path)
    assert "no such class" in str(error.value)
    assert len([name for name in sessions.asked if name.startswith("other")]) == 1


def test_a_wrong_answer_of_any_session_excludes_the_query_for_its_side(sessions: FakeSessions, tmp_path: Path) -> None:
    sessions.answering = lambda label, number, query: [[8 if (label, number, query) == ("other", 2, "b") else 7]]
    outcome = record(tmp_path)
    assert outcome.reasons == ["other b: wrong answer: session 2 against base-s1: 1 of 1 rows; [8] instead of [7]"]
    assert load_recording(tmp_path / "out").list_bad_queries() == {"b"}


def test_the_first_side_is_held_to_its_own_first_answer(sessions: FakeSessions, tmp_path: Path) -> None:
    sessions.answering = lambda label, number, query: [[number if (label, query) == ("base", "a") else 1]]
    outcome = record(tmp_path)
    assert outcome.recording.excluded["base"]["a"].startswith("wrong answer: session 2 against base-s1")
    assert set(outcome.recording.excluded) == {"base"}


def test_a_query_that_fails_is_named_and_the_others_count(sessions: FakeSessions, tmp_path: Path) -> None:
    sessions.answering = lambda label, number, query: None if (label, query) == ("base", "c") else [[7]]
    outcome = record(tmp_path)
    assert outcome.recording.complete
    assert outcome.recording.excluded == {"base": {"c": "failed: 4 executions failed; session 1: Error: planned"}}
    table = load_recording(tmp_path / "out").read_answers()
    # The other side's answer is then the reference, held against itself.
    assert table.filter(table["query"] == "c")["verdict"].to_list() == ["failed", "reference"]
    assert {one.n_failed for one in outcome.recording.sessions if one.label == "base"} == {2}


def test_a_busy_machine_is_said(sessions: FakeSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "measure_busy_share", lambda: 0.8)
    outcome = record(tmp_path)
    assert outcome.reasons == []
    assert all("80 % of its CPU" in one.warnings[0] for one in outcome.recording.sessions)


@pytest.mark.parametrize(
    ("load", "warned"),
    [
        (None, []),
        ({"other_cpu_share": 0.02, "steal_share": 0.01}, []),
        ({"other_cpu_share": 0.45, "steal_share": 0.01}, ["other programs used the CPU during the session: 45 %"]),
        ({"other_cpu_share": 0.02, "steal_share": 0.3}, ["other virtual machines used the CPU"]),
    ],
)
def test_load_during_a_session_is_kept_and_warned_of(
    sessions: FakeSessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Any, warned: list[str]
) -> None:
    monkeypatch.setitem(FACTS, "load", load)
    recording = record(tmp_path).recording
    for one in recording.sessions:
        assert (one.other_cpu_share, one.steal_share) == tuple((load or dict.fromkeys("ab")).values())
        assert len(one.warnings) == len(warned)
        assert all(text in warning for text, warning in zip(warned, one.warnings, strict=True))


def test_rows_of_a_session_that_was_never_noted_do_not_count(sessions: FakeSessions, tmp_path: Path) -> None:
    record(tmp_path)
    path = tmp_path / "out" / "recording.json"
    record_json = json.loads(path.read_text())
    record_json["sessions"] = [one for one in record_json["sessions"] if one["label"] == "base"]
    path.write_text(json.dumps(record_json))
    assert load_recording(tmp_path / "out").read_executions()["label"].unique().to_list() == ["base"]


def test_values_of_secrets_are_not_written_down(sessions: FakeSessions, tmp_path: Path) -> None:
    record(tmp_path, conf=["spark.hadoop.fs.s3a.secret.key=abracadabra"])
    assert "abracadabra" not in (tmp_path / "out" / "recording.json").read_text()
    assert sessions.plans[0].settings["spark.hadoop.fs.s3a.secret.key"] == "abracadabra"
    record(tmp_path, conf=["spark.hadoop.fs.s3a.secret.key=abracadabra"])
    assert len(sessions.asked) == 4
