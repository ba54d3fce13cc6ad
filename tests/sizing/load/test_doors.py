"""Every protocol of a service, driven against the simulator: what is measured of each, and what a goal may ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from workbench.core.errors import ConfigError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator

QUICK = Service(
    slots=8, input_tokens=40, input_cv=0, output_tokens=10, output_cv=0, decode_base_s=0.002, decode_per_sequence_s=0
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_simulator(QUICK) as found:
        yield found


def measure(url: str, protocol: str, **changed: Any) -> Any:
    settings = {"url": url, "protocol": protocol, "model": "simulated", "users": [2], "least_samples": 20}
    settings |= {"most_samples": 30, "processes": 0, "goals": [Goal.read("p95<=1")]}
    return run_sweep(None, **settings | changed)


@pytest.mark.live
@pytest.mark.parametrize("protocol", ["openai", "responses", "anthropic"])
@pytest.mark.parametrize("path", ["", "/v1"])
def test_streamed_answers_tell_tokens_and_times(url: str, protocol: str, path: str) -> None:
    found = measure(url + path, protocol, output_tokens=6)
    kept = found.requests.filter(found.requests["outcome"] == "ok")
    assert kept.height == found.requests.height
    assert kept["ttft_s"].null_count() == 0
    assert kept["output_tokens"].unique().to_list() == [6]
    assert kept["input_tokens"].min() >= 40
    assert kept["finish_reason"].unique().to_list() == ["length"]
    assert found.steps["simulated"].all()


@pytest.mark.live
def test_completions_by_the_url(url: str) -> None:
    found = measure(f"{url}/v1/completions", "openai", output_tokens=6)
    assert found.requests["outcome"].unique().to_list() == ["ok"]
    assert found.requests["output_tokens"].unique().to_list() == [6]


@pytest.mark.live
@pytest.mark.parametrize("protocol", ["embeddings", "rerank"])
def test_answers_without_tokens_have_a_runtime_and_no_first_token(url: str, protocol: str) -> None:
    found = measure(url, protocol)
    assert found.requests["outcome"].unique().to_list() == ["ok"]
    assert found.requests["ttft_s"].null_count() == found.requests.height
    assert found.requests["runtime_s"].null_count() == 0
    assert found.requests["input_tokens"].min() >= 40


@pytest.mark.parametrize("protocol", ["embeddings", "rerank"])
def test_a_goal_on_tokens_that_an_answer_does_not_have_is_refused(protocol: str) -> None:
    with pytest.raises(ConfigError, match=r"have no tokens: set goals on runtime"):
        build_sweep_config(url="http://a", protocol=protocol, model="m", goals=[Goal.read("ttft p95<=1")])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"protocol": "responses"}, "responses needs the name of a model"),
        ({"protocol": "rerank", "model": "m", "turns": 2}, "turns needs protocol openai, responses, anthropic"),
        (
            {"protocol": "anthropic", "model": "m", "output_tokens": 9, "exact_output": True},
            "exact_output needs protocol openai",
        ),
    ],
)
def test_settings_that_a_protocol_does_not_have_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_sweep_config(url="http://a", users=[1], **settings)
