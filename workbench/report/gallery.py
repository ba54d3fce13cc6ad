"""Index page of reports, newest first, with answer, verdict and thumbnail."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from workbench import __version__
from workbench.charts.description import extract_title
from workbench.charts.renderer import CHART_MIME, render_png
from workbench.charts.theme import ON_DARK, build_vega_config
from workbench.core import files
from workbench.core.errors import InputError, WorkbenchError
from workbench.core.formats import escape_html, format_duration, format_moment
from workbench.report.display import HEADLINE_MIME, render_chip
from workbench.report.page import build_security_policy, read_executed_notebook, read_template, replace_surrogates
from workbench.runs.thresholds import render_threshold_chip

THUMBNAIL_PX = 250


@dataclass(frozen=True)
class GalleryEntry:
    """One run in the gallery; `link` is relative to the page, null without a report."""

    record: dict[str, Any]
    question: str
    answer: str
    link: str | None
    thumbnail: str


def write_gallery(folder: str | Path) -> Path:
    """Write index.html of all run folders below `folder`.

    The newest run of each notebook is a card with a picture of its first chart, and a collapsed list of older runs.
    Unreadable run folders are listed with the reason.

    Parameters
    ----------
    folder
        Searched for run folders at any depth; index.html is written into it.

    Returns
    -------
    Path
        The page, self-contained, written atomically.

    Raises
    ------
    InputError
        The folder does not exist or contains no runs.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such folder", where=folder, do="workbench run all --out DIR")
    records, broken = _read_records(folder)
    if not records and not broken:
        raise InputError("no runs below the folder", where=folder, do="workbench run all --out DIR")
    groups: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for place, record in sorted(records, key=lambda pair: str(pair[1].get("started_at")), reverse=True):
        groups.setdefault(str(record.get("notebook") or record["area"]), []).append((place, record))
    cards = "".join(
        _render_card(_build_entry(folder, *group[0]), [_build_entry(folder, *old, picture=False) for old in group[1:]])
        for group in groups.values()
    )
    return files.write_text(
        folder / "index.html", _render_page(cards, _render_broken_runs(folder, broken), len(records))
    )


def _read_records(folder: Path) -> tuple[list[tuple[Path, dict[str, Any]]], list[tuple[Path, str]]]:
    from workbench.runs import run_folder

    good, broken = [], []
    for place in _iterate_run_folders(folder):
        try:
            run = run_folder.load_run(place)
            good.append((place, run.record | {"status": run.state}))
        except (WorkbenchError, OSError) as error:
            broken.append((place, str(error)))
    return good, broken


def _iterate_run_folders(folder: Path) -> Iterator[Path]:
    for place, names, found in os.walk(folder):
        names.sort()
        if "run.json" in found:
            # Run folders contain no other runs.
            names.clear()
            yield Path(place)


def _build_entry(folder: Path, place: Path, record: dict[str, Any], *, picture: bool = True) -> GalleryEntry:
    said, spec = _read_headline_and_chart(place)
    link = quote((place / "report.html").relative_to(folder).as_posix()) if (place / "report.html").is_file() else None
    failure = record["failure"] if isinstance(record.get("failure"), dict) else {}
    answer = said.get("answer") or record.get("answer") or failure.get("error_name") or ""
    question = said.get("question") or said.get("heading") or record["title"]
    return GalleryEntry(record, str(question), str(answer), link, _render_thumbnail(spec) if picture and spec else "")


def _read_headline_and_chart(place: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Headline and first chart of a run's notebook; empty when it cannot be read."""
    from workbench.report.cells import find_first_heading

    try:
        notebook = read_executed_notebook(place / "report.ipynb")
    except InputError:
        return {}, None
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    said = next((dict(data[HEADLINE_MIME]) for data in bundles if isinstance(data.get(HEADLINE_MIME), dict)), {})
    spec = next((data[CHART_MIME] for data in bundles if isinstance(data.get(CHART_MIME), dict)), None)
    return {"heading": find_first_heading(notebook.cells), **said}, spec


def _render_thumbnail(spec: dict[str, Any]) -> str:
    """The chart as a light and a dark thumbnail; "" when it cannot be drawn."""
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
    """The chart at the width of a thumbnail, so that its text stays readable."""
    children = {
        key: [_narrow_chart(child) for child in view[key]] for key in ("vconcat", "hconcat", "concat") if key in view
    }
    own = {"width": THUMBNAIL_PX} if isinstance(view.get("width"), int) else {}
    if isinstance(view.get("height"), int):
        own["height"] = min(view["height"], THUMBNAIL_PX * 2 // 3)
    return view | children | own


def _render_meta(record: dict[str, Any]) -> str:
    took_s = record.get("duration_s")
    parts = [
        format_moment(record.get("started_at")),
        format_duration(took_s if isinstance(took_s, int | float) else None),
    ]
    return f'<span class="meta">{escape_html(" · ".join(parts))}</span>'


def _render_card(entry: GalleryEntry, older: list[GalleryEntry]) -> str:
    area = escape_html(entry.record["area"])
    thumb = entry.thumbnail or f"<span>{area}: no chart</span>"
    question = escape_html(entry.question)
    picture = f'<div class="thumb">{thumb}</div>'
    if entry.link:
        picture = f'<a class="thumb" href="{entry.link}" tabindex="-1">{thumb}</a>'
        question = f'<a href="{entry.link}">{question}</a>'
    chip = render_chip(entry.record.get("verdict"), entry.record["status"])
    chip += render_threshold_chip(entry.record.get("thresholds"))
    answer = f'<p class="said">{escape_html(entry.answer)}</p>' if entry.answer else ""
    meta = f"<p>{chip}{_render_meta(entry.record)}</p>"
    return f'<li class="card">{picture}<h2>{question}</h2>{answer}{meta}{_render_older_runs(older)}</li>'


def _render_older_runs(entries: list[GalleryEntry]) -> str:
    if not entries:
        return ""
    lines = "".join(f"<li>{_render_older_run(entry)}</li>" for entry in entries)
    count = f"{len(entries)} older run{'' if len(entries) == 1 else 's'}"
    return f'<details class="older"><summary>{count}</summary><ul>{lines}</ul></details>'


def _render_older_run(entry: GalleryEntry) -> str:
    when = escape_html(format_moment(entry.record.get("started_at")))
    link = f'<a href="{entry.link}">{when}</a>' if entry.link else when
    chips = render_chip(entry.record.get("verdict"), entry.record["status"])
    return f"{chips}{render_threshold_chip(entry.record.get('thresholds'))} {link} {escape_html(entry.answer)}"


def _render_broken_runs(folder: Path, broken: list[tuple[Path, str]]) -> str:
    if not broken:
        return ""
    lines = "".join(
        f"<li><code>{escape_html(place.relative_to(folder))}</code><pre>{escape_html(reason)}</pre></li>"
        for place, reason in broken
    )
    return f'<section class="broken"><h2>Runs that could not be read</h2><ul>{lines}</ul></section>'


def _render_page(cards: str, broken: str, count: int) -> str:
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
    main = f'<main><h1>Reports</h1><ul class="cards">{cards}</ul>{broken}</main>'
    return replace_surrogates(
        f'<!doctype html>\n<html lang="en"><head>{head}</head>'
        f'<body><header class="bar">{bar}</header>{main}</body></html>\n'
    )
