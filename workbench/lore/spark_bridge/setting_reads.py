"""Settings of Spark that exist, their values in a session, and whether an execution reads them.

Spark converts the text of a setting each time that code reads it. The watch puts a record in front of this conversion:
a map in order of access, which also is a function of texts. It needs no jar, and on a local master it sees the reads
of tasks, too, since they share the JVM.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.core.errors import ConfigError
from workbench.lore.spark_bridge.spark_internals import Bridge

CONFIG_ENTRY = "org.apache.spark.internal.config.ConfigEntry"
COMET_PREFIX = "spark.comet."
# Settings of other programs in Spark's session: their keys are not Spark's.
OTHER_PREFIXES = {
    "spark.rapids.": "the RAPIDS Accelerator, which no replay loads",
    COMET_PREFIX: "Comet, which is loaded with --engine comet only",
}
# Value of no setting.
_MARKER = "\0"
_CONVERTERS = ("valueConverter", "rawValueConverter")
MAX_NEAREST = 3
# Similarity from which an unknown key is a misspelt one.
_MISSPELT = 0.88


def list_known_keys(bridge: Bridge, *, engine: str = "spark") -> list[str]:
    """Keys that this Spark, and the engine beside it, know."""
    keys = [str(key) for key in bridge.scala_object(CONFIG_ENTRY).knownConfigs().keySet()]
    if engine == "comet":
        entries = bridge.scala_object("org.apache.comet.CometConf").allConfs()
        keys += [str(entry.key()) for entry in bridge.to_list(entries.toList())]
    return sorted(keys)


def check_known_keys(bridge: Bridge, keys: Iterable[str], *, where: str, engine: str = "spark") -> None:
    """Refuse a key that nothing in this Spark reads."""
    spark_keys = set(list_known_keys(bridge, engine=engine))
    for key in keys:
        if key in spark_keys:
            continue
        for prefix, program in OTHER_PREFIXES.items():
            if key.startswith(prefix) and not (engine == "comet" and prefix == COMET_PREFIX):
                raise ConfigError(f"a setting of {program}", where=where, found=key, do="leave it out")
        near = difflib.get_close_matches(key, sorted(spark_keys), MAX_NEAREST, 0.6)
        raise ConfigError(
            "Spark has no such setting",
            where=where,
            found=key,
            allowed=near or "keys of Spark's documentation, such as spark.sql.shuffle.partitions",
            do="correct the key" if near else "look the key up in Spark's documentation",
        )


def refuse_misspelt_keys(bridge: Bridge, keys: Iterable[str], *, where: str = "--conf") -> None:
    """Refuse keys of Spark SQL that are unknown and nearly a known one; Spark takes them without a word.

    Keys of catalogs and of programs beside Spark are left alone.
    """
    spark_keys = list_known_keys(bridge)
    for key in set(keys) - set(spark_keys):
        if not key.startswith("spark.sql.") or key.startswith("spark.sql.catalog."):
            continue
        if near := difflib.get_close_matches(key, spark_keys, MAX_NEAREST, _MISSPELT):
            raise ConfigError("Spark has no such setting", where=where, found=key, allowed=near, do="correct the key")


def find_entry(bridge: Bridge, key: str) -> Any:
    """Spark's declaration of a setting; null for an unknown key."""
    return bridge.scala_object(CONFIG_ENTRY).findEntry(key)


def read_effective_value(bridge: Bridge, key: str) -> str:
    """The value of a setting in a session, in Spark's own form, so that texts of one value are equal.

    Examples: `TRUE` and `true`; `10MB` and `10485760`.
    """
    entry = find_entry(bridge, key)
    if entry is None:
        return str(bridge.spark.conf.get(key, None))
    # Without a second argument, the default of Spark.
    try:
        text = bridge.spark.conf.get(key)
    except Exception:  # noqa: BLE001 - py4j's class depends on the version: a setting without value and default
        return "None"
    some = bridge.jvm.scala.Option.apply(text)
    return str(some.map(entry.valueConverter()).toString())


@dataclass
class SettingWatch:
    """Which of some settings were read with a given text.

    `records`: By key, a Java map in order of access: its text, and a marker that is touched by `forget_reads`.
    """

    records: dict[str, Any] = field(default_factory=dict)

    def forget_reads(self) -> None:
        """Forget what was read so far."""
        for record in self.records.values():
            record.get(_MARKER)

    def list_read_keys(self) -> list[str]:
        """Keys that were read since `forget_reads`."""
        return [key for key, record in self.records.items() if list(record.keySet())[-1] != _MARKER]


@contextlib.contextmanager
def watch_settings(bridge: Bridge, texts: Mapping[str, str]) -> Iterator[SettingWatch]:
    """Watch the reads of settings (key: text) in this JVM inside the block.

    Keys that Spark does not declare, such as an engine's own, are not watched.
    """
    watch = SettingWatch()
    restored: list[tuple[Any, str, Any]] = []
    scala_maps = bridge.scala_object("scala.collection.JavaConverters")
    same = getattr(bridge.scala_object("scala.Predef"), "$conforms")()
    try:
        for key, text in texts.items():
            entry = find_entry(bridge, key)
            if entry is None:
                continue
            record = bridge.jvm.java.util.LinkedHashMap(16, 0.75, True)
            record.put(text, text)
            record.put(_MARKER, _MARKER)
            watch.records[key] = record
            listener = scala_maps.mapAsScalaMap(record).withDefault(same)
            for name in _CONVERTERS:
                converter = bridge.find_field(entry, name)
                if converter is not None:
                    restored.append((entry, name, converter))
                    bridge.set_field(entry, name, converter.compose(listener))
        yield watch
    finally:
        for entry, name, converter in reversed(restored):
            bridge.set_field(entry, name, converter)
