"""Where the steady state begins: what a step drops before anything is computed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BATCH = 5
LARGEST_SHARE = 0.25
"""Of the requests after the users' first ones, at most so many are warm-up."""


def start(runtimes: Floats, users: int) -> int:
    """How many requests at the start of a step are warm-up?

    Each user's first request meets a service that is filling up, so as many requests as there are users go first;
    of the rest MSER-5 drops what makes the mean of the others less certain.

    Parameters
    ----------
    runtimes
        Of the requests in the order they were sent, in s; failures infinite.
    users
        Users of a closed loop; 0 for an open one.

    Returns
    -------
    int
        Requests to drop; at most the first users and a quarter of the others.

    Notes
    -----
    MSER works on logarithms: in a heavy tail single slow requests would otherwise move the cut. Failures count as the
    slowest success. The rule's own bound is the half; it is a quarter here, because the filling up is gone with the
    users' first requests, and so that a step knows beforehand how many it will keep. Does not show a drift that goes on
    to the end: then the cut lies at the quarter.
    Source: White, An effective truncation heuristic for bias reduction in simulation output (1997), batches of 5.

    Examples
    --------
    >>> start(np.array([9.0] * 20 + [1.0, 1.1] * 40), users=0)
    20
    """
    first = min(users, len(runtimes))
    rest = runtimes[first:]
    finite = rest[np.isfinite(rest)]
    if not len(finite):
        return first
    logs = np.log(np.maximum(np.minimum(rest, finite.max()), 1e-9))
    return first + _mser(logs)


def _mser(values: Floats) -> int:
    batches = len(values) // BATCH
    if batches < 4:
        return 0
    means = values[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    # Sums from each cut to the end, so that all cuts are judged at once.
    left = np.arange(batches, 0, -1)
    total, squares = np.cumsum(means[::-1])[::-1], np.cumsum((means**2)[::-1])[::-1]
    scores = (squares - total**2 / left) / left**2
    return int(np.argmin(scores[: int(batches * LARGEST_SHARE) + 1])) * BATCH
