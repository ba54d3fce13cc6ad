"""What the user may set for a sweep: from the command line, from Python, from a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from workbench import redaction
from workbench.errors import ConfigError
from workbench.host import is_loopback
from workbench.sizing.ladder import Ladder

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Users = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(gt=0, le=1_000_000)]


GOAL = re.compile(
    r"\s*(?:(runtime|llm|ttft|itl)[ :_]?)?p(\d{1,2}(?:\.\d+)?)\s*(?:<=?|=|:)\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*"
)


class Goal(BaseModel):
    """A quantile of a metric that must not be larger than a limit.

    Examples
    --------
    >>> Goal.read("ttft p99<=300ms"), Goal.read("p95<=2").name
    (Goal(metric='ttft', q=0.99, limit_s=0.3), 'runtime p95 <= 2 s')
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: Literal["runtime", "llm", "ttft", "itl"] = Field("runtime", description="What it is set on.")
    q: float = Field(0.95, gt=0, lt=1, description="The quantile.")
    limit_s: float = Field(gt=0, description="The largest value allowed.")

    @property
    def name(self) -> str:
        """Metric, quantile, limit."""
        return f"{self.metric} p{round(100 * self.q, 6):g} <= {self.limit_s:g} s"

    @classmethod
    def read(cls, text: str) -> Goal:
        """A goal as people write it: `p95<=2`, `ttft p99<=300ms`.

        Raises
        ------
        ConfigError
            It is none.
        """
        found = GOAL.fullmatch(text)
        if found is None or not 0 < float(found[2]) < 100 or float(found[3]) == 0:
            raise ConfigError("not a goal", where="--goal", found=text[:60], allowed="like p95<=2 or 'ttft p99<=300ms'")
        limit_s = float(found[3]) / (1000 if found[4] == "ms" else 1)
        return cls(metric=found[1] or "runtime", q=round(float(found[2]) / 100, 8), limit_s=limit_s)  # type: ignore[arg-type]


class SweepConfig(BaseModel):
    """One sweep: what is driven, by which loads, until when, what it may use up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: Literal["nat", "openai", "http", "function"] = Field(
        "nat", description="nat: POST /generate/full; openai: chat completions streamed; http: a template; function."
    )
    url: str = Field("", description="Where the service is; with http the whole address, {prompt} replaced in it.")
    function: str = Field("", description="module:function, an async callable that takes a prompt.")
    target_confirm: str = Field("", description="The host of the URL once more, unless it is this machine's loopback.")
    header_env: dict[str, str] = Field({}, description="Header to the environment variable that holds its value.")
    simulated: bool = Field(False, description="The service is a simulator; everything measured says so.")
    gpus: int = Field(1, ge=1, le=100_000, description="GPUs that serve it.")

    model: str = Field("", description="Name of the model (openai).")
    output_tokens: int | None = Field(None, ge=1, description="Longest answer, in tokens (openai).")
    extra_body: dict[str, Any] = Field({}, description="More fields of the request (openai).")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field("POST", description="HTTP method (http).")
    body: Any = Field(None, description="JSON with {prompt} in its texts (http).")
    answer_at: str | None = Field(None, description="Path of the answer, such as choices.0.text (http).")
    input_tokens_at: str | None = Field(None, description="Path of the prompt's tokens (http).")
    output_tokens_at: str | None = Field(None, description="Path of the answer's tokens (http).")
    max_answer_bytes: int = Field(8 << 20, ge=1024, le=1 << 30, description="Longest line of a stream, in bytes.")

    users: list[Users] | None = Field(None, min_length=1, description="Levels of a closed loop; chosen when null.")
    rates: list[Rate] | None = Field(None, min_length=1, description="Levels of an open loop, arrivals a second.")
    goals: list[Goal] = Field([], description="What chosen levels close in on.")
    ladder: Ladder = Field(
        default_factory=lambda: Ladder.model_validate({}), description="How levels are chosen when none are given."
    )
    arrivals: Literal["users", "poisson", "constant", "trace"] = Field("users", description="How requests come.")
    trace: Path | None = Field(None, description="Times of arrivals, a number a line in seconds.")
    think_time_s: float = Field(0.0, ge=0, le=86_400, description="Mean think time of a user; exponential.")
    ramp_s: float | None = Field(None, ge=0, le=3600, description="Time over which users begin; chosen when null.")
    max_in_flight: int = Field(4096, ge=1, le=1_000_000, description="Requests in flight at most, in open loops.")

    least_samples: int = Field(200, ge=20, description="Kept requests that a step needs.")
    most_samples: int = Field(1000, ge=20, description="Kept requests after which a step ends anyway.")
    tight: float = Field(0.05, gt=0, le=1, description="A step ends when its p95 is known to this share.")
    min_step_s: float = Field(1.0, ge=0, le=3600, description="Shortest step.")
    max_step_s: float = Field(120.0, gt=0, le=86_400, description="Longest step, its tail not counted.")
    timeout_s: float = Field(300.0, gt=0, le=86_400, description="Time limit of a request.")
    max_error_ratio: float = Field(0.01, ge=0, le=1, description="Share of failures from which a point is invalid.")
    retries: int = Field(0, ge=0, le=10, description="How often a failed request is sent again.")
    processes: int = Field(1, ge=0, le=64, description="Client processes that share the load; 0: this one.")

    max_requests: int | None = Field(None, ge=1, description="Requests of the sweep at most.")
    max_duration_s: float | None = Field(None, gt=0, description="Time of the sweep at most.")
    max_tokens: int | None = Field(None, ge=1, description="Tokens of the sweep at most, prompts and answers.")
    max_cost: float | None = Field(None, gt=0, description="Cost of the sweep at most, in the prices' currency.")
    price_request: float = Field(0.0, ge=0, description="Price of a request.")
    price_million_input: float = Field(0.0, ge=0, description="Price of a million prompt tokens.")
    price_million_output: float = Field(0.0, ge=0, description="Price of a million answer tokens.")

    prompts: Path | None = Field(None, description=".txt, .jsonl, .json or .csv; without it prompts are made.")
    prompt_key: str | None = Field(None, description="Field or column that holds the prompt.")
    input_tokens: float = Field(400.0, ge=1, le=1_000_000, description="Mean length of made prompts, about, in tokens.")
    input_cv: float = Field(0.0, ge=0, le=10, description="Spread of their lengths over the mean (lognormal).")
    unique_prefix: bool = Field(False, description="Begin each prompt differently, to defeat prefix caches.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Start of all random numbers.")

    @property
    def is_open(self) -> bool:
        """Do requests come at a rate, whatever the service does?"""
        return self.arrivals != "users"

    @property
    def host(self) -> str:
        """Host of the URL; empty for a function."""
        return urlsplit(self.url).hostname or ""

    @property
    def load_means(self) -> str:
        """What a level counts, in words."""
        if self.is_open:
            return f"arrivals a second ({self.arrivals}), whatever the service does"
        if self.think_time_s:
            return f"users, each thinking {self.think_time_s:g} s on average between requests"
        return "concurrent requests (users without think time)"

    @model_validator(mode="after")
    def _fits(self) -> SweepConfig:
        self._check_target()
        self._check_load()
        if self.most_samples < self.least_samples:
            raise ValueError("most_samples is less than least_samples")
        if self.max_step_s < self.min_step_s:
            raise ValueError("max_step_s is less than min_step_s")
        prices = (self.price_request, self.price_million_input, self.price_million_output)
        if self.max_cost is not None and not any(prices):
            raise ValueError("max_cost needs a price: price_request, price_million_input or price_million_output")
        return self

    def _check_target(self) -> None:
        if self.protocol == "function":
            if self.url:
                raise ValueError("a function has no url")
            return
        if self.function:
            raise ValueError(f"function is given, but the protocol is {self.protocol}")
        _check_url(self.url)
        if self.protocol == "openai" and not self.model:
            raise ValueError("openai needs the name of a model")
        if self.protocol == "http" and "{prompt}" not in self.url + repr(self.body):
            raise ValueError("there is no {prompt} in the url or the body: every request would be the same")
        for name, value in (("extra_body", self.extra_body), ("body", self.body)):
            if (key := _secret_key(value)) is not None:
                raise ValueError(f"{name} holds a secret ({key}), and is written down; give it by --header-env")
        for header, variable in self.header_env.items():
            if not HEADER.fullmatch(header) or not VARIABLE.fullmatch(variable):
                raise ValueError("header_env is HEADER=VARIABLE, the name of an environment variable, not a value")

    def _check_load(self) -> None:
        if self.is_open and self.users is not None:
            raise ValueError(f"users are levels of a closed loop; arrivals are {self.arrivals}: give rates")
        if not self.is_open and self.rates is not None:
            raise ValueError("rates need arrivals: poisson, constant or trace")
        if self.is_open and self.think_time_s:
            raise ValueError("only users think between requests; arrivals of an open loop wait for nobody")
        if self.users is None and self.rates is None and not self.goals:
            raise ValueError("neither levels nor a goal: give users (or rates), or goals such as p95<=2")
        if (self.arrivals == "trace") != (self.trace is not None):
            raise ValueError("arrivals trace and a file in trace belong together")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("url is not one") from error
    if redaction.holds_user_info(url) or parts.username is not None:
        raise ValueError("url holds a user or password; give a header by --header-env Authorization=VARIABLE")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("url is not like http://HOST:PORT")
    if named := [name for name in _query_names(parts.query) if redaction.names_a_secret(name)]:
        raise ValueError(f"url holds a secret ({named[0]}) in its query; give it as a header by --header-env")


def _secret_key(value: Any) -> str | None:
    """A key anywhere in a JSON value that is named like a secret."""
    if isinstance(value, dict):
        for key, item in value.items():
            if redaction.names_a_secret(str(key)):
                return str(key)
            if (found := _secret_key(item)) is not None:
                return found
    elif isinstance(value, list):
        return next((found for item in value if (found := _secret_key(item)) is not None), None)
    return None


def _query_names(query: str) -> list[str]:
    return [pair.partition("=")[0] for pair in query.split("&")]


def confirm_target(config: SweepConfig) -> None:
    """Refuse to load a host that the user did not name twice.

    Raises
    ------
    ConfigError
        It is not this machine, and `target_confirm` is not its name.
    """
    if config.protocol == "function" or is_loopback(config.host):
        return
    if config.target_confirm.lower() != config.host:
        raise ConfigError(
            "the target is not this machine: a load test can take a service down, and may cost money",
            where="--url",
            found=config.host,
            do=f"add --target-confirm {config.host} if you may load it",
        )


def sweep_config(**values: Any) -> SweepConfig:
    """`SweepConfig`, with all that is wrong as one ConfigError; the values themselves are not repeated.

    Raises
    ------
    ConfigError
        Unknown names (with those there are), wrong types, values out of range, settings that contradict each other.
    """
    if unknown := sorted(set(values) - set(SweepConfig.model_fields)):
        raise ConfigError("unknown setting", found=unknown, allowed=sorted(SweepConfig.model_fields))
    try:
        return SweepConfig(**values)
    except ValidationError as error:
        raise ConfigError("settings of the sweep are wrong", found=_problems(error)) from error


def _problems(error: ValidationError) -> list[str]:
    listed = []
    for one in error.errors(include_url=False):
        where = ".".join(map(str, one["loc"]))
        message = one["msg"].removeprefix("Value error, ")
        listed.append((f"{where}: {message}" if where else message)[:200])
    return listed
