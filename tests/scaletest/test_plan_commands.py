"""`plan`, `setup` and `cleanup` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.scaletest.conftest import Scaletest
from tests.scaletest.scenario.test_scenario_file import SIX_LINES
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.scenario.workload_plan import read_plan


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A file of six lines."""
    path = tmp_path / "scenario.yaml"
    path.write_text(SIX_LINES)
    return path


def test_the_printed_example_is_a_scenario_that_plan_takes(scaletest: Scaletest, tmp_path: Path) -> None:
    code, text, _ = scaletest("plan", "--example")
    assert code == 0
    (tmp_path / "a.yaml").write_text(text)
    code, told, _ = scaletest("plan", tmp_path / "a.yaml")
    assert code == 0
    assert "120 small" in told


def test_plan_tells_what_comes_and_what_is_needed(scaletest: Scaletest, scenario: Path) -> None:
    code, told, _ = scaletest("plan", scenario)
    assert code == 0
    for part in ("100 made by us: 100 Job", "10 workloads/s", "rights of the measuring identity", "jobs.batch"):
        assert part in told


def test_plan_as_json_is_one_document_and_what_it_writes_is_read_again(
    scaletest: Scaletest, scenario: Path, tmp_path: Path
) -> None:
    code, text, _ = scaletest("plan", scenario, "--json", "--out", tmp_path / "out")
    document = json.loads(text)
    assert code == 0
    assert document["plan"]["objects"] == {"Job": 100}
    assert document["design_sha256"] == read_plan(tmp_path / "out").design_sha256


def test_rbac_is_yaml_alone(scaletest: Scaletest, scenario: Path) -> None:
    code, text, _ = scaletest("plan", scenario, "--rbac")
    assert code == 0
    assert {"Namespace", "Role", "ClusterRole"} <= {one["kind"] for one in yaml.safe_load_all(text)}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("plan",), "where: SCENARIO"),
        (("plan", "nowhere.yaml"), "cannot read the file"),
        (("setup", "SCENARIO"), "which cluster?"),
        (("cleanup",), "give a run's id, or --list"),
        (("cleanup", "st-0123abcd"), "which cluster?"),
        (("cleanup", "st-0123abcd", "--cluster", "no-such"), "no such local cluster"),
        (("cleanup", "st-0123abcd", "--cluster", "a", "--context", "b"), "where: --cluster"),
        (("plan", "SCENARIO", "--scheduler", "a b"), "no name of a scheduler"),
    ],
)
def test_wrong_use_is_told_and_ends_with_2(
    scaletest: Scaletest, scenario: Path, arguments: tuple[str, ...], told: str
) -> None:
    code, out, err = scaletest(*(scenario if one == "SCENARIO" else one for one in arguments))
    assert code == 2
    assert told in err
    assert out == ""


@pytest.mark.cluster
def test_setup_then_plan_then_cleanup_on_a_cluster(
    scaletest: Scaletest, local_cluster: LocalCluster, namespace: str, scenario: Path
) -> None:
    scenario.write_text(SIX_LINES + f"namespace: {namespace}\n")
    where = ("--cluster", local_cluster.name)
    code, told, _ = scaletest("plan", scenario, *where)
    assert code == 0
    assert f"{namespace} does not exist yet; the run creates it" in told
    assert "refused" not in told
    code, told, _ = scaletest("setup", scenario, *where)
    assert code == 0
    assert f"applied  ResourceQuota {namespace}/workbench-limits" in told
    code, told, _ = scaletest("plan", scenario, *where, "--json")
    assert code == 0
    assert {one["level"] for one in json.loads(told)["findings"]} == {"ok"}
    code, told, _ = scaletest("cleanup", "st-0123abcd", *where, "--namespace", namespace)
    assert code == 0
    assert f"st-0123abcd in {namespace}" in told
    # As the administrator of a cluster of our own: what the measuring identity may do depends on the latest setup.
    code, told, _ = scaletest("cleanup", "--list", *where, "--json")
    assert code == 0
    assert namespace not in told
    config = ("--kubeconfig", local_cluster.measure_kubeconfig, "--context", local_cluster.measure_context)
    code, told, _ = scaletest("cleanup", "--list", *config, "--namespace", namespace, "--json")
    assert (code, json.loads(told)) == (0, [])
    code, _, err = scaletest("cleanup", "--list", *config)
    assert code == 2
    assert "no right to list namespaces" in err


@pytest.mark.cluster
def test_a_cluster_that_is_not_ours_must_be_confirmed(
    scaletest: Scaletest, local_cluster: LocalCluster, scenario: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from workbench.scaletest.local_cluster import cluster_record

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(cluster_record, "list_cluster_names", list)  # as on a machine that did not make it
    where = ("--kubeconfig", local_cluster.kubeconfig, "--context", local_cluster.context)
    code, _, err = scaletest("setup", scenario, *where)
    assert code == 2
    assert "not confirmed" in err
    assert "add --confirm " in err
    fingerprint = err.split("add --confirm ")[1].split()[0]
    code, _, err = scaletest("setup", scenario, *where, "--confirm", "0000000000")
    assert (code, "not the confirmed one" in err) == (2, True)
    code, _, err = scaletest("cleanup", "--list", *where, "--confirm", fingerprint)
    assert code == 0
    code, _, err = scaletest("cleanup", "--list", *where)
    assert code == 0
