"""A JVM that ran out of memory: the error of the query is reported, not that of the end."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from workbench.lore.spark_bridge.replay_session import _stop_session


class DeadSession:
    def stop(self) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_dead_jvm_is_given_up_and_the_next_session_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "_instantiatedSession", DeadSession())
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(SparkContext, "_gateway", None)
    _stop_session(jvm=True)
    assert SparkSession._instantiatedSession is None
    assert SparkContext._active_spark_context is None
