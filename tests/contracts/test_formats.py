"""What lies on disk goes on being read: one small sample of each format and version, read in this process.

Samples of run folders, sessions, scenarios, scale tests and imported files are those of data/samples, which
`test_command_documents` reads.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.contracts import introspection
from workbench import lore
from workbench.indicators.store import sql_database, sql_queries
from workbench.lore.dumps import bundles
from workbench.sizing.load.sweep_journal import load_sweep_journal
from workbench.speedup.recording.recording_plan import load_recording

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
VERSIONS = sorted(path for path in (Path(__file__).parent / "formats").iterdir() if path.name.isdigit())
each_version = pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
ROWS = [("a", 1), ("b", 2), ("a", 3), (None, 4)]


@each_version
def test_a_dump(version: Path) -> None:
    dump = lore.open(version / "loreId-2")
    assert dump.inputs["input-0"].rows() == ROWS
    assert dump.output is not None
    assert sorted(dump.output.rows(), key=str) == [("a", 4), ("b", 2), (None, 4)]
    said = introspection.call_command(["lore", "inspect", str(version / "loreId-2"), "--json"])
    assert (said.code, json.loads(said.out)["dumps"][0]["operator"]) == (0, "HashAggregate")


@each_version
def test_a_bundle(version: Path, tmp_path: Path) -> None:
    dump = lore.open(bundles.open_bundle(version / "bundle.zip", tmp_path / "opened"))
    assert dump.inputs["input-0"].rows() == ROWS


@each_version
def test_a_database_of_sessions(version: Path, tmp_path: Path) -> None:
    path = tmp_path / "indicators.db"
    path.write_bytes(gzip.decompress((version / "indicators.db.gz").read_bytes()))
    database = sql_database.open_database(path, create=False)
    sessions = sql_queries.run_query(database, "sessions")
    assert [(row["arms"], row["runs"], row["failed"]) for row in sessions.frame.to_dicts()] == [(3, 13, 0)]


def test_the_journal_of_a_sweep(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "gpu" / "sizing", tmp_path / "sweep")
    journal, config = load_sweep_journal(tmp_path / "sweep")
    assert (config.gpus, journal.next_step, journal.folder) == (1, 6, tmp_path / "sweep")


def test_the_journal_of_a_recording() -> None:
    recording = load_recording(SAMPLES / "speedup" / "tpch-sf1")
    assert (recording.labels, [session.status for session in recording.sessions]) == (["spark", "comet"], ["ok"] * 10)
    assert recording.read_executions().height == 660
