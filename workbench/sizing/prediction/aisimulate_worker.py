"""Runs AISimulate's predictions in a process of its own, with AISimulate's packages: this file imports none of ours.

Started as `python -S -E aisimulate_worker.py FOLDER`, with the folder of the packages. Each line of stdin is a request
(JSON: `config` as AISimulate's prediction file, `prefill_speed` and `decode_speed` as factors on the speed of its
kernels); each gets one line of stdout: columns of the requests, or `error`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

COLUMNS = {
    "session": "session_id",
    "turn": "turn_index",
    "arrival_ms": "arrival_time_ms",
    "first_token_ms": "first_token_ms",
    "ended_ms": "terminal_time_ms",
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "cached_tokens": "reused_input_tokens",
    "status": "terminal_status",
}


def main(folder: str) -> None:
    """Answer requests until stdin ends."""
    sys.path.insert(0, folder)
    # What the packages print must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = predict(**json.loads(line))
        except Exception as error:  # noqa: BLE001 - every failure is an answer
            answer = {"error": str(error)[:4000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def predict(config: dict[str, Any], prefill_speed: float, decode_speed: float) -> dict[str, Any]:
    """Columns of the predicted requests, and the room for tokens in a worker's memory."""
    from aisimulate import EngineReplayRunnerFactory, ReplayOutputRequirements, _runtime  # type: ignore[import-not-found]
    from aisimulate.config import CorePredictionConfig  # type: ignore[import-not-found]
    from aisimulate.predict import run_prediction  # type: ignore[import-not-found]

    class ScaledRuntime:
        """The runtime, its kernels faster or slower: its own factors, which its configuration file does not have."""

        def run_replay_json(self, text: str) -> str:
            document = json.loads(text)
            # decode_speedup_ratio comes on top of the other.
            speeds = {"speedup_ratio": prefill_speed, "decode_speedup_ratio": decode_speed / prefill_speed}
            document.get("spec", document)["engine"]["rank"].update(speeds)
            return str(_runtime.run_replay_json(json.dumps(document)))

    is_scaled = (prefill_speed, decode_speed) != (1.0, 1.0)
    native = run_prediction(
        CorePredictionConfig.model_validate(config),
        stack="engine",
        runner_factory=EngineReplayRunnerFactory(runtime=ScaledRuntime() if is_scaled else None),
        output_requirements=ReplayOutputRequirements(
            include_raw_report=True,
            capture_per_request=True,
            capture_memory_diagnostics=True,
            capture_performance_diagnostics=False,
        ),
    ).native
    memory: dict[str, Any] = next(iter((native.get("memory_diagnostics") or {}).values()), {})
    return {
        "requests": {name: [row[key] for row in native["per_request"]] for name, key in COLUMNS.items()},
        "cache_tokens": memory.get("total_kv_size_tokens"),
    }


if __name__ == "__main__":
    main(sys.argv[1])
