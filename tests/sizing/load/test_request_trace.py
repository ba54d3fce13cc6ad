"""Recorded traffic: public formats are read, replayed in order with their lengths and shared prefixes, or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.request_traces import write_azure, write_mooncake
from tests.fakes.vllm_server import vllm_server
from workbench.core.errors import ConfigError, InputError
from workbench.sizing.config import build_sweep_config
from workbench.sizing.load.request_trace import read_request_trace
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
        (AZURE + "2023-11-16 18:15:47,3,4\n2023-11-16 18:15:46,3,4\n", "decrease"),
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
