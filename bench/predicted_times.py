"""How far AISimulate's times are from measured ones: its package's own table of services measured on GPUs.

`python -m bench.predicted_times` writes `workbench/sizing/prediction/published_errors.json`: ratios of measured to
predicted times by server, and how far such a ratio on one GPU type is from that on another. About 20 minutes.

The services were driven with lengths of 0.8 to 1 times the nominal ones, ten requests a user, all users at once; so are
the predictions. Left out: disaggregated and data-parallel services, expert parallelism, more than 128 users.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import math
import random
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from workbench.core import files
from workbench.core.errors import InputError
from workbench.sizing.prediction import aisimulate
from workbench.sizing.prediction.aisimulate import Deployment, Predictor, open_predictor

OUT = Path(aisimulate.__file__).with_name("published_errors.json")
MAX_USERS, MAX_OUTPUT_TOKENS, BLOCK_TOKENS = 128, 2048, 1024
# The table names the family where the checkpoint has its precision in its name.
CHECKPOINTS = {
    ("meta-llama/Llama-3.1-70B", "fp8"): "nvidia/Llama-3.1-70B-Instruct-FP8",
    ("Qwen/Qwen3-32B", "fp8"): "Qwen/Qwen3-32B-FP8",
    ("MiniMaxAI/MiniMax-M2.5", "fp8"): "MiniMaxAI/MiniMax-M2.5",
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("openai/gpt-oss-120b", "fp4"): "openai/gpt-oss-120b",
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8"): "Qwen/Qwen3-235B-A22B-FP8",
    ("deepseek-ai/DeepSeek-R1", "fp8"): "deepseek-ai/DeepSeek-R1",
    ("deepseek-ai/DeepSeek-V3", "fp8"): "deepseek-ai/DeepSeek-V3",
    ("moonshotai/Kimi-K2.5", "fp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("moonshotai/Kimi-K2.5", "int4"): "moonshotai/Kimi-K2.5",
}


def main() -> None:
    """Predict each measured service, and write the summary."""
    with open_predictor(lambda text: print(text, file=sys.stderr)) as predictor:
        table = predictor.folder / "aisimulate_core" / "systems" / "silicon_sample.csv"
        rows = list(select_services(table))
        ratios = []
        for place, row in enumerate(rows):
            try:
                ratios.append(compare_times(predictor, row))
            except InputError as error:
                print(f"{row['id']}: {str(error)[:150]}", file=sys.stderr)
            if place % 50 == 0:
                print(f"{place} of {len(rows)}", file=sys.stderr)
        architectures = {gpu: predictor.find_architecture(gpu) for gpu in {row["gpu"] for row in ratios}}
    document = {
        "source": {
            "package": "aisimulate",
            "version": aisimulate.VERSION,
            "licence": "Apache-2.0",
            "file": "aisimulate_core/systems/silicon_sample.csv",
            "sha256": hashlib.sha256(table.read_bytes()).hexdigest(),
            "extractor": "python -m bench.predicted_times",
        },
        **summarize_ratios(ratios, architectures),
    }
    files.write_text(OUT, json.dumps(document, indent=1) + "\n")


def select_services(table: Path) -> Any:
    """Measured services that a `Deployment` describes, each once."""
    seen = set()
    with table.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            users = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
            model = CHECKPOINTS.get((row["model_path"], row["precision"]))
            widths = [float(row[name] or 0) for name in ("attention_dp_size", "moe_ep_size", "pp_size")]
            if row["mode"] != "agg" or users is None or model is None or max(widths) > 1:
                continue
            service = {
                "id": row["id"],
                "deployment": Deployment(
                    model=model, gpu=row["system"], backend=row["backend"], tensor=int(float(row["tp_size"]))
                ),
                "users": int(users[1]),
                "input_tokens": int(row["isl"]),
                "output_tokens": int(row["osl"]),
                "ttft_ms": float(row["silicon_ttft_ms"]),
                "itl_ms": float(row["silicon_tpot_ms"]),
            }
            key = tuple(str(value) for name, value in service.items() if name != "id")
            if service["users"] <= MAX_USERS and service["output_tokens"] <= MAX_OUTPUT_TOKENS and key not in seen:
                seen.add(key)
                yield service


def compare_times(predictor: Predictor, service: dict[str, Any]) -> dict[str, Any]:
    """Log of measured over predicted time to the first token and between tokens."""
    draw = random.Random(1)
    new_block = itertools.count()
    rows = []
    for place in range(10 * service["users"]):
        input_tokens = int(service["input_tokens"] * draw.uniform(0.8, 1))
        rows.append(
            {
                "session_id": str(place),
                "timestamp": 0,
                "input_length": input_tokens,
                "output_length": max(2, int(service["output_tokens"] * draw.uniform(0.8, 1))),
                "hash_ids": list(itertools.islice(new_block, -(-input_tokens // BLOCK_TOKENS))),
            }
        )
    deployment: Deployment = service["deployment"]
    found = predictor.run(deployment, rows, block_tokens=BLOCK_TOKENS, concurrency=service["users"])["requests"]
    times = list(
        zip(found["arrival_ms"], found["first_token_ms"], found["ended_ms"], found["output_tokens"], strict=True)
    )
    ttft_ms = statistics.fmean(first - sent for sent, first, _, _ in times)
    itl_ms = statistics.fmean((ended - first) / (tokens - 1) for _, first, ended, tokens in times)
    return {
        "gpu": deployment.gpu,
        "group": (deployment.model, deployment.backend, deployment.tensor),
        "backend": deployment.backend,
        "prefill": math.log(service["ttft_ms"] / ttft_ms),
        "decode": math.log(service["itl_ms"] / itl_ms),
    }


def summarize_ratios(ratios: list[dict[str, Any]], architectures: dict[str, int]) -> dict[str, Any]:
    """Quantiles by server, and the spread of ratios within a GPU type and between two."""
    by_backend = {}
    for backend in sorted({row["backend"] for row in ratios}):
        own = [row for row in ratios if row["backend"] == backend]
        by_backend[backend] = {"n": len(own)} | {
            name: [round(math.exp(quantile([row[name] for row in own], q)), 3) for q in (0.05, 0.5, 0.95)]
            for name in ("prefill", "decode")
        }
    groups: dict[Any, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in ratios:
        groups[row["group"]][row["gpu"]].append(row)
    spreads = {}
    for name in ("prefill", "decode"):
        within, same, other = [], [], []
        for by_gpu in groups.values():
            means = {gpu: statistics.median(row[name] for row in rows) for gpu, rows in by_gpu.items() if len(rows) > 2}
            within += [row[name] - means[gpu] for gpu in means for row in by_gpu[gpu]]
            for one, another in itertools.combinations(sorted(means), 2):
                kind = same if architectures[one] == architectures[another] else other
                kind.append(means[one] - means[another])
        spreads[name] = {
            "same_gpu": round(root_mean_square(within), 3),
            "same_architecture": round(root_mean_square(same), 3),
            "other_architecture": round(root_mean_square(other), 3),
            "n": [len(within), len(same), len(other)],
        }
    return {"measured_over_predicted": by_backend, "log_spread": spreads}


def quantile(values: list[float], q: float) -> float:
    """The value with this share below it."""
    ordered = sorted(values)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


def root_mean_square(values: list[float]) -> float:
    """Root of the mean square; of the middle 95 %, since some services were measured in other settings."""
    ordered = sorted(values, key=abs)
    kept = ordered[: max(1, math.ceil(0.95 * len(ordered)))]
    return math.sqrt(statistics.fmean(value**2 for value in kept)) if kept else math.nan


if __name__ == "__main__":
    main()
