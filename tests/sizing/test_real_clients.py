"""The makers' own clients read what the simulated service answers at each door: our protocols are theirs."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.fakes.cached_environment import build_environment, install_environment
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
PACKAGES = ("openai==2.8.1", "anthropic==0.75.0")
QUICK = Service(
    slots=8, input_tokens=40, input_cv=0, output_tokens=10, output_cv=0, decode_base_s=0.002, decode_per_sequence_s=0
)
SCRIPT = """
import json, sys
import anthropic, openai

url, found = sys.argv[1], {}
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
said = [{"role": "user", "content": "Hello"}]

pieces = list(client.chat.completions.create(model="m", messages=said, max_tokens=6, stream=True,
                                             stream_options={"include_usage": True}))
text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
found["chat"] = [text.split(), pieces[-1].usage.completion_tokens]

pieces = list(client.completions.create(model="m", prompt="Hello", max_tokens=6, stream=True,
                                        stream_options={"include_usage": True}))
found["completions"] = ["".join(piece.choices[0].text for piece in pieces).split(), pieces[-1].usage.completion_tokens]

with client.responses.stream(model="m", input=said, max_output_tokens=6) as stream:
    text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
found["responses"] = [text.split()]
whole = client.responses.create(model="m", input="Hello", max_output_tokens=6)
found["response"] = [whole.output_text.split(), whole.usage.output_tokens, whole.status]

found["embeddings"] = len(client.embeddings.create(model="m", input="Hello").data[0].embedding)

client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
with client.messages.stream(model="m", max_tokens=6, messages=said) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
found["messages"] = [text.split(), final.usage.output_tokens, final.stop_reason]
whole = client.messages.create(model="m", max_tokens=6, messages=said)
found["message"] = [whole.content[0].text.split(), whole.usage.output_tokens, whole.stop_reason]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    python = install_environment("ml/clients-2.8.1", PACKAGES)
    with run_simulator(QUICK) as url:
        done = subprocess.run(
            [python, "-c", SCRIPT, url],
            env=build_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("door", "wanted"),
    [
        ("chat", [["one"] * 6, 6]),
        ("completions", [["one"] * 6, 6]),
        ("responses", [["one"] * 6]),
        ("response", [["one"] * 6, 6, "incomplete"]),
        ("embeddings", 2),
        ("messages", [["one"] * 6, 6, "max_tokens"]),
        ("message", [["one"] * 6, 6, "max_tokens"]),
    ],
)
def test_the_makers_client_reads_every_answer(found: dict[str, Any], door: str, wanted: Any) -> None:
    assert found[door] == wanted
