"""SIMULATED sides that differ in 20 to 60 things, with planted causes: the exact set, and no wrong name."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from workbench.indicators.analysis.blame_search import Arm, BlameSearch
from workbench.stats import Interval, sequential_log_ratio

MARGIN, MAX_ROUNDS = 0.02, 40


@dataclass
class World:
    """Causes and their factors; `together`: slow only if all of these are there; `either`: if any one is."""

    n: int
    alone: dict[int, float]
    together: tuple[frozenset[int], float] | None
    noise: float
    draw: np.random.Generator
    either: tuple[Arm, float] | None = None

    @property
    def causes(self) -> set[int]:
        return {*self.alone, *(self.together[0] if self.together else ())}

    def measure(self, arms: list[Arm], slow: Arm) -> dict[Arm, Interval]:
        """Rounds of all arms until each is decided, as a session."""
        times: dict[Arm, list[float]] = {arm: [] for arm in [slow, *arms]}
        level = 1 - 0.05 / len(arms)
        ratios: dict[Arm, Interval] = {}
        for number in range(1, MAX_ROUNDS + 1):
            shared = self.draw.normal(0, self.noise)
            for arm, of_arm in times.items():
                of_arm.append(math.exp(self._log_time(arm) + shared + self.draw.normal(0, self.noise)))
            if number in (10, 20, 30, MAX_ROUNDS):
                ratios = {arm: sequential_log_ratio(times[slow], times[arm], level=level) for arm in arms}
        return ratios

    def _log_time(self, arm: Arm) -> float:
        total = sum(math.log(factor) for cause, factor in self.alone.items() if cause in arm)
        if self.together and self.together[0] <= arm:
            total += math.log(self.together[1])
        if self.either and self.either[0] & arm:
            total += math.log(self.either[1])
        return total


def draw_world(seed: int) -> World:
    """Of 40: ten without a cause, eight with an interaction, the others with one to three causes."""
    draw = np.random.default_rng(seed)
    n = int(draw.integers(20, 61))
    noise = float(draw.uniform(0.005, 0.03))
    kind = seed % 40
    if kind < 10:
        return World(n, {}, None, noise, draw)
    if kind < 18:
        parts = draw.choice(n, int(draw.integers(2, 4)), replace=False)
        return World(n, {}, (frozenset(map(int, parts)), float(draw.uniform(1.2, 2.0))), noise, draw)
    places = draw.choice(n, int(draw.integers(1, 4)), replace=False)
    return World(n, {int(place): float(draw.uniform(1.1, 1.8)) for place in places}, None, noise, draw)


def search(world: World) -> BlameSearch:
    found = BlameSearch(world.n, MARGIN)
    while arms := found.list_arms():
        found.take(world.measure(arms, found.slow))
        assert found.n_sessions < 40
    return found


def test_forty_worlds() -> None:
    n_exact, n_wrong = 0, 0
    for seed in range(40):
        world = draw_world(seed)
        found = search(world)
        named = {cause.difference for cause in found.causes}
        n_exact += named == world.causes and found.kind in (("found",) if world.causes else ("nothing", "not known"))
        n_wrong += bool(named - world.causes)
        assert found.n_sessions <= 2 * math.log2(world.n) + 6
    assert n_exact >= 36
    assert n_wrong <= 1


@pytest.mark.parametrize("seed", range(10))
def test_of_two_causes_that_stand_in_for_each_other_one_is_named(seed: int) -> None:
    world = draw_world(10 * seed)
    either = frozenset(map(int, world.draw.choice(world.n, 2, replace=False)))
    found = search(World(world.n, {}, None, 0.01, world.draw, either=(either, 1.5)))
    named = {cause.difference for cause in found.causes}
    assert found.kind == "found"
    assert len(named) == 1
    assert named <= either


@pytest.mark.parametrize("seed", range(10))
def test_what_makes_the_slow_side_faster_hides_no_cause_and_is_none(seed: int) -> None:
    draw = np.random.default_rng(seed)
    slower, faster = map(int, draw.choice(30, 2, replace=False))
    found = search(World(30, {slower: 1.6, faster: 0.8}, None, 0.01, draw))
    assert {cause.difference for cause in found.causes} == {slower}
    assert found.kind == "found"


def test_parts_of_an_interaction_are_told_by_what_each_does_alone() -> None:
    draw = np.random.default_rng(3)
    found = search(World(24, {}, (frozenset({5, 17}), 1.5), 0.005, draw))
    assert {cause.difference for cause in found.causes} == {5, 17}
    for cause in found.causes:
        assert cause.without.estimate == pytest.approx(1.5, rel=0.03)
        assert cause.alone is not None
        assert cause.alone.estimate == pytest.approx(1.0, rel=0.03)
        assert cause.share == pytest.approx(1.0, rel=0.05)
    alone = search(World(24, {5: 1.5}, None, 0.005, draw)).causes[0]
    assert alone.alone is not None
    assert alone.alone.estimate == pytest.approx(1.5, rel=0.03)


def test_equal_sides_have_no_cause() -> None:
    found = search(World(40, {}, None, 0.002, np.random.default_rng(1)))
    assert (found.kind, found.causes, found.n_sessions) == ("nothing", [], 1)
