"""Sweeps against a service that misbehaves: what is counted is what the service did, and nothing ends a sweep."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.hostile import Hostile, Plan, hostile
from workbench.core.errors import ConfigError, RunFailedError
from workbench.sizing.estimation.metrics import METRICS
from workbench.sizing.load import client_messages
from workbench.sizing.load.client_pool import split_command
from workbench.sizing.load.load_step import StepResult, StopRequest
from workbench.sizing.load.sweep_report import SweepResult, SweepWatcher
from workbench.sizing.load.sweep_runner import run_sweep, run_sweep_async

OUTCOME_OF = {
    "ok": "ok",
    "big": "ok",
    "4xx": "http_error",
    "500": "http_error",
    "reset": "cut",
    "cut": "cut",
    "silent": "cut",
    "stall": "timeout",
    "invalid": "malformed",
    "huge": "malformed",
    "error": "failed",
}
FEW = {"least_samples": 20, "most_samples": 20, "min_step_s": 0.0, "processes": 0, "timeout_s": 20.0}
ENDLESS = FEW | {"least_samples": 100_000, "most_samples": 100_000}


def outcomes(sweep: SweepResult) -> Counter[str]:
    return Counter(sweep.requests["outcome"].to_list())


def expected(server: Hostile) -> Counter[str]:
    found: Counter[str] = Counter()
    for mode, count in server.counts.items():
        found[OUTCOME_OF[mode]] += count
    return +found


class When(SweepWatcher):
    """Does something once, when something holds of the running step."""

    def __init__(self, holds: Callable[[StepResult], bool], do: Callable[[], object]) -> None:
        self._holds = holds
        self._do = do
        self.done = False

    def on_progress(self, held: StepResult) -> None:
        if not self.done and self._holds(held):
            self.done = True
            self._do()


@pytest.mark.parametrize(
    ("users", "processes"), [(1, 0), (7, 2), (64, 0), pytest.param(256, 0, marks=pytest.mark.live)]
)
def test_the_service_counts_exactly_as_many_in_flight_as_asked(users: int, processes: int) -> None:
    with hostile(hold_until=users, events=0) as server:
        found = run_sweep(url=server.url, users=[users], **FEW | {"timeout_s": 120.0, "processes": processes})
        assert server.peak == users
        # The first one of each process rests a moment.
        assert users <= server.connections <= users + max(1, processes)
        assert expected(server) == outcomes(found) == {"ok": server.total}
    assert found.steps["processes"].to_list() == [max(1, processes)]
    assert found.requests["item"].n_unique() == found.requests.height
    assert found.points["in_flight"][0] <= users


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_every_failure_is_counted_by_its_kind_and_the_sweep_goes_on(processes: int) -> None:
    shares = {"4xx": 0.25, "reset": 0.05, "cut": 0.03, "invalid": 0.05, "big": 0.02, "error": 0.03, "silent": 0.02}
    with hostile(delay_s=0.01, shares=shares) as server:
        settings = FEW | {"least_samples": 150, "most_samples": 150, "processes": processes}
        found = run_sweep(url=server.url, users=[4, 16], **settings)
        assert outcomes(found) == expected(server)
        assert set(server.counts) == {"ok", *shares}
    assert found.steps["stopped"].to_list() == ["samples", "samples"]
    assert found.points["verdict"].to_list() == ["interrupted", "interrupted"]
    failed = found.requests.filter(pl.col("outcome") != "ok")
    assert failed["runtime_s"].null_count() == failed.height
    assert found.requests.filter(pl.col("outcome") == "ok")["runtime_s"].min() >= 0.01  # type: ignore[operator]


def test_a_quarter_of_refusals_makes_the_p95_null_and_the_point_invalid() -> None:
    with hostile(shares={"4xx": 0.25}) as server:
        found = run_sweep(url=server.url, users=[4], **FEW | {"least_samples": 200, "most_samples": 200})
    quantiles = found.quantiles.filter(pl.col("metric") == "runtime")
    assert quantiles.filter(pl.col("q") == 0.5)["value_s"][0] is not None
    assert quantiles.filter(pl.col("q") == 0.95)["value_s"][0] is None
    assert found.points["error_ratio"][0] == pytest.approx(0.25, abs=0.1)
    assert found.points["n_http_error"][0] > 0
    assert found.reasons[0].startswith("4 users: interrupted, ")
    (failure,) = found.failures[0]
    assert failure == f'http_error 422: {{"detail": "field required"}} (asked {server.url}/generate/full)'


@pytest.mark.live
def test_a_service_that_dies_and_returns_is_counted_and_the_sweep_goes_on() -> None:
    with hostile(delay_s=0.01) as server:
        down = When(lambda held: len(held.requests) >= 40, server.down)
        up = When(lambda held: down.done and sum(row.outcome == "refused" for row in held.requests) >= 8, server.up)

        class Both(SweepWatcher):
            def on_progress(self, held: StepResult) -> None:
                down.on_progress(held)
                up.on_progress(held)

        settings = FEW | {"least_samples": 300, "most_samples": 300}
        found = run_sweep(url=server.url, users=[8, 4], watcher=Both(), **settings)
        counted = outcomes(found)
        assert counted["ok"] == server.counts["ok"]
        assert counted["cut"] >= server.counts["torn"]
    assert down.done
    assert up.done
    assert counted["refused"] >= 8
    assert set(counted) <= {"ok", "cut", "refused"}
    refused = found.requests.filter(step=0, outcome="refused")
    assert found.requests.filter(pl.col("sent_s") > refused["ended_s"].max(), step=0, outcome="ok").height > 0
    assert set(found.requests.filter(step=1)["outcome"]) == {"ok"}
    assert found.ended == "finished"


@pytest.mark.live
def test_nobody_there_is_a_sweep_of_refusals_and_no_flood_of_them() -> None:
    with hostile() as server:
        server.down()
        found = run_sweep(url=server.url, users=[4], **FEW | {"max_step_s": 1.0})
    assert set(outcomes(found)) == {"refused"}
    # Four users with pauses of 20 ms that double up to a second.
    assert found.requests.height < 4 * 12
    assert found.points["verdict"].to_list() == ["interrupted"]


def test_retries_are_off_unless_asked_for() -> None:
    with hostile(cycle=["500", "ok"]) as server:
        found = run_sweep(url=server.url, users=[1], **FEW)
        assert found.requests["retries"].sum() == 0
        assert outcomes(found)["http_error"] == server.counts["500"]


def test_retries_are_counted_apart_and_their_time_counts() -> None:
    with hostile(cycle=["500"] + ["ok"] * 39) as server:
        found = run_sweep(url=server.url, users=[1], **FEW | {"retries": 2})
        assert server.total == found.requests.height + found.requests["retries"].sum()
        assert found.requests["retries"].sum() == server.counts["500"]
    retried = found.requests.filter(pl.col("retries") > 0)
    assert set(outcomes(found)) == {"ok"}
    # The pause before the first retry is a second.
    assert retried["runtime_s"].min() >= 1.0  # type: ignore[operator]
    assert found.points["n_retries"].sum() <= found.requests["retries"].sum()


def test_rows_are_numbered_by_intended_times_and_times_are_in_order() -> None:
    with hostile(delay_s=0.005) as server:
        found = run_sweep(url=server.url, users=[8], **FEW | {"processes": 2})
    frame = found.requests
    assert frame["request"].to_list() == list(range(frame.height))
    assert frame["intended_s"].is_sorted()
    assert (frame["intended_s"] <= frame["sent_s"]).all()
    assert (frame["sent_s"] < frame["ended_s"]).all()
    assert frame.filter(pl.col("outcome") == "ok").select(
        ((pl.col("ended_s") - pl.col("intended_s")) - pl.col("runtime_s")).abs().max()
    ).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.live
def test_an_open_loop_sends_when_it_is_time_and_not_when_there_is_room() -> None:
    with hostile(delay_s=0.5) as server:
        found = run_sweep(url=server.url, arrivals="constant", rates=[50], **FEW | {"max_step_s": 1.5})
        # Users would have sent the next one only after an answer; half a second at 50/s are 25.
        assert server.peak >= 20
    step = found.steps.row(0, named=True)
    assert (step["loop"], step["users"], step["rate_per_s"], step["arrivals"]) == ("open", None, 50.0, "constant")
    gaps = found.requests["intended_s"].diff().drop_nulls()
    assert gaps.min() == pytest.approx(0.02, abs=1e-9)
    assert gaps.max() == pytest.approx(0.02, abs=1e-9)


@pytest.mark.live
def test_in_an_open_loop_waiting_for_room_counts_as_latency() -> None:
    with hostile(delay_s=0.2) as server:
        settings = FEW | {"max_in_flight": 2, "max_step_s": 2.0}
        found = run_sweep(url=server.url, arrivals="constant", rates=[40], **settings)
        assert server.peak == 2
    assert found.requests["runtime_s"].max() > 0.5  # type: ignore[operator]
    assert (found.requests["sent_s"] - found.requests["intended_s"]).max() > 0.3  # type: ignore[operator]
    assert found.points["verdict"].to_list() != ["valid"]


@pytest.mark.live
def test_users_that_think_pause_between_requests_and_end_with_the_step() -> None:
    with hostile() as server:
        settings = FEW | {"max_step_s": 1.0, "min_step_s": 0.0}
        found = run_sweep(url=server.url, users=[10], think_time_s=100.0, ramp_s=0.1, **settings)
        assert server.total <= 12
    assert found.config.load_means == "users, each thinking 100 s on average between requests"
    assert found.steps["think_s"].to_list() == [100.0]
    assert found.steps["duration_s"][0] < 20


def test_the_mix_of_prompts_is_the_same_at_every_level(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(f"p{number}" for number in range(5)))
    with hostile() as server:
        found = run_sweep(url=server.url, users=[1, 5], prompts=path, **FEW)
    counts = found.requests.group_by("step", "item").len()
    for step in (0, 1):
        of_step = counts.filter(pl.col("step") == step)["len"]
        assert of_step.len() == 5
        assert of_step.max() - of_step.min() <= 1  # type: ignore[operator]
    assert found.points["repeated_prompts"].min() > 0.5  # type: ignore[operator]


@pytest.mark.parametrize(("processes", "users"), [(0, 4), (2, 4), (2, 1)])
def test_limits_on_requests_are_exact(processes: int, users: int) -> None:
    with hostile() as server:
        settings = FEW | {"processes": processes, "least_samples": 30, "most_samples": 30}
        found = run_sweep(url=server.url, users=[users, 8], max_requests=29, **settings)
        assert server.total == found.requests.height == 29
    assert found.ended == "limit"
    assert found.limit == "--max-requests 29"
    assert found.steps["duration_s"][0] < 20


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_tokens": 300}, "--max-tokens 300"),
        ({"max_cost": 1.0, "price_million_output": 10_000.0}, "--max-cost 1"),
        ({"max_duration_s": 0.5}, "--max-duration 0.5"),
    ],
)
def test_other_limits_end_the_sweep_and_say_so(limits: dict[str, Any], told: str) -> None:
    with hostile(delay_s=0.01) as server:
        found = run_sweep(url=server.url, users=[2, 4], **ENDLESS, **limits)
        assert server.total == found.requests.height
    assert (found.ended, found.limit) == ("limit", told)
    assert found.steps["stopped"].to_list() == ["limit"]
    assert found.reasons[0] == f"the sweep ended at its limit, {told}"


@pytest.mark.parametrize("limits", [{"max_tokens": 300}, {"max_cost": 1.0, "price_million_input": 1.0}])
def test_a_limit_on_tokens_ends_a_sweep_of_a_service_that_tells_none(limits: dict[str, Any]) -> None:
    found = run_sweep(workflow, users=[2, 4], **ENDLESS, **limits)
    assert found.ended == "limit"
    assert "cannot be kept: the service reports no tokens" in str(found.limit)
    assert found.steps.height == 1


def test_a_simulator_is_told_from_a_service_even_when_nobody_said_so() -> None:
    with hostile(server_name="workbench-simulator") as server:
        found = run_sweep(url=server.url, users=[2], **FEW)
    assert found.steps["simulated"].to_list() == [True]
    assert found.answer.startswith("simulated: ")
    with hostile() as server:
        found = run_sweep(url=server.url, users=[2], **FEW)
    assert found.steps["simulated"].to_list() == [False]


async def workflow(prompt: str) -> str:
    await asyncio.sleep(0.001)
    return prompt


def test_a_function_is_driven_while_a_notebooks_loop_is_running() -> None:
    async def cell() -> SweepResult:
        # As in Jupyter: the cell's code runs inside a loop.
        return run_sweep(workflow, users=[3], **FEW)

    found = asyncio.run(cell())
    assert outcomes(found) == {"ok": found.requests.height}


def test_a_function_that_belongs_to_the_running_loop_is_driven_in_it() -> None:
    async def cell() -> tuple[SweepResult, set[int]]:
        lock, threads = asyncio.Lock(), set()

        async def bound(prompt: str) -> str:
            threads.add(threading.get_ident())
            async with lock:
                await asyncio.sleep(0.001)
            return prompt

        return await run_sweep_async(bound, users=[3], **FEW), threads

    found, threads = asyncio.run(cell())
    assert outcomes(found) == {"ok": found.requests.height}
    assert threads == {threading.get_ident()}


def test_a_function_that_always_fails_is_a_table_of_failures() -> None:
    async def broken(prompt: str) -> str:
        raise RuntimeError(f"no tool for {len(prompt)}")

    found = run_sweep(broken, users=[2], input_tokens=5, **FEW)
    assert set(outcomes(found)) == {"failed"}
    assert all(what.startswith("failed: RuntimeError: no tool for") for what in found.failures[0])
    assert found.quantiles["value_s"].null_count() == found.quantiles.height


async def fails_with_ids(prompt: str) -> str:
    await asyncio.sleep(0.001)
    raise RuntimeError(f"request {uuid.uuid4()} lost after {time.perf_counter_ns()} ns of 30 s")


@pytest.mark.parametrize("processes", [0, 2])
def test_failures_that_differ_in_numbers_and_ids_are_one_kind(processes: int) -> None:
    name = "tests.sizing.load.test_sweep_runner:fails_with_ids"
    settings = FEW | {"processes": processes}
    found = run_sweep(protocol="function", function=name, users=[4], **settings)
    ((failure, count),) = found.failures[0].items()
    assert failure.startswith("failed: RuntimeError: request <id> lost after <n> ns of 30 s (such as ")
    assert count == outcomes(found)["failed"]


def test_what_no_process_can_load_is_a_configuration_error() -> None:
    for processes in (0, 1):
        with pytest.raises(ConfigError, match="cannot load the function"):
            run_sweep(protocol="function", function="no_such_module:f", users=[1], **FEW | {"processes": processes})


def test_a_client_process_that_dies_is_told_and_not_waited_for() -> None:
    name = "tests.sizing.load.test_sweep_runner:dies"
    with pytest.raises(RunFailedError, match="a client process died with exit code 7"):
        run_sweep(protocol="function", function=name, users=[1], **FEW | {"processes": 1})


async def dies(prompt: str) -> str:
    import os

    os._exit(7)


async def chatty(prompt: str) -> str:
    print("a line of the workflow's own on stdout")
    await asyncio.sleep(0.001)
    return prompt


def test_a_function_of_a_module_is_driven_by_processes_and_what_it_prints_does_not_spoil_the_reports() -> None:
    name = "tests.sizing.load.test_sweep_runner:chatty"
    found = run_sweep(protocol="function", function=name, users=[4], **FEW | {"processes": 2})
    assert outcomes(found) == {"ok": found.requests.height}
    assert found.steps["processes"].to_list() == [2]


def test_openai_streams_give_ttft_and_itl() -> None:
    with hostile(delay_s=0.02, tokens=4, token_s=0.01) as server:
        found = run_sweep(url=server.url, protocol="openai", model="m", users=[4], **FEW)
    assert set(found.quantiles["metric"]) == set(METRICS)
    row = found.requests.row(0, named=True)
    assert 0.02 <= row["ttft_s"] <= row["runtime_s"]
    assert row["runtime_s"] >= 0.05
    assert 3 * row["itl_s"] <= row["runtime_s"] - row["ttft_s"] + 1e-9
    assert found.requests["itl_s"].max() > 0.005  # type: ignore[operator]
    assert found.points["tokens_per_s"][0] > 0


def test_a_second_request_to_stop_breaks_off_what_is_in_flight_and_counts_it(tmp_path: Path) -> None:
    async def work(server: Hostile) -> SweepResult:
        asked = StopRequest()

        watcher = When(lambda held: held.in_flight == 3, lambda: [asked.request_stop() for _ in range(2)])
        return await run_sweep_async(url=server.url, users=[3], asked=asked, watcher=watcher, out=tmp_path, **FEW)

    with Hostile(Plan(cycle=["stall"], stall_s=60.0)) as server:
        found = asyncio.run(work(server))
    assert found.ended == "interrupted"
    assert found.requests.height == 0
    assert found.steps["stopped"].to_list() == ["interrupted"]
    assert found.folder is not None
    assert json.loads((found.folder / "sweep.json").read_text())["notes"][0]["broken_off"] == 3


def test_an_allowance_is_shared_without_loss() -> None:
    load = client_messages.StepLoad(step=0, loop="closed", seed=0, users=5)
    for allowance, size in itertools.product((0, 1, 7, 100), (1, 2, 3, 8)):
        parts = [split_command(client_messages.Begin(load, 0.0, allowance), number, size) for number in range(size)]
        assert sum(part.allowance for part in parts) == allowance  # type: ignore[union-attr,misc]
