"""A real llama.cpp server with tiny made models: chat, completions, responses, messages, embeddings, rerank.

The program is `llama-server` of the path, or `WORKBENCH_LLAMA_SERVER`. The models have random weights: their answers
mean nothing, and half of their tokens are parts of signs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.cached_environment import install_environment
from tests.fakes.server_start import choose_port, wait_until_answered

PROGRAM = os.environ.get("WORKBENCH_LLAMA_SERVER") or shutil.which("llama-server")
VERSION = "0.19.0"
START_TIMEOUT_S = 60
KINDS = {
    "chat": ["-np", "4", "-c", "16384"],
    "embeddings": ["--embeddings", "--pooling", "mean", "-c", "16384"],
    "rerank": ["--rerank", "-c", "16384"],
}

# Runs in an environment of its own that has gguf.
WRITE_MODEL = r"""
import sys
import gguf
import numpy as np

path, ranks = sys.argv[1], sys.argv[2] == "rerank"
draw = np.random.default_rng(0)
width, n_layers, heads, head, inner = 64, 2, 4, 16, 128
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
signs = {byte: chr(byte) for byte in plain}
signs |= {byte: chr(256 + place) for place, byte in enumerate(sorted({*range(256)} - {*plain}))}
tokens = [signs[byte] for byte in range(256)] + ["\u0120t", "\u0120th", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
model = gguf.GGUFWriter(path, "qwen3")
model.add_context_length(32768)
model.add_embedding_length(width)
model.add_block_count(n_layers)
model.add_feed_forward_length(inner)
model.add_head_count(heads)
model.add_head_count_kv(heads)
model.add_key_length(head)
model.add_value_length(head)
model.add_layer_norm_rms_eps(1e-6)
model.add_vocab_size(len(tokens))
model.add_tokenizer_model("gpt2")
model.add_tokenizer_pre("qwen2")
model.add_token_list(tokens)
model.add_token_types([1] * (len(tokens) - 3) + [3] * 3)
model.add_token_merges(["\u0120 t", "\u0120t h"])
for add in (model.add_bos_token_id, model.add_eos_token_id, model.add_pad_token_id, model.add_sep_token_id):
    add(len(tokens) - 3)
model.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: ")

def add_tensor(name, *shape):
    values = np.ones(shape) if len(shape) == 1 else draw.normal(0, 0.05, shape)
    model.add_tensor(name, values.astype(np.float32))

add_tensor("token_embd.weight", len(tokens), width)
add_tensor("output_norm.weight", width)
add_tensor("output.weight", len(tokens), width)
for layer in range(n_layers):
    for name, *shape in (
        ("attn_norm", width), ("ffn_norm", width), ("attn_q_norm", head), ("attn_k_norm", head),
        ("attn_q", heads * head, width), ("attn_k", heads * head, width), ("attn_v", heads * head, width),
        ("attn_output", width, heads * head), ("ffn_gate", inner, width), ("ffn_up", inner, width),
        ("ffn_down", width, inner),
    ):
        add_tensor(f"blk.{layer}.{name}.weight", *shape)
if ranks:
    model.add_pooling_type(gguf.PoolingType.RANK)
    model.add_array("qwen3.classifier.output_labels", ["yes", "no"])
    add_tensor("cls.output.weight", 2, width)
model.write_header_to_file()
model.write_kv_data_to_file()
model.write_tensors_to_file()
model.close()
"""


@contextlib.contextmanager
def serving(folder: Path, kind: str) -> Iterator[str]:
    """Serve a made model on a free port of this machine; yields the URL."""
    assert PROGRAM is not None
    model = folder / f"{kind}.gguf"
    python = install_environment(f"ml/gguf-{VERSION}", (f"gguf=={VERSION}",))
    subprocess.run([python, "-c", WRITE_MODEL, model, kind], check=True, capture_output=True, timeout=START_TIMEOUT_S)
    port = choose_port()
    common = [
        "-m",
        model,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-t",
        "1",
        "-b",
        "4096",
        "-ub",
        "4096",
    ]
    server = subprocess.Popen([PROGRAM, *common, *KINDS[kind]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_answered(server, f"{url}/health", START_TIMEOUT_S)
        yield url
    finally:
        server.terminate()
        server.wait(10)
