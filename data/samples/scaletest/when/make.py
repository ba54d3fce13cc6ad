"""Makes a day of a cluster and a job for `workbench scaletest when`: python data/samples/scaletest/when/make.py

SIMULATED: drawn jobs, placed by the workbench's own virtual cluster. No cluster ever ran them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workbench.scaletest.start_times.cluster_state import (
    ClusterState,
    NodeRules,
    NodeState,
    PodState,
    PriorityClass,
    WorkloadState,
    write_state,
)
from workbench.scaletest.start_times.node_room import NodeTable
from workbench.scaletest.start_times.virtual_cluster import VirtualCluster, VirtualPod

HERE = Path(__file__).parent
HOUR_S, SPAN_S = 3600.0, 86_400.0
GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
MODELS = ("NVIDIA-H100-80GB-HBM3",) * 12 + ("NVIDIA-A100-SXM4-80GB",) * 8
# Team and name, share of the jobs, GPUs, pods of a gang, median hours, spread of logs, model.
FAMILIES = (
    ("nlp/finetune", 0.20, 8, 1, 2.5, 0.6, MODELS[0]),
    ("nlp/eval", 0.35, 1, 1, 0.4, 0.5, None),
    ("vision/train", 0.15, 4, 1, 3.0, 0.5, MODELS[0]),
    ("vision/sweep", 0.22, 2, 1, 0.8, 0.9, None),
    ("nlp/pretrain", 0.08, 8, 2, 4.0, 0.4, MODELS[0]),
)
PER_H = 19.0
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: finetune-0613, namespace: nlp}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
        - name: main
          image: registry.example/finetune:3
          resources: {limits: {nvidia.com/gpu: 8}, requests: {cpu: 64, memory: 600Gi}}
"""


class RecordedCluster(VirtualCluster):
    """A virtual cluster that keeps the nodes of each workload's pods, as a record does."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.places: dict[int, list[int]] = {}
        super().__init__(*arguments, **options)

    def _occupy(self, pod: VirtualPod, node: int) -> None:
        super()._occupy(pod, node)
        self.places.setdefault(pod.workload, []).append(node)


def main() -> None:
    """Draw the day, let the virtual cluster place it, and write both files."""
    draw = np.random.default_rng(20261130)
    nodes = tuple(
        NodeState(
            name=f"gpu-{number:02d}",
            offers={"cpu": 192.0, "memory": 2.0 * 2**40, "pods": 110.0, GPU: 8.0},
            labels={PRODUCT: model},
        )
        for number, model in enumerate(MODELS)
    )
    workloads, lasts_s = draw_jobs(draw)
    table = NodeTable(ClusterState(moment="", nodes=nodes), [pod for one in workloads for pod in one.pods])
    state = ClusterState(moment="", nodes=nodes)
    cluster = RecordedCluster(state, table, workloads, lambda one, _: lasts_s[one.name], draw, now_s=-SPAN_S)
    starts_s = cluster.run(0.0).starts_s
    places = {
        workloads[index].name: [nodes[number].name for number in numbers] for index, numbers in cluster.places.items()
    }
    day = ClusterState(
        moment="2026-11-30T12:00:00+00:00",
        span_s=SPAN_S,
        kubernetes_version="v1.36.3",
        nodes=nodes,
        workloads=tuple(
            book_run(one, start_s, lasts_s[one.name], places.get(one.name, []))
            for one, start_s in zip(workloads, starts_s, strict=True)
        ),
        priority_classes={"urgent": PriorityClass(value=1000)},
        notes=("SIMULATED: no cluster ever ran these jobs",),
    )
    write_state(day, HERE / "day.json")
    (HERE / "job.yaml").write_text(JOB, encoding="utf-8")


def draw_jobs(draw: np.random.Generator) -> tuple[list[WorkloadState], dict[str, float]]:
    """The jobs in order of arrival, fewer by night, and how long each runs."""
    workloads, lasts_s, at_s = [], {}, -SPAN_S
    shares = np.array([family[1] for family in FAMILIES])
    while True:
        daytime = 1.0 + 0.4 * np.sin(2 * np.pi * (at_s / SPAN_S + 0.25))
        at_s += float(draw.exponential(HOUR_S / (PER_H * daytime)))
        if at_s >= 0:
            return workloads, lasts_s
        family, _, gpus, pods, hours, spread, model = FAMILIES[int(draw.choice(len(shares), p=shares))]
        name = f"{family}-{len(workloads):04d}"
        rules = NodeRules(selector={PRODUCT: model} if model else {})
        pod = PodState(requests={"cpu": 8.0 * gpus, "memory": 75.0 * gpus * 2**30, GPU: float(gpus)}, rules=rules)
        workload = WorkloadState(name=name, family=family, created_s=round(at_s), pods=(pod,) * pods, is_gang=pods > 1)
        workloads.append(workload)
        lasts_s[name] = float(round(HOUR_S * hours * np.exp(spread * draw.standard_normal())))


def book_run(workload: WorkloadState, start_s: float | None, lasts_s: float, nodes: list[str]) -> WorkloadState:
    """A workload as the day's record shows it."""
    ended_s = None if start_s is None or start_s + lasts_s > 0 else start_s + lasts_s
    places: list[str | None] = [*nodes] or [None] * len(workload.pods)
    pods = [
        pod.model_copy(update={"scheduled_s": start_s, "ended_s": ended_s, "node": node})
        for pod, node in zip(workload.pods, places, strict=True)
    ]
    return workload.model_copy(update={"pods": tuple(pods)})


if __name__ == "__main__":
    main()
