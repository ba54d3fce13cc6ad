"""Unfinished work: stages that pods never passed, since when nothing passed, and the reasons that the cluster gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.scaletest.analysis.throughput import MADE, RELEASED, SCHEDULED, STARTED, StagePassages, StageWaits
from workbench.scaletest.tables import OBSTACLES, UNFINISHED

# A share of pods that stands in the answer.
TOLD_FRACTION = 0.05
# Nothing passed for so long, while work waited, and the run was still watched.
SILENT_S = 8.0
# Work that came so shortly before the end had no time.
MIN_TIME_S = 2.0
MAX_TOLD = 4
NO_NODE, NO_QUOTA, DENIED, NO_IMAGE = "no node fits", "quota", "admission denied", "image pull back-off"
SUSPENDED = "suspended"
NODE_LOST, VOLUME, GATED, REFUSED, CONTAINER = "node not ready", "volume", "gated", "refused", "container not started"
_DONE = {RELEASED: "released from their queue", MADE: "made", SCHEDULED: "scheduled", STARTED: "started"}
# In a message of the cluster, first match counts.
_PATTERNS = (
    (NO_QUOTA, r"exceeded quota|failed quota|quota"),
    (DENIED, r"admission webhook|denied the request|violates PodSecurity|ValidatingAdmissionPolicy"),
    (NO_IMAGE, r"ImagePullBackOff|ErrImagePull|pulling image|InvalidImageName|ImageInspectError|pull image"),
    (VOLUME, r"persistentvolumeclaim|FailedMount|FailedAttach|unbound immediate|volume"),
    (NO_NODE, r"nodes are available|Insufficient |no nodes available|Unschedulable|didn't match"),
    (NODE_LOST, r"node is not ready|NodeNotReady|NodeLost|node lost|TaintManager|not ready"),
    (GATED, r"SchedulingGated|gated"),
    (CONTAINER, r"Container|CrashLoop|sandbox|BackOff|Failed"),
)
_CAUSES = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _PATTERNS)
_SHORT = re.compile(r"Insufficient [\w./-]+|exceeded quota: [\w.-]+|admission webhook \"[^\"]{1,80}\"")
# Transitions that say why something did not happen: those of pods, of events, and of the audit log.
_TELLING = ("unschedulable", "failed-scheduling", "failed-create", "blocked", "failed-start", "gated", "node-lost")


def classify_reason(text: str | None) -> str:
    """What a message of the cluster is about.

    >>> classify_reason("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    'no node fits'
    >>> classify_reason('pods "a" is forbidden: exceeded quota: q, requested: pods=1')
    'quota'
    >>> classify_reason('admission webhook "x" denied the request: no'), classify_reason("ErrImagePull")
    ('admission denied', 'image pull back-off')
    """
    return next((name for name, pattern in _CAUSES if text and pattern.search(text)), REFUSED)


def find_obstacles(transitions: pl.DataFrame, submissions: pl.DataFrame, pods: pl.DataFrame) -> pl.DataFrame:
    """Why did workloads and pods not get on, by the cluster's own words, counted?

    Returns: Table OBSTACLES, most first: conditions of pods, events about pods and jobs, and refusals of our own
    requests. An object counts once for each reason. `waiting` are those that were never scheduled, started or made.

    A reason is what a component wrote when it last gave up, and not always the cause: a pod that was reported
    unschedulable may have been bound a second later. Events may be dropped by the cluster.
    """
    rows = [*_list_refusals(submissions), *_list_told(transitions, pods), *_list_suspended(transitions)]
    if not rows:
        return OBSTACLES.frame([])
    frame = pl.DataFrame(rows, schema=["about", "reason", "uid", "at_s", "waiting", "text"], orient="row")
    counted = frame.unique(["about", "reason", "uid"], keep="first", maintain_order=True)
    grouped = counted.group_by("about", "reason", maintain_order=True).agg(
        pl.len().alias("objects"),
        pl.col("waiting").sum(),
        pl.col("at_s").min().alias("first_s"),
        pl.col("at_s").max().alias("last_s"),
        pl.col("text").first().alias("example"),
    )
    return OBSTACLES.frame(grouped.sort("waiting", "objects", descending=True).to_dicts())


def _list_refusals(submissions: pl.DataFrame) -> list[tuple[Any, ...]]:
    failed = submissions.filter(pl.col("status") == "failed")
    return [
        ("workloads", classify_reason(reason), name, sent_s, True, _shorten(reason))
        for name, sent_s, reason in failed.select("name", "sent_s", "reason").iter_rows()
    ]


def _list_told(transitions: pl.DataFrame, pods: pl.DataFrame) -> list[tuple[Any, ...]]:
    reports = transitions.filter(
        pl.col("transition").is_in(_TELLING) & pl.col("resource").is_in(["pod", "job", "event"])
    )
    open_pods = set(pods.filter(pl.col("running_s").is_null() & pl.col("ended_s").is_null())["uid"])
    never = set(pods.filter(pl.col("scheduled_s").is_null() & pl.col("ended_s").is_null())["uid"])
    pod_uids = set(pods["uid"])
    rows = []
    for row in reports.iter_rows(named=True):
        uid = row["owner"] if row["resource"] == "event" else row["uid"]
        about = "pods" if uid in pod_uids else "nodes" if row["transition"] == "node-lost" else "workloads"
        text = row["reason"] or row["transition"]
        reason = NODE_LOST if row["transition"] == "node-lost" else classify_reason(text)
        open_uids = never if reason in (NO_NODE, GATED) else open_pods
        rows.append((about, reason, uid, row["arrival_s"], uid in open_uids or about == "workloads", _shorten(text)))
    return rows


def _list_suspended(transitions: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Objects that were suspended at the end."""
    turns = transitions.filter(pl.col("transition").is_in(["suspended", "resumed"])).sort("arrival_s")
    last = turns.group_by("uid", maintain_order=True).agg(pl.col("transition", "arrival_s").last())
    suspensions = last.filter(pl.col("transition") == "suspended").select("uid", "arrival_s")
    text = "suspend is true, and neither a queue nor a controller set it to false"
    return [("workloads", SUSPENDED, uid, at_s, True, text) for uid, at_s in suspensions.iter_rows()]


def _shorten(text: str | None) -> str:
    """What matters of a message, without the names of the single objects where that is known."""
    phrases = sorted(set(_SHORT.findall(text or "")))
    return ", ".join(phrases)[:160] or (text or "no reason given")[:160]


def describe_obstacles(obstacles: pl.DataFrame) -> list[str]:
    """The reasons that kept something from getting on to the end, in a sentence each."""
    return [
        f"The cluster says of {row['waiting']:,} {row['about']}: {row['reason']} ({row['example']})."
        for row in obstacles.filter(pl.col("waiting") > 0).head(MAX_TOLD).to_dicts()
    ]


@dataclass(frozen=True)
class StageEnd:
    """What a stage had done at the end of a run."""

    step: str
    waits: StageWaits
    end_s: float

    @property
    def passed(self) -> int:
        """Pods that passed."""
        return int(np.isfinite(self.waits.left_s).sum())

    @property
    def waiting(self) -> int:
        """Pods that came a moment before the end at least, and never passed."""
        early = self.waits.came_s <= self.end_s - MIN_TIME_S
        return int((early & ~np.isfinite(self.waits.left_s)).sum())

    @property
    def last_s(self) -> float | None:
        """When the last one passed."""
        left_s = self.waits.left_s[np.isfinite(self.waits.left_s)]
        return float(left_s.max()) if len(left_s) else None

    @property
    def silent_s(self) -> float:
        """For how long nothing had passed at the end, while work waited."""
        waiting = self.waits.came_s[~np.isfinite(self.waits.left_s)]
        if not len(waiting):
            return 0.0
        since = float(waiting.min()) if self.last_s is None else max(self.last_s, float(waiting.min()))
        return max(0.0, self.end_s - since)


def find_unfinished(
    passages: StagePassages, obstacles: pl.DataFrame, *, explained: frozenset[str], in_turn: bool = False
) -> pl.DataFrame:
    """Which stages did pods never pass, and did anything pass at the end?

    `explained`: Stages whose waiting the room of the cluster explains: pods that wait for GPUs or nodes are a
    finding.
    `in_turn`: Some pods are made only when others of their workload have ended; the stage `pods made` is left out
    then.

    Returns: Table UNFINISHED: one row per stage at which pods still waited at the end. `silent`: nothing passed at
    all, or nothing for the last 8 s and more while at least 5 % waited, without room that explains it.
    """
    rows = []
    for step, waits in passages.list_waits().items():
        stage = StageEnd(step, waits, passages.end_s)
        if (step == MADE and in_turn) or not stage.waiting:
            continue
        n_came = len(waits.came_s)
        stopped = stage.waiting >= TOLD_FRACTION * n_came and stage.silent_s >= SILENT_S and step not in explained
        row = {
            "step": step,
            "came": n_came,
            "passed": stage.passed,
            "waiting": stage.waiting,
            "last_s": stage.last_s,
            "silent_s": stage.silent_s,
            "silent": not stage.passed or stopped,
        }
        rows.append(row | {"sentence": _describe_end(stage, n_came, obstacles)})
    return UNFINISHED.frame(rows)


def _describe_end(stage: StageEnd, n_came: int, obstacles: pl.DataFrame) -> str:
    last = "never" if stage.last_s is None else f"at {stage.last_s:.3g} s"
    text = f"{stage.passed:,} of {n_came:,} pods {_DONE[stage.step]}; the last one that did: {last}"
    about = {RELEASED: "workloads", MADE: "workloads", SCHEDULED: "pods", STARTED: "pods"}[stage.step]
    kinds = (NO_NODE, GATED) if stage.step == SCHEDULED else ()
    reason_rows = obstacles.filter((pl.col("about") == about) & (pl.col("waiting") > 0))
    if stage.step not in (RELEASED, MADE):
        reason_rows = reason_rows.filter(pl.col("reason").is_in(kinds) == (stage.step == SCHEDULED))
    reasons = [f"{row['reason']} {row['waiting']:,} ({row['example']})" for row in reason_rows.head(2).to_dicts()]
    lost = obstacles.filter(pl.col("reason") == NODE_LOST)
    if lost.height and not reasons:
        reasons = [f"{int(lost['objects'].sum()):,} nodes were lost"]
    return text + (f"; the cluster says: {', '.join(reasons)}" if reasons else "")
