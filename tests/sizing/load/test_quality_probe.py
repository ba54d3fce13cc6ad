"""Questions with known answers among the load: what is right, what a level says of it, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation.answer_profiles import find_wrong_steps
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.estimation.step_points import PointLimits
from workbench.sizing.load.quality_probe import Probe, read_probes
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service


def write_probes(folder: Path, *documents: Any) -> Path:
    path = folder / "probes.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def ends_with_full_stop(prompt: str, answer: str) -> bool:
    """An own check."""
    if answer == "raise":
        raise ValueError(prompt)
    return answer.endswith(".")


OWN_CHECK = f"{__name__}:ends_with_full_stop"


@pytest.mark.parametrize(
    ("probe", "answer", "is_right"),
    [
        (Probe("2 + 2?", answer="4"), "4", True),
        (Probe("2 + 2?", answer="4"), "It is 4", False),
        (Probe("Capital?", contains="paris"), "It is Paris.", True),
        (Probe("JSON", schema={"type": "object", "required": ["a"]}), '{"a": 1}', True),
        (Probe("JSON", schema={"type": "object", "required": ["a"]}), "{}", False),
        (Probe("JSON", schema={"type": "object"}), "not JSON", False),
        (Probe("JSON", schema={"type": "array"}), "[" * 100_000, False),
        (Probe("Any", check=OWN_CHECK), "Yes.", True),
        (Probe("Any", check=OWN_CHECK), "Yes", False),
        (Probe("Any", check=OWN_CHECK), "raise", False),
    ],
)
def test_an_answer_is_right_or_not(probe: Probe, answer: str, is_right: bool) -> None:
    assert probe.is_right(answer) is is_right


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"prompt": "a"}, "not a probe"),
        ({"prompt": "a", "answer": "b", "contains": "c"}, "not a probe"),
        ({"prompt": "a", "answer": 4}, "answer: int"),
        ({"prompt": "a", "anwser": "b"}, "not a probe"),
        ([1], "not a probe"),
        ({"prompt": "a", "schema": {"type": "nothing"}}, "not a JSON schema"),
        ({"prompt": "a", "schema": {"properties": {"b": {"$ref": "file:///etc/hosts"}}}}, "refers to another document"),
    ],
)
def test_a_wrong_probe_is_refused_with_its_line(tmp_path: Path, document: Any, told: str) -> None:
    path = write_probes(tmp_path, {"prompt": "a", "answer": "b"}, document)
    with pytest.raises(InputError, match=told) as error:
        read_probes(path)
    assert "line 2" in str(error.value)


def test_an_own_check_that_is_not_there_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot load the function"):
        read_probes(write_probes(tmp_path, {"prompt": "a", "check": "nobody:nothing"}))
    with pytest.raises(InputError, match="no probes"):
        read_probes(write_probes(tmp_path))


def build_points(shares: list[tuple[float, int, float]]) -> pl.DataFrame:
    """Points of loads with so many probes and this share of right answers."""
    names = ("load", "n_probed", "right_share")
    columns = {name: [row[place] for row in shares] for place, name in enumerate(names)}
    return pl.DataFrame(columns | {"step": range(len(shares)), "gpus": 1, "load_unit": "users"})


def test_a_level_whose_answers_are_wrong_more_often_is_named() -> None:
    found = find_wrong_steps(build_points([(1, 40, 1.0), (8, 40, 0.95), (32, 40, 0.5)]))
    assert list(found) == [2]
    assert found[2] == ("other answers", "50 % of 40 probes are right, 97.5 % of 80 at the lower loads")


def test_few_probes_at_the_lowest_load_do_not_hide_what_more_loads_show() -> None:
    found = find_wrong_steps(build_points([(1, 6, 1.0), (2, 8, 1.0), (8, 50, 1.0), (16, 87, 0.98), (32, 140, 0.65)]))
    assert list(found) == [4]


def test_equal_quality_is_hardly_ever_called_worse() -> None:
    import numpy as np

    random = np.random.default_rng(1)
    wrong = sum(
        bool(find_wrong_steps(build_points([(load, 40, random.binomial(40, 0.9) / 40) for load in (1, 2, 4, 8)])))
        for _ in range(1000)
    )
    assert wrong <= 5


def probed(right_share: float) -> tuple[pl.DataFrame, pl.DataFrame, Any]:
    """A sweep in virtual time of which each fifth request is a probe; at 16 users only this share is right."""
    config = build_sweep_config(protocol="function", users=[1, 4, 16], simulated=True, goals=[Goal.read("p95<=9")])
    requests, steps = virtual_time.simulate_sweep(Service(), config)
    place = pl.col("request")
    right = pl.when(pl.col("step") < 2).then(True).otherwise(place // 5 % 100 < 100 * right_share)
    return requests.with_columns(right=pl.when(place % 5 == 0).then(right)), steps, config


def test_goodput_counts_right_answers_only() -> None:
    requests, steps, config = probed(0.9)
    answer = compute_answer(requests, steps, config.goals, 50, limits=PointLimits.from_config(config))
    points = answer.points.sort("load")
    assert points["right_share"].to_list()[:2] == [1.0, 1.0]
    last = answer.goodput.sort("load").row(-1, named=True)
    share = points["right_share"].to_list()[-1]
    assert last["right_share"] == pytest.approx(share)
    assert last["goodput_per_s"] == pytest.approx(last["within_share"] * points["rate_per_s"].to_list()[-1] * share)


def test_a_level_of_wrong_answers_is_not_served() -> None:
    requests, steps, config = probed(0.4)
    answer = compute_answer(requests, steps, config.goals, 50, limits=PointLimits.from_config(config))
    last = answer.points.sort("load").row(-1, named=True)
    assert last["verdict"] == "other answers"
    assert "probes are right" in last["reason"]


async def answer_worse_when_busy(prompt: str) -> str:
    """A service whose answers are wrong under load."""
    global in_flight
    in_flight += 1
    is_busy = in_flight > 4
    await asyncio.sleep(0.005)
    in_flight -= 1
    return "5" if is_busy else "4"


in_flight = 0


@pytest.mark.live
def test_a_busy_service_that_answers_wrong_is_found(tmp_path: Path) -> None:
    probes = write_probes(tmp_path, {"prompt": "2 + 2?", "answer": "4"})
    found = run_sweep(
        answer_worse_when_busy,
        protocol="function",
        users=[1, 32],
        probes=probes,
        probe_share=0.25,
        least_samples=100,
        most_samples=200,
        goals=[Goal.read("p95<=1")],
        processes=0,
    )
    by_step = found.requests.drop_nulls("right").group_by("step").agg(pl.col("right").mean(), pl.len()).sort("step")
    assert by_step["right"].to_list()[0] == 1.0
    assert by_step["right"].to_list()[1] < 0.6
    assert (by_step["len"] >= 20).all()
    answer = compute_answer(
        found.requests, found.steps, found.config.goals, 50, limits=PointLimits.from_config(found.config)
    )
    assert answer.points.sort("load")["verdict"].to_list()[-1] == "other answers"
