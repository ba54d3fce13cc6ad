"""What is sent: seeded order, the same mix at every level, lengths as asked, files of four kinds."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from workbench.core.errors import InputError
from workbench.sizing.load import request_plan
from workbench.sizing.load.arrival_processes import PROCESSES, ArrivalName, ArrivalSettings
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_driver import arrival_times
from workbench.sizing.load.request_plan import Prompts, read_prompts
from workbench.sizing.load.request_trace import read_request_trace


def taken(prompts: Prompts, count: int, *, step: int = 0, share: int = 0, shares: int = 1) -> list[tuple[int, str]]:
    return list(itertools.islice(prompts.iterate_items(step, share, shares), count))


def test_every_lap_sends_every_prompt_once_in_another_order() -> None:
    found = taken(Prompts([f"p{number}" for number in range(10)]), 30)
    laps = [[item for item, _ in found[at : at + 10]] for at in (0, 10, 20)]
    assert all(sorted(lap) == list(range(10)) for lap in laps)
    assert laps[0] != laps[1] != laps[2]
    assert all(text == f"p{item}" for item, text in found)


def test_the_order_follows_the_seed() -> None:
    texts = [str(number) for number in range(50)]
    assert taken(Prompts(texts, seed=1), 50) == taken(Prompts(texts, seed=1), 50)
    assert taken(Prompts(texts, seed=1), 50) != taken(Prompts(texts, seed=2), 50)
    assert taken(Prompts(texts), 50, step=0) != taken(Prompts(texts), 50, step=1)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_processes_share_even_a_short_file_without_a_prompt_twice_in_a_lap(rows: int) -> None:
    prompts = Prompts([str(number) for number in range(rows)])
    together = Counter(item for share in range(3) for item, _ in taken(prompts, 7 * rows, share=share, shares=3))
    assert set(together) == set(range(rows))
    assert max(together.values()) == min(together.values()) == 21


def test_made_prompts_are_all_different_over_steps_and_processes() -> None:
    prompts = Prompts([], tokens=30)
    found = [
        pair for step in (0, 1) for share in (0, 1) for pair in taken(prompts, 50, step=step, share=share, shares=2)
    ]
    assert len({item for item, _ in found}) == len({text for _, text in found}) == 200


def test_made_prompts_are_as_long_as_asked() -> None:
    assert {len(text.split()) for _, text in taken(Prompts([], tokens=25), 20)} == {25}
    lengths = [len(text.split()) for _, text in taken(Prompts([], tokens=100, tokens_cv=0.5), 2000)]
    mean = sum(lengths) / len(lengths)
    spread = (sum((length - mean) ** 2 for length in lengths) / len(lengths)) ** 0.5
    assert mean == pytest.approx(100, rel=0.05)
    assert spread / mean == pytest.approx(0.5, rel=0.1)


def test_a_unique_prefix_makes_every_request_another_text_and_keeps_the_prompt() -> None:
    found = taken(Prompts(["a", "b"], unique_prefix=True), 40)
    assert len({text for _, text in found}) == 40
    assert len({text[:9] for _, text in found}) == 40
    assert {text[-1] for _, text in found} == {"a", "b"}


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "one\n\ntwo\n"),
        ("a.jsonl", '{"question": "one"}\n"two"\n'),
        ("a.json", json.dumps([{"id": 1, "prompt": "one"}, {"prompt": "two"}])),
        ("a.csv", "id,question\n1,one\n2,two\n"),
    ],
)
def test_prompts_come_from_four_kinds_of_files(name: str, text: str, tmp_path: Path) -> None:
    assert read_prompts(written(tmp_path, name, text)) == ["one", "two"]


def test_a_line_separator_within_a_prompt_is_part_of_it(tmp_path: Path) -> None:
    text = json.dumps({"prompt": "a\u2028b"}, ensure_ascii=False)
    assert read_prompts(written(tmp_path, "a.jsonl", text + "\n")) == ["a\u2028b"]


def test_a_cell_of_a_csv_may_hold_a_whole_document(tmp_path: Path) -> None:
    prompt = "word " * 40_000
    assert read_prompts(written(tmp_path, "a.csv", f'id,prompt\n1,"{prompt}"\n')) == [prompt]


def test_a_key_names_the_field(tmp_path: Path) -> None:
    assert read_prompts(written(tmp_path, "a.jsonl", '{"prompt": "no", "ask": "yes"}\n'), "ask") == ["yes"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", "{not json}\n", "row 1"),
        ("a.jsonl", '{"prompt": "a"}\n{"title": "b"}\n', "row 2"),
        ("a.jsonl", '{"prompt": 7}\n', "not a text"),
        ("a.jsonl", "7\n", "not a prompt"),
        ("a.json", '{"prompt": "a"}', "not a list"),
        ("a.txt", "\n\n", "no prompts"),
        ("a.csv", "id,title\n1,x\n", "no field"),
    ],
)
def test_a_file_without_prompts_is_refused_with_the_row(name: str, text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        read_prompts(written(tmp_path, name, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the prompt file"):
        read_prompts(tmp_path / "none.txt")


def test_prompts_that_begin_differently_are_not_repeats() -> None:
    plain, unique = (Prompts(["a", "b"], unique_prefix=flag) for flag in (False, True))
    assert [item for item, _ in itertools.islice(plain.iterate_items(0, 0, 1), 6)] != list(range(6))
    assert len({item for item, _ in itertools.islice(unique.iterate_items(0, 0, 1), 6)}) == 6
    assert len({text for _, text in itertools.islice(unique.iterate_items(0, 0, 1), 6)}) == 6


POISSON = PROCESSES["poisson"]


def first(source: object, count: int) -> list[float]:
    return list(itertools.islice(source, count))  # type: ignore[call-overload]


def test_a_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    times, same, others = (first(POISSON.iterate_times(ArrivalSettings(5, seed)), 100) for seed in "aab")
    assert times == same
    assert times != others


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    gaps = [b - a for a, b in itertools.pairwise(first(POISSON.iterate_times(ArrivalSettings(4.0, "x")), 20_000))]
    mean = sum(gaps) / len(gaps)
    longer = sum(gap > 0.25 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.03)
    assert longer == pytest.approx(math.exp(-1), abs=0.02)


def test_each_name_is_a_process_of_its_own() -> None:
    assert get_args(ArrivalName) == ("users", *PROCESSES)


@pytest.mark.parametrize("kind", PROCESSES)
def test_processes_together_send_what_one_would(kind: str) -> None:
    load = StepLoad(step=3, loop="open", seed=7, rate_per_s=9.0, arrivals=kind, trace_s=[0.0, 0.5, 0.7])  # type: ignore[arg-type]
    alone = first(arrival_times(load), 300)
    shares = [list(itertools.islice(arrival_times(load), share, 300, 3)) for share in range(3)]
    assert sorted(itertools.chain(*shares)) == alone


def test_a_trace_keeps_its_shape_and_gets_the_rate() -> None:
    found = first(PROCESSES["trace"].iterate_times(ArrivalSettings(2.0, trace_s=[10.0, 10.1, 12.0, 13.0])), 400)
    assert found == sorted(found)
    assert found[399] - found[0] == pytest.approx(400 / 2.0, rel=0.01)
    assert (found[2] - found[1]) / (found[1] - found[0]) == pytest.approx(19.0)


def test_users_begin_evenly_and_never_after_the_ramp() -> None:
    starts = [request_plan.ramp_start_s(number, 50, 5.0, "s") for number in range(50)]
    assert starts == sorted(starts)
    assert all(number * 0.1 <= start < (number + 1) * 0.1 for number, start in enumerate(starts))
    assert request_plan.ramp_start_s(3, 4, 0.0, "s") == 0.0


def test_a_trace_file_has_a_time_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# recorded in May\n0\n0.5  # a burst\n\n0.5\n2\n")
    assert read_request_trace(path).times_s == [0.0, 0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0\nnoon\n", "line 2"),
        ("0\nnan\n", "line 2"),
        ("-1\n0\n", "line 1"),
        ("3\n3\n", "two different times"),
        ("", "two different times"),
    ],
)
def test_a_trace_that_is_none_is_refused(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        read_request_trace(path)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the trace"):
        read_request_trace(tmp_path / "none")
