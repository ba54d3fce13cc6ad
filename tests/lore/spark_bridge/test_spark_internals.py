"""Names of the JVM are asked for once; what is not there yet is asked for again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from workbench.lore.spark_bridge.spark_internals import JvmNames


class JavaPackage:
    """As py4j's: it asks at every dot, and takes what it does not find for a package."""

    def __init__(self, classes: dict[str, object], asked: Counter[str], name: str = "") -> None:
        self._classes, self._asked, self._name = classes, asked, name

    def __getattr__(self, name: str) -> Any:
        whole = f"{self._name}.{name}".lstrip(".")
        self._asked[whole] += 1
        return self._classes.get(whole) or JavaPackage(self._classes, self._asked, whole)


@pytest.fixture
def asked() -> Counter[str]:
    return Counter()


def test_a_class_is_asked_for_once_with_each_of_its_packages(asked: Counter[str]) -> None:
    found = JvmNames(JavaPackage({"org.apache.Utils": (utils := object())}, asked))
    assert [found.org.apache.Utils for _ in range(3)] == [utils] * 3
    assert asked == {"org": 1, "org.apache": 1, "org.apache.Utils": 1}


def test_a_class_that_comes_with_a_jar_later_is_found(asked: Counter[str]) -> None:
    classes: dict[str, object] = {}
    found = JvmNames(JavaPackage(classes, asked))
    assert isinstance(found.workbench.lore.Armed, JvmNames)
    classes["workbench.lore.Armed"] = armed = object()
    assert found.workbench.lore.Armed is armed


def test_names_of_python_are_none_of_the_jvms(asked: Counter[str]) -> None:
    assert not hasattr(JvmNames(JavaPackage({}, asked)), "__wrapped__")
    assert asked == {}
