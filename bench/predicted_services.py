"""Settings of the simulator for GPUs by name: `python -m bench.predicted_services` writes them, about three minutes.

Each is fitted to AISimulate with the factors to expect of vLLM (`published_errors.json`), one replica a GPU, and
compared with it: the median runtime of 1 to 96 users, simulated over predicted. `gpu_services.json` keeps the largest
difference beside the settings. Models whose experts make a step's time no straight line are left out.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from workbench.core import files
from workbench.core.errors import InputError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.prediction import aisimulate
from workbench.sizing.prediction.aisimulate import Deployment, Predictor, open_predictor
from workbench.sizing.prediction.fitted_service import fit_service
from workbench.sizing.prediction.predicted_sweep import predict_step
from workbench.sizing.prediction.time_error import load_published_errors
from workbench.sizing.simulation import gpu_services
from workbench.sizing.simulation.virtual_time import simulate_step

MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B", "meta-llama/Meta-Llama-3.1-8B")
GPUS = ("a100_sxm", "l40s", "rtx_pro_6000_server", "h100_sxm", "h200_sxm", "b200_sxm")
USERS = (1, 8, 32, 96)
FIELDS = ("slots", "prefill_tokens_per_s", "decode_base_s", "decode_per_sequence_s", "cache_tokens")


def main() -> None:
    """Fit each model on each GPU type that it fits on."""
    services = []
    with open_predictor(lambda text: print(text, file=sys.stderr)) as predictor:
        for model in MODELS:
            for gpu in GPUS:
                deployment = Deployment(model=model, gpu=gpu)
                try:
                    services.append(fit(predictor, deployment))
                except InputError as error:
                    print(f"{model} on {gpu}: {error.what[:100]}", file=sys.stderr)
    source = {"package": "aisimulate", "version": aisimulate.VERSION, "made_by": "python -m bench.predicted_services"}
    document = {"source": source, "services": services}
    files.write_text(gpu_services.FILE, json.dumps(document, indent=1) + "\n")


def fit(predictor: Predictor, deployment: Deployment) -> dict[str, Any]:
    """The settings of a service, and how far the simulator is off with them."""
    factors = load_published_errors("vllm").expected
    service = fit_service(predictor, deployment, factors)
    config = build_sweep_config(
        protocol="openai",
        url="http://predicted",
        model=deployment.model,
        simulated=True,
        goals=[Goal.read("p95<=10")],
        input_tokens=service.input_tokens,
        input_cv=service.input_cv,
        output_tokens=int(service.output_tokens),
        output_cv=service.output_cv,
    )
    ratios = []
    for users in USERS:
        predicted, _ = predict_step(predictor, deployment, config, users, factors)
        simulated, _ = simulate_step(service, config, users)
        medians = [float(str(table.filter(~table["tail"])["runtime_s"].median())) for table in (simulated, predicted)]
        ratios.append(medians[0] / medians[1])
    fitted = {name: round_value(getattr(service, name)) for name in FIELDS}
    off = [round(min(ratios), 2), round(max(ratios), 2)]
    return {"gpu_type": deployment.gpu, "model": deployment.model, **fitted, "simulated_over_predicted": off}


def round_value(value: float) -> float:
    """Four digits are more than is known."""
    return value if isinstance(value, int) else float(f"{value:.4g}")


if __name__ == "__main__":
    main()
