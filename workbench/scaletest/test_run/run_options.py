"""Options of a run: which cluster and identity, how objects are submitted, limits and abort criteria."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.core.errors import ConfigError
from workbench.core.schema import FiniteModel, validate_model
from workbench.scaletest.cluster_api.connection import Connection, Target, load_target
from workbench.scaletest.scenario import Plan
from workbench.scaletest.scenario.plan_summary import summarize_plan
from workbench.scaletest.submission import AbortLimits, Bursts, SubmissionLimits
from workbench.scaletest.submission.command_submitters import CommandSubmitter, KubectlSubmitter
from workbench.scaletest.submission.object_creation import ApiSubmitter, Submitter

if TYPE_CHECKING:
    from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster


SubmitMode = Literal["api", "kubectl", "command"]
# Programs in parallel: the default of Run:ai's submitter.
DEFAULT_PROCESSES = 8


@dataclass(frozen=True)
class ClusterAccess:
    """A cluster, by what gives access to it.

    `own`: The local cluster that it is; null for any other.
    """

    kubeconfig: Path | None
    context: str
    own: LocalCluster | None = None

    @property
    def target(self) -> Target:
        """Server and measuring identity."""
        return load_target(self.kubeconfig, self.context)

    @property
    def admin(self) -> Target | None:
        """The administrator of a local cluster of ours, who makes what a test needs; null for any other cluster."""
        return None if self.own is None else load_target(self.own.kubeconfig, self.own.context)


def find_cluster_access(
    cluster: str | None = None, kubeconfig: str | Path | None = None, context: str | None = None
) -> ClusterAccess:
    """Find a cluster: a local one by its name, any other by context and kubeconfig."""
    if cluster is not None:
        if context is not None or kubeconfig is not None:
            raise ConfigError(
                "several clusters given", where="--cluster, --context, --kubeconfig", do="give one of them"
            )
        from workbench.scaletest.local_cluster.cluster_lifecycle import find_cluster

        local_cluster = find_cluster(cluster)
        return ClusterAccess(local_cluster.measure_kubeconfig, local_cluster.measure_context, local_cluster)
    if context is None and kubeconfig is None:
        raise ConfigError(
            "which cluster?",
            where="--cluster or --context",
            do="start one with workbench scaletest cluster up and add --cluster local; there is no default",
        )
    file = None if kubeconfig is None else Path(kubeconfig)
    return ClusterAccess(file, load_target(file, context).context)


class RunOptions(FiniteModel):
    """How a test is run."""

    submit_with: SubmitMode = Field(
        default="api", description="api (POST), kubectl, or command (with --submit-command)."
    )
    submit_command: tuple[str, ...] = Field(
        default=(),
        description="Such as 'runai submit {name} -g {gpus}'; also {namespace} and {file}. No shell sees it.",
    )
    kubectl: str | None = Field(
        default=None, description="The kubectl; by default the local cluster's, or the one on PATH."
    )
    closed: bool = Field(
        default=False,
        description="Closed loop: bursts of --processes, each awaited, then --delay; due times are not kept.",
    )
    processes: int = Field(
        default=DEFAULT_PROCESSES, ge=1, le=1024, description="Size of a burst; programs in parallel."
    )
    delay_s: float = Field(default=0.0, ge=0, le=86_400, description="Pause after a burst, in seconds.")
    settle_s: float = Field(
        default=30.0, gt=0, le=3600, description="The run ends when nothing has changed for this many seconds."
    )
    cleanup: bool = Field(default=True, description="Delete the run's objects at the end.")

    def build_submitter(self, api: Connection, place: ClusterAccess) -> Submitter:
        """The submitter."""
        if self.submit_with == "kubectl":
            kubectl = None if place.own is None else place.own.kubectl
            return KubectlSubmitter(place.kubeconfig, place.context, self.kubectl or kubectl)
        if self.submit_with == "command":
            if not self.submit_command:
                raise ConfigError("which command?", where="--submit-command", do="like 'runai submit {name} -g {gpus}'")
            return CommandSubmitter(self.submit_command)
        return ApiSubmitter(api)

    @property
    def bursts(self) -> Bursts | None:
        """The closed loop; null for an open one."""
        return Bursts(self.processes, self.delay_s) if self.closed else None


def build_options(**fields: Any) -> RunOptions:
    """Validated options."""
    return validate_model(RunOptions, fields, noun="set of run options", error_type=ConfigError)


def build_limits(plan: Plan, chosen: RunOptions) -> SubmissionLimits:
    """The scenario's limits as the submitter keeps them: its rate is in objects, ours in workloads."""
    limits, requests = plan.scenario.limits, max(1, summarize_plan(plan).requests)
    programs = chosen.submit_with != "api" or chosen.closed
    return SubmissionLimits(
        objects=limits.objects,
        rate_per_s=limits.rate_per_s * len(plan) / requests,
        in_flight=min(limits.in_flight, chosen.processes) if programs else limits.in_flight,
        pending_pods=limits.pending_pods,
        wall_clock_s=limits.wall_clock_s,
    )


def build_abort_limits(plan: Plan) -> AbortLimits:
    """The scenario's abort criteria as the submitter looks at them."""
    criteria = plan.scenario.abort
    return AbortLimits(
        no_success_s=criteria.no_create_s,
        p99_s=criteria.api_p99_s,
        p99_for_s=criteria.api_p99_for_s,
        errors_share=criteria.errors_share,
        errors_over_s=criteria.errors_window_s,
        watch_lag_s=criteria.watch_lag_s,
        foreign_pods=criteria.others_pending_growth,
        # A node that comes back is not ready at first.
        node_not_ready=criteria.node_not_ready and not plan.scenario.node_changes,
    )
