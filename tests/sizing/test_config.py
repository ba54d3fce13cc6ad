"""What a sweep may be asked for: refused before anything is sent, all that is wrong at once, never a secret told."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.errors import ConfigError
from workbench.sizing.config import Goal, build_sweep_config, confirm_target, is_loopback

GOOD: dict[str, Any] = {"url": "http://127.0.0.1:8000", "users": [1, 2]}


@pytest.mark.parametrize(
    ("text", "metric", "q", "limit_s"),
    [
        ("p95<=2", "runtime", 0.95, 2.0),
        ("p95 < 2.5 s", "runtime", 0.95, 2.5),
        ("ttft p99<=300ms", "ttft", 0.99, 0.3),
        ("llm:p50<=1s", "llm", 0.5, 1.0),
        ("itl_p99.9<=20ms", "itl", 0.999, 0.02),
        ("runtime_p95=10", "runtime", 0.95, 10.0),
    ],
)
def test_goals_are_read_as_people_write_them(text: str, metric: str, q: float, limit_s: float) -> None:
    assert Goal.read(text) == Goal(metric=metric, q=q, limit_s=limit_s)  # type: ignore[arg-type]
    assert Goal.read(Goal.read(text).name) == Goal.read(text)


@pytest.mark.parametrize(
    "text", ["", "p95", "95<=2", "p0<=1", "p100<=2", "p95<=0", "p95<=-1", "latency p95<=2", "p95>2"]
)
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a goal"):
        Goal.read(text)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"users": None}, "neither levels nor a goal"),
        ({"users": [0]}, r"users\[0\]"),
        ({"users": []}, "users"),
        ({"rates": [1.0]}, "rates need arrivals"),
        ({"arrivals": "poisson"}, "users are levels of a closed loop"),
        ({"arrivals": "poisson", "users": None, "rates": [5], "think_time_s": 1}, "think_time_s is for users"),
        ({"arrivals": "trace", "users": None, "rates": [5]}, "the file needs arrivals=trace"),
        ({"least_samples": 500, "most_samples": 100}, "most_samples is less"),
        ({"min_step_s": 200}, "max_step_s is less"),
        ({"max_cost": 5}, "max_cost needs a price"),
        ({"url": ""}, "must be like http://HOST:PORT"),
        ({"url": "ftp://h/x"}, "must be like http://HOST:PORT"),
        ({"url": "http://"}, "must be like http://HOST:PORT"),
        ({"url": "http://h:99999"}, "url does not parse"),
        ({"protocol": "openai"}, "needs the name of a model"),
        ({"protocol": "http", "body": {"q": 1}}, r"neither url nor body has \{prompt\}"),
        ({"protocol": "function"}, "url and protocol function exclude"),
        ({"function": "a:b"}, "needs protocol function, not nat"),
        ({"header_env": {"A b": "X"}}, "HEADER=VARIABLE"),
        ({"header_env": {"Authorization": "Bearer abc"}}, "not a value"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build_sweep_config(**GOOD | change)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        build_sweep_config(**GOOD | {"gpus": 0, "retries": -1, "seed": "x"})
    assert {"gpus", "retries", "seed"} <= {one.split(":")[0] for one in str(caught.value.facts["found"]).split("; ")}


@pytest.mark.parametrize(
    "change",
    [
        {"url": "http://ann:s3cr3t@127.0.0.1:8000"},
        {"url": "http://127.0.0.1/?api_key=s3cr3t"},
        {"url": "http://127.0.0.1/?a=1&access_token=s3cr3t"},
        {"header_env": {"Authorization": "s3cr3t 1"}},
        {"protocol": "openai", "model": "m", "extra_body": {"auth": [{"api_key": "s3cr3t"}]}},
        {"protocol": "http", "body": {"q": "{prompt}", "password": "s3cr3t"}},
    ],
)
def test_a_secret_is_refused_and_not_repeated(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        build_sweep_config(**GOOD | change)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1"])
def test_this_machine_needs_no_confirmation(host: str) -> None:
    assert is_loopback(host)
    url = f"http://[{host}]:1" if ":" in host else f"http://{host}:1"
    confirm_target(build_sweep_config(**GOOD | {"url": url}))


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "localhost.example.org", "10.0.0.1", "0.0.0.0"]
)
def test_any_other_host_is_to_be_named_twice(host: str) -> None:
    config = build_sweep_config(**GOOD | {"url": f"http://{host}:1"})
    with pytest.raises(ConfigError, match=f"add --target-confirm {host} "):
        confirm_target(config)
    with pytest.raises(ConfigError, match="another machine"):
        confirm_target(config.model_copy(update={"target_confirm": "127.0.0.1"}))
    confirm_target(config.model_copy(update={"target_confirm": host}))


@pytest.mark.parametrize(
    ("change", "means"),
    [
        ({}, "concurrent requests (users without think time)"),
        ({"think_time_s": 5}, "users, each thinking 5 s on average between requests"),
        (
            {"users": None, "arrivals": "poisson", "rates": [1]},
            "arrivals a second (poisson), whatever the service does",
        ),
    ],
)
def test_the_settings_say_what_a_level_counts(change: dict[str, Any], means: str) -> None:
    assert build_sweep_config(**GOOD | change).load_means == means
