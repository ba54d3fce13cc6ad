"""One load by four tools: `workbench sizing run`, aiperf, guidellm and inference-perf drive the same server.

Each is called as users call it. Its own summary is read, and nothing is computed anew; `read_import` gives the figures
of the same result after `workbench sizing import`. What the figures mean:

- latency: from sending to the end of the stream; aiperf's `request_latency` to the last chunk with text.
- TTFT: from sending to the first chunk with text; inference-perf reads no reasoning.
- ITL: (last - first token) / (tokens - 1), by request, everywhere; inference-perf's `time_per_output_token`, since its
  `inter_token_latency` is over all gaps of all requests. Where the first event holds several tokens, that is too short.
- rate: ours without warm-up and tail; aiperf's `request_throughput` and inference-perf's `requests_per_sec` over the
  whole time; guidellm's `requests_per_second` is a mean over time of what is between two ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import paced_server
from tests.fakes.cached_environment import build_environment, install_environment
from workbench.sizing.estimation.step_points import assess_steps, select_kept_requests
from workbench.sizing.load.sweep_journal import load_sweep_journal
from workbench.sizing.other_tools.sweep_import import import_sweep

AIPERF, GUIDELLM, INFERENCE_PERF = "aiperf==0.13.0", "guidellm==0.8.1", "inference-perf==0.7.0"
# inference-perf asks for Python 3.12 and runs on 3.11: it is installed without its own word on that, and these first.
INFERENCE_PERF_NEEDS = (
    *("pip", "aiofiles", "aiohttp", "av", "boto3", "datasets", "google-cloud-storage", "jinja2", "numpy", "pillow"),
    *("prometheus-client", "pydantic", "pyyaml", "rich", "tiktoken", "tqdm", "transformers==5.13.0", "uvloop"),
)
RUN_TIMEOUT_S = 300
KINDS = {"latency": "runtime", "ttft": "ttft", "itl": "itl"}
"""Our metrics by the names of figures."""
STATISTICS = ("mean", "p50", "p95")
TIMES = tuple(f"{kind}_{statistic}_s" for kind in KINDS for statistic in STATISTICS)
FIGURES = (*TIMES, "rate_per_s")
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
    name = f"peer/{package.replace('==', '-')}"
    if package != INFERENCE_PERF:
        return install_environment(name, [package])
    python = install_environment(name, INFERENCE_PERF_NEEDS)
    called(python, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-requires-python", package)
    return python


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
    return {name: value for name, value in read_sweep(found[-1].parent).items() if value is not None}


def read_sweep(folder: Path) -> dict[str, float | None]:
    """Figures of a sweep of one level; null where they are unknown."""
    sweep, _ = load_sweep_journal(folder)
    points, table = assess_steps(sweep.requests, sweep.steps, qs=(0.5, 0.95))
    quantiles = {
        (metric, f"p{round(100 * q)}"): value for metric, q, value in table.select("metric", "q", "value_s").iter_rows()
    }
    kept = select_kept_requests(sweep.requests, sweep.steps["users"][0])
    means = {(metric, "mean"): kept[f"{metric}_s"].mean() for metric in KINDS.values()}
    values = {**quantiles, **means}
    found = {f"{kind}_{name}_s": values.get((metric, name)) for kind, metric in KINDS.items() for name in STATISTICS}
    return {**found, "rate_per_s": points["rate_per_s"][0]}


def read_import(result: Path, folder: Path) -> tuple[dict[str, float | None], list[str]]:
    """Figures of a tool's result after `workbench sizing import`, and its notes on what is unknown."""
    done = import_sweep(result, gpus=1, out=folder)
    return read_sweep(done.folder), [*done.imported.notes, *done.points["stream_note"].drop_nulls()]


def run_aiperf(load: Load, folder: Path) -> dict[str, float]:
    """The figures of aiperf's own summary."""
    python = peer_python(AIPERF)
    command = ["profile", "--model", load.model, "--url", load.url, "--endpoint-type", "chat", "--streaming"]
    command += ["--concurrency", str(load.users), "--request-count", str(load.requests), "--ui", "none"]
    command += ["--tokenizer", str(load.tokenizer), "--synthetic-input-tokens-mean", str(load.input_tokens)]
    command += ["--output-tokens-mean", str(load.output_tokens), "--artifact-dir", str(folder)]
    command += ["--export-level", "records"]
    called(python.with_name("aiperf"), *command, hub=True)
    told = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
    names = {"latency": "request_latency", "ttft": "time_to_first_token", "itl": "inter_token_latency"}
    ways = {"mean": "avg", "p50": "p50", "p95": "p95"}
    found = {f"{ours}_{q}_s": told[name][way] / 1000 for ours, name in names.items() for q, way in ways.items()}
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
    command += ["--output", f"kind=json,path={folder / 'benchmarks.json'}"]
    called(python.with_name("guidellm"), *command, cwd=folder)
    metrics = json.loads((folder / "benchmarks.json").read_text())["benchmarks"][0]["metrics"]
    if not metrics["request_latency"]["successful"]["count"]:
        raise RuntimeError("guidellm: no request succeeded")
    names = {
        "latency": ("request_latency", 1),
        "ttft": ("time_to_first_token_ms", 1000),
        "itl": ("inter_token_latency_ms", 1000),
    }
    found = {
        f"{ours}_{q}_s": {**told["percentiles"], "mean": told["mean"]}[q] / parts
        for ours, (name, parts) in names.items()
        for told in [metrics[name]["successful"]]
        for q in STATISTICS
    }
    return {**found, "rate_per_s": metrics["requests_per_second"]["successful"]["mean"]}


def run_inference_perf(load: Load, folder: Path) -> dict[str, float]:
    """The figures of inference-perf's own summary."""
    python = peer_python(INFERENCE_PERF)
    folder.mkdir(parents=True, exist_ok=True)
    stage = {"num_requests": load.requests, "concurrency_level": load.users}
    asked = {
        "api": {"type": "chat", "streaming": True},
        "data": {"type": "mock"},
        "load": {"type": "concurrent", "stages": [stage], "num_workers": 1},
        "server": {"type": "vllm", "model_name": load.model, "base_url": load.url},
        "tokenizer": {"pretrained_model_name_or_path": str(load.tokenizer)},
        "report": {"request_lifecycle": {"per_request": True, "percentiles": [50, 95]}},
        "storage": {"local_storage": {"path": str(folder)}},
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    called(python.with_name("inference-perf"), "--config_file", folder / "asked.json", cwd=folder)
    told = json.loads((folder / "summary_lifecycle_metrics.json").read_text())["successes"]
    names = {"latency": "request_latency", "ttft": "time_to_first_token", "itl": "time_per_output_token"}
    ways = {"mean": "mean", "p50": "median", "p95": "p95"}
    found = {f"{ours}_{q}_s": told["latency"][name][way] for ours, name in names.items() for q, way in ways.items()}
    return {**found, "rate_per_s": told["throughput"]["requests_per_sec"]}


TOOLS: Mapping[str, Callable[[Load, Path], dict[str, float]]] = {
    "workbench": run_workbench,
    "aiperf": run_aiperf,
    "guidellm": run_guidellm,
    "inference-perf": run_inference_perf,
}


@dataclass(frozen=True)
class Comparison:
    """Times over those of the server's clock, by a tool's own summary and after import; null where unknown."""

    told: dict[str, float]
    imported: dict[str, float | None]
    notes: list[str]


def compare_with_truth(tool: str, load: Load, folder: Path) -> Comparison:
    """Drive a paced server with a tool, and hold its figures against the server's."""
    paced_server.ask(load.url, "/reset", post=True)
    told = TOOLS[tool](load, folder)
    truth = paced_server.ask(load.url, "/truth")
    imported, notes = ({}, []) if tool == "workbench" else read_import(folder, folder.with_name("import"))
    return Comparison(
        {name: told[name] / truth[name] for name in TIMES},
        {name: None if value is None else value / truth[name] for name, value in imported.items() if name in TIMES},
        notes,
    )
