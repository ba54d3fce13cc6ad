"""Run by the toolkit's own Python: its calculator over many folders, as JSON on stdout. Imports nothing of ours.

A crash is told by its message, and then what the calculator had found before it, metric by metric.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    logging.disable(logging.CRITICAL)
    json.dump([one(case) for case in json.loads(Path(sys.argv[1]).read_text())], sys.stdout)


def one(case: dict[str, Any]) -> dict[str, Any]:
    from nat.plugins.profiler.calc.calc_runner import CalcRunner
    from nat.plugins.profiler.calc.data_models import CalcRunnerConfig

    goal = case["goal"]
    config = CalcRunnerConfig(
        offline_mode=True,
        plot_data=False,
        output_dir=Path(case["folder"]),
        target_llm_latency_p95=goal["target_llm_latency"],
        target_workflow_runtime_p95=goal["target_workflow_runtime"],
        target_users=goal["target_users"],
        test_gpu_count=goal["test_gpu_count"],
    )
    runner = CalcRunner(config)
    try:
        return {"output": json.loads(asyncio.run(runner.run()).model_dump_json())}
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the toolkit's command
        return {"crash": f"{type(error).__name__}: {error}"[:300], **before(runner, goal)}


def before(runner: Any, goal: dict[str, Any]) -> dict[str, Any]:
    from nat.plugins.profiler.calc.calculations import calc_gpu_estimate_based_on_slope

    fits = {"llm_latency": runner.linear_analyzer.llm_latency_fit, "wf_runtime": runner.linear_analyzer.wf_runtime_fit}
    targets = {"llm_latency": goal["target_llm_latency"], "wf_runtime": goal["target_workflow_runtime"]}
    estimates: dict[str, float | None] = {}
    for name, fit in fits.items():
        estimates[name] = None
        if fit is not None and targets[name] > 0:
            with contextlib.suppress(ValueError):
                estimates[name] = calc_gpu_estimate_based_on_slope(
                    targets[name], goal["target_users"], goal["test_gpu_count"], fit.slope, fit.intercept
                )
    return {
        "fits": {name: fit and json.loads(fit.model_dump_json()) for name, fit in fits.items()},
        "estimates": estimates,
        "rough": {str(n): json.loads(e.model_dump_json()) for n, e in runner.gpu_estimates_per_concurrency.items()},
        "alerts": {str(n): json.loads(a.model_dump_json()) for n, a in runner.alerts_per_concurrency.items()},
    }


if __name__ == "__main__":
    main()
