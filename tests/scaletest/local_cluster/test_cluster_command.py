"""The commands: what they pass on, what they refuse, what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from workbench.cli.app import app
from workbench.core.errors import ConfigError, WorkbenchError
from workbench.scaletest.local_cluster import cluster_lifecycle, program_builds
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import ClientLimit, ClusterSettings, NodePool
from workbench.scaletest.observation.run_records import Component

MADE = LocalCluster(
    name="local",
    folder=Path("/somewhere"),
    kubeconfig=Path("/somewhere/kubeconfig"),
    measure_kubeconfig=Path("/somewhere/measure.kubeconfig"),
    context="workbench-local",
    measure_context="workbench-local-measure",
    schedulers=("default-scheduler",),
    components=(Component(name="etcd", version="3.6.8"),),
    audit_log=None,
    server="https://127.0.0.1:1",
    pools=(NodePool(nodes=200, gpus=8),),
    provider="built",
)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["scaletest", "cluster", *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `up` was called with."""
    kept: dict[str, Any] = {}

    def up(name: str, settings: ClusterSettings, **options: Any) -> LocalCluster:
        kept.update(options, name=name, **dict(settings))
        options["tell"]("ready after 5.0 s")
        return MADE

    monkeypatch.setattr(cluster_lifecycle, "start_cluster", up)
    return kept


def test_gang_turns_on_kubernetes_own_gang_scheduling_also_beside_kai(asked: dict[str, Any]) -> None:
    assert (
        invoke("up", "--scheduler", "gang,kai", "--feature-gate", "TopologyAwareWorkloadScheduling=true").exit_code == 0
    )
    gates = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
    assert asked["scheduler"] == "kai"
    assert asked["feature_gates"] == dict.fromkeys(gates, True)


def test_a_gate_without_a_value_is_refused(asked: dict[str, Any]) -> None:
    assert isinstance(invoke("up", "--feature-gate", "GangScheduling").exception, ConfigError)
    assert asked == {}


def test_up_asks_for_200_nodes_with_8_gpus(asked: dict[str, Any]) -> None:
    assert invoke("up").exit_code == 0
    asked.pop("tell")
    assert asked == {
        "name": "local",
        "pools": (NodePool(nodes=200, gpus=8),),
        "scheduler": "default",
        "client_limits": {},
        "api_arguments": {},
        "feature_gates": {},
        "scheduler_arguments": {},
        "recipes": (),
        "kueue": False,
        "queue_quotas": {},
        "queue_topology": False,
        "start_delay": None,
        "programs": None,
        "provider": None,
        "folder": None,
    }


def test_up_passes_on_what_was_said(asked: dict[str, Any], tmp_path: Path) -> None:
    words = ["--name", "a", "--nodes", "3", "--gpus", "4", "--nodes", "2", "--gpus", "8", "--scheduler", "kai"]
    words += ["--client-limit", "kai-binder=5:6", "--api-arg", "v=2", "--provider", "folder"]
    words += ["--binaries", str(tmp_path), "--folder", str(tmp_path)]
    result = invoke("up", *words)
    assert result.exit_code == 0, result.output
    assert asked["pools"] == (NodePool(nodes=3, gpus=4), NodePool(nodes=2, gpus=8))
    assert (asked["scheduler"], asked["provider"]) == ("kai", "folder")
    assert asked["client_limits"] == {"kai-binder": ClientLimit(qps=5, burst=6)}
    assert asked["api_arguments"] == {"v": "2"}
    assert asked["programs"] == asked["folder"] == tmp_path


def test_up_offers_devices_and_lets_only_kueue_place_by_topology(asked: dict[str, Any]) -> None:
    assert isinstance(invoke("up", "--topology").exception, ConfigError)
    assert asked == {}
    assert invoke("up", "--devices", "--scheduler", "default,kueue", "--topology").exit_code == 0
    assert asked["pools"] == (NodePool(nodes=200, gpus=8, as_devices=True),)
    assert (asked["kueue"], asked["queue_topology"]) == (True, True)


def test_up_prints_what_to_do_next_and_its_stages_elsewhere(asked: dict[str, Any]) -> None:
    result = invoke("up")
    assert "for measuring  --kubeconfig /somewhere/measure.kubeconfig" in result.stdout
    assert "ready after" not in result.stdout
    assert "ready after 5.0 s" in result.stderr


def test_up_as_json_is_one_document(asked: dict[str, Any]) -> None:
    told = json.loads(invoke("up", "--json").stdout)
    assert told["measure_context"] == "workbench-local-measure"
    assert told["components"] == [
        {"name": "etcd", "version": "3.6.8", "client_qps": None, "client_burst": None, "arguments": {}}
    ]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--scheduler", "volcano"], "where: --scheduler"),
        (["--provider", "kind"], "where: --provider"),
        (["--nodes", "1", "--nodes", "2", "--gpus", "8"], "differ in number"),
        (["--nodes", "-1"], "out of range"),
        (["--client-limit", "scheduler=fast"], "not a client limit"),
        (["--client-limit", "kai-binder=1:1"], "no component with a client limit"),
        (["--api-arg", "bind-address=0.0.0.0"], "set by the workbench"),
        (["--name", "../../etc"], "not a cluster name"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(cache: Path, words: list[str], what: str) -> None:
    result = invoke("up", *words)
    assert isinstance(result.exception, ConfigError)
    assert what in str(result.exception)
    assert result.exception.exit_code == 2
    assert not cache.exists()


def test_a_scheduler_of_kai_without_its_programs_is_refused_at_once(cache: Path, script: Any, tmp_path: Path) -> None:
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kwokctl"):
        script(tmp_path / "bin" / name, "false")
    result = invoke("up", "--scheduler", "kai", "--binaries", str(tmp_path / "bin"))
    assert isinstance(result.exception, WorkbenchError)
    assert "there are no programs of KAI" in str(result.exception)
    assert "workbench scaletest cluster build" in str(result.exception)


def test_status_of_none_names_the_command_that_makes_one(cache: Path) -> None:
    result = invoke("status")
    assert isinstance(result.exception, ConfigError)
    assert "workbench scaletest cluster up" in str(result.exception)


def test_down_of_none_says_so(cache: Path) -> None:
    result = invoke("down")
    assert (result.exit_code, result.stdout) == (0, "local: no such cluster was running\n")


def test_build_passes_on_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[str, ...]] = []

    def build(parts: tuple[program_builds.Part, ...], **_: Any) -> dict[program_builds.Part, Path]:
        kept.append(parts)
        return {part: Path("/built") / part for part in parts}

    monkeypatch.setattr(program_builds, "build_parts", build)
    assert invoke("build").stdout.splitlines()[0] == "kube  /built/kube"
    assert invoke("build", "--only", "kwok").exit_code == 0
    assert kept == [("kube", "kwok", "kai"), ("kwok",)]
    assert isinstance(invoke("build", "--only", "docker").exception, ConfigError)
