"""What a run may ask of a cluster, and what ends it early: fields of a scenario, each with its default."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(_Strict):
    """What a run may ask of a cluster; a plan beyond them is refused before anything is sent.

    Attributes
    ----------
    objects
        Objects that are made (a gang: its pods and its PodGroup), in all.
    rate_per_s
        Objects made a second, at the arrival process's highest rate.
    in_flight
        Requests without an answer, at once.
    pending_pods
        Pods of the run that wait for a node: submission stops above it.
    wall_clock_s
        Time that the run may take, waiting for the pods included.
    """

    objects: int = Field(default=1000, ge=1, le=2_000_000)
    rate_per_s: float = Field(default=20.0, gt=0, le=10_000)
    in_flight: int = Field(default=64, ge=1, le=1024)
    pending_pods: int = Field(default=1000, ge=1, le=1_000_000)
    wall_clock_s: float = Field(default=1800.0, ge=10, le=7 * 86_400)


class Abort(_Strict):
    """When submission stops at once; null switches a criterion off. What was measured is kept, and told as invalid.

    Attributes
    ----------
    no_create_s
        Nothing could be made for so long, although something was due.
    api_p99_s, api_p99_for_s
        The 99th percentile of our requests' times is above the first for as long as the second.
    errors_share, errors_window_s
        More than this share of our requests ended with a status of 500 or above within the window.
    others_evicted
        A pod that is not the run's is evicted.
    others_pending_growth
        So many more pods of others wait for a node than at the start.
    node_not_ready
        A node that was ready is not.
    watch_lag_s
        Our own watch is so far behind.
    keep_sampling_s
        Time that is still measured after the stop.
    cleanup
        Delete the run's objects after that.
    """

    no_create_s: float | None = Field(default=30.0, gt=0, le=86_400)
    api_p99_s: float | None = Field(default=5.0, gt=0, le=600)
    api_p99_for_s: float = Field(default=30.0, gt=0, le=3600)
    errors_share: float | None = Field(default=0.05, gt=0, lt=1)
    errors_window_s: float = Field(default=60.0, gt=0, le=3600)
    others_evicted: bool = True
    others_pending_growth: int | None = Field(default=10, ge=1)
    node_not_ready: bool = True
    watch_lag_s: float | None = Field(default=5.0, gt=0, le=600)
    keep_sampling_s: float = Field(default=60.0, ge=0, le=3600)
    cleanup: bool = False
