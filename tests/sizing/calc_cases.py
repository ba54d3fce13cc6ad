"""Recorded jobs drawn at random, well formed and not, for the calculator and the toolkit that it is held against."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

NAME = "calc_runner_output.json"


def draw(seed: int, folder: Path) -> dict[str, Any]:
    """Write a case's jobs below `folder`; give its goal: targets in s, users, GPUs."""
    rng = random.Random(seed)
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        job = folder / "online" / f"job_{number + 1}"
        job.mkdir(parents=True)
        text = json.dumps(_document(rng), indent=1)
        if rng.random() < 0.02:
            text = text[: len(text) // 2]
        if rng.random() < 0.98 or not number:
            (job / NAME).write_text(text)
        # The newest is decided by the time of the folder, not by its name.
        moment = 1_700_000_000 + rng.choice((number, -number)) * 60
        os.utime(job, (moment, moment))
    runtime = rng.choice((0, 10, 20, round(rng.uniform(0.5, 60), 2)))
    llm = rng.choice((0, 3, round(rng.uniform(0.1, 20), 2)))
    return {
        "target_workflow_runtime": runtime or (0 if llm else 10),
        "target_llm_latency": llm,
        "target_users": rng.choice((1, 100, rng.randint(1, 5000))),
        "test_gpu_count": rng.choice((1, 8, rng.randint(1, 64))),
    }


def _document(rng: random.Random) -> dict[str, Any]:
    levels = _levels(rng)
    runtime, llm = _curve(rng, levels), _curve(rng, levels, scale=rng.choice((0.2, 0.33, 1.0)))
    no_calls = rng.random() < 0.06
    data = {}
    for level in levels:
        metrics: dict[str, Any] = {
            "alerts": {"workflow_interrupted": rng.random() < rng.choice((0.0, 0.0, 0.3))},
            "llm_latency_p95": 0.0 if no_calls or rng.random() < 0.02 else llm[level],
            "workflow_runtime_p95": 0.0 if rng.random() < 0.02 else runtime[level],
            "total_runtime": round(2 * runtime[level], 6),
            "per_item_metrics": _items(rng, level, llm[level], runtime[level]),
        }
        data[str(level)] = _disturbed(rng, metrics)
    document = {"gpu_estimates": {}, "fit_results": {}, "calc_data": data}
    if rng.random() < 0.1:
        document["surprise"] = {"of": [1, 2]}
    return document


def _levels(rng: random.Random) -> list[int]:
    kind = rng.choice(("up to", "powers", "any", "few", "shuffled", "large"))
    if kind == "up to":
        return list(range(1, rng.randint(2, 14)))
    if kind == "powers":
        return [2**power for power in range(rng.randint(1, 11))]
    if kind == "few":
        return rng.sample(range(1, 9), rng.randint(0, 5))
    if kind == "large":
        return sorted(rng.sample(range(1, 20_000), rng.randint(2, 12)))
    levels = sorted(rng.sample(range(1, 129), rng.randint(2, 16)))
    if kind == "shuffled":
        rng.shuffle(levels)
    return levels


def _curve(rng: random.Random, levels: list[int], scale: float = 1.0) -> dict[int, float]:
    """p95 by level: a line, flat, falling, with a knee, noise, outliers or ties."""
    intercept = round(rng.uniform(0.1, 8), 3)
    slope = rng.choice((0.0, 0.5, 0.6, -0.2, round(rng.uniform(0, 2), 4), round(rng.uniform(-1, 0), 3)))
    knee = rng.choice((None, None, rng.choice(levels or [4])))
    noise = rng.choice((0.0, 0.0, 0.02, 0.1, 0.5))
    digits = rng.choice((1, 3, 6, 15))
    values = {}
    for level in levels:
        value = intercept + slope * level + (2 * slope * max(0, level - knee) if knee else 0)
        value *= scale * rng.lognormvariate(0, noise)
        if rng.random() < rng.choice((0.0, 0.0, 0.1)):
            value *= rng.choice((0.1, 3.0, 10.0))
        values[level] = round(value, digits)
    return values


def _items(rng: random.Random, level: int, llm: float, runtime: float) -> dict[str, Any]:
    count = rng.choice((0, 1, min(level, 5)))
    ids = [str(number) if rng.random() < 0.8 else f"{number}_rep1" for number in range(count)]
    return {
        name: {"llm_latency": llm * rng.uniform(0.5, 1.0), "workflow_runtime": runtime * rng.uniform(0.5, 1.0)}
        for name in ids
    }


def _disturbed(rng: random.Random, metrics: dict[str, Any]) -> dict[str, Any]:
    """The level as the file has it; now and then with what a file should not have."""
    level: dict[str, Any] = {"gpu_estimates": {}, "alerts": {}, "sizing_metrics": metrics}
    if rng.random() > 0.06:
        return level
    name = rng.choice(("llm_latency_p95", "workflow_runtime_p95", "total_runtime", "alerts", "per_item_metrics"))
    kind = rng.choice(("gone", "null", "text", "flag", "word", "unknown", "no metrics", "list", "yes"))
    if kind == "gone":
        del metrics[name]
    elif kind == "unknown":
        metrics["more"] = 1
    elif kind == "no metrics":
        del level["sizing_metrics"]
    elif kind == "yes":
        metrics["alerts"] = {"workflow_interrupted": rng.choice(("yes", "off", 1, 0))}
    elif kind == "text" and isinstance(metrics[name], float):
        metrics[name] = f" {metrics[name]} "
    else:
        metrics[name] = {"null": None, "flag": True, "word": "fast", "list": [1.0]}.get(kind)
    return level
