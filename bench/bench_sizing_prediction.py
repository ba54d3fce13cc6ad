"""Does a measured anchor correct a prediction? Services of known truth: AISimulate with other kernels than it believes.

    python -m bench.bench_sizing_prediction [--first 0] [--worlds 10] [--alike] [--out FOUND.jsonl]

A world is a copy of AISimulate's tables in which kernels take other times: as far off, shared by both GPU types and by
type, as the services that were measured on GPUs (`published_errors.json`). There, three levels are measured on one GPU
type, and the largest load on the other is the truth. The prediction has the tables as they are, and the three levels.
Scored: whether the predicted upper end is enough, how many times the true number it is, and whether the interval
without an anchor covers the truth. With `--alike` the kernels are off alike on both types, and the interval is the
scatter of the levels alone: what is known if GPU types do not differ, as of a sweep on the same type.
No timing is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench import shape
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.prediction import gpu_prediction
from workbench.sizing.prediction.aisimulate import Deployment, Predictor, open_predictor
from workbench.sizing.prediction.gpu_prediction import predict_gpus
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_step
from workbench.sizing.prediction.time_error import (
    PUBLISHED,
    Z_90,
    FactorRange,
    TimeErrors,
    fit_anchor,
    load_published_errors,
)

# Chosen before any world was looked at: the families of a phase differ by this much from each other.
FAMILY_SPREAD = 0.08
PHASES = ("prefill", "decode")
# Tables whose rows tell the tokens of a step: those of a prefill are above this many.
TOKEN_COLUMNS, MIN_PREFILL_TOKENS = ("m", "num_tokens"), 512
# By the part of the tables: the phase, or null where rows tell it.
FAMILIES = {"gemm": None, "moe": None, "quantize": None, "context": "prefill", "generation": "decode", "comm": "decode"}
CASES = (
    ("Qwen/Qwen3-32B-FP8", "h100_sxm", "h200_sxm", 2),
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "h200_sxm", "h100_sxm", 4),
    ("openai/gpt-oss-120b", "h100_sxm", "b200_sxm", 2),
    ("Qwen/Qwen3-8B", "l40s", "h100_sxm", 1),
    ("Qwen/Qwen3-30B-A3B-FP8", "b200_sxm", "h200_sxm", 1),
)
EXACT = TimeErrors(FactorRange(), FactorRange(), "the truth")


@dataclass(frozen=True)
class World:
    """A world of a seed: what is served, where it is measured and predicted, and its kernels' factors by GPU type."""

    seed: int
    model: str
    source: str
    target: str
    tensor: int
    goal: str
    input_tokens: int
    output_tokens: int
    factors: dict[str, dict[str, float]]


def build_world(seed: int, predictor: Predictor, *, is_alike: bool = False) -> World:
    """The world of a seed: a service as far from the prediction as the measured ones are, on two GPU types."""
    draw = random.Random(f"prediction/{seed}")
    model, source, target, tensor = CASES[seed % len(CASES)]
    published = json.loads(PUBLISHED.read_text())
    by_architecture = predictor.find_architecture(source) == predictor.find_architecture(target)
    kind = "same_architecture" if by_architecture else "other_architecture"
    factors: dict[str, dict[str, float]] = {source: {}, target: {}}
    for phase in PHASES:
        low, middle, high = published["measured_over_predicted"]["vllm"][phase]
        shared = draw.gauss(math.log(middle), math.log(high / low) / (2 * Z_90))
        for own in factors.values():
            # The difference of two such errors has the spread that measured services show.
            of_type = draw.gauss(0, published["log_spread"][phase][kind] / math.sqrt(2))
            for family in FAMILIES:
                own[f"{phase}/{family}"] = math.exp(shared + of_type + draw.gauss(0, FAMILY_SPREAD))
    if is_alike:
        factors[target] = factors[source]
    input_tokens, output_tokens = draw.choice([(512, 256), (1024, 256), (2048, 128), (4096, 256)])
    goal = draw.choice(["runtime p95<={}", "itl p95<={}ms"])
    return World(seed, model, source, target, tensor, goal, input_tokens, output_tokens, factors)


def build_packages(predictor: Predictor, world: World, folder: Path) -> None:
    """AISimulate's packages with the tables of the world's kernels."""
    import pyarrow.parquet as pq

    for entry in predictor.folder.iterdir():
        if entry.name == "aisimulate_core":
            shutil.copytree(entry, folder / entry.name, copy_function=os.link)
        else:
            (folder / entry.name).symlink_to(entry)
    for gpu, factors in world.factors.items():
        data = folder / "aisimulate_core" / "systems" / "data" / gpu
        for path in sorted(data.rglob("*.parquet")):
            name = path.relative_to(data).as_posix()
            family = next((part for part in ("context", "generation", *FAMILIES) if part in name), None)
            table = pq.read_table(path)
            if family is None or "latency" not in table.column_names:
                continue
            path.unlink()
            pq.write_table(scale_latency(table, family, factors), path)


def scale_latency(table: Any, family: str, factors: dict[str, float]) -> Any:
    """The table with other times: by the phase of its family, or of each row."""
    import pyarrow as pa

    tokens = next((table[name].to_numpy() for name in TOKEN_COLUMNS if name in table.column_names), None)
    phase = FAMILIES[family]
    if phase is None and tokens is not None:
        ratios = np.where(tokens >= MIN_PREFILL_TOKENS, factors[f"prefill/{family}"], factors[f"decode/{family}"])
    else:
        ratios = np.full(table.num_rows, factors[f"{phase or 'decode'}/{family}"])
    at = table.column_names.index("latency")
    scaled = pa.array(table["latency"].to_numpy() * ratios, type=table.schema.field(at).type)
    return table.set_column(at, table.schema.field(at), scaled)


def play(world: World, predictor: Predictor, *, is_alike: bool = False) -> dict[str, Any]:
    """Measure, correct, predict; the row of a world."""
    with tempfile.TemporaryDirectory(dir=predictor.folder.parent) as scratch:
        folder = Path(scratch) / "site"
        folder.mkdir()
        build_packages(predictor, world, folder)
        with open_predictor(shape.say, folder) as truth:
            source, target = (
                Deployment(model=world.model, gpu=gpu, tensor=world.tensor) for gpu in (world.source, world.target)
            )
            levels = [4, 16, 48]
            # The service meets other requests than the prediction does.
            met = _build_config(world, "runtime p95<=1000").model_copy(update={"seed": world.seed + 1000})
            measured = [
                predict_step(truth, source, met, users, TimeFactors(), number=place)
                for place, users in enumerate(levels)
            ]
            requests = pl.concat([requests for requests, _ in measured])
            steps = pl.concat([step for _, step in measured])
            anchor = fit_anchor(predictor, source, requests, steps, met)
            # A goal between the times of one user and of a full replica, as the truth has them.
            metric = "itl_s" if world.goal.startswith("itl") else "runtime_s"
            ends = [
                float(str(predict_step(truth, target, met, users, TimeFactors())[0][metric].quantile(0.95)))
                for users in (2, 48)
            ]
            limit_s = math.sqrt(ends[0] * ends[1])
            goal = world.goal.format(round(1000 * limit_s, 2) if metric == "itl_s" else round(limit_s, 3))
            config = _build_config(world, goal)
            load = 600.0
            architecture = predictor.find_architecture(target.gpu)
            true = _predict(truth, target, config.model_copy(update={"seed": met.seed}), load, EXACT)
            errors = anchor.errors if is_alike else anchor.carry_to(target.gpu, architecture)
            corrected = _predict(predictor, target, config, load, errors)
            alone = _predict(predictor, target, config, load, load_published_errors("vllm"))
    kind = "same" if anchor.architecture == architecture else "other"
    return {
        "seed": world.seed,
        "model": world.model,
        "from": world.source,
        "to": world.target,
        "architecture": kind,
        "goal": goal,
        "true": true["gpus"],
        "corrected": [corrected[name] for name in ("gpus_low", "gpus", "gpus_high")],
        "alone": [alone[name] for name in ("gpus_low", "gpus", "gpus_high")],
        "factors": [round(anchor.errors.prefill.value, 3), round(anchor.errors.decode.value, 3)],
    }


def _build_config(world: World, goal: str) -> SweepConfig:
    return build_sweep_config(
        protocol="openai",
        url="http://predicted",
        model=world.model,
        simulated=True,
        goals=[Goal.read(goal)],
        input_tokens=world.input_tokens,
        input_cv=0.5,
        output_tokens=world.output_tokens,
        output_cv=0.5,
        seed=world.seed,
    )


def _predict(
    predictor: Predictor, deployment: Deployment, config: SweepConfig, load: float, errors: TimeErrors
) -> dict[str, Any]:
    found = predict_gpus(
        predictor, {deployment.gpu: [deployment]}, config, load, lambda _: errors, on_progress=lambda _: None
    )
    return found.table.row(0, named=True)


def summarize(rows: list[dict[str, Any]]) -> str:
    """Shares of enough, of at most 1.2 times, and of covered truths."""
    lines = []
    for name in ("all", "same", "other"):
        own = [row for row in rows if name in ("all", row["architecture"]) and row["true"]]
        known = [row for row in own if row["corrected"][2]]
        if not own:
            continue
        enough = sum(row["corrected"][2] >= row["true"] for row in known)
        near = sum(row["corrected"][2] <= 1.2 * row["true"] for row in known)
        covered = sum((row["alone"][0] or 0) <= row["true"] <= (row["alone"][2] or math.inf) for row in own)
        lines.append(
            f"{name}: {len(own)} worlds, an upper end in {len(known)}; enough {enough}, at most 1.2 times {near}; "
            f"without an anchor covered {covered}"
        )
    return "\n".join(lines)


def main() -> None:
    """Play the worlds and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--alike", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    with open_predictor(shape.say) as predictor:
        for seed in range(given.first, given.first + given.worlds):
            world = build_world(seed, predictor, is_alike=given.alike)
            rows.append(play(world, predictor, is_alike=given.alike))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if given.out is not None:
                given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"AISimulate, {gpu_prediction.MAX_LEVELS} levels at most")
    print(summarize(rows))


if __name__ == "__main__":
    main()
