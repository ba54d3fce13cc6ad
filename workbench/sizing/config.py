"""Settings of a sweep and of the notebook: goals, target, load levels, limits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from workbench.core import redaction
from workbench.core.errors import ConfigError
from workbench.core.field_options import parse_numbers, setting
from workbench.core.host import is_loopback
from workbench.core.schema import StrictModel, validate_model
from workbench.live.file_picker import Pick
from workbench.live.form import FieldGroup, added_field
from workbench.sizing.estimation import metrics
from workbench.sizing.load.agent_tasks import USUAL_MAX_PAUSE_S
from workbench.sizing.load.arrival_processes import ArrivalName
from workbench.sizing.load.client_messages import CHAT_PROTOCOLS, VECTOR_PROTOCOLS, ProtocolName
from workbench.sizing.load.level_ladder import Ladder
from workbench.sizing.load.request_trace import TimeUnit, TraceReplay
from workbench.sizing.load.session_plan import USUAL_ANSWER_TOKENS, USUAL_TOKENS_PER_S, SessionPlan
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.tables import MIN_SAMPLES
from workbench.stats.littles_law import count_users_at_once

HEADER_PATTERN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
WORKERS_PATTERN = re.compile(r"local:([1-9]|[1-5]\d|6[0-4])|dask://([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]+\]):\d{1,5}")
VARIABLE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Users = Annotated[int, Field(ge=1, le=1_000_000)]
Rate = Annotated[float, Field(gt=0, le=1_000_000)]
GOAL_PATTERN = re.compile(
    rf"\s*(?:({'|'.join(metrics.METRICS)})[ :_]?)?p(\d{{1,2}}(?:\.\d+)?)\s*(?:<=?|=|:)\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*"
)
_TRACE = Pick("trace", files=("*.csv", "*.jsonl", "*.txt"))
_TASKS = Pick("agent tasks", files=("*.json", "*.jsonl"))
_SWEEP = Pick("sweep", folders=("sweep.json",))
Speed = Annotated[float, Field(gt=0, le=1_000_000)]
Gpus = Annotated[int, Field(ge=1, le=4096)]
TRACE_FIELDS = ("trace_from_s", "trace_for_s", "trace_unit", "trace_block", "speed")
TASK_METRICS = ("runtime", "e2e", "llm")
"""Metrics of a task that has several calls."""
WORKFLOW_FIELDS = (
    *("input_tokens", "input_cv", "output_tokens", "output_cv"),
    *("calls", "tool_s", "tool_cv", "shared_s"),
)
"""Fields of the simulated service that say what a request is."""
# Set by other parameters of the notebook.
SERVICE_FIELDS = ("protocol", "url", "function", "target_confirm", "header_env", "gpus", "goals", "seed")


class Goal(StrictModel):
    """A quantile of a metric and its largest allowed value.

    Examples
    --------
    >>> Goal.read("ttft p99<=300ms"), Goal.read("p95<=2").name
    (Goal(metric='ttft', q=0.99, limit_s=0.3), 'runtime p95 <= 2 s')
    >>> Goal.read("ttft p99.9<=2").q
    0.999
    """

    metric: str = Field(metrics.DEFAULT_METRIC, description=f"Metric: {metrics.METRIC_NAMES_TEXT}.")
    q: float = Field(metrics.DEFAULT_QUANTILE, gt=0, lt=1, description="Quantile, such as 0.95.")
    limit_s: float = Field(gt=0, description="Largest allowed value, in seconds.")

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, name: str) -> str:
        if name not in metrics.METRICS:
            raise ValueError(f"must be {metrics.METRIC_NAMES_TEXT}")
        return name

    @property
    def name(self) -> str:
        """Metric, quantile and limit."""
        return f"{metrics.format_quantile(self.metric, self.q)} <= {self.limit_s:g} s"

    @classmethod
    def read(cls, text: str) -> Goal:
        """Parse a goal such as `p95<=2` or `ttft p99<=300ms`.

        Raises
        ------
        ConfigError
            The text is not a goal.
        """
        match = GOAL_PATTERN.fullmatch(text)
        if match is None or not 0 < float(match[2]) < 100 or float(match[3]) == 0:
            raise ConfigError("not a goal", where="--goal", found=text[:60], allowed="like p95<=2 or 'ttft p99<=300ms'")
        limit_s = float(match[3]) / (1000 if match[4] == "ms" else 1)
        return cls(metric=match[1] or metrics.DEFAULT_METRIC, q=round(float(match[2]) / 100, 8), limit_s=limit_s)


class SweepConfig(StrictModel):
    """Settings of a sweep: target, load levels, stop rule, limits, prompts."""

    url: str = setting("", "URL of the service; with http the whole address, {prompt} replaced in it.", "Service")
    protocol: ProtocolName = setting(
        "nat",
        "nat: POST /generate/full; openai: chat completions, or completions by the url; responses; anthropic: "
        "messages; embeddings; rerank; http: JSON by template; function.",
        "Service",
    )
    function: str = setting("", "MODULE:NAME of an async callable to drive instead of a URL.", "Service")
    target_confirm: str = setting("", "Host of the URL again; required unless it is this machine.", "Service")
    header_env: dict[str, str] = setting(
        {}, "Header, and the environment variable of its value. Repeatable.", "Service", metavar="HEADER=VARIABLE"
    )
    gpus: int = setting(1, "GPUs that serve it.", "Service", ge=1, le=100_000)
    gpu_type: str = setting(
        "", "Type of its GPUs, as predictions name it: h100_sxm. They are scored by it.", "Service", max_length=40
    )
    simulated: bool = setting(False, "Mark the results as simulated.", "Service")
    metrics_url: str = setting(
        "", "Prometheus metrics of the server, sampled during the load: http://HOST:PORT/metrics.", "Service"
    )
    gpu_metrics: bool = setting(
        False, "Sample this machine's GPUs by NVML during the load, if the server runs on them.", "Service"
    )
    metrics_every_s: float = setting(0.5, "Time between two samples of them, in seconds.", "Service", ge=0.05, le=60)
    model: str = setting("", "Name of the model (openai).", "Requests")
    output_tokens: int | None = setting(None, "Longest answer, in tokens (openai).", "Requests", ge=1)
    output_cv: float = setting(0.0, "Coefficient of variation of that length (lognormal).", "Requests", ge=0, le=10)
    exact_output: bool = setting(
        False, "Ask for answers of exactly that length (ignore_eos, min_tokens: vLLM, NIM, SGLang).", "Requests"
    )
    extra_body: dict[str, Any] = setting(
        {}, "More fields of the request; null takes one out (openai).", "Requests", metavar="JSON"
    )
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = setting("POST", "HTTP method (http).", "Requests")
    body: Any = setting(None, "JSON body with {prompt} in its texts (http).", "Requests")
    answer_at: str | None = setting(None, "Path of the answer, such as choices.0.text (http).", "Requests")
    input_tokens_at: str | None = setting(None, "Path of the number of prompt tokens (http).", "Requests")
    output_tokens_at: str | None = setting(None, "Path of the number of answer tokens (http).", "Requests")
    prompts: Path | None = setting(None, "Prompts: .txt, .jsonl, .json or .csv. Default: generated.", "Requests")
    prompt_key: str | None = setting(None, "Field or column with the prompt.", "Requests")
    conversations: Path | None = setting(
        None,
        "Recorded conversations, sent turn by turn with the messages before as they were: JSON with messages (role, "
        "content), or ShareGPT's.",
        "Requests",
    )
    agent_tasks: Path | None = setting(
        None,
        "Recorded tasks of agents, each a request with its calls, tools and sub-agents: spans of OpenTelemetry (JSON), "
        "or WEKA traces.",
        "Requests",
    )
    task_pause_s: float = setting(
        USUAL_MAX_PAUSE_S,
        "Pause in which nothing runs that ends a task: a person's, in seconds.",
        "Requests",
        gt=0,
        le=1e6,
    )
    tool_factor: float = setting(1.0, "Factor on the times of the tools of agent tasks.", "Requests", ge=0, le=100)
    probes: Path | None = setting(
        None,
        "Questions with known answers, sent among the prompts: JSON lines with prompt and answer, contains, schema (of "
        "JSON), or check (module:function).",
        "Requests",
    )
    probe_share: float = setting(0.1, "Share of the requests that are probes.", "Requests", gt=0, le=1)
    input_tokens: float = setting(400.0, "Mean length of generated prompts, in tokens.", "Requests", ge=1, le=1_000_000)
    input_cv: float = setting(0.0, "Coefficient of variation of that length (lognormal).", "Requests", ge=0, le=10)
    tokenizer: str = setting(
        "", "Exact prompt lengths: tokenizer.json, its folder, or a model in the local cache.", "Requests"
    )
    unique_prefix: bool = setting(False, "Start each prompt differently, to defeat prefix caches.", "Requests")
    users: list[Users] | None = setting(
        None,
        "Levels: concurrent requests, or users with --think-time. Default: adaptive.",
        "Load",
        min_length=1,
        parse=parse_numbers,
        metavar="N,N,…",
    )
    rates: list[Rate] | None = setting(
        None,
        "Levels of an open loop: arrivals per second, with --arrivals.",
        "Load",
        min_length=1,
        parse=parse_numbers,
        metavar="R,R,…",
    )
    arrivals: ArrivalName = setting(
        "users", "users (closed loop); or an open loop: poisson, gamma (bursts), constant, trace.", "Load"
    )
    arrivals_cv: float = setting(2.0, "Coefficient of variation of the gaps (gamma).", "Load", gt=0, le=20)
    trace: Path | None = setting(
        None,
        "Recorded traffic: times in seconds, an Azure or BurstGPT trace (CSV), or a Mooncake or Bailian "
        "trace (JSONL; with session_id and delay, sessions).",
        "Load",
    )
    trace_from_s: float = setting(0.0, "Begin of the part that is replayed, in seconds (trace).", "Load", ge=0)
    trace_for_s: float | None = setting(None, "Length of that part, in seconds. Default: to the end.", "Load", gt=0)
    speed: list[Speed] | None = setting(
        None,
        "Levels of a trace: times as fast as it was recorded, instead of rates.",
        "Load",
        min_length=1,
        parse=parse_numbers,
        metavar="X,X,…",
    )
    trace_unit: TimeUnit | None = setting(None, "Unit of the times. Default: as in the trace.", "Load")
    trace_block: int | None = setting(
        None, "Tokens of a block of hash_ids. Default: as in the trace.", "Load", ge=1, le=1 << 20
    )
    turns: int = setting(1, "Turns of a session, each with all earlier ones before it (openai).", "Load", ge=1, le=1000)
    think_time_s: float = setting(
        0.0, "Mean think time of a user between requests (exponential), in seconds.", "Load", ge=0, le=86_400
    )
    ramp_s: float | None = setting(
        None, "Time over which users start, in seconds. Default: about one runtime.", "Load", ge=0, le=3600
    )
    retries: int = setting(0, "How often a failed request is sent again.", "Load", ge=0, le=10)
    processes: int = setting(1, "Client processes that share the load; 0: this one.", "Load", ge=0, le=64)
    workers: str = setting("", "Load from Dask workers: local:N, or dask://HOST:PORT of a scheduler.", "Load")
    seed: int = setting(0, "Random seed.", "Load", ge=0, le=2**63 - 1)
    least_samples: int = setting(
        MIN_SAMPLES, "Minimum number of requests per step, after warm-up.", "Precision", ge=20, flag="samples"
    )
    most_samples: int = setting(1000, "Requests after which a step ends in any case.", "Precision", ge=20)
    tight: float = setting(
        0.05, "Relative half-width of the goal quantile's 90 % interval at which a step ends.", "Precision", gt=0, le=1
    )
    max_step_s: float = setting(120.0, "Longest step, in seconds, without its tail.", "Precision", gt=0, le=86_400)
    timeout_s: float = setting(300.0, "Time limit of a request, in seconds.", "Precision", gt=0, le=86_400)
    max_error_ratio: float = setting(
        0.01, "Fraction of failures above which a point is invalid.", "Precision", ge=0, le=1
    )
    any_answer: bool = setting(
        False, "Allow answers that are much shorter, longer or more alike than at the lowest load.", "Precision"
    )
    max_requests: int | None = setting(None, "Stop after this many requests.", "Limits and prices", ge=1)
    max_duration_s: float | None = setting(None, "Stop after this many seconds.", "Limits and prices", gt=0)
    max_tokens: int | None = setting(
        None, "Stop after this many tokens, prompts and answers.", "Limits and prices", ge=1
    )
    max_cost: float | None = setting(None, "Stop at this cost, in the prices' currency.", "Limits and prices", gt=0)
    price_request: float = setting(0.0, "Price per request.", "Limits and prices", ge=0)
    price_million_input: float = setting(0.0, "Price per million prompt tokens.", "Limits and prices", ge=0)
    price_million_output: float = setting(0.0, "Price per million answer tokens.", "Limits and prices", ge=0)
    max_answer_bytes: int = Field(8 << 20, ge=1024, le=1 << 30, description="Longest line of a stream, in bytes.")
    goals: list[Goal] = Field([], description="Goals; adaptive levels close in on their limits.")
    ladder: Ladder = Field(default_factory=lambda: Ladder.model_validate({}), description="Choice of adaptive levels.")
    max_in_flight: int = Field(4096, ge=1, le=1_000_000, description="Most requests in flight in open loops.")
    min_step_s: float = Field(1.0, ge=0, le=3600, description="Shortest step, in seconds.")

    @property
    def is_open(self) -> bool:
        """Whether requests arrive at a rate that does not depend on the service."""
        return self.arrivals != "users"

    @property
    def session_plan(self) -> SessionPlan | None:
        """Plan of its sessions; null without sessions or without think time, whose answers decide all."""
        if self.is_open or self.turns == 1 or not self.think_time_s:
            return None
        answer_s = (self.output_tokens or USUAL_ANSWER_TOKENS) / USUAL_TOKENS_PER_S
        return SessionPlan(self.turns, self.think_time_s, answer_s, self.least_samples, tuple(self.users or ()))

    @property
    def trace_replay(self) -> TraceReplay:
        """What is read of the trace, and how."""
        return TraceReplay(self.trace_from_s, self.trace_for_s, self.trace_unit, self.trace_block)

    @property
    def max_samples(self) -> int:
        """`most_samples`; where that is not given, at least what the interval of the highest goal's quantile needs."""
        if "most_samples" in self.model_fields_set:
            return self.most_samples
        return max(self.most_samples, *(metrics.min_samples_for(goal.q) for goal in self.goals), 0)

    @property
    def host(self) -> str:
        """Host of the URL; empty for a function."""
        return urlsplit(self.url).hostname or ""

    @property
    def served(self) -> str:
        """Model and GPU type, as forecasts name them; empty where one is not known."""
        return f"{self.model} on {self.gpu_type}" if self.model and self.gpu_type else ""

    @property
    def load_means(self) -> str:
        """Meaning of a level, in words."""
        if self.is_open:
            return f"arrivals a second ({self.arrivals}), whatever the service does"
        if self.think_time_s:
            return f"users, each thinking {self.think_time_s:g} s on average between requests"
        return "concurrent requests (users without think time)"

    @model_validator(mode="after")
    def _check_combinations(self) -> SweepConfig:
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
        if self.metrics_url:
            _check_url_without_credentials(self.metrics_url, "metrics_url")
        if self.protocol == "function":
            if self.url:
                raise ValueError("url and protocol function exclude each other")
            return
        if self.function:
            raise ValueError(f"function needs protocol function, not {self.protocol}")
        _check_url_without_credentials(self.url)
        if self.protocol in (*CHAT_PROTOCOLS, *VECTOR_PROTOCOLS) and not self.model:
            raise ValueError(f"{self.protocol} needs the name of a model")
        for goal in self.goals if self.protocol in VECTOR_PROTOCOLS else ():
            if self.protocol not in metrics.METRICS[goal.metric].protocols:
                raise ValueError(f"answers of {self.protocol} have no tokens: set goals on runtime, such as p95<=0.2")
        if self.protocol == "http" and "{prompt}" not in self.url + repr(self.body):
            raise ValueError("neither url nor body has {prompt}: every request would be the same")
        for name, value in (("extra_body", self.extra_body), ("body", self.body)):
            if (key := _find_secret_key(value)) is not None:
                raise ValueError(f"{name} holds a secret ({key}) and is written to disk; use --header-env")
        for header, variable in self.header_env.items():
            if not HEADER_PATTERN.fullmatch(header) or not VARIABLE_PATTERN.fullmatch(variable):
                raise ValueError("header_env is HEADER=VARIABLE, the name of an environment variable, not a value")

    def _check_load(self) -> None:
        if self.workers and not WORKERS_PATTERN.fullmatch(self.workers):
            raise ValueError("workers must be local:N (1 to 64), or dask://HOST:PORT")
        if self.is_open and self.users is not None:
            raise ValueError(f"users are levels of a closed loop; with arrivals {self.arrivals} set rates")
        if not self.is_open and self.rates is not None:
            raise ValueError("rates need arrivals: poisson, gamma, constant or trace")
        if self.is_open and self.think_time_s:
            raise ValueError("think_time_s is for users; arrivals of an open loop do not wait")
        if self.users is None and self.rates is None and self.speed is None and not self.goals:
            raise ValueError("neither levels nor a goal: set users, rates or goals such as p95<=2")
        if self.protocol not in CHAT_PROTOCOLS and (named := self._list_openai_fields()):
            raise ValueError(f"{named[0]} needs protocol {', '.join(CHAT_PROTOCOLS)}, not {self.protocol}")
        if self.conversations is not None and (self.is_open or self.turns > 1 or self.prompts is not None):
            raise ValueError("conversations are for users, and have turns and prompts of their own")
        if self.agent_tasks is not None:
            self._check_agent_tasks()
        elif named := self._list_given(("task_pause_s", "tool_factor")):
            raise ValueError(f"{named[0]} needs agent_tasks")
        if self.exact_output and self.protocol != "openai":
            raise ValueError(f"exact_output needs protocol openai, not {self.protocol}")
        if self.turns > 1 and self.is_open:
            raise ValueError("turns are sessions of users; arrivals of an open loop have none")
        if (self.output_cv or self.exact_output) and self.output_tokens is None and not self._has_own_lengths:
            raise ValueError("output_cv and exact_output need output_tokens")
        self._check_trace()

    @property
    def _has_own_lengths(self) -> bool:
        return self.trace is not None or self.agent_tasks is not None

    def _check_agent_tasks(self) -> None:
        """Refuse what tasks bring themselves, and goals on what a task has several of."""
        named = ("prompts", "conversations", "trace", "probes", "output_tokens", "input_tokens", "turns")
        if given := self._list_given(named):
            raise ValueError(f"agent_tasks have calls and prompts of their own: remove {given[0]}")
        for goal in self.goals:
            if goal.metric not in TASK_METRICS:
                raise ValueError(
                    f"a task has many calls: set goals on its time (p95<=120) or on each call (llm p95<=5), not on "
                    f"{goal.metric}"
                )

    def _list_given(self, names: Sequence[str]) -> list[str]:
        """Those of these settings that are not at their default."""
        return [name for name in names if getattr(self, name) != SweepConfig.model_fields[name].default]

    def _check_trace(self) -> None:
        if (self.arrivals == "trace") != (self.trace is not None):
            raise ValueError("arrivals=trace needs a file in trace, and the file needs arrivals=trace")
        if self.speed is not None and self.rates is not None:
            raise ValueError("speed and rates are both levels of a trace: set one of them")
        named = [name for name in TRACE_FIELDS if getattr(self, name) not in (None, 0.0)]
        if named and self.trace is None:
            raise ValueError(f"{named[0]} needs arrivals=trace and a file in trace")

    def _list_openai_fields(self) -> list[str]:
        flags = {
            "conversations": self.conversations is not None,
            "agent_tasks": self.agent_tasks is not None,
            "turns": self.turns > 1,
            "output_cv": bool(self.output_cv),
            "exact_output": self.exact_output,
        }
        return [name for name, is_given in flags.items() if is_given]


def _check_url_without_credentials(url: str, name: str = "url") -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{name} does not parse") from error
    if redaction.has_user_info(url) or parts.username is not None:
        raise ValueError(f"{name} holds a user or password; use --header-env Authorization=VARIABLE")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{name} must be like http://HOST:PORT")
    if named := [
        name for name in [pair.partition("=")[0] for pair in parts.query.split("&")] if redaction.is_secret_name(name)
    ]:
        raise ValueError(f"{name} holds a secret ({named[0]}) in its query; use --header-env")


def _find_secret_key(value: Any) -> str | None:
    """First key in a JSON value whose name is that of a secret."""
    if isinstance(value, dict):
        for key, item in value.items():
            if redaction.is_secret_name(str(key)):
                return str(key)
            if (inner_key := _find_secret_key(item)) is not None:
                return inner_key
    elif isinstance(value, list):
        return next((secret_key for item in value if (secret_key := _find_secret_key(item)) is not None), None)
    return None


def confirm_target(config: SweepConfig) -> None:
    """Refuse to load another machine unless `target_confirm` repeats its name."""
    if config.protocol == "function" or is_loopback(config.host):
        return
    if config.target_confirm.lower() != config.host:
        raise ConfigError(
            "the target is another machine: a load test can take a service down and may cost money",
            where="--url",
            found=config.host,
            do=f"add --target-confirm {config.host} if you may load it",
        )


def build_sweep_config(**values: Any) -> SweepConfig:
    """Build and check the settings of a sweep; errors do not repeat the values.

    Raises
    ------
    ConfigError
        Unknown names, wrong types, values out of range, or settings that contradict each other.
    """
    return validate_model(SweepConfig, values, noun="sweep's setting", error_type=ConfigError, show_values=False)


class NotebookConfig(StrictModel):
    """Parameters of the notebook: the question, and the source of the measurements."""

    FORM_GROUPS: ClassVar = (
        FieldGroup("Sessions of users", ("users_per_hour", "session_length_s", "turns", "think_time_s")),
        FieldGroup("Simulated service", ("service", "truth_runs"), unless="live"),
        FieldGroup(
            "Live measurement",
            ("url", "protocol", "function", "target_confirm", "header_env", "time_scale"),
            when="live",
        ),
        FieldGroup("More settings", ("trace", "agent_tasks", "settings", "seed")),
    )

    users: float = Field(gt=0, description="Load to serve: users, or arrivals per second in open loops.")
    users_per_hour: float | None = added_field(None, "Sessions that begin in an hour, instead of users.", gt=0)
    session_length_s: float | None = added_field(None, "Their length. Default: by turns and think time.", gt=0)
    turns: int = added_field(1, "Turns of a session (openai, simulator).", ge=1, le=1000)
    think_time_s: float = added_field(0.0, "Mean think time of a user between requests, in seconds.", ge=0, le=86_400)
    goals: list[str] = Field(min_length=1, description="Goals that must all hold: p95<=6, 'ttft p99<=300ms'.")
    gpu_counts: list[Gpus] = Field(default=[1], min_length=1, description="GPU counts to measure, each once.")
    service: list[str] = Field(default=[], description="Fields of the simulated service, NAME=VALUE each.")
    live: bool = Field(default=False, description="Measure over HTTP in real time instead of in virtual time.")
    url: str = Field(default="", description="Live: URL of the service; by default the simulator.")
    protocol: Literal["nat", "openai", "responses", "anthropic", "embeddings", "rerank", "http"] = Field(
        default="nat", description="Live: protocol of the url."
    )
    function: str = Field(default="", description="Live: module:function, an async callable that takes a prompt.")
    target_confirm: str = Field(default="", description="Live: host of the url again, unless it is this machine.")
    header_env: list[str] = Field(default=[], description="Live: HEADER=VARIABLE, an environment variable each.")
    trace: Annotated[str, _TRACE] = added_field("", "Recorded traffic to replay; users is then a rate per second.")
    agent_tasks: Annotated[str, _TASKS] = added_field(
        "", "Recorded tasks of agents (OpenTelemetry spans, WEKA traces); a request is a whole task."
    )
    settings: list[str] = Field(default=[], description="More fields of SweepConfig, NAME=VALUE each.")
    time_scale: float = Field(default=0.05, gt=0, le=10, description="Live simulator: factor on its times and limits.")
    sweep: Annotated[list[str], _SWEEP] = Field(
        default=[], description="Folders of stored sweeps; nothing is measured."
    )
    gpu_price_per_h: float | None = Field(default=None, ge=0, description="Price of a GPU per hour.")
    currency: str = added_field("", "Its currency, shown with costs.", max_length=12)
    truth_runs: int = Field(default=3, ge=0, le=100, description="Virtual time: long runs per GPU count tried.")
    seed: int = Field(default=0, ge=0, description="Random seed.")

    @model_validator(mode="after")
    def _check_combinations(self) -> NotebookConfig:
        if not self.live and (named := [name for name in ("url", "function") if getattr(self, name)]):
            raise ValueError(f"{named[0]} needs live=true")
        if self.live and self.sweep:
            raise ValueError("sweep reads stored results, live measures: set one of them")
        if self.url and self.function:
            raise ValueError("set url or function, not both")
        if self.session_length_s is not None and self.users_per_hour is None:
            raise ValueError("session_length_s needs users_per_hour")
        if len(set(self.gpu_counts)) < len(self.gpu_counts):
            raise ValueError("gpu_counts has a count twice")
        if (self.url or self.function) and len(self.gpu_counts) > 1:
            raise ValueError("a running service has one GPU count: run one sweep for each count and list them in sweep")
        return self

    @property
    def parsed_goals(self) -> list[Goal]:
        """`goals`, parsed."""
        return [Goal.read(text) for text in self.goals]

    @property
    def simulated_service(self) -> Service:
        """The simulated service on the first GPU count."""
        settings = parse_assignments(self.service, where="service")
        allowed = [name for name in Service.model_fields if name != "gpus"]  # gpus has a parameter of its own
        if unknown := sorted({*settings} - {*allowed}):
            raise ConfigError("not a field of the simulated service", where="service", found=unknown, allowed=allowed)
        if self.agent_tasks and (named := sorted({*settings} & {*WORKFLOW_FIELDS})):
            raise ConfigError("agent tasks have calls, lengths and tools of their own", where="service", found=named)
        values = {"gpus": self.gpu_counts[0], "seed": self.seed, **settings}
        return validate_model(Service, values, noun="simulated service", where="service", error_type=ConfigError)

    @property
    def sweep_settings(self) -> dict[str, Any]:
        """More fields of `SweepConfig`; sessions of users among them."""
        pairs = (("turns", self.turns, 1), ("think_time_s", self.think_time_s, 0.0))
        sessions = {name: value for name, value, default in pairs if value != default}
        settings = parse_assignments(self.settings, where="settings")
        traffic = {"arrivals": "trace", "trace": self.trace} if self.trace else {}
        traffic |= {"agent_tasks": self.agent_tasks} if self.agent_tasks else {}
        if clashes := sorted({*settings} & {*SERVICE_FIELDS, *traffic}):
            raise ConfigError("set by another parameter of the notebook", where="settings", found=clashes)
        return sessions | traffic | settings

    @property
    def load(self) -> float:
        """Load to serve: `users`, or the users at once of the sessions that begin in an hour, as whole users."""
        return self.users if self.users_per_hour is None else float(math.ceil(self._users_at_once[0] - 1e-9))

    @property
    def load_step(self) -> str:
        """How sessions an hour became users at once; empty without them."""
        return "" if self.users_per_hour is None else self._users_at_once[1]

    @property
    def _users_at_once(self) -> tuple[float, str]:
        length_s = self.session_length_s
        if length_s is None:
            asked = {"protocol": "openai", "url": "http://127.0.0.1", "model": "any"} | self.sweep_settings
            plan = build_sweep_config(**asked | {"goals": self.parsed_goals}).session_plan
            if plan is None:
                do = "set session_length_s, or turns and think_time_s"
                raise ConfigError("sessions of unknown length", where="users_per_hour", do=do)
            length_s = plan.first_session_s
        return count_users_at_once(self.users_per_hour or 0.0, length_s)


def parse_assignments(texts: Sequence[str], *, where: str) -> dict[str, Any]:
    """Parse NAME=VALUE texts; values that are JSON are decoded, others stay texts.

    >>> parse_assignments(["slots=8", "router=random", "users=[1, 2]"], where="service")
    {'slots': 8, 'router': 'random', 'users': [1, 2]}
    """
    assignments: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name or name in assignments:
            raise ConfigError(
                "not a setting, or set twice", where=where, found=text[:60], allowed="NAME=VALUE, each once"
            )
        try:
            assignments[name] = json.loads(value)
        except (ValueError, RecursionError):
            assignments[name] = value.strip()
    return assignments
