"""What each step of a sweep is worth: what was kept, its quantiles, and whether the point is valid.

Pure: the raw tables `requests` and `steps` in, the tables `points` and `quantiles` out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import quantiles
from workbench.sizing import flow, samples, steady
from workbench.sizing.tables import METRICS, OUTCOMES, POINTS, QUANTILES

if TYPE_CHECKING:
    import polars as pl

FEWEST = 200
CLIENT_SHARE = 0.05
"""The client's own delays, as a share of the p95, from which on the point says more of the client."""
CLIENT_CPU = 0.95
ADMITTED_SHARE = 0.9
QS = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Limits:
    """From when on a point is not taken for what it says."""

    max_error_ratio: float = 0.01
    fewest: int = FEWEST


def kept(requests: pl.DataFrame, users: int | None) -> pl.DataFrame:
    """The requests of one step that count: neither warm-up nor tail, in the order they were sent."""
    main = requests.filter(~requests["tail"]).sort("request")
    runtimes = samples.values(main.to_dict(as_series=False), "runtime")[:, 0]
    return main[steady.start(runtimes, users or 0) :]


def points(
    requests: pl.DataFrame, steps: pl.DataFrame, *, limits: Limits | None = None, qs: Sequence[float] = QS
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What was kept of each step, and is it valid?

    Parameters
    ----------
    requests, steps
        The raw tables of a sweep.
    limits
        Largest error ratio and fewest samples of a valid point.
    qs
        The quantiles wanted.

    Returns
    -------
    points, quantiles
        The tables `points` and `quantiles` of `workbench.sizing.tables`. A metric that no request of a step has gets
        no rows.

    Notes
    -----
    A verdict is the first of: interrupted (too many failures), client-limited (the client's own delays exceed 5 % of
    the p95, or a core of it was full), server-limited (the server works on fewer than were in flight), few samples,
    valid. Saturation shows only between steps: see `saturated`.
    """
    limits = limits or Limits()
    groups = {key[0]: frame for key, frame in requests.partition_by("step", as_dict=True).items()}
    # Of each GPU count: another count is another deployment, with caches of its own.
    earlier: dict[int, pl.Series] = {}
    found = []
    for step in steps.sort("step").iter_rows(named=True):
        sent, gpus = groups.get(step["step"], requests.clear()), step["gpus"]
        found.append(judged(sent, step, limits, qs, earlier.get(gpus)))
        items = sent["item"].unique()
        earlier[gpus] = items if gpus not in earlier else earlier[gpus].append(items).unique()
    return together(found)


@dataclass(frozen=True)
class Judged:
    """A step on its own: its row of `points`, but for saturation, and its rows of `quantiles`."""

    point: dict[str, Any]
    quantiles: list[dict[str, Any]]


def judged(
    sent: pl.DataFrame, step: dict[str, Any], limits: Limits, qs: Sequence[float], earlier: pl.Series | None = None
) -> Judged:
    """What one step is worth: its requests, and its row of `steps`; `earlier`: items that earlier steps sent."""
    counted = kept(sent, step["users"])
    found = _quantiles(counted.to_dict(as_series=False), step, sorted({*qs, 0.95}))
    return Judged(_point(sent, counted, step, found, limits, earlier), [row for row in found if row["q"] in qs])


def together(steps: Sequence[Judged]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables of `points`, out of its steps: what shows only between steps is added."""
    import polars as pl

    found = [row for one in steps for row in one.quantiles]
    table = pl.DataFrame([one.point for one in steps], schema=POINTS.schema(), orient="row")
    return POINTS.check(_saturated(table, found)), QUANTILES.frame(found)


def load_of(step: dict[str, Any]) -> tuple[float, str]:
    """The load of a step and its unit: users, or arrivals a second."""
    return (float(step["users"]), "users") if step["loop"] == "closed" else (float(step["rate_per_s"]), "1/s")


def _point(
    sent: pl.DataFrame,
    counted: pl.DataFrame,
    step: dict[str, Any],
    found: list[dict[str, Any]],
    limits: Limits,
    earlier: pl.Series | None,
) -> dict[str, Any]:
    load, unit = load_of(step)
    outcomes = counted["outcome"].to_list()
    window = flow.window(sent, counted)
    n, n_ok = counted.height, outcomes.count("ok")
    columns = counted.to_dict(as_series=False)
    row = {
        "step": step["step"],
        "load": load,
        "load_unit": unit,
        "gpus": step["gpus"],
        "n_requests": sent.height,
        "n_warmup": int((~sent["tail"]).sum()) - n,
        "n_kept": n,
        "n_ok": n_ok,
        **{f"n_{kind}": outcomes.count(kind) for kind in OUTCOMES[1:]},
        "n_retries": int(counted["retries"].sum()),
        "error_ratio": (n - n_ok) / n if n else 0.0,
        **window,
        "send_lag_p99_s": float(np.quantile(counted["sent_s"] - counted["intended_s"], 0.99)) if n else 0.0,
        "loop_lag_p99_s": step["loop_lag_p99_s"],
        "client_cpu_share": step["client_cpu_share"],
        "clock_gap_s": _median(counted["runtime_s"] - counted["server_runtime_s"]),
        "repeated_prompts": _repeated(sent, counted, earlier),
        "block": quantiles.block_length(samples.values(columns, "runtime"), 0.95) if n else 1,
    }
    p95 = next((one["value_s"] for one in found if one["metric"] == "runtime" and one["q"] == 0.95), None)
    verdict, reason = _verdict(row, step, p95, limits)
    return {**row, "verdict": verdict, "reason": reason}


def _quantiles(columns: dict[str, list[Any]], step: dict[str, Any], qs: Sequence[float]) -> list[dict[str, Any]]:
    rows = []
    for metric in METRICS:
        values = samples.values(columns, metric)
        if not np.isfinite(values).any() and metric != "runtime":
            continue
        for q in qs:
            one = quantiles.quantile(values, q)
            failed = bool(np.isinf(one.value))
            limit = f"> timeout of {step['timeout_s']:g} s" if failed and step["timeout_s"] else None
            rows.append(
                {
                    "step": step["step"],
                    "load": load_of(step)[0],
                    "metric": metric,
                    "q": q,
                    "n": one.n,
                    "value_s": _finite(one.value),
                    "low_s": _finite(one.low),
                    "high_s": _finite(one.high),
                    "ok_only_s": _finite(one.ok_only),
                    "note": limit or ("lies among the failures" if failed else None),
                }
            )
    return rows


def _verdict(row: dict[str, Any], step: dict[str, Any], p95: float | None, limits: Limits) -> tuple[str, str | None]:
    if row["error_ratio"] > limits.max_error_ratio:
        kinds = ", ".join(f"{row[f'n_{kind}']} {kind}" for kind in OUTCOMES[1:] if row[f"n_{kind}"])
        return "interrupted", f"{row['error_ratio']:.1%} of {row['n_kept']} failed: {kinds}"
    limited = _client(row, step, p95)
    if limited:
        return "client-limited", limited
    high, asked = row["server_in_service_high"], row["in_flight"]
    if high is not None and high < asked and row["server_in_service"] < ADMITTED_SHARE * asked:
        n = round(row["server_in_service"])
        return "server-limited", f"server admits about {n}: the rest of {asked:.0f} in flight waits before its clock"
    if row["n_kept"] < limits.fewest:
        return "few samples", f"{row['n_kept']} kept, {limits.fewest} wanted"
    return "valid", None


def _client(row: dict[str, Any], step: dict[str, Any], p95: float | None) -> str | None:
    """Why the point says more of the client than of the service; null when it does not."""
    if p95:
        for name, lag in (("event loop", row["loop_lag_p99_s"]), ("sending", row["send_lag_p99_s"])):
            if lag is not None and lag > CLIENT_SHARE * p95:
                return f"the client's {name} was late by {lag * 1e3:.1f} ms (p99), over 5 % of the p95"
    if (row["client_cpu_share"] or 0) > CLIENT_CPU:
        return f"the client used {row['client_cpu_share']:.0%} of a core: use more processes"
    asked = row["load"]
    held = row["in_flight"] if step["loop"] == "closed" and not step["think_s"] else None
    if held is not None and row["n_kept"] and held < ADMITTED_SHARE * asked:
        return f"{held:.1f} of {asked:g} users were in flight"
    return None


def _saturated(table: pl.DataFrame, found: list[dict[str, Any]]) -> pl.DataFrame:
    """Without the server's clock: the rate stays and the latency grows, at two or more levels."""
    import polars as pl

    p50 = {one["step"]: one["value_s"] for one in found if one["metric"] == "runtime" and one["q"] == 0.5}
    flat: dict[int, float] = {}
    rows = [row for row in table.sort("load").iter_rows(named=True) if row["verdict"] in ("valid", "few samples")]
    for before, row in itertools.pairwise(rows):
        slower = (p50.get(row["step"]) or 0) > 1.1 * (p50.get(before["step"]) or np.inf)
        if slower and row["rate_per_s"] <= 1.05 * before["rate_per_s"] and row["load"] >= 1.2 * before["load"]:
            flat |= {before["step"]: row["rate_per_s"], row["step"]: row["rate_per_s"]}
    blind = table["server_in_service"].is_null()
    marked = pl.Series(table["step"].is_in(list(flat))) & blind & table["verdict"].is_in(["valid"])
    words = [
        f"saturated at {flat[step]:.3g} requests/s: queueing or an admission cap, cannot tell which" if mark else reason
        for step, mark, reason in zip(table["step"], marked, table["reason"], strict=True)
    ]
    return table.with_columns(
        pl.when(marked).then(pl.lit("saturated")).otherwise(pl.col("verdict")).alias("verdict"),
        pl.Series("reason", words, dtype=pl.String),
    )


def _repeated(sent: pl.DataFrame, counted: pl.DataFrame, earlier: pl.Series | None) -> float:
    first = sent.sort("request").unique("item", keep="first")["request"]
    again = ~counted["request"].is_in(first.implode())
    if earlier is not None:
        again |= counted["item"].is_in(earlier.implode())
    return float(again.sum() / counted.height) if counted.height else 0.0


def _median(values: pl.Series) -> float | None:
    middle = values.drop_nulls().median()
    return None if middle is None else float(middle)  # type: ignore[arg-type]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
