"""Scripts without a class: what is inferred from their first document, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.contract.documents import DocumentError, validate_document
from workbench.indicators.contract.script_declaration import (
    ScriptDeclaration,
    build_script_case,
    guess_direction,
    guess_unit,
    infer_fields,
    read_suite,
)

DOCUMENT: dict[str, Any] = {
    "name": "PiSum",
    "framework": "python",
    "@parameters": {"n": 5, "dtype": "float32", "script": "x"},
    "@result": {"elapsed": 5, "rate": 3.0, "total": 7},
    "@checks": {"digest": "ab", "error": 1e-7},
}


def declare(document: dict[str, Any] = DOCUMENT, better: dict[str, Any] | None = None) -> ScriptDeclaration:
    fields = infer_fields(document, better or {})
    return ScriptDeclaration(
        name=document["name"], sources={"script.py": "pass"}, fields=fields, variables={"PI_N": "5"}
    )


@pytest.mark.parametrize(
    ("name", "direction", "unit"),
    [
        ("elapsed", "lower", ""), ("elapsed_ms", "lower", "ms"), ("wall_time", "lower", ""), ("rate", "higher", ""),
        ("items_per_s", "higher", "1/s"), ("items_per_second", "higher", "1/s"), ("seconds_per_step", "lower", ""),
        ("timePerItem", "lower", ""), ("gflops", "higher", ""), ("total", None, ""), ("times_called", None, ""),
        ("score", None, ""), ("loss", None, ""), ("s", "lower", ""),
    ],
)  # fmt: skip
def test_a_direction_is_taken_from_a_name_only_where_it_says_so(name: str, direction: str | None, unit: str) -> None:
    assert (guess_direction(name), guess_unit(name)) == (direction, unit)


def test_the_class_of_a_document_accepts_it_and_compares_its_time() -> None:
    case = build_script_case(declare())
    found = validate_document(DOCUMENT, case.indicator)
    assert [one.field for one in case.indicator.metrics()] == ["elapsed"]
    assert case.indicator.compared_checks() == ("digest",)
    assert found.results == {"elapsed": 5.0, "rate": 3.0, "total": 7.0}
    assert case.indicator.environment(case.parameters) == {"PI_N": "5"}
    # A time that was whole in the first run is not in the next.
    validate_document({**DOCUMENT, "@result": {"elapsed": 5.25, "rate": 1, "total": 7.5}}, case.indicator)
    with pytest.raises(DocumentError, match="not declared"):
        validate_document({**DOCUMENT, "@result": {**DOCUMENT["@result"], "more": 1}}, case.indicator)
    # It is the same after it was written down.
    again = ScriptDeclaration.model_validate(json.loads(declare().model_dump_json()), strict=False)
    assert build_script_case(again).indicator.version() == case.indicator.version()


def test_a_given_direction_holds_and_a_rate_beside_it_too() -> None:
    fields = {one.name: one.better for one in infer_fields(DOCUMENT, {"total": "lower", "rate": "higher"})}
    assert (fields["total"], fields["rate"], fields["elapsed"]) == ("lower", "higher", "lower")
    with pytest.raises(ConfigError, match="a direction for no result"):
        infer_fields(DOCUMENT, {"totall": "lower"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"@result": {"total": 7}}, "--better NAME=lower"),
        ({"@result": {}}, "no result"),
        ({"@result": None}, "@result is missing"),
        ({"@parameters": None}, "@parameters is missing"),
        ({"@result": {"elapsed": 1.0, "suite": {"a": 1}}}, "nested"),
        ({"@parameters": {"sizes": [1, 2]}}, "nested"),
    ],
)
def test_a_document_that_no_table_can_hold_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DocumentError) as refused:
        infer_fields({**DOCUMENT, **change}, {})
    assert words in refused.value.reason
    with pytest.raises(ConfigError, match="every run has a column"):
        build_script_case(declare({**DOCUMENT, "@result": {"elapsed": 1.0, "ru_utime": -1}}))


def test_a_suite_is_read_with_what_it_imports_and_no_other_tests(tmp_path: Path) -> None:
    for name in ("test_a.py", "test_b.py", "conftest.py", "helpers.py"):
        (tmp_path / name).write_text(f"# {name}\n")
    name, sources = read_suite(tmp_path / "test_a.py", "pytest")
    assert name == "test_a"
    assert set(sources) == {"script.py", "test_a.py", "conftest.py", "helpers.py"}
    assert "TARGETS = ['test_a.py']" in sources["script.py"]
    _, both = read_suite(tmp_path, "pytest")
    assert "TARGETS = ['test_a.py', 'test_b.py']" in both["script.py"]
    with pytest.raises(ConfigError, match="no such suite"):
        read_suite(tmp_path / "nothing.py", "pytest")
    with pytest.raises(ConfigError, match="no such script"):
        read_suite(tmp_path, "pyperf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no test file"):
        read_suite(tmp_path / "empty", "pytest")
