"""Registry of the metrics and quantiles that goals are set on.

A new metric over columns that table REQUESTS has is one entry of `METRICS`: goals, stop rule, tables, charts, goodput
and virtual time read it from there. A metric that needs a new column also needs the column in `sizing.tables.REQUESTS`,
its value in each source of requests (a field of `load.client_messages.RequestRow` that the protocols fill, or an entry
of `load.load_step.REQUEST_COLUMNS`; `other_tools.imported_sweep`), and, for a simulated service, an entry of `_COLUMNS`
in `simulation.virtual_time`. A new quantile in reports is one number in `REPORTED_QUANTILES`; goals take any quantile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.sizing.load.client_messages import CHAT_PROTOCOLS, UNCLEAR_NOTES, VECTOR_PROTOCOLS

Floats = npt.NDArray[np.float64]
ALL_PROTOCOLS = ("nat", *CHAT_PROTOCOLS, *VECTOR_PROTOCOLS, "http", "function")
LLM_PROTOCOLS = ("nat", *CHAT_PROTOCOLS, "function")
OUTPUT_PROTOCOLS = (*CHAT_PROTOCOLS, "function")
"""Protocols that tell output from reasoning."""
FIRST_TOKEN_COLUMNS = {"ttft_s", "ttfo_s", "itl_s", "longest_gap_s"}
USER_TOKENS = (
    pl.when(pl.col("stream").is_in(UNCLEAR_NOTES))
    .then(pl.col("streamed_tokens"))
    .otherwise(pl.coalesce("streamed_tokens", "output_tokens"))
)
"""Tokens that a user gets, without those that a server says it hid; null where they are not known."""
_HAS_SEVERAL_TOKENS = USER_TOKENS.is_null() | (USER_TOKENS > 1)
# Null where the stream does not tell how many tokens came after its first event.
_LATER_TOKENS = pl.when(pl.col("stream").is_null() | pl.col("later_tokens").is_not_null()).then(
    pl.coalesce("later_tokens", pl.col("output_tokens") - 1)
)
MAX_DOUBTFUL_FRACTION = 0.05
"""Fraction of all tokens of a level up to which those that may or may not have been streamed do not matter."""
DEFAULT_METRIC = "runtime"
DEFAULT_QUANTILE = 0.95
REPORTED_QUANTILES = (0.5, 0.9, 0.95, 0.99)
"""Quantiles that every sweep is reported with, besides those of its goals."""


@dataclass(frozen=True, eq=False)
class Metric:
    """A latency of a request that a goal can be set on.

    Attributes
    ----------
    name
        As goals spell it: `ttft` in `ttft p99<=300ms`.
    label
        What it is, in words.
    values
        How it is read from columns of the table `requests`, in `unit`: one value per request, or a list of them. Null
        where it is unknown.
    protocols
        Protocols whose answers can tell it.
    applies
        Requests that have such a value at all; an answer of one token has no time between tokens.
    """

    name: str
    label: str
    values: pl.Expr
    protocols: tuple[str, ...] = ALL_PROTOCOLS
    applies: pl.Expr = field(default_factory=lambda: pl.lit(True))
    unit: str = "s"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table `requests` that it is read from."""
        return tuple(dict.fromkeys(self.values.meta.root_names()))

    @property
    def needs_stream(self) -> bool:
        """Whether it depends on what the stream tells: when tokens came, or how many there were."""
        return self.needs_first_token or "streamed_tokens" in self.columns

    @property
    def needs_first_token(self) -> bool:
        """Whether it depends on when the first token came, or the others."""
        return bool(FIRST_TOKEN_COLUMNS & set(self.columns))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("runtime", "whole request", pl.col("runtime_s")),
        Metric("llm", "each LLM call of a request", pl.col("llm_s"), LLM_PROTOCOLS),
        Metric("ttft", "time to first token", pl.col("ttft_s"), LLM_PROTOCOLS),
        Metric(
            "ttfo",
            "time to first output token, after any reasoning",
            pl.col("ttfo_s"),
            OUTPUT_PROTOCOLS,
        ),
        Metric("itl", "mean time between output tokens", pl.col("itl_s"), LLM_PROTOCOLS, _HAS_SEVERAL_TOKENS),
        Metric(
            "gap",
            "longest time between two events of an answer",
            pl.col("longest_gap_s"),
            LLM_PROTOCOLS,
            _HAS_SEVERAL_TOKENS,
        ),
        Metric(
            "tpot",
            "time per output token after the first, from it to the end of the request",
            pl.when(_LATER_TOKENS > 0).then((pl.col("runtime_s") - pl.col("ttft_s")) / _LATER_TOKENS),
            LLM_PROTOCOLS,
            _HAS_SEVERAL_TOKENS,
        ),
        Metric(
            "e2e",
            "whole request from when it was sent",
            pl.when(pl.col("runtime_s").is_not_null()).then(pl.col("ended_s") - pl.col("sent_s")),
        ),
        Metric(
            "token",
            "whole request per token that a user gets: one over the tokens a second of a user",
            pl.when(USER_TOKENS > 0).then(pl.col("runtime_s") / USER_TOKENS),
            LLM_PROTOCOLS,
        ),
    )
}


def _join_with_or(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


METRIC_NAMES_TEXT = _join_with_or(METRICS)


def format_quantile(metric: str, q: float) -> str:
    """A quantile of a metric, as goals and charts spell it.

    >>> format_quantile("ttft", 0.999)
    'ttft p99.9'
    """
    return f"{metric} p{round(100 * q, 6):.8g}"


def explain_missing(metric: str, stream_note: str | None = None) -> str:
    """Why a sweep may lack a metric; `stream_note` is what its points say of their streams.

    >>> explain_missing("ttft")
    'no request has ttft (time to first token): protocol nat, openai, responses, anthropic or function reports it for \
streamed answers'
    """
    entry = METRICS[metric]
    if entry.needs_stream and stream_note is not None:
        return f"{metric} was not measured: {stream_note}"
    protocols = _join_with_or(entry.protocols)
    streamed = " for streamed answers" if entry.needs_first_token else ""
    return f"no request has {metric} ({entry.label}): protocol {protocols} reports it{streamed}"


def list_columns(metrics: Iterable[str]) -> tuple[str, ...]:
    """Columns of the table `requests` that these metrics are read from."""
    return tuple(dict.fromkeys(column for name in metrics for column in METRICS[name].columns))


def needs_first_token(metrics: Iterable[str]) -> bool:
    """Whether one of these metrics depends on when the first token came."""
    return any(METRICS[name].needs_first_token for name in metrics)


def min_samples_for(q: float, confidence: float = 0.9) -> int:
    """Samples from which the two-sided interval of a quantile has an upper end: the largest sample bounds it.

    >>> min_samples_for(0.95), min_samples_for(0.999)
    (59, 2995)
    """
    return int(np.ceil(np.log((1 - confidence) / 2) / np.log(q)))


def metric_values(requests: pl.DataFrame | Mapping[str, Sequence[Any]], metric: str) -> Floats:
    """The values of a metric.

    `requests`: Rows of the table `requests`, or some of its columns; without `outcome` all are ok. What columns do not
    say is unknown.

    Returns: A row per request: one value, or one per LLM call padded with NaN. Infinite for a failed request, NaN for
    a successful one whose metric is unknown.

    >>> metric_values({"runtime_s": [1.0, None], "outcome": ["ok", "timeout"]}, "runtime").tolist()
    [[1.0], [inf]]
    """
    frame = requests if isinstance(requests, pl.DataFrame) else _frame_known_columns(requests, metric)
    series = frame.select(METRICS[metric].values.alias(metric)).to_series()
    if isinstance(series.dtype, pl.List):
        values = _pad_lists(series)
    else:
        values = np.array(series.cast(pl.Float64).to_numpy(), dtype=np.float64)[:, None]
    if "outcome" in frame.columns:
        failed = (frame["outcome"] != "ok").to_numpy()
        values[failed] = np.nan
        values[failed, 0] = np.inf
    return values


def _frame_known_columns(columns: Mapping[str, Sequence[Any]], metric: str) -> pl.DataFrame:
    """Frame of these columns; others that the metric is read from are null, as those of streams in virtual time."""
    frame = pl.DataFrame(columns, strict=False)
    absent = [name for name in METRICS[metric].columns if name not in frame.columns]
    return frame.with_columns(pl.lit(None).alias(name) for name in absent)


def metric_applies(requests: pl.DataFrame, metric: str) -> npt.NDArray[np.bool_]:
    """Mask of the requests for which the metric exists, whether its value is known or not.

    >>> requests = pl.DataFrame({"output_tokens": [1, 20, None], "streamed_tokens": [1, 20, None], "stream": [""] * 3})
    >>> metric_applies(requests, "itl").tolist(), metric_applies(requests, "runtime").tolist()
    ([False, True, True], [True, True, True])
    """
    return requests.select(pl.repeat(True, pl.len()) & METRICS[metric].applies).to_series().to_numpy()


def count_user_tokens(requests: pl.DataFrame) -> Floats:
    """Tokens that each user got (`USER_TOKENS`), NaN where unknown.

    Where a server's counts differ from the events in few answers, by few of all tokens, they are taken in those too.

    >>> columns = {"output_tokens": [60, 9], "streamed_tokens": [12, None], "stream": None, "event_tokens": None}
    >>> count_user_tokens(pl.DataFrame(columns)).tolist()
    [12.0, 9.0]
    """
    frame = requests.select(
        sure=USER_TOKENS.cast(pl.Float64),
        told=pl.col("output_tokens").cast(pl.Float64),
        doubt=pl.col("output_tokens") * (1 / pl.col("event_tokens") - 1).abs(),
    )
    is_doubtful = frame["sure"].is_null() & frame["doubt"].is_not_null()
    doubt = float(frame.filter(is_doubtful)["doubt"].sum())
    is_small = doubt <= MAX_DOUBTFUL_FRACTION * float(frame["told"].sum())
    tokens = pl.coalesce("sure", pl.when(is_doubtful & is_small).then("told"))
    return frame.select(tokens.fill_null(np.nan)).to_series().to_numpy()


def _pad_lists(series: pl.Series) -> Floats:
    """Turn a column of lists into an array [request, place], filled up with NaN.

    >>> _pad_lists(pl.Series([[1.0, 2.0], [3.0]])).tolist()
    [[1.0, 2.0], [3.0, nan]]
    """
    lengths = series.list.len().fill_null(0).to_numpy()
    values = np.full((len(series), max(1, int(lengths.max(initial=0)))), np.nan)
    filled = np.arange(values.shape[1]) < lengths[:, None]
    values[filled] = series.filter(series.list.len() > 0).explode().to_numpy()
    return values
