"""One load by three tools: `workbench sizing run`, aiperf and guidellm drive the same server, each as users call it.

Each tool's own summary is read, and nothing is computed anew. What the figures mean:

- latency: from sending to the end of the stream; aiperf's `request_latency` to the last chunk with text.
- TTFT: from sending to the first chunk with text; `time_to_first_token` and `time_to_first_token_ms`.
- ITL: (last - first token) / (tokens - 1), by request, everywhere; `inter_token_latency` and `inter_token_latency_ms`.
- rate: ours without warm-up and tail; aiperf's `request_throughput` is requests over the whole time; guidellm's
  `requests_per_second` is a mean over time of what is between two ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.cached_environment import build_environment, install_environment
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.load.sweep_journal import load_sweep_journal

AIPERF, GUIDELLM = "aiperf==0.13.0", "guidellm==0.8.1"
RUN_TIMEOUT_S = 300
FIGURES = ("latency_p50_s", "latency_p95_s", "ttft_p50_s", "ttft_p95_s", "itl_p50_s", "itl_p95_s", "rate_per_s")
TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

signs = sorted(pre_tokenizers.ByteLevel.alphabet())
merges = [("\\u0120", "o"), ("\\u0120o", "n"), ("\\u0120on", "e")]
words = [*signs, *("".join(pair) for pair in merges), "<end>"]
made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", pad_token="<end>")
fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
fast.save_pretrained(sys.argv[1])
"""


@dataclass(frozen=True)
class Load:
    """So many users who ask again as soon as they are answered, until so many requests have ended."""

    url: str
    model: str
    tokenizer: Path
    users: int
    requests: int
    output_tokens: int
    input_tokens: int = 40


def make_tokenizer(folder: Path) -> Path:
    """A byte-level tokenizer that needs no download."""
    called(peer_python(AIPERF), "-c", TOKENIZER, folder)
    return folder


def peer_python(package: str) -> Path:
    """The interpreter of a tool's own environment."""
    return install_environment(f"peer/{package.replace('==', '-')}", [package])


def called(python: Path, *command: str | Path, cwd: Path | None = None, hub: bool = False) -> str:
    """Run a tool; its output.

    Raises
    ------
    RuntimeError
        It failed; the message has its last words.
    """
    words, variables = [str(python), *map(str, command)], build_environment()
    if hub:
        # Told to be offline, aiperf takes a tokenizer's folder for a name on the hub.
        variables = {name: value for name, value in variables.items() if not name.endswith("_OFFLINE")}
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S, cwd=cwd, env=variables
    )
    if done.returncode:
        raise RuntimeError(
            f"{Path(words[0]).name} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}"
        )
    return done.stdout


def run_workbench(load: Load, folder: Path) -> dict[str, float]:
    """Our own figures."""
    command = [sys.executable, "-m", "workbench", "sizing", "run", "--protocol", "openai", "--url", f"{load.url}/v1"]
    command += ["--model", load.model, "--users", str(load.users), "--output-tokens", str(load.output_tokens)]
    command += ["--input-tokens", str(load.input_tokens), "--samples", str(load.requests)]
    command += ["--most-samples", str(load.requests), "--extra-body", '{"stream_options": null}', "--out", str(folder)]
    # Nothing is asked for but figures: the verdict of the point, and so the exit code, is no matter.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_TIMEOUT_S)
    found = sorted((folder / "sizing").glob("*/sweep.json"))
    if not found:
        raise RuntimeError(f"no sweep: {done.stderr[-2000:]}")
    sweep, _ = load_sweep_journal(found[-1].parent)
    points, table = assess_steps(sweep.requests, sweep.steps, qs=(0.5, 0.95))
    kinds = {"runtime": "latency", "ttft": "ttft", "itl": "itl"}
    values = {
        f"{kinds[metric]}_p{round(100 * q)}_s": value
        for metric, q, value in table.select("metric", "q", "value_s").iter_rows()
        if metric in kinds
    }
    return {name: float({**values, "rate_per_s": points["rate_per_s"][0]}[name]) for name in FIGURES}


def run_aiperf(load: Load, folder: Path) -> dict[str, float]:
    """The figures of aiperf's own summary."""
    python = peer_python(AIPERF)
    command = ["profile", "--model", load.model, "--url", load.url, "--endpoint-type", "chat", "--streaming"]
    command += ["--concurrency", str(load.users), "--request-count", str(load.requests), "--ui", "none"]
    command += ["--tokenizer", str(load.tokenizer), "--synthetic-input-tokens-mean", str(load.input_tokens)]
    command += ["--output-tokens-mean", str(load.output_tokens), "--artifact-dir", str(folder)]
    called(python.with_name("aiperf"), *command, hub=True)
    told = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    names = {"latency": "request_latency", "ttft": "time_to_first_token", "itl": "inter_token_latency"}
    found = {f"{ours}_{q}_s": told[name][q] / 1000 for ours, name in names.items() for q in ("p50", "p95")}
    return {**found, "rate_per_s": told["request_throughput"]["avg"]}


def run_guidellm(load: Load, folder: Path) -> dict[str, float]:
    """The figures of guidellm's own report."""
    python = peer_python(GUIDELLM)
    folder.mkdir(parents=True, exist_ok=True)
    command = ["run", "--profile", f"kind=concurrent,streams={load.users}", "--disable-console-interactive"]
    command += ["--backend", f"kind=openai_http,target={load.url},model={load.model}"]
    command += ["--constraint", f"kind=max_requests,count={load.requests}"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={load.tokenizer}"]
    command += ["--data", f"kind=synthetic_text,prompt_tokens={load.input_tokens},output_tokens={load.output_tokens}"]
    command += ["--output", f"kind=json,path={folder / 'report.json'}"]
    called(python.with_name("guidellm"), *command, cwd=folder)
    metrics = json.loads((folder / "report.json").read_text())["benchmarks"][0]["metrics"]
    if not metrics["request_latency"]["successful"]["count"]:
        raise RuntimeError("guidellm: no request succeeded")
    names = {
        "latency": ("request_latency", 1),
        "ttft": ("time_to_first_token_ms", 1000),
        "itl": ("inter_token_latency_ms", 1000),
    }
    found = {
        f"{ours}_{q}_s": metrics[name]["successful"]["percentiles"][q] / parts
        for ours, (name, parts) in names.items()
        for q in ("p50", "p95")
    }
    return {**found, "rate_per_s": metrics["requests_per_second"]["successful"]["mean"]}


TOOLS: Mapping[str, Callable[[Load, Path], dict[str, float]]] = {
    "workbench": run_workbench,
    "aiperf": run_aiperf,
    "guidellm": run_guidellm,
}


def read_truth(told: Mapping[str, Any]) -> dict[str, float]:
    """The server's own figures, by the names of the tools'."""
    return {name: float(told[name]) for name in FIGURES}
