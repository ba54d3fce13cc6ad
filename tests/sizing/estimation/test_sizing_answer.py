"""The answer of a sweep: what binds, what is refused, what several GPU counts say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.sizing.making import closed, requests, steps
from tests.sizing.scenarios import CACHED
from workbench.core.errors import ConfigError, InputError
from workbench.core.formats import format_number
from workbench.sizing import summary
from workbench.sizing.charts import chart_goodput
from workbench.sizing.config import Goal, build_sweep_config
from workbench.sizing.estimation import sweep_store
from workbench.sizing.estimation.sizing_answer import compute_answer, concat_sweeps
from workbench.sizing.simulation import virtual_time
from workbench.sizing.simulation.cluster_model import Service

GOALS = [Goal(limit_s=1.5), Goal(metric="llm", limit_s=0.9)]


def swept(gpus: int, goals: list[Goal] = GOALS, **service: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    config = build_sweep_config(protocol="function", simulated=True, goals=goals)
    return virtual_time.simulate_sweep(Service(gpus=gpus, **service), config)


def test_each_target_is_estimated_and_the_binding_one_is_named() -> None:
    found = compute_answer(*swept(2), GOALS, 100)
    table = found.estimates
    assert table["target"].to_list() == ["runtime p95 <= 1.5 s", "llm p95 <= 0.9 s"]
    assert table["binding"].sum() == 1
    assert table.filter("binding")["gpus"][0] == table["gpus"].max()
    assert found.recommended == table["recommended"].max()
    for row in table.iter_rows(named=True):
        assert row["gpus_low"] <= row["gpus"] <= row["gpus_high"] <= row["recommended"]
        assert row["gpus"] == pytest.approx(100 * 2 / row["capacity"])
    assert found.conditions == ["simulated service"]
    assert "linear scaling assumed" in found.details[0]
    assert "not verified" in found.sentence
    assert found.reasons == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((), ("Verify {n} GPUs", "`workbench sizing verify SWEEP --gpus {n}`.")),
        (("held", "held"), ("Plan with {n} GPUs", "a service as simulated", "`workbench sizing manifests ")),
        (("held", "undecided"), ("Not decided whether {n} GPUs", "measure more requests")),
    ],
)
def test_what_to_do_next_follows_from_the_verification(told: tuple[str, ...], said: tuple[str, ...]) -> None:
    found = compute_answer(*swept(2), GOALS, 100)
    if told:
        rows = {"target": found.estimates["target"], "verdict": told, "reason": "", "gpus": 1, "scope": "whole load"}
        rows |= {"predicted_gpus": found.recommended}
        found = found.with_verification(pl.DataFrame(rows))
    decided, own = summary.list_next_steps(found)
    assert decided.startswith(said[0].format(n=found.recommended))
    assert all(words.format(n=found.recommended) in decided for words in said)
    assert own.startswith("This service is simulated.")


def test_what_a_verification_held_with_more_gpus_is_recommended() -> None:
    found = compute_answer(*swept(2), GOALS, 100)
    count = found.recommended
    assert count is not None
    held = {"target": found.estimates["target"], "verdict": "held", "reason": None, "scope": "per-GPU load"}
    more = held | {"predicted_gpus": count + 1, "estimated_gpus": count}
    raised = found.with_verification(pl.DataFrame(more))
    assert (raised.recommended, raised.reasons) == (count + 1, [])
    assert f"Verification held (per-GPU load), and did not hold with {count}." in raised.details
    assert f"{count + 1} GPUs serve 100 users" in raised.sentence
    failed = found.with_verification(pl.DataFrame(more | {"verdict": "failed", "reason": "why"}))
    assert failed.recommended == count


def test_an_interval_of_a_law_without_an_upper_end_asks_for_more_gpus() -> None:
    found = compute_answer(*concat_sweeps([swept(gpus, GOALS[:1]) for gpus in (1, 2)]), GOALS[:1], 20)
    open_end = found.estimates.with_columns(recommended=pl.lit(None, pl.Int64), gpus_high=pl.lit(None, pl.Float64))
    words = "its interval has no upper end up to 4 GPUs, twice the largest measured count; measure a larger one"
    assert replace(found, estimates=open_end).reasons == [f"runtime p95 <= 1.5 s: {words}"]
    alone = replace(found, estimates=open_end, scaling=found.scaling.clear())
    words = "its interval has no upper end; raise the limit, or speed the service up"
    assert alone.reasons == [f"runtime p95 <= 1.5 s: {words}"]  # One user is the lowest load there is.
    more = replace(alone, points=alone.points.filter(pl.col("load") > 1))
    assert more.reasons == ["runtime p95 <= 1.5 s: its interval has no upper end; measure lower loads"]


@pytest.mark.parametrize(("think_time_s", "users"), [(0.0, [2, 8, 12]), (10.0, [10, 60, 120])])
def test_what_deploys_them_counts_requests_in_flight_and_not_users_who_think(
    think_time_s: float, users: list[int]
) -> None:
    more = {"users": users, "think_time_s": think_time_s, "least_samples": 400, "most_samples": 400}
    config = build_sweep_config(protocol="function", simulated=True, goals=GOALS[:1], **more)
    found = compute_answer(*virtual_time.simulate_sweep(Service(slots=8), config), GOALS[:1], 500)
    held = {"target": found.estimates["target"], "verdict": "held", "reason": "", "gpus": 1, "scope": "whole load"}
    held |= {"predicted_gpus": found.recommended}
    told = summary.list_next_steps(found.with_verification(pl.DataFrame(held)))[0]
    in_flight = int(told.split("--in-flight ")[1].split("`")[0])
    carried = found.estimates["capacity_low"][0]
    share = (found.points["in_flight"] / found.points["load"]).to_list()
    assert carried * min(share) - 1 <= in_flight <= carried * max(share)
    # Who thinks for 10 s has a request in flight for a small part of the time.
    assert min(share) > 0.98 if think_time_s == 0 else in_flight < 0.2 * carried


def test_an_answer_in_users_says_how_many_sessions_an_hour_they_are(tmp_path: Path) -> None:
    """Over a long step users begin as many sessions an hour as the load and the length of a session say."""
    chat = CACHED["a"]
    config = chat.config(0)
    sent, done = virtual_time.simulate_sweep(chat.at(1), config)
    answer = compute_answer(sent, done, config.goals, chat.users)
    assert answer.binding is not None
    assert answer.session_s is not None
    assert answer.sessions_per_hour is not None
    carried = max(load for load in done["users"] if load <= answer.binding["capacity"])
    step = done.filter(pl.col("users") == carried).row(0, named=True)
    begun = sent.filter((pl.col("step") == step["step"]) & (pl.col("turn") == 1))
    per_hour = 3600 * (begun["sent_s"] > 60).sum() / (step["duration_s"] - 60)
    assert answer.sessions_per_hour == pytest.approx(per_hour * chat.users / carried, rel=0.1)
    told = f"sessions: about {format_number(answer.sessions_per_hour)} an hour, of 6 turns and"
    assert told in sweep_store.format_sizing_answer(answer, tmp_path)
    document = json.loads(sweep_store.sizing_answer_json(answer, tmp_path))
    assert (document["sessions_per_hour"], document["session_s"]) == (answer.sessions_per_hour, answer.session_s)
    assert ("sessions", answer.sessions_per_hour, "an hour") in [row[:3] for row in summary.build_key_numbers(answer)]
    assert "an hour" not in answer.sentence


def test_users_without_sessions_are_no_sessions_an_hour(tmp_path: Path) -> None:
    sent = pl.concat([closed(load, [0.1 * load] * 300, step=place) for place, load in enumerate((1, 2, 4))])
    answer = compute_answer(sent, steps(*({"users": load} for load in (1, 2, 4))), [Goal(limit_s=0.3)], 10)
    assert (answer.sessions_per_hour, answer.session_s) == (None, None)
    assert "sessions:" not in sweep_store.format_sizing_answer(answer, tmp_path)


@pytest.mark.parametrize("currency", ["EUR", ""])
def test_a_currency_is_shown_beside_each_cost(tmp_path: Path, currency: str) -> None:
    sent = pl.concat([closed(load, [0.1 * load] * 300, step=place) for place, load in enumerate((1, 2, 4))])
    done = steps(*({"users": load} for load in (1, 2, 4)))
    answer = compute_answer(sent, done, [Goal(limit_s=0.3)], 10, gpu_price_per_hour=2.5, currency=currency)
    assert answer.recommended is not None
    told = sweep_store.format_sizing_answer(answer, tmp_path)
    cost = f"{2.5 * answer.recommended:g}"
    assert f"cost of the recommended GPUs: {cost} {f'{currency} ' if currency else ''}an hour" in told
    assert (f"within all targets, in {currency} (" in told) == bool(currency)
    assert json.loads(sweep_store.sizing_answer_json(answer, tmp_path))["currency"] == currency
    units = [row[2] for row in summary.build_key_numbers(answer) if row[0].startswith("cost")]
    assert units == ([f"{currency} an hour", currency] if currency else ["an hour", ""])


def test_a_target_that_nobody_measured_is_no_estimate() -> None:
    found = compute_answer(*swept(2, [GOALS[0]]), [Goal(metric="ttft", limit_s=1.0)], 100)
    assert found.recommended is None
    assert "No GPU count for" in found.sentence
    assert found.reasons
    assert summary.list_next_steps(found)[0].startswith("Do not plan with a number yet")


def test_four_counts_of_a_service_that_scales_say_so() -> None:
    goals = [Goal(limit_s=1.5)]
    found = compute_answer(*concat_sweeps([swept(gpus, goals) for gpus in (1, 2, 4, 8)]), goals, 100)
    assert found.scaling["model"].to_list() == ["linear", "USL"]
    usl, linear = found.scaling.row(1, named=True), found.scaling.row(0, named=True)
    assert abs(usl["gpus"] - linear["gpus"]) <= 2
    assert found.estimates["verdict"][0] == "USL over 1, 2, 4, 8 GPUs"


def test_a_resource_that_all_share_shows_over_several_counts() -> None:
    shared = {"tool_s": 0.2, "calls": 3, "shared_s": 0.02, "slots": 32}
    goals = [Goal(limit_s=4.0)]
    found = compute_answer(*concat_sweeps([swept(gpus, goals, **shared) for gpus in (2, 4, 8, 16)]), goals, 300)
    assert found.estimates["gpus"][0] is None or found.estimates["gpus"][0] > 20


def test_goodput_counts_only_what_is_within_every_limit() -> None:
    frame = closed(4, [1.0, 3.0] * 200)
    found = compute_answer(frame, steps({"users": 4}), [Goal(limit_s=2.0)], 10, gpu_price_per_hour=3.6)
    row = found.goodput.row(0, named=True)
    assert row["within_share"] == pytest.approx(0.5, abs=0.01)
    assert row["cost_per_1000"] == pytest.approx(1 / row["goodput_per_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("row", "goals", "share"),
    [
        ({}, ["ttft p95<=1"], None),
        ({"ttft_s": 0.5}, ["ttft p95<=1"], 1.0),
        ({}, ["ttft p95<=1", "p95<=0.5"], 0.0),
        ({"output_tokens": 1}, ["itl p95<=1"], 1.0),
        ({"output_tokens": 2}, ["itl p95<=1"], None),
        ({"llm_s": None}, ["llm p95<=1"], None),
    ],
)
def test_an_answer_whose_metric_is_unknown_is_not_known_to_be_in_time(
    row: dict[str, object], goals: list[str], share: float | None
) -> None:
    sent = [{"intended_s": n / 10, "sent_s": n / 10, "ended_s": n / 10 + 1} | row for n in range(300)]
    asked = [Goal.read(goal) for goal in goals]
    found = compute_answer(requests(sent), steps({"users": 10}), asked, 10, gpu_price_per_hour=1.0)
    served = found.goodput.row(0, named=True)
    assert served["within_share"] == share
    for name in ("goodput_per_s", "goodput_per_gpu", "cost_per_1000"):
        assert (served[name] is None) == (share is None or (name == "cost_per_1000" and not share))
    chart_goodput(found.points, found.goodput).to_dict()
    summary.build_key_numbers(found)


def test_points_that_are_not_valid_are_left_out_and_said() -> None:
    rows = [{"outcome": "cut", "runtime_s": None, "sent_s": n / 10, "ended_s": n / 10 + 1} for n in range(300)]
    found = compute_answer(requests(rows), steps({"users": 1}), [Goal(limit_s=2.0)], 10)
    assert found.recommended is None
    assert any("no usable point" in reason for reason in found.reasons)


@pytest.mark.parametrize(("load", "goals"), [(0, GOALS), (10, [])])
def test_wrong_questions_are_refused(load: float, goals: list[Goal]) -> None:
    with pytest.raises(ConfigError):
        compute_answer(closed(1, [1.0] * 50), steps({"users": 1}), goals, load)


def test_closed_and_open_loops_do_not_mix() -> None:
    frame = pl.concat([closed(1, [1.0] * 50), closed(1, [1.0] * 50, step=1)])
    table = steps({"users": 1}, {"loop": "open", "users": None, "rate_per_s": 2.0, "arrivals": "poisson"})
    with pytest.raises(InputError, match="mixed"):
        compute_answer(frame, table, GOALS, 10)


def test_a_refusal_names_the_levels_that_were_left_out() -> None:
    config = build_sweep_config(protocol="function", simulated=True, users=[1, 2, 4, 16, 32])
    found = compute_answer(
        *virtual_time.simulate_sweep(Service(slots=64, admission=8), config), [Goal(limit_s=3.0)], 100
    )
    assert found.recommended is None
    assert "excluded: level(s) 16, 32 (server-limited: server admits about 8" in found.reasons[0]


def _of_levels(seconds_by_level: dict[int, list[float]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Closed levels in this order, each with its latencies, which vary by 2 %."""
    rng = np.random.default_rng(3)
    frames = [
        closed(users, [float(one * rng.normal(1, 0.02)) for one in seconds]).with_columns(step=pl.lit(step))
        for step, (users, seconds) in enumerate(seconds_by_level.items())
    ]
    return pl.concat(frames), steps(*({"users": users} for users in seconds_by_level))


def test_a_service_that_scales_out_between_levels_gets_no_number_but_that_of_the_levels_before() -> None:
    one_replica, two_replicas = ({users: [0.1 * users / n] * 240 for users in range(2, 17, 2)} for n in (1, 2))
    levels = {users: (one_replica if users <= 6 else two_replicas)[users] for users in one_replica}
    requests_of, steps_of = _of_levels(levels)
    found = compute_answer(requests_of, steps_of, [Goal.read("p95<=0.65")], 60.0, draws=50)
    assert found.recommended is None
    assert found.before_change == 10
    assert found.reasons[0].startswith("the service changed: 6 users: median 0.6")
    assert "10 GPUs" in found.reasons[0]
    assert found.estimates["gpus"].to_list() == [None]


@pytest.mark.parametrize(("late", "word"), [(0.5, "faster"), (2.0, "slower")])
def test_a_service_that_changes_within_a_level_gets_no_number(late: float, word: str) -> None:
    levels = {users: [0.1 * users] * 240 for users in (2, 4, 6, 8)}
    levels[6] = [0.6] * 120 + [0.6 * late] * 120
    found = compute_answer(*_of_levels(levels), [Goal.read("p95<=0.7")], 60.0, draws=50)
    assert found.recommended is None
    assert f"the service became {word} within the level" in found.reasons[0]


def test_a_slow_first_level_is_one_of_a_service_that_was_warming_up() -> None:
    levels = {2: [0.9] * 240} | {users: [0.1 * users] * 240 for users in (4, 6, 8)}
    found = compute_answer(*_of_levels(levels), [Goal.read("p95<=0.65")], 60.0, draws=50)
    assert found.recommended == 10
    assert found.points["verdict"].to_list()[0] == "unsteady"


def test_with_think_time_a_level_whose_queue_still_grows_is_unsteady_and_no_other_service() -> None:
    levels = {users: [0.1 * users] * 240 for users in (2, 4, 6, 8)}
    levels[6] = [0.6] * 120 + [1.2] * 120
    requests_of, steps_of = _of_levels(levels)
    # A rate of users who wait as long as they think: the books take their think time into account.
    found = compute_answer(requests_of, steps_of.with_columns(think_s=pl.lit(0.3)), [Goal.read("p95<=0.7")], 60.0)
    verdicts = dict(found.points.select("load", "verdict").iter_rows())
    assert verdicts[6.0] == "unsteady"
    assert "longer --max-step" in found.points.filter(found.points["load"] == 6)["reason"][0]
    assert found.before_change is None


def test_a_load_below_a_level_that_met_the_goal_needs_one_gpu_though_its_capacity_is_not_known() -> None:
    requests_of, steps_of = _of_levels({users: [0.5] * 240 for users in (2, 4, 8)})
    goals = [Goal.read("p95<=2")]
    found = compute_answer(requests_of, steps_of, goals, 8.0, draws=50)
    assert (found.recommended, found.reasons) == (1, [])
    assert found.sentence == "1 GPU serves 8 users at runtime p95 <= 2 s, not verified."
    assert "No measured load misses runtime p95 <= 2 s: at least 8 users a GPU." in found.details
    assert summary.list_next_steps(found)
    # One user more, and it is not known whether one GPU does.
    more = compute_answer(requests_of, steps_of, goals, 9.0, draws=50)
    assert more.recommended is None
    assert "at least 8 users a GPU" in more.reasons[0]


def test_the_rate_of_few_users_who_think_may_differ_by_chance() -> None:
    rng = np.random.default_rng(6)
    levels = []
    for step, pace in enumerate((1.0, 0.6)):
        users, rows = step + 1, []
        for _ in range(users):
            ends_s = np.cumsum(rng.exponential(2.0 * pace, 40) + 0.5)
            rows += [{"intended_s": at - 0.5, "sent_s": at - 0.5, "ended_s": at, "runtime_s": 0.5} for at in ends_s]
        levels.append(requests(sorted(rows, key=lambda row: row["sent_s"]), step))
    table = steps(*({"users": users, "think_s": 2.0} for users in (1, 2)))
    found = compute_answer(pl.concat(levels), table, [Goal.read("p95<=2")], 2.0, draws=50)
    assert found.books is not None
    (book,) = found.books.filter(found.books["book"].str.starts_with("capacity")).rows(named=True)
    assert book["left_value"] > 1.15 * book["right_value"]
    assert book["holds"]
