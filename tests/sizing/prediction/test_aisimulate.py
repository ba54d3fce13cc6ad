"""The real AISimulate, in packages of its own: the same figures as its own command, and what it refuses."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sizing.conftest import Sizing
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.prediction.aisimulate import Deployment, Predictor, open_predictor
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_step

pytestmark = pytest.mark.network
MODEL = "Qwen/Qwen3-32B-FP8"
COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from aisimulate.main import main; sys.exit(main(sys.argv[1:]))"
)
CONFIGURATIONS = (
    (MODEL, "h100_sxm", "vllm", 1, 8, 1024, 128),
    (MODEL, "h200_sxm", "vllm", 2, 32, 2048, 64),
    (MODEL, "l40s", "vllm", 2, 4, 512, 64),
    (MODEL, "b200_sxm", "vllm", 1, 64, 1024, 128),
    ("Qwen/Qwen3-8B", "h100_sxm", "sglang", 1, 16, 256, 256),
    ("Qwen/Qwen3-8B", "a100_sxm", "vllm", 1, 8, 1024, 64),
    ("openai/gpt-oss-120b", "h100_sxm", "vllm", 2, 16, 1024, 128),
    ("openai/gpt-oss-20b", "h200_sxm", "vllm", 1, 8, 4096, 64),
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "h100_sxm", "vllm", 4, 16, 1024, 128),
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "h200_sxm", "trtllm", 4, 8, 2048, 64),
)


@pytest.fixture(scope="module")
def predictor() -> Iterator[Predictor]:
    with open_predictor(print) as opened:
        yield opened


def build_config(input_tokens: int = 1024, output_tokens: int = 128) -> SweepConfig:
    return build_sweep_config(
        protocol="openai",
        url="http://predicted",
        model=MODEL,
        simulated=True,
        goals=[Goal.read("p95<=10")],
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_level_is_what_its_own_command_predicts(
    predictor: Predictor, tmp_path: Path, configuration: tuple[str, str, str, int, int, int, int]
) -> None:
    model, gpu, backend, tensor, users, input_tokens, output_tokens = configuration
    deployment = Deployment(model=model, gpu=gpu, backend=backend, tensor=tensor)  # type: ignore[arg-type]
    config = build_config(input_tokens, output_tokens)
    ours, _ = predict_step(predictor, deployment, config, users, TimeFactors())
    asked = {
        "traffic": {
            "source": {"type": "synthetic", "input_tokens": input_tokens, "output_tokens": output_tokens},
            "load": {"type": "concurrency", "concurrency": users},
            "stop": {"requests": ours.height},
        },
        "engine": {
            "mode": "aggregated",
            "model": model,
            "hardware": gpu,
            "backend": backend,
            "workers": {"aggregated": {"parallelism": {"tensor": tensor, "moe_tensor": tensor}}},
        },
    }
    file = tmp_path / "prediction.json"
    file.write_text(json.dumps(asked))
    out = tmp_path / "out"
    words = ["predict", "-c", str(file), "--output-dir", str(out), "--format", "json"]
    subprocess.run(
        [sys.executable, "-S", "-E", "-c", COMMAND, predictor.folder, *words], check=True, capture_output=True
    )
    theirs = json.loads((out / "prediction.json").read_text())
    assert theirs["completed_requests"] == ours.height
    found = {
        "mean_ttft_ms": 1000 * statistics.fmean(ours["ttft_s"]),
        "mean_tpot_ms": 1000 * statistics.fmean(ours["itl_s"]),
        "mean_e2e_latency_ms": 1000 * statistics.fmean(ours["runtime_s"]),
    }
    assert found == pytest.approx({name: theirs[name] for name in found}, rel=1e-6)


def test_factors_are_those_of_its_kernels(predictor: Predictor) -> None:
    one = Deployment(model=MODEL, gpu="h100_sxm")
    plain, _ = predict_step(predictor, one, build_config(), 1, TimeFactors())
    slower, _ = predict_step(predictor, one, build_config(), 1, TimeFactors(prefill=2.0, decode=1.5))
    assert slower["ttft_s"].mean() == pytest.approx(2.0 * float(str(plain["ttft_s"].mean())), rel=1e-3)
    assert slower["itl_s"].mean() == pytest.approx(1.5 * float(str(plain["itl_s"].mean())), rel=1e-3)


def test_what_it_does_not_know_is_refused_with_what_it_does(predictor: Predictor) -> None:
    with pytest.raises(ConfigError, match=r"not a model(?s:.)*Qwen3-33B(?s:.)*Qwen/Qwen3-32B"):
        predictor.check_deployment(Deployment(model="Qwen/Qwen3-33B", gpu="h100_sxm"))
    with pytest.raises(ConfigError, match=r"no measured kernels(?s:.)*h999(?s:.)*h200_sxm"):
        predictor.check_deployment(Deployment(model=MODEL, gpu="h999"))
    config = build_config()
    too_large = Deployment(model="meta-llama/Meta-Llama-3.1-70B", gpu="h100_sxm")
    with pytest.raises(InputError, match="no KV budget"):
        predict_step(predictor, too_large, config, 1, TimeFactors())
    # It goes on after a refusal.
    assert predict_step(predictor, Deployment(model=MODEL, gpu="h100_sxm"), config, 1, TimeFactors())[0].height


def test_the_command_compares_types_and_keeps_a_run(sizing: Sizing, tmp_path: Path) -> None:
    words = f"predict --model {MODEL} --gpu h100_sxm,h200_sxm --tensor 1,2 --target-users 100 --goal p95<=12"
    prices = ["--gpu-price", "h100_sxm=2", "--gpu-price", "h200_sxm=9"]
    code, out, _ = sizing(*words.split(), *prices, "--out", tmp_path, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["conditions"] == ["predicted, not measured"]
    chosen = next(row for row in found["predictions"] if row["chosen"])
    assert chosen["gpu"] == "h100_sxm"
    assert chosen["cost_per_hour"] == 2 * chosen["gpus_high"]
    assert (Path(found["folder"]) / "tables" / "predictions.parquet").is_file()
