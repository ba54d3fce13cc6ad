"""How much was in flight and how fast it went, while the kept requests were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
PARTS = 10


def window(sent: pl.DataFrame, counted: pl.DataFrame) -> dict[str, Any]:
    """Requests in flight and in service on average, ended and tokens a second.

    Parameters
    ----------
    sent, counted
        All requests of a step; of these, the kept.

    Returns
    -------
    dict
        `in_flight` by the client, `rate_per_s`, `server_in_service` with its 90 % interval (null unless every success
        has the server's own runtime), `tokens_per_s` (null where tokens are unknown).

    Notes
    -----
    The window is from the first to the last kept sending, so that neither filling nor draining counts. What the
    server works on is its rate times its own runtime (Little's law), taken here as the time that requests overlap
    the window; they are laid at their ends, because only the length of the server's clock is used. The interval is
    that of t over ten parts of the window.
    """
    nothing = {"in_flight": 0.0, "rate_per_s": 0.0, "tokens_per_s": None, **_in_service(None, None, None, 0, 0)}
    if counted.height < 2:
        return nothing
    begin, end = float(counted["sent_s"].min()), float(counted["sent_s"].max())  # type: ignore[arg-type]
    if end <= begin:
        return nothing
    starts, ends = sent["sent_s"].to_numpy(), sent["ended_s"].to_numpy()
    within = (ends >= begin) & (ends < end)
    tokens = sent["output_tokens"].to_numpy()[within] if sent["output_tokens"].null_count() < sent.height else None
    return {
        "in_flight": float(_overlap(starts, ends, begin, end)),
        "rate_per_s": float(within.sum() / (end - begin)),
        "tokens_per_s": None if tokens is None else float(np.nansum(tokens) / (end - begin)),
        **_in_service(sent, starts, ends, begin, end),
    }


def _in_service(
    sent: pl.DataFrame | None, starts: Floats | None, ends: Floats | None, begin: float, end: float
) -> dict[str, float | None]:
    names = ("server_in_service", "server_in_service_low", "server_in_service_high")
    if sent is None or starts is None or ends is None:
        return dict.fromkeys(names)
    ok = sent["outcome"] == "ok"
    if not ok.any() or sent.filter(ok)["server_runtime_s"].null_count():
        return dict.fromkeys(names)
    from scipy.special import stdtrit

    # A failed request kept the server busy for a time that nobody knows: all of it is the cautious reading.
    spans = np.where(ok.to_numpy(), sent["server_runtime_s"].fill_null(0).to_numpy(), ends - starts)
    edges = np.linspace(begin, end, PARTS + 1)
    parts = np.array([_overlap(ends - spans, ends, *edges[i : i + 2]) for i in range(PARTS)])
    half = float(stdtrit(PARTS - 1, 0.95) * parts.std(ddof=1) / np.sqrt(PARTS))
    mean = float(parts.mean())
    return dict(zip(names, (mean, mean - half, mean + half), strict=True))


def _overlap(starts: Floats, ends: Floats, begin: float, end: float) -> float:
    """How many spans cover a moment of the window, on average."""
    return float(np.maximum(0.0, np.minimum(ends, end) - np.maximum(starts, begin)).sum() / (end - begin))
