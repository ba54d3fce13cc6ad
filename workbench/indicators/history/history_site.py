"""A history as a folder of pages for a team: all series with their level and since when, and a page for each metric."""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from workbench.core.errors import ConfigError, RunFailedError
from workbench.core.formats import format_ends, format_number
from workbench.indicators.history import study
from workbench.indicators.history.history_charts import chart_history
from workbench.indicators.history.level_changes import HistoryAnalysis
from workbench.indicators.tables import CHANGES
from workbench.report import display
from workbench.runs.compare_page import PageCell, write_page
from workbench.runs.export import escape_markdown
from workbench.stats.verdicts import FASTER, SLOWER

INDEX = "index.html"
MAX_ROWS = 500
_TIMEOUT_S = 10.0


def write_site(analysis: HistoryAnalysis, folder: Path, *, command: str) -> Path:
    """Write the pages, each whole or not at all; the path of the first one."""
    metrics = analysis.series["metric"].unique(maintain_order=True).to_list()
    for metric in metrics:
        of_metric = _select_metric(analysis, metric)
        cells: list[PageCell] = [f"# {metric}: how did it go?"]
        cells.append(("history", display.headline(answer=study.format_answer(of_metric))))
        cells.append(("chart_history(analysis)", _draw(of_metric)))
        cells += ["## Changes, with the commits between", ("changes", _show_changes(of_metric))]
        _write(cells, folder / name_page(metric), command)
    told = [
        f"- [{escape_markdown(row['title'])}]({name_page(row['metric'])}): {escape_markdown(row['state'])}"
        for row in list_states(analysis)
    ]
    cells = ["# How did our figures go?", ("history", display.headline(answer=study.format_answer(analysis)))]
    cells += ["## All series, and since when", "\n".join(told[:MAX_ROWS]) or "No series yet."]
    return _write(cells, folder / INDEX, command)


def name_page(metric: str) -> str:
    """File name of a metric's page.

    >>> name_page("sort[n=10]")
    'sort-n-10-9b26f4.html'
    """
    words = re.sub(r"[^a-z0-9]+", "-", metric.lower()).strip("-")[:60]
    return f"{words}-{hashlib.sha256(metric.encode()).hexdigest()[:6]}.html"


def list_states(analysis: HistoryAnalysis) -> list[dict[str, str]]:
    """Each series with its level, since when it has it, and the commits between; those that became slower first.

    Keys: metric, title, state.
    """
    changes: dict[int, dict[str, Any]] = {}
    for row in analysis.changes.sort("created_at").iter_rows(named=True):
        if row["verdict"] in (FASTER, SLOWER):
            changes[row["series"]] = row
    rows = []
    for series in analysis.series.iter_rows(named=True):
        change = changes.get(series["series"])
        ends = format_ends(series["level_low"], series["level_high"])
        level = f"{format_number(series['level'])} times the reference's speed ({ends})"
        rows.append(
            {
                "metric": series["metric"],
                "title": f"{series['metric']} of {series['stack']} on {series['cpu_model']}",
                "state": f"{level}, {_describe_change(series, change)}",
                "order": (0 if change and change["verdict"] == SLOWER else 1, series["metric"], series["stack"]),
            }
        )
    ordered = sorted(rows, key=lambda row: row["order"])
    return [{name: str(row[name]) for name in ("metric", "title", "state")} for row in ordered]


def _describe_change(series: Mapping[str, Any], change: Mapping[str, Any] | None) -> str:
    if change is None:
        return f"unchanged since {series['first_at'][:10]} ({series['sessions']} sessions)"
    word = "slower" if change["verdict"] == SLOWER else "faster"
    ratio = max(change["ratio"], 1 / change["ratio"])
    causes = [change["packages"], f"commits {change['revisions']}" if change["revisions"] else ""]
    cause = "; ".join(filter(None, causes)) or "no package and no commit is known to differ"
    return f"{format_number(ratio)} times {word} since {change['created_at'][:10]}: {cause}"


def build_alert(analysis: HistoryAnalysis) -> dict[str, Any]:
    """What a webhook is told: the answer as text, and each regression since the date."""
    names = ("metric", "stack", "cpu_model", "ratio", "low", "high", "since_sessions")
    regressions = analysis.regressions.select(names).to_dicts()
    return {"text": study.explain_answer(analysis), "since": analysis.since, "regressions": regressions}


def send_alert(body: Mapping[str, Any], variable: str) -> None:
    """Post an alert as JSON to the address that an environment variable holds; it is shown nowhere.

    Raises
    ------
    ConfigError
        The variable has no address.
    RunFailedError
        The address cannot be reached, or refuses the alert.
    """
    address = os.environ.get(variable, "")
    if urlsplit(address).scheme not in ("https", "http"):
        raise ConfigError(
            "no address for alerts", where=f"--webhook {variable}", do=f"set {variable} to an https address"
        )
    request = urllib.request.Request(  # noqa: S310 - http and https alone
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        reason = f"status {error.code}"
    except (OSError, ValueError) as error:
        reason = type(error).__name__
    raise RunFailedError("the alert was not taken", where=f"--webhook {variable}", found=reason)


def _select_metric(analysis: HistoryAnalysis, metric: str) -> HistoryAnalysis:
    series = analysis.series.filter(metric=metric)
    numbers = pl.col("series").is_in(series["series"].implode())
    return replace(
        analysis,
        history=replace(analysis.history, points=analysis.history.points.filter(numbers)),
        series=series,
        changes=analysis.changes.filter(numbers),
        levels=analysis.levels.filter(numbers),
    )


def _draw(analysis: HistoryAnalysis) -> Any:
    from workbench.charts.renderer import build_mime_bundle

    return build_mime_bundle(chart_history(analysis).to_dict())


def _show_changes(analysis: HistoryAnalysis) -> Any:
    columns = ["created_at", "stack", "shape", "ratio", "low", "high", "verdict", "packages", "revisions"]
    shown = analysis.changes.select(columns).sort("created_at", descending=True)
    return display.table(shown, CHANGES, caption="Changes of level, newest first", limit=MAX_ROWS)


def _write(cells: list[PageCell], path: Path, command: str) -> Path:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return write_page(cells, path, area="indicators", ended_at=now, command=command, config={})
