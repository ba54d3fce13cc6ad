"""Drawn situations on a real control plane: what binds is what was planted, held against a watch of the test's own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.scaletest.conftest import QUICK, fresh_namespace, programs, start_guarded_cluster
from tests.worlds.cluster_answers import read_names
from tests.worlds.clusters import AFFINITY, GPU, MIG, OTHERS, QUOTA, build_template
from workbench.scaletest.analysis.headline import find_bound
from workbench.scaletest.analysis.run_analysis import Analysis, analyse_run
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster
from workbench.scaletest.local_cluster.cluster_record import NodePool
from workbench.scaletest.scenario import scenario_file
from workbench.scaletest.test_run.run_lifecycle import RunContext, run_test
from workbench.scaletest.test_run.run_options import ClusterAccess, build_options

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
NODES, GPUS = 4, 4
STRANGERS = "strangers"
BOUNDS = (None, GPU, "cpu", "memory", MIG, AFFINITY, OTHERS, QUOTA)
# Server times are whole seconds, and events arrive a moment later.
BLUR_S = 1.6


@dataclass(frozen=True)
class Situation:
    """What is planted: the limit, the scenario's workload, and what others do."""

    planted: str | None
    entry: dict[str, Any]
    rate_per_s: float
    n: int
    held: int = 0
    quota: int | None = None
    has_stranger: bool = False


def draw_situation(seed: int) -> Situation:
    """Draw a situation of some twenty seconds."""
    rng = np.random.default_rng([seed, 56])
    planted = BOUNDS[seed % len(BOUNDS)]
    lifetime = float(rng.integers(3, 5))
    entry: dict[str, Any] = {"kind": "Job", "gpus": 1, "lifetime": lifetime}
    room, held, quota = float(NODES * GPUS), 0, None
    if planted in ("cpu", "memory"):
        per_node = int(rng.integers(1, 3))
        room = NODES * per_node
        entry |= {"cpus": 190 // per_node} if planted == "cpu" else {"memory": (2 << 40) // per_node - (8 << 30)}
    elif planted == MIG:
        room = 2.0 * NODES
        entry |= {"kind": "Template", "pods": 1, "template": build_template({MIG: "1"})} | {"gpus": 0}
    elif planted == AFFINITY:
        room = float(NODES)
        entry |= {"kind": "Template", "pods": 1, "template": build_template({GPU: "1"}, is_spread=True)}
    elif planted == OTHERS:
        held = int(rng.integers(8, 14))
        room -= held
    elif planted == QUOTA:
        quota = int(rng.integers(2, 5))
        room = quota
    rate = max(1.0, room / lifetime * (0.4 if planted is None else float(rng.uniform(1.8, 2.6))))
    return Situation(planted, entry, rate, int(np.clip(rate * 9, 20, 60)), held, quota, bool(rng.random() < 0.4))


@pytest.fixture(scope="module")
def small_cluster() -> Iterator[LocalCluster]:
    """4 nodes with 4 GPUs and 2 slices each."""
    programs()
    with start_guarded_cluster("worlds", pools=[NodePool(nodes=NODES, gpus=GPUS)], client_limits=QUICK) as cluster:
        offers = json.dumps({"status": {key: {MIG: "2"} for key in ("allocatable", "capacity")}})
        for number in range(NODES):
            kubectl(cluster, "patch", "node", f"sim-{number:05d}", "--subresource=status", "--type=merge", "-p", offers)
        kubectl(cluster, "create", "namespace", STRANGERS)
        yield cluster


def kubectl(on: LocalCluster, *words: str, text: str = "") -> None:
    command = [str(on.kubectl), "--kubeconfig", str(on.kubeconfig), *words]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=90)


@contextlib.contextmanager
def planted(on: LocalCluster, space: str, situation: Situation) -> Iterator[None]:
    """Others' pods, a quota, and one stranger that never fits, as long as the run lasts."""
    documents: list[dict[str, Any]] = []
    if situation.held:
        documents.append(build_foreign_job("train", situation.held, {GPU: "1"}))
    if situation.has_stranger:
        documents.append(build_foreign_job("huge", 2, {"example.com/stranger": "1"}))
    if situation.quota is not None:
        meta = {"name": "team-limit", "namespace": space}
        spec = {"hard": {"pods": str(situation.quota)}}
        documents.append({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
    if documents:
        kubectl(on, "apply", "-f", "-", text=yaml.safe_dump_all(documents))
    if situation.held:
        ready = "jsonpath={.status.active}=" + str(situation.held)
        kubectl(on, "wait", f"--for={ready}", "job/train", "-n", STRANGERS, "--timeout=30s")
    try:
        yield
    finally:
        kubectl(on, "delete", "jobs,pods", "--all", "-n", STRANGERS, "--wait=true", "--timeout=60s")


def build_foreign_job(name: str, pods: int, limits: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    spec = {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}], "containers": [container]}
    job = {"parallelism": pods, "completions": pods, "template": {"spec": spec}}
    meta = {"name": name, "namespace": STRANGERS}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job}


@contextlib.contextmanager
def watched(on: LocalCluster, file: Path) -> Iterator[None]:
    """All pods of the cluster, as another client sees them."""
    words = ("get", "pods", "-A", "--watch", "--output-watch-events", "-o", "json")
    with file.open("wb") as out:
        child = subprocess.Popen([str(on.kubectl), "--kubeconfig", str(on.kubeconfig), *words], stdout=out)
        try:
            yield
        finally:
            child.terminate()
            child.wait(timeout=30)


def read_spans(file: Path, space: str) -> list[tuple[bool, float, float, float]]:
    """Whether of the run's namespace, GPUs, when bound and when over, server's clock in seconds, of each pod."""
    decoder, text, at = json.JSONDecoder(), file.read_text(), 0
    pods: dict[str, dict[str, Any]] = {}
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            line, at = decoder.raw_decode(text, at)
        except ValueError:  # cut at the end
            break
        pods[line["object"]["metadata"]["uid"]] = line["object"]
    spans = []
    for pod in pods.values():
        status = pod.get("status", {})
        bound = [
            one["lastTransitionTime"]
            for one in status.get("conditions", [])
            if (one["type"], one["status"]) == ("PodScheduled", "True")
        ]
        ended = [
            one["state"]["terminated"]["finishedAt"]
            for one in status.get("containerStatuses", [])
            if "terminated" in one.get("state", {})
        ]
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
        if bound:
            end = max(map(parse_s, ended)) if ended else np.inf
            spans.append((pod["metadata"]["namespace"] == space, float(limits.get(GPU, 0)), parse_s(bound[0]), end))
    return spans


def parse_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def find_faults(found: Analysis, situation: Situation, spans: list[tuple[bool, float, float, float]]) -> list[str]:
    """What the answer says that is not so."""
    faults = []
    named = find_bound(found)
    allowed = {situation.planted} | ({GPU} if situation.planted == OTHERS else set())
    if named is not None and "not known" not in named and not read_names(named) & allowed:
        faults.append(f"bound by {named}, planted {situation.planted}")
    origin_s = run_origin_s(found)
    for row in found.gpus.iter_rows(named=True):
        at_s = origin_s + row["at_s"]
        for name, is_own in (("allocated", True), ("held_by_others", False)):
            mine = [span[1:] for span in spans if span[0] == is_own]
            least = sum(gpus for gpus, begin_s, end_s in mine if begin_s <= at_s - BLUR_S and end_s > at_s + BLUR_S)
            most = sum(gpus for gpus, begin_s, end_s in mine if begin_s <= at_s + BLUR_S and end_s > at_s - BLUR_S)
            if not least <= row[name] <= most:
                faults.append(f"{name} at {row['at_s']:.1f} s is {row[name]:g}, not {least:g} to {most:g}")
    texts = [found.explanation, *found.findings, *found.reasons, *found.warnings]
    faults += [f"tells of others' objects: {text}" for text in texts if "example.com/stranger" in text]
    if situation.held and not found.explanation.startswith("Others held"):
        faults.append(f"others are not told first: {found.explanation}")
    return faults[:4]


def run_origin_s(found: Analysis) -> float:
    """The run's start by the clock of this machine, which is the server's, too."""
    first = json.loads((found.folder / "journal.jsonl").read_text().splitlines()[0])
    return float(first["origin_ns"]) / 1e9


@pytest.mark.parametrize("seed", range(40))
def test_the_limit_is_the_planted_one_and_the_books_are_those_of_another_watch(
    seed: int, small_cluster: LocalCluster, tmp_path: Path
) -> None:
    situation = draw_situation(seed)
    arrival = {"process": "constant", "rate_per_s": situation.rate_per_s, "n": situation.n}
    place = ClusterAccess(small_cluster.measure_kubeconfig, small_cluster.measure_context, small_cluster)
    options = build_options(settle_s=4, beside_others=True, cleanup=False)
    with contextlib.contextmanager(fresh_namespace)(small_cluster) as space:
        described = {"name": "drawn", "namespace": space, "arrival": arrival, "workloads": [situation.entry]}
        scenario = scenario_file.parse_scenario(yaml.safe_dump(described))
        with planted(small_cluster, space, situation), watched(small_cluster, tmp_path / "watch.json"):
            found = analyse_run(run_test(scenario, RunContext(place, options), out=tmp_path).folder)
        kubectl(small_cluster, "delete", "jobs,pods", "--all", "-n", space, "--wait=true", "--timeout=60s")
    assert find_faults(found, situation, read_spans(tmp_path / "watch.json", space)) == []
    if situation.planted is not None:
        named = find_bound(found)
        assert read_names(named), f"the limit is not named: {named} | {found.explanation}"
