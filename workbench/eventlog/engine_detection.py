"""Which engine ran an application: from the names of its plan nodes, and from its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from workbench.spark.engines import ENGINES

SPARK, UNKNOWN = "spark", "unknown"

# Plan nodes of Spark that are work. A node with one of these names and something around it is another engine's.
WORK = (
    "BroadcastHashJoin|BroadcastNestedLoopJoin|ShuffledHashJoin|SortMergeJoin|CartesianProduct|HashAggregate|"
    "SortAggregate|BroadcastExchange|ShuffleExchange|Exchange|Filter|Project|Sort|Window|Expand|Generate|Aggregate|"
    "Scan|Limit|Union|Coalesce|WriteFiles|AppendData|OverwriteByExpression|OverwritePartitionsDynamic|MergeRows|"
    "WriteDelta|ReplaceData|(?:Atomic)?(?:Create|Replace)TableAsSelect"
)
OTHERS_WORK = re.compile(rf"(?:[A-Z][a-z0-9]*)*?(?:{WORK})(?:Exec)?(?:[A-Z]\w*)?")
SPARKS_WORK = re.compile(rf"Object(?:{WORK})|(?:{WORK})")
# Spark's own names that hold one of those, and more.
SPARKS_OWN = re.compile(
    r"(Global|Local|Collect|GlobalTail|CollectTail)Limit|CollectTail|"
    r"TakeOrderedAndProject|InMemoryTableScan|LocalTableScan|((Micro)?Batch|File|Continuous)?Scan\w*|WindowGroupLimit|"
    r"(Flat)?MapGroups\w*|\w*InPandas\w*|\w*InArrow|ArrowWindow|"
    r"(Streaming|StateStore|Session|Update|Merging|MergingSessions)\w*|EventTimeWatermark|\w*Python\w*|UnionLoop|"
    r"(Row)?DataSource(V2)?Scan|HiveTableScan|ExternalRDDScan|OneRowRelation\w*|RDDScan|CustomShuffleReader|"
    r"(AppendData|OverwriteByExpression)ExecV1|DynamicFileFilter\w*|"
    r"(Append|Collect)Columns\w*|Subquery\w*|Reused\w*|Execute\w*|Command\w*"
)
MIN_UNKNOWN_SHARE = 0.25
NUMBER = re.compile(r"\s*(\(\d+\))?\s*$")
DATABRICKS_ENGINE = "spark.databricks.clusterUsageTags.runtimeEngine"


@lru_cache(maxsize=4096)
def find_node_engine(node_name: str) -> str | None:
    """The accelerator whose plan node this is; null for a node of Spark.

    >>> [find_node_engine(name) for name in ("PhotonAgg", "FilterExecTransformer", "GpuProject", "Filter (3)")]
    ['photon', 'gluten', 'rapids', None]
    >>> [find_node_engine(name) for name in ("ColumnarExchange", "ColumnarToRow", "Execute GpuInsertIntoHiveTable")]
    ['gluten', None, 'rapids']
    """
    name = node_name.removeprefix("Execute ")
    return next((engine for engine, signs in ENGINES.items() if signs.nodes.match(name)), None)


@lru_cache(maxsize=4096)
def classify_node(node_name: str) -> str | None:
    """Return a node's engine: a known one, "unknown" for work under an unclaimed name, "spark" for Spark's work.

    Null for nodes that are no work of their own, and for those that only Spark has.

    >>> [classify_node(name) for name in ("GpuSort", "BoltHashAggregate", "Scan parquet ", "AdaptiveSparkPlan")]
    ['rapids', 'unknown', 'spark', None]
    """
    if engine := find_node_engine(node_name):
        return engine
    word = node_name.split("(")[0].split(" ")[0]
    if SPARKS_WORK.fullmatch(word):
        return SPARK
    is_others = OTHERS_WORK.fullmatch(word) and not SPARKS_OWN.fullmatch(word)
    return UNKNOWN if is_others else None


def detect_engine(properties: Mapping[str, str], n_nodes_by_engine: Mapping[str, int]) -> str:
    """The engine of an application: that of most accelerated plan nodes; without plans, the one that is turned on.

    An accelerator that is loaded and runs no node of any plan is idle: it only explains, or a session turned it off.

    >>> detect_engine({"spark.plugins": "org.apache.gluten.GlutenPlugin"}, {})
    'gluten'
    >>> detect_engine({}, {"photon": 12}), detect_engine({}, {"unknown": 9, "spark": 3})
    ('photon', 'unknown')
    """
    counts = {engine: count for engine, count in n_nodes_by_engine.items() if engine not in (SPARK, UNKNOWN)}
    if counts:
        return max(sorted(counts), key=lambda engine: counts[engine])
    if n_nodes_by_engine.get(UNKNOWN, 0) >= MIN_UNKNOWN_SHARE * sum(n_nodes_by_engine.values()) > 0:
        return UNKNOWN
    if n_nodes_by_engine.get(SPARK, 0):
        return SPARK
    return find_loaded_engine(properties) or SPARK


def find_loaded_engine(properties: Mapping[str, str]) -> str | None:
    """The accelerator that an application's properties load and turn on; null without one.

    >>> find_loaded_engine({"spark.plugins": "com.nvidia.spark.SQLPlugin", "spark.rapids.sql.enabled": "False"})
    """
    classes = properties.get("spark.plugins", "") + "," + properties.get("spark.sql.extensions", "")
    for engine, signs in ENGINES.items():
        is_on = properties.get(signs.switch, "true").strip().lower() != "false"
        only_explains = properties.get(signs.mode, "").strip().lower() == "explainonly"
        if any(name in classes for name in signs.classes) and is_on and not only_explains:
            return engine
    return "photon" if properties.get(DATABRICKS_ENGINE, "").upper() == "PHOTON" else None
