"""Index page of reports: a card for each question with its key number, answer, trend and a small picture."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from workbench import __version__
from workbench.charts.data import extract_title
from workbench.charts.renderer import CHART_MIME, render_png
from workbench.charts.theme import ON_DARK, build_vega_config
from workbench.core import redaction
from workbench.core.errors import InputError, RunFailedError
from workbench.core.files import is_store_failure
from workbench.core.formats import NULL, escape_html, format_duration, format_moment, format_number
from workbench.forecasts.ledger import LEDGER_FILE, MAX_LEDGER_BYTES, parse_ledger
from workbench.forecasts.scores import build_cases, format_share, score_cases
from workbench.forecasts.tables import FORECAST_SCORES
from workbench.report.display import HEADLINE_MIME, render_chip, render_conditions, table
from workbench.report.page import build_security_policy, parse_executed_notebook, read_template, replace_surrogates
from workbench.runs import catalogue
from workbench.runs.catalogue import StoredRun
from workbench.runs.run_stores import Store, format_error, is_url, open_place
from workbench.runs.threshold_gate import render_threshold_chip

WIDTH, HEIGHT, MARGIN = 120.0, 28.0, 4.0
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
Figure = tuple[str, float]
THUMBNAIL_PX = 250
# Runs of a notebook whose key number is read for the trend.
MAX_TREND = 20
MAX_NOTEBOOK_BYTES = 256 << 20


def find_key_figure(numbers: object) -> Figure | None:
    """Label and value of the first key number of a headline; null where that is no number.

    >>> find_key_figure([{"label": "GPUs", "value": "1,024"}])
    ('GPUs', 1024.0)
    >>> find_key_figure([{"label": "stack", "value": "numpy 2"}]), find_key_figure(None)
    (None, None)
    """
    first = numbers[0] if isinstance(numbers, list) and numbers else None
    if not isinstance(first, dict):
        return None
    text = str(first.get("value", "")).replace(",", "").replace("\u2212", "-").strip()
    return (str(first.get("label", "")), float(text)) if _NUMBER.fullmatch(text) else None


def render_trend(figures: Sequence[Figure | None]) -> str:
    """The newest run's key number over the runs, oldest first, as an SVG; "" with fewer than two.

    Runs whose first key number has another label, or none, are left out. The line says nothing about noise: runs with
    intervals are compared by `workbench runs diff`.
    """
    newest = figures[-1] if figures else None
    values = [figure[1] for figure in figures if figure and newest and figure[0] == newest[0]]
    if newest is None or len(values) < 2:
        return ""
    low, high = min(values), max(values)
    step = (WIDTH - 2 * MARGIN) / (len(values) - 1)
    middle, span = HEIGHT / 2, HEIGHT - 2 * MARGIN
    heights = [middle if high == low else MARGIN + span * (high - value) / (high - low) for value in values]
    points = [(MARGIN + index * step, height) for index, height in enumerate(heights)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    words = escape_html(f"{newest[0]} over {len(values)} runs: " + ", ".join(map(format_number, values)))
    last_x, last_y = points[-1]
    return (
        f'<svg class="trend" role="img" aria-label="{words}" width="{WIDTH:.0f}" height="{HEIGHT:.0f}" '
        f'viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}"><title>{words}</title><polyline points="{path}"/>'
        f'<circle cx="{last_x:.1f}" cy="{last_y:.1f}" r="3"/></svg>'
    )


def describe_change(figures: Sequence[Figure | None]) -> str:
    """How the newest run's key number differs from that of the run before it; "" without one.

    >>> describe_change([("GPUs", 19.0), ("GPUs", 37.0)]), describe_change([("GPUs", 19.0), ("GPUs", 19.0)])
    ('before: 19', 'as before')
    """
    newest = figures[-1] if figures else None
    values = [figure[1] for figure in figures if figure and newest and figure[0] == newest[0]]
    if len(values) < 2:
        return ""
    return "as before" if values[-1] == values[-2] else f"before: {format_number(values[-2])}"


@dataclass(frozen=True)
class GalleryEntry:
    """One run in the gallery; `link` is relative to the page, null without a report.

    `figure`: label and value of its first key number, null where that is no number. `key_number`: That number as it is
    shown; empty without one.
    """

    record: dict[str, Any]
    question: str
    answer: str
    link: str | None
    thumbnail: str
    figure: tuple[str, float] | None = None
    key_number: dict[str, str] = field(default_factory=dict)


def write_gallery(place: str | Path) -> Path | str:
    """Write index.html of all runs below a folder or URL.

    The newest run of each notebook is a card with a picture of its first chart, and a collapsed list of older runs.
    Unreadable run folders are listed with the reason. Beside a ledger of forecasts, a table says whether they hold.

    `place`: Folder or URL, searched for runs six levels deep; index.html is written into it.

    Returns: The page, self-contained, written atomically; its URL when `place` is one.
    """
    store, root = open_place(place)
    do = "workbench run all --out DIR"
    if not is_url(place) and not Path(root).is_dir():
        raise InputError("no such folder", where=place, do=do)
    broken: list[InputError] = []
    runs = catalogue.list_runs(place, unreadable=broken.append)
    if missed := list(filter(is_store_failure, broken)):
        raise missed[0]
    if not runs and not broken:
        raise InputError("no runs below the folder", where=redaction.strip_user_info(str(place)), do=do)
    forecasts = _render_forecasts(store, root, broken)
    try:
        reports = store.has_each([f"{run.root}/{catalogue.REPORT_FILE}" for run in runs])
    except OSError as error:
        where, reason = store.display_path(root), format_error(error)
        raise InputError("cannot list the reports", where=where, found=reason) from error
    # A card for each notebook, in the order of their names, which is that of the questions.
    groups: dict[tuple[str, str], list[tuple[StoredRun, bool]]] = {}
    for run, has_report in zip(runs, reports, strict=True):
        groups.setdefault((str(run.record.get("notebook") or run.area), run.area), []).append((run, has_report))
    cards = ""
    for _, group in sorted(groups.items()):
        newest, *older = (_build_entry(root, *one, picture=n == 0, read=n < MAX_TREND) for n, one in enumerate(group))
        cards += _render_card(newest, older)
    areas = f'<ul class="cards">{cards}</ul>' + forecasts
    html = _render_page(areas, _render_broken_runs(store.display_path(root), broken), len(runs))
    try:
        store.write_bytes(f"{root}/index.html", html.encode())
    except OSError as error:
        if not is_url(place):
            raise
        where, reason = store.display_path(root), format_error(error)
        raise RunFailedError("cannot write the page", where=where, found=reason) from error
    return f"{store.display_path(root)}/index.html" if is_url(place) else Path(root) / "index.html"


def _render_forecasts(store: Store, root: str, broken: list[InputError]) -> str:
    """The scores of the ledger beside the runs; "" without one. One that cannot be read goes to the broken runs."""
    import polars as pl

    path = f"{root}/{LEDGER_FILE}"
    where = store.display_path(path)
    try:
        scores = score_cases(build_cases(parse_ledger(store.read_bytes(path, MAX_LEDGER_BYTES), where)))
    except FileNotFoundError:
        return ""
    except OSError as error:
        broken.append(InputError("cannot read the ledger of forecasts", where=where, found=format_error(error)))
        return ""
    except InputError as error:
        broken.append(error)
        return ""
    if not scores.forecasts.height:
        return ""
    counts = ["area", "n_forecasts", "n_open", "n_matched", "n_failed", "n_invalid", "n_retrospective"]
    ends = zip(*(scores.scores[name] for name in ("coverage_low", "coverage", "coverage_high")), strict=True)
    shown = scores.scores.select(*counts, "n_covered", "n_intervals", "verdict", "mean_absolute_log_error")
    shown.insert_column(9, pl.Series("coverage", [format_share(*row) for row in ends]))
    rows = table(shown, FORECAST_SCORES, caption=scores.answer, limit=100).html
    return f'<section class="forecasts"><h2>Do the forecasts hold?</h2>{rows}</section>'


def _build_entry(
    root: str, run: StoredRun, has_report: bool, *, picture: bool = True, read: bool = True
) -> GalleryEntry:
    """The entry of a run; without `read` from its record alone."""
    record = run.record | {"status": run.state}
    headline, charts = read_headline_and_charts(run) if read else ({}, [])
    failure = record["failure"] if isinstance(record.get("failure"), dict) else {}
    answer = headline.get("answer") or record.get("answer") or failure.get("error_name") or ""
    question = headline.get("question") or headline.get("heading") or record["title"]
    link = quote(f"{run.root}/{catalogue.REPORT_FILE}".removeprefix(f"{root}/")) if has_report else None
    thumbnail = _render_thumbnail(charts[0]) if picture and charts else ""
    numbers = headline.get("key_numbers")
    first = numbers[0] if isinstance(numbers, list) and numbers and isinstance(numbers[0], dict) else {}
    key_number = {name: str(first.get(name) or "") for name in ("label", "value", "unit")} if first else {}
    return GalleryEntry(record, str(question), str(answer), link, thumbnail, find_key_figure(numbers), key_number)


def read_headline_and_charts(run: StoredRun) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the headline and the charts' specs from a run's notebook; empty if it cannot be read."""
    from workbench.report.cells import find_first_heading

    try:
        content = run.read_file("report.ipynb", MAX_NOTEBOOK_BYTES)
        notebook = parse_executed_notebook(content, run.place)
    except InputError as error:
        if is_store_failure(error):
            raise
        return {}, []
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    headline = next((dict(data[HEADLINE_MIME]) for data in bundles if isinstance(data.get(HEADLINE_MIME), dict)), {})
    charts = [data[CHART_MIME] for data in bundles if isinstance(data.get(CHART_MIME), dict)]
    return {"heading": find_first_heading(notebook.cells), **headline}, charts


def _render_thumbnail(spec: dict[str, Any]) -> str:
    """Render a chart as a light and a dark thumbnail; "" if it cannot be drawn."""
    title, _ = extract_title(spec)
    small = _narrow_chart({key: value for key, value in spec.items() if key not in ("title", "background")})
    pictures = []
    for mode in ("light", "dark"):
        text = json.dumps(small)
        for light, dark in ON_DARK.items() if mode == "dark" else ():
            text = text.replace(f'"{light}"', f'"{dark}"')
        look = {
            **small.get("config", {}),
            **build_vega_config(mode),
            "background": "transparent",
            "axisY": {"labelLimit": 90},
            "legend": {"disable": True},
        }
        try:
            data = render_png(json.loads(text) | {"config": look})
        except ValueError:
            return ""
        source = base64.b64encode(data).decode("ascii")
        words = escape_html(title or "first chart") if mode == "light" else ""
        pictures.append(f'<img class="for-{mode}" alt="{words}" src="data:image/png;base64,{source}">')
    return "".join(pictures)


def _narrow_chart(view: dict[str, Any]) -> dict[str, Any]:
    """Draw a chart for a thumbnail: its first view, three ticks to an axis, no words on its marks."""
    for key in ("vconcat", "hconcat", "concat"):
        if view.get(key):
            shared = {name: view[name] for name in ("datasets", "data", "params") if name in view}
            return _narrow_chart(shared | view[key][0] | {"title": ""})
    if "layer" in view:
        view = view | {"layer": [_narrow_chart(layer) for layer in view["layer"] if _read_mark(layer) != "text"]}
    view = view | {"encoding": _thin_axes(view["encoding"])} if view.get("encoding") else view
    size = {"width": THUMBNAIL_PX} if isinstance(view.get("width"), int) else {}
    if isinstance(view.get("height"), int):
        size["height"] = min(view["height"], THUMBNAIL_PX * 2 // 3)
    return view | size


def _read_mark(view: dict[str, Any]) -> object:
    mark = view.get("mark")
    return mark.get("type") if isinstance(mark, dict) else mark


def _thin_axes(encoding: dict[str, Any]) -> dict[str, Any]:
    """An encoding whose axes have about three ticks and no titles, without legends."""
    thinned = {
        name: channel | {"legend": None}
        if name in ("color", "shape", "strokeDash", "opacity") and isinstance(channel, dict) and "field" in channel
        else channel
        for name, channel in encoding.items()
    }
    for name in ("x", "y"):
        channel = thinned.get(name)
        if not isinstance(channel, dict) or channel.get("axis", {}) is None:
            continue
        axis = channel.get("axis") or {}
        values = axis.get("values")
        few = {"values": values[:: max(1, len(values) // 3)]} if isinstance(values, list) else {"tickCount": 3}
        thinned[name] = channel | {"title": None, "axis": axis | few | {"labelOverlap": True}}
    return thinned


def _render_card(entry: GalleryEntry, older: list[GalleryEntry]) -> str:
    """Render the card of a notebook's latest run, with a trend over its older ones."""
    area = escape_html(str(entry.record["area"]).replace("_", " "))
    thumb = entry.thumbnail or f"<span>{area}: no chart</span>"
    question = escape_html(entry.question)
    picture = f'<div class="thumb">{thumb}</div>'
    if entry.link:
        picture = f'<a class="thumb" aria-hidden="true" href="{entry.link}" tabindex="-1">{thumb}</a>'
        question = f'<a href="{entry.link}">{question}</a>'
    kind = entry.record.get("verdict") if entry.record["status"] == "succeeded" else entry.record["status"]
    # What is as it should be needs no word.
    chip = "" if kind == "valid" else render_chip(entry.record.get("verdict"), entry.record["status"])
    chip += render_conditions(entry.record.get("conditions"))
    chip += render_threshold_chip(entry.record.get("thresholds"))
    answer = f'<p class="said">{escape_html(entry.answer)}</p>' if entry.answer else ""
    figures = [run_entry.figure for run_entry in (*older[::-1], entry)]
    head = f'<p class="eyebrow">{area}</p><h3>{question}</h3>'
    # The first key number of a run, large, with what it was before; "" without one.
    number, key_number = entry.key_number, ""
    if number and number["value"] not in ("", NULL):
        about = ", ".join(filter(None, [number["label"], describe_change(figures)]))
        unit = f" <span>{escape_html(number['unit'])}</span>" if number["unit"] else ""
        words = f"<b>{escape_html(number['value'])}</b>{unit} <small>{escape_html(about)}</small>"
        key_number = f'<p class="key">{words}{render_trend(figures)}</p>'
    body = f"{picture}{head}{key_number}{answer}"
    took_s = entry.record.get("duration_s")
    parts = [
        format_moment(entry.record.get("started_at")),
        format_duration(took_s if isinstance(took_s, int | float) else None),
    ]
    meta = f'<span class="meta">{escape_html(" · ".join(parts))}</span>'
    older_runs = ""
    if older:
        lines = "".join(f"<li>{_render_older_run(run_entry)}</li>" for run_entry in older)
        count = f"{len(older)} older run{'' if len(older) == 1 else 's'}"
        older_runs = f'<details class="older"><summary>{count}</summary><ul>{lines}</ul></details>'
    body += f"{f'<p>{chip}</p>' if chip else ''}<p>{meta}</p>{older_runs}"
    when = entry.record.get("started_at") or ""
    facts = {"verdict": kind or "none", "area": entry.record["area"], "started": when}
    data = "".join(f' data-{name}="{escape_html(str(value))}"' for name, value in facts.items())
    return f'<li class="card"{data}>{body}</li>'


def _render_older_run(entry: GalleryEntry) -> str:
    when = escape_html(format_moment(entry.record.get("started_at")))
    link = f'<a href="{entry.link}">{when}</a>' if entry.link else when
    chips = render_chip(entry.record.get("verdict"), entry.record["status"])
    return f"{chips}{render_threshold_chip(entry.record.get('thresholds'))} {link} {escape_html(entry.answer)}"


def _render_broken_runs(root: str, broken: Sequence[InputError]) -> str:
    if not broken:
        return ""
    lines = ""
    for error in broken:
        folder = str(error.facts.get("where") or "").removeprefix(f"{root}/").removesuffix("/run.json")
        text = str(error).replace(root, ".")
        lines += f"<li><code>{escape_html(folder)}</code><pre>{escape_html(text)}</pre></li>"
    return f'<section class="broken"><h2>Runs that could not be read</h2><ul>{lines}</ul></section>'


def _render_page(areas: str, broken: str, count: int) -> str:
    nonce = secrets.token_urlsafe(18)
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{build_security_policy(nonce)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta name="generator" content="workbench {escape_html(__version__)}"><title>Reports</title>'
        f'<style>{read_template("page.css")}</style><script nonce="{nonce}">{read_template("mode.js")}</script>'
    )
    toggle = '<button type="button" id="mode-toggle" aria-label="Switch between light and dark">Dark</button>'
    runs = f"{count} run{'' if count == 1 else 's'}"
    bar = f'<span class="brand">workbench</span><span class="meta">{runs}</span><span class="tools">{toggle}</span>'
    tools = '<div id="gallery-tools" class="tools-line"></div>'
    main = f"<main><h1>Reports</h1>{tools}{areas}{broken}</main>"
    script = f'<script nonce="{nonce}">{read_template("gallery.js")}</script>'
    return replace_surrogates(
        f'<!doctype html>\n<html lang="en"><head>{head}</head>'
        f'<body><header class="bar">{bar}</header>{main}{script}</body></html>\n'
    )
