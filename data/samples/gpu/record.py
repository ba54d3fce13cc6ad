"""Record the samples of this folder on a machine with a GPU that may be offline.

Needs the workbench, PyTorch and transformers (with what `transformers serve` imports), each importable by the Python
that runs this; CuPy where it is there. The model is made here: random weights of a Llama's shape, a tokenizer of
this project's pages, so that nothing is fetched. Its words mean nothing; the work of a token is that of a real one.

    python data/samples/gpu/record.py doctor OUT
    python data/samples/gpu/record.py indicators OUT
    python data/samples/gpu/record.py documents OUT
    python data/samples/gpu/record.py sizing OUT
    python data/samples/gpu/record.py model OUT

The last makes the model alone, in `OUT/made-llama`. `--small` shrinks everything, to try this on a machine without a
GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "workbench" / "indicators" / "shipped" / "scripts"
PORT = 8399
MODEL = "made-llama"
SHAPE = {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 5632, "num_attention_heads": 16}
SMALL_SHAPE = {"hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 512, "num_attention_heads": 4}
VOCABULARY = 4096
READY_S = 60
STOP_S = 40
DOCUMENTS = [
    {"framework": framework, "dtype": dtype, "device": "gpu"}
    for framework, dtypes in {
        "torch": ("float32", "tfloat32", "bfloat16", "float16", "float64"),
        "cupy": ("float32", "tfloat32", "float16", "float64"),
    }.items()
    for dtype in dtypes
]


def run_workbench(out: Path, *arguments: str) -> int:
    """The workbench's command in that folder, shown and run; its output also goes to a log there."""
    print("$ workbench", *arguments, flush=True)
    path = out / f"{arguments[0]}.txt"
    with path.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workbench", *arguments],
            cwd=out,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait()
        except KeyboardInterrupt:
            # It got the signal too, ends its round or step and writes what it has.
            process.wait(STOP_S)
    print(path.read_text(), flush=True)
    return process.returncode


def record_doctor(out: Path, *, small: bool) -> int:  # noqa: ARG001
    """What this machine can run, and its GPU."""
    run_workbench(out, "doctor")
    return 0


def record_indicators(out: Path, *, small: bool) -> int:
    """One environment, with the GPU hidden from it and with it: two stacks of one session."""
    loader = {"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]} if os.environ.get("LD_LIBRARY_PATH") else {}
    stacks = {"cpu": {"CUDA_VISIBLE_DEVICES": "-1"}, "gpu": {"CUDA_VISIBLE_DEVICES": "0"}}
    words = []
    for name, variables in stacks.items():
        # JSON is YAML; a list of one value is no dimension.
        env = {key: [value] for key, value in {**variables, **loader}.items()}
        (out / f"{name}.yaml").write_text(json.dumps({"environments": {name: sys.prefix}, "env": env}) + "\n")
        words += ["--stacks", f"{name}.yaml"]
    settings = {
        "--indicator": f"matmul:framework=torch,device=auto,n={512 if small else 1536},reps=20,warmup=3",
        "--baseline": "cpu",
        "--rounds": "5,8,12",
        "--threads": str(len(os.sched_getaffinity(0))),
        "--memory": "8GiB" if small else "64GiB",
        "--timeout": "120",
        "--seed": "7",
        "--out": ".",
    }
    words += [word for pair in settings.items() for word in pair]
    return run_workbench(out, "indicators", "run", *words)


def record_documents(out: Path, *, small: bool) -> int:
    """The scripts alone, as they lie, twice each: what each framework and type does on this GPU."""
    folder = out / "documents"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        beside = Path(name)
        for script in (*SCRIPTS.glob("*.py"), ROOT / "workbench" / "core" / "nvml.py"):
            (beside / ("_nvml.py" if script.name == "nvml.py" else script.name)).write_bytes(script.read_bytes())
        for run in (1, 2):
            for asked in DOCUMENTS:
                given = {"n": 256 if small else 4096, "reps": 20, "warmup": 3, "seed": run, **asked}
                if small:
                    given["device"] = "auto"
                variables = {f"PI_{key.upper()}": str(value) for key, value in given.items()}
                done = subprocess.run(
                    [sys.executable, "matmul.py"],
                    cwd=beside,
                    env={**os.environ, **variables, "PYTHONPATH": ""},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=120,
                )
                label = f"{asked['framework']}-{asked['dtype']}-{run}"
                if done.returncode:
                    print(f"{label}: {done.stderr.strip()[-300:]}", flush=True)
                    continue
                (folder / f"{label}.stdout").write_text(done.stdout)
                told = json.loads(done.stdout)
                build = told[f"{asked['framework']}_buildinfo"]
                print(label, told["@result"], told["@checks"], build.get("gpu"), flush=True)
    return 0


def record_model(out: Path, *, small: bool) -> int:
    """The made model alone."""
    make_model(out / MODEL, small=small)
    return 0


def make_model(folder: Path, *, small: bool) -> None:
    """A Llama of random weights with a tokenizer trained on this project's own pages."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<end>"], show_progress=False)
    tokenizer.train([str(page) for page in sorted((ROOT / "docs").rglob("*.md"))], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.chat_template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape = SMALL_SHAPE if small else SHAPE
    heads = shape["num_attention_heads"]
    config = LlamaConfig(
        vocab_size=len(fast),
        num_key_value_heads=heads // 2,
        max_position_embeddings=4096,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=False,
        **shape,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    # A score of 0 is never the largest of thousands: no answer ends before its length.
    model.lm_head.weight.data[0] = 0
    model.generation_config = GenerationConfig(do_sample=False, eos_token_id=0, pad_token_id=0)
    model.save_pretrained(folder)
    print(f"model of {sum(one.numel() for one in model.parameters()) / 1e6:.0f} M parameters", flush=True)


@contextlib.contextmanager
def serve_model(folder: Path, log: Path, options: Sequence[str]) -> Iterator[str]:
    """`transformers serve` until the block ends; gives its first answers.

    Raises
    ------
    OSError
        It ended, was not ready in time, or refused to answer.
    """
    command = [str(Path(sys.executable).parent / "transformers"), "serve", folder.name, "--port", str(PORT)]
    command += ["--host", "127.0.0.1", "--dtype", "bfloat16", "--log-level", "error", *options]
    print("$", *command[1:], flush=True)
    with log.open("a") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=folder.parent)
        try:
            wait_ready(server)
            # The first ones compile and fill caches.
            for _ in range(3):
                answer = ask(folder.name, 16)
            yield json.dumps(answer)
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()


def wait_ready(server: subprocess.Popen[bytes]) -> None:
    """Until it answers that it is healthy."""
    for _ in range(READY_S * 4):
        if server.poll() is not None:
            raise OSError(f"transformers serve ended with {server.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2) as done:
            if done.status == 200:
                return
        time.sleep(0.25)
    raise OSError(f"transformers serve is not ready after {READY_S} s")


def ask(model: str, tokens: int) -> Any:
    """One answer, whole."""
    body = {"model": model, "messages": [{"role": "user", "content": "Tell me."}], "max_tokens": tokens}
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def record_sizing(out: Path, *, small: bool) -> int:
    """Sweep, estimate and verification of the made model, with the GPU's own view beside."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / MODEL
        make_model(folder, small=small)
        for options in (["--continuous-batching"], ["--continuous-batching", "--attn-implementation", "sdpa"], []):
            try:
                with serve_model(folder, out / "serve.log", options) as answer:
                    print(answer[:600], flush=True)
                    return measure_model(out, folder.name, small=small)
            except OSError as error:
                print(f"{options}: {error}\n{(out / 'serve.log').read_text()[-2000:]}", flush=True)
    return 1


def measure_model(out: Path, model: str, *, small: bool) -> int:
    """Prompts of 200 tokens, answers of 16, by users who wait for their answer."""
    levels = "1,2" if small else "32,64,96,128,192,256"
    limit = "4" if small else "2.5"
    settings = {
        "--protocol": "openai",
        "--url": f"http://127.0.0.1:{PORT}/v1",
        "--model": model,
        "--input-tokens": "200",
        "--output-tokens": "8" if small else "16",
        "--extra-body": '{"stream_options": null}',
        "--users": levels,
        "--samples": "20" if small else "60",
        "--max-step": "20" if small else "16",
        "--timeout": "60",
        "--processes": "1" if small else "4",
        "--target-users": "4" if small else "500",
        "--seed": "7",
        "--out": ".",
    }
    words = [word for pair in settings.items() for word in pair]
    words += ["--goal", f"p95<={limit}", "--unique-prefix", "--verify"]
    return run_workbench(out, "sizing", "run", *words, *([] if small else ["--gpu-metrics"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stages = {
        "doctor": record_doctor,
        "indicators": record_indicators,
        "documents": record_documents,
        "sizing": record_sizing,
        "model": record_model,
    }
    parser.add_argument("stage", choices=stages)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--small", action="store_true", help="small shapes, few requests: to try the script itself")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    return stages[given.stage](given.out.resolve(), small=given.small)


if __name__ == "__main__":
    sys.exit(main())
