"""Make the sample trace anew: 500 GPU jobs of eight hours, drawn from a seed; no cluster ever ran them.

python data/samples/scaletest/traces/make.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

N_JOBS, HOURS = 500, 8.0
# GPUs of each pod, pods, and the share of such jobs: most have one GPU, as in the published traces.
SHAPES = [(1, 1, 0.70), (2, 1, 0.12), (4, 1, 0.10), (8, 1, 0.05), (8, 2, 0.03)]


def main() -> None:
    """Write jobs.csv beside this script."""
    random = np.random.default_rng(22)
    # More of them come in the middle of the day.
    submit_s = np.sort(random.beta(2.0, 2.0, N_JOBS)) * HOURS * 3600
    run_s = np.clip(random.lognormal(np.log(900.0), 1.0, N_JOBS), 120.0, 4 * 3600.0)
    shape = random.choice(len(SHAPES), N_JOBS, p=[share for _, _, share in SHAPES])
    made = pl.DataFrame(
        {
            "submit_s": submit_s.round(0),
            "run_s": run_s.round(0),
            "gpus_per_pod": [SHAPES[at][0] for at in shape],
            "pods": [SHAPES[at][1] for at in shape],
        }
    )
    made.write_csv(Path(__file__).parent / "jobs.csv")


if __name__ == "__main__":
    main()
