"""A real model server: `transformers serve` with a made model streams, counts tokens, and says what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import transformers_server
from workbench.sizing.load.sweep_runner import run_sweep

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
N_TOKENS = 8
QUICK: dict[str, Any] = {"least_samples": 20, "most_samples": 20, "min_step_s": 0, "processes": 0, "timeout_s": 60}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transformers_server.serving(tmp_path_factory.mktemp("served")) as found:
        yield f"{found}/v1"


def sweep(url: str, **settings: Any) -> Any:
    asked = {"protocol": "openai", "model": transformers_server.MODEL, "output_tokens": N_TOKENS, **QUICK, **settings}
    return run_sweep(url=url, **asked)


def test_streams_are_read_and_tokens_are_those_of_its_usage(url: str) -> None:
    found = sweep(url, users=[2], extra_body={"stream_options": None}, input_tokens=40, unique_prefix=True)
    kept = found.requests.filter(found.requests["outcome"] == "ok")
    # A token that is half a sign is no text: an answer of eight of them is one without a token.
    assert kept.height >= 0.9 * found.requests.height
    assert set(kept["output_tokens"]) == {N_TOKENS}
    assert kept["input_tokens"].min() > 20
    assert (kept["ttft_s"] < kept["runtime_s"]).all()
    assert kept["itl_s"].null_count() < kept.height
    assert set(found.requests["outcome"]) <= {"ok", "malformed"}


def test_a_model_that_is_not_there_is_no_answer(url: str) -> None:
    found = sweep(url, users=[1], model="nobody/nothing", extra_body={"stream_options": None})
    assert "ok" not in set(found.requests["outcome"])


@pytest.mark.parametrize("protocol", ["openai", "responses"])
def test_both_of_its_doors_are_driven(url: str, protocol: str) -> None:
    extra = {"stream_options": None} if protocol == "openai" else {"store": None}
    found = sweep(url, protocol=protocol, users=[2], extra_body=extra, input_tokens=40, unique_prefix=True)
    kept = found.requests.filter(found.requests["outcome"] == "ok")
    assert kept.height >= 0.5 * found.requests.height
    assert (kept["ttft_s"] < kept["runtime_s"]).all()
