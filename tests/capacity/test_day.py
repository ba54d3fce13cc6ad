"""A day from texts: hours, numbers, and what is wrong with them."""

from __future__ import annotations

import pytest

from workbench.capacity.day import job_class, load_by_hour
from workbench.errors import ConfigError


def test_a_job_class_is_read_with_all_that_it_says() -> None:
    one = job_class("etl applications='etl * v2' gpus=4 pods=5 per_hour=12.5 hours=6-8,22-1 stack_share=0.3")
    assert (one.name, one.applications, one.gpus, one.pods, one.stack_share) == ("etl", "etl * v2", 4, 5, 0.3)
    assert [hour for hour, jobs in enumerate(one.per_hour) if jobs] == [0, 6, 7, 22, 23]
    assert set(one.per_hour) == {0.0, 12.5}


def test_numbers_for_each_hour_stand_as_they_are() -> None:
    numbers = [float(value) for value in range(24)]
    assert job_class("a per_hour=" + ",".join(map(str, numbers))).per_hour == numbers
    assert job_class("a per_hour=3").per_hour == [3.0] * 24
    assert load_by_hour([",".join(map(str, numbers)), "1"]) == [value + 1 for value in numbers]


def test_loads_of_texts_add_up() -> None:
    assert load_by_hour(["20", "380 hours=9-11", "5 hours=10"])[8:12] == [20.0, 400.0, 405.0, 20.0]
    assert load_by_hour([]) == [0.0] * 24


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a job class"),
        ("etl 'per_hour=1", "not a job class"),
        ("per_hour=5", "no name"),
        ("etl gpus=1", "how many jobs"),
        ("etl per_hour=1 cpus=4", "cpus=4"),
        ("etl per_hour=1 per_hour=2", "set twice"),
        ("etl per_hour=many", "not a number"),
        ("etl per_hour=nan", "not a number"),
        ("etl per_hour=1,2,3", "how many hours"),
        ("etl per_hour=1 hours=9-9", "hours of a day"),
        ("etl per_hour=1 hours=9-30", "hours of a day"),
        ("etl per_hour=-1", "per_hour"),
        ("etl per_hour=1 gpus=0", "gpus"),
        ("etl per_hour=1 gpus=1.5", "gpus"),
        ("etl per_hour=1 stack_share=2", "stack_share"),
    ],
)
def test_a_job_class_that_is_none_is_told_in_words(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as told:
        job_class(text)
    assert said in str(told.value)


@pytest.mark.parametrize("text", ["some", "5 from=9", "5 hours=x", "-3", "1e12", ""])
def test_a_load_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        load_by_hour([text])
