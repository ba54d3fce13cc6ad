"""Never wrong in silence, and not mute: the workbench's answers on applications and pairs whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, get_origin

import msgspec
import pytest

from tests.conftest import SAMPLES
from tests.worlds.spark import DAMAGE, SUPPORTED, draw_world
from tests.worlds.spark_answers import Judgement, judge_pair, judge_world
from workbench.eventlog import listener_events as events

N_WORLDS, N_PAIRS, MANY = 100, 10, 2000
MAX_REFUSED = 0.02
STAGE_KINDS = {
    "SparkListenerStageSubmitted": events.StageSubmittedEvent,
    "SparkListenerStageCompleted": events.StageCompletedEvent,
    "SparkListenerTaskEnd": events.TaskEnd,
}
# What the worlds do not have yet: plans that change while they run, and metrics that the driver sets.
NOT_MADE = {
    events.SQL + "SparkListenerSQLAdaptiveExecutionUpdate",
    events.SQL + "SparkListenerDriverAccumUpdates",
}


def list_wrong(judged: Iterable[Judgement]) -> list[str]:
    return [f"seed {one.seed} ({', '.join(one.traits)}): {'; '.join(one.wrong)}" for one in judged if one.wrong]


def list_refused(judged: Iterable[Judgement]) -> list[str]:
    """Refusals of worlds whose traits are supported."""
    return [
        f"seed {one.seed} ({', '.join(one.traits)}): {one.refused[0]}"
        for one in judged
        if one.refused and not set(one.traits) & set(DAMAGE)
    ]


def test_no_answer_about_an_application_is_wrong_in_silence_and_few_are_refused() -> None:
    judged = [judge_world(seed) for seed in range(N_WORLDS)]
    assert list_wrong(judged) == []
    assert len(list_refused(judged)) <= MAX_REFUSED * N_WORLDS, list_refused(judged)


@pytest.mark.parametrize("trait", SUPPORTED)
def test_each_trait_alone_gets_its_answer(trait: str) -> None:
    judged = [judge_world(seed, [trait]) for seed in (1, 2)]
    assert list_wrong(judged) == []
    assert list_refused(judged) == []


@pytest.mark.parametrize("trait", DAMAGE)
def test_damage_is_refused(trait: str) -> None:
    judged = [judge_world(seed, [trait]) for seed in (1, 2)]
    assert list_wrong(judged) == []
    assert all(one.refused for one in judged)


def test_no_pair_of_engines_gets_a_ratio_that_is_not_theirs() -> None:
    judged = [judge_pair(seed) for seed in range(N_PAIRS)]
    assert list_wrong(judged) == []
    # One table of other data makes a pair invalid, and nothing else does.
    assert [one.seed for one in judged if one.refused and "other_data" not in one.traits] == []


@pytest.mark.slow
def test_no_answer_of_many_is_wrong_in_silence() -> None:
    judged = [judge_world(seed) for seed in range(10_000, 10_000 + MANY)]
    assert list_wrong(judged) == []
    assert len(list_refused(judged)) <= MAX_REFUSED * MANY, list_refused(judged)


def test_a_world_without_traits_has_all_fields_that_the_reader_uses_of_a_real_recording() -> None:
    lines = (SAMPLES / "eventlogs" / "small" / "three_queries").read_text().splitlines()
    real, made = (
        list_used_fields(texts) for texts in (lines, draw_world(0, (), spark="3.5.9", layout="plain").lines())
    )
    assert real.keys() - made.keys() == NOT_MADE
    for kind in real.keys() - NOT_MADE:
        assert real[kind].keys() <= made[kind].keys(), kind
        other_types = {name: made[kind][name] - types for name, types in real[kind].items()}
        assert not any(other_types.values()), (kind, other_types)


def list_used_fields(lines: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """Types in JSON by field, of the fields that the reader decodes, by kind of event."""
    found: dict[str, dict[str, set[str]]] = {}
    for line in lines:
        event = json.loads(line)
        kind = (events.KINDS | STAGE_KINDS).get(event["Event"])
        if kind is not None:
            note_fields(kind, event, "", found.setdefault(event["Event"], {}))
    return found


def note_fields(kind: Any, value: Any, path: str, fields: dict[str, set[str]]) -> None:
    if isinstance(value, list):
        for one in value:
            note_fields(kind, one, path, fields)
        return
    for field in msgspec.structs.fields(kind):
        if not isinstance(value, dict) or value.get(field.encode_name) is None:
            continue
        name, part = f"{path}/{field.encode_name}", value[field.encode_name]
        fields.setdefault(name, set()).add(type(part).__name__)
        for inner in find_structs(field.type):
            # Plans nest: a node is a node, however deep.
            parts = list(part.values()) if get_origin(field.type) is dict else part
            note_fields(inner, parts, "plan" if inner is events.Plan else name, fields)


def find_structs(annotation: Any) -> list[Any]:
    """Structures that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [inner for part in getattr(annotation, "__args__", ()) for inner in find_structs(part)]
