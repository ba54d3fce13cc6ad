"""Figures of the control plane's own `/metrics`, sampled beside a run: queues, etcd, webhooks, client limits.

Each look keeps the few families below, reduced to one row per subject: what was counted since the look before, its mean
and an upper bound of its p99. A component that cannot be read is noted once and left out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from workbench.core.errors import ConfigError
from workbench.scaletest.cluster_api.connection import NS_PER_S, Connection, UnreachableError, abort_answer, now_ns
from workbench.scaletest.observation.run_records import Pressure

API_SERVER = "kube-apiserver"
LOOK_EVERY_S, LOOK_TIMEOUT_S = 5.0, 3.0
MAX_BYTES, MAX_ROWS = 32 << 20, 200
LOOPBACK = ("127.0.0.1", "::1", "localhost")
QUEUE_WAIT, QUEUED, REJECTED, IN_FLIGHT = "queue wait", "queued requests", "rejected requests", "requests in flight"
ETCD, WEBHOOK, LIMITER = "etcd call", "admission webhook", "client limiter wait"
WORK_QUEUE, WORK_QUEUE_WAIT = "work queue", "work queue wait"
PENDING, ATTEMPT = "pending pods", "scheduling attempt"
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_SUFFIXES = ("_bucket", "_sum", "_count", "")
# Of a subject (measure, label): a gauge's or counter's value, or a histogram's sum, count and buckets by upper bound.
Look = dict[tuple[str, str], "Series"]


@dataclass(frozen=True)
class Measure:
    """A family of metrics that is kept, and the label that tells its subjects apart."""

    name: str
    family: str
    kind: Literal["histogram", "gauge", "counter"]
    subject: str | None = None


# Names of Kubernetes 1.36; the older ones that are still there are the same.
MEASURES = (
    Measure(QUEUE_WAIT, "apiserver_flowcontrol_request_wait_duration_seconds", "histogram", "priority_level"),
    Measure(QUEUED, "apiserver_flowcontrol_current_inqueue_requests", "gauge", "priority_level"),
    Measure(REJECTED, "apiserver_flowcontrol_rejected_requests_total", "counter", "priority_level"),
    Measure(IN_FLIGHT, "apiserver_current_inflight_requests", "gauge", "request_kind"),
    Measure(ETCD, "etcd_request_duration_seconds", "histogram", "operation"),
    Measure(WEBHOOK, "apiserver_admission_webhook_admission_duration_seconds", "histogram", "name"),
    Measure(LIMITER, "rest_client_rate_limiter_duration_seconds", "histogram"),
    Measure(WORK_QUEUE, "workqueue_depth", "gauge", "name"),
    Measure(WORK_QUEUE_WAIT, "workqueue_queue_duration_seconds", "histogram", "name"),
    Measure(PENDING, "scheduler_pending_pods", "gauge", "queue"),
    Measure(ATTEMPT, "scheduler_scheduling_attempt_duration_seconds", "histogram", "result"),
)
_BY_FAMILY = {measure.family: measure for measure in MEASURES}


@dataclass
class Series:
    """Cumulated values of one subject."""

    value: float = 0.0
    count: float = 0.0
    buckets: dict[float, float] | None = None


def parse_look(text: str) -> Look:
    """The kept families of a text in Prometheus' format, each subject's series added up; other lines are left out.

    >>> parse_look('workqueue_depth{name="job"} 3\\nother 1\\n')[("work queue", "job")].value
    3.0
    """
    look: Look = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        measure, suffix = _find_measure(name)
        sample = _SAMPLE.fullmatch(line) if measure is not None else None
        if measure is None or sample is None:
            continue
        labels = {key: value.replace('\\"', '"') for key, value in _LABEL.findall(sample[2] or "")}
        value = _parse_number(sample[3])
        if value is None:
            continue
        subject = labels.get(measure.subject, "")[:120] if measure.subject else ""
        series = look.setdefault((measure.name, subject), Series())
        if suffix == "_bucket":
            bound = _parse_number(labels.get("le", ""), infinite=True)
            series.buckets = series.buckets or {}
            if bound is not None:
                series.buckets[bound] = series.buckets.get(bound, 0.0) + value
        elif suffix == "_count":
            series.count += value
        else:
            series.value += value
    return look


def _find_measure(name: str) -> tuple[Measure | None, str]:
    """Find the measure that a Prometheus series belongs to, null if none, and the ending of its name, such as _sum."""
    for suffix in _SUFFIXES:
        measure = _BY_FAMILY.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if measure is not None and (measure.kind == "histogram") == bool(suffix):
            return measure, suffix
    return None, ""


def _parse_number(text: str, *, infinite: bool = False) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    finite = value == value and abs(value) != float("inf")
    return value if finite or (infinite and value == float("inf")) else None


def reduce_look(component: str, before: Look, now: Look, *, at_ns: int, over_s: float) -> list[Pressure]:
    """Reduce two looks to what happened between: a row per subject with something in it, most first, at most 200.

    A counter that fell was started anew with its component: what it has now is what happened.
    """
    kinds = {measure.name: measure.kind for measure in MEASURES}
    rows = []
    for (measure, subject), series in now.items():
        old = before.get((measure, subject), Series())
        row = Pressure(at_ns=at_ns, over_s=over_s, component=component, measure=measure, subject=subject)
        if kinds[measure] == "gauge":
            row.value = series.value
        elif kinds[measure] == "counter":
            row.count = round(series.value - old.value if series.value >= old.value else series.value)
        else:
            _fill_histogram(row, old if series.count >= old.count else Series(), series)
        if row.count or row.value:
            rows.append(row)
    return sorted(rows, key=lambda row: -(row.count or row.value or 0))[:MAX_ROWS]


def _fill_histogram(row: Pressure, old: Series, now: Series) -> None:
    """Set the row's count, mean and p99 from a histogram's growth between two scrapes.

    The p99 is the first bucket bound below which 99 % of the new observations lie; null if that is infinity.
    """
    row.count = round(now.count - old.count)
    if not row.count:
        return
    row.value = max(0.0, (now.value - old.value) / row.count)
    earlier = old.buckets or {}
    for bound, count in sorted((now.buckets or {}).items()):
        if count - earlier.get(bound, 0.0) >= 0.99 * row.count:
            row.p99 = None if bound == float("inf") else bound
            return


def check_sources_are_local(sources: Mapping[str, str]) -> None:
    """Refuse URLs of other machines, because certificates are not verified."""
    for name, url in sources.items():
        parts = urlsplit(url)
        if not name or parts.scheme not in ("http", "https") or parts.hostname not in LOOPBACK:
            found, allowed = f"{name}: {url}"[:100], "a component and a URL of this machine"
            raise ConfigError("not a source of metrics", where="metrics", found=found, allowed=allowed)


class MetricsFollower:
    """Looks at the API server's metrics, and at those of components on this machine, every five seconds."""

    def __init__(
        self,
        api: Connection,
        sources: Mapping[str, str],
        write: Callable[[Pressure], None],
        note: Callable[[str], None],
    ) -> None:
        self._api, self._sources, self._write, self._note = api, dict(sources), write, note
        self._looks: dict[str, tuple[int, Look]] = {}
        self._lost: set[str] = set()

    async def run(self) -> None:
        """Look every five seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """One look at all components; the first is the base of what follows."""
        await asyncio.gather(*(self._look_at(name) for name in (API_SERVER, *self._sources)))

    async def _look_at(self, name: str) -> None:
        if name in self._lost:
            return
        try:
            text = await self._read_text(name)
        except (UnreachableError, OSError, TimeoutError) as error:
            # It may come back: what is lost is this look.
            self._note_once(name, str(getattr(error, "what", error)) or type(error).__name__, for_good=False)
            return
        if text is None:
            return
        at_ns, look = now_ns(), parse_look(text)
        if name in self._looks:
            before_ns, before = self._looks[name]
            for row in reduce_look(name, before, look, at_ns=at_ns, over_s=(at_ns - before_ns) / NS_PER_S):
                self._write(row)
        self._looks[name] = (at_ns, look)

    async def _read_text(self, name: str) -> str | None:
        """The metrics' text; null when it may not be read at all."""
        if name == API_SERVER:
            answer = await self._api.request("GET", "/metrics", timeout_s=LOOK_TIMEOUT_S)
            status, body = answer.status, answer.body
        else:
            status, body = await self._read_local(self._sources[name])
        if status == 200 and len(body) <= MAX_BYTES:
            return body.decode("utf-8", "replace")
        self._note_once(name, f"status {status}" if status != 200 else "too long", for_good=status != 429)
        return None

    async def _read_local(self, url: str) -> tuple[int, bytes]:
        import aiohttp

        limit = aiohttp.ClientTimeout(total=LOOK_TIMEOUT_S)
        try:
            # A component's own certificate on loopback: nobody vouches for it, and no credential is sent.
            async with self._api.session.get(url, ssl=False, timeout=limit, allow_redirects=False) as answer:
                body = b""
                async for block in answer.content.iter_any():
                    body += block
                    if len(body) > MAX_BYTES:
                        abort_answer(answer)
                        break
                return answer.status, body
        except aiohttp.ClientError as error:
            raise UnreachableError("no answer", where=url, found=type(error).__name__) from None

    def _note_once(self, name: str, reason: str, *, for_good: bool) -> None:
        text = f"the metrics of {name} are not read: {reason}" + (
            "; an administrator grants it with what `workbench scaletest plan --rbac` prints"
            if reason[-3:] == "403"
            else ""
        )
        if for_good:
            self._lost.add(name)
        key = f"{name} {reason}"
        if key not in self._lost:
            self._lost.add(key)
            self._note(text)
