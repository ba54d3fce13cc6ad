"""The allow-list of Java classes: in Python as in a JVM, no class in it runs given code, Spark may run."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lore.filtered_session import GADGETS
from tests.lore.local_spark import run_python
from workbench.lore.trust.allow_lists import (
    ALLOWED_CLASSES,
    JDK_SERIAL_FILTER,
    PLAN_SERIAL_FILTER,
    is_allowed_class,
    list_refused_classes,
)

HOOKS = {
    "readObject(Ljava/io/ObjectInputStream;)V",
    "readExternal(Ljava/io/ObjectInput;)V",
    "readResolve()Ljava/lang/Object;",
    "readObjectNoData()V",
    "validateObject()V",
    "finalize()V",
}
# Of the allowed classes that run code of their own while they are read, and why that is no harm.
REVIEWED = {
    # Copy bytes.
    "org.apache.spark.sql.catalyst.expressions.UnsafeArrayData",
    "org.apache.spark.sql.catalyst.expressions.UnsafeMapData",
    "org.apache.spark.sql.catalyst.expressions.UnsafeRow",
    "org.apache.spark.unsafe.types.UTF8String",
    # Registers itself with a running task, if there is one.
    "org.apache.spark.util.AccumulatorV2",
    # Fill a collection of a listed class with what was read.
    "scala.collection.generic.DefaultSerializationProxy",
    "scala.collection.immutable.HashMap$SerializationProxy",
    "scala.collection.immutable.HashSet$SerializationProxy",
    "scala.collection.immutable.List$SerializationProxy",
    "scala.collection.mutable.HashMap",
    "scala.collection.mutable.ListBuffer",
    # Give back the one object of their class.
    "scala.Enumeration",
    "scala.Enumeration$Val",
    "scala.runtime.BoxedUnit",
    "scala.runtime.ModuleSerializationProxy",
}


@pytest.mark.parametrize(
    ("name", "serial_filter", "allowed"),
    [
        ("a.b.C", "a.b.*;!*", True),
        ("a.b.c.D", "a.b.*;!*", False),
        ("a.b.c.D", "a.b.**;!*", True),
        ("a.bc.D", "a.b.**;!*", False),
        ("a.b.Cat", "a.b.C*;!*", True),
        ("a.b.C$1", "a.b.C;!*", False),
        ("a.b.Evil", "!a.b.Evil*;a.b.*;!*", False),
        ("a.b.Evil", "a.b.*;!a.b.Evil;!*", True),
        ("x", "a;!*", False),
    ],
)
def test_patterns_mean_what_they_mean_to_the_jdk(name: str, serial_filter: str, allowed: bool) -> None:
    assert is_allowed_class(name, serial_filter) is allowed


def test_both_filters_end_by_refusing_the_rest_and_have_no_sign_that_a_shell_reads() -> None:
    for text in (PLAN_SERIAL_FILTER, JDK_SERIAL_FILTER):
        assert text.endswith(";!*")
        assert not re.search(r"[\s\"'\\]", text)
        assert len(text.split(";")) == len(set(text.split(";")))
    assert ";".join([*ALLOWED_CLASSES, "!*"]) == PLAN_SERIAL_FILTER


def test_whatever_a_plan_may_hold_the_process_lets_through() -> None:
    inside = [pattern for pattern in ALLOWED_CLASSES if not pattern.startswith("!")]
    names = [pattern.replace("**", "x.Y").replace("*", "X") for pattern in inside]
    assert [name for name in names if not is_allowed_class(name, JDK_SERIAL_FILTER)] == []


def test_classes_that_spark_s_own_functions_keep_are_allowed() -> None:
    # Found by asking for the plan of every example in the documentation of Spark 3.5.9's functions.
    kept = (
        "java.util.concurrent.atomic.AtomicReference",
        "org.apache.datasketches.hll.TgtHllType",
        "org.apache.spark.unsafe.array.ByteArrayMethods",
        "org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke",
    )
    assert list_refused_classes(kept) == []


@pytest.mark.parametrize("gadget", GADGETS.values())
def test_known_chains_are_in_neither_list(gadget: str) -> None:
    assert list_refused_classes([gadget]) == [gadget]
    assert not is_allowed_class(gadget, JDK_SERIAL_FILTER)


def methods(data: bytes) -> set[str]:
    """Names and types of a class file's methods. Source: JVM specification, chapter 4."""
    sizes = {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3}
    (count,) = struct.unpack_from(">H", data, 8)
    at, index, texts = 10, 1, {}
    while index < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            texts[index] = data[at + 3 : at + 3 + length]
            at += 3 + length
        else:
            at += sizes[tag]
        # Longs and doubles take two places.
        index += 2 if tag in (5, 6) else 1
    (n_interfaces,) = struct.unpack_from(">H", data, at + 6)
    at += 8 + 2 * n_interfaces
    found: set[str] = set()
    for kind in ("fields", "methods"):
        (n_members,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(n_members):
            _, name, kinds, n_attributes = struct.unpack_from(">4H", data, at)
            at += 8
            if kind == "methods":
                found.add((texts[name] + texts[kinds]).decode(errors="replace"))
            for _ in range(n_attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]
    return found


def allowed_class_files() -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    for jar in sorted(Path(spec.origin).with_name("jars").glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                name = entry.removesuffix(".class").replace("/", ".")
                if entry.endswith(".class") and not entry.startswith("META-INF") and is_allowed_class(name):
                    yield name, archive.read(entry)


@pytest.mark.spark
def test_no_class_of_a_plan_runs_code_while_it_is_read_but_those_that_were_reviewed() -> None:
    found, n_classes = set(), 0
    for name, data in allowed_class_files():
        n_classes += 1
        # The companion objects of Scala give back themselves.
        if methods(data) & HOOKS and not (
            name.endswith("$") and methods(data) & HOOKS == {"readResolve()Ljava/lang/Object;"}
        ):
            found.add(name)
    assert n_classes > 1000
    assert "scala.collection.mutable.HashMap" in found
    assert sorted(found - REVIEWED) == []


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_session_with_the_filter_runs_ordinary_queries_and_reads_no_gadget() -> None:
    done = run_python("-m", "tests.lore.filtered_session")
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["filter"] == JDK_SERIAL_FILTER
    ordinary = {"joined": 143, "broadcast": 1000, "sorted": 999, "ranked": 143, "cached": 143}
    assert found["rows"] == ordinary | {"udf": 999_000, "pandas_udf": 249_750.0}
    assert "DIVIDE_BY_ZERO" in found["error"]
    for name, told in {**found["gadgets"], "own": found["own_gadget"]}.items():
        assert "REJECTED" in told, name
    assert found["own_gadget_refused"][-1] == "javax.management.BadAttributeValueExpException"
    assert found["plan"] == "org.apache.spark.sql.execution.ProjectExec"
    assert found["plan_refused"] == []
    assert "REJECTED" in found["rdd_in_plan"]
