"""Sides as options spell them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.spark.engine_jars import class_path_settings
from workbench.spark.engines import COMET
from workbench.speedup.config import RecordConfig
from workbench.speedup.recording import recording_plan
from workbench.speedup.recording.query_suite import QueryData, Suite


def test_engines_are_sides_under_their_own_names() -> None:
    spark, comet = recording_plan.parse_sides(["spark", "comet"], [], [])
    assert (spark.label, spark.settings, spark.artifact) == ("spark", {}, None)
    assert (comet.settings, comet.artifact) == ({}, COMET["3.5"])


def test_settings_of_all_sides_override_an_engines_and_a_sides_own_override_both(tmp_path: Path) -> None:
    size = "spark.memory.offHeap.size"
    config = RecordConfig(
        out=tmp_path / "out",
        queries="tpch",
        data=str(tmp_path),
        engines=["spark", "comet"],
        sides=[f"small:comet,{size}=100m"],
        conf=[f"{size}=200m"],
    )
    sides = tuple(recording_plan.parse_sides(config.engines, config.labels, config.sides))
    data = QueryData(place=str(tmp_path), source="data", scale=None, views={}, fingerprint=None)
    plan = recording_plan.RecordingPlan(config, Suite("mine", {"q1": "SELECT 1"}), data, sides, {})
    found = {}
    for side in sides:
        session = plan.build_session_plan(side.label, 1, folder=tmp_path, scratch=tmp_path)
        assert (session.settings.get("spark.plugins") is None) == (side.engine == "spark")
        recorded = plan.build_recording()
        assert session.settings.items() >= (recorded.settings | recorded.find_side(side.label).settings).items()
        found[side.label] = session.settings[size]
    assert found == {"spark": "200m", "comet": "200m", "small": "100m"}


def test_a_side_has_its_own_line_of_spark_whatever_the_variable_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.spark.releases.get_installed_line", lambda: "3.5")
    monkeypatch.setenv("WORKBENCH_SPARK", "4.1")
    own, chosen = recording_plan.parse_sides(["comet@3.5", "spark"], [], [])
    assert (own.label, own.spark, own.line_beside, own.artifact) == ("comet-3.5", "3.5", None, COMET["3.5"])
    assert (chosen.label, chosen.spark, chosen.line_beside) == ("spark", "4.1", "4.1")
    (given,) = recording_plan.parse_sides(["comet"], [], [], "4.1")
    assert given.artifact == COMET["4.1"]


def test_a_label_frees_the_name_and_sides_add_settings_of_their_own() -> None:
    found = recording_plan.parse_sides(
        ["spark"], ["base"], ["small:comet,spark.memory.offHeap.size=1g,spark.x=a,b", "same"]
    )
    assert [(side.label, side.engine) for side in found] == [("base", "spark"), ("small", "comet"), ("same", "spark")]
    assert found[1].settings["spark.memory.offHeap.size"] == "1g"
    assert found[1].settings["spark.x"] == "a,b"


@pytest.mark.parametrize(
    ("given", "labels", "spelled", "what"),
    [
        ([], [], [], "nothing to record"),
        (["gpu"], [], [], "unknown engine"),
        (["spark", "spark"], [], [], "two sides with the same label"),
        (["spark"], [], ["SPARK:comet"], "two sides with the same label"),
        (["spark", "comet"], ["a"], [], "one label for each engine"),
        ([], [], ["../a"], "not a label"),
        ([], [], ["a b"], "not a label"),
        ([], [], [""], "not a label"),
        ([], [], ["a,spark.sql.x"], "not a label"),
        ([], [], ["a,sql.x=1"], "not a Spark setting"),
        ([], [], ["a,spark.eventLog.dir=/x"], "the recorder sets this itself"),
        ([], [], ["a,spark.master=yarn"], "the recorder sets this itself"),
    ],
)
def test_sides_that_cannot_be_are_refused(given: list[str], labels: list[str], spelled: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        recording_plan.parse_sides(given, labels, spelled)


@pytest.mark.parametrize("pair", ["spark.x", "x=1", "spark.=1", "=1", "spark.a b=1"])
def test_a_setting_is_a_key_of_spark_and_a_value(pair: str) -> None:
    with pytest.raises(ConfigError, match="not a Spark setting"):
        recording_plan.parse_settings([pair])


def test_the_jar_is_on_the_class_paths_from_the_start() -> None:
    found = class_path_settings(Path("/data/jars/comet.jar"))
    assert found["spark.jars"] == found["spark.driver.extraClassPath"] == "/data/jars/comet.jar"
    assert found["spark.executor.extraClassPath"] == "/data/jars/comet.jar:comet.jar"
