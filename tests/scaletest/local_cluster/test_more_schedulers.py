"""More schedulers on a local cluster: their configuration, Kueue's webhooks and queues, and who runs in whose turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from tests.conftest import SAMPLES
from tests.scaletest.conftest import QUICK, fresh_namespace, programs, start_guarded_cluster
from tests.scaletest.test_planted_on_cluster import constant, measured
from workbench.core.errors import ConfigError, InputError, MissingToolError
from workbench.scaletest.analysis.bottlenecks import QUOTA
from workbench.scaletest.analysis.run_analysis import analyse_run
from workbench.scaletest.local_cluster import cluster_lifecycle, component_processes, program_builds, second_schedulers
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import (
    ClientLimit,
    ClusterSettings,
    NodePool,
    StartDelay,
    check_client_limits,
    parse_queue_quotas,
    parse_start_delay,
)
from workbench.scaletest.local_cluster.control_plane import add_lifetime_stage
from workbench.scaletest.local_cluster.kueue_queues import build_cluster_queue, build_webhooks
from workbench.scaletest.local_cluster.second_schedulers import build_configuration
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.scenario.scheduler_recipes import find_recipe
from workbench.scaletest.tables import REQUESTS
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options
from workbench.scaletest.test_run.variant_turns import order_turns

STAGES = "".join(
    f"---\nkind: Stage\nmetadata: {{name: {name}}}\nspec: {{next: {{}}}}\n" for name in ("pod-ready", "pod-complete")
)
RUNS_HERE = {"default": {"kube-scheduler"}, "kueue": {"kube-scheduler", "kueue"}, "second": {"second-scheduler"}}


def test_a_start_delay_is_what_the_simulator_waits_before_a_pod_runs() -> None:
    text = add_lifetime_stage(STAGES, start_delay=StartDelay(least_s=0.5, most_s=4))
    stages = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(text)}
    assert stages["pod-ready"]["delay"] == {"durationMilliseconds": 500, "jitterDurationMilliseconds": 4000}
    assert "delay" not in next(one["spec"] for one in yaml.safe_load_all(add_lifetime_stage(STAGES)))
    with pytest.raises(InputError, match="not one stage pod-ready"):
        add_lifetime_stage(STAGES.replace("pod-ready", "other"), start_delay=StartDelay(least_s=1, most_s=1))


@pytest.mark.parametrize("text", ["", "x", "1:", "4:1", "-1", "1:2:3", "nan", "inf", "1e9"])
def test_a_wrong_start_delay_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a start delay"):
        parse_start_delay(text)


@pytest.mark.parametrize("text", ["", "a", "a=", "a=x", "A=1", "a=-1", "=3", "a=1.5", "a=99999999"])
def test_a_wrong_queue_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a queue"):
        parse_queue_quotas([text])


def test_a_second_scheduler_has_its_recipes_configuration_and_its_own_limit() -> None:
    settings = ClusterSettings(client_limits={"second-scheduler": ClientLimit(qps=7, burst=9)})
    made = build_configuration(settings, find_recipe("second"), Path("kubeconfig"))
    assert made["clientConnection"] == {"kubeconfig": "kubeconfig", "qps": 7, "burst": 9}
    assert (made["percentageOfNodesToScore"], made["leaderElection"]) == (10, {"leaderElect": False})
    with pytest.raises(ConfigError, match="no component with a client limit"):
        check_client_limits(settings)
    check_client_limits(settings.model_copy(update={"recipes": (find_recipe("second"),)}))


def test_kueues_webhooks_are_called_on_this_machine_and_only_for_what_is_in_a_queue() -> None:
    paths = ["/mutate-kueue-x-k8s-io-v1beta2-clusterqueue", "/mutate-batch-v1-job", "/mutate-ray-io-v1-rayjob"]
    hooks = [{"name": path, "clientConfig": {"service": {"path": path}}} for path in paths]
    document = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "m"}, "webhooks": hooks}
    made = build_webhooks(document, "https://127.0.0.1:1", "CA")
    assert [hook["name"] for hook in made["webhooks"]] == paths[:2]
    own, job = made["webhooks"]
    assert own["clientConfig"] == {"url": f"https://127.0.0.1:1{paths[0]}", "caBundle": "CA"}
    assert "objectSelector" not in own
    assert job["objectSelector"]["matchExpressions"][0]["key"] == "kueue.x-k8s.io/queue-name"


def test_a_queue_has_the_quota_that_was_said() -> None:
    (group,) = build_cluster_queue("a", 6)["spec"]["resourceGroups"]
    assert group["flavors"][0]["resources"] == [{"name": "nvidia.com/gpu", "nominalQuota": "6"}]


def test_turns_of_two_alternate_and_of_more_are_drawn_by_the_seed() -> None:
    assert "".join(order_turns("AB", 2)) == "ABBA"
    rounds = [order_turns("ABCD", 5, seed) for seed in (1, 1, 2)]
    assert rounds[0] == rounds[1] != rounds[2]
    assert all(sorted(rounds[0][at : at + 4]) == list("ABCD") for at in range(0, 20, 4))
    assert len({tuple(rounds[0][at : at + 4]) for at in range(0, 20, 4)}) > 1


def kueue_or_skip() -> None:
    try:
        program_builds.find_binaries().require_kueue()
    except MissingToolError:
        pytest.skip(f"no program of Kueue ({program_builds.BUILD} --only kueue)")


@pytest.fixture(scope="module")
def mixed_cluster() -> Iterator[LocalCluster]:
    """10 nodes with 4 GPUs each; Kueue with a queue of 8 GPUs, and a second kube-scheduler."""
    programs()
    kueue_or_skip()
    with start_guarded_cluster(
        "mixed",
        pools=[NodePool(nodes=10, gpus=4)],
        client_limits=QUICK,
        recipes=[find_recipe("second")],
        kueue=True,
        queue_quotas={"default": 8},
    ) as cluster:
        yield cluster


@pytest.fixture
def space(mixed_cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace on it."""
    yield from fresh_namespace(mixed_cluster)


@pytest.mark.network
def test_a_quota_of_kueue_is_named_and_no_controller_is_blamed(
    mixed_cluster: LocalCluster, space: str, tmp_path: Path
) -> None:
    jobs = [{"kind": "Job", "gpus": 1, "lifetime": 4}]
    # 40 GPUs would do for 6 a second of 4 s each; a quota of 8 is 2 a second.
    found = measured(mixed_cluster, space, tmp_path, "kueue", arrival=constant(72, 6), workloads=jobs)
    kinds: dict[str, Any] = dict(found.limits.select("step", "kind").iter_rows())
    assert kinds["workloads released"] == QUOTA
    assert "bound by the quota of its queue" in found.explanation
    assert "bound by the controller" not in found.explanation
    assert found.pods["scheduled_s"].is_not_null().all()
    told = found.transitions.filter(found.transitions["resource"] == "podgroup")
    reserved = told.filter(told["transition"] == "quotareserved").sort("server_s")["server_s"]
    own = found.milestones.filter(found.milestones["milestone"] == "quota reserved").sort("server_s")["server_s"]
    assert own.to_list() == reserved.to_list()
    assert len(own) == 72


@pytest.mark.network
def test_gangs_of_kueue_that_never_end_are_cleaned_up(mixed_cluster: LocalCluster, space: str, tmp_path: Path) -> None:
    """Two gangs of four pods run on the quota of 8 GPUs, and one waits; Kueue holds the pods of all three."""
    described = {
        "name": "endless",
        "namespace": space,
        "arrival": constant(3, 2),
        "workloads": [{"kind": "Gang", "pods": 4, "gpus": 1}],
        "limits": {"rate_per_s": 500},
    }
    place = ClusterAccess(mixed_cluster.measure_kubeconfig, mixed_cluster.measure_context, mixed_cluster)
    scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
    context = RunContext(place, build_options(settle_s=3))
    found = run_test(scenario, context, scheduler="kueue", out=tmp_path)
    assert found.cleaned is not None
    assert (found.cleaned.complete, sum(found.cleaned.found.values())) == (True, 12)


@pytest.mark.network
def test_only_the_schedulers_of_a_turn_run_and_all_come_back(mixed_cluster: LocalCluster) -> None:
    switchable = {"kube-scheduler", "kueue", "second-scheduler"}

    def running() -> set[str]:
        return set(component_processes.find_processes(mixed_cluster.folder)) & switchable

    assert running() == switchable
    for name, wanted in RUNS_HERE.items():
        second_schedulers.run_only(mixed_cluster.name, second_schedulers.list_needed(find_recipe(name)))
        assert running() == wanted
    # As if the comparison had been killed here: the cluster is found, and whole again.
    assert cluster_lifecycle.find_cluster(mixed_cluster.name).schedulers == mixed_cluster.schedulers
    assert running() == switchable


@pytest.mark.network
def test_a_second_scheduler_places_its_own_pods(mixed_cluster: LocalCluster, space: str, tmp_path: Path) -> None:
    # Both run; they are one program, and the audit log tells them apart by their accounts.
    pods = [{"kind": "Pod", "gpus": 1}]
    found = measured(mixed_cluster, space, tmp_path, "second-scheduler", arrival=constant(20, 10), workloads=pods)
    assert found.pods["scheduled_s"].is_not_null().all()
    # It fills nodes up: 20 pods of a GPU on nodes of 4, those that the API server placed on the fewest.
    assert found.pods["node"].n_unique() <= 8
    asked = REQUESTS.read(found.folder / "tables").filter(pl.col("subresource") == "binding")
    assert dict(asked.group_by("client").agg(pl.col("requests").sum()).iter_rows()) == {"second-scheduler": 20}


@pytest.mark.cluster
@pytest.mark.network
def test_kueue_puts_the_pods_of_a_job_into_one_rack(tmp_path: Path) -> None:
    programs()
    kueue_or_skip()
    pools = [NodePool(nodes=16, gpus=2)]
    with start_guarded_cluster("racks", pools=pools, client_limits=QUICK, kueue=True, queue_topology=True) as cluster:
        access = ClusterAccess(cluster.measure_kubeconfig, cluster.measure_context, cluster)
        scenario = scenario_file.load_scenario(SAMPLES / "scaletest" / "scenarios" / "racks.yaml")
        found = analyse_run(run_test(scenario, RunContext(access), out=tmp_path / "out").folder)
    racks = found.pods.with_columns(rack=pl.col("node").str.slice(4).cast(int) // 8)
    assert racks.group_by("index").agg(pl.len(), pl.col("rack").n_unique())["rack"].to_list() == [1] * 6
    assert racks["rack"].n_unique() == 2
