"""When requests are due: seeded, shared without loss, refused where a trace is none."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from workbench.core.errors import InputError
from workbench.sizing.load import request_plan
from workbench.sizing.load.client_messages import StepLoad
from workbench.sizing.load.load_driver import arrival_times


def first(source: object, count: int) -> list[float]:
    return list(itertools.islice(source, count))  # type: ignore[call-overload]


def test_a_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    assert first(request_plan.poisson_arrivals(5, "a"), 100) == first(request_plan.poisson_arrivals(5, "a"), 100)
    assert first(request_plan.poisson_arrivals(5, "a"), 100) != first(request_plan.poisson_arrivals(5, "b"), 100)


def test_gaps_of_poisson_arrivals_are_exponential() -> None:
    found = first(request_plan.poisson_arrivals(4.0, "x"), 20_000)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    longer = sum(gap > 0.25 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.03)
    assert longer == pytest.approx(math.exp(-1), abs=0.02)


@pytest.mark.parametrize("kind", ["poisson", "constant", "trace"])
def test_processes_together_send_what_one_would(kind: str) -> None:
    load = StepLoad(step=3, loop="open", seed=7, rate_per_s=9.0, arrivals=kind, trace_s=[0.0, 0.5, 0.7])  # type: ignore[arg-type]
    alone = first(arrival_times(load), 300)
    shares = [list(itertools.islice(arrival_times(load), share, 300, 3)) for share in range(3)]
    assert sorted(itertools.chain(*shares)) == alone


def test_a_trace_keeps_its_shape_and_gets_the_rate() -> None:
    found = first(request_plan.scaled_trace_arrivals([10.0, 10.1, 12.0, 13.0], 2.0), 400)
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
    assert request_plan.read_arrival_trace(path) == [0.0, 0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0\nnoon\n", "line 2"),
        ("0\nnan\n", "line 2"),
        ("-1\n0\n", "line 1"),
        ("1\n0.5\n", "decrease"),
        ("3\n", "two different times"),
        ("3\n3\n", "two different times"),
        ("", "two different times"),
    ],
)
def test_a_trace_that_is_none_is_refused(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        request_plan.read_arrival_trace(path)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the trace"):
        request_plan.read_arrival_trace(tmp_path / "none")
