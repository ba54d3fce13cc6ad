"""Settings of the simulator from a prediction: a service of which the GPU has a name."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.sizing.prediction.predicted_sweep import TimeFactors
from workbench.sizing.simulation.cluster_model import Service

if TYPE_CHECKING:
    from workbench.sizing.prediction.aisimulate import Deployment, Predictor

MAX_SLOTS = 256
"""Sequences at once that the servers allow by default."""
BATCHES = (1, 4, 16, 64, 128)
_BLOCK_TOKENS = 64


def fit_service(
    predictor: Predictor,
    deployment: Deployment,
    factors: TimeFactors,
    *,
    input_tokens: int = 1024,
    output_tokens: int = 256,
) -> Service:
    """The simulator's service that takes the times of a prediction; its other settings are the defaults.

    Prefill rate: of one prompt alone. Decode step: a straight line through the predicted steps of batches that were
    prefilled before, with that much context. Slots: what fits into the memory, at most 256. A GPU of it is a replica.
    """
    times = {"prefill_factor": factors.prefill, "decode_factor": factors.decode}

    def run_batch(batch: int, n_tokens: int) -> dict[str, list[Any]]:
        # One session first fills the cache with the prompt that the others then share.
        blocks = list(range(-(-input_tokens // _BLOCK_TOKENS)))
        rows = [
            {
                "session_id": str(place),
                "timestamp": 0 if not place else 1e6,
                "input_length": input_tokens,
                "output_length": n_tokens if place else 2,
                "hash_ids": blocks,
            }
            for place in range(batch + 1)
        ]
        found = predictor.run(deployment, rows, block_tokens=_BLOCK_TOKENS, concurrency=None, **times)
        columns: dict[str, list[Any]] = found["requests"]
        return columns

    alone = run_batch(0, 2)
    prefill_s = (alone["first_token_ms"][0] - alone["arrival_ms"][0]) / 1000
    slots = min(MAX_SLOTS, (predictor.cache_tokens or 0) // (input_tokens + output_tokens)) or 1
    steps = []
    for batch in itertools.takewhile(lambda batch: batch <= slots, BATCHES):
        found = run_batch(batch, output_tokens)
        gaps = [
            (ended - first) / (tokens - 1)
            for name, first, ended, tokens in zip(
                found["session"], found["first_token_ms"], found["ended_ms"], found["output_tokens"], strict=True
            )
            if name != "0"
        ]
        steps.append((batch, statistics.fmean(gaps) / 1000))
    per_sequence_s, base_s = 0.0, steps[0][1]
    if len(steps) > 1:
        batches, times_s = zip(*steps, strict=True)
        per_sequence_s, base_s = np.polyfit(np.array(batches), np.array(times_s), 1).tolist()
    return Service(
        slots=slots,
        prefill_tokens_per_s=input_tokens / prefill_s,
        decode_base_s=max(base_s, 1e-6),
        decode_per_sequence_s=max(per_sequence_s, 0.0),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        calls=1,
        cache_tokens=predictor.cache_tokens or 0,
    )
