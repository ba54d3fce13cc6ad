"""How a test is run, beyond its scenario: kept in run.json, so that a resumed run goes on the same way."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.errors import ConfigError
from workbench.scaletest.connection import Connection
from workbench.scaletest.driving import Aborts, Bursts, Limits
from workbench.scaletest.driving.by_api import Api
from workbench.scaletest.driving.by_command import Command
from workbench.scaletest.driving.by_kubectl import Kubectl
from workbench.scaletest.driving.reply import Submitter
from workbench.scaletest.planning import Plan
from workbench.scaletest.planning.summary import summarize
from workbench.scaletest.running.place import Place

Mode = Literal["api", "kubectl", "command"]
# Programs that run at once: what upstream's submitter starts without being told.
PROCESSES = 8


class Options(BaseModel):
    """How a test is run.

    Attributes
    ----------
    submit_with
        How objects are made: POST, a kubectl each, or a command each.
    submit_command
        Program and arguments of the latter, with {name}, {namespace}, {gpus} and {file}.
    kubectl
        Program for the second; the local cluster's or the one on PATH without.
    closed
        Closed loop: bursts of `processes`, all awaited, then `delay_s`. Due times are not kept then.
    processes
        Size of a burst; also programs at once.
    settle_s
        Draining ends when nothing has changed for so long.
    cleanup
        Delete the run's objects at its end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    submit_with: Mode = "api"
    submit_command: tuple[str, ...] = ()
    kubectl: str | None = None
    closed: bool = False
    processes: int = Field(default=PROCESSES, ge=1, le=1024)
    delay_s: float = Field(default=0.0, ge=0, le=86_400)
    settle_s: float = Field(default=30.0, gt=0, le=3600)
    cleanup: bool = True

    def way(self, api: Connection, place: Place) -> Submitter:
        """The submitter.

        Raises
        ------
        ConfigError, MissingToolError
            Its program is not there, or its command cannot be.
        """
        if self.submit_with == "kubectl":
            own = None if place.own is None else place.own.kubectl
            return Kubectl(place.kubeconfig, place.context, self.kubectl or own)
        if self.submit_with == "command":
            if not self.submit_command:
                raise ConfigError("which command?", where="--submit-command", do="like 'runai submit {name} -g {gpus}'")
            return Command(self.submit_command)
        return Api(api)

    @property
    def bursts(self) -> Bursts | None:
        """The closed loop; null for an open one."""
        return Bursts(self.processes, self.delay_s) if self.closed else None


def options(**given: Any) -> Options:
    """Options, checked.

    Raises
    ------
    ConfigError
        One cannot be; all mistakes are told.
    """
    try:
        return Options(**given)
    except ValidationError as error:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ConfigError("options of a run that cannot be", found=found) from None


def limits(plan: Plan, chosen: Options) -> Limits:
    """The scenario's limits as the submitter keeps them: its rate is in objects, ours in workloads."""
    given, requests = plan.scenario.limits, max(1, summarize(plan).requests)
    programs = chosen.submit_with != "api" or chosen.closed
    return Limits(
        objects=given.objects,
        rate_per_s=given.rate_per_s * len(plan) / requests,
        in_flight=min(given.in_flight, chosen.processes) if programs else given.in_flight,
        pending_pods=given.pending_pods,
        wall_clock_s=given.wall_clock_s,
    )


def aborts(plan: Plan) -> Aborts:
    """The scenario's abort criteria as the submitter looks at them."""
    given = plan.scenario.abort
    return Aborts(
        no_success_s=given.no_create_s,
        p99_s=given.api_p99_s,
        p99_for_s=given.api_p99_for_s,
        errors_share=given.errors_share,
        errors_over_s=given.errors_window_s,
        watch_lag_s=given.watch_lag_s,
        foreign_pods=given.others_pending_growth,
        node_not_ready=given.node_not_ready,
    )
