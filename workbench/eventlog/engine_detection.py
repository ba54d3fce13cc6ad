"""Which engine ran an application: from the names of its plan nodes, and from its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

SPARK = "spark"
# How an engine names its plan nodes. Gluten's names hold "Transformer" or the name of its native library.
NODE_NAMES = {
    "rapids": re.compile(r"Gpu[A-Z]"),
    "comet": re.compile(r"Comet[A-Z]"),
    "photon": re.compile(r"Photon[A-Z]"),
    "gluten": re.compile(r"\w*Transformer\b|Velox[A-Z]|RowToVelox|CHColumnar|RowToCHNative"),
}
# Plugin of each engine, and the property that turns it off.
PLUGINS = {
    "rapids": ("com.nvidia.spark.SQLPlugin", "spark.rapids.sql.enabled"),
    "comet": ("org.apache.spark.CometPlugin", "spark.comet.enabled"),
    "gluten": (".GlutenPlugin", "spark.gluten.enabled"),
}
DATABRICKS_ENGINE = "spark.databricks.clusterUsageTags.runtimeEngine"


@lru_cache(maxsize=4096)
def find_node_engine(node_name: str) -> str | None:
    """The accelerator whose plan node this is; null for a node of Spark.

    Examples
    --------
    >>> [find_node_engine(name) for name in ("PhotonAgg", "FilterExecTransformer", "GpuProject", "Filter (3)")]
    ['photon', 'gluten', 'rapids', None]
    """
    return next((engine for engine, pattern in NODE_NAMES.items() if pattern.match(node_name)), None)


def detect_engine(properties: Mapping[str, str], n_nodes_by_engine: Mapping[str, int]) -> str:
    """The engine of an application: that of most accelerated plan nodes, else the one that its properties turn on.

    Examples
    --------
    >>> detect_engine({"spark.plugins": "org.apache.gluten.GlutenPlugin"}, {})
    'gluten'
    >>> detect_engine({}, {"photon": 12})
    'photon'
    """
    if n_nodes_by_engine:
        return max(sorted(n_nodes_by_engine), key=lambda engine: n_nodes_by_engine[engine])
    plugins = properties.get("spark.plugins", "")
    for engine, (plugin, switch) in PLUGINS.items():
        if plugin in plugins and properties.get(switch, "true") != "false":
            return engine
    return "photon" if properties.get(DATABRICKS_ENGINE, "").upper() == "PHOTON" else SPARK
