"""Operator tables of the engines: which operator a plan node is, and which of its metrics are times.

An operator has one name on all engines: Spark's own, without "Exec" and numbers ("HashAggregate", "Scan parquet").
To add an engine, write its table as a module of this package and list it in `ENGINES`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from workbench.eventlog.engine_detection import find_node_engine
from workbench.speedup.engines import (
    comet_operators,
    gluten_operators,
    photon_operators,
    rapids_operators,
    spark_operators,
)
from workbench.speedup.engines.engine_table import Engine, Operator

# The first engine whose table has a node's name decides, so Spark's own table comes last.
ENGINES: tuple[Engine, ...] = (
    rapids_operators.ENGINE,
    comet_operators.ENGINE,
    photon_operators.ENGINE,
    gluten_operators.ENGINE,
    spark_operators.ENGINE,
)
NUMBER = re.compile(r"\s*\(\d+\)$")


@lru_cache(maxsize=4096)
def classify_operator(node_name: str) -> Operator:
    """The operator of a plan node, with its engine and the meaning of its metrics.

    >>> found = classify_operator("CometBroadcastHashJoin")
    >>> found.engine, found.name
    ('comet', 'BroadcastHashJoin')
    >>> classify_operator("WholeStageCodegen (3)").name
    'WholeStageCodegen'
    """
    name = NUMBER.sub("", node_name).strip()
    for engine in ENGINES:
        if (found := engine.find_operator(name)) is not None:
            return found
    if (accelerator := find_node_engine(name)) is not None:
        return Operator(accelerator, "other accelerated")
    return Operator("spark", name, kind="plain")


@lru_cache(maxsize=32)
def get_supported_operators(engine: str) -> frozenset[str] | None:
    """Operators that an engine supports, by Spark's names; null if unknown."""
    return next((one.list_supported() for one in ENGINES if one.name == engine and one.list_supported), None)
