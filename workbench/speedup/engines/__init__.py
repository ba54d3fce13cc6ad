"""What each engine calls the operators of a plan, and which of its metrics are times; one file an engine.

An operator has one name for all engines: Spark's own, without "Exec" and numbers ("HashAggregate", "Scan parquet").
"""

from __future__ import annotations

import re
from functools import lru_cache

from workbench.speedup.engines import comet, rapids, spark
from workbench.speedup.engines.engine import Engine, Operator

ENGINES: tuple[Engine, ...] = (rapids.ENGINE, comet.ENGINE, spark.ENGINE)
NUMBER = re.compile(r"\s*\(\d+\)$")


@lru_cache(maxsize=4096)
def operator(node_name: str) -> Operator:
    """Which operator a plan node is, of which engine, and what its metrics mean.

    Examples
    --------
    >>> found = operator("CometBroadcastHashJoin")
    >>> found.engine, found.name
    ('comet', 'BroadcastHashJoin')
    >>> operator("WholeStageCodegen (3)").name
    'WholeStageCodegen'
    """
    name = NUMBER.sub("", node_name).strip()
    for engine in ENGINES:
        if (found := engine.find(name)) is not None:
            return found
    return Operator("spark", name, kind="plain")


def is_accelerated(node_name: str) -> bool:
    """Whether the node runs on an accelerator."""
    return operator(node_name).accelerated


def supported(engine: str) -> frozenset[str] | None:
    """Operators that an engine is known to run, by Spark's names; null when nothing is known of it.

    Of RAPIDS by its own table of supported operators and formats (release 26.08), of Comet by its nodes.
    """
    if engine == "rapids":
        return _supported_by_rapids()
    return next((one.supported for one in ENGINES if one.name == engine), None)


@lru_cache(maxsize=1)
def _supported_by_rapids() -> frozenset[str]:
    from workbench.speedup.builtin import supported_execs, supported_formats

    runs = {row.name.removesuffix("Exec") for row in supported_execs() if row.level in ("S", "PS", "TON")}
    scans = {f"Scan {row['Format'].lower()}" for row in supported_formats() if row["Direction"] == "read"}
    # Plans call exchanges by a shorter name.
    return frozenset(runs | scans | {"Exchange"} if "ShuffleExchange" in runs else runs | scans)
