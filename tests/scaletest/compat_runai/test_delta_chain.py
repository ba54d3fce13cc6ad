"""The whole way on a local cluster with simulated-runai: submitted, sampled, reported, exported, imported."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from tests.fakes.runai_operator import run_simulated_runai
from tests.scaletest.conftest import delete_namespace
from tests.scaletest.making_scenarios import lines_of
from workbench.core.errors import ConfigError
from workbench.scaletest.analysis import raw_tables
from workbench.scaletest.command import app
from workbench.scaletest.compat_runai import delta_chain, runai_files, runai_submission
from workbench.scaletest.compat_runai.delta_chain import STEPS
from workbench.scaletest.compat_runai.run_import import import_folder
from workbench.scaletest.compat_runai.runai_submission import SubmitFlags
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.observation import run_records
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.tables import MILESTONES, TRANSITIONS
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = pytest.mark.cluster
MEASURED = {step.name for step in STEPS if step.needs is None}


@pytest.fixture(scope="module")
def runai_cluster(local_cluster: LocalCluster) -> Iterator[LocalCluster]:
    with run_simulated_runai(local_cluster.kubeconfig, local_cluster.context):
        yield local_cluster


@pytest.fixture
def project(local_cluster: LocalCluster) -> Iterator[str]:
    """The namespace is made by `submit`; it goes with the test."""
    name = f"p{secrets.token_hex(4)}"
    yield name
    asyncio.run(delete_namespace(local_cluster, f"runai-{name}"))


def invoke(*words: str | Path) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def submit(on: LocalCluster, project: str, folder: Path, *flags: str, command: str = "submit") -> dict[str, Any]:
    done = invoke(command, "--cluster", on.name, "--project", project, "-o", folder, "--json", *flags)
    assert done.exit_code == 0, done.output
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def sample(on: LocalCluster, project: str, folder: Path, *flags: str) -> dict[str, Any]:
    return submit(on, project, folder, "--follow", "0.2", "--for", "120", *flags, command="sample")


def steps_of(folder: Path) -> dict[str, int]:
    """How many workloads have a delta of each step."""
    found = delta_chain.build_deltas(runai_files.build_view(folder).jobs).filter(pl.col("delta_s").is_not_null())
    return dict(found.group_by("step").len().iter_rows())


def test_training_workloads_go_the_whole_way(runai_cluster: LocalCluster, project: str, tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there" / "yet"
    told = submit(runai_cluster, project, folder, "-t", "training", "-n", "20", "-p", "8", "--max-rate", "200")
    assert (told["submitted"], told["failed"]) == (20, 0)
    found = sample(runai_cluster, project, folder, "-t", "training")
    assert (found["submitted"], found["sampled"], found["foreign"]) == (20, 20, {})
    steps = steps_of(folder)
    assert {name: steps[name] for name in MEASURED} == dict.fromkeys(MEASURED, 20)
    assert json.loads(invoke("report", folder, "--json").stdout)["drawn"] == 20
    imported = import_folder(folder, out=tmp_path / "runs")
    assert (imported.submitted, imported.sampled, imported.run.verdict) == (20, 20, "valid")


def changed(before: pl.DataFrame, after: pl.DataFrame, columns: list[str]) -> dict[str, tuple[list[Any], list[Any]]]:
    """The columns that are not the same in both, by workload, with what stands in each."""
    assert before["name"].sort().equals(after["name"].sort())
    both = [(name, *(frame.sort("name")[name].to_list() for frame in (before, after))) for name in columns]
    return {name: (one, other) for name, one, other in both if one != other}


def test_the_run_folder_of_a_sampled_submission_exports_all_of_it(
    runai_cluster: LocalCluster, project: str, tmp_path: Path
) -> None:
    """By our own tables: what was listed is analysed as if it had been watched, and tells that it was not."""
    folder = tmp_path / "o"
    submit(runai_cluster, project, folder, "-t", "distributed", "-n", "3", "--num-workers", "4")
    sample(runai_cluster, project, folder, "-t", "distributed")
    before = runai_files.build_view(folder).jobs
    raw_tables.write_raw_tables(folder)
    found = runai_files.export_run(folder, tmp_path / "out").view
    assert (len(found.sent), found.incomplete) == (3, {})
    columns = [column for column in before.columns if column.endswith("_at_s")]
    assert changed(before, found.jobs, columns) == {}
    assert set(TRANSITIONS.read(folder / "tables")["gap"]) == {True}


def test_a_submission_that_was_cut_short_is_gone_on_with(
    runai_cluster: LocalCluster, project: str, tmp_path: Path
) -> None:
    """Its journal ends after some: the rest is submitted, and nothing twice."""
    folder, flags = tmp_path / "o", ["-t", "training", "-n", "12", "--max-rate", "200"]
    submit(runai_cluster, project, folder, *flags)
    journal = folder / run_records.JOURNAL
    kept = [line for line in journal.read_bytes().splitlines(keepends=True) if b'"index":11' not in line]
    journal.write_bytes(b"".join(kept))
    with pytest.raises(ConfigError, match="holds a submission already"):
        invoke("submit", "--cluster", runai_cluster.name, "--project", project, "-o", folder, *flags)
    test = run_records.read_conditions(folder)
    run_records.write_conditions(folder, test.model_copy(update={"fingerprint": "0000000000"}))
    with pytest.raises(ConfigError, match="not the cluster on which the submission began"):
        invoke("submit", "--cluster", runai_cluster.name, "-o", folder, "--resume")
    run_records.write_conditions(folder, test)
    # Its flags need not be given again.
    assert submit(runai_cluster, project, folder, "--resume")["submitted"] == 12
    assert sample(runai_cluster, project, folder)["sampled"] == 12


def test_failures_are_told_counted_and_no_success(runai_cluster: LocalCluster, project: str, tmp_path: Path) -> None:
    """The old tool ends with 0 and an empty list when every submission failed."""
    flags = ["-t", "training", "-n", "3", "--submit-with", "kubectl", "--kubectl", shutil.which("false") or "false"]
    words = ["submit", "--cluster", runai_cluster.name, "--project", project, "-o", tmp_path / "o", "--json", *flags]
    done = invoke(*words)
    told = json.loads(done.stdout)
    assert (done.exit_code, told["submitted"], told["failed"]) == (1, 0, 3)
    assert json.loads((tmp_path / "o" / "submitted.json").read_text()) == []
    assert sorted(one.index for one in lines_of(tmp_path / "o", run_records.Failed)) == [0, 1, 2]


def test_a_command_is_no_way_around_the_guard_of_namespaces(
    runai_cluster: LocalCluster, project: str, tmp_path: Path
) -> None:
    """As on a cluster that is not ours: nobody sets up there, and the namespace was not made for tests."""
    who = ClusterAccess(runai_cluster.measure_kubeconfig, runai_cluster.measure_context)
    words = (shutil.which("true") or "true", "{name}")
    context = RunContext(who, runai_submission.build_run_options("command", None, words, closed=False))
    flags = SubmitFlags(workload_type="training", num_workloads=2, project=project)
    with pytest.raises(ConfigError) as told:
        runai_submission.run_submission(context, flags, tmp_path / "o", tell=print)
    assert "namespace: runai-" in str(told.value)
    assert "rights: not allowed" in str(told.value)
    assert not (tmp_path / "o").exists()


def test_a_run_with_the_stand_in_has_the_whole_chain_and_is_exported(
    runai_cluster: LocalCluster, namespace: str, tmp_path: Path
) -> None:
    """By `run`: watched as it happens, by the rights that its own setup grants."""
    entries = [
        {"kind": "Template", "template": runai_submission.build_workload(kind, "x", "1", 2), "pods": pods, "name": kind}
        for kind, pods in (("distributed", 3), ("training", 1))
    ]
    given = {
        "name": "stand-in",
        "namespace": namespace,
        "arrival": {"process": "constant", "rate_per_s": 10, "n": 6},
        "workloads": entries,
    }
    on = ClusterAccess(runai_cluster.measure_kubeconfig, runai_cluster.measure_context, runai_cluster)
    made = scenario_file.parse_scenario(json.dumps(given))
    found = run_test(made, RunContext(on, build_options(settle_s=2)), out=tmp_path / "runs")
    assert found.outcome.acked == 6
    counts = dict(MILESTONES.read(found.folder / "tables").group_by("milestone").len().iter_rows())
    assert [counts.get(name) for name in ("job", "last pod", "podgroup", "all scheduled")] == [6, 6, 6, 6]
    view = runai_files.export_run(found.folder, tmp_path / "out").view
    assert (view.jobs.height, view.incomplete) == (6, {})
