"""Sessions for replays: a JVM of their own each time, quiet, filtered, set as the dump's session was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lore.local_spark import MARKS, run_python
from workbench.lore.trust.trust_check import JDK_SERIAL_FILTER

pytestmark = MARKS

# In a process of its own: this one may have had a Spark before.
SCRIPT = """
import json, os, sys
from workbench.core.errors import WorkbenchError
from workbench.lore.spark_bridge import replay_session as session
from workbench.lore.dumps.dump_folder import Output, Sidecar, Versions

found = {}

def refused(name, body):
    try:
        body()
        found[name] = None
    except WorkbenchError as error:
        found[name] = [type(error).__name__, str(error)]

def opened(**options):
    with session.fresh_session(master="local[1]", **options):
        pass

def sidecar(spark_version, **confs):
    nothing = "0" * 64
    return Sidecar(
        created_at="now", versions=Versions(workbench="0", spark=spark_version, scala="2", java="17", python="3"),
        lore_id=0, operator="Filter", operator_class="x.FilterExec", operator_text="Filter", tree="", files={},
        plan_hash=nothing, time_zone="Asia/Kathmandu", ansi=True, confs=confs, inputs=[],
        output=Output(columns=[], n_partitions=0, fingerprint={}),
    )

def facts(spark):
    java = spark.sparkContext._jvm.java.lang
    return {
        "pid": java.ProcessHandle.current().pid(), "filter": java.System.getProperty("jdk.serialFilter"),
        "host": spark.conf.get("spark.driver.host"), "ui": spark.sparkContext.uiWebUrl,
    }

with session.fresh_session(master="local[1]") as spark:
    found["first"] = facts(spark)
    refused("inside another", lambda: opened(filtered=False))
    confs = {"spark.sql.shuffle.partitions": "7", "spark.sql.warehouse.dir": "elsewhere"}
    session.apply_dump_settings(spark, sidecar(spark.version, **confs), {"spark.sql.shuffle.partitions": "9"})
    found["zone"] = spark.sql("SELECT current_timezone()").first()[0]
    found["ansi"] = spark.conf.get("spark.sql.ansi.enabled")
    found["partitions"] = spark.conf.get("spark.sql.shuffle.partitions")
    refused("another Spark", lambda: session.apply_dump_settings(spark, sidecar("3.5.0")))
    static = {"spark.executor.memory": "1g"}
    refused("static", lambda: session.apply_dump_settings(spark, sidecar(spark.version), static))
    refused("no number", lambda: session.apply_dump_settings(
        spark, sidecar(spark.version), {"spark.sql.shuffle.partitions": "many"}))
with session.fresh_session(master="local[1]") as spark:
    found["second"] = facts(spark)
with session.fresh_session(master="local[1]", filtered=False) as spark:
    found["unfiltered"] = facts(spark)["filter"]
print("loud from here on", file=sys.stderr, flush=True)
os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.driver.extraJavaOptions=-Dsome=thing pyspark-shell"
refused("filter taken away", opened)
del os.environ["PYSPARK_SUBMIT_ARGS"]
refused("memory", lambda: opened(settings={"spark.driver.memory": "much"}))
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
refused("after a Spark of the user's", opened)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = run_python("-c", SCRIPT, SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]), stderr=done.stderr)


def test_a_replay_has_a_jvm_of_its_own_with_the_filter_and_listens_on_loopback_only(found: dict[str, Any]) -> None:
    assert found["first"]["filter"] == found["second"]["filter"] == JDK_SERIAL_FILTER
    assert found["second"]["pid"] != found["first"]["pid"]
    assert found["unfiltered"] is None
    assert found["first"]["host"] == "127.0.0.1"
    assert found["first"]["ui"] is None


HAS_A_JVM = ["Spark already runs in this process", "workbench lore replay DIR"]
REFUSED = {
    "inside another": ("ConfigError", HAS_A_JVM),
    "after a Spark of the user's": ("ConfigError", HAS_A_JVM),
    "filter taken away": ("ConfigError", ["no deserialization filter", "PYSPARK_SUBMIT_ARGS"]),
    "another Spark": ("InputError", ["allowed: 3.5.0", "pip install pyspark==3.5.0"]),
    "static": ("ConfigError", ["spark.executor.memory=1g"]),
    "no number": ("ConfigError", ["spark.sql.shuffle.partitions=many"]),
    "memory": ("ConfigError", ["Spark does not start"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_replay_can_run_in_is_refused_with_the_reason(found: dict[str, Any], name: str) -> None:
    kind, told = REFUSED[name]
    assert found[name][0] == kind
    assert [words for words in told if words not in found[name][1]] == []


def test_settings_are_those_of_the_dump_and_then_those_that_were_asked_for(found: dict[str, Any]) -> None:
    assert found["zone"] == "Asia/Kathmandu"
    assert found["ansi"] == "true"
    assert found["partitions"] == "9"


def test_spark_s_warnings_and_banner_do_not_reach_the_user(found: dict[str, Any]) -> None:
    # Later sessions are made without our options on purpose.
    quiet, marker, _ = found["stderr"].partition("loud from here on")
    assert marker
    assert quiet == ""
