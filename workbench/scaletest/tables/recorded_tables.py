"""Tables that a run records, read from its lines."""

from __future__ import annotations

from workbench.core.tables import Column, Table

INDEX_COLUMN = Column("index", "int", "Number of the workload in its run, from 0.")
NAME_COLUMN = Column("name", "str", "Its name in the cluster.")

SCHEDULE = Table(
    "schedule",
    "One row per planned workload.",
    ("index",),
    (
        INDEX_COLUMN,
        NAME_COLUMN,
        Column("entry", "str", "The scenario's entry that it comes from."),
        Column("kind", "str", "Kind of the object."),
        Column("namespace", "str", "Namespace of the object."),
        Column("due_s", "float", "Intended submission time, after the start.", unit="s"),
        Column("step", "int", "Step of the arrival process, from 0."),
        Column("rate_per_s", "float", "Offered rate of the step; null if it has none.", "1/s", nullable=True),
        Column("pods", "int", "Number of its pods.", unit="pods"),
        Column("gpus_per_pod", "float", "GPUs of each.", unit="GPUs"),
        Column("cpus_per_pod", "float", "Processor share of each.", unit="cores"),
        Column("memory_bytes_per_pod", "int", "Memory of each.", unit="bytes"),
        Column("gang", "bool", "Gang scheduling: all pods or none."),
        Column("priority", "str", "Priority class.", nullable=True),
        Column("queue", "str", "Queue of its scheduler.", nullable=True, added=True),
        Column("lifetime_s", "float", "Lifetime of its pods; null: until they are deleted.", unit="s", nullable=True),
        Column("delete_after_s", "float", "Deleted this long after its submission (churn).", unit="s", nullable=True),
        Column("object_bytes", "int", "Size of the request body; null when imported.", unit="bytes", nullable=True),
        Column("spec_sha256", "str", "Hash of the request body; null when imported.", nullable=True),
    ),
)

SUBMISSIONS = Table(
    "submissions",
    "One row per planned workload: the outcome of its submission.",
    ("index",),
    (
        INDEX_COLUMN,
        NAME_COLUMN,
        Column("due_s", "float", "Intended time.", unit="s"),
        Column("sent_s", "float", "First attempt, client's clock; null when never sent.", unit="s", nullable=True),
        Column("acked_s", "float", "Accepted, client's clock.", unit="s", nullable=True),
        Column("created_s", "float", "creationTimestamp, server's clock.", unit="s", nullable=True),
        Column("status", "str", "created, known (created before a crash), failed or unsent."),
        Column("http_status", "int", "Last answer.", nullable=True),
        Column("attempts", "int", "Number of requests.", unit="requests"),
        Column("throttled", "int", "Responses with status 429.", unit="requests"),
        Column("throttled_s", "float", "Wait time because of them.", unit="s"),
        Column("uid", "str", "The object's uid.", nullable=True),
        Column("reason", "str", "Reason of the failure.", nullable=True),
    ),
)

TRANSITIONS = Table(
    "transitions",
    "One row per first transition of an incarnation (uid) of an object, from a watch, an event or the audit log.",
    (),
    (
        Column("resource", "str", "workload, job, pod, podgroup, bindrequest, pvc, event, audit or node."),
        Column("transition", "str", "What happened."),
        Column("uid", "str", "uid of the object."),
        NAME_COLUMN,
        Column("namespace", "str", "Its namespace."),
        Column("workload", "str", "Name of the workload that it belongs to.", nullable=True),
        Column("owner", "str", "uid of its controller, or of the object that an event refers to.", nullable=True),
        Column("owner_name", "str", "Name of that object.", nullable=True),
        Column(
            "arrival_s",
            "float",
            "Arrival at the sampler, client's clock; null if not watched.",
            unit="s",
            nullable=True,
        ),
        Column("server_s", "float", "Server's time, truncated to its resolution.", unit="s", nullable=True),
        Column("resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("session", "int", "Number of the watch's connection."),
        Column(
            "gap", "bool", "The watch was disconnected: the transition happened at an unknown time before the arrival."
        ),
        Column("node", "str", "Node that the pod was bound to.", nullable=True),
        Column("reason", "str", "Reason given by the object or event.", nullable=True),
    ),
)

GAPS = Table(
    "gaps",
    "One row per gap of a watch.",
    (),
    (
        Column("resource", "str", "Resource of the watch."),
        Column("from_s", "float", "Last event before the gap.", unit="s"),
        Column("to_s", "float", "Reconnect of the watch.", unit="s"),
        Column("reason", "str", "Such as end of stream, expired or server gone."),
        Column("relisted", "bool", "The watch relisted."),
        Column("recovered", "int", "Transitions found after the reconnect.", unit="transitions"),
    ),
)

BEATS = Table(
    "beats",
    "One row per heartbeat: the watch lag.",
    (),
    (
        Column("sent_s", "float", "Change sent.", unit="s"),
        Column("ack_s", "float", "From the request to the response.", unit="s"),
        Column(
            "lag_s",
            "float",
            "From the response to the watch event; negative if the watch event was first.",
            "s",
            nullable=True,
        ),
    ),
)

SKEW = Table(
    "skew",
    "One row per measurement of the clock offset.",
    (),
    (
        Column("at_s", "float", "When.", unit="s"),
        Column("low_s", "float", "Server's minus client's clock, lower bound.", unit="s"),
        Column("high_s", "float", "Upper bound; below `low_s` if several servers disagree.", unit="s"),
        Column("probes", "int", "Number of responses.", unit="requests"),
    ),
)

LOAD = Table(
    "load",
    "One row per second, approximately: resource use of the sampler and of this machine.",
    (),
    (
        Column("at_s", "float", "When.", unit="s"),
        Column("sampler_cpu_s", "float", "Processor time of the sampler since the row before.", unit="s"),
        Column("sampler_rss_bytes", "int", "Its resident memory.", unit="bytes"),
        Column("host_busy", "float", "Share of all cores in use.", unit="share", nullable=True),
        Column(
            "client", "float", "Share of all cores: submitter and sampler.", unit="share", nullable=True, added=True
        ),
        Column(
            "side",
            "float",
            "Share of all cores: the local cluster's components.",
            unit="share",
            nullable=True,
            added=True,
        ),
        Column("others", "float", "Share of all cores: everything else.", unit="share", nullable=True, added=True),
    ),
)

NODES = Table(
    "nodes",
    "One row per node: whether it was ever ready, and its largest allocatable resources.",
    ("name",),
    (
        NAME_COLUMN,
        Column("ready", "bool", "The node was ready at some time."),
        Column("simulated", "bool", "The node exists in the API only."),
        Column("gpus", "int", "Allocatable GPUs.", unit="GPUs"),
        Column("cpus", "float", "Allocatable cores.", unit="cores"),
        Column("memory_bytes", "int", "Allocatable memory.", unit="bytes"),
        Column("pods", "int", "Most pods.", unit="pods"),
    ),
)

REQUESTS = Table(
    "requests",
    "One row per second, client, verb and resource of the audit log: request counts and latency.",
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

PRESSURE = Table(
    "pressure",
    "One row per look at a component's own metrics and subject: what happened since the look before.",
    ("at_s", "component", "measure", "subject"),
    (
        Column("at_s", "float", "When, client's clock.", unit="s"),
        Column("over_s", "float", "Time since the look before.", unit="s"),
        Column("component", "str", "Whose metrics."),
        Column("measure", "str", "queue wait, etcd call, admission webhook, client limiter wait, work queue, …"),
        Column("subject", "str", "Priority level, operation, webhook or queue; empty for none."),
        Column("n", "int", "Calls, or refusals; null for what is not counted.", "calls", nullable=True),
        Column("mean_s", "float", "Mean time of these calls.", unit="s", nullable=True),
        Column("p99_s", "float", "Upper bound of their p99; null beyond the last bucket.", "s", nullable=True),
        Column("level", "float", "How many there were at that moment, of what has a level.", "objects", nullable=True),
    ),
)

COURSE = Table(
    "course",
    "One row per look at a running test.",
    ("at_s",),
    (
        Column("at_s", "float", "Seconds since the start.", unit="s"),
        Column("accepted", "int", "Accepted workloads.", unit="workloads"),
        Column("refused", "int", "Refused workloads.", unit="workloads"),
        Column("made", "int", "Created pods.", unit="pods"),
        Column("scheduled", "int", "Pods that were bound.", unit="pods"),
        Column("running", "int", "Pods that ran.", unit="pods"),
        Column("scheduled_per_s", "float", "Over the last ten seconds.", unit="pods/s", nullable=True),
        Column("p50_s", "float", "From created to bound, of pods bound in the last ten seconds.", "s", nullable=True),
        Column("p95_s", "float", "The same.", unit="s", nullable=True),
    ),
)

NODE_CHANGES = Table(
    "node_changes",
    "One row per change of a node that was seen: whether it takes pods, and its GPUs, from then on.",
    (),
    (
        Column("at_s", "float", "Arrival at the sampler, client's clock.", unit="s"),
        Column("name", "str", "The node."),
        Column("ready", "bool", "It is ready and takes pods; false for a deleted or cordoned one."),
        Column("gpus", "int", "Allocatable GPUs.", unit="GPUs"),
    ),
)
