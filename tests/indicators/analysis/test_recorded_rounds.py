"""Error rates in recorded noise of equal stacks: idle, one and two busy cores, bursts, drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.indicators.analysis import recorded_rounds
from tests.indicators.analysis.recorded_rounds import ALPHA, MARGIN, judge_sessions, load_rounds, resample_sessions
from tests.indicators.worlds import result, session
from workbench.indicators.analysis.effects import estimate_effects
from workbench.indicators.analysis.observations import build_observations
from workbench.indicators.store.archive import CONTROL, inspection_id

LOADS = ("idle", "one busy core", "two busy cores", "bursts", "drift")
SESSIONS = 1000


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    return load_rounds()


def sessions_of(logs: np.ndarray, rounds: int = 60, sessions: int = SESSIONS) -> np.ndarray:
    return resample_sessions(logs, sessions, rounds, np.random.default_rng(7))


def test_every_kind_of_other_work_is_recorded(recorded: dict[str, np.ndarray]) -> None:
    assert tuple(recorded) == LOADS
    assert all(logs.shape[0] >= 100 and logs.shape[1:] == (6, 2) for logs in recorded.values())


@pytest.mark.parametrize("load", LOADS)
def test_looked_at_after_every_round_few_sessions_are_ever_wrong(load: str, recorded: dict[str, np.ndarray]) -> None:
    made = sessions_of(recorded[load])
    assert judge_sessions(made).share("faster|slower") <= ALPHA
    assert judge_sessions(made, MARGIN).share("faster|slower") <= ALPHA
    assert judge_sessions(made, MARGIN).share("same") <= ALPHA


@pytest.mark.parametrize("load", LOADS)
def test_a_large_difference_is_told_and_never_turned_round(load: str, recorded: dict[str, np.ndarray]) -> None:
    """The recorded runs differ by 20 % from their neighbours: 10 % take more rounds than there are, half takes few."""
    made = sessions_of(recorded[load])
    assert judge_sessions(made, math.log1p(0.10)).share("faster") <= ALPHA / 2
    claims = judge_sessions(made, math.log1p(0.50))
    assert claims.slower[:, :, :30].any(axis=2).mean() >= 0.9
    assert claims.share("faster") == 0


def test_measured_one_after_the_other_equal_stacks_are_told_apart(recorded: dict[str, np.ndarray]) -> None:
    """The same noise makes false claims: of a design without rounds."""
    draw = np.random.default_rng(7)
    shares = [recorded_rounds.measure_block_errors(logs, 30, draw, SESSIONS) for logs in recorded.values()]
    assert max(wall for wall, _ in shares) > 0.2


def test_the_shares_are_of_verdicts_that_a_session_gives(recorded: dict[str, np.ndarray]) -> None:
    """Sessions as they are stored, judged by the product, get what the arrays above say."""
    arms = ("base", "b", "c", "d", "e")
    plan = session(arms, method="sequence", control=True)
    wanted = {True: {"SAME": 0, "SLOWER": 0}, False: {"SAME": 0, "SLOWER": 0}}
    for load, effect, share in (("idle", 0.0, 0.05), ("idle", math.log1p(0.05), 0.2), ("two busy cores", 0.5, 1.0)):
        # A part of the noise, so that 20 rounds tell some apart and leave some open.
        made = share * sessions_of(recorded[load], rounds=20, sessions=6)
        claims = judge_sessions(made, effect)
        for one in range(len(made)):
            found = []
            for number in range(20):
                for place, arm in enumerate((*arms, CONTROL)):
                    more = effect if arm not in ("base", CONTROL) else 0.0
                    wall, cpu = np.exp(made[one, number, place] + more)
                    stored = result(plan, arm, "Sort", number, float(wall), cpu_ms=float(cpu))
                    found.append((inspection_id(plan.session_id, arm, "Sort"), number, stored))
            table = estimate_effects(build_observations(plan, found))
            verdicts = dict(table.filter(~table["control"]).select("arm", "verdict").iter_rows())
            for place, arm in enumerate(arms[1:]):
                for name, said in (("SAME", claims.same), ("SLOWER", claims.slower)):
                    told = bool(said[one, place, -1, 0])
                    wanted[told][name] += 1
                    # Holm's later steps tell more apart than the first one, which the arrays hold.
                    assert (verdicts[arm] == name) == told or (name == "SLOWER" and verdicts[arm] == name), (load, arm)
    assert min(count for by_name in wanted.values() for count in by_name.values()) > 0
