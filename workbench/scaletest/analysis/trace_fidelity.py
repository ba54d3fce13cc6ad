"""How true a replayed trace is: GPU-seconds held against those of the trace, and what the control plane adds."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

MAX_EXCESS_FRACTION = 0.05


@dataclass(frozen=True)
class TraceFidelity:
    """Pods of a replay that ended, beside the trace; null where none did.

    `n_pods`, `n_ended`: Pods of the plan, and those that were seen from their node to their end.
    `excess_s`: Median time that a pod held its GPUs beyond its lifetime, in seconds of the test.
    `trace_gpu_s`, `held_gpu_s`: Of the pods that ended, in seconds of the trace: as planned, and from their
    scheduling to their end.
    """

    speed: float
    n_pods: int
    n_ended: int
    median_run_s: float | None
    excess_s: float | None
    trace_gpu_s: float
    held_gpu_s: float

    @property
    def excess_fraction(self) -> float | None:
        """The excess as a share of the median lifetime."""
        if self.excess_s is None or not self.median_run_s:
            return None
        return max(0.0, self.excess_s) / self.median_run_s

    @property
    def sentence(self) -> str:
        """What the replay held of the trace."""
        if self.excess_s is None:
            return f"replay of a trace, {self.speed:g} seconds in one: no pod of {self.n_pods:,} ended"
        share_text = (
            f"{100 * self.held_gpu_s / self.trace_gpu_s:.4g} % of the trace's"
            if self.trace_gpu_s
            else "the trace has none"
        )
        return (
            f"replay of a trace, {self.speed:g} seconds in one: {self.n_ended:,} of {self.n_pods:,} pods ended "
            f"and held {self.held_gpu_s:,.0f} GPU-seconds of its time, {share_text}; "
            f"a pod holds its GPUs {1000 * self.excess_s:.3g} ms longer than it runs (median)"
        )

    @property
    def reason(self) -> str:
        """Why the replay is no replay: time was compressed too far."""
        share = self.excess_fraction or 0.0
        slower = self.speed * MAX_EXCESS_FRACTION / share if share else self.speed
        return (
            f"time was compressed too far: the control plane adds {100 * share:.2g} % to the median job "
            f"(limit {100 * MAX_EXCESS_FRACTION:g} %); use a speed of at most {slower:.2g}"
        )


def measure_trace_fidelity(schedule: pl.DataFrame, pods: pl.DataFrame, speed: float) -> TraceFidelity:
    """Compare what the pods of a replay held with what the trace says.

    Evicted pods are left out: they end before their time. Does not show whether pods wait as they did in the trace,
    which is what a scheduler is tested for.
    """
    ended = (
        pods.filter(pl.col("scheduled_s").is_not_null() & pl.col("ended_s").is_not_null() & ~pl.col("evicted"))
        .join(schedule.select("index", "lifetime_s"), on="index")
        .drop_nulls("lifetime_s")
        .with_columns(held_s=pl.col("ended_s") - pl.col("scheduled_s"))
    )
    gpus = pl.col("gpus")
    trace_s, held_s = ended.select(
        (gpus * pl.col("lifetime_s")).sum(), (gpus * pl.col("held_s")).sum().alias("held")
    ).row(0)
    excess = ended.select((pl.col("held_s") - pl.col("lifetime_s")).median()).item()
    return TraceFidelity(
        speed=speed,
        n_pods=int(schedule["pods"].sum()),
        n_ended=ended.height,
        median_run_s=schedule.select(pl.col("lifetime_s").median()).item(),
        excess_s=excess,
        trace_gpu_s=speed * trace_s,
        held_gpu_s=speed * held_s,
    )
