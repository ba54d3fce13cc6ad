"""The animals of the zoo: what each service does wrong, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.zoo import Animal, Fate, Healthy


@dataclass
class Refuses(Healthy):
    """Above `admits` in flight on each GPU it refuses at once."""

    admits: int = 8
    status: int = 429
    retry_after_s: float | None = 1.0
    outcome: str = "http_error"
    takes_s: float = 0.02

    def decide(self, now_s: float, item: str) -> Fate:
        if self.in_flight(now_s) < self.admits * self.gpus:
            return Fate(self.draw_s())
        after = self.retry_after_s
        return Fate(self.takes_s, self.outcome, self.status, retry_after_s=after, holds_slot=False)


@dataclass
class Apologises(Healthy):
    """Above `admits` in flight it says sorry, with status 200 and at once."""

    admits: int = 8
    tokens: int = 9

    def decide(self, now_s: float, item: str) -> Fate:
        if self.in_flight(now_s) < self.admits * self.gpus:
            return Fate(self.draw_s())
        return Fate(0.05, tokens=self.tokens, text=7, holds_slot=False)


@dataclass
class Shortens(Healthy):
    """Under load its answers become a fifth as long, and as much faster."""

    def decide(self, now_s: float, item: str) -> Fate:
        busy = self.in_flight(now_s) >= 2 * self.slots * self.gpus
        return Fate(self.draw_s() / 5, tokens=12) if busy else Fate(self.draw_s())


@dataclass
class Fails(Healthy):
    """A share of the requests fails, whatever the load."""

    share: float = 0.05
    outcome: str = "http_error"
    status: int = 500

    def decide(self, now_s: float, item: str) -> Fate:
        if self.random.random() < self.share:
            return Fate(0.01, self.outcome, self.status, holds_slot=False)
        return Fate(self.draw_s())


@dataclass
class Caches(Healthy):
    """Answers a prompt that it has seen at once; a warm one has seen all that the sweep sends."""

    seen: set[str] = field(default_factory=set)
    warm: bool = False

    def decide(self, now_s: float, item: str) -> Fate:
        if item in self.seen or (self.warm and not item.startswith(("unique", "x"))):
            return Fate(0.02, holds_slot=False)
        self.seen.add(item)
        return Fate(self.draw_s())


@dataclass
class CachesPrefixes(Healthy):
    """What shares its beginning with an earlier prompt takes a third."""

    def decide(self, now_s: float, item: str) -> Fate:
        own = item.startswith(("unique", "x"))
        return Fate(self.draw_s() * (1.0 if own else 0.33))


@dataclass
class Bimodal(Healthy):
    """Some requests take twelve times as long."""

    share: float = 0.06

    def decide(self, now_s: float, item: str) -> Fate:
        return Fate(self.draw_s() * (12 if self.random.random() < self.share else 1))


@dataclass
class Drifts(Healthy):
    """Becomes slower by half of its first time every `half_s` seconds, without end."""

    half_s: float = 400.0

    def decide(self, now_s: float, item: str) -> Fate:
        return Fate(self.draw_s() * (1 + 0.5 * now_s / self.half_s))


@dataclass
class Leaks(Healthy):
    """Becomes slower with every request."""

    per_request: float = 0.0003

    def decide(self, now_s: float, item: str) -> Fate:
        return Fate(self.draw_s() * (1 + self.per_request * self.n_seen))


@dataclass
class StartsSlowly(Healthy):
    """In its first minute everything takes five times as long."""

    first_s: float = 60.0

    def decide(self, now_s: float, item: str) -> Fate:
        return Fate(self.draw_s() * (5 if now_s < self.first_s else 1))


@dataclass
class HalfDead(Healthy):
    """Every second request goes to a replica that is not there."""

    outcome: str = "http_error"
    takes_s: float = 0.01

    def decide(self, now_s: float, item: str) -> Fate:
        if self.n_seen % 2:
            return Fate(self.takes_s, self.outcome, 502, holds_slot=False)
        return Fate(self.draw_s())


@dataclass
class WrongClock(Healthy):
    """Its own clock says another time than passed."""

    share: float = 0.5

    def decide(self, now_s: float, item: str) -> Fate:
        return Fate(self.draw_s(), clock=self.share)


@dataclass
class Collapses(Healthy):
    """The more is in flight, the less it does."""

    def decide(self, now_s: float, item: str) -> Fate:
        over = max(0, self.in_flight(now_s) - 2 * self.slots * self.gpus)
        return Fate(self.draw_s() * (1 + 0.1 * over / self.gpus))


@dataclass
class TokenBucket(Healthy):
    """So many requests a second and GPU, and a burst before; what is over is refused at once."""

    rate_per_s: float = 4.0
    burst: float = 300.0
    level: float = 300.0
    last_s: float = 0.0

    def decide(self, now_s: float, item: str) -> Fate:
        self.level = min(self.burst, self.level + (now_s - self.last_s) * self.rate_per_s * self.gpus)
        self.last_s = now_s
        if self.level < 1:
            return Fate(0.02, "http_error", 429, holds_slot=False)
        self.level -= 1
        return Fate(self.draw_s())


PER_S = Healthy().per_s
OPEN = {"arrivals": "poisson"}


def _rates(*shares: float) -> dict[str, object]:
    return OPEN | {"rates": [round(share * PER_S, 3) for share in shares]}


ANIMALS: dict[str, Animal] = {
    "silent queue": Animal("queues what exceeds its slots, and reports nothing", Healthy),
    "exact capacity": Animal("open loop up to exactly its capacity", Healthy, _rates(0.5, 0.7, 0.85, 1.0)),
    "exact capacity, long limit": Animal(
        "the same, and only a long test exceeds the limit", Healthy, _rates(0.6, 0.8, 1.0), "p95<=20"
    ),
    "exact capacity, constant": Animal(
        "evenly spaced arrivals at exactly its capacity", Healthy, {"arrivals": "constant", "rates": [4.8, 6.4, 8.0]}
    ),
    "only at capacity": Animal(
        "open loop at exactly its capacity, no lower level", Healthy, _rates(0.98, 1.0), "p95<=20"
    ),
    "overload": Animal("open loop far above its capacity", Healthy, _rates(0.5, 0.8, 1.25, 1.4), "p95<=20", 400),
    "overload alone": Animal("open loop only above its capacity", Healthy, _rates(1.25, 1.4), "p95<=30", 400),
    "open loop": Animal("open loop, levels chosen by the sweep", Healthy, OPEN),
    "open loop, constant": Animal("the same, evenly spaced", Healthy, {"arrivals": "constant"}),
    "429": Animal("refuses more than 8 in flight", Refuses),
    "503": Animal("the same with 503 and Retry-After", lambda **more: Refuses(status=503, admits=6, **more)),
    "503, open": Animal("the same in an open loop", lambda **more: Refuses(status=503, admits=6, **more), OPEN),
    "empty": Animal("empty answers above 8 in flight", lambda **more: Refuses(outcome="malformed", status=200, **more)),
    "error in 200": Animal(
        "an error with status 200 above 8 in flight", lambda **more: Refuses(outcome="failed", status=200, **more)
    ),
    "error in stream": Animal(
        "4 % of the streams end with an error", lambda **more: Fails(outcome="failed", share=0.04, **more), never=True
    ),
    "apology": Animal("an apology with status 200 above 8 in flight", Apologises),
    "apology of usual length": Animal("the same, as long as an answer", lambda **more: Apologises(tokens=60, **more)),
    "apology, open": Animal("the same in an open loop", Apologises, OPEN),
    "shorter answers": Animal("answers a fifth as long under load", Shortens, need=25),
    "cached prompts": Animal("answers repeated prompts at once", Caches, true_service=Healthy, file_of_prompts=400),
    "warm cache": Animal(
        "has seen all prompts before",
        lambda **more: Caches(warm=True, **more),
        true_service=Healthy,
        file_of_prompts=40,
    ),
    "cached prefixes": Animal(
        "a known beginning saves two thirds of the time", CachesPrefixes, true_service=Healthy, file_of_prompts=4000
    ),
    "bimodal": Animal("6 % take twelve times as long", Bimodal, goal="p95<=9"),
    "bimodal at the quantile": Animal(
        "5 % take twelve times as long", lambda **more: Bimodal(share=0.05, **more), goal="p95<=3"
    ),
    "drift": Animal("becomes slower without end", Drifts, never=True),
    "leak": Animal("becomes slower with every request", Leaks, never=True),
    "slow start": Animal("five times as slow in its first minute", StartsSlowly, true_service=Healthy),
    "slow start, long": Animal(
        "the same for ten minutes", lambda **more: StartsSlowly(first_s=600, **more), true_service=Healthy
    ),
    "half dead": Animal("half of the requests go to a dead replica", HalfDead, gpus=2, never=True),
    "half silent": Animal(
        "the same, without an answer",
        lambda **more: HalfDead(outcome="timeout", takes_s=60, **more),
        gpus=2,
        never=True,
    ),
    "clock slow": Animal("its clock shows half the time", WrongClock),
    "clock fast": Animal("its clock shows twice the time", lambda **more: WrongClock(share=2.0, **more)),
    "500 in part": Animal("5 % fail", Fails, never=True),
    "truncated": Animal(
        "3 % of the streams break off", lambda **more: Fails(outcome="cut", share=0.03, **more), never=True
    ),
    "collapse": Animal("its rate falls under overload, closed loop", Collapses),
    "collapse, open": Animal("its rate falls under overload, open loop", Collapses, OPEN),
    "token bucket": Animal("a rate limit with a burst", TokenBucket, OPEN),
    "token bucket, closed": Animal("the same in a closed loop", TokenBucket),
    "heavy tail": Animal(
        "times with a coefficient of variation of 2", lambda **more: Healthy(cv=2.0, **more), goal="p95<=4"
    ),
    "deterministic": Animal("times without variation", lambda **more: Healthy(cv=0.0, **more)),
    "few samples": Animal("20 requests per level", Healthy, {"least_samples": 20, "most_samples": 20}),
    "time-out": Animal("the longest waits time out", Healthy, {"timeout_s": 4.0} | OPEN),
    "one at a time": Animal(
        "a GPU serves one request", lambda **more: Healthy(slots=1, mean_s=0.2, **more), goal="p95<=0.45"
    ),
}
CORE = ("silent queue", "overload", "429", "apology", "cached prompts", "drift")
"""One of each class, for the quick tier."""
