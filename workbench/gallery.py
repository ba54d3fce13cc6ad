"""An index of reports: what was asked, what came out, whether to trust it, newest first, with a picture each."""

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

from workbench import __version__, files
from workbench.chart_text import title_of
from workbench.display import HEADLINE_MIME, chip_html
from workbench.errors import InputError, WorkbenchError
from workbench.formats import duration, escape, moment
from workbench.limits import chip as chip_of_limits
from workbench.renderer import MIME, png
from workbench.report import policy, read_notebook, read_template, whole_text
from workbench.theme import ON_DARK, config

THUMBNAIL_PX = 250


@dataclass(frozen=True)
class Entry:
    """One run as the gallery shows it; `link` is relative to the gallery's page, null without a report."""

    record: dict[str, Any]
    question: str
    answer: str
    link: str | None
    thumbnail: str


def write_gallery(folder: str | Path) -> Path:
    """Make index.html over all run folders below `folder`.

    The newest run of each notebook is a card with a picture of its first chart; older ones are folded below it. A run
    folder that cannot be read is listed with its reason.

    Parameters
    ----------
    folder
        Where to look for run folders, at any depth; index.html is written into it.

    Returns
    -------
    Path
        The page, self-contained, written whole or not at all.

    Raises
    ------
    InputError
        The folder is not there, or there is no run below it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("no such folder", where=folder, do="workbench run all --out DIR")
    records, broken = _records(folder)
    if not records and not broken:
        raise InputError("no runs below the folder", where=folder, do="workbench run all --out DIR")
    groups: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for place, record in sorted(records, key=lambda pair: str(pair[1].get("started_at")), reverse=True):
        groups.setdefault(str(record.get("notebook") or record["area"]), []).append((place, record))
    cards = "".join(
        _card(_entry(folder, *group[0]), [_entry(folder, *old, picture=False) for old in group[1:]])
        for group in groups.values()
    )
    return files.write_text(folder / "index.html", _page(cards, _broken_html(folder, broken), len(records)))


def _records(folder: Path) -> tuple[list[tuple[Path, dict[str, Any]]], list[tuple[Path, str]]]:
    from workbench import runs

    good, broken = [], []
    for place in _run_folders(folder):
        try:
            run = runs.load(place)
            good.append((place, run.record | {"status": run.state}))
        except (WorkbenchError, OSError) as error:
            broken.append((place, str(error)))
    return good, broken


def _run_folders(folder: Path) -> Iterator[Path]:
    for place, names, found in os.walk(folder):
        names.sort()
        if "run.json" in found:
            # Nothing below a run folder is another run.
            names.clear()
            yield Path(place)


def _entry(folder: Path, place: Path, record: dict[str, Any], *, picture: bool = True) -> Entry:
    said, spec = _shown(place)
    link = quote((place / "report.html").relative_to(folder).as_posix()) if (place / "report.html").is_file() else None
    failure = record["failure"] if isinstance(record.get("failure"), dict) else {}
    answer = said.get("answer") or record.get("answer") or failure.get("error_name") or ""
    question = said.get("question") or said.get("heading") or record["title"]
    return Entry(record, str(question), str(answer), link, _thumbnail(spec) if picture and spec else "")


def _shown(place: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The headline and the first chart of a run's notebook; neither when it cannot be read."""
    from workbench.outputs import heading

    try:
        notebook = read_notebook(place / "report.ipynb")
    except InputError:
        return {}, None
    bundles = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    said = next((dict(data[HEADLINE_MIME]) for data in bundles if isinstance(data.get(HEADLINE_MIME), dict)), {})
    spec = next((data[MIME] for data in bundles if isinstance(data.get(MIME), dict)), None)
    return {"heading": heading(notebook.cells), **said}, spec


def _thumbnail(spec: dict[str, Any]) -> str:
    """The chart as two small pictures, for a light and a dark page; "" when it cannot be drawn."""
    title, _ = title_of(spec)
    small = _narrowed({key: value for key, value in spec.items() if key not in ("title", "background")})
    pictures = []
    for mode in ("light", "dark"):
        text = json.dumps(small)
        for light, dark in ON_DARK.items() if mode == "dark" else ():
            text = text.replace(f'"{light}"', f'"{dark}"')
        look = {**small.get("config", {}), **config(mode), "background": "transparent", "axisY": {"labelLimit": 90}}
        try:
            data = png(json.loads(text) | {"config": look})
        except ValueError:
            return ""
        source = base64.b64encode(data).decode("ascii")
        words = escape(title or "first chart") if mode == "light" else ""
        pictures.append(f'<img class="for-{mode}" alt="{words}" src="data:image/png;base64,{source}">')
    return "".join(pictures)


def _narrowed(view: dict[str, Any]) -> dict[str, Any]:
    """The same chart, so narrow that its words can be read in a small picture."""
    children = {
        key: [_narrowed(child) for child in view[key]] for key in ("vconcat", "hconcat", "concat") if key in view
    }
    own = {"width": THUMBNAIL_PX} if isinstance(view.get("width"), int) else {}
    if isinstance(view.get("height"), int):
        own["height"] = min(view["height"], THUMBNAIL_PX * 2 // 3)
    return view | children | own


def _meta(record: dict[str, Any]) -> str:
    took_s = record.get("duration_s")
    parts = [moment(record.get("started_at")), duration(took_s if isinstance(took_s, int | float) else None)]
    return f'<span class="meta">{escape(" · ".join(parts))}</span>'


def _card(entry: Entry, older: list[Entry]) -> str:
    area = escape(entry.record["area"])
    thumb = entry.thumbnail or f"<span>{area}: no chart</span>"
    question = escape(entry.question)
    picture = f'<div class="thumb">{thumb}</div>'
    if entry.link:
        picture = f'<a class="thumb" href="{entry.link}" tabindex="-1">{thumb}</a>'
        question = f'<a href="{entry.link}">{question}</a>'
    chip = chip_html(entry.record.get("verdict"), entry.record["status"])
    chip += chip_of_limits(entry.record.get("thresholds"))
    answer = f'<p class="said">{escape(entry.answer)}</p>' if entry.answer else ""
    return (
        f'<li class="card">{picture}<h2>{question}</h2>{answer}<p>{chip}{_meta(entry.record)}</p>{_older(older)}</li>'
    )


def _older(entries: list[Entry]) -> str:
    if not entries:
        return ""
    lines = "".join(f"<li>{_older_line(entry)}</li>" for entry in entries)
    count = f"{len(entries)} older run{'' if len(entries) == 1 else 's'}"
    return f'<details class="older"><summary>{count}</summary><ul>{lines}</ul></details>'


def _older_line(entry: Entry) -> str:
    when = escape(moment(entry.record.get("started_at")))
    link = f'<a href="{entry.link}">{when}</a>' if entry.link else when
    chips = chip_html(entry.record.get("verdict"), entry.record["status"])
    return f"{chips}{chip_of_limits(entry.record.get('thresholds'))} {link} {escape(entry.answer)}"


def _broken_html(folder: Path, broken: list[tuple[Path, str]]) -> str:
    if not broken:
        return ""
    lines = "".join(
        f"<li><code>{escape(place.relative_to(folder))}</code><pre>{escape(reason)}</pre></li>"
        for place, reason in broken
    )
    return f'<section class="broken"><h2>Runs that could not be read</h2><ul>{lines}</ul></section>'


def _page(cards: str, broken: str, count: int) -> str:
    nonce = secrets.token_urlsafe(18)
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(nonce)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta name="generator" content="workbench {escape(__version__)}"><title>Reports</title>'
        f'<style>{read_template("page.css")}</style><script nonce="{nonce}">{read_template("mode.js")}</script>'
    )
    toggle = '<button type="button" id="mode-toggle" aria-label="Switch between light and dark">Dark</button>'
    runs = f"{count} run{'' if count == 1 else 's'}"
    bar = f'<span class="brand">workbench</span><span class="meta">{runs}</span><span class="tools">{toggle}</span>'
    main = f'<main><h1>Reports</h1><ul class="cards">{cards}</ul>{broken}</main>'
    return whole_text(
        f'<!doctype html>\n<html lang="en"><head>{head}</head>'
        f'<body><header class="bar">{bar}</header>{main}</body></html>\n'
    )
