"""The tables of the area. The first group is what a run wrote, read into columns; all others follow from it alone.

Every time `*_s` is in seconds since the run's start (`origin`), by the clock that the column or its `clock` names:
`client` is ours, `server` the cluster's own, uncorrected. Missing is null: a pod that never ran has no time of it.
"""

from __future__ import annotations

from workbench.tables import Column, Table

_INDEX = Column("index", "int", "Number of the workload in its run, from 0.")
_NAME = Column("name", "str", "Its name in the cluster.")

SCHEDULE = Table(
    "schedule",
    "One row per workload that is to be submitted: the plan.",
    ("index",),
    (
        _INDEX,
        _NAME,
        Column("entry", "str", "The scenario's entry that it comes from."),
        Column("kind", "str", "Kind of the object."),
        Column("namespace", "str", "Where it is made."),
        Column("due_s", "float", "When it is to be sent, after the start.", unit="s"),
        Column("step", "int", "Step of the arrival process, from 0."),
        Column("rate_per_s", "float", "Rate that the step asks for; null where it has none.", "1/s", nullable=True),
        Column("pods", "int", "Pods that it will have.", unit="pods"),
        Column("gpus_per_pod", "float", "GPUs of each.", unit="GPUs"),
        Column("cpus_per_pod", "float", "Processor share of each.", unit="cores"),
        Column("memory_bytes_per_pod", "int", "Memory of each.", unit="bytes"),
        Column("gang", "bool", "All its pods are to be scheduled or none."),
        Column("priority", "str", "Priority class.", nullable=True),
        Column("lifetime_s", "float", "How long its pods run; null for ever.", unit="s", nullable=True),
        Column("delete_after_s", "float", "Deleted so long after its submission (churn).", unit="s", nullable=True),
        Column("object_bytes", "int", "Size of what is sent; null when imported.", unit="bytes", nullable=True),
        Column("spec_sha256", "str", "Hash of what is sent; null when imported.", nullable=True),
    ),
)

SUBMISSIONS = Table(
    "submissions",
    "One row per workload of the plan: what became of sending it.",
    ("index",),
    (
        _INDEX,
        _NAME,
        Column("due_s", "float", "Intended time.", unit="s"),
        Column("sent_s", "float", "First attempt, client's clock; null when never sent.", unit="s", nullable=True),
        Column("acked_s", "float", "Accepted, client's clock.", unit="s", nullable=True),
        Column("created_s", "float", "creationTimestamp, server's clock.", unit="s", nullable=True),
        Column("status", "str", "created, known (made before a crash), failed or unsent."),
        Column("http_status", "int", "Last answer.", nullable=True),
        Column("attempts", "int", "Requests that were made.", unit="requests"),
        Column("throttled", "int", "Answers of 429 among them.", unit="requests"),
        Column("throttled_s", "float", "Time waited because of them.", unit="s"),
        Column("uid", "str", "The object's uid.", nullable=True),
        Column("reason", "str", "Why it failed.", nullable=True),
    ),
)

TRANSITIONS = Table(
    "transitions",
    "One row per first transition of an incarnation (uid) of an object, as a watch, an event or the audit log told it.",
    (),
    (
        Column("resource", "str", "workload, job, pod, podgroup, bindrequest, pvc, event, audit or node."),
        Column("transition", "str", "What happened."),
        Column("uid", "str", "Incarnation of the object."),
        _NAME,
        Column("namespace", "str", "Its namespace."),
        Column("workload", "str", "Name of the workload that it belongs to.", nullable=True),
        Column("owner", "str", "uid of its controller, or of what an event is about.", nullable=True),
        Column("owner_name", "str", "Name of the same.", nullable=True),
        Column("arrival_s", "float", "Seen by us, client's clock; null when nobody watched.", unit="s", nullable=True),
        Column("server_s", "float", "Server's time, truncated to its resolution.", unit="s", nullable=True),
        Column("resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("session", "int", "Number of the watch's connection."),
        Column("gap", "bool", "The watch was away: it happened at some time before the arrival."),
        Column("node", "str", "Where the pod was bound to.", nullable=True),
        Column("reason", "str", "As the object or event says.", nullable=True),
    ),
)

GAPS = Table(
    "gaps",
    "One row per time that a watch was away.",
    (),
    (
        Column("resource", "str", "What was watched."),
        Column("from_s", "float", "Last sign of the watch.", unit="s"),
        Column("to_s", "float", "It was back.", unit="s"),
        Column("reason", "str", "End of stream, expired, server gone."),
        Column("relisted", "bool", "Everything was listed anew."),
        Column("recovered", "int", "Transitions found on the way back.", unit="transitions"),
    ),
)

BEATS = Table(
    "beats",
    "One row per heartbeat: how late our own watch is.",
    (),
    (
        Column("sent_s", "float", "Change sent.", unit="s"),
        Column("ack_s", "float", "From sending to the answer.", unit="s"),
        Column("lag_s", "float", "From the answer to our watch; below 0: the watch was first.", "s", nullable=True),
    ),
)

SKEW = Table(
    "skew",
    "One row per measurement of the clocks' distance.",
    (),
    (
        Column("at_s", "float", "When.", unit="s"),
        Column("low_s", "float", "Server's clock minus ours, at least.", unit="s"),
        Column("high_s", "float", "The same, at most; below `low_s` the servers disagree.", unit="s"),
        Column("probes", "int", "Answers behind it.", unit="requests"),
    ),
)

LOAD = Table(
    "load",
    "One row per second or so: what measuring costs on this machine.",
    (),
    (
        Column("at_s", "float", "When.", unit="s"),
        Column("sampler_cpu_s", "float", "Processor time of the sampler since the row before.", unit="s"),
        Column("sampler_rss_bytes", "int", "Its resident memory.", unit="bytes"),
        Column("host_busy", "float", "Share of all cores in use.", unit="share", nullable=True),
    ),
)

NODES = Table(
    "nodes",
    "One row per node: ready if it ever was, with the most that it offered.",
    ("name",),
    (
        _NAME,
        Column("ready", "bool", "It was ready at some time."),
        Column("simulated", "bool", "A node that only exists in the API."),
        Column("gpus", "int", "Allocatable GPUs.", unit="GPUs"),
        Column("cpus", "float", "Allocatable cores.", unit="cores"),
        Column("memory_bytes", "int", "Allocatable memory.", unit="bytes"),
        Column("pods", "int", "Most pods.", unit="pods"),
    ),
)

REQUESTS = Table(
    "requests",
    "One row per second, client, verb and resource of the audit log: who asked the API server for what.",
    ("at_s", "client", "verb", "resource", "subresource", "code"),
    (
        Column("at_s", "float", "Begin of the second, server's clock.", unit="s"),
        Column("client", "str", "User, or the component of its user agent."),
        Column("verb", "str", "As in the audit log."),
        Column("resource", "str", "Plural name."),
        Column("subresource", "str", "Empty for none."),
        Column("code", "int", "HTTP status."),
        Column("requests", "int", "How many.", unit="requests"),
        Column("duration_p50_s", "float", "Median time in the server.", unit="s"),
        Column("duration_p99_s", "float", "99th percentile of it.", unit="s"),
    ),
)

RAW = (SCHEDULE, SUBMISSIONS, TRANSITIONS, GAPS, BEATS, SKEW, LOAD, NODES, REQUESTS)
