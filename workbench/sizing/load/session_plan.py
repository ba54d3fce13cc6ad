"""How long sessions of users are before one was seen, and which steps are too short for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from workbench.core.errors import ConfigError

USUAL_ANSWER_TOKENS = 200
"""Tokens that an answer is taken to have where none are asked for, before one was seen. Chosen."""
USUAL_TOKENS_PER_S = 60.0
"""Tokens a second that a user is taken to get before one was seen. Chosen."""


@dataclass(frozen=True)
class SessionPlan:
    """How long the sessions of a closed loop are before one was seen, and what steps they need.

    `answer_s`: About how long an answer takes. `levels`: Users of each level; empty where they are adaptive.
    """

    turns: int
    think_s: float
    answer_s: float
    least_samples: int
    levels: tuple[int, ...]

    @property
    def first_session_s(self) -> float:
        """Length of a first session, of which no request counts."""
        return self.turns * (self.think_s + self.answer_s)

    def step_s(self, users: int) -> float:
        """Length of a step that has enough requests of so many users after the first session of each.

        >>> SessionPlan(turns=5, think_s=20.0, answer_s=5.0, least_samples=200, levels=()).step_s(100)
        175.0
        """
        return (self.turns + self.least_samples / users) * (self.think_s + self.answer_s)

    @property
    def least_step_s(self) -> float:
        """Longest step that a level needs; of adaptive levels, one in which each user has a turn that counts."""
        return max((self.step_s(users) for users in self.levels), default=self.first_session_s * (1 + 1 / self.turns))

    def check_step(self, max_step_s: float) -> None:
        """Refuse steps that end before a first session does, or with too few requests even if answers took no time.

        Nobody has seen an answer yet: the first session is taken to be no longer than with answers as long as thoughts.
        """
        without_answers = self.think_s / (self.think_s + self.answer_s)
        first_s = min(self.first_session_s, 2 * self.turns * self.think_s)
        if max_step_s >= max(first_s, self.least_step_s * without_answers):
            return
        do = f"give --max-step {10 * math.ceil(self.least_step_s / 10)}, shorter sessions, or more --users"
        what = f"the step is too short for sessions: {self.describe()}"
        raise ConfigError(what, where="--max-step", found=f"{max_step_s:g} s", do=do)

    def describe(self) -> str:
        """Length of a first session, and of the step that the levels need."""
        turn = f"{self.think_s:g} s of think time + about {self.answer_s:.2g} s of an answer"
        first = f"a first session is {self.turns} x ({turn}) = {self.first_session_s:.0f} s"
        users = f" ({min(self.levels)} users)" if self.levels else ""
        enough = f"a step of {self.least_step_s:.0f} s has enough requests after it{users}"
        return f"{first}, of which no request counts; {enough}"

    def describe_end(self, max_step_s: float, now: datetime) -> str:
        """When the sweep ends, if its levels are known."""
        if not self.levels:
            return f"a level takes up to {max_step_s:.0f} s"
        steps = [self.step_s(users) for users in self.levels]
        soonest, latest = sum(min(step, max_step_s) for step in steps), max_step_s * len(steps)
        at = [f"{now + timedelta(seconds=seconds):%H:%M:%S}" for seconds in (soonest, latest)]
        return f"the sweep takes {soonest:.0f} s to {latest:.0f} s and ends between {at[0]} and {at[1]}"
