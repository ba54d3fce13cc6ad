"""Tasks of agents: what waits for what, how they are read, sent and simulated."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLES
from tests.fakes.virtual_time import VirtualLoop
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import Goal, NotebookConfig, build_sweep_config
from workbench.sizing.load import task_run
from workbench.sizing.load.agent_tasks import Activity, AgentTask, TaskQueue, plan_task, split_tasks
from workbench.sizing.load.agent_traces import describe_pace, load_agent_tasks, read_agent_tasks
from workbench.sizing.load.client_messages import Reply
from workbench.sizing.load.sweep_runner import build_prompts, run_sweep
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator
from workbench.sizing.simulation.virtual_time import simulate_step

AGENTS = SAMPLES / "sizing" / "agents.jsonl"


def call(begin_s: float, end_s: float, blocks: list[int] | None = None, tokens: int = 100) -> Activity:
    return Activity(begin_s, end_s, (tokens, 10, blocks or []))


def agent(*parts: Activity, end_s: float | None = None) -> Activity:
    return Activity(parts[0].begin_s, end_s or max(part.end_s for part in parts), parts=list(parts))


def test_calls_wait_for_one_another_and_for_tools() -> None:
    tool = Activity(1.5, 4.0)
    task = plan_task(agent(call(0, 1), tool, call(4.25, 5), end_s=5.5), 0)
    assert [one.after for one in task.calls] == [{-1: 0.0}, {0: 3.25}]
    assert task.ends == {1: 0.5}
    assert (task.recorded_s, task.replayed_s, task.tools_s) == (5.5, 5.5, 3.75)
    assert task.time_task([2.0, 3.0]) == 8.75


def test_sub_agents_run_at_once_and_are_joined() -> None:
    searchers = [agent(call(1.5, 2), call(2.5, 3)), agent(call(1.5, 6))]
    task = plan_task(agent(call(0, 1), *searchers, call(6.5, 7)), 0)
    assert [one.after for one in task.calls] == [{-1: 0.0}, {0: 0.5}, {1: 0.5}, {0: 0.5}, {2: 0.5, 3: 0.5}]
    # The other branch decides when its calls become slow.
    assert task.time_task([1, 4, 4, 4.5, 0.5]) == 1 + 0.5 + 4 + 0.5 + 4 + 0.5 + 0.5


def test_a_sub_agent_that_nobody_waits_for_ends_with_the_task() -> None:
    task = plan_task(agent(call(0, 1), agent(call(1.5, 9)), call(1.5, 3), call(3.5, 4)), 0)
    assert task.calls[3].after == {1: 0.5}
    assert task.ends == {2: 0.0, 3: 0.0}


def test_chains_at_once_go_on_after_their_own_call_and_are_told() -> None:
    chains = [call(0, 1, [1]), call(0, 1.3, [2]), call(1.1, 3, [1, 3]), call(1.4, 3.5, [2, 4])]
    task = plan_task(agent(*chains), 0)
    assert [list(one.after) for one in task.calls] == [[-1], [-1], [0], [1]]
    assert [one.continues for one in task.calls] == [None, None, 0, 1]
    assert task.n_unclear == 1


def test_clocks_that_are_not_exact_do_not_make_calls_run_at_once() -> None:
    task = plan_task(agent(call(0, 1.02), call(1.0, 2)), 0)
    assert list(task.calls[1].after) == [0]
    assert task.calls[1].after[0] == 0.0


def test_a_person_ends_a_task() -> None:
    session = agent(call(0, 1), call(2, 3), call(100, 101))
    assert [part.n_calls for part in split_tasks(session, 60)] == [2, 1]
    assert split_tasks(session, 100) == [session]


def test_users_get_whole_sessions_in_their_order() -> None:
    tasks = [AgentTask([], {-1: 0.0}, session, 0.0) for session in (0, 0, 1, 1, 1)]
    queue = TaskQueue(tasks, "0")
    first, second = queue.iterate_for_user(), queue.iterate_for_user()
    started = [next(first).number, next(second).number]
    assert sorted(started) == [0, 2]
    assert {next(first).number, next(second).number} == {1, 3}
    numbers = [next(first) for _ in range(20)]
    assert {one.number for one in numbers} == set(range(5))
    assert max(one.lap for one in numbers) >= 3


def weka(*requests: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": list(requests), **fields}


def request(t: float, api_time: float, blocks: list[int], **fields: Any) -> dict[str, Any]:
    return {
        "t": t,
        "type": "n",
        "in": 64 * len(blocks) + 5,
        "out": 20,
        "hash_ids": blocks,
        "api_time": api_time,
    } | fields


def read(path: Path, *documents: Any, **options: Any) -> Any:
    file = path / "tasks.jsonl"
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return read_agent_tasks(file, **options)


def test_weka_traces_are_read_with_their_sub_agents(tmp_path: Path) -> None:
    inner = {"t": 2.0, "type": "subagent", "agent_id": "x", "duration_ms": 3000, "status": "completed"}
    inner["requests"] = [request(0.0, 1.0, [9]), request(1.5, 1.0, [9, 10])]
    trace = weka(request(0, 1.5, [1, 2]), inner, request(5.5, 1.0, [1, 2, 3]))
    found = read(tmp_path, trace, weka(request(0, 1, [1])))
    assert [len(task.calls) for task in found.tasks] == [4, 1]
    first = found.tasks[0]
    # Times of the sub-agent count from its begin; it ends half a second after its last call.
    assert [one.after for one in first.calls] == [{-1: 0.0}, {0: 0.5}, {1: 0.5}, {2: 1.0}]
    assert [one.continues for one in first.calls] == [None, None, 1, 0]
    bare = read(tmp_path, weka(request(0, 1, [1], hash_ids=None), {"t": 2, "type": "subagent", "requests": None}))
    assert [one.blocks for one in bare.tasks[0].calls] == [[]]
    # Equal numbers of two sessions are not the same text.
    assert found.tasks[1].calls[0].blocks[0] not in first.calls[0].blocks
    assert (found.block_tokens, found.n_read, found.counts) == (64, 5, {"calls in tasks": 5})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"a": 1}, "not a file of agent tasks"),
        ([], "no agent tasks"),
        (weka({"t": 0, "in": 5, "out": 2}), "without its tokens or its time"),
        (weka(request(-1, 1, [1])), "not a file of agent tasks"),
        (weka(request(0, 1, [1], **{"in": "many"})), "not a file of agent tasks"),
        (weka(), "no agent task that can be sent"),
        ({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "1"}]}]}]}, "not a span"),
        ({"resourceSpans": 5}, "not a span"),
        ({"context": {}, "start_time": "yesterday"}, "not a span"),
    ],
)
def test_what_has_no_tasks_is_refused(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, document)


def test_traces_with_a_hole_are_left_out_and_counted(tmp_path: Path) -> None:
    def span(trace: int, number: int, parent: int, begin: int, end: int, **attributes: Any) -> dict[str, Any]:
        return {
            "context": {"trace_id": f"0x{trace}", "span_id": f"0x{number}"},
            "parent_id": f"0x{parent}" if parent else None,
            "start_time": f"2026-11-01T00:00:{begin:02}Z", "end_time": f"2026-11-01T00:00:{end:02}Z",
            "attributes": {f"gen_ai.{name}": value for name, value in attributes.items()},
        }  # fmt: skip

    tokens = {"operation.name": "chat", "usage.input_tokens": 200, "usage.output_tokens": 20}
    whole = [span(1, 1, 0, 0, 9, **{"operation.name": "invoke_agent"}), span(1, 2, 1, 1, 3, **tokens)]
    hole = [span(2, 1, 0, 10, 19), span(2, 2, 1, 11, 12, **tokens), span(2, 3, 1, 13, 14, **{"operation.name": "chat"})]
    circle = [span(3, 1, 2, 20, 29), span(3, 2, 1, 21, 22, **tokens), span(3, 3, 0, 21, 22, **tokens)]
    found = read(tmp_path, *whole, *hole, *circle)
    assert [len(task.calls) for task in found.tasks] == [1]
    assert found.tasks[0].ends == {0: 6.0}
    assert found.counts == {
        "calls in tasks": 1,
        "calls left out with their trace": 2,
        "calls without their tokens, or without an end": 1,
    }
    assert found.notes[0].startswith("2 traces")


def test_the_sample_is_what_its_script_says() -> None:
    found = read_agent_tasks(AGENTS)
    assert len(found.tasks) == 24
    assert found.notes == []
    assert {len(task.list_followers()[0]) for task in found.tasks} == {2, 3, 4}
    for task in found.tasks:
        assert task.replayed_s == pytest.approx(task.recorded_s, abs=1e-6)


def settings(**changed: Any) -> dict[str, Any]:
    base = {"url": "http://a", "protocol": "openai", "model": "m", "users": [2], "agent_tasks": AGENTS}
    return base | changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"turns": 2}, "calls and prompts of their own: remove turns"),
        ({"output_tokens": 20}, "calls and prompts of their own: remove output_tokens"),
        ({"goals": [Goal.read("ttft p95<=1")]}, "set goals on its time"),
        ({"protocol": "nat"}, "agent_tasks needs protocol"),
        ({"agent_tasks": None, "tool_factor": 2.0}, "tool_factor needs agent_tasks"),
    ],
)
def test_settings_without_effect_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_sweep_config(**settings(**changed))


def test_fields_of_the_simulated_service_without_effect_are_refused() -> None:
    config = NotebookConfig(users=5, goals=["p95<=60"], agent_tasks=str(AGENTS), service=["calls=3"])
    with pytest.raises(ConfigError, match="calls, lengths and tools of their own"):
        _ = config.simulated_service


def test_a_goal_below_the_time_of_the_tools_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match="the tools alone take longer"):
        load_agent_tasks(build_sweep_config(**settings(goals=[Goal.read("p95<=5")])))
    faster = settings(goals=[Goal.read("p95<=5")], tool_factor=0.5)
    assert load_agent_tasks(build_sweep_config(**faster)).tasks


def test_levels_that_end_before_they_have_enough_tasks_are_told_before() -> None:
    config = build_sweep_config(**settings(users=[2, 8], least_samples=40))
    agents = load_agent_tasks(config)
    assert "40 tasks after each user's first take about 476 s at 2 users, more than" in describe_pace(agents, config)
    assert describe_pace(agents, config.model_copy(update={"max_step_s": 500.0})).endswith("476 s at 2 users")


def test_prompts_share_what_they_shared_within_a_pass() -> None:
    prompts, described = build_prompts(build_sweep_config(**settings()))
    assert described["calls_read"] == described["calls"]["calls in tasks"] == 352
    write = prompts.open_call_texts()
    task = prompts.tasks[0]
    second = next(place for place, one in enumerate(task.calls) if one.continues == 1)
    first_text, second_text = (write(0, place, (0, 0)) for place in (1, second))
    assert len(first_text.split(" ")) == task.calls[1].input_tokens
    n_shared = 64 * len(task.calls[1].blocks)
    assert first_text.split(" ")[:n_shared] == second_text.split(" ")[:n_shared]
    assert write(0, 1, (0, 1)).split(" ")[:3] != first_text.split(" ")[:3]
    assert write(0, 1, (0, 0)) == first_text


def run_virtually(task: AgentTask, call_s: list[float], failing: int | None = None) -> tuple[Reply, float]:
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_run, "clock", loop.time)

        async def send_call(place: int) -> Reply:
            await asyncio.sleep(call_s[place])
            if place == failing:
                return Reply("http_error", loop.time(), 500, detail="busy")
            return Reply("ok", loop.time(), llm_s=[call_s[place]], input_tokens=10, output_tokens=2, answer=b"x")

        begun = loop.time()
        try:
            reply = loop.run_until_complete(task_run.run_task(task, send_call, begun))
        finally:
            loop.close()
    return reply, reply.ended - begun


def test_a_task_takes_the_time_of_its_plan() -> None:
    for task in read_agent_tasks(AGENTS).tasks[:4]:
        call_s = [0.5 + 0.1 * (place % 7) for place in range(len(task.calls))]
        reply, runtime_s = run_virtually(task, call_s)
        assert runtime_s == pytest.approx(task.time_task(call_s), abs=0.01)
        assert (reply.input_tokens, reply.output_tokens) == (10 * len(call_s), 2 * len(call_s))
        assert sorted(reply.llm_s or ()) == sorted(call_s)
        assert (reply.first_token, reply.itl_s) == (None, None)


def test_a_failed_call_fails_its_task_and_nothing_that_waits_for_it_begins() -> None:
    task = plan_task(agent(call(0, 1), agent(call(1.5, 2), call(2.5, 3)), agent(call(1.5, 6)), call(6.5, 7)), 0)
    reply, runtime_s = run_virtually(task, [1, 1, 1, 5, 1], failing=1)
    assert (reply.outcome, reply.status, reply.detail) == ("http_error", 500, "busy")
    # The other branch runs to its end: the service had it.
    assert runtime_s == pytest.approx(6.5, abs=0.01)
    assert reply.llm_s is None


def test_an_idle_simulated_service_runs_a_task_as_planned() -> None:
    service = Service(gpus=64, slots=64, prefill_tokens_per_s=1000, decode_base_s=0.01, decode_per_sequence_s=0)
    config = build_sweep_config(**settings(users=[1], least_samples=24, most_samples=24))
    requests, _ = simulate_step(service, config, 1)
    tasks = load_agent_tasks(config).tasks
    planned = sorted(
        round(task.time_task([one.input_tokens / 1000 + 0.01 * one.output_tokens for one in task.calls]), 3)
        for task in tasks
    )
    assert sorted(round(value, 3) for value in requests["runtime_s"][:24]) == planned
    assert requests["ttft_s"].null_count() == requests.height


@pytest.mark.live
def test_a_live_service_takes_as_long_as_in_virtual_time() -> None:
    scale = 0.05
    service = Service(gpus=1, slots=8, calls=1)
    shared = settings(users=[6], least_samples=24, most_samples=48, exact_output=True, goals=[Goal.read("p95<=60")])
    virtual, _ = simulate_step(service, build_sweep_config(**shared), 6)
    with run_simulator(service, time_scale=scale, prompt_words=True) as url:
        found = run_sweep(None, **shared | {"url": url, "tool_factor": scale, "simulated": True, "processes": 1})
    rows = found.requests.filter(found.requests["outcome"] == "ok")
    assert rows.height == found.requests.height
    medians = [float(str(table["runtime_s"].median())) for table in (rows, virtual)]
    assert medians[0] / scale == pytest.approx(medians[1], rel=0.15)
    tokens = [set(table["input_tokens"]) for table in (rows, virtual)]
    assert len(tokens[0] & tokens[1]) >= 20
    assert all(len(calls) >= 8 for calls in rows["llm_s"])
