"""Assistants ask about event logs at the places that were chosen, and about no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.fakes.history_server import serve_fake
from tests.runs.test_questions import ask
from workbench.core.errors import ConfigError
from workbench.eventlog.reader import read_event_logs
from workbench.runs.question_server import build_server
from workbench.runs.questions import MAX_REPLY_BYTES, measure_reply
from workbench.speedup.attribution.application_profile import build_profile
from workbench.speedup.log_questions import LogQuestions, list_questions

LOGS = SAMPLES / "eventlogs"
SMALL = LOGS / "small" / "three_queries.zstd"


def build_tools(*places: str) -> Any:
    return build_server(SAMPLES, list_questions(places))


def test_the_profile_is_that_of_the_command() -> None:
    (found,) = ask(build_tools(str(LOGS)), ("profile_event_log", {"log": "three_queries.zstd"}))
    assert not found.is_error, found.content
    profile = build_profile(read_event_logs(SMALL))
    answer = found.structured_content
    assert (answer["answer"], answer["verdict"]) == (profile.answer, profile.verdict)
    assert answer["findings"] == profile.findings.to_dicts()
    assert answer["wall_parts"] == profile.wall_parts.to_dicts()


def test_logs_are_listed_and_replies_are_bounded() -> None:
    listed, profiled = ask(
        build_tools(str(LOGS)), ("list_event_logs", {}), ("profile_event_log", {"log": "tpch_sf0.1.zstd"})
    )
    logs = listed.structured_content["logs"]
    assert any(log["log"].endswith("three_queries.zstd") for log in logs)
    assert measure_reply(profiled.structured_content) <= MAX_REPLY_BYTES


def test_two_logs_are_compared() -> None:
    folder = SAMPLES / "speedup" / "tpch-sf1" / "logs"
    (found,) = ask(
        build_tools(str(folder)),
        ("compare_event_logs", {"baseline": "spark-s1.zstd", "candidate": "comet-s1.zstd", "query": "q3"}),
    )
    assert not found.is_error, found.content
    assert found.structured_content["operators"]
    assert found.structured_content["verdict"] in ("valid", "invalid")


def test_other_places_are_not_read(tmp_path: Path) -> None:
    results = ask(
        build_tools(str(SMALL)),
        ("profile_event_log", {"log": str(LOGS / "failing.zstd")}),
        ("profile_event_log", {"log": "history:http://127.0.0.1:1/app-1-1"}),
        ("profile_event_log", {"log": ""}),
    )
    assert [result.is_error for result in results] == [True] * 3
    assert "no such event log here" in str(results[0].content)


def test_a_name_that_means_several_is_refused() -> None:
    with pytest.raises(ConfigError, match="several event logs end so"):
        LogQuestions([str(LOGS)]).profile_event_log(".zstd")


def test_logs_of_a_history_server_are_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    applications = [{"id": "local-1", "name": "a", "attempts": [{"startTime": "", "completed": True}]}]
    with serve_fake(applications, {"local-1": SMALL}) as (url, _):
        about = LogQuestions([f"history:{url}"])
        (log,) = about.list_event_logs()["logs"]
        assert about.profile_event_log(log["log"])["verdict"] == "valid"
