"""Read-only answers about event logs at chosen places, for programs that ask: where time went, what changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from workbench.core.errors import ConfigError
from workbench.eventlog.reader import read_event_logs
from workbench.eventlog.sources import LogSource, list_all_logs
from workbench.runs.questions import Document, bound_reply, take_entries

MAX_LOGS_TOLD = 200
MAX_ROWS_TOLD = 40
LogName = Annotated[str, Field(description="A log: its path as list_event_logs tells it, or the end of one.")]
Offset = Annotated[int, Field(description="Where the list begins.", ge=0)]


class LogQuestions:
    """Questions about the event logs at these places: files, folders, URLs, a history server. No other is read."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = places

    def list_event_logs(self, offset: Offset = 0) -> Document:
        """List the Spark event logs that can be asked about: path, size, whether the application still ran.

        Next: profile_event_log for one, compare_event_logs for two.
        """
        logs = list_all_logs(self._places)
        entries = [
            {"log": log.path, "size_bytes": log.size_bytes, "running": log.in_progress, "notes": log.notes}
            for log in logs
        ]
        told = take_entries(entries[offset:], MAX_LOGS_TOLD)
        document = {"n_logs": len(logs), "offset": offset, "logs": told}
        return bound_reply(document, rest="name a log by its end", paged="logs", offset=offset, total=len(logs))

    def profile_event_log(self, log: LogName) -> Document:
        """Where one application lost time and what to try: findings in seconds, wall time by part, queries, operators.

        Each second of wall_parts and of exclusive times is counted once. Give the verdict with every figure: an invalid
        profile's are not known, its reasons say why.
        """
        from workbench.speedup.attribution.application_profile import build_profile

        found = build_profile(read_event_logs(*self._find_paths(log)))
        document = {
            "log": log,
            "answer": found.answer,
            "verdict": found.verdict,
            "reasons": found.reasons,
            "details": found.details,
            "findings": found.findings.head(MAX_ROWS_TOLD).to_dicts(),
            "wall_parts": found.wall_parts.to_dicts(),
            "queries": found.queries.head(MAX_ROWS_TOLD).to_dicts(),
            "operators": found.sum_operators().head(MAX_ROWS_TOLD).to_dicts(),
        }
        return bound_reply(document, rest="workbench speedup profile LOG has all rows")

    def compare_event_logs(
        self,
        baseline: LogName,
        candidate: LogName,
        query: Annotated[str | None, Field(description="Description of a query; all common ones by default.")] = None,
    ) -> Document:
        """Compare two applications, operator by operator: time of each, summed over their common queries.

        `comparability` has what else differs: data, settings, cluster. One run a side: a few percent are noise.
        """
        from workbench.speedup.comparison.run_comparison import compare_logs

        paths = self._find_paths(baseline, candidate)
        found = compare_logs(paths[0], paths[1], queries=[query] if query else [], sql_ids=None, number=None)
        differs = found.comparability.filter(found.comparability["severity"] != "ok")
        document = {
            "baseline": paths[0],
            "candidate": paths[1],
            "answer": found.answer,
            "verdict": "invalid" if found.reasons else "valid",
            "reasons": found.reasons,
            "comparability": differs.to_dicts(),
            "operators": found.sums.head(MAX_ROWS_TOLD).to_dicts(),
        }
        return bound_reply(document, rest="workbench speedup compare BASELINE CANDIDATE has all rows")

    def _find_paths(self, *names: str) -> list[str]:
        """Paths of logs; the places are listed once."""
        logs = list_all_logs(self._places)
        return [_find_log(logs, name).path for name in names]


def _find_log(logs: Sequence[LogSource], name: str) -> LogSource:
    found = [log for log in logs if log.path == name] or [log for log in logs if log.path.endswith(name)]
    if not name or len(found) != 1:
        raise ConfigError(
            "no such event log here" if not found else "several event logs end so",
            found=name[:200],
            allowed=[log.path for log in (found or logs)][:20],
            do="list_event_logs",
        )
    return found[0]


def list_questions(places: Sequence[str]) -> list[Callable[..., Document]]:
    """The questions about event logs at these places."""
    about = LogQuestions(places)
    return [about.list_event_logs, about.profile_event_log, about.compare_event_logs]
