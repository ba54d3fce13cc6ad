"""The sides of a recording: an engine with its Spark settings, under a label."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from workbench.errors import ConfigError
from workbench.spark.engines import ENGINES, Artifact
from workbench.speedup.recording.journal import LABEL

# What the recorder sets itself: a log elsewhere, compressed or in parts would not be found.
OWN = (
    "spark.eventLog.",
    "spark.master",
    "spark.app.name",
    "spark.jars",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
    "spark.submit.deployMode",
)


@dataclass(frozen=True)
class Side:
    """A label, the engine behind it, and settings that this side has on top of the engine's."""

    label: str
    engine: str
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """All Spark settings of this side alone; its own win over the engine's."""
        return {**ENGINES[self.engine].settings, **self.conf}

    @property
    def artifact(self) -> Artifact | None:
        """The jar that its engine comes in."""
        return ENGINES[self.engine].artifact


def sides(engines: Iterable[str], labels: Iterable[str], spelled: Iterable[str]) -> list[Side]:
    """The sides that the options name; the first one is the baseline.

    Parameters
    ----------
    engines
        `--engine`, in their order.
    labels
        `--label`: none, or one for each engine.
    spelled
        `--side`, each LABEL[:ENGINE][,key=value…].

    Raises
    ------
    ConfigError
        No side, an unknown engine, a label that is none or is used twice, labels and engines of unequal number.

    Examples
    --------
    >>> [side.label for side in sides(["spark", "comet"], [], [])]
    ['spark', 'comet']
    >>> sides([], [], ["aqe-off,spark.sql.adaptive.enabled=false"])[0].settings
    {'spark.sql.adaptive.enabled': 'false'}
    """
    engines, labels = list(engines), list(labels)
    if labels and len(labels) != len(engines):
        raise ConfigError("one label for each engine", where="--label", found=f"{len(labels)} for {len(engines)}")
    found = [Side(label, engine) for engine, label in zip(engines, labels or engines, strict=True)]
    found += [parsed(text) for text in spelled]
    if not found:
        raise ConfigError("nothing to record", where="--engine, --side", do="--engine spark --engine comet")
    for side in found:
        _check(side)
    names = [side.label for side in found]
    if len({name.lower() for name in names}) != len(names):
        raise ConfigError(
            "two sides of one label", where="--side, --label", found=names, do="give each its own --label"
        )
    return found


def parsed(text: str) -> Side:
    """One side as `--side` spells it: LABEL[:ENGINE][,key=value…]; values may hold commas."""
    # A comma begins a setting only where a key and = follow.
    head, *rest = re.split(r",(?=[A-Za-z][\w.]*=)", text)
    label, _, engine = head.partition(":")
    return Side(label, engine or "spark", settings(rest, where="--side"))


def settings(pairs: Iterable[str], *, where: str = "--conf") -> dict[str, str]:
    """`key=value` texts as Spark settings.

    Raises
    ------
    ConfigError
        No =, no name of a Spark setting, or one that the recorder sets itself.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.-]{1,200}", key):
            raise ConfigError("not a Spark setting", where=where, found=pair[:200], allowed="spark.some.key=value")
        if key.startswith(OWN):
            raise ConfigError("the recorder sets this itself", where=where, found=key)
        found[key] = value
    return found


def _check(side: Side) -> None:
    if side.engine not in ENGINES:
        raise ConfigError("unknown engine", where="--engine, --side", found=side.engine[:80], allowed=list(ENGINES))
    if not re.fullmatch(LABEL, side.label):
        allowed = "letters, digits, _ . + -, at most 40, a letter or digit first"
        raise ConfigError(
            "a side cannot have this label", where="--label, --side", found=side.label[:80], allowed=allowed
        )
