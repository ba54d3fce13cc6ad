"""Record what other load tools write about the simulated service: python data/samples/sizing/record.py TOOL PYTHON

TOOL is nat, aiperf or guidellm, PYTHON the Python of an environment that has it. Every file is as the tool wrote it,
but for addresses and paths of the recording machine, which are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from workbench.sizing.simulation.cluster_model import Service  # noqa: E402
from workbench.sizing.simulation.http_connection import Exchange  # noqa: E402
from workbench.sizing.simulation.simulator_server import Simulator, scale_service_times  # noqa: E402

SERVICE = Service(slots=6, output_tokens=16, output_cv=0.4, input_tokens=120)
LEVELS = (2, 8)
REQUESTS = 120

TOKENIZER = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

signs = sorted(pre_tokenizers.ByteLevel.alphabet())
merges = [("\\u0120", "o"), ("\\u0120o", "n"), ("\\u0120on", "e")]
words = [*signs, *("".join(pair) for pair in merges), "[END]"]
made = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
made.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="[END]", pad_token="[END]")
fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
fast.save_pretrained(sys.argv[1])
"""

# guidellm uses torch for one thing, the loader that hands it prompts; torch itself is larger than all the rest.
TORCH = {
    "__init__.py": (
        "class Generator:\n    def manual_seed(self, seed):\n        return self\n\nfrom torch import utils\n"
    ),
    "utils/__init__.py": "from torch.utils import data\n",
    "utils/data/__init__.py": (
        "class Dataset:\n    pass\n\ndef get_worker_info():\n    return None\n\n"
        "from torch.utils.data.dataset import IterableDataset\nfrom torch.utils.data.dataloader import DataLoader\n"
    ),
    "utils/data/dataset.py": (
        "from typing import Generic, TypeVar\nT = TypeVar('T')\n\nclass IterableDataset(Generic[T]):\n    pass\n"
    ),
    "utils/data/dataloader.py": (
        "from typing import Generic, TypeVar\nT = TypeVar('T')\n\nclass DataLoader(Generic[T]):\n"
        "    def __init__(self, dataset, **options):\n        self.dataset = dataset\n\n"
        "    def __iter__(self):\n        return iter(self.dataset)\n"
    ),
}


class Failing(Simulator):
    """The simulated service that is overloaded once in 25 calls."""

    calls = 0

    def handle_request(self, exchange: Exchange) -> None:
        """Refuse every 25th call of the model."""
        if exchange.path == "/v1/chat/completions":
            self.calls += 1
            if self.calls % 25 == 0:
                exchange.send_answer(503, b'{"error":{"message":"overloaded","code":503}}')
                return
        super().handle_request(exchange)


@contextlib.contextmanager
def serving(*, failing: bool) -> Iterator[str]:
    """The service on a free port, in a thread."""
    ready, loop, ports = threading.Event(), asyncio.new_event_loop(), list[int]()

    async def start() -> None:
        simulator = Failing(scale_service_times(SERVICE, 1.0)) if failing else Simulator(SERVICE)
        server = await loop.create_server(simulator.create_connection, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    loop.create_task(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait(30)
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def called(python: Path, *command: str | Path, **variables: str) -> None:
    """Run a tool of that environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = kept | {"NO_COLOR": "1"} | variables
    subprocess.run(
        [str(python), *map(str, command)], check=True, env=environment, timeout=900, stdin=subprocess.DEVNULL
    )


def scrubbed(text: str, *places: Path) -> str:
    """A tool's file without the addresses and paths of this machine, and without the source lines in tracebacks."""
    for place in places:
        text = text.replace(str(place), "/data")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8400", text)
    text = re.sub(r'("traceback": ?)"(?:[^"\\]|\\.)*"', r"\1null", text)
    return re.sub(r'("platform": ?)"[^"]*"', r'\1"Linux"', text)


def kept(source: Path, target: Path, *places: Path) -> None:
    """Copy a file, scrubbed; gzip without time and name, so that the same content gives the same bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    content = scrubbed(source.read_text(), *places).encode()
    target.write_bytes(gzip.compress(content, 9, mtime=0) if target.suffix == ".gz" else content)


def record_aiperf(python: Path, scratch: Path) -> None:
    """Users in a sweep, with a time limit that some answers exceed; and arrivals at a rate, some of them refused."""
    called(python, "-c", TOKENIZER, scratch / "tokenizer")
    tool = [python.with_name("aiperf"), "profile", "--model", "workbench-simulator", "--endpoint-type", "chat"]
    tool += ["--streaming", "--tokenizer", scratch / "tokenizer", "--synthetic-input-tokens-mean", "40", "--ui", "none"]
    with serving(failing=False) as url:
        levels = ["--concurrency", ",".join(map(str, LEVELS)), "--request-count", str(REQUESTS)]
        limits = ["--warmup-request-count", "8", "--request-timeout-seconds", "0.25"]
        called(python, *tool, "--url", url, "--artifact-dir", scratch / "users", *levels, *limits)
    with serving(failing=True) as url:
        rate = ["--request-rate", "25", "--arrival-pattern", "poisson", "--request-count", str(REQUESTS)]
        called(python, *tool, "--url", url, "--artifact-dir", scratch / "rate", *rate)
    for file in sorted(scratch.rglob("profile_export.jsonl")):
        place = HERE / "aiperf" / file.parent.relative_to(scratch)
        for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
            kept(file.with_name(name), place / f"{name}.gz", scratch, python.parents[1])


def record_guidellm(python: Path, scratch: Path) -> None:
    """Streams, some answers refused; and arrivals at a rate."""
    called(python, "-c", TOKENIZER, scratch / "tokenizer")
    for name, text in TORCH.items():
        path = scratch / "stand-in" / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    streams = ["kind=concurrent", "--override", "profile.streams", ",".join(map(str, LEVELS))]
    profiles = {"users": (True, streams), "rate": (False, ["kind=poisson,rate=20"])}
    for name, (failing, profile) in profiles.items():
        with serving(failing=failing) as url:
            command = [python.with_name("guidellm"), "run", "--profile", *profile]
            command += ["--backend", f"kind=openai_http,target={url},model=workbench-simulator"]
            command += ["--constraint", f"kind=max_requests,count={REQUESTS}"]
            command += ["--tokenizer", f"kind=huggingface_auto,model={scratch / 'tokenizer'}"]
            command += ["--data", "kind=synthetic_text,prompt_tokens=40,output_tokens=16"]
            command += ["--output", f"kind=json,path={scratch / (name + '.json')}", "--disable-console-interactive"]
            called(python, *command, PYTHONPATH=str(scratch / "stand-in"), USE_TORCH="0", HF_HUB_OFFLINE="1")
        kept(scratch / f"{name}.json", HERE / "guidellm" / f"{name}.json.gz", scratch, python.parents[1])


def record_nat(python: Path, scratch: Path) -> None:
    """The calculator's file about the simulated service, and what `nat serve` answers."""
    from tests.sizing import natenv

    natenv.installed = lambda: python
    questions = [{"id": row, "question": f"question {row}", "answer": "none"} for row in range(40)]
    (scratch / "questions.json").write_text(json.dumps(questions))
    config = natenv.workflow(scratch, questions=scratch / "questions.json")
    with serving(failing=False) as url:
        done = natenv.nat(
            *("sizing", "calc", "--config_file", config, "--endpoint", url, "--calc_output_dir", scratch / "calc"),
            *("--concurrencies", "1,2,4,8,16", "--num_passes", "8", "--test_gpu_count", "1"),
            *("--target_workflow_runtime", "0.5", "--target_users", "100"),
            cwd=scratch,
            plugins=natenv.plugin(scratch),
        )
    done.check_returncode()
    kept(next((scratch / "calc").rglob("calc_runner_output.json")), HERE / "nat" / "calc_runner_output.json", scratch)
    with natenv.serving(config, plugins=natenv.plugin(scratch)) as url:
        import urllib.request

        asked = {"data": b'{"input_message":"what?"}', "headers": {"content-type": "application/json"}}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/generate/full", **asked)) as answer:
            (HERE / "nat" / "generate_full.txt").write_bytes(answer.read())


def main() -> int:
    """Record one tool."""
    tools = {"aiperf": record_aiperf, "guidellm": record_guidellm, "nat": record_nat}
    if len(sys.argv) != 3 or sys.argv[1] not in tools:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        tools[sys.argv[1]](Path(sys.argv[2]), Path(scratch))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
