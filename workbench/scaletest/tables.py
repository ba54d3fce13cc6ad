"""Declared tables of the area: what a run records, and what is worked out from it."""

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
        Column("entry", "str", "Entry of the scenario."),
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
        Column("asks", "str", "Of a pod's creation: amounts that it asks a node for.", nullable=True, added=True),
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
        Column("sampler_cpu_s", "float", "Processor time of the sampler since the previous row.", unit="s"),
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
    "One row per node: whether it became ready, and its largest allocatable resources.",
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
    "One row per sample of a component's own metrics and subject: the change since the previous sample.",
    ("at_s", "component", "measure", "subject"),
    (
        Column("at_s", "float", "When, client's clock.", unit="s"),
        Column("over_s", "float", "Time since the look before.", unit="s"),
        Column("component", "str", "Whose metrics."),
        Column("measure", "str", "queue wait, etcd call, admission webhook, client limiter wait, work queue, …"),
        Column("subject", "str", "Priority level, operation, webhook or queue; empty for none."),
        Column("n", "int", "Calls, or refusals; null if not counted.", "calls", nullable=True),
        Column("mean_s", "float", "Mean time of these calls.", unit="s", nullable=True),
        Column("p99_s", "float", "Upper bound of their p99; null beyond the last bucket.", "s", nullable=True),
        Column("level", "float", "How many there were at that moment, of what has a level.", "objects", nullable=True),
    ),
)
COURSE = Table(
    "course",
    "One row per sample of a running test.",
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
        Column("offers", "str", "Amounts of all its allocatable resources.", nullable=True, added=True),
    ),
)
HOLDINGS = Table(
    "holdings",
    "One row per change of a pod that is not of this run: what others hold and wait for.",
    (),
    (
        Column("at_s", "float", "Arrival at the sampler, client's clock.", unit="s"),
        Column("uid", "str", "The pod."),
        Column("namespace", "str", "Its namespace."),
        Column("run", "str", "Run id of another test; null for all others.", nullable=True),
        Column("state", "str", "waiting, bound or gone."),
        Column("node", "str", "Node that it is bound to.", nullable=True),
        Column("asks", "str", "Amounts that it asks a node for."),
    ),
)
_CLOCK = Column(
    "clock", "str", "client: both ends by the client's clock; server: both by the cluster's; mixed: one each."
)
_STEP = Column("step", "str", "Name of the step.")
PODS = Table(
    "pods",
    "One row per incarnation of a pod.",
    ("uid",),
    (
        INDEX_COLUMN,
        Column("uid", "str", "Incarnation."),
        Column("name", "str", "Its name."),
        Column("attempt", "int", "1 for the first pods of the workload, more for those that replaced them."),
        Column("created_s", "float", "Seen first, client's clock.", unit="s", nullable=True),
        Column("scheduled_s", "float", "Seen bound to a node, client's clock.", unit="s", nullable=True),
        Column("running_s", "float", "Seen running.", unit="s", nullable=True),
        Column("ended_s", "float", "Seen succeeded, failed, evicted or deleted.", unit="s", nullable=True),
        Column("lost_s", "float", "End of a pod that never succeeded.", "s", nullable=True),
        Column("server_created_s", "float", "Server's clock.", unit="s", nullable=True),
        Column(
            "server_scheduled_s",
            "float",
            "Server's clock, from the timestamp with the finest resolution.",
            unit="s",
            nullable=True,
        ),
        Column("server_running_s", "float", "Server's clock.", unit="s", nullable=True),
        Column("created_resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("scheduled_resolution_s", "float", "The same.", unit="s", nullable=True),
        Column("running_resolution_s", "float", "The same.", unit="s", nullable=True),
        Column("unschedulable", "bool", "The scheduler reported it unschedulable at least once."),
        Column("unschedulable_s", "float", "First time of that.", unit="s", nullable=True, added=True),
        Column("unschedulable_reason", "str", "The scheduler's reason then.", nullable=True, added=True),
        Column("evicted", "bool", "The pod was evicted."),
        Column("gap", "bool", "At least one of its times was found after a gap of the watch."),
        Column("created_gap", "bool", "The client's time is an upper bound.", nullable=True),
        Column("scheduled_gap", "bool", "The same.", nullable=True),
        Column("running_gap", "bool", "The same.", nullable=True),
        Column("node", "str", "Node that it was bound to.", nullable=True),
        Column("gpus", "float", "Requested GPUs.", unit="GPUs"),
        Column("asks", "str", "Amounts that it asks a node for; null if unknown.", nullable=True, added=True),
    ),
)
MILESTONES = Table(
    "milestones",
    "One row per workload and milestone that it reached.",
    ("index", "milestone"),
    (
        INDEX_COLUMN,
        Column("milestone", "str", "due, sent, acked, created, job, first pod, last pod, … running."),
        Column("client_s", "float", "Client's clock.", unit="s", nullable=True),
        Column("server_s", "float", "Server's clock.", unit="s", nullable=True),
        Column("resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("gap", "bool", "Found after a gap of the watch: the client's time is an upper bound."),
    ),
)
STEPS = Table(
    "steps",
    "One row per workload, step and clock.",
    ("index", "step", "clock"),
    (
        INDEX_COLUMN,
        _STEP,
        _CLOCK,
        Column("begin_s", "float", "When the step began, by its begin's clock.", unit="s"),
        Column("duration_s", "float", "Duration; null if the step was never completed.", "s", nullable=True),
        Column("resolution_s", "float", "Maximum error of the duration.", unit="s"),
        Column("gap", "bool", "The end was found after a gap of the watch: the duration is an upper bound."),
    ),
)
QUANTILES = Table(
    "step_quantiles",
    "One row per step, clock and quantile.",
    ("step", "clock", "quantile"),
    (
        _STEP,
        _CLOCK,
        Column("quantile", "float", "0.5, 0.9, 0.95 or 0.99.", unit="share"),
        Column("value_s", "float", "Over all that began; null: more than 1 - q never ended.", unit="s", nullable=True),
        Column("low_s", "float", "Low end of its interval.", unit="s", nullable=True),
        Column("high_s", "float", "High end; null if unbounded.", unit="s", nullable=True),
        Column("level", "float", "Confidence, within this run.", unit="share"),
        Column("n", "int", "Workloads that began the step.", unit="workloads"),
        Column("missing", "int", "Of these, workloads that never completed it.", unit="workloads"),
        Column("gaps", "int", "Of these, with an end that is an upper bound.", unit="workloads"),
        Column("mean_s", "float", "Mean of those that ended.", unit="s", nullable=True),
        Column("longest_s", "float", "Longest of those that ended.", unit="s", nullable=True),
        Column("resolution_s", "float", "Coarsest resolution among them.", unit="s"),
    ),
)
SHARES = Table(
    "shares",
    "One row per segment between due and running: its share of the time, for all workloads and for the slowest.",
    ("segment",),
    (
        Column("segment", "str", "The segment; segments follow one another without gap or overlap."),
        Column("mean_s", "float", "Mean over the workloads that ran.", unit="s", nullable=True),
        Column("share", "float", "Its share of the whole time.", unit="share", nullable=True),
        Column("tail_mean_s", "float", "Mean over the slowest.", unit="s", nullable=True),
        Column("tail_share", "float", "Its share of the time of the slowest.", unit="share", nullable=True),
        Column("low", "float", "Low end of that share's interval.", unit="share", nullable=True),
        Column("high", "float", "High end.", unit="share", nullable=True),
        Column("n", "int", "Workloads that ran.", unit="workloads"),
        Column("n_tail", "int", "The slowest among them.", unit="workloads"),
    ),
)
FLOW = Table(
    "flow",
    "One row per moment: how many pods or workloads had reached each stage.",
    ("at_s",),
    (
        Column("at_s", "float", "Seconds since the start, client's clock.", unit="s"),
        Column("due", "int", "Workloads that should have been sent.", unit="workloads"),
        Column("acked", "int", "Workloads accepted by the API server.", unit="workloads"),
        Column("pods_due", "int", "Pods of the workloads that were accepted.", unit="pods"),
        Column("pods_created", "int", "Pods created.", unit="pods"),
        Column("pods_scheduled", "int", "Pods that were bound.", unit="pods"),
        Column("pods_running", "int", "Pods that ran.", unit="pods"),
        Column("pods_ended", "int", "Pods that were deleted or had ended.", unit="pods"),
    ),
)
RAMP = Table(
    "ramp",
    "One row per step of the arrival process: offered, accepted and scheduled rates, and backlog.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("begin_s", "float", "From here.", unit="s"),
        Column("end_s", "float", "To here.", unit="s"),
        Column("offered_per_s", "float", "Pods due per second.", unit="pods/s"),
        Column("accepted_per_s", "float", "Pods of accepted workloads per second.", unit="pods/s"),
        Column("completed_per_s", "float", "Pods scheduled per second (slope).", unit="pods/s", nullable=True),
        Column("low_per_s", "float", "Low end of it.", unit="pods/s", nullable=True),
        Column("high_per_s", "float", "High end of it.", unit="pods/s", nullable=True),
        Column(
            "through_per_s",
            "float",
            "Pods due per second that were scheduled at some time.",
            "pods/s",
            nullable=True,
            added=True,
        ),
        Column("backlog_slope_per_s", "float", "Growth of the backlog.", unit="pods/s", nullable=True),
        Column("backlog_low_per_s", "float", "Low end of it.", unit="pods/s", nullable=True),
        Column("backlog_high_per_s", "float", "High end of it.", unit="pods/s", nullable=True),
        Column("backlog_end", "int", "Pods accepted and not scheduled at the end.", unit="pods"),
        Column("p95_s", "float", "p95 from due to scheduled of its workloads.", unit="s", nullable=True),
        Column("verdict", "str", "SUSTAINED, NOT SUSTAINED or UNDECIDED."),
        Column("reason", "str", "Why it is not decided.", nullable=True),
    ),
)
SUSTAINED = Table(
    "sustained",
    "One row: the rate of pods that the cluster sustains, by all steps of the ramp.",
    ("unit",),
    (
        Column("unit", "str", "Counted unit: pods/s."),
        Column("low_per_s", "float", "Low end of the rate; null: not decided.", unit="pods/s", nullable=True),
        Column("high_per_s", "float", "High end; null if the limit was never reached.", unit="pods/s", nullable=True),
        Column("level", "float", "Confidence.", unit="share"),
        Column("simulated_nodes", "bool", "Pods ran on simulated nodes only."),
        Column("reason", "str", "Evidence, or the reason why the rate is not decided."),
    ),
)
LIMITS = Table(
    "limits",
    "One row per stage at which pods waited: whether it held them back, its rate, and the client at its limit, if any.",
    ("step",),
    (
        _STEP,
        Column(
            "kind",
            "str",
            "client limit: at a configured request rate; slow calls: the API server took long for each call; "
            "no room: pods waited for nodes; quota: suspended or gated until there was quota; "
            "bottleneck: none of these; delay: each waited equally long, at any rate; queue: it came and went; "
            "stopped: nothing passed any more, or all at once; unclear: one burst.",
        ),
        Column("rate_per_s", "float", "Its plateau.", unit="1/s"),
        Column("low_per_s", "float", "Low end of it.", unit="1/s"),
        Column("high_per_s", "float", "High end of it.", unit="1/s"),
        Column("counted", "str", "Counted unit: pods, workloads or requests of a client."),
        Column("begin_s", "float", "Begin of the plateau.", unit="s"),
        Column("end_s", "float", "End of the plateau.", unit="s"),
        Column("backlog", "float", "Median backlog during the plateau.", unit="objects"),
        Column("variation", "float", "Variation of the rate from second to second.", unit="share"),
        Column("delay_s", "float", "Wait that does not depend on the load.", unit="s", nullable=True, added=True),
        Column("client", "str", "Client at its limit, by the audit log or its own metrics.", nullable=True),
        Column("call_s", "float", "Mean time that the API server took for a call.", "s", nullable=True, added=True),
        Column(
            "cause",
            "str",
            "The largest part of it, or the room or quota that limited, if known.",
            nullable=True,
            added=True,
        ),
        Column("resource", "str", "Of missing room: the resource that bound.", nullable=True, added=True),
        Column("requests_per_s", "float", "Requests of that client during the plateau.", unit="1/s", nullable=True),
        Column("requests_low_per_s", "float", "Low end of it.", unit="1/s", nullable=True),
        Column("requests_high_per_s", "float", "High end of it.", unit="1/s", nullable=True),
        Column("configured_per_s", "float", "Configured or default client limit.", "1/s", nullable=True),
        Column("sentence", "str", "Finding in words, with the evidence."),
    ),
)
OBSTACLES = Table(
    "obstacles",
    "One row per reason that the cluster gave for not going on with something, counted.",
    ("about", "reason"),
    (
        Column("about", "str", "pods, workloads or nodes."),
        Column("reason", "str", "quota, admission denied, no node fits, image pull back-off, node not ready, …"),
        Column("objects", "int", "How many were given it.", unit="objects"),
        Column("waiting", "int", "Of these, how many never continued.", unit="objects"),
        Column("first_s", "float", "First time, client's clock.", unit="s", nullable=True),
        Column("last_s", "float", "Last object's first time.", unit="s", nullable=True),
        Column("example", "str", "In the cluster's words."),
    ),
)
UNFINISHED = Table(
    "unfinished",
    "One row per stage that pods had not passed at the end.",
    ("step",),
    (
        _STEP,
        Column("came", "int", "Pods that arrived there.", unit="pods"),
        Column("passed", "int", "Pods that passed.", unit="pods"),
        Column("waiting", "int", "Pods that still waited at the end.", unit="pods"),
        Column("last_s", "float", "When the last one passed.", unit="s", nullable=True),
        Column("silent_s", "float", "Time without progress at the end.", unit="s"),
        Column("silent", "bool", "Nothing passed, or nothing more without a reason: the run is invalid."),
        Column("sentence", "str", "In words, with the cluster's reasons."),
    ),
)
GPUS = Table(
    "gpus",
    "One row per moment: GPU use.",
    ("at_s",),
    (
        Column("at_s", "float", "Seconds since the start, client's clock.", unit="s"),
        Column("capacity", "float", "GPUs of all ready nodes, offered or still held.", unit="GPUs"),
        Column("allocated", "float", "GPUs of bound pods.", unit="GPUs"),
        Column("waiting", "float", "GPUs of created pods that were not bound.", unit="GPUs"),
        Column("in_partial_gangs", "float", "Allocated GPUs of gangs that were not complete.", unit="GPUs"),
        Column(
            "stranded", "float", "Free GPUs on nodes with fewer free GPUs than the largest pod requests.", unit="GPUs"
        ),
        Column("fragmentation", "float", "Stranded of the free ones.", unit="share", nullable=True),
        Column("held_by_others", "float", "GPUs of pods that are not of this run.", "GPUs", nullable=True, added=True),
    ),
)
ROOM = Table(
    "room",
    "One row per moment and resource that the run's pods ask for: what nodes offer, who holds it, who waits for it.",
    ("resource", "at_s"),
    (
        Column("resource", "str", "As nodes and pods name it; `pods` are the places for pods."),
        Column("at_s", "float", "Seconds since the start, client's clock.", unit="s"),
        Column("capacity", "float", "On nodes that take pods, allocatable or still held; bytes, cores or pieces."),
        Column("allocated", "float", "Held by this run's pods."),
        Column("held_by_others", "float", "Held by all other pods."),
        Column("blocked", "float", "Share of the waiting pods that this resource alone keeps out.", unit="share"),
        Column("waiting", "int", "Pods that wait for a node and could fit on one.", unit="pods"),
    ),
)
GANGS = Table(
    "gangs",
    "One row per gang: whether and when it was complete.",
    ("index",),
    (
        INDEX_COLUMN,
        Column("name", "str", "Its name."),
        Column("pods", "int", "Pods that it needs.", unit="pods"),
        Column("scheduled", "int", "Maximum number of pods bound at the same time.", unit="pods"),
        Column("running_end", "int", "Pods bound at the end.", unit="pods"),
        Column("complete", "bool", "All pods were bound at the same time."),
        Column("first_s", "float", "First pod bound.", unit="s", nullable=True),
        Column("complete_s", "float", "First time with all pods bound.", unit="s", nullable=True),
        Column("held_gpu_s", "float", "GPU seconds held while it was not complete.", unit="GPU s"),
    ),
)
VALIDITY = Table(
    "validity",
    "One row per validity condition.",
    ("condition",),
    (
        Column("condition", "str", "What must hold."),
        Column("found", "float", "Measured value.", nullable=True),
        Column("allowed", "float", "Maximum (or minimum, if the condition says so).", nullable=True),
        Column("unit", "str", "Unit of both."),
        Column("holds", "bool", "It does."),
        Column("grave", "bool", "A failure makes the run invalid; otherwise it is a warning."),
        Column("reason", "str", "In words.", nullable=True),
    ),
)
COMPARISON = Table(
    "comparison",
    "One row per step and quantile: how side B differs from side A, with a run as the unit.",
    ("step", "quantile"),
    (
        _STEP,
        _CLOCK,
        Column("quantile", "float", "Which quantile of the step.", unit="share"),
        Column("a_s", "float", "Geometric mean over the runs of A.", unit="s", nullable=True),
        Column("b_s", "float", "The same of B.", unit="s", nullable=True),
        Column("ratio", "float", "A over B: above 1, B is faster.", nullable=True),
        Column("low", "float", "Low end of its interval.", nullable=True),
        Column("high", "float", "High end.", nullable=True),
        Column("level", "float", "Confidence.", unit="share"),
        Column("n", "int", "Pairs of runs that both have the quantile.", unit="pairs"),
        Column("a_never", "int", "Runs of A in which it was never reached.", unit="runs", nullable=True),
        Column("b_never", "int", "The same of B.", unit="runs", nullable=True),
        Column("adjusted_p_value", "float", "By Holm over all rows.", nullable=True),
        Column("verdict", "str", "FASTER (B), SLOWER, SAME or UNDECIDED."),
        Column("reason", "str", "Reason of an undecided verdict.", nullable=True),
    ),
)
CALLS = Table(
    "api_calls",
    "One row per verb and resource: how long API calls took, by the audit log, against the usual objective.",
    ("verb", "resource", "subresource"),
    (
        Column("verb", "str", "As in the audit log."),
        Column("resource", "str", "Plural name."),
        Column("subresource", "str", "Empty for none."),
        Column("requests", "int", "How many.", unit="requests"),
        Column("failed", "int", "Answers of 400 and above.", unit="requests"),
        Column("p50_s", "float", "Median of the seconds' medians, weighted.", unit="s"),
        Column("p99_s", "float", "p99 of the seconds' p99, weighted: an upper estimate.", unit="s"),
        Column("allowed_s", "float", "Objective for its p99.", unit="s"),
        Column("holds", "bool", "It does."),
    ),
)
SERVERS = Table(
    "components",
    "One row per component, measure and subject: what the control plane's own metrics say of the run.",
    ("component", "measure", "subject"),
    (
        Column("component", "str", "Whose metrics."),
        Column("measure", "str", "queue wait, etcd call, admission webhook, client limiter wait, work queue, …"),
        Column("subject", "str", "Priority level, operation, webhook or queue; empty for none."),
        Column("n", "int", "Calls, or refusals; null if not counted.", "calls", nullable=True),
        Column("mean_s", "float", "Mean time of a call.", unit="s", nullable=True),
        Column("p99_s", "float", "Highest upper bound of a sample's p99.", "s", nullable=True),
        Column("peak", "float", "Highest sampled level.", "objects", nullable=True),
    ),
)
STARTUP = Table(
    "pod_startup",
    "One row per phase of a pod's start, against the usual objective.",
    ("phase",),
    (
        Column("phase", "str", "create to schedule, schedule to run, pod startup."),
        Column("n", "int", "Pods that began it.", unit="pods"),
        Column("never", "int", "Of these, pods that never completed it.", unit="pods"),
        Column("p50_s", "float", "Median; null: not reached.", unit="s", nullable=True),
        Column("p90_s", "float", "90th percentile.", unit="s", nullable=True),
        Column("p99_s", "float", "99th percentile.", unit="s", nullable=True),
        Column("allowed_s", "float", "Objective for its p99; null for none.", unit="s", nullable=True),
        Column("holds", "bool", "It does; null without an objective.", nullable=True),
    ),
)
LEAGUE = Table(
    "league",
    "One row per scheduler: its results on one plan, over all of its runs, compared with the first.",
    ("side",),
    (
        Column("side", "str", "The scheduler."),
        Column("runs", "int", "Its runs.", unit="runs"),
        Column("invalid", "int", "Of these, invalid ones.", unit="runs"),
        Column("gangs", "int", "Gangs of all runs.", unit="gangs"),
        Column("complete", "int", "Gangs that became complete.", unit="gangs"),
        Column("deadlocked", "int", "Gangs that held GPUs at the end while another such gang did, too.", unit="gangs"),
        Column("held_gpu_s", "float", "GPU seconds held by gangs that were never complete.", unit="GPU s"),
        Column("stranded_gpus", "float", "Mean while pods waited; median of the runs.", unit="GPUs", nullable=True),
        Column("evicted", "int", "Pods evicted (preemptions).", unit="pods"),
        Column("p50_s", "float", "From due to scheduled, median of the runs' medians.", unit="s", nullable=True),
        Column("p95_s", "float", "The same at p95.", unit="s", nullable=True),
        Column("gang_p50_s", "float", "From a gang's first pod bound to its last.", unit="s", nullable=True),
        Column("gang_p95_s", "float", "The same at p95.", unit="s", nullable=True, added=True),
        Column("queue_p50_s", "float", "From accepted to released by a queue.", unit="s", nullable=True, added=True),
        Column("queue_p95_s", "float", "The same at p95.", unit="s", nullable=True, added=True),
        Column("unfairness", "float", "Share of GPUs in other queues than quotas say.", nullable=True, added=True),
        Column("rate_per_s", "float", "Sustained rate, low end; median of the runs.", unit="pods/s", nullable=True),
        Column("ratio", "float", "Median of the first over this one's: above 1, this one is faster.", nullable=True),
        Column("low", "float", "Low end of its 95 % interval.", nullable=True),
        Column("high", "float", "High end.", nullable=True),
        Column("verdict", "str", "FASTER, SLOWER, SAME or UNDECIDED; null for the first.", nullable=True),
        Column("reason", "str", "Why it is not decided.", nullable=True),
    ),
)
