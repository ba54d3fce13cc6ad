"""Java serialization is read without a JVM: every class that one resolves is named, and nothing else ever happens."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.errors import InputError
from workbench.lore.dump_reader import java_stream
from workbench.lore.dump_reader.java_stream import MAX_DEPTH, StreamReader
from workbench.lore.dump_reader.java_values import JavaArray, JavaClass, JavaEnum

SAMPLES = Path(__file__).parent / "samples"
RESOLVED: dict[str, list[str]] = json.loads((SAMPLES / "names.json").read_text())
MAGIC = java_stream.MAGIC


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">H", len(raw)) + raw


def described(name: str, *fields: bytes, flags: int = 2, parent: bytes = b"\x70") -> bytes:
    head = b"\x72" + text(name) + bytes(8) + struct.pack(">BH", flags, len(fields))
    return head + b"".join(fields) + b"\x78" + parent


def outcome(data: bytes) -> str:
    """What comes of reading: anything but an InputError and a result is a failure of the test."""
    found = []
    for function in (java_stream.read_values, java_stream.list_class_names):
        try:
            function(data)
        except InputError:
            found.append("refused")
        else:
            found.append("read")
    assert len(set(found)) == 1
    return found[0]


@pytest.mark.parametrize("name", [name for name in RESOLVED if name != "nested_in_byte_array.bin"])
def test_the_names_are_those_that_a_jvm_resolved(name: str) -> None:
    assert java_stream.list_class_names(sample(name)) == set(RESOLVED[name])


def test_a_stream_within_a_byte_array_is_seen_though_the_jvm_left_it_alone() -> None:
    assert RESOLVED["nested_in_byte_array.bin"] == []
    assert java_stream.list_class_names(sample("nested_in_byte_array.bin")) == {"Protocol$Hidden"}


@pytest.mark.parametrize("name", ["hidden_in_numbers.bin", "nested_in_blocks.bin"])
def test_a_class_that_the_grammar_does_not_give_is_seen_where_a_jvm_resolves_it(name: str) -> None:
    reader = StreamReader(sample(name), name)
    reader.read_all()
    assert "Protocol$Hidden" in RESOLVED[name]
    assert "Protocol$Hidden" not in {descriptor.name for descriptor in reader.descriptors}
    assert "Protocol$Hidden" in java_stream.list_class_names(sample(name))


@pytest.mark.parametrize("name", [name for name in RESOLVED if name.startswith("scala_")])
def test_looking_at_every_offset_finds_no_class_in_a_real_stream_that_is_none(name: str) -> None:
    reader = StreamReader(sample(name), name)
    reader.read_all()
    names = {java_stream.array_element_class(descriptor.name) for descriptor in reader.descriptors}
    assert java_stream.scan_class_names(sample(name)) == names - {None}


def values() -> list[Any]:
    return java_stream.read_values(sample("values.bin"))


def test_block_data_texts_and_nulls_come_in_their_order() -> None:
    assert values()[:4] == [struct.pack(">i", 42) + text("block data"), None, "plain", "ü \0 \U0001f600"]
    assert values()[-1] == "after the reset"


def test_fields_of_a_class_hide_those_of_its_parent_and_may_point_at_the_object_itself() -> None:
    child = values()[4]
    assert (child.class_name, child.descriptor.lineage) == ("Protocol$Child", ("Protocol$Child", "Protocol$Parent"))
    assert child.fields["self"] is child
    assert len(repr(child)) < 120, "printed without its graph"
    plain = {name: value for name, value in child.fields.items() if name != "self"}
    assert plain == {"number": 7, "same": "of the child", "letter": "ß", "yes": True, "half": 0.5}


def test_external_and_custom_data_are_what_was_written() -> None:
    external, custom = values()[5:7]
    assert external.written == [struct.pack(">i", 5), "inside"]
    assert custom.fields == {"kept": 1}
    assert (custom.written[0], custom.written[1].fields) == (bytes(1500), {"value": 9})


def test_enums_proxies_and_classes_are_told() -> None:
    red, green, proxy = values()[7:10]
    assert [(each.class_name, each.constant) for each in (red, green)] == [
        ("Protocol$Colour", "RED"),
        ("Protocol$Colour", "GREEN"),
    ]
    assert isinstance(red, JavaEnum)
    assert proxy.descriptor.interfaces == ("Protocol$Spoken", "java.lang.Runnable")
    assert proxy.fields["h"].class_name == "Protocol$Handler"
    classes = [each for each in values() if isinstance(each, JavaClass)]
    assert [each.class_name for each in classes] == ["int", "[Ljava.lang.String;", "java.io.File"]


def test_arrays_hold_their_items() -> None:
    twice, again, *others = values()[10:20]
    assert twice is again
    assert [each.items if isinstance(each, JavaArray) else each for each in (twice, *others[:-1])] == [
        [1, -2, 3], b"\x01\x02", "aü", [1 << 40], [-1], [1.5], [2.5], [True, False],
    ]  # fmt: skip
    inner, nothing = others[-1].items
    assert (inner.items, nothing) == (["a"], None)


@pytest.mark.parametrize(
    "name", ["values.bin", "scala_2.12/simulated_rdd_vector.meta", "scala_2.13/simulated_rdd_list.meta"]
)
def test_a_stream_cut_at_any_byte_is_refused_or_read(name: str) -> None:
    data = sample(name)
    outcomes = [outcome(data[:length]) for length in range(len(data))]
    # Only values.bin has more than one object, and so ends in between that are whole streams.
    assert 0 <= outcomes.count("read") < (30 if name == "values.bin" else 1)


@pytest.mark.parametrize("name", sorted(RESOLVED))
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_flipped_bytes_are_refused_or_read(name: str, data: st.DataObject) -> None:
    changed = bytearray(sample(name))
    places = st.lists(st.tuples(st.integers(0, len(changed) - 1), st.integers(0, 255)), min_size=1, max_size=8)
    for place, value in data.draw(places):
        changed[place] = value
    outcome(bytes(changed))


TOKENS = st.sampled_from(
    [bytes([tag]) for tag in range(0x70, 0x7F)]
    + [described("a.B"), described("a.B", b"I\x00\x01x", flags=3), b"\x71\x00\x7e\x00\x00", b"\x71\x00\x7e\x00\x01"]
    + [b"\x74\x00\x01x", b"\x77\x02ab", described("[I"), described("[La;"), bytes(4), b"\x7f\xff\xff\xff", b"\xff" * 4]
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(TOKENS, max_size=40).map(b"".join) | st.binary(max_size=200))
def test_pieces_of_the_grammar_in_any_order_and_any_bytes_are_refused_or_read(data: bytes) -> None:
    outcome(MAGIC + data)


OBJECT_ARRAY = b"\x75" + described("[Ljava.lang.Object;") + struct.pack(">i", 1)
AGAIN = b"\x75\x71\x00\x7e\x00\x00" + struct.pack(">i", 1)


def test_depth_is_a_number_and_not_a_crash() -> None:
    assert isinstance(java_stream.read_values(MAGIC + OBJECT_ARRAY + AGAIN * 5_000 + b"\x70")[0], JavaArray)
    with pytest.raises(InputError, match="too deep"):
        java_stream.read_values(MAGIC + OBJECT_ARRAY + AGAIN * MAX_DEPTH + b"\x70")


def test_the_number_of_objects_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_stream, "MAX_OBJECTS", 100)
    many = b"\x73" + described("a.Small") + b"\x73\x71\x00\x7e\x00\x00" * 100
    with pytest.raises(InputError, match="too many objects"):
        java_stream.read_values(MAGIC + many)


REFUSED = {
    "nothing": (b"", "not a Java serialization stream"),
    "kryo": (b"\x01\x00com.nvidia", "not a Java serialization stream"),
    "only the head": (MAGIC, "holds nothing"),
    "unknown type code": (MAGIC + b"\x01", "type code"),
    "an exception of the writer": (MAGIC + b"\x7b\x70", "the writer of the stream failed"),
    "a reset inside an object": (MAGIC + OBJECT_ARRAY + b"\x79", "type code"),
    "a reference to nothing": (MAGIC + b"\x71\x00\x7e\x00\x00", "reference to nothing"),
    "an array larger than the stream": (MAGIC + b"\x75" + described("[J") + b"\x7f\xff\xff\xff", "longer than"),
    "an array of negative size": (MAGIC + b"\x75" + described("[J") + b"\xff\xff\xff\xff", "longer than"),
    "an array of a plain class": (MAGIC + b"\x75" + described("a.B") + bytes(4), "array of something that"),
    "a constant of a plain class": (MAGIC + b"\x7e" + described("a.B") + b"\x74\x00\x01x", "no enum"),
    "external data without an end": (MAGIC + b"\x73" + described("a.B", flags=4), "protocol version 1"),
    "a class of two kinds": (MAGIC + b"\x73" + described("a.B", flags=6), "both serializable and externalizable"),
    "a type code that belies the signature": (
        MAGIC + b"\x73" + described("a.B", b"L\x00\x01x\x74\x00\x01J"), "code and signature differ"),
    "primitives after objects": (
        MAGIC + b"\x73" + described("a.B", b"L\x00\x01x\x74\x00\x02La", b"I\x00\x01y"), "order"),
    "an object without a class": (MAGIC + b"\x73\x70", "without a class"),
    "text that is not Java's": (MAGIC + b"\x74\x00\x01\xff", "not Java's UTF-8"),
    "a nameless class": (MAGIC + b"\x73" + described(""), "length of a class name"),
    "a text of negative length": (MAGIC + b"\x7c" + b"\xff" * 8, "ends too soon"),
    "a chain of parents": (
        MAGIC + b"".join(described(f"a.C{at}", parent=b"") for at in range(300)) + b"\x70", "too many parents"),
    "its own parent": (MAGIC + described("a.Loop", parent=b"\x71\x00\x7e\x00\x00"), "class descriptor expected"),
    "more interfaces than bytes": (MAGIC + b"\x73\x7d\x7f\xff\xff\xff", "more parts"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_streams_are_refused_with_the_place(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        java_stream.list_class_names(data, where="plan.meta")
    assert str(caught.value.facts["where"]).startswith("plan.meta, byte ")


def test_a_name_in_overlong_bytes_is_the_name_that_a_jvm_reads() -> None:
    hidden = b"".join(bytes([0xC0 | ord(letter) >> 6, 0x80 | ord(letter) & 0x3F]) for letter in "evil.Gadget")
    stream = MAGIC + b"\x73\x72" + struct.pack(">H", len(hidden)) + hidden + bytes(8) + b"\x02\x00\x00\x78\x70"
    assert java_stream.list_class_names(stream) == {"evil.Gadget"}
    assert java_stream.scan_class_names(b"noise" + stream) == {"evil.Gadget"}


def test_interfaces_of_a_proxy_are_found_at_any_offset() -> None:
    proxy = b"\x7d" + struct.pack(">i", 2) + text("a.First") + text("b.Second") + b"\x78\x70"
    assert java_stream.scan_class_names(b"\x00" * 3 + proxy) == {"a.First", "b.Second"}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.binary(max_size=60), st.binary(max_size=20), st.integers(0, 3))
def test_a_descriptor_is_found_whatever_stands_around_it(before: bytes, after: bytes, n_fields: int) -> None:
    fields = [b"J\x00\x01" + bytes([97 + index]) for index in range(n_fields)]
    assert "evil.Gadget" in java_stream.scan_class_names(before + described("evil.Gadget", *fields) + after)


def test_equal_texts_and_byte_arrays_are_shared_by_reference() -> None:
    raw = b"\x75" + described("[B") + struct.pack(">i", 2) + b"ab"
    first, second = java_stream.read_values(MAGIC + raw + b"\x71\x00\x7e\x00\x01")
    assert first == b"ab"
    assert first is second


def test_a_reference_before_two_truth_values_and_a_null_is_no_class() -> None:
    # As it stood in the plan of a sort merge join: 71 is a reference, and its number ends in the 72 of a descriptor.
    head = bytes.fromhex("71007e0072000170")
    assert java_stream.scan_class_names(head + bytes(8) + b"\x02\x00\x00" + b"xp" * 8) == set()
    longer = b"r" + b"\x00\x05a.b.c" + bytes(8) + b"\x02\x00\x00"
    assert java_stream.scan_class_names(head + longer + bytes(8)) == {"a.b.c"}
