"""Options of a run: which cluster and identity, how objects are submitted, limits and abort criteria."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workbench.core.errors import ConfigError
from workbench.core.formats import format_seconds
from workbench.core.schema import FiniteModel, validate_model
from workbench.kubernetes.client import Target, load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.safety.run_cleanup import CleanupResult
from workbench.scaletest.scenario.scenario_file import ScenarioLimits
from workbench.scaletest.scenario.workload_plan import Plan, summarize_plan
from workbench.scaletest.submission.object_creation import ApiSubmitter, CommandSubmitter, KubectlSubmitter, Submitter
from workbench.scaletest.submission.plan_submission import SubmissionOutcome

if TYPE_CHECKING:
    from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

SubmitMode = Literal["api", "kubectl", "command"]
# Programs in parallel: the default of Run:ai's submitter.
DEFAULT_PROCESSES = 8
_WIDTH = 24


@dataclass(frozen=True)
class ClusterAccess:
    """Access to a cluster.

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
    """Options of a run."""

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
    beside_others: bool = Field(
        default=False,
        description="Run although others use a part of the room. The report says so, and the run stays valid.",
    )
    cleanup: bool = Field(default=True, description="Delete the run's objects at the end.")

    def build_submitter(self, api: Connection, place: ClusterAccess) -> Submitter:
        """Build the submitter."""
        if self.submit_with == "kubectl":
            kubectl = None if place.own is None else place.own.kubectl
            return KubectlSubmitter(place.kubeconfig, place.context, self.kubectl or kubectl)
        if self.submit_with == "command":
            if not self.submit_command:
                raise ConfigError("which command?", where="--submit-command", do="like 'runai submit {name} -g {gpus}'")
            return CommandSubmitter(self.submit_command)
        return ApiSubmitter(api)


def build_options(**fields: Any) -> RunOptions:
    """Validated options."""
    return validate_model(RunOptions, fields, noun="set of run options", error_type=ConfigError)


def build_limits(plan: Plan, chosen: RunOptions) -> ScenarioLimits:
    """Limits of the submission: the scenario's, with its rate of objects as a rate of workloads."""
    limits, requests = plan.scenario.limits, max(1, summarize_plan(plan).requests)
    programs = chosen.submit_with != "api" or chosen.closed
    in_flight = min(limits.in_flight, chosen.processes) if programs else limits.in_flight
    return limits.model_copy(update={"rate_per_s": limits.rate_per_s * len(plan) / requests, "in_flight": in_flight})


@dataclass(frozen=True)
class RunResult:
    """Result of a test.

    `verdict`, `reasons`, `warnings`: Whether the figures mean what they say; why not; what to know although they do.
    `figures`: Quantiles of the main steps by name, in seconds; null where not reached or not known.
    `cleaned`: What became of the run's objects; null when they were left.
    """

    folder: Path
    run: str
    scheduler: str
    outcome: SubmissionOutcome
    drained: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    answer: str
    figures: dict[str, dict[str, float | None]]
    pods_seen: int
    cleaned: CleanupResult | None = None
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 130 interrupted."""
        return 130 if self.interrupted else 0 if self.verdict == "valid" else 1

    def to_dict(self) -> dict[str, Any]:
        """Document of `run --json`."""
        outcome = {name: getattr(self.outcome, name) for name in self.outcome.__slots__}
        return {
            "folder": str(self.folder),
            "run": self.run,
            "scheduler": self.scheduler,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            "answer": self.answer,
            "submission": outcome,
            "drained": self.drained,
            "pods_seen": self.pods_seen,
            "figures": self.figures,
            "cleanup": None if self.cleaned is None else self.cleaned.to_dict(),
        }


def print_result(result: RunResult) -> None:
    """Print the result: the submission, where the time went, the verdict, and the folder."""
    from workbench.console.terminal import print_text
    from workbench.scaletest.analysis.run_analysis import analyse_run
    from workbench.scaletest.analysis.terminal_report import print_run

    print_text("\n".join([*_format_submission(result), ""]))
    print_run(analyse_run(result.folder))
    print_text("\n".join(_format_aftermath(result)))


def _format_row(name: str, value: str) -> str:
    return f"{name:<{_WIDTH}}{value}"


def _format_submission(result: RunResult) -> list[str]:
    sent = result.outcome
    lines = [
        _format_row("run", f"{result.run}, scheduler {result.scheduler}"),
        _format_row(
            "workloads", f"{sent.acked:,} of {sent.planned:,} accepted, {sent.failed:,} failed, {sent.unsent:,} unsent"
        ),
    ]
    if sent.rate_per_s is not None:
        late = "" if sent.lateness_p99_s is None else f", sent {format_seconds(sent.lateness_p99_s)} late at p99"
        lines.append(_format_row("submission", f"{sent.rate_per_s:.4g}/s{late}"))
    if sent.throttled:
        lines.append(
            _format_row("throttled", f"{sent.throttled:,} times 429, {format_seconds(sent.throttled_s)} waited in all")
        )
    if sent.resumed:
        lines.append(_format_row("resumed", f"{sent.known:,} were there already, {sent.overdue:,} were overdue"))
    if sent.first_failure:
        lines.append(_format_row("first failure", sent.first_failure))
    lines.append(_format_row("ended", f"submission: {sent.reason}; pods: {result.drained}"))
    return lines


def _format_aftermath(result: RunResult) -> list[str]:
    lines = []
    if result.cleaned is not None and result.cleaned.complete:
        lines.append(f"cleaned up: {sum(result.cleaned.found.values()):,} objects were deleted, 0 are left")
    elif result.cleaned is not None:
        leftovers = ", ".join(f"{count:,} in {place}" for place, count in result.cleaned.left.items())
        lines.append(f"cleanup left objects: {leftovers}; repeat it: workbench scaletest cleanup {result.run}")
    else:
        lines.append(f"its objects are still in the cluster; clean up: workbench scaletest cleanup {result.run}")
    if not result.outcome.complete and result.outcome.unsent:
        lines.append(f"resume: workbench scaletest run --resume {result.folder}")
    return [*lines, f"folder: {result.folder}"]
