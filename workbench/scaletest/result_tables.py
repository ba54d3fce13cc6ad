"""What follows from the raw tables: pods, milestones, steps, rates, limits, GPUs. Units and null rules as there."""

from __future__ import annotations

from workbench.tables import Column, Table

_INDEX = Column("index", "int", "Number of the workload in its run, from 0.")
_CLOCK = Column("clock", "str", "client: both ends by our clock; server: both by the cluster's; mixed: one each.")
_STEP = Column("step", "str", "Name of the step.")

PODS = Table(
    "pods",
    "One row per incarnation of a pod.",
    ("uid",),
    (
        _INDEX,
        Column("uid", "str", "Incarnation."),
        Column("name", "str", "Its name."),
        Column("attempt", "int", "1 for the first pods of the workload, more for those that replaced them."),
        Column("created_s", "float", "Seen first, client's clock.", unit="s", nullable=True),
        Column("scheduled_s", "float", "Seen bound to a node, client's clock.", unit="s", nullable=True),
        Column("running_s", "float", "Seen running.", unit="s", nullable=True),
        Column("ended_s", "float", "Seen succeeded, failed, evicted or deleted.", unit="s", nullable=True),
        Column("lost_s", "float", "The same of one that never succeeded: its work is not done.", "s", nullable=True),
        Column("server_created_s", "float", "Server's clock.", unit="s", nullable=True),
        Column("server_scheduled_s", "float", "Server's clock, the finest stamp there is.", unit="s", nullable=True),
        Column("server_running_s", "float", "Server's clock.", unit="s", nullable=True),
        Column("created_resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("scheduled_resolution_s", "float", "The same.", unit="s", nullable=True),
        Column("running_resolution_s", "float", "The same.", unit="s", nullable=True),
        Column("unschedulable", "bool", "The scheduler said once that no node fits."),
        Column("evicted", "bool", "It was evicted."),
        Column("gap", "bool", "One of its times was found after a watch had been away."),
        Column("created_gap", "bool", "This time of ours is an upper bound.", nullable=True),
        Column("scheduled_gap", "bool", "The same.", nullable=True),
        Column("running_gap", "bool", "The same.", nullable=True),
        Column("node", "str", "Where it was bound to.", nullable=True),
        Column("gpus", "float", "GPUs that it asked for.", unit="GPUs"),
    ),
)

MILESTONES = Table(
    "milestones",
    "One row per workload and milestone that it reached.",
    ("index", "milestone"),
    (
        _INDEX,
        Column("milestone", "str", "due, sent, acked, created, job, first pod, last pod, … running."),
        Column("client_s", "float", "Client's clock.", unit="s", nullable=True),
        Column("server_s", "float", "Server's clock.", unit="s", nullable=True),
        Column("resolution_s", "float", "Resolution of the server's time.", unit="s", nullable=True),
        Column("gap", "bool", "A watch was away: the client's time is an upper bound."),
    ),
)

STEPS = Table(
    "steps",
    "One row per workload, step and clock.",
    ("index", "step", "clock"),
    (
        _INDEX,
        _STEP,
        _CLOCK,
        Column("begin_s", "float", "When the step began, by its begin's clock.", unit="s"),
        Column("duration_s", "float", "How long it took; null when its end was never reached.", "s", nullable=True),
        Column("resolution_s", "float", "The true duration lies within so much of it.", unit="s"),
        Column("gap", "bool", "Its end was found after a watch had been away: an upper bound."),
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
        Column("high_s", "float", "High end; null: not bounded.", unit="s", nullable=True),
        Column("level", "float", "Confidence, within this run.", unit="share"),
        Column("n", "int", "Workloads that began the step.", unit="workloads"),
        Column("missing", "int", "Of these, workloads that never ended it.", unit="workloads"),
        Column("gaps", "int", "Of these, with an end that is an upper bound.", unit="workloads"),
        Column("mean_s", "float", "Mean of those that ended.", unit="s", nullable=True),
        Column("longest_s", "float", "Longest of those that ended.", unit="s", nullable=True),
        Column("resolution_s", "float", "Coarsest resolution among them.", unit="s"),
    ),
)

SHARES = Table(
    "shares",
    "One row per segment of the way from due to running: where the time goes, for all and for the slowest.",
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
        Column("acked", "int", "Workloads that the server had accepted.", unit="workloads"),
        Column("pods_due", "int", "Pods of the workloads that were accepted.", unit="pods"),
        Column("pods_created", "int", "Pods that were there.", unit="pods"),
        Column("pods_scheduled", "int", "Pods that were bound.", unit="pods"),
        Column("pods_running", "int", "Pods that ran.", unit="pods"),
        Column("pods_ended", "int", "Pods that were gone or done.", unit="pods"),
    ),
)

RAMP = Table(
    "ramp",
    "One row per step of the arrival process: what came in, what got through.",
    ("step",),
    (
        Column("step", "int", "Number of the step."),
        Column("begin_s", "float", "From here.", unit="s"),
        Column("end_s", "float", "To here.", unit="s"),
        Column("offered_per_s", "float", "Pods that were due, a second.", unit="pods/s"),
        Column("accepted_per_s", "float", "Pods of workloads that were accepted, a second.", unit="pods/s"),
        Column("completed_per_s", "float", "Pods that were scheduled, a second: slope.", unit="pods/s", nullable=True),
        Column("low_per_s", "float", "Low end of it.", unit="pods/s", nullable=True),
        Column("high_per_s", "float", "High end of it.", unit="pods/s", nullable=True),
        Column("backlog_slope_per_s", "float", "How fast the backlog grew.", unit="pods/s", nullable=True),
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
        Column("unit", "str", "What is counted: pods/s."),
        Column("low_per_s", "float", "Low end of the rate; null: not decided.", unit="pods/s", nullable=True),
        Column("high_per_s", "float", "High end; null: it was never reached.", unit="pods/s", nullable=True),
        Column("level", "float", "Confidence.", unit="share"),
        Column("simulated_nodes", "bool", "Pods were bound to nodes that exist in the API only."),
        Column("reason", "str", "What it rests on, or why it is not decided."),
    ),
)

LIMITS = Table(
    "limits",
    "One row per step that work waited for: at which rate it went on, and who held it.",
    ("step",),
    (
        _STEP,
        Column("kind", "str", "client limit: held to a set rate; no room: pods waited for GPUs; bottleneck: neither."),
        Column("rate_per_s", "float", "Its plateau.", unit="1/s"),
        Column("low_per_s", "float", "Low end of it.", unit="1/s"),
        Column("high_per_s", "float", "High end of it.", unit="1/s"),
        Column("counted", "str", "What is counted: pods, workloads or requests of a client."),
        Column("begin_s", "float", "Begin of the plateau.", unit="s"),
        Column("end_s", "float", "End of the plateau.", unit="s"),
        Column("backlog", "float", "Median of what waited for it meanwhile.", unit="objects"),
        Column("variation", "float", "Variation of the rate from second to second.", unit="share"),
        Column("client", "str", "Who was held, by the audit log.", nullable=True),
        Column("requests_per_s", "float", "Requests of that client meanwhile.", unit="1/s", nullable=True),
        Column("requests_low_per_s", "float", "Low end of it.", unit="1/s", nullable=True),
        Column("requests_high_per_s", "float", "High end of it.", unit="1/s", nullable=True),
        Column("configured_per_s", "float", "The client limit that was set, or is the default.", "1/s", nullable=True),
        Column("sentence", "str", "What was found, in words, with the evidence."),
    ),
)

GPUS = Table(
    "gpus",
    "One row per moment: how the GPUs were used.",
    ("at_s",),
    (
        Column("at_s", "float", "Seconds since the start, client's clock.", unit="s"),
        Column("capacity", "float", "GPUs of all ready nodes.", unit="GPUs"),
        Column("allocated", "float", "GPUs of bound pods.", unit="GPUs"),
        Column("waiting", "float", "GPUs of pods that were there and not bound.", unit="GPUs"),
        Column("in_partial_gangs", "float", "Allocated GPUs of gangs that were not complete.", unit="GPUs"),
        Column("stranded", "float", "Free GPUs on nodes with fewer free than the largest pod asks for.", unit="GPUs"),
        Column("fragmentation", "float", "Stranded of the free ones.", unit="share", nullable=True),
    ),
)

GANGS = Table(
    "gangs",
    "One row per gang: was it ever complete?",
    ("index",),
    (
        _INDEX,
        Column("name", "str", "Its name."),
        Column("pods", "int", "Pods that it needs.", unit="pods"),
        Column("scheduled", "int", "Pods that were bound, most at a time.", unit="pods"),
        Column("running_end", "int", "Pods bound at the end.", unit="pods"),
        Column("complete", "bool", "All of them were bound at a time."),
        Column("first_s", "float", "First pod bound.", unit="s", nullable=True),
        Column("complete_s", "float", "All of them were bound first.", unit="s", nullable=True),
        Column("held_gpu_s", "float", "GPU seconds held while it was not complete.", unit="GPU s"),
    ),
)

VALIDITY = Table(
    "validity",
    "One row per condition under which the figures mean what they say.",
    ("condition",),
    (
        Column("condition", "str", "What must hold."),
        Column("found", "float", "What was found.", nullable=True),
        Column("allowed", "float", "What may be, at most (or at least, as the condition says).", nullable=True),
        Column("unit", "str", "Unit of both."),
        Column("holds", "bool", "It does."),
        Column("grave", "bool", "If it does not, the run is invalid; else it is a warning."),
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
        Column("reason", "str", "Why it is undecided.", nullable=True),
    ),
)

RESULTS = (PODS, MILESTONES, STEPS, QUANTILES, SHARES, FLOW, RAMP, SUSTAINED, LIMITS, GPUS, GANGS, VALIDITY)
