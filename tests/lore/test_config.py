"""Settings of a dump: the plugin's keys and Python's arguments, with Spark's words for true and false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.conftest import ROOT
from workbench.core.errors import ConfigError
from workbench.execution import parameters
from workbench.lore.config import (
    KEYS,
    PREFIX,
    DumpSettings,
    NotebookConfig,
    build_dump_settings,
    format_operator_id,
    parse_boolean,
    parse_size,
    settings_from_session,
)
from workbench.lore.dumps.operator_selection import ALL_PARTITIONS, parse_selection
from workbench.report.page import read_executed_notebook


def keys(**given: str) -> Any:
    """A session with these keys set, dots written as __."""
    return {PREFIX + name.replace("__", "."): value for name, value in given.items()}.get


def test_the_keys_are_the_plugins() -> None:
    assert {PREFIX + key for key in KEYS} == {
        "spark.rapids.sql.lore.tag.enabled",
        "spark.rapids.sql.lore.idsToDump",
        "spark.rapids.sql.lore.dumpPath",
        "spark.rapids.sql.lore.skip.plan.dump",
        "spark.rapids.sql.lore.nonStrictMode.enabled",
        "spark.rapids.sql.lore.parquet.useOriginalSchemaNames",
    }


def test_a_session_without_keys_dumps_nothing_and_has_the_plugins_defaults() -> None:
    found = settings_from_session({}.get)
    assert found == DumpSettings()
    assert (found.ids, found.path, found.strict, found.tag_enabled) == ({}, "", True, True)
    assert (found.skip_plan_dump, found.original_names, found.max_bytes) == (False, True, None)


def test_the_keys_of_a_session_are_read() -> None:
    found = settings_from_session(
        keys(
            idsToDump="1[0 2], 4[*]",
            dumpPath=" dumps/a ",
            tag__enabled="TRUE",
            skip__plan__dump="true",
            nonStrictMode__enabled="true",
            parquet__useOriginalSchemaNames="false",
        )
    )
    assert found.ids == parse_selection("1[0 2], 4[*]")
    assert (found.path, found.tag_enabled, found.skip_plan_dump) == ("dumps/a", True, True)
    assert (found.strict, found.original_names) == (False, False)


def test_arguments_win_over_keys_and_none_leaves_the_key() -> None:
    get = keys(idsToDump="1[*]", dumpPath="a", nonStrictMode__enabled="true")
    found = settings_from_session(get, ids={2: [0]}, path=None, strict=True)
    assert (found.ids, found.path, found.strict) == (parse_selection("2[0]"), "a", True)
    # A key that is replaced is not read.
    assert settings_from_session(keys(idsToDump="nonsense", dumpPath="a"), ids="3[*]").ids == {3: ALL_PARTITIONS}


def test_ids_without_a_path_name_both_ways_to_give_one() -> None:
    for get, given in ((keys(idsToDump="1[*]"), {}), (keys(), {"ids": "1[*]"}), (keys(dumpPath=" "), {"ids": "1[*]"})):
        with pytest.raises(ConfigError) as error:
            settings_from_session(get, **given)
        assert "ids are given without a dump path" in str(error.value)
        assert "spark.rapids.sql.lore.dumpPath" in str(error.value)
        assert "path=" in str(error.value)


def test_ids_with_tagging_switched_off_are_a_contradiction() -> None:
    with pytest.raises(ConfigError, match="tagging is disabled"):
        settings_from_session(keys(idsToDump="1[*]", dumpPath="a", tag__enabled="false"))
    assert settings_from_session(keys(tag__enabled="false")).tag_enabled is False


@pytest.mark.parametrize("key", [key for key, (_, read) in KEYS.items() if key not in ("idsToDump", "dumpPath")])
@pytest.mark.parametrize("text", ["yes", "1", "", "on", "truee", "0"])
def test_a_boolean_that_spark_refuses_is_refused_with_its_key(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_from_session({PREFIX + key: text}.get)
    assert error.value.facts == {"where": PREFIX + key, "found": repr(text), "allowed": ["true", "false"], "do": None}


def test_a_bad_text_of_ids_names_the_key_it_was_given_by() -> None:
    with pytest.raises(ConfigError) as error:
        settings_from_session(keys(idsToDump="1[0, 2]", dumpPath="a"))
    assert error.value.facts["where"] == "spark.rapids.sql.lore.idsToDump"
    with pytest.raises(ConfigError) as error:
        settings_from_session(keys(), ids="1", path="a")
    assert error.value.facts["where"] == "ids"


SIZES = {"512m": 512 << 20, "1GB": 1 << 30, " 2 kb ": 2048, "7": 7, "7b": 7, 4096: 4096, "3T": 3 << 40, "1p": 1 << 50}


@pytest.mark.parametrize(("value", "n_bytes"), SIZES.items())
def test_sizes_are_read_in_powers_of_1024(value: object, n_bytes: int) -> None:
    assert parse_size(value) == n_bytes
    assert build_dump_settings(max_bytes=value).max_bytes == n_bytes


@pytest.mark.parametrize(
    "value", ["", "m", "1.5g", "-1", "1x", "1 m b", "0", "0g", 0, -5, True, 1.0, "9" * 40, "99999p"]
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(ConfigError) as error:
        build_dump_settings(max_bytes=value)
    assert error.value.facts["where"] == "max_bytes"


@pytest.mark.parametrize("value", [1, 0, None, "yes", 1.0])
def test_what_is_neither_true_nor_false_is_refused(value: object) -> None:
    with pytest.raises(ConfigError):
        parse_boolean(value, where="x")


def test_an_unknown_setting_lists_those_there_are() -> None:
    with pytest.raises(ConfigError) as error:
        build_dump_settings(idz="1[*]")
    assert error.value.facts["found"] == ["idz"]
    assert next(iter(DumpSettings.model_fields)) in str(error.value.facts["allowed"])


def test_all_faults_of_the_arguments_are_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        build_dump_settings(batch_rows=0, keep_output_rows=-1, mode="online", mask={"a": "blur"}, columns={0: []})
    told = str(error.value)
    assert all(name in told for name in ("batch_rows", "keep_output_rows", "mode", "mask.a", "columns"))
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("name", "values"),
    [("batch_rows", [True, 2**31]), ("keep_output_rows", [False]), ("columns", [{-1: ["a"]}, "a", []]), ("path", [3])],
)
def test_values_of_a_wrong_type_or_range_are_refused(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError):
            build_dump_settings(**{name: value})


def test_columns_are_of_every_input_or_by_input_paths_may_be_objects_and_nothing_changes_once_made() -> None:
    assert build_dump_settings(columns=["a", "b"]).columns == ["a", "b"]
    made = build_dump_settings(columns={1: ["a"]}, path=Path("dumps", "x"), ids="1[*]")
    assert (made.columns, made.path) == ({1: ["a"]}, str(Path("dumps", "x")))
    with pytest.raises(ValueError, match="frozen"):
        made.batch_rows = 6


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query_file": ""}, "query_file, or dump_folder"),
    ({"query_file": "q.sql", "ids": "3[0]", "partition": 1}, "not both"),
    ({"query_file": "q.sql", "dump_folder": "s3a://bucket/dump"}, "on this machine"),
    ({"query_file": "q.sql", "dump_path": "hdfs://host/dump"}, "on this machine"),
    ({"query_file": "q.sql", "repeat": -1}, "greater than or equal to 0"),
    ({"query_file": "q.sql", "engine": "velox"}, "'spark' or 'comet'"),
    ({"query_file": "q.sql", "level": 1.0}, "less than 1"),
    ({"query_file": "q.sql", "idz": "1"}, "Extra inputs"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        NotebookConfig(**given)


def test_an_id_alone_means_all_its_partitions_or_the_one_that_is_named() -> None:
    assert NotebookConfig(query_file="q.sql", ids=" 10 ").selection == "10[*]"
    assert NotebookConfig(query_file="q.sql", ids="10", partition=3).selection == "10[3]"
    assert NotebookConfig(query_file="q.sql", ids="10[0 2]").selection == "10[0 2]"
    assert NotebookConfig(query_file="q.sql").selection == ""
    assert format_operator_id(4, None) == "4[*]"


def test_the_notebook_has_a_parameter_for_every_field_and_no_other() -> None:
    declared = parameters.read_parameters(read_executed_notebook(ROOT / "notebooks" / "02_lore.ipynb"))
    assert [one.name for one in declared] == list(NotebookConfig.model_fields)
    NotebookConfig(**{one.name: one.default for one in declared})
