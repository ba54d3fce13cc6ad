"""A predictor whose times are a formula: what a prediction must say of it can be calculated. Simulated, not AISimulate.

A replica's requests run beside each other; one takes `input x prefill_s + output x decode_s x (1 + slower x users)`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.prediction.aisimulate import Deployment


@dataclass
class SimulatedPredictor:
    """Formulas in the place of `aisimulate.Predictor`; `faster` by GPU type, and `tensor` GPUs are as much faster."""

    prefill_s: float = 0.000002
    decode_s: float = 0.01
    slower: float = 0.05
    faster: tuple[tuple[str, float], ...] = (("h100_sxm", 1.0), ("h200_sxm", 1.25), ("l40s", 0.15))
    too_small: tuple[str, ...] = ()
    cache_tokens: int | None = 100_000

    def check_deployment(self, deployment: Deployment) -> None:
        if deployment.gpu not in dict(self.faster):
            raise ConfigError("no measured kernels of this GPU type", where="--gpu", found=deployment.gpu)

    def find_architecture(self, gpu: str) -> int:
        return 8 if gpu == "l40s" else 9

    def ttft_s(self, deployment: Deployment, input_tokens: int, prefill_factor: float = 1.0) -> float:
        return input_tokens * self.prefill_s * prefill_factor / dict(self.faster)[deployment.gpu] / deployment.tensor

    def itl_s(self, deployment: Deployment, users: float, decode_factor: float = 1.0) -> float:
        speed = dict(self.faster)[deployment.gpu] * deployment.tensor
        return self.decode_s * (1 + self.slower * users) * decode_factor / speed

    def run(
        self,
        deployment: Deployment,
        rows: Sequence[dict[str, Any]],
        *,
        block_tokens: int,
        concurrency: int | None,
        prefill_factor: float = 1.0,
        decode_factor: float = 1.0,
    ) -> dict[str, Any]:
        assert all(len(row["hash_ids"]) * block_tokens >= row["input_length"] for row in rows)
        if deployment.gpu in self.too_small and deployment.tensor == 1:
            raise InputError("no KV budget: the model does not fit", where=deployment.name)
        sessions: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            sessions.setdefault(row["session_id"], []).append(row)
        users = float(concurrency or 1)
        columns: dict[str, list[Any]] = {
            name: []
            for name in (
                "session",
                "turn",
                "arrival_ms",
                "first_token_ms",
                "ended_ms",
                "input_tokens",
                "output_tokens",
                "cached_tokens",
                "status",
            )
        }
        due = [(lines[0]["timestamp"] / 1000, name, 0) for name, lines in sessions.items()]
        heapq.heapify(due)
        while due:
            at_s, name, turn = heapq.heappop(due)
            row = sessions[name][turn]
            first_s = at_s + self.ttft_s(deployment, row["input_length"], prefill_factor)
            ended_s = first_s + (row["output_length"] - 1) * self.itl_s(deployment, users, decode_factor)
            times = (1000 * at_s, 1000 * first_s, 1000 * ended_s)
            line = (name, turn, *times, row["input_length"], row["output_length"], 0, "completed")
            for column, value in zip(columns.values(), line, strict=True):
                column.append(value)
            if turn + 1 < len(sessions[name]):
                heapq.heappush(due, (ended_s + sessions[name][turn + 1]["delay"] / 1000, name, turn + 1))
        return {"requests": columns, "cache_tokens": self.cache_tokens}
