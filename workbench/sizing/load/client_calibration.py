"""How many requests this machine's client can drive, measured on a simulated service of known answer time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.report.display import table
from workbench.sizing.estimation.point_verdicts import MAX_CLIENT_DELAY_FRACTION
from workbench.sizing.load.sweep_report import GOOD_VERDICTS, SweepResult, SweepWatcher
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator
from workbench.sizing.tables import MIN_SAMPLES

DEFAULT_USERS = (250, 500, 1000, 2000, 4000)
MAX_SAMPLES = 100_000


@dataclass(frozen=True)
class ClientCalibration:
    """Levels that a client was given, with `late`, the part of the answer time that was added, and `drives`."""

    sweep: SweepResult
    answer_s: float
    levels: pl.DataFrame

    @property
    def max_users(self) -> int | None:
        """The highest level up to which all were driven; None if the lowest was not."""
        driven = self.levels.filter(pl.col("drives").cast(pl.Int8).cum_min() == 1)
        return None if driven.is_empty() else int(driven["users"][-1])

    @property
    def answer(self) -> str:
        """The finding in one sentence."""
        if self.levels.is_empty():
            return "nothing was measured"
        config = self.sweep.config
        client = config.workers or f"{config.processes or 1} client process{'es' if config.processes > 1 else ''}"
        measured = f"({config.protocol}, answers after {self.answer_s:g} s)"
        if self.max_users is None:
            return f"{client} cannot drive {self.levels['users'].to_list()[0]:,} users here {measured}"
        rate = self.levels.filter(users=self.max_users)["rate_per_s"][0]
        highest = self.max_users == self.levels["users"].max()
        more = ", the highest level that was tried" if highest else ""
        return f"{client} can drive {self.max_users:,} requests in flight at {rate:,.0f}/s here {measured}{more}"


def calibrate_client(
    *, answer_s: float = 1.0, users: list[int] | None = None, watcher: SweepWatcher | None = None, **settings: Any
) -> ClientCalibration:
    """Drive a simulated service on this machine, all of whose answers take `answer_s`, level by level.

    The service takes part of the machine, so a client can do as much here, or more. It does not show what the network
    and the service's machine can do.

    Parameters
    ----------
    settings
        Settings of a sweep: protocol, processes, workers, max_step_s.
    """
    service = Service(
        slots=100_000,
        prefill_tokens_per_s=1e9,
        decode_base_s=answer_s,
        decode_per_sequence_s=0.0,
        output_tokens=1,
        output_cv=0.0,
        calls=1,
    )
    samples = {"least_samples": MIN_SAMPLES, "most_samples": MAX_SAMPLES}
    # Users that begin together would be answered together: bursts, whose rate depends on where a step ends.
    settings |= {"users": users or list(DEFAULT_USERS), "ramp_s": answer_s, **samples}
    if settings.get("protocol") == "openai":
        settings |= {"model": "simulated"}
    with run_simulator(service) as url:
        sweep = run_sweep(url=url, simulated=True, watcher=watcher, **settings)
    return ClientCalibration(sweep, answer_s, _judge_levels(sweep, answer_s))


def _judge_levels(sweep: SweepResult, answer_s: float) -> pl.DataFrame:
    medians = sweep.quantiles.filter((pl.col("metric") == "runtime") & (pl.col("q") == 0.5))
    late = (pl.col("value_s") / answer_s - 1).alias("late")
    return (
        sweep.points.join(medians, on="step", how="left", maintain_order="left")
        # A level that lost a worker is measured again.
        .unique("load", keep="last", maintain_order=True)
        .sort("load")
        .select(
            "rate_per_s",
            "loop_lag_p99_s",
            "client_cpu_share",
            late,
            "verdict",
            "reason",
            users=pl.col("load").cast(pl.Int64),
            p50_s="value_s",
            drives=(pl.col("verdict").is_in(GOOD_VERDICTS) & (late <= MAX_CLIENT_DELAY_FRACTION)).fill_null(
                value=False
            ),
        )
    )


def format_calibration(calibration: ClientCalibration) -> str:
    """Text of a calibration for the terminal."""
    shown = calibration.levels.select(
        "users", "rate_per_s", "p50_s", "late", "loop_lag_p99_s", "client_cpu_share", "drives", "verdict"
    )
    reasons = calibration.levels.drop_nulls("reason")
    return "\n".join(
        [
            table(shown, caption="Levels", limit=40).text,
            *(f"{row['users']} users: {row['reason']}" for row in reasons.iter_rows(named=True)),
            calibration.answer,
        ]
    )
