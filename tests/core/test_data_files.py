"""Text, JSON and YAML of anybody: what is refused, and how it is told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.data_files import (
    measure_depth,
    parse_json,
    parse_yaml,
    read_json_file,
    read_text_file,
    read_yaml_file,
)
from workbench.core.errors import ConfigError, InputError

BOMB = "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]"


def refuse(call: Callable[..., Any], *values: Any, **options: Any) -> InputError:
    with pytest.raises(InputError) as refused:
        call(*values, noun="plan", **options)
    return refused.value


def test_a_text_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"\xef\xbb\xbfSELECT 1")
    assert read_text_file(tmp_path / "a.sql", noun="query") == "SELECT 1"


def test_what_cannot_be_read_is_told_as_whose_mistake_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_text_file(tmp_path, noun="plan", error_type=ConfigError, do="choose a file")
    assert (refused.value.facts["where"], refused.value.facts["do"]) == (tmp_path, "choose a file")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    error = refuse(read_text_file, tmp_path / "a", max_bytes=10)
    assert (error.what, error.facts["allowed"]) == ("too large for a plan", "at most 10 bytes")


def test_a_pipe_that_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refuse(read_text_file, tmp_path / "pipe").what == "not a regular file: the plan"


@pytest.mark.parametrize("read", [read_text_file, read_json_file, read_yaml_file])
def test_what_is_no_text_is_told_by_its_byte(tmp_path: Path, read: Callable[..., Any]) -> None:
    (tmp_path / "a").write_bytes(b"ab\xff")
    assert refuse(read, tmp_path / "a").facts["found"] == "byte 2"


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101])
def test_deep_json_is_refused(text: str) -> None:
    assert refuse(parse_json, text).what in ("nested too deeply for a plan", "not JSON: the plan")


def test_as_deep_as_allowed_is_not_too_deep() -> None:
    assert measure_depth(parse_json("[" * 100 + "]" * 100, noun="plan")) == 100
    assert measure_depth(parse_yaml("[" * 100 + "]" * 100, noun="plan")) == 100


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 101 + "]" * 101])
def test_deep_yaml_is_refused(text: str) -> None:
    assert refuse(parse_yaml, text).what == "nested too deeply for a plan"


def test_a_number_without_end_is_no_json_and_no_yaml() -> None:
    assert refuse(parse_json, "1" * 5000).what == "not JSON: the plan"
    assert refuse(parse_yaml, "1" * 5000).what == "not YAML: the plan"


def test_what_is_wrong_is_told_by_its_line_and_not_quoted() -> None:
    error = refuse(parse_yaml, "a: 1\npassword: [hunter2", where="plan.yaml")
    assert str(error.facts["where"]).startswith("plan.yaml, line ")
    assert "hunter2" not in str(error)
    assert refuse(parse_json, '{\n"a": hunter2}', where="x").facts["where"] == "x, line 2, column 6"


def test_aliases_are_refused() -> None:
    assert refuse(parse_yaml, BOMB, where="x").facts["where"] == "x, line 2"


def test_a_key_that_is_given_twice_is_refused_at_any_depth() -> None:
    assert refuse(parse_yaml, "a:\n  - b: 1\n    b: 2", where="x").facts == {
        "where": "x, line 3",
        "found": "b",
        "allowed": None,
        "do": None,
    }


@pytest.mark.parametrize("text", ["!!python/object:os.system {}", "a: 2026-02-30", "a: 1\n---\nb: 2", "\t"])
def test_what_is_no_plain_yaml_is_refused(text: str) -> None:
    assert refuse(parse_yaml, text).what == "not YAML: the plan"


def test_an_empty_document_is_none() -> None:
    assert parse_yaml("", noun="plan") is None


@given(st.text() | st.binary())
def test_whatever_is_given_is_read_or_refused(text: str | bytes) -> None:
    for parse in (parse_json, parse_yaml):
        with contextlib.suppress(InputError):
            parse(text, noun="plan")
