"""Recorded traffic: public formats are read, replayed in order with their lengths and shared prefixes, or refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.request_traces import write_azure, write_mooncake
from tests.fakes.vllm_server import vllm_server
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import build_sweep_config
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_driver import arrival_times
from workbench.sizing.load.load_step import StepRules, choose_trace_part
from workbench.sizing.load.request_trace import TraceReplay, read_request_trace
from workbench.sizing.load.sweep_plan import StopRule
from workbench.sizing.load.sweep_runner import build_prompts, run_sweep

TARGET: dict[str, Any] = {"url": "http://127.0.0.1:9", "protocol": "openai", "model": "m", "arrivals": "trace"}
WRITERS: dict[str, Callable[..., list[dict[str, Any]]]] = {"azure": write_azure, "mooncake": write_mooncake}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_trace_is_read_with_times_and_lengths(kind: str, tmp_path: Path) -> None:
    rows = WRITERS[kind](tmp_path / "trace", 50)
    found = read_request_trace(tmp_path / "trace")
    assert found.kind == kind
    assert found.input_tokens == [row["input_length"] for row in rows]
    assert found.output_tokens == [row["output_length"] for row in rows]
    first = rows[0]["timestamp"]
    assert found.times_s == pytest.approx([(row["timestamp"] - first) / 1000 for row in rows], abs=1e-5)
    assert found.rate_per_s == pytest.approx(49 / found.times_s[-1])
    assert bool(found.block_ids) == (kind == "mooncake")


def test_the_later_azure_traces_have_a_time_zone(tmp_path: Path) -> None:
    write_azure(tmp_path / "trace", 5, zone="+00:00")
    write_azure(tmp_path / "plain", 5)
    assert read_request_trace(tmp_path / "trace").times_s == read_request_trace(tmp_path / "plain").times_s


def test_times_alone_are_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("# seconds\n1\n2.5\n")
    found = read_request_trace(tmp_path / "trace")
    assert (found.times_s, found.input_tokens, found.kind) == ([1.0, 2.5], [], "times")


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = '{"timestamp": 0, "input_length": 3, "output_length": 2}\n'


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (AZURE, "two different times"),
        (AZURE + "yesterday,3,4\n2023-11-16 18:15:47,3,4\n", "line 2"),
        (AZURE + "2023-11-16 18:15:46,3,4\n2023-11-16 18:15:47,x,4\n", "ContextTokens"),
        (AZURE + "2023-11-16 18:15:46,3,-4\n", "GeneratedTokens"),
        (AZURE + "2023-11-16 18:15:46,3,99999999\n", "GeneratedTokens"),
        (AZURE + "2023-11-16 18:15:46,3\n", "GeneratedTokens"),
        ("TIMESTAMP,Tokens\n2023-11-16 18:15:47,3\n", "column"),
        (GOOD, "two different times"),
        (GOOD + "{\n", "line 2"),
        (GOOD + '{"timestamp": 5}\n', "line 2"),
        (GOOD + "[1]\n", "line 2"),
        (GOOD + GOOD.replace("0", '"0"'), "line 2"),
        (GOOD + GOOD.replace("0", "NaN"), "line 2"),
        (GOOD + GOOD.replace("0", "5").replace("3", "2.5"), "input_length"),
        (GOOD + GOOD.replace("0", "5").replace("}", ', "hash_ids": "x"}'), "hash_ids"),
        (GOOD + GOOD.replace("0", "5").replace("}", ', "hash_ids": [-1]}'), "hash_ids"),
        ("{" * 100_000 + "\n", "line 1"),
        ("", "two different times"),
    ],
)
def test_a_trace_that_is_wrong_is_refused_with_its_place(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(text)
    with pytest.raises(InputError) as refused:
        read_request_trace(tmp_path / "trace")
    assert where in str(refused.value)


SECONDS = [round(0.481 * place + 0.1, 3) for place in range(300)]


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def timed_rows(times: list[float], **more: Any) -> list[dict[str, Any]]:
    return [{"timestamp": time, "input_length": 40, "output_length": 12, **more} for time in times]


@pytest.mark.parametrize(
    ("times", "more", "rate_per_s"),
    [
        (SECONDS, {}, 1 / 0.481),
        ([1000 * time for time in SECONDS], {}, 1 / 0.481),
        (SECONDS, {"chat_id": 1, "parent_chat_id": -1}, 1 / 0.481),
        ([float(place) for place in range(300)], {"chat_id": 1, "parent_chat_id": -1}, 1.0),
        ([1000.5 * place * 100 for place in range(50)], {}, 1 / 100.05),
    ],
)
def test_the_unit_of_times_is_inferred_where_it_is_certain(
    times: list[float], more: dict[str, Any], rate_per_s: float, tmp_path: Path
) -> None:
    found = read_request_trace(json_lines(tmp_path / "trace", timed_rows(times, **more)))
    assert found.rate_per_s == pytest.approx(rate_per_s, rel=1e-3)


@pytest.mark.parametrize("times", [[place // 2 for place in range(300)], [20.5 * place for place in range(50)]])
def test_times_of_which_the_unit_is_not_certain_need_it(times: list[float], tmp_path: Path) -> None:
    path = json_lines(tmp_path / "trace", timed_rows(times))
    with pytest.raises(InputError, match="--trace-unit"):
        read_request_trace(path)
    seconds, milliseconds = (read_request_trace(path, TraceReplay(time_unit=unit)).times_s for unit in ("s", "ms"))
    assert seconds[-1] == pytest.approx(1000 * milliseconds[-1])


HEADERS = ["TIMESTAMP,ContextTokens,GeneratedTokens", "timestamp,context_tokens,generated_tokens"]


@pytest.mark.parametrize("header", HEADERS)
def test_both_spellings_of_azure_s_columns_are_read(header: str, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(f"{header}\n2024-05-10 00:00:01,40,12\n2024-05-10 00:00:03,41,0\n")
    found = read_request_trace(tmp_path / "trace")
    assert (found.times_s, found.input_tokens, found.output_tokens) == ([0.0, 2.0], [40, 41], [12, 1])
    assert found.notes == ["1 of 2 requests have an answer of 0 tokens: read as 1"]


BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def test_failed_requests_of_burstgpt_are_left_out_and_told(tmp_path: Path) -> None:
    lines = [f"{5 * place}.5,ChatGPT,{20 + place},{0 if place == 1 else 12},0,log\n" for place in range(4)]
    (tmp_path / "trace").write_text(BURSTGPT + "".join(lines))
    found = read_request_trace(tmp_path / "trace")
    assert (found.kind, found.times_s, found.input_tokens) == ("burstgpt", [0.0, 10.0, 15.0], [20, 22, 23])
    assert found.notes == ["1 of 4 requests failed: left out"]


@pytest.mark.parametrize(
    ("without", "lengths", "told"), [(range(3), [], "no lengths of answers"), ([1], [12, 12], "1 of 3 requests lack")]
)
def test_missing_lengths_of_answers_are_told(without: list[int], lengths: list[int], told: str, tmp_path: Path) -> None:
    rows = timed_rows([0, 1000, 3000])
    for place in without:
        rows[place].pop("output_length")
    found = read_request_trace(json_lines(tmp_path / "trace", rows))
    assert found.output_tokens == lengths
    assert told in found.notes[0]


def test_rows_out_of_order_are_sorted_and_told(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("0\n5\n2\n7\n")
    rows = timed_rows([0, 5000, 2000, 7000])
    for place, row in enumerate(rows):
        row["input_length"] = 40 + place
    recorded = read_request_trace(json_lines(tmp_path / "rows", rows))
    assert read_request_trace(tmp_path / "times").times_s == recorded.times_s == [0.0, 2.0, 5.0, 7.0]
    assert recorded.input_tokens == [40, 42, 41, 43]
    assert recorded.notes == ["1 of 4 requests stood later in the trace than their time says: sorted"]


@pytest.mark.parametrize("size", [16, 64, 512])
@pytest.mark.parametrize("last", [1, 3, 16])
def test_prompts_with_different_blocks_are_different_whatever_the_blocks_size(
    size: int, last: int, tmp_path: Path
) -> None:
    rows = timed_rows([500 * place for place in range(300)], input_length=3 * size + last)
    for place, row in enumerate(rows):
        row["hash_ids"] = [0, 1, 2, 1000 + place]
    path = json_lines(tmp_path / "trace", rows)
    assert read_request_trace(path).block_tokens == size
    texts = [text for _, text in prompts_of(path, 0, 300)]
    assert len(set(texts)) == 300
    assert {len(text.split(" ")) for text in texts} == {3 * size + last}
    assert len({tuple(text.split(" ")[: 3 * size]) for text in texts}) == 1


def test_blocks_of_which_only_full_ones_have_an_id_are_read(tmp_path: Path) -> None:
    rows = timed_rows([500 * place for place in range(40)])
    for place, row in enumerate(rows):
        row |= {
            "input_length": 70 + place,
            "hash_ids": [0, *range(1000 * place, 1000 * place + (70 + place) // 16 - 1)],
        }
    assert read_request_trace(json_lines(tmp_path / "trace", rows)).block_tokens == 16


def test_blocks_of_no_certain_size_need_it(tmp_path: Path) -> None:
    rows = timed_rows([500 * place for place in range(40)])
    for place, row in enumerate(rows):
        row |= {"input_length": 100 * (1 + place % 3), "hash_ids": [0, 1, 2, 1000 + place]}
    path = json_lines(tmp_path / "trace", rows)
    with pytest.raises(InputError, match="--trace-block"):
        read_request_trace(path)
    assert read_request_trace(path, TraceReplay(block_tokens=32)).block_tokens == 32


@pytest.mark.parametrize(
    ("from_s", "for_s", "expected"), [(10, None, list(range(10, 40))), (0, 5, list(range(5))), (20, 2.5, [20, 21, 22])]
)
def test_a_window_of_a_trace_has_its_requests(
    from_s: float, for_s: float | None, expected: list[int], tmp_path: Path
) -> None:
    rows = timed_rows([1000 * place for place in range(40)])
    for place, row in enumerate(rows):
        row["input_length"] = 40 + place
    found = read_request_trace(json_lines(tmp_path / "trace", rows), TraceReplay(from_s=from_s, for_s=for_s))
    assert found.input_tokens == [40 + place for place in expected]
    assert found.times_s == [float(place - expected[0]) for place in expected]
    assert f"{len(expected)} of 40 requests" in found.notes[-1]


def test_a_window_without_requests_is_refused(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "trace", timed_rows([0, 1000, 9000]))
    with pytest.raises(InputError, match="window"):
        read_request_trace(path, TraceReplay(from_s=2, for_s=3))


def prompts_of(path: Path, step: int, count: int, share: int = 0, shares: int = 1) -> list[tuple[int, str]]:
    prompts, _ = build_prompts(build_sweep_config(**TARGET, rates=[5.0], trace=path))
    return list(itertools.islice(prompts.iterate_items(step, share, shares), count))


def test_prompts_have_the_trace_s_lengths_and_share_its_prefixes(tmp_path: Path) -> None:
    rows = write_mooncake(tmp_path / "trace", 40)
    texts = [text.split(" ") for _, text in prompts_of(tmp_path / "trace", 0, 40)]
    assert [len(words) for words in texts] == [row["input_length"] for row in rows]
    n_shared = 0
    for one, other in itertools.combinations(range(40), 2):
        same = [left == right for left, right in zip(rows[one]["hash_ids"], rows[other]["hash_ids"], strict=False)]
        common = 512 * (same.index(False) if False in same else len(same))
        n_shared += common > 0
        # As long as both go on, their beginnings are equal where the ids are, and nowhere else.
        longest = min(common, len(texts[one]), len(texts[other]))
        assert texts[one][:longest] == texts[other][:longest]
        assert texts[one][: longest + 20] != texts[other][: longest + 20] or longest + 20 > len(texts[one])
    assert n_shared > 5


def test_what_a_step_sent_is_not_sent_again_by_the_next_one_or_the_next_pass(tmp_path: Path) -> None:
    write_mooncake(tmp_path / "trace", 20)
    first, second = (prompts_of(tmp_path / "trace", step, 40) for step in (0, 1))
    texts = [text for _, text in [*first, *second]]
    assert len(set(texts)) == len(texts)
    assert len({item for item, _ in [*first, *second]}) == 80


def test_processes_send_the_trace_together_in_its_order(tmp_path: Path) -> None:
    write_mooncake(tmp_path / "trace", 20)
    whole = prompts_of(tmp_path / "trace", 0, 40)
    shares = [prompts_of(tmp_path / "trace", 0, 20, share, 2) for share in (0, 1)]
    assert [one for pair in zip(*shares, strict=True) for one in pair] == whole


@pytest.mark.parametrize("kind", WRITERS)
def test_a_replay_asks_for_each_request_s_lengths_in_order(kind: str, tmp_path: Path) -> None:
    rows = WRITERS[kind](tmp_path / "trace", 30)
    sizes = {"least_samples": 20, "most_samples": 20, "min_step_s": 0, "processes": 0}
    with vllm_server(time_s=0.01) as (url, server):
        settings = TARGET | {"url": url, "trace": tmp_path / "trace", "rates": [60.0], "exact_output": True} | sizes
        found = run_sweep(**settings)
        asked = [(len(one["messages"][0]["content"].split(" ")), one["max_tokens"]) for one in server.bodies]
        assert all(one["ignore_eos"] is True and one["min_tokens"] == one["max_tokens"] for one in server.bodies)
    # Requests of one moment may overtake each other on the way; none has another's lengths.
    expected = [(row["input_length"], row["output_length"]) for row in rows]
    assert sorted(asked[:20]) == sorted(expected[:20]) or set(asked) <= set(expected)
    lengths = found.requests.sort("intended_s")["output_tokens"].to_list()
    assert lengths == [expected[place % 30][1] for place in range(len(lengths))]
    assert any("trace of 30 requests" in note for note in found.notes)


def write_times(path: Path, *parts: tuple[int, float]) -> Path:
    """Times of parts of a trace: so many requests, each so long after the one before."""
    gaps = [gap_s for count, gap_s in parts for _ in range(count)]
    path.write_text("".join(f"{time:.4f}\n" for time in itertools.accumulate(gaps)))
    return path


RULES = StepRules(StopRule(min_samples=60, max_samples=60), 0.0, 10.0)


@pytest.mark.parametrize(
    ("parts", "rate_per_s", "arrivals", "speed"),
    [
        ([(600, 1.0), (3400, 0.1)], 12.0, 80, 12.0),
        ([(600, 0.1), (3400, 1.0)], 12.0, 80, 1.2),
        ([(600, 1.0), (3400, 0.1)], 4.0, 40, 4.0),
        ([(40, 1.0)], 12.0, 40, 12.0),
    ],
)
def test_a_level_is_the_rate_of_the_part_of_a_trace_that_a_step_can_send(
    parts: list[tuple[int, float]], rate_per_s: float, arrivals: int, speed: float, tmp_path: Path
) -> None:
    times = read_request_trace(write_times(tmp_path / "trace", *parts)).times_s
    load = StepLoad(step=0, loop="open", seed=0, rate_per_s=rate_per_s, arrivals="trace", trace_s=times)
    sent, notes = choose_trace_part(load, RULES)
    assert sent.trace_s == times[:arrivals]
    due = list(itertools.islice(arrival_times(sent), 2 * arrivals))
    assert 2 * arrivals / due[-1] == pytest.approx(rate_per_s, rel=0.02)
    assert f"at {speed:.3g} times the speed" in notes[0]


@pytest.mark.live
def test_a_level_of_a_trace_has_the_name_of_what_was_offered(tmp_path: Path) -> None:
    # A step that is tight after 60 requests sends only the slow half of the part that has 40/s.
    path = write_times(tmp_path / "trace", (150, 1.0), (2000, 0.2))
    sizes = {"least_samples": 60, "most_samples": 400, "min_step_s": 0, "tight": 0.9, "processes": 0}
    with vllm_server(time_s=0.01) as (url, _):
        found = run_sweep(**TARGET | {"url": url, "trace": path, "rates": [40.0, 60.0]} | sizes)
    for step, level in enumerate((40.0, 60.0)):
        sent = found.requests.filter(pl.col("step") == step, ~pl.col("tail")).sort("intended_s")["intended_s"]
        offered = (len(sent) - 1) / (sent[-1] - sent[0])
        assert found.points["load"][step] == pytest.approx(offered, rel=0.05)
        assert found.points["load"][step] < 0.8 * level
        assert any(f"not at {level:g}/s" in note for note in found.notes)
    assert found.points.height == 2


def test_a_window_at_a_speed_is_sent_as_it_was_recorded(tmp_path: Path) -> None:
    rows = timed_rows([100 * place if place < 30 else 3000 + 500 * (place - 30) for place in range(90)])
    for place, row in enumerate(rows):
        row |= {"input_length": 40 + place, "hash_ids": [place, 1000 + place, 2000 + place]}
    path = json_lines(tmp_path / "trace", rows)
    part = {"trace_from_s": 3, "trace_for_s": 20, "speed": [20, 40], "trace_block": 16, "trace_unit": "ms"}
    sizes = {"least_samples": 30, "most_samples": 30, "min_step_s": 0, "processes": 0}
    with vllm_server(time_s=0.01) as (url, server):
        found = run_sweep(**TARGET | {"url": url, "trace": path} | part | sizes)
        lengths = {len(body["messages"][0]["content"].split(" ")) for body in server.bodies}
    assert lengths <= set(range(70, 110))
    assert found.points["load"].to_list() == pytest.approx([40.0, 80.0], rel=0.03)
    assert any("window of the trace from 3 s to 23 s: 40 of 90 requests" in note for note in found.notes)
    assert any("speed 20 of the trace" in note for note in found.notes)


def test_what_was_left_out_of_a_trace_is_told(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(BURSTGPT + "".join(f"{place},m,9,{place % 4},0,log\n" for place in range(40)))
    with vllm_server(time_s=0.01) as (url, _):
        sizes = {"least_samples": 20, "most_samples": 20, "min_step_s": 0, "processes": 0}
        found = run_sweep(**TARGET | {"url": url, "trace": tmp_path / "trace", "rates": [40.0]} | sizes)
    assert "10 of 40 requests failed: left out" in found.notes


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"rates": [1.0], "speed": [1.0]}, "speed and rates"),
        ({"speed": [0.0]}, "speed"),
        ({"trace_unit": "h"}, "trace_unit"),
        ({"trace": None, "arrivals": "poisson", "rates": [1.0], "trace_from_s": 5}, "trace_from_s needs"),
        ({"trace": None, "arrivals": "poisson", "speed": [1.0]}, "speed needs"),
    ],
)
def test_settings_of_a_trace_that_make_no_sense_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build_sweep_config(**TARGET | {"trace": Path("trace")} | settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"protocol": "nat", "output_cv": 1.0}, "output_cv"),
        ({"protocol": "nat", "turns": 2}, "turns"),
        ({"protocol": "openai", "model": "m", "exact_output": True}, "exact_output"),
        ({"protocol": "openai", "model": "m", "turns": 2, "arrivals": "poisson", "rates": [1.0]}, "turns"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], named: str) -> None:
    levels = {} if "rates" in settings else {"users": [1]}
    with pytest.raises(ConfigError, match=named):
        build_sweep_config(url="http://127.0.0.1:9", **levels, **settings)


@pytest.mark.parametrize("suffix", ["txt", "csv"])
def test_times_that_may_be_milliseconds_are_not_read_as_seconds(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"trace.{suffix}"
    times = [500 * place for place in range(12)]
    lines = ["Timestamp,Request tokens,Response tokens", *(f"{time},5,5" for time in times)]
    path.write_text("\n".join(lines if suffix == "csv" else map(str, times)))
    with pytest.raises(InputError, match="--trace-unit s or --trace-unit ms"):
        read_request_trace(path)
    assert read_request_trace(path, TraceReplay(time_unit="ms")).rate_per_s == pytest.approx(2.0)
    assert read_request_trace(path, TraceReplay(time_unit="s")).rate_per_s == pytest.approx(0.002)
