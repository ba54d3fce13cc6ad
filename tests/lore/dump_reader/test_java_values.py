"""Scala's collections and Spark's types are spelled out, and graphs without end come to one."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.errors import InputError
from workbench.lore.dump_reader import java_values
from workbench.lore.dump_reader.java_values import Descriptor, JavaArray, JavaObject, Value


def made(class_name: str, /, *written: Value, **fields: Value) -> JavaObject:
    return JavaObject(Descriptor(name=class_name), fields, list(written))


def array(*items: Value) -> JavaArray:
    return JavaArray(Descriptor(name="[Ljava.lang.Object;"), list(items))


def spark_type(name: str, /, **fields: Value) -> JavaObject:
    return made(f"org.apache.spark.sql.types.{name}", **fields)


def test_a_vector_of_two_levels_gives_what_lies_between_its_bounds() -> None:
    leaves = [array(*range(32 * index, 32 * index + 32)) for index in range(3)]
    vector = immutable("Vector", depth=2, startIndex=30, endIndex=70, display0=None, display1=array(*leaves))
    assert java_values.list_items(vector) == list(range(30, 70))


def immutable(name: str, **fields: Value) -> JavaObject:
    return made(f"scala.collection.immutable.{name}", **fields)


def test_a_buffer_gives_the_used_part_of_its_array_and_a_range_ends_where_its_class_says() -> None:
    buffer = made("scala.collection.mutable.ArrayBuffer", size0=2, array=array("a", "b", None, None))
    assert java_values.list_items(buffer) == ["a", "b"]
    assert java_values.list_items(immutable("Range", start=1, end=7, step=3)) == [1, 4]
    assert java_values.list_items(immutable("Range$Inclusive", start=1, end=7, step=3)) == [1, 4, 7]
    longest = immutable("Range", start=0, end=2**31 - 1, step=1)
    assert len(java_values.list_items(longest)) == java_values.MAX_SEQ_ITEMS


def test_what_is_no_known_sequence_or_wraps_itself_is_refused() -> None:
    lazy, still = immutable("Stream$Cons"), immutable("Range", start=0, end=1, step=0)
    deep, bare = (immutable("Vector", depth=depth, startIndex=0, endIndex=1) for depth in (9, 1))
    for value in (lazy, still, deep, bare, immutable("Vector"), None, "text"):
        with pytest.raises(InputError):
            java_values.list_items(value)
    wrapper = made("scala.collection.convert.Wrappers$JListWrapper")
    wrapper.fields["underlying"] = wrapper
    with pytest.raises(InputError, match="wrapped list"):
        java_values.list_items(wrapper)


def test_a_type_that_holds_itself_twice_is_cut() -> None:
    inner = spark_type("StructField", name="x")
    struct = spark_type("StructType", fields=array(inner, inner))
    inner.fields["dataType"] = struct
    shown = java_values.format_java_type(struct)
    assert shown.startswith("struct<x:struct<x:")
    assert len(shown) < 20 * java_values.MAX_TYPE_PARTS
    assert "…" in shown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (spark_type("VarcharType", length=9), "varchar(9)"),
        (spark_type("DayTimeIntervalType", startField=0, endField=3), "interval day to second"),
        (spark_type("DayTimeIntervalType", startField=3, endField=0), "interval"),
        (spark_type("NullType$"), "void"),
        ("no type", "…"),
    ],
)
def test_types_of_a_stream_are_spelled_as_sql_does(value: Value, expected: str) -> None:
    assert java_values.format_java_type(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("integer", "int"),
        ("interval day to second", "interval day to second"),
        ({"type": "map", "keyType": "string", "valueType": "short"}, "map<string,smallint>"),
        ({"type": "struct", "fields": [{"name": "x", "type": "double"}, 3]}, "struct<x:double>"),
        ({"type": "udt", "class": "a.B"}, "udt"),
        ({"type": ["array"]}, "…"),
        (7, "…"),
    ],
)
def test_types_in_json_are_spelled_as_sql_does(value: Any, expected: str) -> None:
    assert java_values.format_json_type(value) == expected


def test_a_decimal_without_digits_is_refused() -> None:
    with pytest.raises(InputError, match="number expected"):
        java_values.format_java_type(spark_type("DecimalType", precision="12", scale=b"x"))


def test_texts_are_cut_and_hold_no_half_characters() -> None:
    assert java_values.to_text("x" * 500) == "x" * java_values.MAX_TEXT_CHARS + "…"
    assert java_values.to_text("a\ud800b") == "a?b"
    assert java_values.to_text(None) == "<NoneType>"
