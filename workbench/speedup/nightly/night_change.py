"""Is the last run slower than usual? The earlier runs' own spread is the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.stats import MARGIN
from workbench.stats.change_points import find_outliers

# A difference of which so much has a cause in the log is noise so much less often.
MIN_EXPLAINED, EXPLAINED_ALARMS = 2 / 3, 4.0
MIN_NIGHTS, MIN_FOR_OUTLIERS = 5, 8
SLOWER, FASTER, USUAL, UNKNOWN = "slower than usual", "faster than usual", "as usual", "not known"


@dataclass(frozen=True)
class NightChange:
    """The last wall time and the range in which a run like the earlier ones would lie, in s.

    `n`: Earlier runs that count; `n_outliers`: Those that do not, since they are far from their neighbours.
    `explained_high_s`: Upper end where the log shows what most of the difference comes from.
    """

    wall_s: float
    usual_s: float
    low_s: float
    high_s: float
    explained_high_s: float
    n: int
    n_outliers: int
    verdict: str

    @property
    def least_share(self) -> float:
        """The smallest slowdown that would be seen whatever its cause, as a share of the usual time."""
        return self.high_s / self.usual_s - 1

    def judge_explained(self, explained_share: float) -> NightChange:
        """The same, slower where so much of the difference has a cause in the log and the end for that is passed."""
        is_slower = explained_share >= MIN_EXPLAINED and self.wall_s > self.explained_high_s
        return replace(self, verdict=SLOWER) if is_slower and self.verdict == USUAL else self


def judge_night(wall_s: float, earlier_s: Sequence[float], *, nights_per_alarm: float) -> NightChange | None:
    """Compare a wall time with those of earlier runs; null with fewer than `MIN_NIGHTS` of them.

    `nights_per_alarm`: Nights in which a run that did not change is called slower once, on average.

    The range is the prediction interval of one more value, Student's t on logarithms, which holds for few runs; it is
    at least `MARGIN` wide to each side.

    >>> judge_night(150, [100, 103, 98, 101, 99, 104, 97], nights_per_alarm=200).verdict
    'slower than usual'
    """
    from scipy.special import stdtrit

    logs = np.log(np.asarray(earlier_s, dtype=float))
    # Of fewer runs, those that only seem far are too often left out (simulated in tests/speedup/nightly).
    is_far = find_outliers(logs, np.zeros(len(logs))) if len(logs) >= MIN_FOR_OUTLIERS else np.zeros(len(logs), bool)
    kept = logs[~is_far]
    if len(kept) < MIN_NIGHTS:
        return None
    n = len(kept)
    middle = float(kept.mean())
    error = float(kept.std(ddof=1)) * (1 + 1 / n) ** 0.5
    reach, explained = (
        max(float(stdtrit(n - 1, 1 - alarms / nights_per_alarm)) * error, float(np.log1p(MARGIN)))
        for alarms in (1.0, EXPLAINED_ALARMS)
    )
    low_s, high_s, explained_s = (float(np.exp(middle + part)) for part in (-reach, reach, explained))
    verdict = SLOWER if wall_s > high_s else FASTER if wall_s < low_s else USUAL
    return NightChange(wall_s, float(np.exp(middle)), low_s, high_s, explained_s, n, int(is_far.sum()), verdict)
