from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.indicators.store.making import PiSorted
from workbench.core.errors import InputError
from workbench.indicators.compat_thoth.thoth_indicators import MODELS, PiConv2D, PiHelloWorld
from workbench.indicators.contract.indicator import Indicator, parameter, result
from workbench.indicators.store.sql_schema import Field, build_table_name, extract_values, parse_declaration_fields


def forged(key: str = "n", **schema: Any) -> dict[str, Any]:
    return {"properties": {key: {"role": "result", "type": "number", **schema}}}


def test_every_field_has_a_column_of_its_type() -> None:
    fields = parse_declaration_fields(PiSorted.model_json_schema())

    assert {field.column: (field.part, field.kind, field.nullable) for field in fields} == {
        "n": ("@parameters", "int", False),
        "dtype": ("@parameters", "str", False),
        "padding": ("@parameters", "str", False),
        "elapsed_ms": ("@result", "float", False),
        "rate": ("@result", "float", True),
        "wrong": ("@checks", "int", False),
        "digest": ("@checks", "str", False),
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_the_old_contracts_indicators_have_columns(model: type[Indicator]) -> None:
    assert len(parse_declaration_fields(model.model_json_schema())) == len(model.model_fields)


def test_a_key_in_capitals_is_read_by_its_name_and_kept_in_a_plain_column() -> None:
    (field,) = [one for one in parse_declaration_fields(PiHelloWorld.model_json_schema()) if one.part == "@parameters"]

    assert (field.key, field.column) == ("HELLO_WORLD_REPS", "hello_world_reps")


def test_a_literal_of_numbers_is_a_number() -> None:
    class Sized(Indicator):
        size: Literal[1, 2] = parameter(1)
        one: Literal["a"] = parameter("a")
        share: float | int = parameter(0.5)
        flag: bool = parameter(False)
        elapsed: float = result(unit="s")

    kinds = [field.kind for field in parse_declaration_fields(Sized.model_json_schema())]
    assert kinds == ["int", "str", "float", "bool", "float"]


def test_names_that_differ_in_capitals_alone_stay_two_columns() -> None:
    declaration = {"properties": {key: {"role": "result", "type": "number"} for key in ("rate", "Rate", "RATE")}}

    columns = [field.column for field in parse_declaration_fields(declaration)]

    assert columns[0] == "rate"
    assert len(set(columns)) == 3


@pytest.mark.parametrize("key", ['x"; DROP TABLE run; --', "ü", "9", "", "a" * 200, "naïve name", "x\0y"])
def test_a_name_from_outside_becomes_a_plain_one_of_at_most_63_bytes(key: str) -> None:
    (field,) = parse_declaration_fields(forged(key))

    assert field.key == key
    assert field.column.isascii()
    assert field.column.replace("_", "a").isalnum()
    assert len(field.column) <= 63


@pytest.mark.parametrize(
    ("declaration", "told"),
    [
        ({}, "no properties"),
        (forged(role="other"), "without a role"),
        ({"properties": {"n": 1}}, "without a role"),
        (forged(type="array"), "unsupported field type"),
        (forged(type=None), "unsupported field type"),
        (forged("ru_utime"), "this column name is reserved"),
        (forged("run_id"), "this column name is reserved"),
        ({"properties": {f"n{i}": {"role": "result", "type": "number"} for i in range(501)}}, "too many fields"),
    ],
)
def test_what_is_no_declaration_is_refused(declaration: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        parse_declaration_fields(declaration)

    assert told in str(error.value)


def test_a_table_is_named_by_indicator_and_version() -> None:
    assert build_table_name("PiConv2D", "0123456789ab") == "pi_conv2d_0123456789ab"
    assert build_table_name("Sort", "0123456789ab") == "pi_sort_0123456789ab"


@pytest.mark.parametrize(
    ("name", "version"), [("Pi" * 40, "0" * 12), ("Pi", "x; --"), ('a"b', "0" * 12), ("é", "0" * 12)]
)
def test_odd_names_get_a_hash_and_stay_apart(name: str, version: str) -> None:
    found = build_table_name(name, version)

    assert len(found) <= 63
    assert found.replace("_", "a").isalnum()
    assert found != build_table_name(name + "x", version)


def test_padding_is_kept_as_a_number_or_as_a_word() -> None:
    fields, results = parse_declaration_fields(PiConv2D.model_json_schema()), {"elapsed": 1.0, "rate": 2.0}
    for padding in ("SAME", 1):
        found = extract_values({"@parameters": {"padding": padding}, "@result": results}, fields)
        assert found["padding"] == str(padding)


def test_a_parameter_that_was_left_out_is_not_filled_in_but_what_may_be_null_is() -> None:
    document: dict[str, dict[str, Any]] = {
        "@parameters": {"n": 5, "dtype": "float32", "padding": 1},
        "@result": {"elapsed_ms": 1},
        "@checks": {"wrong": 0, "digest": "x"},
    }
    fields = parse_declaration_fields(PiSorted.model_json_schema())

    found = extract_values(document, fields)
    del document["@parameters"]["n"]

    assert (found["n"], found["rate"], found["elapsed_ms"]) == (5, None, 1.0)
    with pytest.raises(InputError, match="n is missing"):
        extract_values(document, fields)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf"), [1], {}])
def test_nothing_is_converted_to_make_it_a_number(value: Any) -> None:
    field = Field("n", "@result", "n", "float", nullable=False)

    with pytest.raises(InputError):
        extract_values({"@result": {"n": value}}, [field])
