"""The simulated cluster against times that can be computed by hand."""

import pytest

from workbench.sizing.simulation.cluster_model import Call, Cluster, Conversation, Service, Workflow

EXACT = {"input_cv": 0, "output_cv": 0, "tool_cv": 0, "input_tokens": 400, "output_tokens": 10, "calls": 1}
PREFILL_S = 400 / 40_000
ONE_S = 0.004 + 0.0003  # a step with one sequence
TWO_S = 0.004 + 2 * 0.0003


def ended(cluster: Cluster, flows: int = 1) -> list[float]:
    found: list[Workflow] = []
    for _ in range(flows):
        cluster.start_workflow(found.append)
    cluster.run_while(lambda: True)
    return [round(flow.ended_s or 0, 9) for flow in found]


def test_one_call_takes_its_prefill_and_its_steps() -> None:
    assert ended(Cluster(Service(**EXACT))) == [pytest.approx(PREFILL_S + 10 * ONE_S)]


def test_two_calls_share_every_step_and_wait_for_both_prefills() -> None:
    both = 2 * PREFILL_S + 10 * TWO_S
    assert ended(Cluster(Service(**EXACT)), 2) == [pytest.approx(both), pytest.approx(both)]


def test_a_call_that_comes_later_stalls_the_batch_by_its_prefill() -> None:
    cluster = Cluster(Service(**EXACT))
    found: list[Workflow] = []
    cluster.start_workflow(found.append)
    begin = PREFILL_S + 4 * ONE_S
    cluster.schedule_at(begin, lambda: cluster.start_workflow(found.append) and None)
    cluster.run_while(lambda: True)
    first = begin + PREFILL_S + 6 * TWO_S
    assert found[0].ended_s == pytest.approx(first)
    assert found[1].ended_s == pytest.approx(first + 4 * ONE_S)


def test_beyond_the_slots_calls_wait_in_line() -> None:
    alone = PREFILL_S + 10 * ONE_S
    assert ended(Cluster(Service(**EXACT, slots=1)), 3) == [pytest.approx(alone * n) for n in (1, 2, 3)]


def test_tools_and_the_shared_resource_come_between_calls() -> None:
    service = Service(**EXACT | {"calls": 2}, tool_s=0.5, shared_s=0.2, gpus=2, router="round_robin")
    one = PREFILL_S + 10 * ONE_S
    assert ended(Cluster(service)) == [pytest.approx(2 * one + 0.7)]
    # The second waits for the shared resource, however many GPUs there are.
    assert ended(Cluster(service), 2) == [pytest.approx(2 * one + 0.7), pytest.approx(2 * one + 0.9)]


@pytest.mark.parametrize(("router", "loads"), [("least", {3}), ("round_robin", {3})])
def test_routers_that_balance_do(router: str, loads: set[int]) -> None:
    cluster = Cluster(Service(**EXACT, gpus=4, router=router))  # type: ignore[arg-type]
    for _ in range(12):
        cluster.start_workflow(lambda _: None)
    assert {gpu.load for gpu in cluster.gpus} == loads


def test_the_random_router_does_not_balance() -> None:
    cluster = Cluster(Service(**EXACT, gpus=4, router="random"), seed=3)
    for _ in range(40):
        cluster.start_workflow(lambda _: None)
    assert len({gpu.load for gpu in cluster.gpus}) > 1


def test_what_waits_for_admission_has_not_started() -> None:
    cluster = Cluster(Service(**EXACT, admission=1))
    found: list[Workflow] = []
    for _ in range(2):
        cluster.start_workflow(found.append)
    cluster.run_while(lambda: True)
    assert [flow.started_s for flow in found] == [0.0, pytest.approx(PREFILL_S + 10 * ONE_S)]
    assert [flow.sent_s for flow in found] == [0.0, 0.0]


def test_every_token_is_told_at_its_time() -> None:
    cluster = Cluster(Service(**EXACT))
    told: list[tuple[int, float]] = []
    cluster.start_call(lambda _: None, output_tokens=3, token=lambda call, count: told.append((count, cluster.now_s)))
    cluster.run_while(lambda: True)
    assert told == [(n, pytest.approx(PREFILL_S + n * ONE_S)) for n in (1, 2, 3)]


def test_first_tokens_can_be_timed_alone() -> None:
    cluster = Cluster(Service(**EXACT), marks="first")
    found: list[Call] = []
    cluster.start_call(found.append)
    cluster.run_while(lambda: True)
    assert found[0].first_s == pytest.approx(PREFILL_S + ONE_S)
    assert found[0].ended_s == pytest.approx(PREFILL_S + 10 * ONE_S)


@pytest.mark.parametrize("marks", ["end", "first", "all"])
def test_how_closely_it_is_watched_changes_nothing(marks: str) -> None:
    def run(marks: str) -> list[float]:
        cluster = Cluster(Service(gpus=2, slots=4), marks=marks, seed=5)  # type: ignore[arg-type]
        return ended(cluster, 20)

    assert run(marks) == pytest.approx(run("end"))


def test_lengths_have_the_mean_and_the_spread_that_were_asked_for() -> None:
    cluster = Cluster(Service(slots=100_000, output_tokens=200, output_cv=0.5), seed=1)
    calls = [cluster.start_call(lambda _: None) for _ in range(20_000)]
    mean = sum(call.output_tokens for call in calls) / len(calls)
    spread = (sum((call.output_tokens - mean) ** 2 for call in calls) / len(calls)) ** 0.5
    assert mean == pytest.approx(200, rel=0.02)
    assert spread / mean == pytest.approx(0.5, rel=0.05)


def talk(cluster: Cluster, turns: int, conversation: Conversation) -> list[Call]:
    found: list[Workflow] = []
    for _ in range(turns):
        cluster.start_workflow(found.append, conversation=conversation)
        cluster.run_while(lambda: True)
    return [call for flow in found for call in flow.calls]


def test_a_kept_conversation_is_not_prefilled_again() -> None:
    calls = talk(Cluster(Service(**EXACT, cache_tokens=10_000)), 3, Conversation())
    assert [call.input_tokens for call in calls] == [400, 810, 1220]
    assert [call.cached_tokens for call in calls] == [0, 410, 820]
    durations_s = [(call.ended_s or 0) - call.sent_s for call in calls]
    assert durations_s == [pytest.approx(PREFILL_S + 10 * ONE_S)] * 3


def test_a_conversation_without_a_cache_is_prefilled_whole() -> None:
    calls = talk(Cluster(Service(**EXACT)), 2, Conversation())
    assert [call.cached_tokens for call in calls] == [None, None]
    assert (calls[1].ended_s or 0) - calls[1].sent_s == pytest.approx(810 / 40_000 + 10 * ONE_S)


def test_conversations_push_one_another_out_of_a_cache() -> None:
    cluster, first, second = Cluster(Service(**EXACT, cache_tokens=900)), Conversation(), Conversation()
    kept = [talk(cluster, 1, one)[0].cached_tokens for one in (first, second, first, second)]
    assert kept == [0, 0, 410, 0]


@pytest.mark.parametrize(("router", "cached"), [("session", [0, 410, 820, 1230]), ("round_robin", [0, 0, 410, 820])])
def test_where_a_turn_is_routed_to_decides_what_is_kept_of_it(router: str, cached: list[int]) -> None:
    cluster = Cluster(Service(**EXACT, gpus=2, cache_tokens=10_000, router=router))  # type: ignore[arg-type]
    assert [call.cached_tokens for call in talk(cluster, 4, Conversation())] == cached
